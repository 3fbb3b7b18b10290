"""What a start makes of a directory that was not left cleanly, and of other people's."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from batches import batch
from examples import some_pairs
from faultyfiles import FaultyFiles, Killed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from old_messages import build_messages
from partition_files import flip
from storelogs import (
    DAY,
    NOW,
    TOPIC_ID,
    Truth,
    append,
    first_at_or_after,
    moments,
    new_log,
    open_dir,
    partition_dir,
    records_in,
    reopened,
    snapshot_of,
    times_in,
)

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.record import HEADER_SIZE, Codec, LogRecord, iter_headers, parse_header, with_records
from horolog.storage import (
    BatchReader,
    EpochStart,
    Files,
    Log,
    OpenFile,
    TopicPartition,
    read_epochs,
    whole_batches,
)

CONFIG = TopicConfig(index_interval_bytes=0, segment_bytes=1000)
COUNT = 25


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of 25 batches in several segments, killed; nothing was ever flushed."""
    with new_log(tmp_path / "log", CONFIG) as log:
        for number in range(COUNT):
            append(log, NOW + number * 7 % 20, NOW + number)
        assert len(log.segments) > 2
    return tmp_path / "log"


def truth() -> list[Truth]:
    times = [t for number in range(COUNT) for t in (NOW + number * 7 % 20, NOW + number)]
    return [Truth(offset, time) for offset, time in enumerate(times)]


def logs(path: Path) -> list[Path]:
    return sorted(partition_dir(path).glob("*.log"))


def in_whole_batches(path: Path) -> set[int]:
    """The offsets of all whole batches, wherever in a file one begins."""
    offsets, files = set[int](), Files(read_only=True)
    for file in logs(path):
        found = whole_batches(BatchReader(files, files.get(str(file)), file.stat().st_size))
        for _, header in found:
            offsets.update(range(header.base_offset, header.next_offset))
    return offsets


def expect(log: Log, records: list[Truth]) -> None:
    assert times_in(log) == records
    assert log.log_end_offset == (records[-1].offset + 1 if records else log.log_start_offset)
    for moment in moments(records):
        found = log.find_by_timestamp(moment)
        assert (found and Truth(found.offset, found.timestamp)) == first_at_or_after(
            records, moment
        )
    assert append(log, NOW + 99).base_offset == log.log_end_offset - 1


def test_a_kill_loses_nothing_that_was_in_the_page_cache(path: Path) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        (recovery,) = log_dir.recoveries
        assert recovery.removed_bytes == 0
        assert recovery.checked_bytes == log.size
        assert recovery.notes == []
        expect(log, truth())


def test_the_recovery_point_is_not_moved_by_a_recovery(path: Path) -> None:
    with reopened(path, CONFIG) as (_, log):
        assert log.recovery_point == 0
        log.flush()
        assert log.recovery_point == log.log_end_offset


def test_only_batches_from_the_recovery_point_on_are_checked(path: Path) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        log.flush()
        log_dir.checkpoint()
        append(log, NOW)
        snapshot_of(path, path.with_name("killed"))
        active = log.segments[-1].size
    with reopened(path.with_name("killed"), CONFIG) as (log_dir, _):
        assert log_dir.recoveries[0].checked_bytes == active


def test_the_recovery_point_at_the_beginning_of_a_segment_spares_the_one_before(
    path: Path,
) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        log.flush_rolled()
        assert log.recovery_point == log.segments[-1].base_offset
        log_dir.checkpoint()
        snapshot_of(path, path.with_name("killed"))
        active = log.segments[-1].size
    with reopened(path.with_name("killed"), CONFIG) as (log_dir, log):
        assert log_dir.recoveries[0].checked_bytes == active
        log.truncate_to(log.recovery_point - 1, NOW)
        assert log.recovery_point == log.log_end_offset


