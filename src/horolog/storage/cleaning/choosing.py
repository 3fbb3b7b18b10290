"""Selection of the part of a log that may be cleaned, and of the logs worth cleaning.

The segments behind the cleaner point are dirty. They may be cleaned up to the first of these: the
active segment, the last stable offset, and the first segment with a record younger than
`min.compaction.lag.ms`. A log is due once more than `min.cleanable.dirty.ratio` of its bytes are
dirty, or once the oldest dirty record is older than `max.compaction.lag.ms` (KIP-58, KIP-354).

Ages count from the time that `horolog.retention.by` names, as in retention. By create time, as in
Kafka, one record from the future would hold back the cleaning of all later ones.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from horolog.config import LONG_MAX, TopicConfig
from horolog.storage.directory.checkpoints import AppendTimeReset
from horolog.storage.removal.retention import Candidate, candidates, time_that_counts
from horolog.storage.segments.reader import SegmentReader


class Cleanable(NamedTuple):
    """Part of a log that may be cleaned now."""

    first_dirty: int
    """Offset where the dirty part begins."""
    end: int
    """Offset up to which the log may be cleaned."""
    clean_bytes: int
    """Bytes of the segments before `first_dirty`."""
    dirty_bytes: int
    """Bytes of the segments from `first_dirty` to `end`."""
    overdue_ms: int = 0
    """Time since the oldest dirty record became older than `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """Share of dirty bytes; 0 for an empty part."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        """Return True if cleaning the log now is worth it."""
        if not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio


def cleanable(
    segments: Sequence[SegmentReader],
    config: TopicConfig,
    cleaner_point: int | None,
    log_start_offset: int,
    stable_end: int,
    now_ms: int,
    resets: Sequence[AppendTimeReset] = (),
) -> Cleanable:
    """Return the part of a log that may be cleaned.

    Args:
        segments: all of the log, in order; the last one is the active one.
        cleaner_point: up to which it was cleaned, None if it never was. One that is not within the
            log does not count.
        log_start_offset: nothing before it can be read any more.
        stable_end: nothing from there on is cleaned: the last stable offset.
        resets: where append times were lowered, in order of offsets.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where its times have to be read from it.
    """
    by_base = {segment.base_offset: segment for segment in segments}

    def first_ms(candidate: Candidate) -> int:
        return first_time(by_base[candidate.base_offset], config)

    *finished, active = candidates(segments)
    point = first_dirty(cleaner_point, log_start_offset, active.end_offset)
    return choose(finished, config, point, stable_end, now_ms, resets, first_ms)


def first_dirty(cleaner_point: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Return the offset where the dirty part of a log begins.

    A point beyond the log end is ignored.
    """
    if cleaner_point is None or cleaner_point > log_end_offset:
        return log_start_offset
    return max(cleaner_point, log_start_offset)


def choose(
    finished: Sequence[Candidate],
    config: TopicConfig,
    first_dirty: int,
    stable_end: int,
    now_ms: int,
    resets: Sequence[AppendTimeReset],
    first_ms: Callable[[Candidate], int],
) -> Cleanable:
    """Decide as `cleanable`.

    Times are asked for only if a setting needs them.

    Args:
        finished: all segments but the active one, in order.
        config: the settings of the log.
        first_dirty: where its dirty part begins.
        stable_end: nothing from there on is cleaned.
        resets: where append times were lowered, in order of offsets.
        first_ms: gives the time of a segment's first record, by `horolog.retention.by`.
    """
    clean = [candidate for candidate in finished if candidate.end_offset <= first_dirty]
    dirty = list(_may_be_cleaned(finished[len(clean) :], config, stable_end, now_ms, resets))
    end = dirty[-1].end_offset if dirty else first_dirty
    lag_ms, overdue_ms = config.max_compaction_lag_ms, 0
    if dirty and lag_ms < LONG_MAX:
        # A record may have any time, and an answer has 64 bits.
        overdue_ms = min(max(0, now_ms - min(map(first_ms, dirty)) - lag_ms), LONG_MAX)
    return Cleanable(
        first_dirty,
        end,
        sum(candidate.size for candidate in clean),
        sum(candidate.size for candidate in dirty),
        overdue_ms,
    )


def _may_be_cleaned(
    dirty: Sequence[Candidate],
    config: TopicConfig,
    stable_end: int,
    now_ms: int,
    resets: Sequence[AppendTimeReset],
) -> Iterator[Candidate]:
    lag_ms = config.min_compaction_lag_ms
    for candidate in dirty:
        if candidate.end_offset > stable_end:
            return
        if lag_ms > 0 and candidate.size:
            time = time_that_counts(candidate, config, resets, now_ms)
            # If it is unknown: the file was changed later than any record was appended.
            latest_ms = candidate.times.modified_ms() if time is None else time.time_ms
            if latest_ms > now_ms - lag_ms:
                return
        yield candidate


def first_time(segment: SegmentReader, config: TopicConfig) -> int:
    """Return the time of a segment's first record, by `horolog.retention.by`.

    Without a record time it is the file's modification time.
    """
    by, times_ms = config.horolog_retention_by, list[int]()
    if by != "append-time":
        first = segment.first_timestamp
        if first is not None and (first >= 0 or config.horolog_retention_before_1970):
            times_ms.append(first)
    if by != "create-time":
        times = segment.append_times
        appended = times.first_seen_ms if config.horolog_seen_as_append_time else times.earliest_ms
        if appended is not None:
            times_ms.append(appended)
    return max(times_ms) if times_ms else segment.modified_ms()
