from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from horolog.errors import Misconfigured
from horolog.storage import (
    FileMissing,
    SharersRemain,
    is_locked,
    lock_against_others,
    lock_directory,
    lock_offline,
    share_offline,
)


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


def locked(log_dir: Path) -> bool:
    return is_locked(str(log_dir / ".lock"))


def a_broker_may_start(log_dir: Path) -> bool:
    try:
        os.close(lock_directory(str(log_dir / ".lock")))
    except BlockingIOError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="only there processes can share the lock")
def test_no_broker_starts_before_the_last_process_of_a_tool_is_gone(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    with ExitStack() as tool, ExitStack() as first, ExitStack() as second:
        tool.enter_context(lock_offline(tmp_path, "why", is_shared=True))
        first.enter_context(share_offline(tmp_path, "why"))
        second.enter_context(share_offline(tmp_path, "why"))
        with pytest.raises(Misconfigured), lock_offline(tmp_path, "why"):
            pass
        tool.close()  # killed, say
        assert not a_broker_may_start(tmp_path)
        with pytest.raises(SharersRemain), lock_offline(tmp_path, "why", is_shared=True):
            pass
        first.close()
        assert locked(tmp_path)
        assert not a_broker_may_start(tmp_path)
        second.close()
        assert not locked(tmp_path)
        assert a_broker_may_start(tmp_path)


def test_no_process_shares_the_lock_of_a_broker(tmp_path: Path) -> None:
    fd = lock_directory(str(tmp_path / ".lock"))
    with pytest.raises(Misconfigured, match="a broker is at work"), share_offline(tmp_path, "why"):
        pass
    os.close(fd)
    with share_offline(tmp_path, "why"):
        assert not a_broker_may_start(tmp_path)


def test_a_file_that_was_replaced_while_it_was_waited_for_is_locked_anew(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"old")
    order: list[str] = []

    def wait_for_it() -> None:
        with lock_against_others(str(path)):
            order.append(path.read_text())

    with lock_against_others(str(path)):
        waiting = threading.Thread(target=wait_for_it)
        waiting.start()
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "new").rename(path)
        order.append("replaced")
    waiting.join()
    assert order == ["replaced", "new"]
    path.unlink()
    with pytest.raises(FileMissing), lock_against_others(str(path)):
        pass
