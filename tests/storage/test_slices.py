from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from horolog.storage.files import Files
from horolog.storage.slices import Slice


@pytest.fixture
def found(disk_path: Path) -> Slice:
    files = Files()
    file = files.create(str(disk_path / "a.log"))
    files.write_at(file, [bytes(range(200))], 0)
    return Slice(files, file, 10, 50)


def test_a_slice_is_a_stretch_of_its_file(found: Slice) -> None:
    assert found.read() == bytes(range(10, 60))
    assert found.fd is not None
    assert os.pread(found.fd, found.size, found.position) == bytes(range(10, 60))


@pytest.mark.skipif(sys.platform != "linux", reason="needs RWF_NOWAIT")
def test_what_the_page_cache_has_is_read_without_waiting(found: Slice) -> None:
    read = found.read_cached()
    if read is None:
        pytest.skip("this file system cannot tell")
    assert read == bytes(range(10, 60))


def test_where_nobody_can_tell_every_read_may_wait(
    found: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.storage.slices._NOWAIT", None)
    assert found.read_cached() is None


def test_an_empty_slice_needs_no_file() -> None:
    empty = Slice(Files(), None, 0, 0)
    assert empty.read() == b""
    assert empty.read_cached() == b""
    assert empty.fd is None


def test_a_file_that_became_shorter_gives_what_is_left(found: Slice) -> None:
    assert found.fd is not None
    os.ftruncate(found.fd, 30)
    assert found.read() == bytes(range(10, 30))
    assert found.read_cached() is None