@pytest.mark.parametrize("left", ["header", "half", "all but a byte", "a byte"])
def test_a_torn_last_batch_is_cut_off(path: Path, left: str) -> None:
    last = logs(path)[-1]
    data = last.read_bytes()
    *_, (position, header) = iter_headers(data)
    size = header.size
    keep = {"header": HEADER_SIZE, "half": size // 2, "all but a byte": size - 1, "a byte": 1}
    last.write_bytes(data[: position + keep[left]])
    with reopened(path, CONFIG) as (log_dir, log):
        (recovery,) = log_dir.recoveries
        assert recovery.removed_bytes == keep[left]
        assert f"Cut {keep[left]} bytes off" in recovery.notes[0]
        expect(log, truth()[:-2])


@pytest.mark.parametrize("zeros", [1, 16, 61, 5000])
def test_a_tail_of_zeros_is_cut_off(path: Path, zeros: int) -> None:
    last = logs(path)[-1]
    last.write_bytes(last.read_bytes() + bytes(zeros))
    with reopened(path, CONFIG) as (log_dir, log):
        assert log_dir.recoveries[0].removed_bytes == zeros
        expect(log, truth())


def test_garbage_behind_the_last_batch_is_cut_off(path: Path) -> None:
    last = logs(path)[-1]
    last.write_bytes(last.read_bytes() + b"\x5a" * 300)
    with reopened(path, CONFIG) as (_, log):
        expect(log, truth())


def test_a_flipped_bit_cuts_the_log_there_and_drops_what_follows(path: Path) -> None:
    second = logs(path)[1]
    data = bytearray(second.read_bytes())
    (_, first), (position, header), *_ = iter_headers(bytes(data))
    data[position + 70] ^= 1
    second.write_bytes(data)
    later = logs(path)[2:]
    with reopened(path, CONFIG) as (log_dir, log):
        (recovery,) = log_dir.recoveries
        assert "stored crc" in recovery.warnings[-1]
        assert len(recovery.warnings) == 1 + len(later)
        assert recovery.notes == []
        assert log.log_end_offset == first.next_offset == header.base_offset
        assert not any(path.exists() for path in later)
        expect(log, truth()[: header.base_offset])


def set_aside(path: Path) -> list[Path]:
    return sorted(partition_dir(path).glob("*.cut"))


def offsets_set_aside(path: Path) -> list[int]:
    """Of the whole batches in all files that were set aside."""
    files = Files(read_only=True)
    found = []
    for file in set_aside(path):
        size = file.stat().st_size
        for _, header in whole_batches(BatchReader(files, files.get(str(file)), size)):
            found += range(header.base_offset, header.next_offset)
    return sorted(found)


def test_whole_batches_behind_damage_are_set_aside(path: Path) -> None:
    """Nothing was flushed, so all is checked: the first segment already ends it."""
    first = logs(path)[0]
    (_, before), (position, damaged), *_ = iter_headers(first.read_bytes())
    flip(first, position + 70)
    with reopened(path, CONFIG) as (log_dir, log):
        assert log.log_end_offset == before.next_offset
        assert offsets_set_aside(path) == list(range(damaged.next_offset, 2 * COUNT))
        assert all("set aside" in warning for warning in log_dir.recoveries[0].warnings)
        append(log, NOW)
    with reopened(path, CONFIG) as (log_dir, log):
        assert log_dir.recoveries[0].warnings == []
        assert log.log_end_offset == before.next_offset + 1


def test_a_recovery_killed_at_any_step_keeps_every_whole_batch(path: Path) -> None:
    first = logs(path)[0]
    (_, before), (position, damaged), *_ = iter_headers(first.read_bytes())
    flip(first, position + 70)
    behind = list(range(damaged.next_offset, 2 * COUNT))
    step, killed = 0, True
    while killed:
        copy = snapshot_of(path, path.with_name(f"copy-{step}"))
        try:
            with reopened(copy, CONFIG, files=FaultyFiles(step, Killed())):
                killed = False
        except Killed:
            assert step < 200
        with reopened(copy, CONFIG) as (_, log):
            assert log.log_end_offset == before.next_offset, step
            assert offsets_set_aside(copy) == behind, step
        step += 1
    assert step > 10


def test_the_same_place_can_be_set_aside_again(path: Path) -> None:
    for expected in (1, 2, 3):
        last = logs(path)[-1]
        *_, (position, header) = iter_headers(last.read_bytes())
        flip(last, position + 70 if expected < 3 else position + 75)
        with reopened(path, CONFIG) as (_, log):
            assert len(set_aside(path)) == expected
            assert append(log, NOW + expected).base_offset == header.base_offset


def test_a_torn_batch_before_whole_ones_is_no_torn_tail(path: Path) -> None:
    """Its length says more than is there, and yet whole batches follow."""
    file, *later = logs(path)
    (_, first), (position, damaged), *more = iter_headers(file.read_bytes())
    assert more
    for each in later:
        each.unlink()
    flip(file, position + 8)  # the first byte of the length: 16 MB more
    with reopened(path, CONFIG) as (_, log):
        assert log.log_end_offset == first.next_offset
        assert offsets_set_aside(path) == list(range(damaged.next_offset, more[-1][1].next_offset))


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_whole_batch_is_lost_whatever_is_damaged(path: Path, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, 1 << 30))
    copy = snapshot_of(path, path.with_name(f"damaged-{number}"))
    try:
        for _ in range(data.draw(st.integers(1, 3))):
            file = data.draw(st.sampled_from(logs(copy)))
            content = bytearray(file.read_bytes())
            position = data.draw(st.integers(0, max(0, len(content) - 1)))
            match data.draw(st.sampled_from(["flip", "overwrite", "insert", "cut", "truncate"])):
                case "flip" if content:
                    content[position] ^= 1 << data.draw(st.integers(0, 7))
                case "overwrite":
                    junk = data.draw(st.binary(min_size=1, max_size=100))
                    content[position : position + len(junk)] = junk
                case "insert":
                    content[position:position] = data.draw(st.binary(min_size=1, max_size=100))
                case "cut":
                    del content[position : position + data.draw(st.integers(1, 300))]
                case "truncate":
                    del content[position:]
            file.write_bytes(content)
        whole = in_whole_batches(copy)
        with reopened(copy, CONFIG) as (_, log):
            kept = {record.offset for record in records_in(log)} | {*offsets_set_aside(copy)}
        assert kept >= whole
    finally:
        shutil.rmtree(copy)


