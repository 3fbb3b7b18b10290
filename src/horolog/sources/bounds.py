"""Resolving limits to offsets: start and end of a read in each partition.

The bounds are taken whenever a query is planned, as with Spark's Kafka source: each
query sees the log as it is then, unless an option fixes an end.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

from horolog.errors import Damaged, Misconfigured
from horolog.record.batch import BatchHeader
from horolog.record.timestamps import NO_TIMESTAMP, TimestampType
from horolog.sources.cuts import up_to_cut
from horolog.sources.limits import (
    EARLIEST,
    LATEST,
    AtTime,
    ByPartition,
    Everywhere,
    Limit,
)
from horolog.sources.options import ReadOptions
from horolog.sources.row_filter import RowFilter
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)


class DataLost(Damaged):
    """Records that the read was to return are gone, and `failOnDataLoss` is true."""


class Bounds(NamedTuple):
    """Offsets of one partition from `start` up to but not including `end`.

    An end that is open is the log's own, wherever that is when a task gets there.
    """

    start: int
    end: int
    has_open_start: bool = False
    has_open_end: bool = False


Offsets = Mapping[TopicPartition, int]


class BoundedLog(Protocol):
    """A log, at a broker or in files, that gives its start, end and offsets by time."""

    def partitions(self) -> Collection[TopicPartition]:
        """Return the partitions that the read subscribes to."""
        ...

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the first offset of each partition."""
        ...

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the offset after the last readable one of each partition."""
        ...

    def at_or_after(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """Return the earliest offset at or after each time; None where no record is that late."""
        ...

    def cut_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return where a read as of a time ends, by partition; empty for any other read."""
        ...


