"""Simulates retention: the deletions that a log would have had under other settings.

    simulation = Simulation(config, check_ms)
    for arrival in arrivals:                 # batches, in the order of their offsets
        simulation.arrive(arrival)
    simulation.run_until(now_ms)

Arrivals are replayed against the decisions of the broker itself: `LogWriter.must_roll` before each
append, and `retention.judge` at each check. Checks that cannot find anything are left out. Batches
stay whole. Full indexes, `segment.jitter.ms`, resets of append times and refused records are not
simulated.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from horolog.config import LONG_MAX, TopicConfig
from horolog.record.timestamps import NO_TIMESTAMP, AppendTimeStretch, TimestampType
from horolog.storage.batches.log_file import SegmentEnd, TimeEntry
from horolog.storage.logs.writer import LogWriter
from horolog.storage.removal.retention import (
    Candidate,
    Verdict,
    going,
    judge,
)
from horolog.storage.removal.retention_report import kind_of
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.numbered import Numbered

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_FILES: Final = cast(Any, None)  # the decisions of a writer touch no file


class Arrival(NamedTuple):
    """Batch and its append time. Times are in milliseconds."""

    base_offset: int
    last_offset: int
    size: int
    """Bytes."""
    records: int
    """Without control records."""
    create_min_ms: int | None
    create_max_ms: int | None
    append_ms: int


class Deletion(NamedTuple):
    """Simulated deletion of a segment. Ages are those of its records, in milliseconds."""

    at_ms: int
    base_offset: int
    end_offset: int
    size: int
    records: int
    within_hour: int
    """Records that were appended less than an hour before."""
    reason: str
    counts_ms: int | None
    """Time that counted; None for a deletion by size."""
    counts_by: str | None
    """Kind of that time, as in `SegmentRetention`."""
    create_age_min_ms: int | None
    create_age_max_ms: int | None
    append_age_min_ms: int
    append_age_max_ms: int


class SimulationOutcome(NamedTuple):
    """Outcome of the simulation of one log."""

    deletions: Sequence[Deletion]
    records: int
    """Number of records that arrived."""
    segments: int
    """Number of segments that were begun."""
    held_segments: int
    held_bytes: int
    """Bytes of all segments at the end."""
    most_held_bytes: int
    first_ms: int | None
    """Arrival of the first batch; None without one."""
    until_ms: int

    @property
    def deleted_records(self) -> int:
        """Number of records in all deleted segments."""
        return sum(deletion.records for deletion in self.deletions)

    @property
    def deleted_within_hour(self) -> int:
        """Number of records that were deleted less than an hour after their append."""
        return sum(deletion.within_hour for deletion in self.deletions)

    @property
    def segments_a_day(self) -> float | None:
        """New segments a day; None for a simulation of less than a second."""
        span_ms = 0 if self.first_ms is None else self.until_ms - self.first_ms
        return self.segments * _DAY_MS / span_ms if span_ms >= 1000 else None


class _Simulated(ActiveSegment):
    """Segment without files, for the rules of rolling and deletion.

    It also takes the place of the `Segment` and the `AppendTimeFile`.
    """

    def __init__(self, base_offset: int, created_ms: int) -> None:
        self.segment = self._append_times = cast(Any, self)
        self._entries = None
        self.created_ms = created_ms
        self.jitter_ms = 0
        self.base_offset = base_offset
        self.end = SegmentEnd(0, base_offset)
        self.first_timestamp: int | None = None
        self.largest: TimeEntry | None = None
        self.first_ms: int | None = None
        """The first append time."""
        self.last_ms: int | None = None
        self.records = 0
        self.create_min_ms: int | None = None
        self.create_max_ms: int | None = None
        self.recent = deque[tuple[int, int]]()
        """Append times of the last hour, each with the number of its records."""

    @property
    def size(self) -> int:
        return self.end.size

    @property
    def first_seen_ms(self) -> int | None:
        return self.first_ms

    @property
    def most_ms(self) -> int:
        return LONG_MAX

    def largest_to_search(self) -> TimeEntry | None:
        return self.largest

    def fits(self, _: int) -> bool:
        return True

    def largest_ms(self) -> int | None:
        return None if self.largest is None else self.largest.timestamp

    def last_append(self) -> AppendTimeStretch:
        return AppendTimeStretch(self.end.next_offset, self.last_ms)

    def modified_ms(self) -> int:
        return self.last_ms or 0

    def take(self, arrival: Arrival, timestamp: int) -> None:
        if timestamp != NO_TIMESTAMP:
            if not self.size:
                self.first_timestamp = timestamp
            if self.largest is None or timestamp > self.largest.timestamp:
                self.largest = TimeEntry(timestamp, arrival.last_offset)
        self.end = SegmentEnd(self.size + arrival.size, arrival.last_offset + 1)
        self.records += arrival.records
        created = self.create_min_ms, arrival.create_min_ms
        self.create_min_ms = min((ms for ms in created if ms is not None), default=None)
        created = self.create_max_ms, arrival.create_max_ms
        self.create_max_ms = max((ms for ms in created if ms is not None), default=None)
        append_ms, recent = arrival.append_ms, self.recent
        if self.first_ms is None:
            self.first_ms = append_ms
        self.last_ms = append_ms if self.last_ms is None else max(self.last_ms, append_ms)
        while recent and recent[0][0] <= append_ms - _HOUR_MS:
            recent.popleft()
        recent.append((append_ms, arrival.records))


class Simulation:
    """Simulation of one log. Memory grows with its segments and the batches of an hour."""

    def __init__(self, config: TopicConfig, check_ms: int) -> None:
        """Start the simulation with an empty log.

        Args:
            config: the settings to be tried.
            check_ms: how often retention is checked, from the first arrival on.
        """
        self._config = replace(config, segment_jitter_ms=0)
        self._check_ms = max(1, check_ms)
        self._segments: list[_Simulated] = []
        self._deletions: list[Deletion] = []
        self._held = self._most = self._records = self._begun = 0
        self._first_ms: int | None = None
        self._now_ms = self._tick_ms = 0

    def arrive(self, arrival: Arrival) -> None:
        """Advance the time to the arrival of a batch, and append the batch."""
        config = self._config
        if self._first_ms is None:
            self._first_ms = self._now_ms = arrival.append_ms
            self._tick_ms = self._now_ms + self._check_ms
            self._begin(arrival.base_offset)
        self.run_until(arrival.append_ms)
        is_stamped = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        created_ms = NO_TIMESTAMP if arrival.create_max_ms is None else arrival.create_max_ms
        timestamp = arrival.append_ms if is_stamped else created_ms
        place = arrival.base_offset, arrival.last_offset
        batch = Numbered((), arrival.size, *place, timestamp, 0, arrival.append_ms)
        if self._writer.must_roll(batch, config, self._now_ms, True):
            self._begin(arrival.base_offset)
        self._segments[-1].take(arrival, timestamp)
        self._records += arrival.records
        self._held += arrival.size
        self._most = max(self._most, self._held)

    def run_until(self, ms: int) -> None:
        """Advance the time and run due checks. An earlier time changes nothing."""
        while self._segments:
            due_ms = self._next_check()
            if due_ms is None or due_ms > ms:
                break
            self._check(due_ms)
            self._tick_ms = due_ms + self._check_ms
        self._now_ms = max(self._now_ms, ms)
        if self._first_ms is not None:
            self._tick_ms = max(self._tick_ms, self._tick_at(self._now_ms))

    def outcome(self) -> SimulationOutcome:
        """Return the outcome so far."""
        return SimulationOutcome(
            self._deletions,
            self._records,
            self._begun,
            sum(segment.size > 0 for segment in self._segments),
            self._held,
            self._most,
            self._first_ms,
            self._now_ms,
        )

    @property
    def _writer(self) -> LogWriter:
        return LogWriter(_FILES, "", self._segments[-1])

    def _begin(self, base_offset: int) -> None:
        self._segments.append(_Simulated(base_offset, self._now_ms))
        self._begun += 1

    def _tick_at(self, ms: int) -> int:
        """Return the time of the first check at or after a time."""
        assert self._first_ms is not None
        return self._first_ms - (self._first_ms - ms) // self._check_ms * self._check_ms

    def _next_check(self) -> int | None:
        """Return the time of the next check that may delete or roll; None if nothing is due."""
        config, first = self._config, self._segments[0]
        due = []
        if 0 <= config.retention_bytes <= self._held - first.size:
            due.append(self._tick_ms)
        (verdict,) = self._judged([self._candidate(0)])
        if verdict.may_go:
            due.append(self._tick_ms)
        elif verdict.due_ms is not None:
            due.append(max(self._tick_ms, self._tick_at(verdict.due_ms)))
        active = self._segments[-1]
        if config.horolog_roll_idle and active.size:
            age_ms = active.age_ms(config, *[self._tick_ms] * 3)
            wait_ms = max(0, config.segment_ms + 1 - age_ms)
            due.append(self._tick_at(self._tick_ms + wait_ms))
        return min(due, default=None)

    def _judged(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        end = self._segments[-1].end.next_offset
        return list(judge(candidates, self._config, 0, end, self._tick_ms))

    def _candidate(self, place: int) -> Candidate:
        segment, is_last = self._segments[place], place == len(self._segments) - 1
        end_offset = segment.end.next_offset
        return Candidate(segment.base_offset, end_offset, segment.size, is_last, segment)

    def _check(self, now_ms: int) -> None:
        """Run a check of retention as `Log.apply_retention` does."""
        self._now_ms = max(self._now_ms, now_ms)
        segments, config = self._segments, self._config
        end = segments[-1].end.next_offset
        if self._writer.must_roll_idle(config, now_ms):
            self._begin(end)
        candidates = [self._candidate(place) for place in range(len(segments))]
        deleted = going(judge(candidates, config, 0, end, now_ms))
        if len(deleted) == len(segments):
            self._begin(end)
        for segment, verdict in zip(segments, deleted, strict=False):
            self._deletions.append(_deletion(segment, now_ms, verdict))
            self._held -= segment.size
        del segments[: len(deleted)]


def _deletion(segment: _Simulated, at_ms: int, verdict: Verdict) -> Deletion:
    counts = verdict.time
    assert segment.first_ms is not None
    assert segment.last_ms is not None
    return Deletion(
        at_ms,
        segment.base_offset,
        segment.end.next_offset,
        segment.size,
        segment.records,
        sum(records for append_ms, records in segment.recent if at_ms - append_ms < _HOUR_MS),
        verdict.reason,
        None if counts is None else counts.time_ms,
        None if counts is None else kind_of(counts),
        None if segment.create_max_ms is None else at_ms - segment.create_max_ms,
        None if segment.create_min_ms is None else at_ms - segment.create_min_ms,
        at_ms - segment.last_ms,
        at_ms - segment.first_ms,
    )
