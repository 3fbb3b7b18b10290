from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from damage import NO_FILES
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S

from horolog.errors import StorageFailed
from horolog.storage import FileMissing, Files, OpenFile, WouldBlock


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))


def test_what_is_written_at_a_position_is_read_there(tmp_path: Path) -> None:
    files = Files()
    file = files.create(str(tmp_path / "a"))
    files.write_at(file, (b"abc", memoryview(b"defg")), 5)
    assert files.read_at(file, 100, 0) == b"\0\0\0\0\0abcdefg"
    assert files.read_at(file, 2, 6) == b"bc"


def test_no_more_files_than_allowed_stay_open_and_the_oldest_goes_first(tmp_path: Path) -> None:
    files = Files(max_open=3)
    before = open_descriptors()
    for name in "abcde":
        files.create(str(tmp_path / name))
    assert open_descriptors() == before + 3
    assert [files.is_open(str(tmp_path / name)) for name in "abcde"] == [False] * 2 + [True] * 3
    files.get(str(tmp_path / "c"))
    files.get(str(tmp_path / "a"))
    assert files.is_open(str(tmp_path / "c"))
    assert not files.is_open(str(tmp_path / "d"))
    files.close()
    assert open_descriptors() == before


def test_a_file_that_is_held_stays_open_beyond_its_removal(tmp_path: Path) -> None:
    files = Files(max_open=1)
    before = open_descriptors()
    held = files.create(str(tmp_path / "a"))
    files.write_at(held, [b"still here"], 0)
    files.create(str(tmp_path / "b"))
    files.remove(str(tmp_path / "a"))
    assert files.read_at(held, 100, 0) == b"still here"
    del held
    assert open_descriptors() == before + 1


def test_a_write_that_falls_short_is_continued(tmp_path: Path) -> None:
    class Stingy(Files):
        def os_pwritev(self, fd: int, parts: Sequence[bytes], position: int) -> int:
            return os.pwrite(fd, b"".join(parts)[:3], position)

    files = Stingy()
    file = files.create(str(tmp_path / "a"))
    files.write_at(file, (b"abcd", b"efgh", b"ij"), 2)
    assert files.read_at(file, 100, 2) == b"abcdefghij"


@pytest.mark.parametrize("parts", [1024, 1025, 5000])
def test_a_write_of_more_parts_than_the_system_takes_is_whole(tmp_path: Path, parts: int) -> None:
    files = Files()
    file = files.create(str(tmp_path / "a"))
    files.write_at(file, [b"%05d" % number for number in range(parts)], 3)
    assert files.read_at(file, 5 * parts, 3) == b"".join(b"%05d" % n for n in range(parts))
    assert files.size(str(tmp_path / "a")) == 3 + 5 * parts