def test_an_empty_segment_behind_a_damaged_one_does_not_take_the_partition_away(path: Path) -> None:
    first, second, *_ = logs(path)
    # It looks like a message of v0 without a size, and no index can be made of such a segment.
    first.write_bytes(b"\x00\x01" + first.read_bytes()[1:])
    second.write_bytes(b"")
    whole = in_whole_batches(path)
    assert whole
    with reopened(path, CONFIG) as (_, log):
        kept = {record.offset for record in records_in(log)} | {*offsets_set_aside(path)}
    assert kept >= whole


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("left", ["nothing", "a batch", "a batch and a half"])
def test_a_finished_segment_that_became_shorter_is_named_and_skipped(
    path: Path, stop: str, left: str
) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        log.flush()
        log_dir.checkpoint()
        if stop == "clean":
            log_dir.close()
    file = logs(path)[1]
    content = file.read_bytes()
    (_, first), (position, second), *_, (_, last) = iter_headers(content)
    kept = {"nothing": 0, "a batch": position, "a batch and a half": position + 80}[left]
    file.write_bytes(content[:kept])
    gone = range(first.base_offset if left == "nothing" else second.base_offset, last.next_offset)
    with reopened(path, CONFIG) as (log_dir, log):
        (warning,) = log_dir.recoveries[0].warnings
        assert f"has {kept} bytes, and had {len(content)} when it was finished" in warning
        assert f"records before offset {last.next_offset} are lost" in warning
        assert [one for one in truth() if one.offset not in gone] == times_in(log)
        assert append(log, NOW).base_offset == 2 * COUNT
        log_dir.close()
    with reopened(path, CONFIG) as (log_dir, _):
        assert log_dir.recoveries == [], "it is said once"


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("ours", [True, False])
def test_zeros_behind_a_finished_segment_are_not_served(path: Path, stop: str, ours: bool) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        log.flush()
        log_dir.checkpoint()
        if stop == "clean":
            log_dir.close()
    file = logs(path)[1]
    content = file.read_bytes()
    file.write_bytes(content + bytes(5000))
    with reopened(path, CONFIG, ours=ours) as (log_dir, log):
        assert f"the zeros from byte {len(content)}" in log_dir.recoveries[0].notes[0]
        assert times_in(log) == truth()
        assert file.read_bytes() == content + bytes(0 if ours else 5000)


def test_a_zero_that_ends_a_record_is_not_taken_for_one_behind_the_log(path: Path) -> None:
    """A byte that was inserted before has moved it there."""
    file = logs(path)[0]
    file.write_bytes(b"\0" + file.read_bytes())
    assert file.read_bytes()[-1] == 0
    whole = in_whole_batches(path)
    with reopened(path, CONFIG) as (_, log):
        assert {one.offset for one in records_in(log)} | {*offsets_set_aside(path)} >= whole


def test_eight_gigabytes_of_zeros_that_take_no_space_are_cut_off_at_once(path: Path) -> None:
    last = logs(path)[-1]
    with last.open("r+b") as file:
        file.truncate(8 << 30)
    with reopened(path, CONFIG) as (_, log):
        expect(log, truth())


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("at", [(1 << 31) // 24 * 24 - 12, 1 << 40])
def test_an_index_of_a_terabyte_is_read_as_far_as_its_log_has_batches(
    disk_path: Path, at: int, suffix: str, stop: str
) -> None:
    """In the first 2 GiB, which Kafka's may have, the last entry of either kind is the one here."""

    class Counting(Files):
        read_bytes = 0

        def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
            data = super().read_at(file, size, position)
            self.read_bytes += len(data)
            return data

    with new_log(disk_path, CONFIG) as log:
        for number in range(COUNT):
            append(log, NOW + number * 7 % 20, NOW + number)
    if stop == "clean":
        with reopened(disk_path, CONFIG) as (log_dir, _):
            log_dir.close()
    for index in partition_dir(disk_path).glob(f"*{suffix}"):
        with index.open("r+b") as file:
            file.truncate(5 << 40)
            file.seek(at)
            file.write(b"\1" * 12)
    files = Counting()
    with reopened(disk_path, CONFIG, files=files) as (_, log):
        expect(log, truth())
    assert files.read_bytes < 16 << 20


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "append-time-checkpoint"])
def test_a_checkpoint_that_is_too_long_is_taken_for_damaged(path: Path, name: str) -> None:
    os.truncate(partition_dir(path) / name, 1 << 40)
    with reopened(path, CONFIG) as (_, log):
        expect(log, truth())


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("what", ["directory", "fifo", "link"])
def test_something_else_in_the_place_of_a_file_that_is_rebuilt_is_set_aside(
    path: Path, what: str, stop: str, ours: bool
) -> None:
    if stop == "clean":
        with reopened(path, CONFIG) as (log_dir, _):
            log_dir.close()
    suffixes = (".index", ".timeindex", ".companion", ".appending.deleted")
    names = [f"{0:020d}{suffix}" for suffix in (*suffixes, ".batches")]
    names += ["leader-epoch-checkpoint", "append-time-checkpoint", "append-time-checkpoint.tmp"]
    names += [file.name for file in partition_dir(path).glob("*.snapshot")]
    for name in names:
        file = partition_dir(path) / name
        file.unlink(missing_ok=True)
        if what == "link":
            file.symlink_to(path.with_name("elsewhere"))
        else:
            os.mkfifo(file) if what == "fifo" else file.mkdir()
    with reopened(path, CONFIG, ours=ours) as (log_dir, log):
        warnings = log_dir.recoveries[0].warnings
        for name in names:
            assert any(f"{name}.1.set-aside is not a regular file" in each for each in warnings)
        expect(log, truth())
        assert log_dir.close() == []
    assert not path.with_name("elsewhere").exists()


