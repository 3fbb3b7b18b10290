"""Attempts of exactly-once sinks before Apache Kafka: its broker, its dump tool, and back."""

import shutil
from pathlib import Path

import pytest
from bench.sides import horolog
from handing_over import complaints, give_to_kafka
from tools.golden import answers, scenarios
from tools.golden.scenarios import Scenario
from tools.peers.kafka import NEWEST, Kafka

from horolog.client import Client
from horolog.client.queries import QueryBatch, TaskRows
from horolog.clock import SystemClock
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.batch import iter_headers
from horolog.record.builder import Record, build_batch, read_records

TOPIC = "attempts"
SCENARIO = Scenario(TOPIC, "of an exactly-once sink", scenarios.nothing)


def send(client: Client, batch: QueryBatch, sequence: int, *values: bytes, now_ms: int) -> int:
    producer_id, epoch = batch.producer_of(3)
    data = build_batch(
        [Record(now_ms, b"k", value) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    offset = client.produce(TOPIC, 0, data).base_offset
    assert offset is not None
    return offset


def values_of(client: Client) -> list[bytes | None]:
    fetched = client.fetch(TOPIC, 0, 0).records
    return [
        record.value
        for position, header in iter_headers(fetched)
        for record in read_records(fetched[position : position + header.size])
    ]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_kafka_serves_and_appends_to_attempts_and_a_retry_afterwards_doubles_nothing(
    tmp_path: Path, end: str
) -> None:
    now_ms = SystemClock().now_ms()
    with horolog(directory=tmp_path / "ours") as side, Client(side.bootstrap) as client:
        scenarios.create(side.bootstrap, [SCENARIO])
        earlier = client.begin_batch("q", 32_767, topics=[TOPIC])
        send(client, earlier, 0, b"earlier", now_ms=now_ms)
        batch = client.begin_batch("q", 32_768, topics=[TOPIC])
        send(client, batch, 0, b"a", b"b", now_ms=now_ms)
        if end == "killed":
            # Where no file of attempts was ever written, a Kafka in between loses them.
            side.kill()
        else:
            send(client, batch, 2, b"c", now_ms=now_ms)
    if end == "killed":
        with horolog(directory=tmp_path / "ours") as side, Client(side.bootstrap) as client:
            assert send(client, batch, 2, b"c", now_ms=now_ms) == 3
    dumped = answers.of_files(tmp_path / "ours" / "data", peer=NEWEST)
    assert dumped[f"{TOPIC}-0"]

    kafka = Kafka(tmp_path / "kafka")
    with kafka:
        scenarios.create(kafka.bootstrap, [SCENARIO])
        scenarios.settle(2)
    give_to_kafka(tmp_path / "ours" / "data", kafka)
    said = kafka.output.stat().st_size
    with kafka, Client(kafka.bootstrap) as client:
        scenarios.settle(2)
        assert values_of(client) == [b"earlier", b"a", b"b", b"c"]
        client.produce(TOPIC, 0, build_batch([Record(now_ms, None, b"by Kafka")]))
        with pytest.raises(RequestRefused, match=r"does not announce horolog\.exactly\.once") as no:
            client.begin_batch("q", 32_768, topics=[TOPIC])
        assert no.value.code is ErrorCode.unsupported_version
    assert complaints(kafka, said) == []
    answers.of_files(kafka.log_dir, peer=NEWEST)

    shutil.copytree(kafka.log_dir, tmp_path / "back" / "data")
    with horolog(directory=tmp_path / "back") as side, Client(side.bootstrap) as client:
        again = client.begin_batch("q", 32_768, topics=[TOPIC])
        assert send(client, again, 0, b"a", b"b", now_ms=now_ms) == 1
        assert send(client, again, 2, b"c", now_ms=now_ms) == 3
        with pytest.raises(RequestRefused, match="sends other rows"):
            send(client, again, 2, b"x", now_ms=now_ms)
        assert send(client, again, 3, b"d", now_ms=now_ms) == 5
        client.commit_batch("q", 32_768, 4, [TaskRows(3, {TOPIC: {0: 4}})])
        assert values_of(client) == [b"earlier", b"a", b"b", b"c", b"by Kafka", b"d"]
