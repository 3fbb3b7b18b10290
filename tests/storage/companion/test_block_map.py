"""The block map: what it says of a log, and that it is used only where the log proves it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from batches import batch
from crc32c import crc32c
from overrides import override
from storelogs import (
    ANY_TIME,
    NOW,
    TOPIC_ID,
    UnsyncedFiles,
    append,
    new_log,
    open_dir,
    partition_dir,
    reopened,
    snapshot_of,
)
from time_sums import entry_of

from companions import lose_maps, map_in, put_map
from golden import partitions
from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.record import NO_RECORDS, OF_CREATE_TIME, Codec, TimeRange, TimestampType
from horolog.storage import (
    ENTRY_SIZE,
    MARKER_SIZE,
    Block,
    BlockCache,
    Checked,
    Files,
    Finding,
    Log,
    Reindexing,
    Segment,
    SegmentReader,
    Severity,
    Span,
    Verification,
    find_target,
    prepare,
    unpack,
)
from horolog.storage.companion.block_cache import block_cache

BLOCK = 400  # bytes, of two to four batches here
CONFIG = TopicConfig(segment_bytes=1_000_000, **ANY_TIME)
FIRST = "00000000000000000000"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.storage", BLOCK_BYTES=BLOCK)


def blocks_of(segment: SegmentReader) -> list[Block]:
    entries = segment.blocks.entries(segment.size)
    return [unpack(entries, at) for at in range(0, len(entries), ENTRY_SIZE)]


def closed(path: Path, *batches: list[int], config: TopicConfig = CONFIG) -> Path:
    """A log of one segment, closed cleanly; the path of its companion."""
    log_dir = open_dir(path, config)
    log = log_dir.create("events", 3, TOPIC_ID, config, NOW)
    for number, times in enumerate(batches):
        append(log, *times, now=NOW + number)
    assert log_dir.close() == []
    return partition_dir(path) / f"{FIRST}.companion"


def reader_of(map_path: Path, cache: BlockCache | None = None) -> SegmentReader:
    log = map_path.with_suffix(".log")
    files = Files(read_only=True)
    stem = str(log).removesuffix(".log")
    return SegmentReader(files, stem, 0, log.stat().st_size, block_cache=cache)


def whole(segment: SegmentReader) -> list[Span]:
    return [Span(0, segment.size, 0, None)]


def from_records(block: Block) -> Block:
    """Without what only the broker that appended knows."""
    none = {"append_min_ms": None, "append_max_ms": None, "latencies": NO_RECORDS.latencies}
    return block._replace(times=block.times._replace(flags=0, **none))


STEADY = [[NOW + 10 * number, NOW + 10 * number + 5] for number in range(40)]


def test_only_blocks_that_reach_into_a_window_are_named(tmp_path: Path) -> None:
    reader = reader_of(closed(tmp_path, *STEADY))
    assert len(blocks_of(reader)) > 8
    for first in range(NOW, NOW + 400, 30):
        (span,) = reader.blocks.spans(TimeRange(first, first + 9), reader.size)
        assert span.end - span.position <= 2 * BLOCK
        assert span.base_offset <= (first - NOW) // 10 * 2 < (span.next_offset or 0)
    assert reader.blocks.spans(TimeRange(NOW - 1000, NOW - 1), reader.size) == []
    assert reader.blocks.spans(TimeRange(NOW + 400, NOW + 1000), reader.size) == []


@pytest.mark.parametrize("batches", range(1, 36, 2))
def test_blocks_that_are_not_written_yet_are_as_narrow_as_others(
    tmp_path: Path, batches: int
) -> None:
    with new_log(tmp_path, CONFIG) as log:
        for number, times in enumerate(STEADY[:batches]):
            append(log, *times, now=NOW + number)
        segment = log.segments[-1]
        assert sum(block.batches for block in blocks_of(segment)) == batches
        for number in range(batches):
            first = NOW + 10 * number
            (span,) = segment.blocks.spans(TimeRange(first, first + 9), segment.size)
            assert span.end - span.position <= BLOCK
            assert span.base_offset <= 2 * number < (span.next_offset or 2 * batches)


def test_large_batches_are_not_kept_back_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.storage", FOLDED_BYTES=3 * BLOCK)
    with new_log(tmp_path, CONFIG) as log:
        for number in range(7):
            append(log, NOW + number, value=bytes(BLOCK), now=NOW)
        in_file = (partition_dir(tmp_path) / f"{FIRST}.appending.deleted").stat().st_size
        assert in_file >= MARKER_SIZE + 4 * ENTRY_SIZE


def test_a_late_record_is_found_where_it_is(tmp_path: Path) -> None:
    late = [*STEADY[:20], [NOW - 5000], *STEADY[20:]]
    reader = reader_of(closed(tmp_path, *late))
    (span,) = reader.blocks.spans(TimeRange(NOW - 5000, NOW - 5000), reader.size)
    assert span.base_offset <= 40 < (span.next_offset or 0)
    assert span.end - span.position <= BLOCK


def test_times_before_1970_are_found_and_missing_times_are_no_times(tmp_path: Path) -> None:
    batches = [[-1, -1], [-5000, -1], [-1], *STEADY, [-1, -2], [-1]]
    reader = reader_of(closed(tmp_path, *batches))
    (span,) = reader.blocks.spans(TimeRange(-6000, -3), reader.size)
    assert span.base_offset == 0
    (span,) = reader.blocks.spans(TimeRange(-2, -2), reader.size)
    assert span.end == reader.size
    first, last = reader.blocks.spans(TimeRange(-1, -1, with_untimed=True), reader.size)
    assert (first.position, last.end) == (0, reader.size)
    assert sum(block.times.untimed for block in blocks_of(reader)) == 6


def test_a_block_counts_what_is_odd_about_its_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.storage", BLOCK_BYTES=1 << 20)
    path = closed(
        tmp_path,
        [NOW + 5, NOW - 5, -1, NOW - 50],  # appended at NOW: one ahead, two earlier than before
        [NOW + 1, NOW + 1 - 3_600_000],  # appended at NOW + 1
    )
    (block,) = blocks_of(reader_of(path))
    times = block.times
    assert (block.batches, times.records, times.untimed, times.out_of_order) == (2, 6, 1, 3)
    assert (times.create_min_ms, times.create_max_ms) == (NOW + 1 - 3_600_000, NOW + 5)
    assert (times.first_create_ms, times.last_create_ms) == (NOW + 5, NOW + 1 - 3_600_000)
    assert (times.append_min_ms, times.append_max_ms) == (NOW, NOW + 1)
    assert times.flags == OF_CREATE_TIME
    assert times.latencies == (1, 2, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0)


@pytest.mark.parametrize("kind", list(TimestampType))
@pytest.mark.parametrize("compression", ["producer", "zstd", "uncompressed"])
def test_a_map_rebuilt_from_the_log_equals_the_one_written_by_appends(
    tmp_path: Path, kind: TimestampType, compression: str
) -> None:
    config = TopicConfig(message_timestamp_type=kind, compression_type=compression, **ANY_TIME)
    with new_log(tmp_path, config) as log:
        for number, times in enumerate([[-1], *STEADY, [5, -5000, NOW * 1000, -1, -1]]):
            codec = list(Codec)[number % 5]
            append(log, *times, now=NOW + 7 * number, codec=codec, value=b"v" * (number * 5))
        log.roll(NOW)
        segment = log.segments[0]
        appended = blocks_of(segment)
        lose_maps(tmp_path)
        assert segment.blocks.complete(segment.size)
        found = blocks_of(segment)
    assert len(found) > 8
    if kind is TimestampType.LOG_APPEND_TIME:
        assert found == appended
        assert all(block.times.is_stamped for block in found)
        return
    for mine, other in zip(found, appended, strict=True):
        assert mine.times.lacks_append_times, "only who appended knows"
        assert from_records(mine) == from_records(other)


def test_append_times_that_are_not_known_exclude_nothing(tmp_path: Path) -> None:
    path = closed(tmp_path, *STEADY)
    reader = reader_of(path)
    (span,) = reader.blocks.spans(TimeRange(NOW + 3, NOW + 3, of_append=True), reader.size)
    assert span.end - span.position <= BLOCK
    path.unlink()
    cached = reader_of(path, BlockCache(tmp_path / "cache"))
    cached.blocks.complete(cached.size)
    assert cached.blocks.spans(TimeRange(NOW, NOW + 3), cached.size) != whole(cached)
    (span,) = cached.blocks.spans(TimeRange(NOW + 3, NOW + 3, of_append=True), cached.size)
    assert (span.position, span.end) == (0, cached.size)


def test_a_batch_that_is_sent_twice_counts_once(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        for _ in range(3):
            sent = batch(NOW, NOW + 1, producer_id=7, producer_epoch=0, base_sequence=0)
            log.append(prepare(sent, CONFIG, NOW), NOW)
        log.roll(NOW)
        (block,) = blocks_of(log.segments[0])
    assert (block.batches, block.times.records) == (1, 2)


def test_a_lookup_of_a_time_before_1970_reads_only_blocks_that_may_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka writes -1 over the largest times of such batches: their headers tell nothing."""
    with new_log(tmp_path, CONFIG) as log:
        for number in range(40):
            append(log, -9000 - number, -9000 + number)
        append(log, -5, -7)
        read = []
        plain = Segment.read_batch
        monkeypatch.setattr(
            Segment, "read_batch", lambda self, *args: read.append(args) or plain(self, *args)
        )
        found = log.find_by_timestamp(-8)
        assert found is not None
        assert (found.timestamp, found.offset) == (-5, 80)
        assert len(read) <= 4
        assert log.find_by_timestamp(-4) is None
        assert log.find_by_timestamp(-9039).offset == 0


