"""Lookups by time against a brute-force model, over random logs and all that happens to them.

The truth is what was generated, never what our decoder says; every moment is asked for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from overrides import override
from storelogs import (
    ANY_TIME,
    DAY,
    NOW,
    TOPIC_ID,
    Truth,
    append,
    first_at_or_after,
    largest,
    moments,
    open_dir,
    snapshot_of,
    times_in,
)

from companions import lose_maps, lose_seals, map_in, put_map
from horolog.config import TopicConfig
from horolog.record import Codec, RecordClock, TimeRange, TimestampType
from horolog.sources import LogPath, ReadOptions, RecordLog
from horolog.storage import Log, LogDir, TopicPartition

CLOSE = st.integers(NOW - 20, NOW + 20)
WILD = st.sampled_from([-1, -1, 0, 1, -5000, -2, -(1 << 63), (1 << 63) - 1, NOW * 1000])
BATCH = st.tuples(
    st.lists(CLOSE | CLOSE | WILD, min_size=1, max_size=4), st.sampled_from(list(Codec))
)
RESTARTS = [
    "clean",
    "kill",
    "adopted kill",
    "clean, lost indexes",
    "clean, lost time indexes",
    "clean, lost seals",
    "kill, lost indexes",
    "clean, lost maps",
    "clean, lost companions",
    "clean, old maps",
    "kill, old maps",
    "kill, damaged maps",
]
LOST = {
    "lost companions": (".companion",),
    "lost indexes": (".index", ".timeindex"),
    "lost time indexes": (".timeindex",),
}
SET_ASIDE = re.compile(
    r"events-3 is truncated: its leader never had the (\d+) bytes from offset \d+ on"
)
STEP = st.one_of(
    BATCH,
    BATCH,
    BATCH,
    st.just("roll"),
    st.sampled_from(RESTARTS),
    st.tuples(st.just("truncate"), st.floats(0, 1)),
    st.tuples(st.just("delete records"), st.floats(0, 1) | st.just(1.0)),
    st.tuples(st.just("clock"), st.sampled_from([0, 0, 1, -1, 100, 300 * 365, -20_000])),
    st.just("reset append time"),
    st.just("switch type"),
)


@dataclass
class Story:
    """A log, what happens to it, and what must be found in it."""

    path: Path
    config: TopicConfig
    heard: list[str]
    """The warnings that nothing was expected to cause."""
    truth: list[Truth] = field(default_factory=list)
    copies: int = 0
    step_ms: int = 0
    """How wrong the clock is."""
    appended_ms: dict[int, int] = field(default_factory=dict)
    """When each record was appended; not in order where the clock is wrong."""
    told_ms: dict[int, int | None] = field(default_factory=dict)
    """The same, as far as something can still tell it: a companion, or a stamped batch."""
    stamped: set[int] = field(default_factory=set)
    """The records of the batches that are stamped with LogAppendTime."""
    old_maps: dict[str, bytes] = field(default_factory=dict)
    """The block maps as they were before an earlier restart."""
    is_mixed: bool = False
    """The topic's timestamp type was switched."""

    def __post_init__(self) -> None:
        self.log_dir: LogDir = open_dir(self.path, self.config)
        self.log: Log = self.log_dir.create("events", 3, TOPIC_ID, self.config, NOW)

    def perform(self, step: object) -> None:
        match step:
            case "roll":
                self.log.roll(NOW)
            case "switch type":
                kinds = [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]
                kinds.remove(self.config.message_timestamp_type)
                self.config = replace(self.config, message_timestamp_type=kinds[0])
                self.log.config = self.config
                self.is_mixed = True
            case "reset append time":
                self.log.reset_append_time(self.now_ms)
                last_ms = self.log.floor.last
                assert last_ms is None or last_ms <= self.now_ms
            case "clock", int(days):
                self.step_ms = days * DAY
            case "truncate", float(share):
                self.truncate(share)
            case "delete records", float(share):
                end = self.log.log_end_offset
                self.log.delete_records(round(share * end))
            case str(how):
                self.restart(how)
            case list(times), Codec() as codec:
                self.append(times, codec)

    @property
    def now_ms(self) -> int:
        return NOW + len(self.truth) + self.step_ms

    def append(self, times: list[int], codec: Codec) -> None:
        was_empty = self.log.is_empty
        now_ms = self.now_ms
        done = append(self.log, *times, codec=codec, now=now_ms)
        if was_empty:
            assert done.log_append_time_ms in (-1, self.now_ms)
        stamps = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        appended_ms = self.log.floor.last  # never goes back, unless reset
        assert appended_ms is not None
        offsets = range(done.base_offset, done.base_offset + len(times))
        self.stamped = self.stamped.union(offsets) if stamps else self.stamped.difference(offsets)
        for offset, timestamp in zip(offsets, times, strict=True):
            self.appended_ms[offset] = self.told_ms[offset] = appended_ms
            self.truth.append(Truth(offset, done.log_append_time_ms if stamps else timestamp))

    def truncate(self, share: float) -> None:
        offset = round(share * self.log.log_end_offset)
        start = self.log.log_start_offset
        size = sum(segment.size for segment in self.log.segments)
        assert self.heard == []
        self.log.truncate_to(max(offset, start), NOW)
        named = [found for each in self.heard if (found := SET_ASIDE.match(each))]
        assert len(named) == len(self.heard), self.heard
        size -= sum(segment.size for segment in self.log.segments)
        assert sum(int(each[1]) for each in named) == size, "all that went is set aside"
        self.heard.clear()
        end = self.log.log_end_offset
        assert end <= max(offset, start)
        self.truth = [record for record in self.truth if record.offset < end]

    def restart(self, how: str) -> None:
        start = self.log.log_start_offset
        if how.startswith("clean"):
            assert self.log_dir.close() == []
        else:
            self.log_dir.checkpoint()  # what Kafka also writes only now and then
            self.path = snapshot_of(self.path, self.path.with_name(f"copy-{self.copies}"))
            self.copies += 1
            self.log_dir.close(clean=False)
        lost = LOST.get(how.partition(", ")[2], ())
        for path in self.path.glob("events-3/*"):
            if path.suffix in lost:
                path.unlink()
        if ".companion" in lost:  # no log tells again when its records were appended
            self.told_ms |= dict.fromkeys(self.told_ms.keys() - self.stamped)
        self.wrong_maps(how)
        self.log_dir = open_dir(self.path, self.config, ours=how != "adopted kill")
        self.log = self.log_dir.logs[TopicPartition("events", 3)]
        assert self.log.log_start_offset == start

    def wrong_maps(self, how: str) -> None:
        """Put maps of an older state of the log beside it, or damaged ones."""
        if how.endswith("lost maps"):
            lose_maps(self.path)
        elif how.endswith("lost seals"):
            lose_seals(self.path)
        companions = list(self.path.glob("events-3/*.companion"))
        maps = {path.name: map_in(path) for path in companions}
        if how.endswith("old maps"):
            for path in self.path.glob("events-3/*.log"):
                name = path.with_suffix(".companion").name
                if name in self.old_maps:
                    put_map(path, self.old_maps[name])
        elif how.endswith("damaged maps"):
            for number, (name, content) in enumerate(maps.items()):
                if not content:
                    continue
                at = len(content) * (number + len(self.truth)) // 7 % len(content)
                torn = content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :]
                put_map(self.path / "events-3" / name, torn[: len(torn) - number % 3])
        else:
            self.old_maps = maps

    def check_maps(self, visible: list[Truth]) -> None:
        """No stretch that a block map excludes has a record that is looked for."""
        for is_completed in (False, True):
            for segment in self.log.segments[:-1] if is_completed else ():
                assert segment.blocks.complete(segment.size)
                assert segment.blocks.is_complete(segment.size)
            times = sorted({record.timestamp for record in visible})
            for first, last in [*zip(times, times, strict=True), *pairwise(times)]:
                expected = {r.offset for r in visible if first <= r.timestamp <= last}
                window = TimeRange(first, last, with_untimed=first <= -1 <= last)
                assert expected <= self.found_in_maps(window), (first, last)
            moments_of_append = {self.appended_ms[record.offset] for record in visible}
            for moment in moments_of_append:
                expected = {r.offset for r in visible if self.appended_ms[r.offset] == moment}
                assert expected <= self.found_in_maps(TimeRange(moment, moment, of_append=True))

    def found_in_maps(self, window: TimeRange) -> set[int]:
        found = set()
        for segment in self.log.segments:
            end = segment.size
            for span in segment.blocks.spans(window, segment.size):
                headers = list(segment.headers(span.position, span.end))
                assert headers[0][0] == span.position
                assert headers[0][1].base_offset >= span.base_offset
                assert headers[-1][0] + headers[-1][1].size == span.end <= end
                assert span.next_offset in (None, headers[-1][1].next_offset)
                for _, header in headers:
                    found |= set(range(header.base_offset, header.next_offset))
        return found

    def check_append_times(self, visible: list[Truth]) -> None:
        """Every record has the append time that it was given, or none, and is found by it.

        One whose append time is lost is found in the place of one behind it, as it may be the one.
        """
        log, start = self.log, self.log.log_start_offset
        if not visible:
            assert log.find_by_append_time(-(1 << 63)) is None
            return
        said: dict[int, int | None] = {}
        stretches = log.append_times(start, log.log_end_offset)
        ends = [*(each.offset for each in stretches[1:]), log.log_end_offset]
        for stretch, end in zip(stretches, ends, strict=True):
            said |= dict.fromkeys(range(stretch.offset, end), stretch.ms)
        appended = {record.offset: self.appended_ms[record.offset] for record in visible}
        told = {offset: self.told_ms[offset] for offset in appended}
        assert {offset: said[offset] for offset in appended} == told
        for moment in moments_around(appended.values()):
            found = log.find_by_append_time(moment)
            first = next((each for each in appended.items() if each[1] >= moment), None)
            if found is None or found.ms is not None:
                assert (found and (found.offset, found.ms)) == first, moment
            else:
                assert told[found.offset] is None, moment
                assert first is None or found.offset <= first[0], moment

    def check_ranges(self, visible: list[Truth]) -> None:
        """Ranges of either clock have all their records, from the log and from its files."""
        files = ReadOptions(paths=(LogPath.parse(self.path / "events-3"),), uncommitted=True)
        for clock in RecordClock:
            by_append = clock is RecordClock.APPEND
            time_of = {
                r.offset: self.appended_ms[r.offset] if by_append else r.timestamp for r in visible
            }
            times = sorted(moments_around(time_of.values()))[:: max(1, len(time_of) // 3)]
            for first, last in [*zip(times, times, strict=True), *pairwise(times)]:
                expected = {o for o, ms in time_of.items() if first <= ms <= last}
                window = TimeRange(
                    first,
                    last,
                    of_append=by_append,
                    with_untimed=not by_append and first <= -1 <= last,
                )
                named = self.log.time_ranges(window, 0, 1000)
                assert named.end == self.log.log_end_offset
                offsets = {o for each in named.ranges for o in range(each.start, each.end)}
                assert expected <= offsets, (clock, first, last)
                with RecordLog(files, TimeRange(first, last, by_append)) as log:
                    plan, (partition,) = log.plan(log.partitions), log.partitions
                    start, end = self.log.log_start_offset, self.log.log_end_offset
                    read = [
                        record.offset
                        for records in log.read_between(plan, partition, start, end)
                        for record in records
                    ]
                unknown = None if by_append else -1
                told = self.told_ms if by_append else time_of
                known = {offset for offset in expected if told[offset] != unknown}
                assert read == sorted(known), (clock, first, last)

    def check(self) -> None:
        start = self.log.log_start_offset
        visible = [record for record in self.truth if record.offset >= start]
        assert times_in(self.log) == visible
        self.check_maps(visible)
        self.check_append_times(visible)
        self.check_ranges(visible)
        for moment in moments(visible):
            found = self.log.find_by_timestamp(moment)
            expected = first_at_or_after(visible, moment)
            assert (found and Truth(found.offset, found.timestamp)) == expected, moment
        is_stamped = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        if is_stamped and not self.is_mixed:
            went_back = {b.offset for a, b in pairwise(visible) if b.timestamp < a.timestamp}
            assert went_back <= {reset.offset for reset in self.log.floor.resets}
            floors = {segment.base_offset for segment in self.log.segments}
            assert went_back <= floors, "no segment holds records of both sides of a reset"
        top = self.log.find_max_timestamp()
        assert (top and Truth(top.offset, top.timestamp)) == largest(visible)


def moments_around(times: Iterable[int]) -> set[int]:
    """These times and their neighbours, as far as they are 64-bit numbers."""
    near = {time + step for time in times for step in (-1, 0, 1)}
    return {moment for moment in near if -(1 << 63) <= moment < (1 << 63) - 1}


@contextmanager
def no_complaints() -> Iterator[list[str]]:
    """Wrong indexes mend themselves and answer right; that any were wrong is a fault here.

    Gives the warnings; whoever takes one out has expected it.
    """
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())
    logger = logging.getLogger("horolog.storage")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
    assert heard == []


ONE = ([NOW], Codec.NONE)
PLAIN = {
    "interval": 150,
    "segment_bytes": 100_000,
    "index_bytes": 36,
    "timestamp_type": TimestampType.CREATE_TIME,
}


@examples(2)
@example(steps=[ONE, ONE, "roll", "roll", "roll", ("truncate", 0.0)], **PLAIN)
@example(steps=[ONE, ONE, ("delete records", 0.0), "roll", "clean, lost companions"], **PLAIN)
@example(
    steps=[
        *[ONE, "clean, lost companions", ONE, "switch type"],
        *[ONE, "clean, lost companions", ("truncate", 0.7), ONE],
    ],
    **PLAIN,
)
@given(
    steps=st.lists(STEP, min_size=6, max_size=40),
    interval=st.sampled_from([0, 150, 4096]),
    segment_bytes=st.sampled_from([400, 1000, 100_000]),
    index_bytes=st.sampled_from([36, 1200]),
    timestamp_type=st.sampled_from(
        [TimestampType.CREATE_TIME] * 2 + [TimestampType.LOG_APPEND_TIME]
    ),
)
def test_every_moment_is_answered_as_the_generator_would(
    steps: list[object],
    interval: int,
    segment_bytes: int,
    index_bytes: int,
    timestamp_type: TimestampType,
) -> None:
    config = TopicConfig(
        index_interval_bytes=interval,
        segment_bytes=segment_bytes,
        segment_index_bytes=index_bytes,
        message_timestamp_type=timestamp_type,
        **ANY_TIME,
    )
    with (
        TemporaryDirectory() as directory,
        no_complaints() as heard,
        pytest.MonkeyPatch.context() as patch,
    ):
        override(patch, "horolog.storage", BLOCK_BYTES=256)
        story = Story(Path(directory) / "log", config, heard)
        for step in steps:
            story.perform(step)
        story.check()
        story.restart("clean")
        story.check()
        story.log_dir.close(clean=False)
