"""`horolog health`: its output and its exit codes."""

from __future__ import annotations

import json

from command_runner import run_command as run
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch

broker = a_broker("t")


def test_a_healthy_broker_gives_0(broker: RunningBroker) -> None:
    ran = run("health", "-b", broker.address)
    assert ran.code == 0
    assert ran.out == "broker 1 is ready: 1 partitions, nothing is wrong\n"
    ran = run("health", "-b", broker.address, "--json")
    assert json.loads(ran.out) == {
        "ready": True,
        "healthy": True,
        "brokers": [{"broker": 1, "partitions": 1, "wrong": [], "without_numba": None}],
    }


def test_something_wrong_gives_1_and_is_named(broker: RunningBroker, clock: ManualClock) -> None:
    broker.append("t", build_batch([LogRecord(NOW_MS, None, b"v")]))
    clock.step("-2h")
    ran = run("health", "-b", broker.address)
    assert ran.code == 1
    assert "append-time-ahead" in ran.out
    assert "t-0" in ran.out
    ran = run("health", "-b", broker.address, "--json")
    assert ran.code == 1
    found = json.loads(ran.out)
    assert not found["healthy"]
    (wrong,) = found["brokers"][0]["wrong"]
    assert (wrong["kind"], wrong["subject"], wrong["value"]) == (
        "append-time-ahead",
        "t-0",
        7_200_000,
    )


def test_no_broker_gives_1_and_misuse_2(broker: RunningBroker) -> None:
    address = broker.address
    broker.stop()
    ran = run("health", "-b", address, "--command-property", "default.api.timeout.ms=500")
    assert ran.code == 1
    assert run("health", "--nonsense").code == 2