# -- what is not proved -------------------------------------------------------------------


def test_a_map_of_another_log_is_not_used(tmp_path: Path) -> None:
    path = closed(tmp_path / "one", *STEADY)
    other = closed(tmp_path / "two", *[[NOW + 100_000, NOW + 200_000] for _ in STEADY])
    put_map(path, map_in(other))
    reader = reader_of(path)
    assert blocks_of(reader) == []
    assert reader.blocks.spans(TimeRange(NOW, NOW), reader.size) == whole(reader)


def test_of_a_log_that_was_cut_and_went_on_differently_only_what_stayed_is_used(
    tmp_path: Path,
) -> None:
    """Apache Kafka truncates a follower, and appends what its leader has."""
    path = closed(tmp_path / "one", *STEADY)
    before = map_in(path)
    config = CONFIG
    with reopened(tmp_path / "one", config) as (_, log):
        log.truncate_to(40, NOW)
        for number in range(40):
            append(log, NOW - 90_000 + number, NOW)
        log.roll(NOW)
    put_map(path, before)  # as if it had been Kafka, which knows of no map
    reader = reader_of(path)
    kept = blocks_of(reader)
    assert 0 < len(kept) < len(before) // ENTRY_SIZE
    assert kept[-1].next_offset <= 40
    (span,) = reader.blocks.spans(TimeRange(NOW - 90_000, NOW - 80_000), reader.size)
    assert span.position == kept[-1].end
    assert span.end == reader.size


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:7],
        lambda content: content[:50] + b"\xff" + content[51:],
        lambda content: content[ENTRY_SIZE:][::-1],
        lambda content: bytes(len(content)),
    ],
)
def test_a_damaged_map_is_not_used(tmp_path: Path, damage) -> None:
    path = closed(tmp_path, *STEADY)
    put_map(path, damage(map_in(path)))
    reader = reader_of(path)
    assert reader.blocks.spans(TimeRange(NOW, NOW), reader.size) == whole(reader)


