"""Audit, latency, failover and reprocess of Apache Kafka's topics and segment files."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from kafka_clients import kafka as kafka_python
from kafka_clients import subscribe_knowing
from patience import PATIENCE_S, eventually
from running_broker import MakeBroker, RunningBroker
from tools.peers.kafka import Kafka

from horolog import jobs
from horolog.client import Client, CommittedOffset
from horolog.record import Codec, LogRecord, build_batch
from horolog.sources import scan

pytestmark = pytest.mark.spark

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ANY = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
STAMPED = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}


def now_ms() -> int:
    return int(time.time() * 1000)  # noqa: TID251 - Kafka has the machine's clock


@pytest.fixture
def ours(make_broker: MakeBroker) -> "RunningBroker":
    return make_broker()


def produce(bootstrap: str, topic: str, times: list[int], codec: Codec = Codec.NONE) -> None:
    with Client(bootstrap) as client:
        for start in range(0, len(times), 10):
            some = [LogRecord(each, b"k", b"%d" % each) for each in times[start : start + 10]]
            client.produce(topic, 0, build_batch(some, codec=codec))


def create(bootstrap: str, topic: str, **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with Client(bootstrap) as client:
        client.create_topics({topic: 1}, configs={**ANY, **named})


def test_times_of_a_create_time_topic_are_compared_with_now(
    spark: Any, kafka: Kafka, topic: Callable[[str], str]
) -> None:
    name, now = topic("audited"), now_ms()
    create(kafka.bootstrap, name)
    odd = [-1, now // 1000, now * 1000, now + 2 * DAY_MS, now - 3 * DAY_MS]
    produce(kafka.bootstrap, name, [now - 50_000 + n for n in range(30)] + odd, Codec.ZSTD)
    for source in (kafka.bootstrap, str(kafka.log_dir)):
        rows = jobs.audit(spark, source=source, topics=name, before_max_ms=DAY_MS).collect()
        assert {row.compared_with for row in rows} == {"now"}
        total = {
            each: sum(row[each] for row in rows)
            for each in ("records", "untimed", "in_seconds", "in_microseconds", "future", "past")
        }
        assert total == {
            "records": 35, "untimed": 1, "in_seconds": 1, "in_microseconds": 1,
            "future": 2, "past": 2,
        }  # fmt: skip
        assert sum(row.out_of_order for row in rows) == 1


def test_latencies_of_a_log_append_time_topic_come_from_the_times_left_in_the_batches(
    spark: Any, kafka: Kafka, topic: Callable[[str], str]
) -> None:
    name, now = topic("stamped"), now_ms()
    create(kafka.bootstrap, name, message_timestamp_type="LogAppendTime")
    for codec in (Codec.NONE, Codec.LZ4):
        produce(kafka.bootstrap, name, [now - 5_000, now - 90_000, now + HOUR_MS], codec)
    for source in (kafka.bootstrap, str(kafka.log_dir)):
        row = jobs.latency(spark, source=source, topics=name).where("is_total").first()
        assert (row.measured, row.negative, row.not_appended) == (6, 2, 0)
        assert -HOUR_MS <= row.min_ms < -HOUR_MS + 1_000 * PATIENCE_S
        assert 90_000 <= row.max_ms < 90_000 + 1_000 * PATIENCE_S
    audited = jobs.audit(spark, source=kafka.bootstrap, topics=name).collect()
    assert {row.compared_with for row in audited} == {"append time"}


def test_a_create_time_topic_cannot_tell_and_is_measured_live(
    spark: Any, kafka: Kafka, topic: Callable[[str], str]
) -> None:
    name = topic("blind")
    create(kafka.bootstrap, name)
    produce(kafka.bootstrap, name, [now_ms()])
    command = ("spark", "latency", "--source", kafka.bootstrap, "--topics", name)
    blind = run_command(*command)
    assert (blind.code, "Apache Kafka does not store when" in blind.err) == (1, True)
    with appending(kafka.bootstrap, name):
        live = run_command(*command, "--live", "3s", "--json")
    assert live.code == 0, live.err
    (row,) = live.json["topics"]
    assert row["measure"] == "clock of the reader - create time"
    assert 2_000 <= row["min_ms"] < 2_000 + 1_000 * PATIENCE_S


class appending:  # noqa: N801 - a context manager
    """Appends records that are two seconds old, again and again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._append, args=(bootstrap, topic))

    def _append(self, bootstrap: str, topic: str) -> None:
        while not self._ended.wait(0.2):
            produce(bootstrap, topic, [now_ms() - 2_000])

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)