def test_a_cut_log_ends_where_its_records_end(path: Path) -> None:
    first, second, third, *_ = logs(path)
    end = int(second.stem)
    second.write_bytes(b"")
    flip(third, 70)
    with reopened(path, CONFIG) as (log_dir, log):
        assert log.log_end_offset == end
        assert logs(path) == [first, second]
        assert set(range(int(third.stem) + 2, 2 * COUNT)) <= {*offsets_set_aside(path)}
        assert log.leader_epoch == 1, "offsets are given out again"
        assert append(log, NOW).base_offset == end
        log_dir.close()
    with reopened(path, CONFIG) as (log_dir, log):
        assert log_dir.recoveries == []
        assert [one.offset for one in times_in(log)] == [*range(end + 1)]


def test_a_read_goes_on_behind_a_gap_that_reaches_to_the_log_end(path: Path) -> None:
    """What compaction, or an emptied file, leaves before a segment that is still empty."""
    _, second, *later, last = logs(path)
    for file in [second, *later, last]:
        file.write_bytes(b"")
    end = int(last.stem)
    with reopened(path, CONFIG) as (_, log):
        assert log.log_end_offset == end
        for offset in range(int(second.stem), end):
            (header,) = [header for _, header in iter_headers(log.read(offset, 1 << 20).read())]
            assert (header.base_offset, header.next_offset) == (offset, end)
            assert header.records_count == 0
            assert log.read(offset, 60, min_one_batch=False).read() == b""
            up_to = log.read(offset, 1 << 20, up_to=offset + 1).read()
            assert parse_header(up_to).next_offset == offset + 1
        assert log.read(end, 1 << 20).read() == b""
        assert append(log, NOW).base_offset == end
        assert records_in(log)[-1].offset == end


def test_a_batch_twice_is_damage(path: Path) -> None:
    last = logs(path)[-1]
    data = last.read_bytes()
    *_, (position, header) = iter_headers(data)
    last.write_bytes(data + data[position : position + header.size])
    with reopened(path, CONFIG) as (log_dir, log):
        assert "before" in log_dir.recoveries[0].warnings[0]
        expect(log, truth())


@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")])
@pytest.mark.parametrize("content", [None, b"", b"  ", bytes(120), b"\xff" * 120])
def test_indexes_are_rebuilt_whatever_a_kill_left_of_them(
    path: Path, suffixes: tuple[str, ...], content: bytes | None
) -> None:
    for suffix in suffixes:
        for index in partition_dir(path).glob(f"*{suffix}"):
            index.unlink()
            if content is not None:
                index.write_bytes(content)
    with reopened(path, CONFIG) as (_, log):
        expect(log, truth())
        assert log.segments[0].indexes.offsets.last.offset > 0


class FullDisk(Files):
    """Takes no byte while it is full."""

    is_full = True

    def os_pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().os_pwritev(fd, parts, position)


@pytest.mark.parametrize("indexes", ["as they were", "gone", "others"])
def test_a_log_is_served_from_a_full_disk_after_a_kill(path: Path, indexes: str) -> None:
    for file in [*partition_dir(path).glob("*index"), *partition_dir(path).glob("*.companion")]:
        if indexes == "gone":
            file.unlink()
        elif indexes == "others" and file.suffix != ".companion":
            file.write_bytes(b"\x00\x00\x00\x01" * 12)
    files = FullDisk()
    with reopened(path, CONFIG, files=files) as (log_dir, log):
        assert times_in(log) == truth()
        for moment in moments(truth()):
            found = log.find_by_timestamp(moment)
            expected = first_at_or_after(truth(), moment)
            assert (found and Truth(found.offset, found.timestamp)) == expected
        for _ in range(2):
            with pytest.raises(StorageFailed, match="No space left"):
                append(log, NOW + 99)
        files.is_full = False
        expect(log, truth())
        assert log_dir.close() == []
    with reopened(path, CONFIG) as (log_dir, log):
        assert log_dir.was_clean
        assert times_in(log)[:-1] == truth()


def test_rebuilt_indexes_are_those_of_a_clean_log(path: Path) -> None:
    def files() -> dict[str, bytes]:
        return {
            file.name: file.read_bytes()
            for file in partition_dir(path).iterdir()
            if file.suffix in (".index", ".timeindex")
        }

    with reopened(path, CONFIG) as (log_dir, _):
        log_dir.close()
    clean = files()
    for file in partition_dir(path).iterdir():
        if file.suffix in (".index", ".timeindex", ".companion"):
            file.unlink()
    with reopened(path, CONFIG) as (log_dir, _):
        assert log_dir.was_clean
        log_dir.close()
    assert files() == clean


@pytest.mark.parametrize("then", ["roll", "append", "close"])
def test_lost_indexes_of_an_empty_segment_are_rebuilt(path: Path, then: str) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        log.roll(NOW)
        log_dir.close()
    for file in partition_dir(path).glob("*.*index"):
        file.unlink()
    for file in partition_dir(path).glob("*.index"):
        file.unlink()
    with reopened(path, CONFIG) as (log_dir, log):
        if then == "roll":
            log.roll(NOW)
        elif then == "append":
            append(log, NOW)
        assert log_dir.close() == []
    with reopened(path, CONFIG) as (_, log):
        assert times_in(log)[: 2 * COUNT] == truth()


def test_a_clean_mark_does_not_hide_a_torn_tail(path: Path) -> None:
    """A directory that was copied while it was written, mark and all."""
    (path / ".kafka_cleanshutdown").write_text("")
    last = logs(path)[-1]
    last.write_bytes(last.read_bytes()[:-10])
    with reopened(path, CONFIG) as (log_dir, log):
        assert log_dir.was_clean
        assert "marked clean, but is damaged" in log_dir.recoveries[0].notes[0]
        expect(log, truth()[:-2])