def test_entries_before_a_damaged_or_torn_one_are_used(tmp_path: Path) -> None:
    path = closed(tmp_path, *STEADY)
    content = map_in(path)
    torn = 3 * ENTRY_SIZE + 80
    for damaged in (content[:torn], content[:torn] + b"\xff" + content[torn + 1 :]):
        put_map(path, damaged)
        assert len(blocks_of(reader_of(path))) == 3


def test_a_gap_may_hold_anything(tmp_path: Path) -> None:
    path = closed(tmp_path, *STEADY)
    content, entry = map_in(path), 2 * ENTRY_SIZE
    put_map(path, content[:entry] + content[entry + ENTRY_SIZE :])
    reader = reader_of(path)
    before, after = blocks_of(reader)[1:3]
    assert before.end < after.position
    gap = Span(before.end, after.position, before.next_offset, after.base_offset)
    assert reader.blocks.spans(TimeRange(NOW + 10_000, NOW + 10_000), reader.size) == [gap]


# -- kills, full disks, deletion ----------------------------------------------------------


def test_other_processes_see_all_but_the_last_batches_of_a_live_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.storage.companion.block_writer", FOLDED_AT_ONCE=4)
    with new_log(tmp_path, CONFIG) as log:
        for times in STEADY:
            append(log, *times)
        (segment,) = log.segments
        mine = blocks_of(segment)
        others = blocks_of(reader_of(Path(segment.companion.path)))
        assert others == mine[: len(others)]
        assert len(mine) - len(others) <= 2
        assert mine[-1].end == segment.size, "to this process nothing is unknown"
        assert segment.size - others[-1].end <= 2 * BLOCK


