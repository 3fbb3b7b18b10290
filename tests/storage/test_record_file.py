"""One file of batches, appended to and replaced: what was acknowledged outlives a kill."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from faultyfiles import FaultyFiles, ForgetfulFiles, Killed
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import StorageFailed
from horolog.record.batch import parse_header
from horolog.record.builder import Record, build_batch, read_records
from horolog.storage.files import Files
from horolog.storage.record_file import RecordFile

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def batch_of(*values: bytes, base_offset: int = 0) -> bytes:
    return build_batch([Record(1000, None, each) for each in values], base_offset=base_offset)


def values_in(file: RecordFile) -> list[bytes | None]:
    return [record.value for batch in file.read() for record in read_records(batch)]


def offsets_in(file: RecordFile) -> list[int]:
    return [parse_header(batch).base_offset for batch in file.read()]


def file_at(path: Path, files: Files | None = None) -> RecordFile:
    return RecordFile(files or Files(), str(path / "horolog-some.log"))


def test_a_file_that_is_not_there_is_empty_and_made_by_the_first_append(tmp_path: Path) -> None:
    file = file_at(tmp_path)
    assert list(file.read()) == []
    assert (file.size, file.next_offset, list(tmp_path.iterdir())) == (0, 0, [])
    assert file.append(batch_of(b"a", b"b")) == 0
    assert file.append(batch_of(b"c", base_offset=77), sync=False) == 2
    file.sync()
    again = file_at(tmp_path)
    assert values_in(again) == [b"a", b"b", b"c"]
    assert (offsets_in(again), again.next_offset, again.lost) == ([0, 2], 3, ())


def test_a_replaced_file_goes_on_behind_the_offsets_of_the_old_one(tmp_path: Path) -> None:
    file = file_at(tmp_path)
    file.append(batch_of(b"a", b"b"))
    file.replace([batch_of(b"c"), batch_of(b"d", b"e")])
    file.append(batch_of(b"f"))
    assert values_in(file_at(tmp_path)) == [b"c", b"d", b"e", b"f"]
    assert offsets_in(file_at(tmp_path)) == [2, 3, 5]
    file.replace([])
    assert file.append(batch_of(b"g")) == 6


def test_a_torn_tail_is_no_loss_and_cut_off_before_the_next_append(tmp_path: Path) -> None:
    file_at(tmp_path).append(batch_of(b"a"))
    path = tmp_path / "horolog-some.log"
    whole = path.read_bytes()
    for tail in (batch_of(b"b", base_offset=1)[:-1], bytes(5000), b"\0"):
        path.write_bytes(whole + tail)
        file = file_at(tmp_path)
        assert (values_in(file), file.lost) == ([b"a"], ())
        assert path.read_bytes() == whole + tail
        assert file.append(batch_of(b"c")) == 1
        assert values_in(file_at(tmp_path)) == [b"a", b"c"]
        path.write_bytes(whole)


def test_what_is_whole_in_a_damaged_file_counts_and_the_file_is_kept(tmp_path: Path) -> None:
    file = file_at(tmp_path)
    for value in (b"a", b"b", b"c", b"d"):
        file.append(batch_of(value))
    path = tmp_path / "horolog-some.log"
    damaged = bytearray(path.read_bytes())
    size = len(damaged) // 4
    damaged[size + 65] ^= 1  # in the records of b
    damaged[2 * size] ^= 0x40  # in the base offset of c
    path.write_bytes(damaged)
    file = file_at(tmp_path)
    assert values_in(file) == [b"a", b"c", b"d"]
    assert [each.start for each in file.lost] == [size, 2 * size]
    assert str(path) in str(file.lost[0])
    assert path.read_bytes() == damaged
    file.append(batch_of(b"e"))
    assert (tmp_path / "horolog-some.log.1.set-aside").read_bytes() == damaged
    again = file_at(tmp_path)
    assert (values_in(again), again.lost) == ([b"a", b"c", b"d", b"e"], ())
    assert offsets_in(again) == [0, 1, 3, 4]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "horolog-some.log").symlink_to("/etc/passwd")
    with pytest.raises(StorageFailed, match="symbolic link"):
        list(file_at(tmp_path).read())
    with pytest.raises(StorageFailed, match="symbolic link"):
        file_at(tmp_path).append(batch_of(b"a"))


def test_an_append_that_the_disk_refuses_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(None)
    file = file_at(tmp_path, files)
    file.append(batch_of(b"a"))
    for step in range(2):  # the write, the sync
        files.fail_after(step, NO_SPACE)
        with pytest.raises(StorageFailed):
            file.append(batch_of(b"refused" * 100))
        files.heal()
        assert values_in(file_at(tmp_path)) == [b"a"]
    file.append(batch_of(b"b"))
    assert values_in(file_at(tmp_path)) == [b"a", b"b"]


def test_what_a_failed_sync_left_in_doubt_is_written_again(tmp_path: Path) -> None:
    files = ForgetfulFiles()
    file = file_at(tmp_path, files)
    file.append(batch_of(b"a"))
    file.append(batch_of(b"b"), sync=False)
    files.fails = True
    with pytest.raises(StorageFailed):
        file.sync()
    files.fails = False
    file.append(batch_of(b"c"))
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "horolog-some.log").write_bytes(files.on_disk(file.path))
    assert values_in(file_at(disk)) == [b"a", b"b", b"c"]


def test_a_kill_at_any_step_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    def live(path: Path, files: Files, tell: Callable[[bytes], None]) -> None:
        file = file_at(path, files)
        file.append(batch_of(b"a"))
        tell(b"a")
        file.append(batch_of(b"b"))
        tell(b"ab")
        file.replace([batch_of(b"AB")])
        tell(b"AB")
        file.append(batch_of(b"c"))
        tell(b"ABc")
        size = (path / "horolog-some.log").stat().st_size
        with (path / "horolog-some.log").open("r+b") as damaged:  # behind its back
            damaged.seek(65)
            damaged.write(b"~")
            damaged.seek(size)
        file = file_at(path, files)
        tell(b"c")
        file.append(batch_of(b"d"))
        tell(b"cd")

    counting = FaultyFiles(None)
    (tmp_path / "whole").mkdir()
    live(tmp_path / "whole", counting, lambda _: None)
    assert counting.count > 15
    for step in range(counting.count):
        path = tmp_path / str(step)
        path.mkdir()
        told = [b""]
        with pytest.raises(Killed):
            live(path, FaultyFiles(step, Killed()), told.append)
        file = file_at(path)
        found = b"".join(value or b"" for value in values_in(file))
        following = {b"": b"a", b"a": b"ab", b"ab": b"AB", b"AB": b"ABc", b"c": b"cd"}
        assert found in (told[-1], following[told[-1]]), step
        file.append(batch_of(b"z"))
        assert values_in(file_at(path))[-1] == b"z"


@given(st.data())
def test_any_damage_is_read_within_bounds_and_appended_behind(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "horolog-some.log"
    for each in tmp_path.iterdir():
        each.unlink()
    file = file_at(tmp_path)
    for value in data.draw(st.lists(st.binary(max_size=40), min_size=1, max_size=5)):
        file.append(batch_of(value))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    file = file_at(tmp_path)
    before = values_in(file)
    file.append(batch_of(b"last"))
    again = file_at(tmp_path)
    assert values_in(again) == [*before, b"last"]
    assert again.lost == ()
    offsets = offsets_in(again)
    assert offsets == sorted(set(offsets))
