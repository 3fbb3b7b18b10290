"""The job `mirror` with Spark, as a function and as a command, and killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mirror_lab import produce, records, rows_of, values, without_offsets
from patience import PATIENCE_S
from running_broker import BrokerProcess, MakeBroker
from spark_cluster import cluster
from typer.testing import CliRunner

from horolog import jobs
from horolog.cli.spark import app
from horolog.client import Client
from horolog.record.builder import LogRecord

BATCHES, OF = 60, 50


@pytest.mark.spark
def test_topics_are_mirrored_by_tasks_of_spark(
    spark: Any, make_broker: MakeBroker, tmp_path: Path
) -> None:
    source, target = make_broker(), make_broker()
    source.create_topic("clicks", 5, retention_ms="-1")
    for partition in range(5):
        produce(source.address, "clicks", partition, records(10 * partition, 10))
    asked = {"source": source.address, "target": target.address, "topics": ["clicks"]}
    for expected in (50, 0):
        done = jobs.mirror(spark, state=tmp_path / "state", **asked)
        assert (done.records, done.errors) == (expected, ())
    for partition in range(5):
        there = rows_of(target.address, "clicks", partition)
        assert there == rows_of(source.address, "clicks", partition)


def test_the_command_mirrors_prints_a_summary_and_fails_where_a_topic_does(
    in_process_spark: object, make_broker: MakeBroker, tmp_path: Path
) -> None:
    source, target = make_broker(), make_broker()
    source.create_topic("t", 1, retention_ms="-1")
    source.create_topic("u", 1, retention_ms="-1")
    target.create_topic("u", 1, message_timestamp_type="LogAppendTime")
    produce(source.address, "t", 0, records(0, 10))
    arguments = ["mirror", "--source", source.address, "--target", target.address, "--once"]
    state = ["--state", str(tmp_path / "state")]
    dry = CliRunner().invoke(app, [*arguments, "--topics", "t", "--dry-run"])
    assert dry.exit_code == 0
    assert "would read 10 offsets" in dry.output
    done = CliRunner().invoke(app, [*arguments, *state, "--topics", "t,u", "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["records"], told["lag"]) == (10, 0)
    assert "--replace-create-times" in told["errors"][0]
    other = ["--state", str(tmp_path / "b"), "--batch-bytes", "100000"]
    again = CliRunner().invoke(app, [*arguments, "--topics", "t", *other])
    assert again.exit_code == 1
    assert "t of the target holds 11 offsets already" in again.output
    other.append("--into-nonempty")
    again = CliRunner().invoke(app, [*arguments, "--topics", "t", *other])
    assert again.exit_code == 0
    assert "Mirrored 10 records" in again.output
    assert values(target.address, "t") == values(source.address, "t") * 2


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    found = [BrokerProcess(tmp_path / name) for name in ("source", "target")]
    yield found[0], found[1]
    for each in found:
        each.kill()


def started(
    source: str, target: str, state: Path, *more: str, master: str = "local[2]"
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "horolog", "spark", "mirror", "--source", source]
    command += ["--target", target, "--topics", "t", "--state", str(state), "--master", master]
    return subprocess.Popen(
        [*command, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )


def rows_at(address: str, partition: int) -> list[LogRecord]:
    """The committed records of a partition; markers at the target shift their offsets."""
    return without_offsets(rows_of(address, "t", partition))


def count(address: str) -> int:
    with Client(address) as client:
        if "t" not in client.metadata().topics:
            return 0
    return sum(len(rows_of(address, "t", partition)) for partition in range(2))


def addresses(brokers: tuple[BrokerProcess, BrokerProcess]) -> tuple[str, str]:
    """Addresses of a source, which gets records, and of a target."""
    source, target = brokers
    with Client(source.address) as client:
        client.create_topics({"t": 2}, configs={"retention.ms": "-1"})
    for number in range(BATCHES):
        produce(source.address, "t", number % 2, records(OF * number, OF))
    return source.address, target.address


def wait_for(address: str, least: int, running: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + PATIENCE_S
    while count(address) < least:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.spark
@pytest.mark.slow
def test_executors_that_are_killed_on_a_cluster_lose_and_double_nothing(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    source, target = addresses(brokers)
    memory = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1")
    with cluster(tmp_path) as master:
        running = started(source, target, tmp_path / "state", *memory, master=master)
        number = BATCHES
        for _ in range(2):
            wait_for(target, OF * number, running)
            assert executors(tmp_path), "the tasks run on the cluster"
            for _ in range(BATCHES):
                produce(source, "t", number % 2, records(OF * number, OF))
                number += 1
            for pid in executors(tmp_path):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        wait_for(target, OF * number, running)
        running.send_signal(signal.SIGTERM)
        output, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, output + errors
    for partition in range(2):
        assert rows_at(target, partition) == rows_at(source, partition)


def executors(directory: Path) -> list[int]:
    """The processes of executors whose workers have their directories here."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                command = (process / "cmdline").read_bytes()
                where = os.readlink(process / "cwd")
                if b"CoarseGrainedExecutorBackend" in command and where.startswith(str(directory)):
                    found.append(int(process.name))
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("joined", [("--batch-bytes", "0"), ()])
def test_a_command_killed_at_any_moment_ends_with_each_record_once(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path, joined: tuple[str, ...]
) -> None:
    source, target = (each.address for each in brokers)
    with Client(source) as client:
        client.create_topics({"t": 2}, configs={"retention.ms": "-1"})
    rng = random.Random()
    number = 0
    for _ in range(4):
        for _ in range(BATCHES):
            produce(source, "t", number % 2, records(OF * number, OF))
            number += 1
        running = started(source, target, tmp_path / "state", *joined)
        wait_for(target, rng.randrange(OF * (number - BATCHES) + 1, OF * number), running)
        if rng.random() < 0.5:
            os.killpg(running.pid, signal.SIGKILL)
        else:  # its JVM and its tasks continue for a moment
            running.kill()
        running.wait()
        for pipe in (running.stdout, running.stderr):
            assert pipe is not None
            pipe.close()  # the JVM may have it open still
    produce(source, "t", number % 2, records(OF * number, OF))
    number += 1
    running = started(source, target, tmp_path / "state", *joined)
    wait_for(target, OF * number, running)
    running.send_signal(signal.SIGTERM)
    output, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, output + errors
    for partition in range(2):
        assert rows_at(target, partition) == rows_at(source, partition)


@pytest.mark.spark
@pytest.mark.slow
def test_brokers_that_are_killed_and_come_back_lose_and_double_nothing(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    source, target = addresses(brokers)
    running = started(source, target, tmp_path / "state")
    wait_for(target, 1, running)
    for broker in reversed(brokers):
        broker.kill()
        broker.start_again()
    for number in range(BATCHES, 2 * BATCHES):
        produce(source, "t", number % 2, records(OF * number, OF))
    wait_for(target, 2 * BATCHES * OF, running)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, output + errors
    for partition in range(2):
        assert rows_at(target, partition) == rows_at(source, partition)
