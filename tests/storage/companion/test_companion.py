"""One file beside a segment: append times, seal and block map, whatever becomes of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from examples import examples, some_of
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from storelogs import (
    ANY_TIME,
    NOW,
    TOPIC_ID,
    Truth,
    append,
    first_at_or_after,
    moments,
    new_log,
    open_dir,
    partition_dir,
    reopened,
    snapshot_of,
    times_in,
)

from companions import map_in, put_map
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, StorageFailed
from horolog.record import LogRecord, TimeRange, build_batch, iter_headers, read_records
from horolog.storage import (
    TIMES_AT,
    Files,
    FirstAppended,
    Log,
    PartitionReader,
    SegmentEnd,
    SegmentReader,
    TopicPartition,
    identity_of,
)

CONFIG = TopicConfig(segment_bytes=1200, retention_ms=-1, index_interval_bytes=0, **ANY_TIME)
FIRST = "00000000000000000000"
RECORDS = 20
APPENDED = {offset: NOW + 7 * (offset // 2) for offset in range(RECORDS)}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.storage", BLOCK_BYTES=300)
    override(monkeypatch, "horolog.storage.companion.block_writer", FOLDED_AT_ONCE=3)


def fill(log: Log) -> None:
    for offset in range(RECORDS):
        append(log, NOW - 50 * (offset % 3) + offset, now=APPENDED[offset], value=b"v")


def written(path: Path, *, clean: bool) -> Path:
    """A log of some segments, closed or as a kill leaves it."""
    log_dir = open_dir(path / "work", CONFIG)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    fill(log)
    assert len(log.segments) > 1
    if not clean:
        target = snapshot_of(path / "work", path / "killed")
        log_dir.close(clean=False)
        return target
    assert log_dir.close() == []
    return path / "work"


def append_times(log: Log) -> dict[int, int | None]:
    return {o: log.append_times(o, o + 1)[0].ms for o in range(log.log_end_offset)}


def expect_every_answer(log: Log) -> None:
    """Nothing is missed or wrong; append times may be unknown."""
    truth = times_in(log)
    assert [each.offset for each in truth] == list(range(RECORDS))
    for moment in moments(truth):
        found = log.find_by_timestamp(moment)
        assert (found and Truth(found.offset, found.timestamp)) == first_at_or_after(truth, moment)
    assert all(ms in (None, APPENDED[offset]) for offset, ms in append_times(log).items())
    for offset, ms in APPENDED.items():
        for segment in log.segments:
            end = segment.end.next_offset
            if segment.base_offset <= offset < end:
                for window in (
                    TimeRange(truth[offset][1], truth[offset][1]),
                    TimeRange(ms, ms, of_append=True),
                ):
                    spans = segment.blocks.spans(window, segment.size, end)
                    assert any(s.base_offset <= offset < (s.next_offset or end) for s in spans)


def test_a_finished_segment_has_one_file_of_ours(tmp_path: Path) -> None:
    path = written(tmp_path, clean=True)
    suffixes = {each.suffix for each in partition_dir(path).glob(f"{FIRST}.*")}
    assert suffixes == {".log", ".index", ".timeindex", ".companion"}
    with reopened(path, CONFIG) as (_, log):
        assert append_times(log) == APPENDED
        first = log.segments[0]
        stats = first.blocks.times(first.size)
        assert stats is not None
        assert stats.records == log.segments[1].base_offset
        assert first.indexes.seal_facts(first.size) is not None


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("cut", some_of(range(RECORDS + 1), 3))
def test_it_is_cut_with_the_log_at_any_record(tmp_path: Path, clean: bool, cut: int) -> None:
    path = written(tmp_path, clean=clean)
    with reopened(path, CONFIG) as (log_dir, log):
        log.truncate_to(cut, NOW)
        kept = {offset: ms for offset, ms in APPENDED.items() if offset < cut}
        assert append_times(log) == kept
        append(log, NOW + 1, now=NOW + 900)
        expected = {**kept, cut: NOW + 900}
        assert append_times(log) == expected
        for segment in log.segments:
            assert segment.blocks.times(segment.size) is not None, (
                "blocks before the cut are not lost"
            )
        killed = snapshot_of(path, tmp_path / "killed again")
        assert log_dir.close() == []
    for again in (path, killed):
        with reopened(again, CONFIG) as (_, log):
            assert append_times(log) == expected


FOREIGN: dict[str, Callable[[bytes, bytes], bytes]] = {
    "missing": lambda mine, other: b"",
    "of another segment": lambda mine, other: other,
    "its first half": lambda mine, other: mine[: len(mine) // 2],
    "its head": lambda mine, other: mine[:TIMES_AT],
    "zeros": lambda mine, other: bytes(len(mine)),
    "with more behind it": lambda mine, other: mine + other,
    "ones": lambda mine, other: b"\xff" * len(mine),
    "head of another": lambda mine, other: other[:TIMES_AT] + mine[TIMES_AT:],
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_companion_of_other_bytes_changes_no_answer(
    tmp_path: Path, damage: Callable[[bytes, bytes], bytes], clean: bool
) -> None:
    path = written(tmp_path, clean=clean)
    files = sorted(partition_dir(path).glob("*.companion"))
    contents = [each.read_bytes() for each in files]
    for file, mine, other in zip(files, contents, contents[1:] + contents[:1], strict=True):
        file.write_bytes(damage(mine, other))
    with reopened(path, CONFIG) as (_, log):
        expect_every_answer(log)
        append(log, NOW, now=NOW + 5000)
        assert append_times(log)[RECORDS] == NOW + 5000


@examples(2)
@given(data=st.data(), clean=st.booleans())
def test_no_flipped_bit_changes_an_answer(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, clean: bool
) -> None:
    path = written(tmp_path_factory.mktemp("log"), clean=clean)
    for file in sorted(partition_dir(path).glob("*.companion")):
        content = bytearray(file.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        # No kill takes a part of what was written, so that a marker speaks for all of it.
        size = data.draw(st.just(len(content)) | st.integers(0, len(content)))
        file.write_bytes(content[: size if clean else None])
    with reopened(path, CONFIG) as (_, log):
        expect_every_answer(log)


def test_a_companion_of_a_topic_before_this_one_says_nothing_of_it(tmp_path: Path) -> None:
    old = written(tmp_path / "old", clean=True)
    with new_log(tmp_path / "new", CONFIG) as log:
        for offset in range(RECORDS):
            append(log, 5 + offset, now=NOW + 100_000, value=b"w")
        log.roll(NOW)
    for file in partition_dir(old).glob("*.companion"):
        shutil.copy(file, partition_dir(tmp_path / "new") / file.name)
    for marker in partition_dir(tmp_path / "new").glob("*.deleted"):
        marker.unlink()
    with reopened(tmp_path / "new", CONFIG) as (_, log):
        assert set(append_times(log).values()) <= {None, NOW + 100_000}
        assert log.find_by_timestamp(5 + RECORDS - 1) is not None
        for segment in log.segments[:-1]:
            assert segment.blocks.spans(TimeRange(5, 5 + RECORDS), segment.size)


@pytest.mark.parametrize("place", [(0, 1), (1 << 40, 1), (TIMES_AT + 5, 1), (TIMES_AT, 1 << 31)])
def test_a_map_at_a_place_that_cannot_be_is_not_read(
    tmp_path: Path, place: tuple[int, int]
) -> None:
    path = written(tmp_path, clean=True)
    file = partition_dir(path) / f"{FIRST}.companion"
    content = bytearray(file.read_bytes())
    import crc32c  # noqa: PLC0415

    said = place[0].to_bytes(8, "big") + place[1].to_bytes(4, "big")
    content[132:148] = said + crc32c.crc32c(said).to_bytes(4, "big")
    file.write_bytes(content)
    with reopened(path, CONFIG) as (_, log):
        expect_every_answer(log)


def test_a_map_is_put_again_behind_append_times_which_it_leaves_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path, clean=True)
    file = partition_dir(path) / f"{FIRST}.companion"
    before = file.read_bytes()
    entries = map_in(file)
    for other in (b"", entries[:152], entries):
        put_map(file, other)
        assert map_in(file) == other
        assert (
            file.read_bytes()[TIMES_AT : len(before) - len(entries)]
            == before[TIMES_AT : len(before) - len(entries)]
        )
    assert file.read_bytes() == before


@pytest.mark.parametrize("bit", some_of(range(96), 5))
def test_a_damaged_last_entry_is_no_append_time_to_go_on_from(tmp_path: Path, bit: int) -> None:
    """Nor the first one: a flipped bit of a time is centuries, and no later one may be earlier."""
    path = written(tmp_path, clean=True)
    for file in partition_dir(path).glob("*.companion"):
        content = bytearray(file.read_bytes())
        ends = int.from_bytes(content[132:140], "big") or len(content)
        for entry in {TIMES_AT, ends - 12} if ends > TIMES_AT else ():
            content[entry + bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)
    (path / ".kafka_cleanshutdown").unlink()
    with reopened(path, CONFIG) as (_, log):
        for segment in log.segments:
            times = segment.append_times
            for ms in (times.earliest_ms, times.first_ms, times.latest_ms):
                assert ms is None or ms in APPENDED.values()
        assert log.floor.last == max(APPENDED.values())


def test_a_reader_of_a_file_that_is_cut_meanwhile_knows_no_append_times(tmp_path: Path) -> None:
    path = written(tmp_path, clean=True)
    file = partition_dir(path) / f"{FIRST}.companion"
    readers = [
        PartitionReader(Files(read_only=True), partition_dir(path)).segments[0] for _ in range(2)
    ]
    for reader in readers:
        reader.end = reader.whole_end()
        assert reader.has_append_times
    assert readers[1].append_times.at(0) == APPENDED[0]
    file.write_bytes(file.read_bytes()[:TIMES_AT])
    for reader in readers:
        assert reader.append_times.first_from(NOW, 0, 2) in (None, FirstAppended(0, None))
        assert reader.append_times.latest_ms is None
    assert readers[0].append_times.at(0) is None


# -- as seen by a follower ------------------------------------------------------------------


def follower(path: Path, kinds: str) -> SegmentReader:
    """A segment of a batch for each kind: known, seen, unknown."""
    log = b"".join(
        build_batch([LogRecord(NOW, None, b"v")] * 2, base_offset=2 * number)
        for number in range(len(kinds))
    )
    (path / f"{FIRST}.log").write_bytes(log)
    reader = SegmentReader(Files(), str(path / FIRST), 0, len(log))
    reader.end = SegmentEnd(0, 0)
    times = reader.append_times
    times.make_ready(NOW)
    for number, (position, header) in enumerate(iter_headers(log)):
        batch, offset = log[position:], header.base_offset
        ms = None if kinds[number] == "u" else NOW + number
        times.add([(offset, ms, identity_of(batch), kinds[number] == "s")])
        reader.end = SegmentEnd(position + header.size, header.next_offset)
    return reader


def per_batch(reader: SegmentReader, count: int, **what: bool) -> list[tuple[int | None, bool]]:
    times = reader.append_times
    return [times.stretches(2 * n, 2 * n + 1, **what)[0][1:] for n in range(count)]


@given(kinds=st.text("ksu", min_size=1, max_size=12), cut=st.integers(0, 12))
def test_append_times_are_known_seen_or_unknown_for_each_stretch(
    tmp_path_factory: pytest.TempPathFactory, kinds: str, cut: int
) -> None:
    reader = follower(tmp_path_factory.mktemp("log"), kinds)
    known = [NOW + n if kind == "k" else None for n, kind in enumerate(kinds)]
    all_three = [(None if kind == "u" else NOW + n, kind == "s") for n, kind in enumerate(kinds)]

    def check(reader: SegmentReader, count: int) -> None:
        assert per_batch(reader, count) == [(ms, False) for ms in known[:count]]
        assert per_batch(reader, count, seen=True) == all_three[:count]
        for ms in range(NOW - 1, NOW + count + 1):
            found = reader.append_times.first_from(ms, 0, 2 * count)
            # What comes before a record that was appended earlier was appended earlier, too.
            early = max((n for n in range(count) if (known[n] or ms) < ms), default=-1)
            first = next((n for n in range(count) if n > early), None)
            expected = None if first is None else (2 * first, known[first])
            assert found == expected

    check(reader, len(kinds))
    reader.append_times.finish()
    again = SegmentReader(Files(), reader.path_of(""), 0, reader.size)
    again.end = again.whole_end()
    check(again, len(kinds))
    cut = min(cut, len(kinds))
    before = again.companion_before_cut()
    ends = [position for position, _ in again.batches().headers()] + [again.size]
    with Path(again.path_of(".log")).open("r+b") as log:
        log.truncate(ends[cut])
    again.end = SegmentEnd(ends[cut], 2 * cut)
    again.cut_companion(before)
    check(again, cut)


def test_readers_of_files_read_the_companion_of_a_log_that_is_appended_to(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        fill(log)
        readers = PartitionReader(Files(read_only=True), partition_dir(tmp_path)).segments
        said = {
            offset: segment.append_times.at(offset)
            for segment in readers[:-1]
            for offset in range(segment.base_offset, segment.whole_end().next_offset)
        }
        assert said == {offset: APPENDED[offset] for offset in said}
        assert log.log_end_offset == RECORDS


OPERATIONS = (*("append",) * 12, *("open", "read") * 3, "cut", "cut", "roll", "close", "kill")


@given(seed=st.integers(0, 1 << 40))
def test_whoever_reads_the_files_while_they_are_written_is_told_nothing_wrong(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """A record's value is when it was appended. Readers were opened some time before they read."""
    path = tmp_path_factory.mktemp("log") / "log"
    log_dir = open_dir(path, CONFIG)
    log, now = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW), NOW
    readers: list[SegmentReader] = []
    rng = random.Random(seed)
    for _ in range(100):
        step, number = rng.choice(OPERATIONS), rng.randrange(10)
        if step == "append":
            now += number // 3
            append(log, NOW - number, now=now, value=str(now).encode())
        elif step == "roll":
            log.roll(now)
        elif step == "cut":
            log.truncate_to(max(0, log.log_end_offset - number // 3), now)
        elif step in ("close", "kill"):
            log_dir.close(clean=step == "close")
            log_dir = open_dir(path, CONFIG)
            log = log_dir.logs[TopicPartition("events", 3)]
        elif step == "open":
            readers += PartitionReader(Files(read_only=True), partition_dir(path)).segments
        else:
            some = readers[number % 2 :: 2]
            del readers[number % 2 :: 2]
            for reader in some:
                with suppress(CorruptBatch, StorageFailed):  # it was cut off, or is gone
                    reader.end = reader.whole_end()
                    for position, header in reader.headers(0, reader.size):
                        (record,) = read_records(reader.read_batch(position, header))
                        said = reader.append_times.at(header.base_offset)
                        assert said in (None, int(record.value or b""))
    log_dir.close(clean=False)