def test_after_a_kill_what_the_map_lacks_is_taken_from_the_log(tmp_path: Path) -> None:
    with new_log(tmp_path / "log", CONFIG) as log:
        for number, times in enumerate(STEADY):
            append(log, *times, now=NOW + number)
        assert len(blocks_of(log.segments[0])) > 8, "readers here need not wait for the file"
        killed = snapshot_of(tmp_path / "log", tmp_path / "killed")
    with reopened(killed, CONFIG) as (log_dir, log):
        append(log, NOW + 5000)
        assert log_dir.close() == []
    path = partition_dir(killed) / f"{FIRST}.companion"
    reader = reader_of(path)
    assert reader.blocks.is_complete(reader.size)
    assert len(reader.blocks.spans(TimeRange(NOW + 200, NOW + 209), reader.size)) == 1


def test_a_start_goes_on_behind_the_blocks_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(
        monkeypatch, "horolog.storage", _SHORT_GAP=0
    )  # none is made of records that are read again
    path = closed(tmp_path, [NOW])
    for number in range(1, 4):
        with reopened(tmp_path, CONFIG) as (log_dir, log):
            append(log, NOW + number, now=NOW + number)
            assert log.segments[-1].blocks.is_complete(log.segments[-1].size)
            assert log_dir.close() == []
    blocks = blocks_of(reader_of(path))
    assert [(block.batches, block.times.records) for block in blocks] == [(1, 1)] * 4
    assert [block.times.append_max_ms for block in blocks] == [NOW + step for step in range(4)]