@pytest.mark.parametrize("from_kafka", [True, False])
def test_groups_fail_over_between_kafka_and_horolog(
    spark: Any,
    kafka: Kafka,
    ours: "RunningBroker",
    topic: Callable[[str], str],
    tmp_path: Path,
    from_kafka: bool,
) -> None:
    name, group = topic("moved"), topic("group")
    source, target = kafka.bootstrap, ours.address
    if not from_kafka:
        source, target = target, source
    for each in (source, target):
        create(each, name)
    now = now_ms()
    times = [now - 600_000 + 1_000 * number for number in range(500)]
    produce(source, name, times)
    swapped = [times[at ^ 1] for at in range(len(times))]
    produce(target, name, swapped)
    with Client(source) as client:
        client.offset_commit(group, {(name, 0): CommittedOffset(401)})
    steps = jobs.failover(spark, state=tmp_path / "state")
    with appending(source, name):
        recorded = steps.record(source=source, groups=[group], topics=name, live_ms=3_000)
    bound = recorded.bounds[name]
    assert bound.latency_by == ("reader" if from_kafka else "append time")
    assert recorded.broker_counts == ({name: False} if from_kafka else {})
    assert bound.latency_ms is not None
    assert bound.latency_ms >= 2_000
    plan = steps.plan(target=target, bound_ms=2_000_000, margin_ms=0)
    assert plan.starts[0].offsets == {0: 0}
    plan = steps.plan(target=target, margin_ms=0)
    (start,) = plan.starts
    assert plan.is_proven
    # In the target 400 is behind 401, the first that is unread. horolog knows that these records
    # were ten minutes old when they were appended, and Kafka does not.
    first = 400 if from_kafka else 0
    assert start.offsets == {0: first}
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=target, group_id=group)
    try:
        subscribe_knowing(consumer, name)
        assert eventually(lambda: bool(consumer.poll(100) or consumer.assignment()))
        (refused,) = steps.apply(target=target)
        assert "has members" in str(refused.error)
    finally:
        consumer.close(autocommit=False)
    (applied,) = steps.apply(target=target)
    assert applied.error is None
    with Client(target) as client:
        committed = client.offset_fetch(group)[name, 0]
        assert committed is not None
        assert committed.offset == first
        left = scan(client, name).read_all().column("timestamp_ms").to_pylist()[400:]
    assert set(times[401:]) <= set(left)


def test_a_range_of_kafkas_records_is_reprocessed_into_a_table_and_into_horolog(
    spark: Any, kafka: Kafka, ours: "RunningBroker", topic: Callable[[str], str], tmp_path: Path
) -> None:
    name, now = topic("again"), now_ms()
    create(kafka.bootstrap, name)
    times = [now - (number * 7_919) % 1_000 * 1_000 for number in range(400)]
    produce(kafka.bootstrap, name, [*times, -1], Codec.GZIP)
    from_ms = now - 500_000
    expected = sorted(each for each in times if each >= from_ms)
    given: dict[str, Any] = {"source": kafka.bootstrap, "topics": name, "from_": from_ms}
    done = jobs.reprocess(spark, **given, table=tmp_path / "table", state=tmp_path / "one")
    assert done.records == len(expected)
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row.timestampMs for row in rows) == expected
    moved = jobs.reprocess(spark, **given, target=ours.address, state=tmp_path / "two")
    assert (moved.records, moved.errors) == (len(expected), ())
    with Client(ours.address) as client:
        found = scan(client, name).read_all().column("timestamp_ms").to_pylist()
    assert sorted(found) == expected
