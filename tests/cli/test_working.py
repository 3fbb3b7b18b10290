"""What long work shows of itself: in a log, in a terminal, and where a signal ends it."""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import typer
from overrides import override
from patience import PATIENCE_S, eventually

from horolog.cli.working import Work, working
from horolog.client import NoAnswer


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_work_says_how_much_is_done_how_fast_and_what_is_left() -> None:
    clock = Clock()
    work = Work("mirror", "records", clock)
    assert str(work) == "mirror: nothing done yet"
    work(0, 4_800)
    assert str(work) == "mirror: 0 of 4,800 records (0 %)"
    clock.now_s += 4
    work(1_200, 4_800, "2.0 s behind")
    work.tasks(1, 8)
    assert str(work) == (
        "mirror: 1,200 of 4,800 records (25 %), 300/s, 3,600 left, 12 s to go, 1 of 8 tasks, "
        "2.0 s behind"
    )
    clock.now_s += 600  # nothing gets on
    assert "2/s, 3,600 left, 30 min 12 s to go" in str(work)


def test_the_rate_is_of_what_this_run_does_and_of_late() -> None:
    clock = Clock()
    work = Work("index", "bytes", clock)
    work(3_000_000_000, 4_000_000_000)  # of an earlier run
    clock.now_s += 10
    work.count(10_000_000)
    assert str(work) == (
        "index: 3.0 GB of 4.0 GB (75 %), 1.0 MB/s, 990.0 MB left, 16 min 30 s to go"
    )
    for _ in range(100):
        clock.now_s += 1
        work.count(work.done - 3_000_000_000 + 2_000_000)
    assert ", 2.0 MB/s, " in str(work)


def test_counts_of_tasks_go_back_nowhere_and_not_beyond_the_total() -> None:
    work = Work("audit", "records", Clock())
    work.count(7)
    assert str(work) == "audit: 7 records"
    work(0, 10)
    work.count(25)
    assert str(work).startswith("audit: 10 of 10 records (100 %)")
    work(5, 10)
    assert "10 of 10" in str(work)


def test_a_log_gets_a_line_now_and_then_whether_the_work_gets_on_or_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.cli", LOG_EVERY_S=0.01)
    said = ""

    def is_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said.count("mirror: 3 of 4 records (75 %)") >= 2

    with working("mirror", "records", count_tasks=lambda: (1, 2)) as work:
        work(3, 4)
        assert eventually(is_said)
    assert re.search(
        r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*Z  mirror: 3 of 4.*1 of 2 tasks", said, re.MULTILINE
    )


SCRIPT = """
import time, typer
from horolog.cli.working import working
def job():
    with working("mirror", "records", resumable="--state ./s") as work:
        work(0, 4)
        work(3, 4)
        print("begun", flush=True)
        time.sleep(600)
typer.run(job)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_work_and_is_told_where(number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert said.startswith("stopped at mirror: 3 of 4 records (75 %)")
    assert said.endswith(". The same command with --state ./s continues there\n")
    assert process.returncode == code


def test_a_terminal_has_a_bar_that_leaves_nothing(tmp_path: Path) -> None:
    primary, secondary = pty.openpty()
    command = [sys.executable, "-c", SCRIPT.replace("600", "1.2")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=secondary) as process:
        os.close(secondary)
        shown = b""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                some = os.read(primary, 65_536)
            except OSError:  # the other end is closed
                break
            if not some:
                break
            shown += some
        assert process.wait(PATIENCE_S) == 0
    os.close(primary)
    assert b"3 of 4 records (75 %)" in shown
    assert b"stopped" not in shown


def test_an_error_of_the_work_is_passed_on() -> None:
    with pytest.raises(ValueError, match="wrong"), working("mirror", "records"):
        raise ValueError("wrong")
    with pytest.raises(typer.Exit), working("mirror", "records"):
        raise KeyboardInterrupt


def test_what_fails_after_a_signal_that_the_work_obeys_ends_it_with_where_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stop = threading.Event()
    with pytest.raises(ValueError, match="wrong"), working("mirror", "records", stop=stop):
        raise ValueError("wrong")
    stop.set()
    with pytest.raises(NoAnswer, match="gone"), working("mirror", "records", stop=stop):
        raise NoAnswer("gone")
    with pytest.raises(typer.Exit) as ended, working("mirror", "records", stop=stop):
        raise ValueError("the JVM has ended")
    assert ended.value.exit_code == 143
    assert "stopped at mirror: nothing done yet" in capsys.readouterr().err