@pytest.mark.parametrize("steps", [1, 3, 5, 8])
def test_a_full_disk_costs_no_append_and_no_record_of_a_window(
    tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.storage", MOST_UNWRITTEN=3 * ENTRY_SIZE)

    class FullForMaps(Files):
        is_full = False

        def write_at(self, file, parts, position):
            if self.is_full and file.path.endswith(".appending.deleted"):
                super().write_at(file, [b"".join(parts)[:100]], position)
                raise StorageFailed("No space left on device")
            super().write_at(file, parts, position)

    files = FullForMaps()
    with new_log(tmp_path, CONFIG, files=files) as log:
        for number, times in enumerate(STEADY):
            files.is_full = 2 * steps <= number < 5 * steps
            append(log, *times)
            expect_every_window(log, number)
        files.is_full = False
        expect_every_window(log)
        log.roll(NOW)
        expect_every_window(log)
        assert log.segments[0].blocks.complete(log.segments[0].size)
        expect_every_window(log)


def expect_every_window(log: Log, last: int = len(STEADY) - 1) -> None:
    for number, times in enumerate(STEADY[: last + 1]):
        found = [
            span
            for segment in log.segments
            for span in segment.blocks.spans(TimeRange(*times), segment.size)
        ]
        assert any(s.base_offset <= 2 * number < (s.next_offset or 1 << 60) for s in found)


def test_a_removed_map_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.storage.companion.block_writer", FOLDED_AT_ONCE=4)
    files = UnsyncedFiles()
    with new_log(tmp_path, CONFIG, files=files) as log:
        for number, times in enumerate(STEADY):
            append(log, *times)
            if number == 20:
                files.remove(log.segments[0].path_of(".appending.deleted"))
        expect_every_window(log)
        log.roll(NOW)
        expect_every_window(log)
        assert not log.segments[0].blocks.is_complete(log.segments[0].size)


def test_the_map_goes_with_its_segment(tmp_path: Path) -> None:
    config = TopicConfig(segment_bytes=1_000, retention_ms=1_000, **ANY_TIME)
    with new_log(tmp_path, config) as log:
        for times in STEADY:
            append(log, *times)
        assert len(log.segments) > 3
        kept = log.segments[-1].base_offset
        log.apply_retention(NOW + 10_000_000, 0)
        assert log.segments[0].base_offset >= kept
        left = {path.stem for path in partition_dir(tmp_path).glob("*.companion")}
        assert left <= {f"{log.segments[0].base_offset:020d}"}
        stale = partition_dir(tmp_path) / f"{FIRST}.companion"
        stale.write_bytes(b"of a segment that Kafka has deleted")
    with reopened(tmp_path, config):
        assert not stale.exists()


def test_a_map_is_not_rebuilt_for_a_deleted_segment(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        for times in STEADY:
            append(log, *times)
        log.roll(NOW)
        segment: Segment = log.segments[0]
        segment.mark_deleted()
        assert segment.blocks.complete(segment.size), "a reader may still be at work"
        assert not list(partition_dir(tmp_path).glob(f"{FIRST}.companion"))


# -- logs of others -----------------------------------------------------------------------


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Path]:
    """The path of a map that is not there: Apache Kafka wrote the log."""
    path = closed(tmp_path / "log", *STEADY)
    path.unlink()
    yield path
    assert not path.exists(), "nothing is written beside another user's log"


def test_a_map_is_built_once_and_kept_elsewhere(foreign: Path, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "cache")
    first = reader_of(foreign, cache)
    assert first.blocks.spans(TimeRange(NOW, NOW), first.size) == whole(first)
    assert first.blocks.complete(first.size)
    again = reader_of(foreign, cache)
    assert again.blocks.is_complete(again.size)
    (span,) = again.blocks.spans(TimeRange(NOW, NOW), again.size)
    assert span.end <= 2 * BLOCK


def test_without_a_place_to_keep_it_the_whole_log_is_read(foreign: Path) -> None:
    reader = reader_of(foreign)
    assert reader.blocks.complete(reader.size)
    assert reader.blocks.spans(TimeRange(NOW, NOW), reader.size) == whole(reader)


def test_a_cached_map_follows_a_log_that_grows_and_no_other(foreign: Path, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "cache")
    log, content = foreign.with_suffix(".log"), foreign.with_suffix(".log").read_bytes()
    ends = [position for position, _ in reader_of(foreign).batches().headers()]
    log.write_bytes(content[: ends[20]])
    short = reader_of(foreign, cache)
    assert short.blocks.complete(short.size)
    log.write_bytes(content)
    longer = reader_of(foreign, cache)
    (span,) = longer.blocks.spans(TimeRange(NOW, NOW), longer.size)[1:]
    assert span == Span(ends[20], longer.size, 40, None)
    assert longer.blocks.complete(longer.size)
    reader = reader_of(foreign, cache)
    assert len(reader.blocks.spans(TimeRange(NOW, NOW), reader.size)) == 1
    log.write_bytes(content[: ends[5]] + content[ends[10] :])
    other = reader_of(foreign, cache)
    assert all(block.end <= ends[5] for block in blocks_of(other))


def test_a_cached_map_is_not_of_another_log_with_the_same_last_batch(
    foreign: Path, tmp_path: Path
) -> None:
    cache = BlockCache(tmp_path / "cache")
    log = foreign.with_suffix(".log")
    content = log.read_bytes()
    first = reader_of(foreign, cache)
    assert first.blocks.complete(first.size)
    _, header = next(first.batches().headers())
    other = bytearray(content)
    other[header.size - 1] ^= 1  # of a value: only the checksum of the first batch differs
    other[17:21] = crc32c(bytes(other[21 : header.size])).to_bytes(4, "big")
    log.write_bytes(other)
    assert blocks_of(reader_of(foreign, cache)) == []
    log.write_bytes(content)
    assert blocks_of(reader_of(foreign, cache)), "the batches are the same"


def test_a_damaged_batch_may_hold_anything_and_others_are_still_excluded(
    foreign: Path, tmp_path: Path
) -> None:
    log = foreign.with_suffix(".log")
    content = bytearray(log.read_bytes())
    ends = [position for position, _ in reader_of(foreign).batches().headers()]
    content[ends[20] + 61 : ends[21]] = bytes(ends[21] - ends[20] - 61)
    log.write_bytes(bytes(content))
    cache = BlockCache(tmp_path / "cache")
    reader = reader_of(foreign, cache)
    assert reader.blocks.complete(reader.size)
    (span,) = reader.blocks.spans(TimeRange(5, 5), reader.size)
    assert span.position <= ends[20] < span.end
    assert span.end - span.position <= BLOCK


def test_the_cache_is_a_directory_that_no_other_user_writes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOROLOG_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = block_cache()
    assert cache is not None
    cache.write("/backup/log", b"map")
    assert cache.read("/backup/log") == b"map"
    assert cache.read("/other") is None
    assert block_cache("s3://bucket") is not None
    assert block_cache("s3://bucket").read("/backup/log") is None
    (tmp_path / "horolog" / "blocks").chmod(0o777)
    other = block_cache()
    assert other is None or other.read("/backup/log") is None
    monkeypatch.setenv("HOROLOG_CACHE_DIR", "")
    assert block_cache() is None


def test_blocks_of_a_log_follow_one_another(tmp_path: Path) -> None:
    reader = reader_of(closed(tmp_path, *STEADY))
    found = blocks_of(reader)
    assert found[0].position == 0
    assert found[-1].end == reader.size
    for block, following in pairwise(found):
        assert (block.end, block.next_offset) == (following.position, following.base_offset)
    for block in found:
        assert block.size <= BLOCK


# -- verified and rebuilt -----------------------------------------------------------------


def findings(path: Path) -> list[Finding]:
    steps = Verification.of(partition_dir(path)).steps()
    return [s for s in steps if not isinstance(s, Checked) and s.path.endswith(".companion")]


def reindex(path: Path, *, rebuild_all: bool = False) -> None:
    work = Reindexing(find_target(partition_dir(path)), 4096, rebuild_all=rebuild_all)
    with work.locked():
        for _ in work.steps():
            pass


@pytest.mark.parametrize("kind", list(TimestampType))
def test_a_map_as_it_is_written_is_found_sound(tmp_path: Path, kind: TimestampType) -> None:
    config = TopicConfig(message_timestamp_type=kind, **ANY_TIME)
    closed(tmp_path, [-1], *STEADY, [-5000], [NOW * 1000, 0], config=config)
    assert findings(tmp_path) == []


def test_a_damaged_map_is_found_and_rebuilt(tmp_path: Path) -> None:
    path = closed(tmp_path, *STEADY)
    content = path.read_bytes()
    for damaged in (content[:-1], content[:-300] + b"\xff" + content[-299:], b""):
        if damaged:
            path.write_bytes(damaged)
            (finding,) = findings(tmp_path)
            assert finding.severity is Severity.FAULT
            assert "reindex" in (finding.mend or "")
        else:
            lose_maps(tmp_path)
        reindex(tmp_path, rebuild_all=not damaged)
        assert findings(tmp_path) == []
        reader = reader_of(path)
        assert reader.blocks.is_complete(reader.size)


def test_entries_with_other_times_than_the_records_are_found_and_rebuilt(
    tmp_path: Path,
) -> None:
    path = closed(tmp_path, *STEADY)
    content = map_in(path)
    third = unpack(content, at := 3 * ENTRY_SIZE)
    for change in ({"create_min_ms": NOW}, {"records": 1}, {"out_of_order": 1}):
        wrong = entry_of(third._replace(times=third.times._replace(**change)))
        put_map(path, content[:at] + wrong + content[at + ENTRY_SIZE :])
        (finding,) = findings(tmp_path)
        assert finding.severity is Severity.FAULT
        assert "Entry 3" in finding.what
        reindex(tmp_path)
        assert findings(tmp_path) == []


def test_a_map_of_other_batches_is_noted(tmp_path: Path) -> None:
    path = closed(tmp_path / "one", *STEADY)
    put_map(path, map_in(closed(tmp_path / "two", *[[5, 6]] * 40)))
    (finding,) = findings(tmp_path / "one")
    assert finding.severity is Severity.NOTE


def test_every_record_that_kafka_wrote_is_in_a_stretch_that_is_named(tmp_path: Path) -> None:
    """A compressed message of an old format has the offset of the last one in it."""
    cache = BlockCache(tmp_path)
    for golden in partitions("clean", "old-formats"):
        readers = []
        for log in sorted(golden.path.glob("*.log")):
            stem, size = str(log).removesuffix(".log"), log.stat().st_size
            files = Files(read_only=True)
            reader = SegmentReader(files, stem, int(log.stem), size, block_cache=cache)
            assert reader.complete_blocks() or not size
            readers.append(reader)
        start = golden.answers["log_start_offset"]
        for offset, timestamp, *_ in golden.answers["records"]:
            # That client shows 0 for a message of v0, which has no time.
            window = TimeRange(timestamp, timestamp, with_untimed=timestamp in (-1, 0))
            found = [
                span for reader in readers for span in reader.blocks.spans(window, reader.size)
            ]
            assert offset < start or any(
                span.base_offset <= offset and offset < (span.next_offset or 1 << 62)
                for span in found
            ), (golden.name, offset)


def test_a_map_rebuilt_from_the_log_has_append_times_of_their_own_file(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        for number, times in enumerate(STEADY):
            append(log, *times, now=NOW + 7 * number)
        log.roll(NOW + 400)
        segment = log.segments[0]
        appended = blocks_of(segment)
        lose_maps(tmp_path)
        assert segment.complete_blocks()
        assert blocks_of(segment) == appended
