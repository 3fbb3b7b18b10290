"""Topics of Apache Kafka archived and restored; the tasks run in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archive_reading import manifest_of
from confluent_kafka import Producer as Librdkafka
from in_process_spark import InProcessSpark
from log_reading import Read, schema_of
from tools.peers.kafka import Kafka

from horolog.client import Client
from horolog.jobs import archive, archived, check_archive, restore
from horolog.record import Codec, LogRecord, build_batch, iter_headers

NINE_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
COLUMNS = ("partition", "offset", "timestampMs", "timestampType", "key", "value", "headers")


def run(kafka: Kafka, tmp_path: Path, name: str, **more: Any) -> Any:
    where = {"archive": tmp_path / "archive", "state": tmp_path / "state"}
    return archive(InProcessSpark(), source=kafka.bootstrap, topics=name, **where | more)


def restored(tmp_path: Path) -> Path:
    where = {"target": tmp_path / "target", "state": tmp_path / "restoring"}
    done = restore(InProcessSpark(), archive=tmp_path / "archive", **where)
    assert done.refused == {}
    return tmp_path / "target"


def rows(**where: Any) -> list[dict[str, Any]]:
    found = Read(schema=schema_of(COLUMNS), **where).rows()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def of_broker(address: str, name: str) -> list[dict[str, Any]]:
    committed = {"kafka.isolation.level": "read_committed"}
    return rows(subscribe=name, kafka__bootstrap__servers=address, **committed)


def headers_of(address: str, name: str, partition: int = 0) -> list[Any]:
    with Client(address) as client:
        fetched = client.fetch(name, partition, 0, max_bytes=64 << 20)
    return [header._replace(batch_length=0, crc=0) for _, header in iter_headers(fetched.records)]


def batch(count: int, start_ms: int, **how: Any) -> bytes:
    headers = (("trace", b"1"), ("none", None))
    records = [LogRecord(start_ms + 7 * n, b"k%d" % n, b"v" * n, headers) for n in range(count)]
    return build_batch(records, **how)


def test_a_topic_of_kafka_comes_back_batch_by_batch(
    kafka: Kafka, make_broker: Any, topic: Callable[[str], str], tmp_path: Path
) -> None:
    name = topic("kept")
    with Client(kafka.bootstrap) as client:
        client.create_topics({name: 2}, configs={"retention.ms": "-1"})
        for number, codec in enumerate(Codec):
            for partition in (0, 1):
                start_ms = NINE_MS + number * HOUR_MS
                client.produce(name, partition, batch(50, start_ms, codec=codec))
    done = run(kafka, tmp_path, name)
    assert (done.records, done.refused) == (500, {})
    other = make_broker(log_dir=restored(tmp_path))
    assert of_broker(other.address, name) == of_broker(kafka.bootstrap, name)
    for partition in (0, 1):
        found = headers_of(other.address, name, partition)
        assert found == headers_of(kafka.bootstrap, name, partition)


def test_stamped_records_keep_their_create_times(
    kafka: Kafka, topic: Callable[[str], str], tmp_path: Path
) -> None:
    name = topic("stamped")
    configs = {"message.timestamp.type": "LogAppendTime"}
    with Client(kafka.bootstrap) as client:
        client.create_topics({name: 1}, configs=configs)
        for number in range(3):
            client.produce(name, 0, batch(10, NINE_MS + number))
    run(kafka, tmp_path, name)
    schema = schema_of(("offset", "timestampMs", "createTimeMs", "appendTimeMs"))
    target = restored(tmp_path)
    found = Read(target, schema=schema).rows()
    assert [row["createTimeMs"] for row in found[:10]] == [NINE_MS + 7 * n for n in range(10)]
    assert all(row["appendTimeMs"] == row["timestampMs"] for row in found)
    before = {row["offset"]: row["timestampMs"] for row in of_broker(kafka.bootstrap, name)}
    assert {row["offset"]: row["timestampMs"] for row in found} == before


def test_kafkas_transactions_are_settled(
    kafka: Kafka, make_broker: Any, topic: Callable[[str], str], tmp_path: Path
) -> None:
    name = topic("transactions")
    with Client(kafka.bootstrap) as client:
        client.create_topics({name: 1}, configs={"retention.ms": "-1"})
    producer = Librdkafka({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions()
    for outcome in ("commit", "abort", "commit", "abort"):
        producer.begin_transaction()
        for each in range(3):
            producer.produce(name, b"%d" % each)
        producer.flush()
        getattr(producer, f"{outcome}_transaction")()
    producer.begin_transaction()
    producer.produce(name, b"open")
    producer.flush()
    done = run(kafka, tmp_path, name)
    assert (done.records, done.ends) == (6, {f"{name}-0": 16})
    producer.commit_transaction()
    done = run(kafka, tmp_path, name)
    assert (done.records, done.ends) == (1, {f"{name}-0": 18})
    other = make_broker(log_dir=restored(tmp_path))
    assert of_broker(other.address, name) == of_broker(kafka.bootstrap, name)
    with Client(other.address) as client:
        assert client.produce(name, 0, batch(1, NINE_MS)).base_offset == 18


def test_a_deleted_beginning_is_said(
    kafka: Kafka, topic: Callable[[str], str], tmp_path: Path
) -> None:
    name = topic("deleted")
    with Client(kafka.bootstrap) as client:
        client.create_topics({name: 1}, configs={"retention.ms": "-1"})
        client.produce(name, 0, batch(10, NINE_MS))
        run(kafka, tmp_path, name)
        client.delete_topics([name])
        client.create_topics({name: 1}, configs={"retention.ms": "-1"})
        client.produce(name, 0, batch(5, NINE_MS))
    done = run(kafka, tmp_path, name)
    assert "deleted and created again" in done.refused[f"{name}-0"]
    assert manifest_of(tmp_path / "archive").partitions()


@pytest.mark.spark
def test_spark_archives_a_topic_of_kafka_and_joins_it(
    kafka: Kafka, topic: Callable[[str], str], tmp_path: Path, spark: Any
) -> None:
    name = topic("joined")
    with Client(kafka.bootstrap) as client:
        client.create_topics({name: 1}, configs={"retention.ms": "-1"})
        client.produce(name, 0, batch(10, NINE_MS))
        where = {"archive": tmp_path / "archive", "state": tmp_path / "state"}
        archive(spark, source=kafka.bootstrap, topics=name, **where)
        client.produce(name, 0, batch(5, NINE_MS + HOUR_MS))
    both = archived(spark, archive=tmp_path / "archive", source=kafka.bootstrap, topics=name)
    assert sorted(row.offset for row in both.collect()) == list(range(15))
    assert both.where(f"timestampMs >= {NINE_MS + HOUR_MS}").count() == 5
    assert check_archive(spark, archive=tmp_path / "archive").problems == {}