@pytest.mark.parametrize("start", [900, 1 << 62])
@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("has_ids", [True, False])
def test_a_log_start_beyond_the_end_that_we_did_not_write_is_ignored(
    path: Path, start: int, stop: str, ours: bool, has_ids: bool
) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        log.delete_records(20)
        log_dir.checkpoint()
        if stop == "clean":
            log_dir.close()
    (path / "log-start-offset-checkpoint").write_text(f"0\n1\nevents 3 {start}\n")
    if not has_ids:
        (path / "horolog-checkpoint-ids").unlink()
    before = [file.read_bytes() for file in logs(path)]
    with reopened(path, CONFIG, ours=ours) as (log_dir, log):
        (warning,) = log_dir.recoveries[0].warnings
        assert f"events-3 starts at offset {start}, and its log ends at {2 * COUNT}" in warning
        assert log.log_start_offset == (20 if ours and has_ids else 0)
        assert times_in(log)[-30:] == truth()[20:]
        assert append(log, NOW).base_offset == 2 * COUNT
        assert [file.read_bytes() for file in logs(path)][: len(before) - 1] == before[:-1]
        log_dir.checkpoint()
    if ours:
        with reopened(path, CONFIG) as (log_dir, _):
            assert log_dir.recoveries[0].warnings == [], "the line was corrected"


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_an_older_state_of_a_log_is_set_aside_and_no_offset_given_out_twice(
    path: Path, stop: str
) -> None:
    snapshot_of(path, path.with_name("backup"))
    with reopened(path, CONFIG) as (log_dir, log):
        for _ in range(10):
            append(log, NOW)
        log.delete_records(2 * COUNT + 5)
        log_dir.checkpoint()
        if stop == "clean":
            log_dir.close()
    shutil.rmtree(partition_dir(path))
    shutil.copytree(partition_dir(path.with_name("backup")), partition_dir(path))
    older = [file.read_bytes() for file in logs(path) if file.stat().st_size]
    for _ in range(2):
        with reopened(path, CONFIG) as (log_dir, log):
            if _ == 0:
                assert any("older state" in each for each in log_dir.recoveries[0].warnings)
                assert (log.log_start_offset, log.log_end_offset) == (55, 55)
                assert log.leader_epoch == 1
                appended = append(log, NOW, base_sequence=7, producer_id=9, producer_epoch=0)
                assert (appended.base_offset, appended.log_start_offset) == (55, 55)
                assert not appended.duplicate
            assert [record.offset for record in records_in(log)] == [55]
    assert [file.read_bytes() for file in sorted(partition_dir(path).glob("*.log.0.cut"))] == older


def test_a_log_that_ends_before_its_recovery_point_leads_in_a_new_epoch(path: Path) -> None:
    snapshot_of(path, path.with_name("backup"))
    with reopened(path, CONFIG) as (log_dir, log):
        append(log, NOW)
        log_dir.close()
    shutil.rmtree(partition_dir(path))
    shutil.copytree(partition_dir(path.with_name("backup")), partition_dir(path))
    with reopened(path, CONFIG) as (log_dir, log):
        assert log_dir.was_clean
        (warning,) = log_dir.recoveries[0].warnings
        assert "offsets 50 to 50 are given out again, in a new leader epoch" in warning
        assert log.leader_epoch == 1
        expect(log, truth())


def test_the_log_start_survives(path: Path) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        log.delete_records(20)
        log_dir.checkpoint()
    with reopened(path, CONFIG) as (_, log):
        assert log.log_start_offset == 20
        assert records_in(log)[0].offset == 20


def test_an_unreadable_checkpoint_is_an_empty_one(path: Path) -> None:
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (path / name).write_text("1\nnonsense")
    with reopened(path, CONFIG) as (log_dir, log):
        assert log_dir.recoveries[0].checked_bytes == log.size
        expect(log, truth())


def test_a_directory_without_any_segment_is_an_empty_log(path: Path) -> None:
    for file in partition_dir(path).iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    with reopened(path, CONFIG) as (_, log):
        assert log.log_end_offset == 0
        assert append(log, NOW).base_offset == 0


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize(("preallocate", "rolls_on"), some_pairs([True, False], [True, False]))
def test_records_behind_a_roll_that_the_disk_refused_are_read(
    tmp_path: Path, stop: str, preallocate: bool, rolls_on: bool
) -> None:
    """Each step of the roll fails in turn, and the files of the new segment may stay."""
    config = TopicConfig(index_interval_bytes=0, segment_bytes=1000, preallocate=preallocate)

    class Clinging(FaultyFiles):
        """Removes nothing while it fails."""

        def os_unlink(self, path: str) -> None:
            if self.at is not None and path.endswith(".log"):
                raise OSError(5, "Input/output error")
            super().os_unlink(path)

    step, faults = 0, 1
    while faults:
        path = tmp_path / str(step)
        files = Clinging(None)
        log_dir = open_dir(path, config, files=files)
        log = log_dir.create("events", 3, TOPIC_ID, config, NOW)
        for _ in range(3):
            append(log, NOW)
        files.fail_after(step, OSError(28, "No space left on device"))
        with suppress(StorageFailed):
            log.roll(NOW)
        files.heal()
        faults = len(files.faults)
        for _ in range(12 if rolls_on else 2):
            append(log, NOW)
        count = log.log_end_offset
        log_dir.close(clean=stop == "clean")
        with reopened(path, config) as (log_dir, log):
            assert log.log_end_offset == count, step
            assert [record.offset for record in records_in(log)] == list(range(count)), step
            for offset in range(count):
                assert records_in(log, offset)[0].offset == offset
            assert all(not recovery.warnings for recovery in log_dir.recoveries)
            assert append(log, NOW).base_offset == count
        step += 1
    assert step > 6


