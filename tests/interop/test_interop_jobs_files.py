"""The jobs on files, and loads of tables, with Apache Kafka: its directories, and as a target."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_runner import run_command
from handing_over import complaints, logs_of, told, without_epochs
from overrides import override
from raw_connection import RawConnection, produce_fields
from tools.golden import scenarios
from tools.peers.kafka import Kafka

from horolog import jobs
from horolog.client import EARLIEST, LATEST, Client
from horolog.record import LogRecord, build_batch, iter_headers, read_records
from horolog.wire import ApiKey

NAMES = {"client-none", "client-gzip", "client-zstd", "append-time", "out-of-order", "several"}
CHOSEN = [one for one in scenarios.CLEAN if one.topic in NAMES]
T0 = 1_600_000_000_000


def records_of(bootstrap: str, topic: str, partitions: int) -> list[LogRecord]:
    """The records of a topic, without the markers of transactions."""
    found: list[LogRecord] = []
    with Client(bootstrap) as client:
        for number in range(partitions):
            which = {(topic, number): EARLIEST}, {(topic, number): LATEST}
            start, end = (client.list_offsets(each)[topic, number] for each in which)
            offset = 0 if start is None else start.offset
            while end is not None and offset < end.offset:
                data = memoryview(client.fetch(topic, number, offset).records)
                for position, header in iter_headers(data):
                    batch = data[position : position + header.size]
                    records = () if header.is_control else read_records(batch)
                    found += [record for record in records if (record.offset or 0) >= offset]
                    offset = max(offset, header.next_offset)
    return found


@pytest.mark.spark
@pytest.mark.timeout(3600)  # Kafka is started three times
def test_kafka_serves_and_appends_to_what_the_jobs_indexed_and_converted(
    spark: Any, tmp_path: Path
) -> None:
    kafka = Kafka(tmp_path / "kafka")
    with kafka:
        scenarios.create(kafka.bootstrap, CHOSEN)
        for one in CHOSEN:
            one.write(kafka.bootstrap, one.topic)
        scenarios.settle(2)
        before = told(kafka.bootstrap, CHOSEN)
    topics = ",".join(sorted(NAMES))
    for path in kafka.log_dir.glob("*/*.*index"):
        if path.parent.name.rpartition("-")[0] in NAMES:
            path.unlink()
    assert not jobs.index(spark, kafka.log_dir, topics=topics).is_ok
    rebuilt = jobs.index(
        spark, kafka.log_dir, topics=topics, rebuild=True, state=tmp_path / "index"
    )
    assert rebuilt.is_ok
    assert jobs.index(spark, kafka.log_dir, topics=topics).is_ok
    for to in ("v1", "v2"):
        done = jobs.convert(
            spark, kafka.log_dir, to=to, topics=topics, zstd_as="gzip", state=tmp_path / to
        )
        assert done.is_ok, done.refused
        for name, data in logs_of(kafka.log_dir).items():
            if name.rpartition("-")[0] in NAMES:
                assert {header.magic for _, header in iter_headers(data)} <= {int(to[1])}, name
    assert jobs.index(spark, kafka.log_dir, topics=topics).is_ok
    said = kafka.output.stat().st_size
    with kafka:
        scenarios.settle(2)
        served = told(kafka.bootstrap, CHOSEN)
        for name, answer in before.items():
            records = [row[:4] for row in without_epochs(answer)["records"]]
            assert [row[:4] for row in served[name]["records"]] == records, name
        batch = build_batch([LogRecord(scenarios.T0_MS, b"k", b"appended")])
        with RawConnection(kafka.bootstrap, timeout_s=600) as connection:
            answer = connection.ask(
                ApiKey.PRODUCE, 9, **produce_fields("client-none", {0: batch}, acks=-1)
            )
        assert answer.responses[0].partition_responses[0].error_code == 0
    assert complaints(kafka, said) == []


@pytest.mark.spark
def test_a_table_is_loaded_into_kafka_once_although_the_load_is_stopped(
    spark: Any,
    kafka: Kafka,
    topic: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic("loaded")
    count = 5_000
    table = tmp_path / "t.parquet"
    pq.write_table(
        pa.table(
            {
                "id": pa.array(range(count), pa.int64()),
                "at": pa.array([T0 + 60_000 * (n * 37 % count) for n in range(count)], pa.int64()),
            }
        ),
        table,
    )
    asked = {
        "table": table,
        "target": kafka.bootstrap,
        "topic": name,
        "time": "at",
        "unit": "ms",
        "key": "id",
        "partitions": 3,
    }
    told = jobs.bootstrap(spark, **asked, dry_run=True)
    assert f"retention will delete {count} of the {count} records" in told.warnings[0]
    asked |= {"topic_settings": {"retention.ms": "-1"}, "state": tmp_path / "state"}
    module = sys.modules["horolog.jobs.loading.run"]
    mirror = module.mirror

    def stopped(*arguments: Any, **named: Any) -> Any:
        mirror(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        override(patch, "horolog.jobs.loading.run", mirror=stopped)
        with pytest.raises(KeyboardInterrupt):
            jobs.bootstrap(spark, **asked)
    done = jobs.bootstrap(spark, **asked)
    assert done.is_ok
    records = records_of(kafka.bootstrap, name, 3)
    assert len(records) == count
    assert {(record.key, record.timestamp) for record in records} == {
        (b"%d" % n, T0 + 60_000 * (n * 37 % count)) for n in range(count)
    }


@pytest.mark.spark
def test_kafkas_bounds_and_types_are_known_beforehand(
    spark: Any, kafka: Kafka, topic: Callable[[str], str], tmp_path: Path
) -> None:
    name = topic("bounded")
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"at": pa.array([-5_000, T0, T0 + 1], pa.int64())}), table)
    asked = {"table": table, "target": kafka.bootstrap, "topic": name, "time": "at", "unit": "ms"}
    settings = {
        "message.timestamp.before.max.ms": "86400000",
        "message.timestamp.type": "CreateTime",
    }
    with Client(kafka.bootstrap) as client:
        client.create_topics({name: 1}, configs=settings)
    told = jobs.bootstrap(spark, **asked, state=tmp_path / "a")
    assert "3 records are older than message.timestamp.before.max.ms=86400000" in told.problems[0]
    assert any("before 1970" in each for each in told.warnings)
    assert records_of(kafka.bootstrap, name, 1) == []
    stamped, compacted = topic("stamped"), topic("compacted")
    with Client(kafka.bootstrap) as client:
        client.create_topics({stamped: 1}, configs={"message.timestamp.type": "LogAppendTime"})
        client.create_topics({compacted: 1}, configs={"cleanup.policy": "compact"})
    told = jobs.bootstrap(spark, **{**asked, "topic": stamped}, dry_run=True)
    assert "would replace the times" in told.problems[0]
    told = jobs.bootstrap(spark, **{**asked, "topic": compacted}, dry_run=True)
    assert "is compacted: name a key" in "".join(told.problems)


def test_kafka_is_replayed_to_kafka_in_time_order(
    kafka: Kafka, topic: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = topic("source"), topic("target")
    with Client(kafka.bootstrap) as client:
        client.create_topics({source: 2, target: 1}, configs={"retention.ms": "-1"})
        for number in range(2):
            for place in (*range(10, 20), *range(10)):
                batch = build_batch([LogRecord(T0 + 100 * place + 50 * number, None, b"x")])
                client.appends.append({(source, number): batch}, {})
    command = [
        *("replay", "--source", kafka.bootstrap, "--target", kafka.bootstrap, "--topics", source),
        *("--to-topic", target, "--by-key", "--speed", "100", "--state", tmp_path / "state"),
    ]
    for _ in range(2):
        ran = run_command(*command)
        assert ran.code == 0, ran
    times = [record.timestamp for record in records_of(kafka.bootstrap, target, 1)]
    assert times == [T0 + 50 * place for place in range(40)]
