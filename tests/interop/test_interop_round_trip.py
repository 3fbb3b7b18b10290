"""Whole directories there and back: Kafka opens ours and appends, we open Kafka's and append."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench.sides import horolog
from confluent_kafka import Producer
from handing_over import (
    complaints,
    give_to_kafka,
    logs_of,
    our_own_files,
    partition_directories,
    told,
    without_epochs,
)
from raw_connection import RawConnection, produce_fields
from tools.golden import answers, scenarios
from tools.golden.scenarios import QUIET, T0_MS, Scenario
from tools.peers.kafka import NEWEST, Kafka

from horolog.clock import SystemClock
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
SEQUENCES = Scenario("sequences", "one idempotent producer, by hand", scenarios.nothing)
OURS = [
    *(
        one
        for one in scenarios.CLEAN
        if one.topic not in {"compacted", "transactions", "transaction-open"}
    ),
    *(
        Scenario(
            f"append-time-{codec}",
            "times of the broker's clock",
            scenarios.compressed_by_client(codec),
            APPEND_TIME,
        )
        for codec in ("gzip", "snappy", "lz4")
    ),
    SEQUENCES,
]
PRODUCER_ID = 4242
# What Kafka says of the gap that we make in its sequence, in two lines.
GAP = re.compile(
    r"Error processing append operation on partition \S+:sequences-0$"
    rf"|Out of order sequence number for producer {PRODUCER_ID} "
)


class Written(NamedTuple):
    """A directory that horolog left, what it answered about it, and how it was left."""

    log_dir: Path
    answered: dict[str, dict[str, Any]]
    logs: dict[str, bytes]


class Running(NamedTuple):
    """For the clients of conftest.py."""

    bootstrap: str


def numbered(sequence: int, count: int = 2) -> bytes:
    """A batch of the one producer: Kafka forgets a producer by the times of its records."""
    now_ms = SystemClock().now_ms()
    records = [LogRecord(now_ms, b"k", b"%d" % (sequence + at)) for at in range(count)]
    return build_batch(records, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)


def produce(bootstrap: str, topic: str, batch: bytes) -> tuple[int, int]:
    """Error code and base offset."""
    with RawConnection(bootstrap, timeout_s=600) as connection:
        fields = produce_fields(topic, {0: batch}, acks=-1)
        answer = connection.ask(ApiKey.PRODUCE, 9, **fields)
    told = answer.responses[0].partition_responses[0]
    return int(told.error_code), int(told.base_offset)


def append(bootstrap: str, topic: str, *, idempotent: bool, key: bytes | None = b"k") -> int:
    """One record through librdkafka; its offset."""
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": idempotent, **QUIET}
    producer, offsets = Producer(settings), []
    producer.produce(
        topic,
        key=key,
        value=b"appended",
        partition=0,
        on_delivery=lambda error, message: offsets.append((error, message.offset())),
    )
    assert producer.flush(600) == 0
    ((error, offset),) = offsets
    assert error is None, error
    return offset


def tear(log_dir: Path) -> None:
    """Cut the last batch of one log short, as a power cut would."""
    torn = max((log_dir / "index-some-0").glob("*.log"))
    with torn.open("r+b") as file:
        file.truncate(torn.stat().st_size - 7)


@pytest.fixture(scope="module", params=["stopped", "killed", "torn and recovered"])
def ours(request, tmp_path_factory) -> Written:
    """What we write, in the state that a stop, a kill, or a kill and our own recovery leaves."""
    base = tmp_path_factory.mktemp("ours")
    with horolog({"log.retention.check.interval.ms": "500"}, base) as side:
        scenarios.create(side.bootstrap, OURS)
        for one in OURS:
            one.write(side.bootstrap, one.topic)
        assert [produce(side.bootstrap, "sequences", numbered(at)) for at in (0, 2, 4)] == [
            (0, 0),
            (0, 2),
            (0, 4),
        ]
        scenarios.settle(2)  # retention is to have done its work
        answered = told(side.bootstrap, OURS)
        if request.param != "stopped":
            side.kill()
    if request.param == "torn and recovered":
        tear(base / "data")
        with horolog(directory=base) as side:
            answered = told(side.bootstrap, OURS)
    marked = (base / "data" / ".kafka_cleanshutdown").exists()
    assert marked is (request.param != "killed")
    cut = base / "data" / "index-some-0" / "00000000000000000000.log.77.cut"
    cut.write_bytes(b"what recovery would set aside of an adopted log")
    return Written(base / "data", answered, logs_of(base / "data"))


@pytest.fixture(scope="module")
def empty_kafka(tmp_path_factory) -> Path:
    """The directory of a Kafka that has the same topics, and nothing in them."""
    kafka = Kafka(tmp_path_factory.mktemp("empty"))
    with kafka:
        scenarios.create(kafka.bootstrap, OURS)
        scenarios.settle(2)
    return kafka.directory


@pytest.mark.timeout(3600)  # both brokers are started several times
def test_kafka_serves_ours_and_appends_and_we_serve_the_result(
    ours, empty_kafka, tmp_path, java_client
):
    kafka = Kafka(Path(shutil.copytree(empty_kafka, tmp_path / "kafka")))
    give_to_kafka(ours.log_dir, kafka)
    said = kafka.output.stat().st_size
    with kafka:
        scenarios.settle(2)
        by_kafka = told(kafka.bootstrap, OURS)
        types = {
            topic: {
                row["type"]
                for row in java_client.ask(Running(kafka.bootstrap), "consume", topic=topic)[
                    "records"
                ]
            }
            for topic in ("append-time-lz4", "client-zstd")
        }
        late = java_client.ask(
            Running(kafka.bootstrap), "consume", topic="index-some", at=T0_MS + 60_000
        )
        # The snapshot knows the last batch of a producer, and so does Kafka.
        again = produce(kafka.bootstrap, "sequences", numbered(4))
        following = produce(kafka.bootstrap, "sequences", numbered(6))
        gap = produce(kafka.bootstrap, "sequences", numbered(20))
        appended = append(kafka.bootstrap, "client-lz4", idempotent=True)
        append(kafka.bootstrap, "out-of-order", idempotent=False)
    for name, answer in ours.answered.items():
        if name == "deleted-all-0":
            # Kafka names the largest time of what was deleted too (tests/golden).
            by_kafka[name]["max_timestamp"] = answer["max_timestamp"]
        assert without_epochs(by_kafka[name]) == without_epochs(answer), name
    assert types == {"append-time-lz4": {"LogAppendTime"}, "client-zstd": {"CreateTime"}}
    assert late["records"], "a consumer that looked for a moment reads on from there"
    assert (again, following, gap[0]) == ((0, 4), (0, 6), 45)
    assert appended == ours.answered["client-lz4-0"]["latest"][0]

    assert list(kafka.log_dir.glob("*-stray")) == []
    if (ours.log_dir / ".kafka_cleanshutdown").exists():
        assert [line for line in complaints(kafka, said) if not GAP.search(line)] == []
    kept = logs_of(kafka.log_dir)
    for name, data in ours.logs.items():
        assert kept[name][: len(data)] == data, name
    assert our_own_files(ours.log_dir) <= our_own_files(kafka.log_dir)
    answers.of_files(kafka.log_dir, peer=NEWEST)  # fails on any complaint

    shutil.copytree(kafka.log_dir, tmp_path / "back" / "data")
    with horolog(directory=tmp_path / "back") as side:
        again_ours = told(side.bootstrap, OURS)
        repeated = produce(side.bootstrap, "sequences", numbered(6))
    changed = {"sequences-0", "client-lz4-0", "out-of-order-0"}
    for name, answer in ours.answered.items():
        if name in changed:
            count = len(answer["records"])
            assert again_ours[name]["records"][:count] == answer["records"], name
        else:
            assert without_epochs(again_ours[name]) == without_epochs(answer), name
    assert repeated == (0, 6)
    assert again_ours["client-lz4-0"]["records"][-1][3] == "appended"


# --- Kafka's own --------------------------------------------------------------------------------

THEIRS = [one for one in scenarios.CLEAN if one.topic != "transaction-open"]
BUSY = {
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.threads": "1",
}
COMMITTED = [0, 1, 6, 10]  # beside an aborted transaction at 3 and 4, and an open one at 8 and 9


class Theirs(NamedTuple):
    """A Kafka that has been ended, and what it answered."""

    kafka: Kafka
    answered: dict[str, dict[str, Any]]


@pytest.fixture(scope="module", params=["stopped", "killed"])
def theirs(request, tmp_path_factory, java_client) -> Iterator[Theirs]:
    kafka = Kafka(tmp_path_factory.mktemp("theirs"), settings=BUSY)
    kafka.start()
    try:
        scenarios.create(kafka.bootstrap, THEIRS)
        for one in THEIRS:
            one.write(kafka.bootstrap, one.topic)
        scenarios.committed_offsets("their-group", "client-none")(kafka.bootstrap)
        running = Running(kafka.bootstrap)
        java_client.ask(running, "create", topic="java", config={"retention.ms": "-1"})
        now_ms = SystemClock().now_ms()

        def records(*values: str) -> list[list[Any]]:
            return [[now_ms, "k", value] for value in values]

        ends = [("commit", "ab"), ("abort", "cd"), ("commit", "e"), ("leave", "fg")]
        java_client.ask(
            running,
            "transact",
            topic="java",
            id="theirs",
            transactions=[{"end": end, "records": records(*values)} for end, values in ends],
        )
        java_client.ask(running, "produce", topic="java", records=records("h"))
        scenarios.settle()
        answered = told(kafka.bootstrap, THEIRS)
        kafka.stop() if request.param == "stopped" else kafka.kill()
        yield Theirs(kafka, answered)
    finally:
        kafka.kill()


def kafkas_own(log_dir: Path) -> dict[str, bytes]:
    """The files of the topics that Kafka keeps for itself."""
    return {str(path): path.read_bytes() for path in sorted(log_dir.glob("__*/*"))}


@pytest.mark.timeout(3600)
def test_we_serve_kafkas_and_append_and_kafka_serves_the_result(theirs, java_client):
    kafka = theirs.kafka
    was_clean = (kafka.log_dir / ".kafka_cleanshutdown").exists()
    before, own = logs_of(kafka.log_dir), kafkas_own(kafka.log_dir)
    before_appends_ms = SystemClock().now_ms()
    with horolog(directory=kafka.directory) as side:
        served = told(side.bootstrap, THEIRS)
        running = Running(side.bootstrap)
        committed = java_client.ask(running, "consume", topic="java", isolation="read_committed")
        everything = java_client.ask(running, "consume", topic="java")
        appended = {
            topic: append(side.bootstrap, topic, idempotent=idempotent)
            for topic, idempotent in (("client-gzip", True), ("compacted", False))
        }
        keyless = build_batch([LogRecord(SystemClock().now_ms(), None, b"v")])
        refused, _ = produce(side.bootstrap, "compacted", keyless)
    for name, answer in theirs.answered.items():
        ours = without_epochs(served[name])
        expected = without_epochs(answer)
        if name in {"compacted-0", "deleted-all-0"}:  # where Kafka is wrong: tests/golden
            for what in ("lookups", "max_timestamp"):
                del ours[what], expected[what]
        assert ours == expected, name
    assert [row["offset"] for row in committed["records"]] == COMMITTED
    assert [row["value"] for row in everything["records"]] == list("abcdefgh")
    assert refused == 87
    for topic, offset in appended.items():
        assert offset == theirs.answered[f"{topic}-0"]["latest"][0]
    after = logs_of(kafka.log_dir)
    assert all(after[name][: len(data)] == data for name, data in before.items())
    assert kafkas_own(kafka.log_dir) == own
    assert (kafka.log_dir / ".kafka_cleanshutdown").exists() is was_clean
    for _ in range(3):  # more often than Kafka's controller has raised the leader epoch
        with horolog(directory=kafka.directory) as side:
            appended["client-gzip"] = append(side.bootstrap, "client-gzip", idempotent=False)
            if not was_clean:
                side.kill()

    said = kafka.output.stat().st_size
    with kafka:
        scenarios.settle(2)
        again = told(kafka.bootstrap, THEIRS)
        late = java_client.ask(
            Running(kafka.bootstrap), "consume", topic="client-gzip", at=before_appends_ms
        )
    for name, answer in theirs.answered.items():
        records = again[name]["records"]
        if name == "compacted-0":
            continue  # it is compacted on
        assert records[: len(answer["records"])] == answer["records"], name
    for topic, offset in appended.items():
        assert again[f"{topic}-0"]["records"][-1][::3] == [offset, "appended"]
    assert [row["value"] for row in late["records"]] == ["appended"] * 4
    assert list(kafka.log_dir.glob("*-stray")) == []
    if was_clean:
        assert complaints(kafka, said) == []
    assert [path.name for path in partition_directories(kafka.log_dir) if "." in path.name] == []
