"""Lists problems of a running broker that an operator has to look at.

offline            a partition whose log could not be read
metadata-lost      the settings of `value` topics may be lost, because the metadata were gone or
                   damaged at a start; until these topics are given settings
lost               the log directory is gone: everything is refused until a restart
flush-failed       a partition that refuses appends until a flush succeeds
not-followed       a cluster that cannot be followed, or a topic or partition of it
gap                a partition of which another cluster had deleted offsets before they were here,
                   `value` times
hanging            a partition with `value` open transactions that no transactional id has:
                   readers of committed records wait for ever
uncleanable        a compacted partition that the cleaner leaves out
append-time-ahead  a partition whose append times are ahead of the clock, by `value` milliseconds,
                   or the clock of append times of the broker
set-aside          what recovery took off a log and keeps, `value` bytes
disk-nearly-full   `value` bytes are left for the log directory

`cluster.condition` has the kinds of a broker of a cluster.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Final

from horolog.broker.broker import BrokerParts
from horolog.broker.partition import Partition
from horolog.broker.scheduling.turns import TimeSlice
from horolog.clock import format_duration
from horolog.errors import StorageFailed, listed
from horolog.storage.validation.rules import RESET_ALL
from horolog.wire.questions import FollowedState, Wrong

LEAST_SHARE_FREE: Final = 0.05
ENOUGH_FREE_BYTES: Final = 10 << 30
"""A disk with this much free space is not nearly full, whatever its size."""
LATE_MS: Final = 60_000
"""A waiting partition is a problem once it is this far behind its source."""
_MOST_NAMES: Final = 5  # of topics in an error
_LONGEST: Final = 500  # characters of an error


def _everything(_: str) -> bool:
    return True


async def wrong_with(broker: BrokerParts, sees: Callable[[str], bool] = _everything) -> list[Wrong]:
    """List everything that is wrong, in the order of the kinds above.

    Args:
        sees: whether a topic may be in the list.
    """
    turns, wrong, condition = TimeSlice(), list[Wrong](), broker.condition
    refusal = broker.partitions.refusal
    if refusal is not None:
        wrong.append(Wrong("lost", str(broker.log_dir_path), None, refusal[:_LONGEST]))
    wrong += _lost_metadata(broker, sees)
    served = []
    for topic in broker.topics:
        if not sees(topic.name):
            continue
        for index in topic.partitions:
            await turns.pause()
            partition = broker.partitions.find(topic.name, index)
            if partition is None:
                if condition is None:  # else it has no replica here
                    reason = broker.partitions.why_offline(topic.name, index)[:_LONGEST]
                    wrong.append(Wrong("offline", f"{topic.name}-{index}", None, reason))
            else:
                served.append(partition)
                wrong += _wrong_with_partition(broker, partition)

    wrong += _clock_ahead(broker, served)
    for left_out, why in broker.cleaner.uncleanable():
        if not sees(left_out.topic):
            continue
        wrong.append(
            Wrong("uncleanable", left_out.name, None, f"it is not compacted: {why}"[:_LONGEST])
        )
    if condition is None:
        wrong += await _not_followed(broker, sees)
    else:
        wrong += await condition.wrong(turns, sees)

    def of_files() -> list[Wrong]:
        return [*_wrong_with_disk(broker), *chain.from_iterable(map(_set_aside, served))]

    wrong += await asyncio.get_running_loop().run_in_executor(broker.readers, of_files)
    return sorted(wrong, key=lambda problem: (KINDS.index(problem.kind), problem.subject))


KINDS: Final = (
    "lost",
    "metadata-lost",
    "fenced",
    "no-controller",
    "without-leader",
    "offline",
    "under-min-isr",
    "flush-failed",
    "not-followed",
    "gap",
    "hanging",
    "under-replicated",
    "internal-topics",
    "retention-apart",
    "uncleanable",
    "disk-nearly-full",
    "append-time-ahead",
    "set-aside",
)
"""Kinds of problems, the worst first."""


def _lost_metadata(broker: BrokerParts, sees: Callable[[str], bool]) -> Iterator[Wrong]:
    """Report topics that are served without their settings, or that all metadata is gone."""
    salvaged = sorted(it.name for it in broker.topics if it.salvaged and sees(it.name))
    if salvaged:
        text = (
            "the metadata were gone or damaged, and settings may be lost: no record expires of "
            f"{listed(salvaged, _MOST_NAMES)} until the topics are given settings"
        )
    elif broker.lost_metadata and not len(broker.topics):
        text = broker.lost_metadata[0]
    else:
        return
    yield Wrong("metadata-lost", str(broker.log_dir_path), len(salvaged), text[:_LONGEST])


def _clock_ahead(broker: BrokerParts, served: Iterable[Partition]) -> Iterator[Wrong]:
    """Report the clock of append times if records are refused because it is ahead, or may be."""
    ahead_ms = broker.partitions.stamps_ahead_ms
    refuses = broker.append_warnings.clock_ahead_refuses
    is_far = ahead_ms > broker.config.horolog_timestamp_warn_ahead_ms
    if refuses or (is_far and any(partition.log.config.bounds_past for partition in served)):
        what = "are" if refuses else "may be"
        text = (
            f"the clock of append times is {format_duration(ahead_ms)} ahead of the clock: records "
            f"{what} refused for message.timestamp.before.max.ms (error 32); `{RESET_ALL}` ends "
            "that (docs/append-times.md)"
        )
        yield Wrong("append-time-ahead", str(broker.log_dir_path), ahead_ms, text)


def _wrong_with_disk(broker: BrokerParts) -> Iterator[Wrong]:
    try:
        disk = os.statvfs(broker.log_dir_path)
    except OSError:
        return  # it is lost, and said to be
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    if free < min(size * LEAST_SHARE_FREE, ENOUGH_FREE_BYTES):
        text = f"{free:,} of {size:,} bytes are free; appends are refused once there are none"
        yield Wrong("disk-nearly-full", str(broker.log_dir_path), free, text)


async def _not_followed(broker: BrokerParts, sees: Callable[[str], bool]) -> list[Wrong]:
    """List problems with the followed cluster; only the source if it cannot be asked."""
    source, wrong = broker.shadow.source(), []
    error = source.error
    if error is not None:
        wrong.append(Wrong("not-followed", source.servers, None, error[:_LONGEST]))
    async for entry in broker.shadow.entries():
        if not sees(entry.topic):
            continue
        name = entry.topic if entry.partition is None else f"{entry.topic}-{entry.partition}"
        text = entry.text[:_LONGEST]
        if entry.gaps:
            wrong.append(Wrong("gap", name, entry.gaps, text))
        is_late = entry.lag_ms is None or entry.lag_ms > LATE_MS
        is_waiting = entry.state is FollowedState.WAITING and is_late and error is None
        if entry.state is FollowedState.REFUSED or is_waiting:
            wrong.append(Wrong("not-followed", name, entry.lag_ms, text))
    return wrong


def _wrong_with_partition(broker: BrokerParts, partition: Partition) -> Iterator[Wrong]:
    name = partition.name
    if partition.log.is_in_doubt:
        text = "a flush failed: appends are refused until one succeeds"
        yield Wrong("flush-failed", name, None, text)
    hanging = [
        transaction
        for transaction in broker.open_transactions.of(partition)
        if transaction.is_hanging
    ]
    if hanging:
        first = hanging[0]
        text = (
            f"no transactional id has the transaction of producer {first.producer_id}, epoch "
            f"{first.producer_epoch}, that is open since offset {first.first_offset}; "
            f"kafka-transactions.sh abort --topic {partition.topic} --partition {partition.index} "
            f"--start-offset {first.first_offset} ends it"
        )
        yield Wrong("hanging", name, len(hanging), text)
    ahead_ms = partition.log.append_time_ahead_ms(broker.clock.now_ms())
    floor_ms = partition.log.floor.last
    is_apart = floor_ms is not None and floor_ms > broker.partitions.stamp_ms
    if is_apart or ahead_ms > broker.config.horolog_timestamp_warn_ahead_ms:
        text = (
            f"append times are {format_duration(ahead_ms)} ahead of the clock; `horolog topics "
            f"reset-append-time {partition.topic}` ends that (docs/append-times.md)"
        )
        yield Wrong("append-time-ahead", name, ahead_ms, text)


def _set_aside(partition: Partition) -> Iterator[Wrong]:
    with suppress(StorageFailed):  # the directory is lost, and said to be
        for file, size in partition.log.removed_files.set_aside():
            text = f"{file} is set aside; `horolog log verify` says what it holds"
            yield Wrong("set-aside", partition.name, size, text)
