from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from horolog.storage.directory_lock import lock_directory


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere flock and Java's lock are the same")
def test_the_lock_is_one_that_java_sees(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    fd = lock_directory(str(path))
    as_java_does = "import fcntl as f, sys; f.lockf(open(sys.argv[1], 'r+'), f.LOCK_EX | f.LOCK_NB)"
    run = [sys.executable, "-c", as_java_does, str(path)]
    assert b"BlockingIOError" in subprocess.run(run, capture_output=True, check=False).stderr
    os.close(fd)
    assert subprocess.run(run, check=False).returncode == 0


def test_a_second_lock_is_refused_in_the_same_process_too(tmp_path: Path) -> None:
    fd = lock_directory(str(tmp_path / ".lock"))
    with pytest.raises(BlockingIOError):
        lock_directory(str(tmp_path / ".lock"))
    with pytest.raises(BlockingIOError):
        lock_directory(str(tmp_path / ".lock"))
    os.close(fd)
    os.close(lock_directory(str(tmp_path / ".lock")))