class StreamLog(BoundedLog, Protocol):
    """A log that also answers a stream's question about earlier records."""

    def none_before(
        self, from_ms: int, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return an offset of each partition before which no record reaches a time."""
        ...


def resolve(options: ReadOptions, log: BoundedLog) -> dict[TopicPartition, Bounds]:
    """Return the bounds of a batch read in each partition that it subscribes to.

    Raises:
        Misconfigured: limits that name other partitions than the subscription, that no
            record matches, or that end before they start.
        DataLost: an offset that the log no longer or not yet has, and data loss is to fail.
    """
    partitions = sorted(log.partitions())
    starting = options.batch_starting()
    # In this order, as logs are appended to and expire meanwhile: each lies behind the one before.
    cut_ends = log.cut_ends(partitions)
    earliest = log.earliest(partitions)
    start_found, end_found = (
        _looked_up(limit, partitions, log) for limit in (starting, options.ending)
    )
    latest = up_to_cut(cut_ends, earliest, log.latest(partitions))
    starts = _offsets(starting, partitions, earliest, latest, start_found)
    ends = _offsets(options.ending, partitions, earliest, latest, end_found)
    found: dict[TopicPartition, Bounds] = {}
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        if end is None:
            end = latest[partition]
        if start is None:
            start = _unmatched_start(options, starting, partition, min(end, latest[partition]))
        if cut_ends:
            start = min(start, end)
        bounds = _within(options, partition, Bounds(start, end), earliest, latest)._replace(
            has_open_start=_is(starting, Everywhere.EARLIEST, EARLIEST, partition),
            has_open_end=not cut_ends
            and (
                ends[partition] is None or _is(options.ending, Everywhere.LATEST, LATEST, partition)
            ),
        )
        if bounds.start > bounds.end:
            raise Misconfigured(
                f"The read of {partition} starts at offset {start}, after its end at {end}"
            )
        found[partition] = bounds
    return found


class StreamStarts(NamedTuple):
    """Offsets at which a stream starts, and the log ends where its backfill ends."""

    starts: Offsets
    seams: Offsets


def stream_starts(
    options: ReadOptions, log: StreamLog, partitions: Collection[TopicPartition]
) -> StreamStarts:
    """Return where a stream starts in the partitions that exist at its first start.

    Raises:
        Misconfigured: as `resolve`.
        DataLost: an offset that the log no longer or not yet has, and data loss is to fail.
    """
    starting = options.stream_starting()
    cut_ends = log.cut_ends(partitions)  # before the log ends, which are behind it
    if cut_ends:
        starting = ByPartition(cut_ends, is_time=False)
    earliest, latest = log.earliest(partitions), log.latest(partitions)
    times = options.times
    if starting is Everywhere.EARLIEST:
        from_ms = times.backfill_range.from_ms
        starts = _skipping(log, from_ms, earliest, latest)
        seams = latest if times.backfill is not None else {}
        return StreamStarts(
            starts,
            {partition: seam for partition, seam in seams.items() if starts[partition] < seam},
        )
    return StreamStarts(_checked_starts(options, starting, log, partitions, earliest, latest), {})


def _skipping(
    log: StreamLog, from_ms: int | None, earliest: Offsets, latest: Offsets
) -> dict[TopicPartition, int]:
    """Return the first offset of each partition that may have a record at or after `from_ms`."""
    if from_ms is None:
        return dict(earliest)
    first = log.none_before(from_ms, list(earliest))
    return {
        partition: min(max(earliest[partition], first.get(partition, end)), end)
        for partition, end in latest.items()
    }


def _checked_starts(
    options: ReadOptions,
    starting: Limit,
    log: BoundedLog,
    partitions: Collection[TopicPartition],
    earliest: Offsets,
    latest: Offsets,
) -> dict[TopicPartition, int]:
    # After the log ends: what is appended meanwhile is read if nothing was that late before.
    starts = _offsets(starting, partitions, earliest, latest, _looked_up(starting, partitions, log))
    found = {}
    for partition in partitions:
        start = starts[partition]
        if start is None:
            start = _unmatched_start(options, starting, partition, latest[partition])
        elif (
            isinstance(starting, ByPartition)
            and not starting.is_time
            and not earliest[partition] <= start <= latest[partition]
        ):
            data_lost(
                options,
                f"{partition} was to be read from offset {start}, and holds "
                f"{earliest[partition]} up to {latest[partition]}",
            )
            start = min(max(start, earliest[partition]), latest[partition])
        found[partition] = start
    return found


def later_starts(
    options: ReadOptions, log: BoundedLog, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where a stream starts in partitions that appear while it runs.

    At their first record that late, where the stream starts at a moment. Everything in them
    is newer than any other start of the stream, "latest" included: it is read from the
    beginning.
    """
    starting = options.stream_starting()
    if not isinstance(starting, AtTime):
        return dict(log.earliest(partitions))
    latest = log.latest(partitions)
    found = log.at_or_after(dict.fromkeys(partitions, starting.timestamp_ms))
    return {
        partition: latest[partition] if (start := found[partition]) is None else start
        for partition in partitions
    }


def _is(limit: Limit, end: Everywhere, as_offset: int, partition: TopicPartition) -> bool:
    """Return True if a limit is this end of a partition's log."""
    match limit:
        case ByPartition(places):
            return places[partition] == as_offset
        case _:
            return limit is end


def _looked_up(
    limit: Limit, partitions: Collection[TopicPartition], log: BoundedLog
) -> Mapping[TopicPartition, int | None]:
    """Look up the offsets of a limit in time; other limits need no lookup."""
    match limit:
        case AtTime(timestamp_ms=timestamp_ms):
            return log.at_or_after(dict.fromkeys(partitions, timestamp_ms))
        case ByPartition(places, is_time=True):
            _require_all("OffsetsByTimestamp", places, partitions)
            asked = {at: ms for at, ms in places.items() if ms not in (EARLIEST, LATEST)}
            return log.at_or_after(asked) if asked else {}
        case _:
            return {}


def _offsets(
    limit: Limit,
    partitions: Collection[TopicPartition],
    earliest: Offsets,
    latest: Offsets,
    looked_up: Mapping[TopicPartition, int | None],
) -> Mapping[TopicPartition, int | None]:
    ends = {EARLIEST: earliest, LATEST: latest}
    match limit:
        case Everywhere.EARLIEST:
            return earliest
        case Everywhere.LATEST | Everywhere.LATEST_TIME:
            return latest
        case ByPartition(places, is_time):
            if not is_time:
                _require_all("Offsets", places, partitions)
            found = looked_up if is_time else places
            return {
                partition: ends[place][partition] if place in ends else found[partition]
                for partition, place in places.items()
            }
        case _:
            return looked_up


def _require_all(
    option: str, given: Collection[TopicPartition], partitions: Collection[TopicPartition]
) -> None:
    missing = sorted(set(partitions) - set(given))
    unknown = sorted(set(given) - set(partitions))
    if missing or unknown:
        said = [f"missing: {', '.join(map(str, missing))}"] if missing else []
        said += [f"not subscribed to: {', '.join(map(str, unknown))}"] if unknown else []
        raise Misconfigured(
            f"starting{option} and ending{option} must name every partition that is read, "
            f"-1 standing for latest and -2 for earliest ({'; '.join(said)})"
        )


def _unmatched_start(
    options: ReadOptions, starting: Limit, partition: TopicPartition, end: int
) -> int:
    """Return the end as start of a partition without a matching record, if the options allow it."""
    if options.no_match_is_latest:
        return end
    moment = starting.timestamp_ms if isinstance(starting, AtTime) else None
    if isinstance(starting, ByPartition):
        moment = starting.places[partition]
    raise Misconfigured(
        f"No offset of {partition} is known to have a timestamp at or after {moment}. Set "
        "startingOffsetsByTimestampStrategy to latest to read nothing of such a partition"
    )


def _within(
    options: ReadOptions,
    partition: TopicPartition,
    bounds: Bounds,
    earliest: Offsets,
    latest: Offsets,
) -> Bounds:
    """Return the bounds cut to what the log has; the rest is lost data."""
    first, last = earliest[partition], latest[partition]
    if bounds.start < first:
        data_lost(
            options,
            f"{partition} was to be read from offset {bounds.start}, and starts at {first} now",
        )
        bounds = bounds._replace(start=first, end=max(first, bounds.end))
    if bounds.end > last:
        data_lost(
            options,
            f"{partition} was to be read up to offset {bounds.end}, and ends at {last}",
        )
        bounds = bounds._replace(start=min(bounds.start, last), end=last)
    return bounds


def taken_bounds(
    bounds: Mapping[TopicPartition, Bounds], row_filter: RowFilter
) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yield partition, start and end of the offsets in the bounds that a filter takes."""
    offsets = row_filter.offsets
    for partition, (start, end, *_) in sorted(bounds.items()):
        first, last = max(start, offsets.first), min(end, offsets.last + 1)
        if first < last and row_filter.takes(*partition):
            yield partition, first, last


def first_time(header: BatchHeader) -> int | None:
    """Return the time of a batch's first record, as far as its header gives it."""
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    at = header.max_timestamp if is_append_time else header.base_timestamp
    return None if at == NO_TIMESTAMP or header.has_delete_horizon else at


def data_lost(options: ReadOptions, message: str) -> None:
    """Fail, or warn and continue, as `failOnDataLoss` says.

    Raises:
        DataLost: it says to fail.
    """
    if options.fail_on_data_loss:
        raise DataLost(message + loss_hint(options, "read what is left"))
    why = f", as {options.loss_option} is false" if options.loss_option else ""
    _logger.warning("%s; reading what is left%s", message, why)


def loss_hint(options: ReadOptions, purpose: str) -> str:
    """Return the sentence on how a read can continue after a loss; empty if it cannot."""
    option, advice = options.loss_option, options.loss_advice
    if option:
        return f". Set {option} to false to {purpose}"
    return f". {advice}" if advice else ""
