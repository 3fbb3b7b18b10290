"""`horolog wait` ends when a topic is complete, and says why it is not."""

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from command_runner import Run, heed_interrupts, run_command
from patience import PATIENCE_S
from running_broker import NOW_MS, BrokerProcess, RunningBroker, a_broker
from scripted_broker import ScriptedBroker
from transactional import init, write

from horolog.clock import HOUR_MS, MINUTE_MS, ManualClock

BOUND = {"message_timestamp_before_max_ms": str(MINUTE_MS)}
broker = a_broker("t", partitions=2, of_topics=BOUND)


@pytest.fixture
def wait(broker: RunningBroker) -> Run:
    tick(broker)
    return lambda *args: run_command("wait", *args, HOROLOG_BOOTSTRAP=broker.address)


def tick(broker: RunningBroker) -> None:
    broker.run(broker.broker.partitions.keep_stamp_clock())


def test_a_topic_that_is_complete_is_not_waited_for(wait: Run) -> None:
    ran = wait("t", "--complete-until", NOW_MS - MINUTE_MS, "--timeout", "0s")
    assert (ran.code, ran.lines) == (0, ["t is complete until 2023-11-14T22:12:20.000Z"])
    ran = wait("t", "--complete-until", NOW_MS - MINUTE_MS, "--json")
    expected = {"topic": "t", "is_complete": True, "complete_until_ms": NOW_MS - MINUTE_MS}
    assert ran.json == expected


def test_the_time_comes_while_it_is_waited_for(
    broker: RunningBroker, clock: ManualClock, wait: Run
) -> None:
    mover = threading.Timer(0.5, lambda: clock.step(1))  # a second later it is on the disk
    mover.start()
    ran = wait("t", "--complete-until", NOW_MS - MINUTE_MS + 1, "--timeout", "60s")
    mover.join()
    assert ran.code == 0


def test_a_partition_that_is_behind_is_named(
    broker: RunningBroker, clock: ManualClock, wait: Run
) -> None:
    assert write(broker, init(broker), partition=1, version=12, time_ms=NOW_MS - MINUTE_MS) == 0
    clock.step("1m")
    tick(broker)
    asked = ("t", "--complete-until", NOW_MS, "--timeout", "100ms")
    assert wait(*asked).code == 0
    ran = wait(*asked, "--read-committed")
    assert ran.code == 1
    assert ran.lines[0].startswith("t-1 is complete until 2023-11-14T22:12:20.000Z, and not")
    assert wait(*asked, "--read-committed", "--partition", 0).code == 0


def test_what_can_never_be_is_misused(broker: RunningBroker, wait: Run) -> None:
    broker.create_topic("free")
    for args, message in (
        (("free", "--complete-until", "-1h"), "message.timestamp.before.max.ms"),
        (("t", "--complete-until", "yesterday"), "is not a time"),
        (("t", "--complete-until", "-1h", "--timeout", "soon"), "is not a duration"),
        (("t", "--complete-until", "-1h", "--timeout", "-5s"), "is not a duration"),
        (("t", "--complete-until", "-1h", "--partition", 7), "t has no partition 7\n"),
        (("t", "--complete-until", "-1h", "--partition", 0, "--partition", 9), "no partition 9\n"),
    ):
        ran = wait(*args)
        assert ran.code == 2, args
        assert message in ran.err
    assert wait("none", "--complete-until", "-1h").code in (1, 2)
    with ScriptedBroker() as kafka:
        address = {"HOROLOG_BOOTSTRAP": kafka.bootstrap}
        ran = run_command("wait", "t", "--complete-until", "-1h", **address)
    assert ran.code == 2
    assert "Apache Kafka" in ran.err


def test_ctrl_c_ends_it_without_a_traceback(broker: RunningBroker) -> None:
    command = ("wait", "t", "--complete-until", "2100-01-01T00:00Z", "--timeout", "1h")
    terminal, its_end = pty.openpty()
    with open(terminal, "rb", buffering=0) as screen:
        running = subprocess.Popen(
            [sys.executable, "-m", "horolog", *command, "-b", broker.address],
            stderr=its_end,
            preexec_fn=heed_interrupts,  # noqa: PLW1509 - it takes no lock
        )
        os.close(its_end)
        shown = b""
        while b"waiting for t: " not in shown:
            shown += screen.read(1024)
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_S) == 130
        with suppress(OSError):  # the other end is closed
            while more := screen.read(1024):
                shown += more
    assert b"Traceback" not in shown


def test_a_broker_that_stops_answering_is_waited_for_no_longer_than_the_topic(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        settings = {"message.timestamp.before.max.ms": str(HOUR_MS)}
        broker.client.create_topics({"t": 1}, configs=settings)
        stopping = threading.Timer(0.5, lambda: os.kill(broker.pid, signal.SIGSTOP))
        stopping.start()
        began = time.monotonic()
        asked = ("t", "--complete-until", "now", "--timeout", "2s")
        ran = run_command("wait", *asked, HOROLOG_BOOTSTRAP=broker.client.config.bootstrap_servers)
        took_s = time.monotonic() - began
        stopping.join()
        os.kill(broker.pid, signal.SIGCONT)
    assert ran.code == 1, ran
    assert took_s < 15  # a call alone may take 30 s otherwise