def test_an_empty_last_segment_keeps_the_offsets_before_it_from_being_given_out_again(
    path: Path,
) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        log.roll(NOW)
        log_dir.close()
    *_, last, empty = logs(path)
    assert empty.stat().st_size == 0
    data = last.read_bytes()
    *_, (position, _) = iter_headers(data)
    last.write_bytes(data[:position])
    with reopened(path, CONFIG) as (_, log):
        assert log.log_end_offset == 2 * COUNT


# Epochs.


def test_a_start_after_a_kill_leads_in_a_new_epoch(path: Path) -> None:
    with reopened(path, CONFIG) as (_, log):
        assert log.leader_epoch == 1
        append(log, NOW)
        assert log.epochs.entries == (EpochStart(0, 0), EpochStart(1, 2 * COUNT))


def test_the_epoch_goes_on_after_a_clean_stop(path: Path) -> None:
    for _ in range(2):
        with reopened(path, CONFIG) as (log_dir, log):
            assert log.leader_epoch == 1, "that of the start after the kill"
            append(log, NOW)
            log_dir.close()
    with reopened(path, CONFIG) as (_, log):
        assert log.epochs.entries == (EpochStart(0, 0), EpochStart(1, 2 * COUNT))


def test_an_epoch_that_clients_have_seen_is_kept_though_nothing_was_written_in_it(
    path: Path,
) -> None:
    for _ in range(2):
        with reopened(path, CONFIG) as (log_dir, log):
            assert log.leader_epoch == 1
            log_dir.close()
    with reopened(path, CONFIG) as (_, log):
        assert log.leader_epoch == 1
        append(log, NOW)
        assert log.epochs.entries == (EpochStart(0, 0), EpochStart(1, 2 * COUNT))
    with reopened(path, CONFIG) as (_, log):
        assert log.leader_epoch == 2, "it was killed"


def test_a_clean_mark_over_a_torn_log_does_not_keep_the_epoch(path: Path) -> None:
    (path / ".kafka_cleanshutdown").write_text("")
    last = logs(path)[-1]
    last.write_bytes(last.read_bytes()[:-10])
    with reopened(path, CONFIG) as (_, log):
        assert log.leader_epoch == 1


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_an_adopted_log_stays_in_the_epoch_of_its_kafka(path: Path, stop: str) -> None:
    """A larger one than its controller knows would keep Java clients from finding a leader."""
    with reopened(path, CONFIG) as (_, log):
        log.leader_epoch = 6
        append(log, NOW)
    for count in range(3):
        with reopened(path, CONFIG, ours=False) as (log_dir, log):
            assert log.leader_epoch == 6
            append(log, NOW)
            assert log.epochs.latest == 6
            assert log.log_end_offset == 2 * COUNT + 2 + count
            if stop == "clean":
                log_dir.close()


@pytest.mark.parametrize("content", [None, "nonsense", "0\n1\n9 0\n9 5\n"])
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_lost_epochs_are_taken_from_the_log(path: Path, content: str | None, stop: str) -> None:
    with reopened(path, CONFIG) as (log_dir, log):
        log.leader_epoch = 6
        append(log, NOW)
        if stop == "clean":
            log_dir.close()
    file = partition_dir(path) / "leader-epoch-checkpoint"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with reopened(path, CONFIG) as (_, log):
        assert log.leader_epoch == (6 if stop == "clean" else 7)
        assert log.epochs.entries[-1] == EpochStart(6, 2 * COUNT)


# Adoption.


def files_of(path: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in partition_dir(path).iterdir()
        if file.suffix not in (".companion", ".snapshot") and ".index" not in file.name
    }


def as_backup(path: Path) -> None:
    """Only what may have been copied by hand."""
    for file in [*path.glob("*checkpoint*"), *partition_dir(path).glob("*.companion")]:
        file.unlink()


def test_an_adopted_log_is_exempt_and_its_middle_is_not_judged(path: Path) -> None:
    as_backup(path)
    second = logs(path)[1]
    data = bytearray(second.read_bytes())
    data[70] ^= 1
    second.write_bytes(data)
    with reopened(path, CONFIG, ours=False) as (log_dir, log):
        assert log_dir.adopted == [TopicPartition("events", 3)]
        assert log.retention_exempt
        assert log_dir.recoveries[0].notes == []
        assert log.log_end_offset == 2 * COUNT
        assert log.apply_retention(NOW * 2, NOW * 2) == []


def test_what_is_cut_off_an_adopted_log_is_set_aside(path: Path) -> None:
    as_backup(path)
    last = logs(path)[-1]
    data = last.read_bytes()
    torn = data[:-10]
    last.write_bytes(torn)
    *_, (position, _) = iter_headers(data)
    with reopened(path, CONFIG, ours=False) as (_, log):
        assert log.log_end_offset == 2 * COUNT - 2
        assert last.read_bytes()[:position] == torn[:position]
        aside = last.with_name(f"{last.name}.{position}.cut")
        assert aside.read_bytes() == torn[position:]