def test_a_refused_write_names_the_file_and_the_reason(tmp_path: Path) -> None:
    class Full(Files):
        def os_pwritev(self, fd: int, parts: Sequence[bytes], position: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = Full()
    file = files.create(str(tmp_path / "a"))
    with pytest.raises(StorageFailed, match=r"Cannot write .*/a: No space left.*free some space"):
        files.write_at(file, [b"x"], 0)


def test_a_replaced_file_is_the_old_or_the_new_one_never_between(tmp_path: Path) -> None:
    target = str(tmp_path / "checkpoint")
    Files().replace(target, b"old")

    class Stops(Files):
        def os_rename(self, source: str, target: str) -> None:
            raise OSError(errno.EIO, "stopped before the rename")

    with pytest.raises(StorageFailed):
        Stops().replace(target, b"new content")
    assert Path(target).read_bytes() == b"old"
    Files().replace(target, b"new content")
    assert Path(target).read_bytes() == b"new content"


def test_a_missing_file_is_distinguished(tmp_path: Path) -> None:
    files = Files()
    with pytest.raises(FileMissing):
        files.get(str(tmp_path / "none"))
    assert files.read_whole(str(tmp_path / "none"), 10) is None
    assert files.size(str(tmp_path / "none")) == 0
    files.remove(str(tmp_path / "none"))


def test_a_small_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    with pytest.raises(StorageFailed, match="longer than 10"):
        Files().read_whole(str(tmp_path / "a"), 10)


def test_out_of_descriptors_room_is_made_once_and_then_the_limit_is_named(tmp_path: Path) -> None:
    class Starved(Files):
        refusals = 0

        def os_open(self, path: str, flags: int) -> int:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().os_open(path, flags)

    files = Starved()
    files.create(str(tmp_path / "a"))
    files.refusals = 1
    files.create(str(tmp_path / "b"))
    assert not files.is_open(str(tmp_path / "a"))
    files.refusals = 2
    with pytest.raises(StorageFailed, match="ulimit -n"):
        files.create(str(tmp_path / "c"))


def test_read_only_opens_nothing_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    files = Files(read_only=True)
    with pytest.raises(StorageFailed):
        files.write_at(files.get(str(path)), [b"x"], 0)
    assert path.read_bytes() == b"abc"


NOT_ON_THIS_SYSTEM = pytest.mark.skipif(
    not hasattr(os, "RWF_NOWAIT"), reason="no reads from the page cache alone"
)


def test_without_blocking_nothing_is_opened_and_nothing_takes_long(tmp_path: Path) -> None:
    files = Files()
    path = str(tmp_path / "a")
    files.write_at(files.create(path), [b"content"], 0)
    files.forget(path)
    for wait in (lambda: files.get(path), files.may_block, lambda: files.read_whole(path, 10)):
        with pytest.raises(WouldBlock):
            files.without_blocking(wait)
    files.may_block()
    assert files.get(path).path == path


@NOT_ON_THIS_SYSTEM
def test_without_blocking_an_open_file_is_read_from_the_page_cache_only(disk_path: Path) -> None:
    files = Files()
    file = files.create(str(disk_path / "a"))
    files.write_at(file, [b"content"], 0)
    try:
        assert files.without_blocking(lambda: files.read_at(file, 4, 2)) == b"nten"
    except WouldBlock:
        pytest.skip("this file system does not tell what is cached")
    with pytest.raises(WouldBlock):
        files.without_blocking(
            lambda: files.read_at(file, 10, 2)
        )  # beyond the end: not known to be so


def test_without_blocking_applies_to_one_thread(tmp_path: Path) -> None:
    files = Files()
    file = files.create(str(tmp_path / "a"))
    files.write_at(file, [b"content"], 0)
    seen: list[object] = []

    def another() -> None:
        files.may_block()
        seen.append(files.read_at(file, 100, 0))

    def look() -> None:
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()

    if hasattr(os, "RWF_NOWAIT"):
        files.without_blocking(look)
        assert seen == [b"content"]


class PausingFiles(Files):
    """Threads that open a file through `start` stop between its opening and its use."""

    def __init__(self, max_open: int = 64) -> None:
        super().__init__(max_open=max_open)
        self._paused = threading.local()

    def os_open(self, path: str, flags: int) -> int:
        fd = super().os_open(path, flags)
        pause = getattr(self._paused, "pause", None)
        if pause is not None:
            pause()
        return fd

    def start(self, path: str) -> Callable[[], int]:
        """Open a file in a thread of its own; the call that lets it end gives its inode."""
        has_opened, may_end, got = threading.Event(), threading.Event(), []

        def pause() -> None:
            has_opened.set()
            assert may_end.wait(PATIENCE_S)

        def get() -> None:
            self._paused.pause = pause
            try:
                got.append(inode_of(self.get(path)))
            finally:
                has_opened.set()

        thread = threading.Thread(target=get)
        thread.start()
        assert has_opened.wait(PATIENCE_S)

        def end() -> int:
            may_end.set()
            thread.join(PATIENCE_S)
            return got[0]

        return end


def inode_of(file: OpenFile) -> int:
    return os.fstat(file.fd).st_ino


def rename_away(files: Files, path: str) -> None:
    files.rename(path, path + ".deleted")
    files.create(path)


def rename_directory_away(files: Files, path: str) -> None:
    directory = os.path.dirname(path)
    files.rename(directory, directory + ".deleted")
    files.forget(path)
    files.make_directory(directory)
    files.create(path)


def remove_and_create(files: Files, path: str) -> None:
    files.remove(path)
    files.create(path)


def replace(files: Files, path: str) -> None:
    files.replace(path, b"new")


def rename_over(files: Files, path: str) -> None:
    files.create(path + ".new")
    files.rename(path + ".new", path)


def rename_over_and_evict(files: Files, path: str) -> None:
    rename_over(files, path)
    files.get(path)
    for number in range(5):
        files.create(f"{path}{number}")


@pytest.mark.parametrize(
    "change",
    [
        rename_away,
        rename_directory_away,
        remove_and_create,
        replace,
        rename_over,
        rename_over_and_evict,
    ],
)
@pytest.mark.parametrize("max_open", [3, 64])
def test_a_file_opened_before_its_path_got_another_is_not_kept_for_others(
    tmp_path: Path, change: Callable[[Files, str], None], max_open: int
) -> None:
    files = PausingFiles(max_open)
    path = str(tmp_path / "topic-0" / "0.log")
    files.make_directory(os.path.dirname(path))
    old = inode_of(files.create(path))
    files.close()
    end = files.start(path)
    change(files, path)
    new = os.stat(path).st_ino
    assert new != old
    assert end() == old, "what a thread has opened is its own to use"
    assert inode_of(files.get(path)) == new
    files.write_at(files.get(path), [b"written to the new file"], 0)
    assert Path(path).read_bytes() == b"written to the new file"


def test_two_threads_that_open_a_file_at_once_share_it(tmp_path: Path) -> None:
    files = PausingFiles()
    path = str(tmp_path / "a")
    files.create(path)
    files.close()
    got: list[OpenFile] = []
    threads = [threading.Thread(target=lambda: got.append(files.get(path))) for _ in range(2)]
    first = files.start(path)
    for thread in threads:  # while the first has opened it and not kept it
        thread.start()
        thread.join(PATIENCE_S)
    first()
    assert got == [files.get(path)] * 2
    assert files.open_count == 1


def test_nothing_is_kept_open_that_was_being_opened_when_all_was_closed(tmp_path: Path) -> None:
    files = PausingFiles()
    path = str(tmp_path / "a")
    files.create(path)
    files.close()
    end = files.start(path)
    files.close()
    end()
    assert files.open_count == 0


CHANGES = [
    "open",
    "go on",
    "create",
    "remove",
    "replace",
    "rename",
    "rename over",
    "forget",
    "evict",
]


@examples(4)
@given(
    max_open=st.integers(1, 3),
    steps=st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from("ab")), max_size=25),
)
def test_whatever_interleaves_a_path_leads_to_the_file_that_has_it(
    tmp_path_factory: pytest.TempPathFactory, max_open: int, steps: list[tuple[str, str]]
) -> None:
    directory = tmp_path_factory.mktemp("files")
    files = PausingFiles(max_open)
    files.create(str(directory / "a"))
    files.close()
    opening: list[Callable[[], int]] = []
    for what, name in steps:
        path = str(directory / name)
        if what == "create":
            files.create(path)
        elif what == "remove":
            files.remove(path)
        elif what == "replace":
            files.replace(path, b"new")
        elif what == "forget":
            files.forget(path)
        elif what == "evict":
            for number in range(max_open):
                files.create(str(directory / str(number)))
        elif what == "go on" and opening:
            opening.pop(0)()
        elif os.path.exists(path):
            if what == "open":
                opening.append(files.start(path))
            elif what == "rename":
                files.rename(path, path + ".old")
            elif what == "rename over":
                files.rename(path, str(directory / "a"))
    for end in opening:
        end()
    assert files.open_count <= max_open
    for there in directory.iterdir():
        assert inode_of(files.get(str(there))) == there.stat().st_ino


