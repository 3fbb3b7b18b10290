"""Resets append times through IncrementalAlterConfigs, with a name that is not a setting.

    horolog.append.time.reset   all, or partitions such as 0,3: lower their append times to the
                                clock, and answer when that is on the disk
    horolog.append.time.ahead   described if requested by name: how far the partitions of a topic
                                are ahead of the clock, as a JSON object

The broker advertises the first as a feature (docs/wire.md). Neither is stored as a setting.
"""

import asyncio
import json
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from horolog.broker.broker import WORKERS, Broker
from horolog.broker.partition import Partition
from horolog.config import Change, DescribedSetting, Kind, Operation, Source
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.metadata.topics import Topic
from horolog.wire.features import ALL_PARTITIONS, APPEND_TIME_AHEAD, APPEND_TIME_RESET

_LOG = logging.getLogger(__name__)

_PARTITIONS = re.compile(r"[0-9]{1,10}( *, *[0-9]{1,10})*")
_AHEAD: Final = (
    "How many partitions have append times ahead of the clock, and by how many milliseconds at most"
)


@dataclass(frozen=True, slots=True)
class Reset:
    """The partitions of one topic whose append times one request resets."""

    partitions: Sequence[Partition]

    async def perform(self, broker: Broker) -> None:
        """Reset the partitions, a few at a time.

        Raises:
            HorologError: some were not reset; the message has their number and one reason.
        """
        failures: list[HorologError] = []
        for first in range(0, len(self.partitions), WORKERS):
            few = self.partitions[first : first + WORKERS]
            done = await asyncio.gather(
                *(_reset(broker, partition) for partition in few), return_exceptions=True
            )
            for outcome in done:
                if isinstance(outcome, HorologError):
                    failures.append(outcome)
                elif isinstance(outcome, BaseException):
                    raise outcome
        if failures:
            count = f"{len(failures)} of {len(self.partitions)} partitions were not reset"
            raise RequestRefused(code_for(failures[0]), f"{count}: {failures[0]}")


async def _reset(broker: Broker, partition: Partition) -> None:
    done = await partition.reset_append_time(broker.clock)
    if done is not None:
        _LOG.warning(
            "%s: append times are reset from %d to %d ms from offset %d on",
            partition.name,
            done.old_ms,
            done.new_ms,
            done.offset,
        )


def split_resets(
    broker: Broker, topic: Topic, changes: Sequence[Change]
) -> tuple[Reset | None, Sequence[Change]]:
    """The reset that a request asks for, if any, or its changes of settings.

    Raises:
        RequestRefused: the request has both, or names partitions that do not exist.
        StorageFailed: a partition is offline.
    """
    for change in changes:
        if change.name == APPEND_TIME_AHEAD:
            raise _refusal(f"{APPEND_TIME_AHEAD} can be described, not set")
    wanted = [change for change in changes if change.name == APPEND_TIME_RESET]
    if not wanted:
        return None, changes
    if len(changes) > 1 or wanted[0].operation is not Operation.SET or not wanted[0].value:
        raise _refusal(f"{APPEND_TIME_RESET} can be set, once in a request, and with nothing else")
    indexes = _indexes(topic, wanted[0].value.strip())
    return Reset([broker.partition(topic.name, index) for index in indexes]), ()


def _indexes(topic: Topic, text: str) -> Sequence[int]:
    if text == ALL_PARTITIONS:
        return topic.partitions
    if not _PARTITIONS.fullmatch(text):
        raise _refusal(f"{APPEND_TIME_RESET}: allowed is {ALL_PARTITIONS}, or partitions as in 0,3")
    wanted = {int(part) for part in text.split(",")}
    unknown = sorted(wanted.difference(topic.partitions))
    if unknown:
        raise RequestRefused(
            ErrorCode.unknown_topic_or_partition, f"{topic.name} has no partition {unknown[0]}"
        )
    return sorted(wanted)


def describe_append_times(
    broker: Broker, topic: Topic, names: Collection[str] | None
) -> list[DescribedSetting]:
    """How far append times are ahead of the clock, if requested by name."""
    if not names or APPEND_TIME_AHEAD not in names:
        return []
    now_ms = broker.clock.now_ms()
    served = [broker.partitions.get((topic.name, index)) for index in topic.partitions]
    ahead = [
        ahead_ms
        for partition in served
        if partition is not None and (ahead_ms := partition.log.append_time_ahead_ms(now_ms))
    ]
    shown = {
        "partitions": len(topic.partitions),
        "ahead": len(ahead),
        "most_ahead_ms": max(ahead, default=0),
        "resets": sum(len(each.log.append_time_resets) for each in served if each is not None),
    }
    return [
        DescribedSetting(
            APPEND_TIME_AHEAD,
            json.dumps(shown),
            Source.DEFAULT,
            read_only=True,
            sensitive=False,
            synonyms=(),
            kind=Kind.STRING,
            documentation=_AHEAD,
        )
    ]


def _refusal(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_config, message)
