"""Questions about topics: append times ahead of the clock, refused records, a Kafka's settings."""

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final, TypeAlias

from horolog.broker.authorisation import GROUP
from horolog.broker.broker import WORKERS, BrokerParts
from horolog.broker.control.rows import Perform, answers, as_many_as_fit, performs
from horolog.broker.controller import refuse_followed
from horolog.broker.partition import Partition
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.metadata.topics import Topic
from horolog.network.peer import Peer
from horolog.wire.acl import AclOperation
from horolog.wire.questions import (
    ALL_PARTITIONS,
    APPEND_TIME_RESET,
    APPEND_TIMES_AHEAD,
    LEFT_BEHIND,
    REFUSED,
    STAMP_CLOCK_RESET,
    AppendTimesAhead,
    AskEntries,
    AskNothing,
    LeftBehind,
    Refused,
    RefusedRecords,
)

_LOG = logging.getLogger(__name__)

_PARTITIONS = re.compile(r"[0-9]{1,10}( *, *[0-9]{1,10})*")


@performs(APPEND_TIME_RESET)
def prepare_reset(broker: BrokerParts, name: str, values: Mapping[str, str]) -> Perform:
    """Check the partitions whose append times are to be reset: `all`, or indexes such as 0,3.

    Raises:
        RequestRefused: the value is another one, or names partitions that do not exist; another
            cluster leads the topic.
        StorageFailed: a partition is offline.
    """
    topic = broker.topics.named(name)
    refuse_followed(topic)
    indexes = _indexes(topic, values[APPEND_TIME_RESET.name].strip())
    return partial(_reset_all, broker, [broker.led(name, index) for index in indexes])


@performs(STAMP_CLOCK_RESET)
def prepare_clock_reset(broker: BrokerParts, name: str, values: Mapping[str, str]) -> Perform:
    """Check that the clock of append times is to be lowered for `all` partitions.

    Raises:
        RequestRefused: the value is another one.
    """
    if values[STAMP_CLOCK_RESET.name].strip() != ALL_PARTITIONS:
        raise RequestRefused(
            ErrorCode.invalid_config,
            f"{STAMP_CLOCK_RESET.name}: allowed for a broker is {ALL_PARTITIONS}",
        )
    return partial(_reset_all, broker, ())


async def _reset_all(broker: BrokerParts, partitions: Sequence[Partition]) -> None:
    """Reset the partitions, a few at a time.

    Raises:
        HorologError: some were not reset; the message has their number and one reason.
    """
    failures: list[HorologError] = []
    ahead_ms = await broker.partitions.lower_stamp_clock()
    if ahead_ms:
        _LOG.warning("the clock of append times is set back by %d ms, for all partitions", ahead_ms)
    for first in range(0, len(partitions), WORKERS):
        few = partitions[first : first + WORKERS]
        done = await asyncio.gather(
            *(_reset(broker, partition) for partition in few), return_exceptions=True
        )
        for outcome in done:
            if isinstance(outcome, HorologError):
                failures.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
    if failures:
        count = f"{len(failures)} of {len(partitions)} partitions were not reset"
        raise RequestRefused(code_for(failures[0]), f"{count}: {failures[0]}")


async def _reset(broker: BrokerParts, partition: Partition) -> None:
    now_ms = broker.clock.now_ms()
    done = await partition.change(lambda log: log.reset_append_time(now_ms))
    if done is not None:
        _LOG.warning(
            "%s: append times are reset from %d to %d ms from offset %d on",
            partition.name,
            done.old_ms,
            done.new_ms,
            done.offset,
        )


def _indexes(topic: Topic, text: str) -> Sequence[int]:
    if text == ALL_PARTITIONS:
        return topic.partitions
    if not _PARTITIONS.fullmatch(text):
        raise RequestRefused(
            ErrorCode.invalid_config,
            f"{APPEND_TIME_RESET.name}: allowed is {ALL_PARTITIONS}, or partitions as in 0,3",
        )
    numbers = {int(part) for part in text.split(",")}
    unknown = sorted(numbers.difference(topic.partitions))
    if unknown:
        raise RequestRefused(
            ErrorCode.unknown_topic_or_partition, f"{topic.name} has no partition {unknown[0]}"
        )
    return sorted(numbers)


@answers(APPEND_TIMES_AHEAD)
async def describe_append_times(
    broker: BrokerParts, peer: Peer, name: str, ask: AskNothing
) -> AppendTimesAhead:
    """Report how far append times of a topic are ahead of the clock.

    Raises:
        RequestRefused: there is no such topic.
    """
    topic, now_ms = broker.topics.named(name), broker.clock.now_ms()
    found = (broker.partitions.get((name, index)) for index in topic.partitions)
    served = [partition for partition in found if partition is not None]
    ahead = [ms for partition in served if (ms := partition.log.append_time_ahead_ms(now_ms))]
    return AppendTimesAhead(
        partitions=len(topic.partitions),
        ahead=len(ahead),
        most_ahead_ms=max(ahead, default=0),
        resets=sum(len(partition.log.floor.resets) for partition in served),
        clock_ahead_ms=broker.partitions.stamps_ahead_ms,
    )


@answers(REFUSED)
async def list_refused(broker: BrokerParts, peer: Peer, topic: str, ask: AskNothing) -> Refused:
    """Count the refused records since the start of the broker, most first.

    Raises:
        RequestRefused: there is no such topic.
    """
    name = broker.topics.named(topic).name
    found = (
        RefusedRecords(reason, unit, count)
        for (of, reason, unit), count in broker.traffic.refused.items()
        if of == name
    )
    return Refused(tuple(sorted(found, key=lambda row: (-row.records, row))))


_SETTING: Final = 2  # a name and a value, in the place of group, partition and offset
_Entry: TypeAlias = tuple[str, str] | tuple[str, int, int]
_MOST_CHARACTERS: Final = 1_000  # of the name of a group


@answers(LEFT_BEHIND)
async def list_left_behind(
    broker: BrokerParts, peer: Peer, name: str, ask: AskEntries
) -> LeftBehind:
    """List settings of a topic without effect here, and groups that have not committed here.

    Raises:
        RequestRefused: there is no such topic.
    """
    topic, left, committed = broker.topics.named(name), broker.left_behind, broker.groups.offsets
    start = max(0, ask.start)
    groups = {entry[0] for entry in left.of_topic(topic)}
    describe = AclOperation.DESCRIBE
    hidden = {it for it in groups if not broker.access.sees(peer, describe, GROUP, it)}

    def page() -> tuple[tuple[_Entry, ...], int | None]:
        settings = left.ignored_of(topic.name, broker.settings).items()
        entries: Iterator[_Entry] = chain(settings, left.of_topic(topic))
        return as_many_as_fit(
            (number, (entry[0][:_MOST_CHARACTERS], *entry[1:]))
            for number, entry in islice(enumerate(entries), start, None)
            if len(entry) == _SETTING
            or (entry[0] not in hidden and committed.get(entry[0], topic.name, entry[1]) is None)
        )

    shown, following = await broker.searchers.run(peer, page)
    return LeftBehind(topic.adopted, left.is_made_here(topic), shown, following)
