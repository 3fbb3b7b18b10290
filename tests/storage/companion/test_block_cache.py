"""Block maps in the user's cache: found again, and not kept for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from overrides import override

from horolog.storage import LONGEST_UNUSED_S, BlockCache
from horolog.storage import block_cache as module

DAY_S = 86_400


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """Three segments that are there."""
    partition = tmp_path / "t-0"
    partition.mkdir()
    paths = [partition / f"{number:020d}.log" for number in range(3)]
    for path in paths:
        path.write_bytes(b"")
    return paths


def maps(directory: Path) -> int:
    return len(list(directory.glob("*.blocks")))


def age(directory: Path, seconds: float) -> None:
    """Make all files of the cache look as if they were last used so long ago."""
    for path in directory.iterdir():
        used = path.stat().st_mtime - seconds
        os.utime(path, (used, used))


def write(directory: Path, path: Path, content: bytes = b"map") -> None:
    """As another process does, so that the directory is pruned."""
    BlockCache(directory).write(str(path), content)


def test_a_map_is_found_by_the_path_of_its_log_and_its_file_system(
    directory: Path, logs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(directory, logs[0], b"one")
    cache = BlockCache(directory)
    assert cache.read(str(logs[0])) == b"one"
    assert cache.read(str(logs[1])) is None
    assert BlockCache(directory, "s3").read(str(logs[0])) is None
    monkeypatch.chdir(logs[0].parent)
    assert cache.read(logs[0].name) == b"one"


def test_maps_of_segments_that_are_gone_are_removed(directory: Path, logs: list[Path]) -> None:
    for path in logs:
        write(directory, path)
    logs[0].unlink()
    write(directory, logs[2])
    assert maps(directory) == 2
    assert BlockCache(directory).read(str(logs[0])) is None
    assert BlockCache(directory).read(str(logs[1])) == b"map"


def test_maps_of_a_directory_that_is_not_mounted_and_of_object_stores_are_kept(
    directory: Path, tmp_path: Path, logs: list[Path]
) -> None:
    write(directory, tmp_path / "not-mounted" / "t-0" / "0.log")
    BlockCache(directory, "s3").write("bucket/t-0/0.log", b"map")
    write(directory, logs[0])
    assert maps(directory) == 3


def test_what_was_not_used_for_long_is_removed(directory: Path, logs: list[Path]) -> None:
    write(directory, logs[0])
    write(directory, logs[1])
    age(directory, LONGEST_UNUSED_S + DAY_S)
    assert BlockCache(directory).read(str(logs[1])) == b"map", "used once more"
    write(directory, logs[2])
    assert BlockCache(directory).read(str(logs[0])) is None
    assert BlockCache(directory).read(str(logs[1])) == b"map"
    assert maps(directory) == 2


def test_beyond_a_size_what_was_used_least_recently_is_removed(
    directory: Path, logs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.storage.companion", MOST_BYTES=20_000)
    for path in logs[:2]:
        write(directory, path, bytes(9_000))
        age(directory, DAY_S)
    BlockCache(directory).read(str(logs[0]))
    write(directory, logs[2], bytes(9_000))
    assert BlockCache(directory).read(str(logs[1])) is None
    assert BlockCache(directory).read(str(logs[0])) is not None
    assert BlockCache(directory).read(str(logs[2])) is not None


def test_one_process_that_writes_much_prunes_as_it_goes(
    directory: Path, logs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.storage.companion", MOST_BYTES=40_000)
    override(monkeypatch, "horolog.storage", PRUNED_AFTER=20_000)
    cache = BlockCache(directory)
    for number in range(40):
        log = logs[0].with_name(f"{number + 10:020d}.log")
        log.write_bytes(b"")
        cache.write(str(log), bytes(5_000))
    assert 4 <= maps(directory) <= 12


def test_files_of_killed_writers_are_removed_and_unrecognised_files_are_kept(
    directory: Path, logs: list[Path]
) -> None:
    write(directory, logs[0])
    (own,) = directory.iterdir()
    for name in (f"{own.name}.17.3", f"{own.name}.17.3.tmp", f"{own.name}.17"):
        (directory / name).write_bytes(b"part")
    (directory / "notes.txt").write_bytes(b"mine")
    (directory / f"{'0' * 40}.blocks.d").mkdir()
    (directory / f"{'1' * 40}.blocks").symlink_to(logs[0])
    age(directory, DAY_S)
    (directory / f"{own.name}.18.4").write_bytes(b"being written")
    write(directory, logs[1])
    assert {path.name for path in directory.iterdir()} == {
        own.name,
        f"{own.name}.18.4",
        "notes.txt",
        f"{'0' * 40}.blocks.d",
        f"{'1' * 40}.blocks",
        *(path.name for path in directory.glob("*.blocks")),
    }
    assert logs[0].exists()


@pytest.mark.parametrize("content", [b"", b"hbc1", b"hbm2" + bytes(400), b"hbc1\xff\xff\xff\xff"])
def test_a_file_of_another_version_is_no_map_and_is_removed(
    directory: Path, logs: list[Path], content: bytes
) -> None:
    write(directory, logs[0])
    (own,) = directory.iterdir()
    own.write_bytes(content)
    assert BlockCache(directory).read(str(logs[0])) is None
    write(directory, logs[1])
    assert not own.exists()


def test_a_map_that_another_process_prunes_meanwhile_is_no_error(
    directory: Path, logs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(directory, logs[0])
    scandir = os.scandir

    def listed_before(path: str) -> object:
        found = scandir(path)
        for name in os.listdir(directory):
            (directory / name).unlink()
        return found

    monkeypatch.setattr(module.os, "scandir", listed_before)
    write(directory, logs[1])
    monkeypatch.undo()
    assert maps(directory) == 0