def test_segments_dropped_from_an_adopted_log_are_set_aside(path: Path) -> None:
    (path / "recovery-point-offset-checkpoint").write_text("0\n1\nevents 3 0\n")
    first, *later = logs(path)
    kept = [file.read_bytes() for file in later]
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)
    with reopened(path, CONFIG, ours=False) as (_, log):
        assert log.log_end_offset == 0
        aside = [file.with_name(f"{file.name}.0.cut") for file in later]
        assert [file.read_bytes() for file in aside] == kept


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("front", [b"", batch(NOW)])
def test_a_log_of_old_formats_is_cut_where_it_is_torn(
    path: Path, magic: int, codec: Codec, front: bytes
) -> None:
    rows = [LogRecord(NOW + number, b"k", b"v") for number in range(3)]
    first = build_messages(rows, magic, base_offset=1, codec=codec)
    second = build_messages(rows, magic, base_offset=4, codec=codec)
    for file in partition_dir(path).iterdir():
        file.unlink()
    log_path = partition_dir(path) / "00000000000000000000.log"
    log_path.write_bytes(front + first + second[:-1])
    with reopened(path, CONFIG) as (log_dir, log):
        whole = 4 if codec else 6  # plain ones are batches of their own
        assert log.log_end_offset == whole
        kept = log_path.read_bytes()
        assert (front + first + second).startswith(kept)
        found = log.find_by_timestamp(NOW + 1)
        assert (found is None) == (magic == 0)
        assert found is None or (found.timestamp, found.offset) == (NOW + 1, 2)
        append(log, NOW + 50)
        assert log.log_end_offset == whole + 1
    with reopened(path, CONFIG) as (log_dir, log):
        assert not log_dir.recoveries[0].has_findings
        assert log.log_end_offset == whole + 1
    assert log_path.read_bytes()[: len(kept)] == kept


@pytest.mark.parametrize("magic", [0, 1])
def test_damage_within_old_messages_cuts_there_and_sets_the_rest_aside(
    path: Path, magic: int
) -> None:
    rows = [LogRecord(NOW + number, b"k", b"value") for number in range(3)]
    message = [build_messages([row], magic, base_offset=at) for at, row in enumerate(rows)]
    for file in partition_dir(path).iterdir():
        file.unlink()
    log_path = partition_dir(path) / "00000000000000000000.log"
    bad = bytearray(message[1])
    bad[-1] ^= 1
    log_path.write_bytes(message[0] + bytes(bad) + message[2])
    with reopened(path, CONFIG) as (_, log):
        assert log.log_end_offset == 1
    assert log_path.read_bytes() == message[0]
    (cut,) = partition_dir(path).glob("*.cut")
    assert cut.read_bytes() == bytes(bad) + message[2]


def test_a_wrong_header_with_a_right_checksum_is_trusted_as_kafka_does(
    path: Path,
) -> None:
    last = logs(path)[-1]
    data = last.read_bytes()
    header = parse_header(data)._replace(max_timestamp=NOW + 500)
    body = data[HEADER_SIZE : header.size]
    last.write_bytes(with_records(header, body) + data[header.size :])
    with reopened(path, CONFIG) as (_, log):
        largest = log.segments[-1].largest()
        assert largest is not None
        assert largest.timestamp == NOW + 500
        assert log.find_by_timestamp(NOW + 400) is None


@pytest.mark.parametrize("interval", [0, 4096])
def test_a_preallocated_log_is_cut_to_its_batches_after_a_kill(
    tmp_path: Path, interval: int
) -> None:
    config = replace(CONFIG, preallocate=True, index_interval_bytes=interval)
    with new_log(tmp_path, config) as log:
        for number in range(5):
            append(log, NOW + number)
        size = log.size
    assert logs(tmp_path)[0].stat().st_size == 1000
    with reopened(tmp_path, config) as (_, log):
        assert log.size == size == logs(tmp_path)[0].stat().st_size
        assert log.log_end_offset == 5


# Epochs of logs without records.


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_the_leader_epoch_of_an_emptied_log_never_goes_back(path: Path, stop: str) -> None:
    epochs = []
    with reopened(path, CONFIG) as (log_dir, log):
        append(log, NOW)
        log.config = replace(CONFIG, retention_ms=1)
        log.apply_retention(NOW + DAY, 0)
        log_dir.checkpoint()
        assert log.log_start_offset == log.log_end_offset
        assert log.size == 0
        epochs.append(log.leader_epoch)
    for _ in range(4):
        with reopened(path, CONFIG) as (log_dir, log):
            epochs.append(log.leader_epoch)
            assert log.earliest.epoch == log.leader_epoch
            if stop == "clean":
                log_dir.close()
    assert epochs == sorted(epochs)
    assert epochs[1] > epochs[0]


def test_the_epoch_after_a_cut_is_not_given_out_again(path: Path) -> None:
    """Clients were told of it, and read records in the one that was cut off."""
    with reopened(path, CONFIG) as (_, log):
        append(log, NOW)
        cut = log.epochs.entries[-1]
    last = logs(path)[-1]
    last.write_bytes(last.read_bytes()[:-10])
    told = []
    for _ in range(3):
        with reopened(path, CONFIG) as (_, log):
            told.append(log.leader_epoch)
    assert told == sorted(told)
    assert told[0] > cut.epoch


EPOCHS = (0, 0, 1, 1, 1, 1, 3, 3, 3, 3, 3, 4, 6, 6, 6, 6)
STARTS = (
    EpochStart(0, 0),
    EpochStart(1, 2),
    EpochStart(3, 6),
    EpochStart(4, 11),
    EpochStart(6, 12),
)


