from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from overrides import override

from horolog.storage import Files, OpenFile, Slice, page_cache

FILES = Files()


@pytest.fixture
def file(disk_path: Path) -> OpenFile:
    file = FILES.create(str(disk_path / "a.log"))
    FILES.write_at(file, [bytes(range(200))], 0)
    return file


@pytest.fixture
def found(file: OpenFile) -> Slice:
    return Slice(FILES, file, 10, 50)


def test_a_slice_is_a_stretch_of_its_file(found: Slice) -> None:
    assert found.read() == bytes(range(10, 60))


@pytest.mark.skipif(sys.platform != "linux", reason="needs RWF_NOWAIT")
def test_what_the_page_cache_has_is_read_without_waiting(found: Slice) -> None:
    read = found.read_cached()
    if read is None:
        pytest.skip("this file system cannot tell")
    assert read == bytes(range(10, 60))


def test_without_page_cache_support_every_read_may_block(
    found: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.storage", CAN_TELL=False)
    assert found.read_cached() is None


def test_an_empty_slice_needs_no_file() -> None:
    empty = Slice(Files(), None, 0, 0)
    assert empty.read() == b""
    assert empty.read_cached() == b""


def test_a_file_that_became_shorter_gives_what_is_left(found: Slice, file: OpenFile) -> None:
    os.ftruncate(file.fd, 30)
    assert found.read() == bytes(range(10, 30))
    assert found.read_cached() is None


@pytest.mark.skipif(page_cache.page_counter() is None, reason="needs Linux 6.5")
def test_cached_bytes_are_sent_to_a_socket_and_others_are_not(found: Slice, file: OpenFile) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert found.send_cached(ours.fileno()) == 50
        assert theirs.recv(100) == bytes(range(10, 60))
        os.fsync(file.fd)
        os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert found.send_cached(ours.fileno()) is None
        assert found.read() == bytes(range(10, 60))
        os.ftruncate(file.fd, 10)
        assert found.send_cached(ours.fileno()) is None
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