@pytest.mark.parametrize("kind", NO_FILES)
def test_only_regular_files_are_read_and_written(tmp_path: Path, kind: str) -> None:
    outside = tmp_path / f"outside-{kind}"
    path = tmp_path / "a" / "b" / kind
    path.parent.mkdir(parents=True)
    path.write_bytes(b"safe")
    NO_FILES[kind](path)
    before = open_descriptors()
    for files in (Files(), Files(read_only=True)):
        assert files.exists(str(path))
        looks: list[Callable[[str], object]] = [files.get, files.size, files.modified_ms]
        looks.append(partial(files.read_whole, max_bytes=10))
        for look in looks:
            with pytest.raises(StorageFailed, match=kind):
                look(str(path))
    with pytest.raises(StorageFailed):
        Files().create(str(path))
    assert open_descriptors() == before
    if "directory" not in kind:
        Files().replace(str(path), b"new")
        assert (path.read_bytes(), path.is_symlink()) == (b"new", False)
    if kind == "link-outside":
        assert outside.read_bytes() == b"safe"


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_replacement_does_not_write_through_a_link_at_its_temporary_name(
    tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / f"outside-{kind}.tmp"
    temporary = tmp_path / "a" / "b" / f"{kind}.tmp"
    temporary.parent.mkdir(parents=True)
    temporary.write_bytes(b"safe")
    NO_FILES[kind](temporary)
    target = temporary.with_suffix("")
    if "directory" in kind:
        with pytest.raises(StorageFailed):
            Files().replace(str(target), b"new")
        assert not target.exists()
    else:
        Files().replace(str(target), b"new")
        assert (target.read_bytes(), target.is_symlink()) == (b"new", False)
        assert not os.path.lexists(temporary)
    if kind == "link-outside":
        assert outside.read_bytes() == b"safe"


def test_a_log_directory_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    files = Files()
    files.replace(str(tmp_path / "link" / "a"), b"content")
    files.sync_path(str(tmp_path / "link"))
    assert files.read_whole(str(tmp_path / "link" / "a"), 10) == b"content"


def test_a_file_is_closed_even_when_its_module_was_torn_down_at_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files()
    file = files.create(str(tmp_path / "a"))
    fd = file.fd
    files.close()
    monkeypatch.setattr("horolog.storage.files.os", None)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
