"""Brokers killed under load and restarted: a few, and for `make soak` hundreds."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pytest
from broker_nursery import BornBroker, Nursery
from killed_broker import reported, say
from raw_connection import RawConnection, fetch_fields
from soak import PATIENCE_S, Soak

from horolog.record import iter_headers, read_records
from horolog.wire import ApiKey

SEED = int(os.environ.get("SEED") or random.randrange(1 << 30))
KILLS = int(os.environ.get("KILLS") or 300)
STARTS = int(os.environ.get("STARTS") or 1000)
STEPS = int(os.environ.get("STEPS") or 240)
A_FEW_S = 1800  # for what takes seconds on a machine that is not busy


@pytest.mark.slow
@pytest.mark.timeout(A_FEW_S)
def test_kills_under_load_lose_and_double_nothing(nursery: Nursery, tmp_path: Path) -> None:
    run = soak(nursery, tmp_path, kills=2, seed=7)
    assert run.counts["kills with data in flight"] > 0
    assert run.counts["records acknowledged"] > 0


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_hundreds_of_kills_under_load_lose_and_double_nothing(
    nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        say(f"\n{KILLS} kills; to do the same again: make soak KILLS={KILLS} SEED={SEED}\n")
        run = soak(nursery, tmp_path, kills=KILLS, seed=SEED, progress=True)
        say(f"\n{run.summary}; errands: {dict(run.errands.done)}\n")
    assert run.counts["kills with data in flight"] * 2 >= run.counts["kills"]
    assert run.counts["torn tails cut"] > 0
    assert run.counts["retries answered without appending"] > 0


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_first_start_killed_at_every_step_is_followed_by_one_that_serves(
    nursery: Nursery, tmp_path: Path
) -> None:
    for step in itertools.count():
        path = tmp_path / str(step)
        path.mkdir()
        arguments = ["serve", "--port", "0", "--log-dir", str(path / "log")]
        first = BornBroker(nursery, path / "said", arguments, f"step:{step}")
        address = first.await_ready()
        if address is not None and not first.await_end(0.1):
            first.end()
            break
        assert first.end() == -9, first.said
        again = BornBroker(nursery, path / "said", arguments)
        address = again.await_ready()
        assert address is not None, again.said
        send_one(address, b"v")
        assert again.end(15) == 0
    assert step > 2


@pytest.mark.slow
@pytest.mark.timeout(A_FEW_S)
def test_a_broker_killed_at_some_of_its_steps_loses_and_doubles_nothing(
    nursery: Nursery, tmp_path: Path
) -> None:
    soak(nursery, tmp_path, seed=11, ways=["step:5", "step:60", "stop:9"])


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_broker_killed_once_at_every_step_loses_and_doubles_nothing(
    nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Writes, renames, fsyncs, removals and SQLite's statements; starting, serving, stopping."""
    steps = [f"step:{step}" for step in range(STEPS)]
    steps += [f"stop:{step}" for step in range(STEPS // 3)]
    with capsys.disabled():
        say(f"\n{len(steps)} steps; to do the same again: make soak STEPS={STEPS} SEED={SEED}\n")
        run = soak(nursery, tmp_path, SEED, ways=steps, progress=True)
        say(f"\n{run.summary}; errands: {dict(run.errands.done)}\n")


def soak(
    nursery: Nursery,
    path: Path,
    seed: int,
    kills: int = 1 << 30,
    *,
    ways: Sequence[str] | None = None,
    progress: bool = False,
) -> Soak:
    with reported(Soak(nursery, path, seed, ways_to_die=ways)) as run:
        run.run(kills, progress=progress)
    return run


@pytest.mark.slow
@pytest.mark.timeout(A_FEW_S)
def test_every_start_with_its_own_producer_adds_one_record(
    nursery: Nursery, tmp_path: Path
) -> None:
    start_again_and_again(nursery, tmp_path, starts=3, seed=3)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_thousand_starts_with_their_own_producers_leave_a_thousand_records(
    nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        say(f"\n{STARTS} starts, SEED={SEED}\n")
        start_again_and_again(nursery, tmp_path, starts=STARTS, seed=SEED, progress=True)


def start_again_and_again(
    nursery: Nursery, path: Path, *, starts: int, seed: int, progress: bool = False
) -> None:
    """Each start has a new producer that sends one record; ends by kill or by SIGTERM."""
    rng = random.Random(seed)
    port, kills = 0, 0
    for number in range(starts + 1):
        arguments = ["serve", "--port", str(port), "--log-dir", str(path / "log")]
        broker = BornBroker(nursery, path / "said", arguments)
        address = broker.await_ready()
        assert address is not None, broker.said
        port = int(address.rpartition(":")[2])
        if number == starts:
            break
        send_one(address, b"%d" % number)
        is_kill = rng.random() < 0.7
        kills += is_kill
        assert broker.end(9 if is_kill else 15) == (-9 if is_kill else 0)
        if progress and number % 10 == 9:
            say(f"\r{number + 1} starts, {kills} of them ended by kill -9")
    values, producers = all_records(address)
    assert values == [b"%d" % number for number in range(starts)]
    assert len(set(producers)) == starts, "a producer id was given twice"
    broker.end()


def send_one(address: str, value: bytes) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    producer.produce("t", value, partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failures == [None]


def all_records(address: str) -> tuple[list[bytes], list[int]]:
    """The values of a topic, and the producer of each batch."""
    values: list[bytes] = []
    producers: list[int] = []
    with RawConnection(address, timeout_s=PATIENCE_S) as connection:
        while True:
            fields = fetch_fields("t", {0: len(values)})
            found = connection.ask(ApiKey.FETCH, 12, **fields).responses[0].partitions[0]
            assert found.error_code == 0
            if not found.records:
                return values, producers
            for position, header in iter_headers(found.records):
                batch = bytes(found.records)[position : position + header.size]
                values += [record.value or b"" for record in read_records(batch)]
                producers.append(header.producer_id)