@pytest.fixture
def led(tmp_path: Path) -> Path:
    """Closed cleanly; a record of each epoch of `EPOCHS`, in several segments."""
    log_dir = open_dir(tmp_path / "log", CONFIG)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    for epoch in EPOCHS:
        log.leader_epoch = epoch
        append(log, NOW, value=b"v" * 200)
    assert len(log.segments) > 3
    assert log.epochs.entries == STARTS
    log_dir.close()
    return tmp_path / "log"


WRONG_EPOCHS = {
    "missing": None,
    "empty": b"",
    "zeros": bytes(30),
    "cut": b"0\n5\n0 0\n1",
    "no line": b"0\n0\n",
    "of the last segment alone": b"0\n1\n6 12\n",
    "without the last": b"0\n4\n0 0\n1 2\n3 6\n4 11\n",
    "without the first": b"0\n4\n1 2\n3 6\n4 11\n6 12\n",
    "without one of a single batch": b"0\n4\n0 0\n1 2\n3 6\n6 12\n",
    "without one between": b"0\n4\n0 0\n3 6\n4 11\n6 12\n",
    "another number": b"0\n5\n0 0\n2 2\n3 6\n4 11\n6 12\n",
    "too early": b"0\n5\n0 0\n1 2\n3 5\n4 11\n6 12\n",
    "too late": b"0\n5\n0 0\n1 2\n3 9\n4 11\n6 12\n",
    "one too many": b"0\n6\n0 0\n1 2\n3 6\n4 11\n6 12\n9 14\n",
    "later than all batches": b"0\n1\n6 16\n",
}


@pytest.mark.parametrize("stop", ["clean", "killed", "adopted"])
@pytest.mark.parametrize("damage", WRONG_EPOCHS)
def test_leader_epochs_that_batches_contradict_are_taken_from_all_batches(
    led: Path, damage: str, stop: str
) -> None:
    file, content = partition_dir(led) / "leader-epoch-checkpoint", WRONG_EPOCHS[damage]
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    if stop == "killed":
        (led / ".kafka_cleanshutdown").unlink()
    with reopened(led, CONFIG, ours=stop != "adopted") as (log_dir, log):
        assert log.epochs.entries == STARTS
        assert any("eader epochs are taken from" in note for note in log_dir.recoveries[0].notes)
        assert log.end_of_epoch(1) == EpochStart(1, 6)
    assert read_epochs(Files(), str(file)) == list(STARTS)


def test_leader_epochs_that_batches_confirm_stay_as_they_are(led: Path) -> None:
    file = partition_dir(led) / "leader-epoch-checkpoint"
    before = file.stat()
    with reopened(led, CONFIG) as (log_dir, log):
        assert log.epochs.entries == STARTS
        assert not log_dir.recoveries
        log.delete_records(7)  # in the middle of an epoch and of a segment
        log_dir.close()
    assert file.stat().st_ino != before.st_ino
    with reopened(led, CONFIG) as (log_dir, log):
        assert log.epochs.entries == (EpochStart(3, 7), *STARTS[3:])
        assert not log_dir.recoveries


def test_an_epoch_without_records_stays_at_the_end_of_a_log_whose_epochs_were_wrong(
    led: Path,
) -> None:
    file = partition_dir(led) / "leader-epoch-checkpoint"
    file.write_text("0\n2\n6 12\n8 16\n")
    with reopened(led, CONFIG) as (_, log):
        assert log.leader_epoch == 8
        append(log, NOW)
        assert log.epochs.entries == (*STARTS, EpochStart(8, 16))


def test_a_header_with_a_damaged_epoch_does_not_replace_those_of_the_file(led: Path) -> None:
    file = next(each for each in reversed(logs(led)) if int(each.stem) <= 6)
    content = bytearray(file.read_bytes())
    at = next(place for place, header in iter_headers(content) if header.base_offset == 6)
    content[at + 12 : at + 16] = (1 << 20).to_bytes(4, "big")  # no checksum covers it
    file.write_bytes(content)
    with reopened(led, CONFIG) as (log_dir, log):
        assert log.epochs.entries == STARTS
        (warning,) = log_dir.recoveries[0].warnings
        assert "offset 6 has epoch 3 there, and epoch 1048576 in its batch" in warning
        assert "go back at offset 7" in warning


@pytest.mark.parametrize("base_offset", [-5, 1 << 32, 1 << 40, (1 << 63) - 4])
def test_damage_that_is_found_by_an_append_is_no_fault_of_its_batch(
    tmp_path: Path, base_offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    log_dir = open_dir(tmp_path, CONFIG)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    for _ in range(3):
        append(log, NOW)
    log_dir.close()
    with logs(tmp_path)[-1].open("r+b") as file:
        file.write(base_offset.to_bytes(8, "big", signed=True))  # no checksum covers it
    log_dir = open_dir(tmp_path, CONFIG)
    log = log_dir.logs[TopicPartition("events", 3)]
    other = log_dir.create("others", 0, TOPIC_ID, CONFIG, NOW)
    for _ in range(2):
        with pytest.raises(StorageFailed, match="horolog log verify"):
            append(log, NOW)
    assert sum("Nothing is appended to" in record.message for record in caplog.records) == 1
    assert append(other, NOW).base_offset == 0
    log_dir.close()
    with reopened(tmp_path, CONFIG) as (log_dir, log):
        assert any("set aside" in warning for warning in log_dir.recoveries[0].warnings)
        append(log, NOW)
