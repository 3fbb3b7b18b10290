"""What a broker's metrics say, each number against what was sent."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from metrics_page import Metrics, scrape
from overrides import override
from patience import eventually
from raw_connection import fetch_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker
from transactional import Producer

from horolog.broker import FAMILIES, ProcessNumbers, Scrape
from horolog.broker.health import KINDS
from horolog.client import CommittedOffset
from horolog.clock import ManualClock
from horolog.network import RequestTimes
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

TOPIC_METRICS = "kafka_server_brokertopicmetrics_"


broker = a_broker(horolog_metrics_port="0")


def send(broker: RunningBroker, topic: str, *times: int, partition: int = 0) -> bytes:
    batch = build_batch([LogRecord(each, None, b"v") for each in times])
    broker.produce(topic, batch, partition)
    return batch


def buckets(metrics: Metrics, topic: str) -> dict[str, float]:
    found = metrics.of("horolog_create_to_append_latency_milliseconds_bucket")
    return {
        dict(labels)["le"]: value for labels, value in found.items() if ("topic", topic) in labels
    }


def test_every_family_has_help_and_type_and_none_is_unknown(broker: RunningBroker) -> None:
    metrics = scrape(broker)
    assert metrics.kinds == {family.name: family.kind for family in FAMILIES}
    assert metrics.helps == {family.name: family.help for family in FAMILIES}


def test_records_and_bytes_are_exact_after_each_append_by_topic_and_of_all(
    broker: RunningBroker,
) -> None:
    broker.create_topic("one", 2)
    broker.create_topic("two")
    size = records = 0
    for number in range(1, 6):
        batch = send(broker, "one", *[NOW_MS] * number, partition=number % 2)
        size, records = size + len(batch), records + number
        metrics = scrape(broker)
        assert metrics.value(TOPIC_METRICS + "messagesin_total", topic="one") == records
        assert metrics.value(TOPIC_METRICS + "bytesin_total", topic="one") == size
        assert metrics.value(TOPIC_METRICS + "messagesin_total", topic="two") == 0
    other = send(broker, "two", NOW_MS)
    metrics = scrape(broker)
    assert metrics.value(TOPIC_METRICS + "messagesin_total") == records + 1
    assert metrics.value(TOPIC_METRICS + "bytesin_total") == size + len(other)
    assert metrics.value("kafka_log_log_size", topic="one") == size
    assert metrics.value("kafka_topic_partition_current_offset", topic="one") == records
    assert metrics.value("kafka_topic_partitions", topic="one") == 2


def test_a_deleted_topic_goes_and_the_sums_of_all_topics_stay(broker: RunningBroker) -> None:
    broker.create_topic("gone")
    batch = send(broker, "gone", NOW_MS, NOW_MS)
    with broker.connect() as connection:
        connection.ask(ApiKey.FETCH, 11, **fetch_fields("gone", {0: 0}))
        send(broker, "gone", NOW_MS * 1000)
        connection.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["gone"], timeout_ms=1000)
    metrics = scrape(broker)
    assert metrics.value(TOPIC_METRICS + "messagesin_total") == 2
    assert metrics.value(TOPIC_METRICS + "bytesin_total") == len(batch)
    assert metrics.value(TOPIC_METRICS + "bytesout_total") == len(batch)
    assert metrics.value(TOPIC_METRICS + "failedproducerequests_total") == 1
    assert not [key for key in metrics.samples if ("topic", "gone") in key[1]]


def test_bytes_out_are_those_of_records_in_fetch_responses(broker: RunningBroker) -> None:
    broker.create_topic("t")
    size = len(send(broker, "t", NOW_MS)) + len(send(broker, "t", NOW_MS))
    for times in (1, 2, 3):
        broker.fetch("t")
        metrics = scrape(broker)
        assert metrics.value(TOPIC_METRICS + "bytesout_total", topic="t") == times * size
    broker.fetch("unknown")
    assert metrics.value(TOPIC_METRICS + "bytesout_total") == 3 * size


def test_latencies_fall_into_buckets_whose_bounds_are_exact(broker: RunningBroker) -> None:
    broker.create_topic("t")
    ages = (0, 9, 10, 99, 100, 999, 1_000, 86_400_000 * 31, -5)
    send(broker, "t", *(NOW_MS - age for age in ages), -1)
    metrics = scrape(broker)
    found = buckets(metrics, "t")
    for bound in ("-1", "9", "99", "999", "9999", "+Inf"):
        assert found[bound] == sum(age <= float(bound) for age in ages), bound
    assert metrics.value("horolog_create_to_append_latency_milliseconds_count", topic="t") == 9
    assert metrics.value("horolog_future_records_total", topic="t") == 1
    assert metrics.value("horolog_untimed_records_total", topic="t") == 1
    broker.clock.advance("1h")
    send(broker, "t", NOW_MS)
    assert buckets(scrape(broker), "t")["9"] == found["9"]
    assert buckets(scrape(broker), "t")["86399999"] == found["86399999"] + 1


def test_refused_records_are_counted_by_reason_and_unit(broker: RunningBroker) -> None:
    broker.create_topic("t", message_timestamp_before_max_ms=str(86_400_000))
    send(broker, "t", NOW_MS, NOW_MS // 1000, NOW_MS // 1000)
    send(broker, "t", NOW_MS * 1_000)
    send(broker, "t", NOW_MS * 1_000_000, NOW_MS * 1_000_000)
    send(broker, "t", NOW_MS + 90_000_000)
    found = scrape(broker).of("horolog_refused_records_total")
    assert {(dict(k)["reason"], dict(k)["unit"]): v for k, v in found.items()} == {
        ("past", "seconds"): 2,
        ("future", "microseconds"): 1,
        ("future", "nanoseconds"): 2,
        ("future", ""): 1,
    }
    failed = TOPIC_METRICS + "failedproducerequests_total"
    assert scrape(broker).value(failed, topic="t") == 4
    send(broker, "unknown", NOW_MS)
    assert scrape(broker).value(failed) == 5
    assert scrape(broker).value(TOPIC_METRICS + "messagesin_total") == 0


def test_append_times_ahead_of_the_clock_are_shown_until_the_clock_has_caught_up(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("t", 2)
    name = "horolog_append_time_ahead_milliseconds"
    send(broker, "t", NOW_MS, partition=1)
    assert scrape(broker).value(name, topic="t") == 0
    clock.step("-1h")
    assert scrape(broker).value(name, topic="t") == 3_600_000
    found = scrape(broker, "?partitions=true")
    assert found.value(name, topic="t", partition=0) == 0
    assert found.value(name, topic="t", partition=1) == 3_600_000
    clock.step("2h")
    assert scrape(broker).value(name, topic="t") == 0


def test_partitions_are_shown_only_when_asked_for(broker: RunningBroker) -> None:
    broker.create_topic("t", 3)
    send(broker, "t", NOW_MS, NOW_MS, partition=2)
    assert not [key for key in scrape(broker).samples if "partition" in dict(key[1])]
    found = scrape(broker, "?partitions=true")
    current = "kafka_topic_partition_current_offset"
    assert [found.value(current, topic="t", partition=each) for each in range(3)] == [0, 0, 2]
    assert found.value("kafka_log_log_numlogsegments", topic="t", partition=1) == 1


def test_requests_are_counted_by_api_and_version_with_quantiles_of_their_times(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t")
    for _ in range(20):
        send(broker, "t", NOW_MS)
    with broker.connect() as connection:
        waiting = {**fetch_fields("t", {0: 20}), "max_wait_ms": 100, "min_bytes": 1}
        connection.ask(ApiKey.FETCH, 11, **waiting)
    metrics = scrape(broker)
    name = "kafka_network_requestmetrics_"
    assert metrics.value(name + "requests_total", request="Produce", version=9) == 20
    assert metrics.value(name + "requests_total", request="Fetch", version=11) == 1
    assert metrics.value(name + "totaltimems_count", request="Produce") == 20
    assert metrics.value(name + "totaltimems", request="Fetch", quantile="0.5") > 50
    assert metrics.value(name + "totaltimems", request="Produce", quantile="0.999") > 0


def test_requests_of_one_connection_in_any_order_are_counted_at_each_scrape(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t")
    rng, sent = random.Random(1), Counter[int]()

    def counted(version: int) -> float:
        name = "kafka_network_requestmetrics_requests_total"
        return scrape(broker).value(name, request="Fetch", version=version)

    with broker.connect() as connection:
        for number in range(60):
            version = rng.choice((10, 11, 11, 11))
            for _ in range(rng.randrange(1, 20)):
                connection.ask(ApiKey.FETCH, version, **fetch_fields("t", {0: 0}, max_wait_ms=0))
                sent[version] += 1
            if number % 10 == 9:
                assert {each: counted(each) for each in sent} == sent
        connection.ask(ApiKey.FETCH, 10, **fetch_fields("t", {0: 0}, max_wait_ms=0))
    assert eventually(lambda: not broker.service.connections)
    assert counted(10) == sent[10] + 1
    times = scrape(broker).of("kafka_network_requestmetrics_totaltimems")
    assert times[("quantile", "0.5"), ("request", "Fetch")] > 0


def test_conversions_are_counted_by_the_version_of_the_request(broker: RunningBroker) -> None:
    broker.create_topic("t")
    send(broker, "t", NOW_MS, NOW_MS)
    with broker.connect() as connection:
        for version in (2, 2, 3, 11):
            connection.ask(ApiKey.FETCH, version, **fetch_fields("t", {0: 0}))
    found = scrape(broker).of("horolog_message_conversions_total")
    assert found == {
        (("request", "Fetch"), ("version", "2")): 4,
        (("request", "Fetch"), ("version", "3")): 2,
    }
    conversions = TOPIC_METRICS + "fetchmessageconversions_total"
    assert scrape(broker).value(conversions, topic="t") == 6


def test_an_offline_partition_is_counted(make_broker: MakeBroker) -> None:
    broker = make_broker(horolog_metrics_port="0")
    broker.create_topic("t", 2)
    assert scrape(broker).value("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    broker.stop()
    directory = broker.log_dir / "t-1"
    for each in directory.iterdir():
        each.unlink()
    directory.rmdir()
    directory.write_text("no directory")
    broker.restart()
    metrics = scrape(broker)
    assert metrics.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 1
    assert metrics.value("kafka_server_replicamanager_partitioncount") == 1
    assert metrics.value("kafka_topic_partitions", topic="t") == 2


def test_others_have_their_turn_at_each_partition_and_counter_once_a_slice_is_over(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("many", 300)
    topics = [f"t{number}" for number in range(100)]  # more than labels are kept of
    for topic in topics:
        broker.create_topic(topic)
    process = broker.call(lambda: ProcessNumbers(broker.broker, broker.service.server))
    override(monkeypatch, "horolog.broker", SLICE_SECONDS=-1.0)
    turns, seen = 0, list[int]()
    is_over = threading.Event()

    class Topic(str):
        """A name that notes the turn in which it is written."""

        __slots__ = ()

        def __str__(self) -> str:
            seen.append(turns)
            return str.__str__(self)

    traffic = broker.broker.traffic
    for topic in map(Topic, topics):
        traffic.bytes_out.topics[topic] = traffic.failed_produce.topics[topic] = 1
        traffic.refused[topic, "past", ""] = traffic.deleted_bytes[topic, "expired"] = 1

    async def count() -> None:
        nonlocal turns
        while not is_over.is_set():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.run_coroutine_threadsafe(count(), broker.loop)
    before = broker.call(lambda: turns)
    assert broker.run(Scrape(broker.broker, RequestTimes(), process).text())
    assert broker.call(lambda: turns) - before >= 400
    assert len(set(seen)) == len(seen) == 400
    is_over.set()
    counting.result()
    broker.call(process.close)


def test_topics_of_a_cluster_that_is_followed_have_their_lag(
    broker: RunningBroker, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker.create_topic("one", 2)
    send(broker, "one", NOW_MS)
    shadow = make_broker(
        log_dir=tmp_path / "shadow",
        clock=broker.clock,
        node_id="2",
        horolog_follow=broker.address,
        horolog_metrics_port="0",
    )

    def is_here() -> bool:
        behind = scrape(shadow).of("horolog_follow_offsets_behind")
        return list(behind.values()) == [0] and shadow.log("one").log_end_offset == 1

    assert eventually(is_here)
    metrics = scrape(shadow)
    assert metrics.value("horolog_follow_lag_milliseconds", topic="one") == 0
    assert metrics.value("horolog_follow_stopped_partitions", topic="one") == 0
    assert metrics.value("kafka_server_replicamanager_leadercount") == 0
    assert metrics.value("kafka_server_replicamanager_partitioncount") == 2
    by_partition = scrape(shadow, "?partitions=true").of("horolog_follow_offsets_behind")
    assert list(by_partition.values()) == [0, 0]
    assert not scrape(broker).of("horolog_follow_offsets_behind")


def test_a_group_is_not_late_for_the_markers_of_transactions(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("t", retention_ms=str(3_600_000))
    of_g = {"consumergroup": "g", "topic": "t"}
    for committed in (1, 3):
        producer = Producer(broker)
        assert [producer.send("t"), producer.end()] == [0, 0]
        broker.run(broker.broker.transactions.settle())
        assert broker.log("t").log_end_offset == committed + 1
        broker.client.offset_commit("g", {("t", 0): CommittedOffset(committed - 1)})
        clock.advance("1m")
        assert scrape(broker).value("horolog_consumergroup_lag_milliseconds", **of_g) == 60_000
        broker.client.offset_commit("g", {("t", 0): CommittedOffset(committed)})
        for _ in range(2):
            clock.advance("1m")
            metrics = scrape(broker)
            assert metrics.value("kafka_consumergroup_lag", **of_g) == 1
            assert metrics.value("horolog_consumergroup_lag_milliseconds", **of_g) == 0
            assert metrics.value("horolog_consumergroup_unread_deleted_records", **of_g) == 0


def test_groups_have_their_lag_in_offsets_and_in_time_and_what_they_will_lose(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("t", 2, retention_ms=str(3_600_000))
    send(broker, "t", *[NOW_MS] * 5, partition=0)
    clock.advance("1m")
    send(broker, "t", *[NOW_MS] * 4, partition=1)
    clock.advance("1m")
    offsets = {("t", 0): CommittedOffset(5), ("t", 1): CommittedOffset(1)}
    broker.client.offset_commit("g", offsets)
    broker.client.offset_commit('odd "\\\n name', {("t", 0): CommittedOffset(2)})
    of_g = {"consumergroup": "g", "topic": "t"}
    metrics = scrape(broker)
    assert metrics.value("kafka_consumergroup_lag", **of_g) == 3
    assert metrics.value("kafka_consumergroup_lag_sum", **of_g) == 3
    assert metrics.value("kafka_consumergroup_current_offset", **of_g) == 6
    assert metrics.value("kafka_consumergroup_members", consumergroup="g") == 0
    assert metrics.value("horolog_consumergroup_lag_milliseconds", **of_g) == 60_000
    assert metrics.value("horolog_consumergroup_unread_deleted_records", **of_g) == 3
    first = "horolog_consumergroup_first_deleted_timestamp_milliseconds"
    assert metrics.value(first, **of_g) == NOW_MS + 3_600_001
    odd = {"consumergroup": 'odd "\\\n name', "topic": "t"}
    assert metrics.value("horolog_consumergroup_lag_milliseconds", **odd) == 120_000
    each = scrape(broker, "?partitions=true")
    assert each.value("kafka_consumergroup_lag", **of_g, partition=0) == 0
    assert each.value("kafka_consumergroup_lag", **of_g, partition=1) == 3
    broker.delete_records("t", 3, partition=1)
    metrics = scrape(broker)
    assert metrics.value("horolog_consumergroup_lost_records", **of_g) == 2
    assert metrics.value("horolog_consumergroup_unread_deleted_records", **of_g) == 1


def test_a_page_has_a_bound_and_says_how_much_it_lacks(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        broker.create_topic(f"t{number}")
    whole = scrape(broker)
    assert whole.value("horolog_metrics_left_out") == 0
    override(monkeypatch, "horolog.broker", MOST_SAMPLES=40)
    cut = scrape(broker)
    assert counted(cut) == 40
    assert cut.value("horolog_metrics_left_out") == counted(whole) - 40
    assert len(cut.of("horolog_health_problems")) == len(KINDS), "what alerts need most comes first"
    assert cut.value("kafka_controller_kafkacontroller_globaltopiccount") == 5


def counted(metrics: Metrics) -> int:
    """Samples with labels, and the counts of histograms."""
    return sum(
        1 for name, labels in metrics.samples if labels or name.endswith("milliseconds_count")
    )
