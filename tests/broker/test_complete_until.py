"""What may still come: the bound on create times, and values that are complete."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from faulty_calls import full_disk
from metrics_page import scrape
from old_messages import build_messages
from patience import eventually
from raw_connection import RawConnection, produce_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker
from transactional import end, init, write

from horolog.client import Client, ResourceType
from horolog.clock import HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock
from horolog.errors import ErrorCode, StorageFailed
from horolog.metadata import MetadataStore
from horolog.record import Codec, LogRecord, build_batch
from horolog.wire import TIMES, ApiKey, AskTimes, PartitionTimes, Withdrawn

BOUND = {"message_timestamp_before_max_ms": str(MINUTE_MS)}

broker = a_broker("t", partitions=2, of_topics=BOUND, horolog_metrics_port="0")


def rows(ms: int, value: bytes = b"v") -> list[LogRecord]:
    return [LogRecord(ms, b"k", value)]


def sent(broker: RunningBroker, batch: bytes, version: int = 9) -> int:
    return int(broker.produce("t", batch, version=version).error_code)


def in_transaction(broker: RunningBroker, ms: int) -> int:
    return write(broker, init(broker), version=12, time_ms=ms)


DOORS: dict[str, Callable[[RunningBroker, int], int]] = {
    "on the event loop": lambda broker, ms: sent(broker, build_batch(rows(ms))),
    "in a thread": lambda broker, ms: sent(
        broker, build_batch(rows(ms, bytes(300_000)), codec=Codec.GZIP)
    ),
    "in a transaction": in_transaction,
    "as a message of v1": lambda broker, ms: sent(broker, build_messages(rows(ms), 1), 2),
    "as compressed messages": lambda broker, ms: sent(
        broker, build_messages(rows(ms), 1, codec=Codec.SNAPPY), 2
    ),
}


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("door", DOORS)
def test_what_was_too_early_before_a_clock_was_set_back_stays_so(
    broker: RunningBroker, clock: ManualClock, door: str, is_early: bool
) -> None:
    clock.step("10m")
    assert sent(broker, build_batch(rows(clock.now_ms()))) == 0
    clock.step("-10m")
    earliest_ms = NOW_MS + 9 * MINUTE_MS
    error = DOORS[door](broker, earliest_ms - is_early)
    assert error == (ErrorCode.invalid_timestamp if is_early else 0)


def tick(broker: RunningBroker) -> None:
    """What a broker does each second."""
    broker.run(broker.broker.partitions.keep_stamp_clock())


def times(broker: RunningBroker, partition: int = 0, topic: str = "t") -> PartitionTimes:
    return broker.client.ask.needed(TIMES, topic, AskTimes(partition, sums=False))


def until(broker: RunningBroker, partition: int = 0, topic: str = "t") -> int | Withdrawn | None:
    """The value, or why there is none."""
    found = times(broker, partition, topic)
    if found.complete_until_ms is None:
        assert found.committed_complete_until_ms is None
        return found.complete_withdrawn
    return found.complete_until_ms


def committed(broker: RunningBroker) -> int | None:
    return times(broker).committed_complete_until_ms


def alter(broker: RunningBroker, topic: str = "t", **settings: str) -> None:
    changes = {name.replace("_", "."): value for name, value in settings.items()}
    broker.client.alter_configs({(ResourceType.TOPIC, topic): changes})


def test_a_value_is_the_clock_on_the_disk_less_the_bound_in_idle_partitions_too(
    broker: RunningBroker, clock: ManualClock
) -> None:
    tick(broker)
    assert [until(broker, index) for index in (0, 1)] == [NOW_MS - MINUTE_MS] * 2
    clock.step("10s")
    tick(broker)
    assert until(broker) == NOW_MS - 50 * SECOND_MS
    clock.step("-1h")
    tick(broker)
    assert until(broker) == NOW_MS - 50 * SECOND_MS
    for crash in (True, False):
        broker.restart(crash=crash)
        assert until(broker, 1) == NOW_MS - 50 * SECOND_MS
    assert sent(broker, build_batch(rows(NOW_MS - 50 * SECOND_MS))) == 0
    assert sent(broker, build_batch(rows(NOW_MS - 50 * SECOND_MS - 1))) == 32


def test_a_topic_with_append_times_is_complete_up_to_their_clock(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    clock.step("5s")
    tick(broker)
    assert until(broker, topic="stamped") == NOW_MS + 5 * SECOND_MS
    clock.step("-1h")
    answer = broker.produce("stamped", build_batch(rows(5)))
    assert answer.log_append_time_ms == NOW_MS + 5 * SECOND_MS


def test_there_is_no_value_without_a_bound_nor_for_topics_of_others(
    broker: RunningBroker, clock: ManualClock, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker.create_topic("free")
    assert until(broker, topic="free") is Withdrawn.NO_BOUND
    broker.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    shadow = make_broker(
        log_dir=tmp_path / "shadow", clock=clock, horolog_follow=broker.address, node_id="2"
    )
    assert eventually(lambda: shadow.broker.topics.find("t") is not None)
    assert until(shadow) is Withdrawn.FOLLOWED
    shadow.client.promote(["t"])
    tick(shadow)
    assert until(shadow) == NOW_MS - MINUTE_MS
    shadow.stop()
    (shadow.log_dir / "t-0").rename(tmp_path / "t-0")
    adopting = make_broker(log_dir=tmp_path / "other", clock=clock, node_id="3")
    adopting.stop()
    (tmp_path / "t-0").rename(adopting.log_dir / "t-0")
    adopting.restart()
    assert until(adopting) is Withdrawn.ADOPTED
    alter(adopting, **BOUND)
    assert until(adopting) == NOW_MS - MINUTE_MS


def test_a_raised_bound_withdraws_until_the_last_value_is_passed(
    broker: RunningBroker, clock: ManualClock
) -> None:
    tick(broker)
    last_ms = until(broker)
    assert last_ms == NOW_MS - MINUTE_MS
    alter(broker, message_timestamp_before_max_ms=str(2 * MINUTE_MS))
    assert sent(broker, build_batch(rows(last_ms - 1))) == 0  # what the value has excluded
    assert until(broker) is Withdrawn.BOUND_RAISED
    clock.step(MINUTE_MS - 1)
    tick(broker)
    broker.restart(crash=True)
    assert until(broker) is Withdrawn.BOUND_RAISED
    clock.step(1)
    tick(broker)
    assert until(broker) == last_ms
    broker.restart()
    assert until(broker) == last_ms
    alter(broker, message_timestamp_before_max_ms=str(1000))  # lowered: more is complete at once
    assert until(broker) == NOW_MS + MINUTE_MS - 1000


def test_a_bound_that_was_taken_away_withdraws_when_it_comes_back(
    broker: RunningBroker, clock: ManualClock
) -> None:
    tick(broker)
    last_ms = until(broker)
    resource = (ResourceType.TOPIC, "t")
    broker.client.alter_configs({resource: {"message.timestamp.before.max.ms": None}})
    assert until(broker) is Withdrawn.NO_BOUND
    assert sent(broker, build_batch(rows(5))) == 0
    alter(broker, message_timestamp_before_max_ms=str(HOUR_MS))
    assert until(broker) is Withdrawn.BOUND_RAISED
    clock.step(59 * MINUTE_MS)
    tick(broker)
    assert until(broker) == last_ms


def test_batches_that_came_before_there_was_a_bound_only_delay_the_first_value(
    broker: RunningBroker, clock: ManualClock
) -> None:
    """`horolog wait` gives up a topic without a bound."""
    broker.create_topic("free")
    tick(broker)
    is_free = threading.Event()

    async def hold() -> None:
        broker.broker.led("free", 0).writes.run(is_free.wait)

    broker.run(hold())
    with RawConnection(broker.address) as waiting:
        batch = build_batch(rows(5))
        waiting.send(ApiKey.PRODUCE, 9, **produce_fields("free", {0: batch}))
        queue = broker.broker.led("free", 0).writes
        assert eventually(lambda: queue.earliest_ms() is None)
        alter(broker, "free", **BOUND)
        found = until(broker, topic="free")
        is_free.set()
        assert found is Withdrawn.BOUND_RAISED
        assert waiting.receive()[1].responses[0].partition_responses[0].error_code == 0
    assert until(broker, topic="free") == NOW_MS - MINUTE_MS


def test_a_bound_of_the_broker_withdraws_while_it_runs_and_over_a_restart(
    make_broker: MakeBroker, clock: ManualClock
) -> None:
    setting = "log.message.timestamp.before.max.ms"
    broker = make_broker(clock=clock, **{setting.replace(".", "_"): "1000"})
    broker.create_topic("t")
    broker.create_topic("own", message_timestamp_before_max_ms="1000")
    tick(broker)
    assert until(broker) == NOW_MS - 1000
    whole = (ResourceType.BROKER, "")
    broker.client.alter_configs({whole: {setting: "2000"}})
    assert until(broker) is Withdrawn.BOUND_RAISED
    assert until(broker, topic="own") == NOW_MS - 1000
    clock.step(1000)
    tick(broker)
    assert until(broker) == NOW_MS - 1000
    broker.client.alter_configs({whole: {setting: None}})
    assert until(broker) == NOW_MS  # lowered again
    broker.restart(crash=True, **{setting.replace(".", "_"): "5000"})
    assert until(broker) is Withdrawn.BOUND_RAISED
    assert until(broker, topic="own") == NOW_MS
    clock.step(4000)
    tick(broker)
    assert until(broker) == NOW_MS


def test_a_reset_withdraws_until_the_clock_is_past_where_it_was(
    broker: RunningBroker, clock: ManualClock
) -> None:
    clock.step("10m")
    tick(broker)
    last_ms = until(broker)
    clock.step("-10m")
    broker.client.topics.reset_append_times("t")
    assert sent(broker, build_batch(rows(NOW_MS))) == 0
    assert until(broker) is Withdrawn.RESET
    broker.restart(crash=True)
    assert until(broker) is Withdrawn.RESET
    clock.step("10m")
    tick(broker)
    assert until(broker) is Withdrawn.RESET
    clock.step(1)
    tick(broker)
    assert until(broker) == last_ms + 1


def test_a_reset_that_the_disk_refuses_sets_nothing_back(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a kill would forget that values were withdrawn, and not the records."""
    clock.step("10m")
    tick(broker)
    clock.step("-10m")
    with monkeypatch.context() as patch:
        full_disk(patch)
        for _ in range(2):
            with pytest.raises(StorageFailed):
                broker.run(broker.broker.partitions.lower_stamp_clock())
    assert sent(broker, build_batch(rows(NOW_MS))) == ErrorCode.invalid_timestamp


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_bound_that_is_raised_after_a_reset_withdraws_what_was_given_before_it(
    make_broker: MakeBroker, clock: ManualClock, is_restarted: bool
) -> None:
    name = "log_message_timestamp_before_max_ms"
    broker = make_broker(clock=clock, **{name: str(MINUTE_MS)})
    broker.create_topic("t")
    clock.step("10m")
    tick(broker)
    last_ms = until(broker)
    assert last_ms == NOW_MS + 9 * MINUTE_MS
    clock.step("-10m")
    broker.client.topics.reset_append_times("t")
    if is_restarted:
        broker.restart(crash=True, **{name: str(2 * MINUTE_MS)})
    else:
        alter(broker, message_timestamp_before_max_ms=str(2 * MINUTE_MS))
    clock.step(10 * MINUTE_MS + 1)
    tick(broker)
    assert until(broker) is Withdrawn.BOUND_RAISED
    clock.step(MINUTE_MS)
    tick(broker)
    assert until(broker) == last_ms + 1


def test_a_bound_of_the_broker_that_was_not_stored_withdraws_once_it_is_started_with(
    make_broker: MakeBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = "log.message.timestamp.before.max.ms"
    broker = make_broker(clock=clock, **{setting.replace(".", "_"): "1000"})
    broker.create_topic("t")
    tick(broker)
    with monkeypatch.context() as patch:
        full_disk(patch)
        change = {"name": setting, "config_operation": 0, "value": "5000"}
        whole = {"resource_type": ResourceType.BROKER, "resource_name": "", "configs": [change]}
        answer = broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[whole])
        assert answer.responses[0].error_code == ErrorCode.kafka_storage_error
    clock.step("10s")
    tick(broker)
    assert until(broker) == NOW_MS + 9 * SECOND_MS
    broker.restart(crash=True, **{setting.replace(".", "_"): "5000"})
    assert until(broker) is Withdrawn.BOUND_RAISED


def test_a_bound_of_the_broker_that_replaces_a_deprecated_one_withdraws(
    make_broker: MakeBroker, clock: ManualClock
) -> None:
    broker = make_broker(clock=clock)
    broker.create_topic("t", message_timestamp_difference_max_ms="1000")
    broker.create_topic("own", message_timestamp_before_max_ms="1000")
    tick(broker)
    assert until(broker) == NOW_MS - 1000
    broker.restart(log_message_timestamp_before_max_ms="5000")
    assert until(broker) is Withdrawn.BOUND_RAISED
    assert until(broker, topic="own") == NOW_MS - 1000
    clock.step("10s")
    tick(broker)
    assert until(broker) == NOW_MS + 5 * SECOND_MS
    broker.restart(log_message_timestamp_before_max_ms="7000")
    assert until(broker) is Withdrawn.BOUND_RAISED


def test_readers_of_committed_records_wait_for_what_is_behind_an_open_transaction(
    broker: RunningBroker, clock: ManualClock
) -> None:
    assert sent(broker, build_batch(rows(NOW_MS - 50 * SECOND_MS))) == 0
    producer = init(broker)
    assert write(broker, producer, version=12, time_ms=NOW_MS - 40 * SECOND_MS, count=3) == 0
    tick(broker)
    assert (until(broker), committed(broker)) == (NOW_MS - MINUTE_MS, NOW_MS - MINUTE_MS)
    clock.step("59s")
    tick(broker)
    assert (until(broker), committed(broker)) == (NOW_MS - SECOND_MS, NOW_MS - 40 * SECOND_MS)
    early = NOW_MS - SECOND_MS  # of no transaction, and not visible before its end either
    assert sent(broker, build_batch(rows(early))) == 0
    assert committed(broker) == NOW_MS - 40 * SECOND_MS
    clock.step("59s")
    tick(broker)
    assert write(broker, producer, sequence=3, version=12) == 0
    assert committed(broker) == NOW_MS - 40 * SECOND_MS
    assert end(broker, producer) == 0
    assert committed(broker) == until(broker) == NOW_MS + 58 * SECOND_MS


def test_a_record_of_no_transaction_counts_where_it_is_not_visible_yet(
    broker: RunningBroker, clock: ManualClock
) -> None:
    assert write(broker, init(broker), version=12) == 0
    assert sent(broker, build_batch(rows(NOW_MS - MINUTE_MS))) == 0
    clock.step("5m")
    tick(broker)
    assert committed(broker) == NOW_MS - MINUTE_MS


def test_the_command_shows_the_least_and_why_there_is_none(
    broker: RunningBroker, clock: ManualClock
) -> None:
    at = {"HOROLOG_BOOTSTRAP": broker.address}
    tick(broker)
    found = run_command("times", "t", "--json", **at).json
    assert found["complete_until_ms"] == found["committed_complete_until_ms"] == NOW_MS - MINUTE_MS
    assert found["complete_withdrawn"] is None
    assert [its["complete_until_ms"] for its in found["partitions"]] == [NOW_MS - MINUTE_MS] * 2
    assert run_command("times", "t", **at).lines[0] == "complete until 2023-11-14T22:12:20.000Z"
    assert write(broker, init(broker), version=12, time_ms=NOW_MS - MINUTE_MS) == 0
    clock.step("1m")
    tick(broker)
    shown = run_command("times", "t", **at).lines
    assert shown[:2] == [
        "complete until 2023-11-14T22:13:20.000Z",
        "for readers of committed records until 2023-11-14T22:12:20.000Z",
    ]
    broker.create_topic("free")
    ran = run_command("times", "free", **at)
    assert ran.code == 0
    assert "message.timestamp.before.max.ms" in ran.lines[0]
    found = run_command("times", "free", "--json", **at).json
    assert (found["complete_until_ms"], found["complete_withdrawn"]) == (None, "no bound")


def test_the_metric_has_the_least_and_each_partition(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("free")
    tick(broker)
    name = "horolog_topic_complete_until_milliseconds"
    assert scrape(broker).of(name) == {(("topic", "t"),): NOW_MS - MINUTE_MS}
    each = scrape(broker, "?partitions=true").of(name)
    assert each == {
        (("partition", index), ("topic", "t")): NOW_MS - MINUTE_MS for index in ("0", "1")
    }


def test_no_value_is_given_while_a_raised_bound_is_being_stored(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes on meanwhile: a value of then would be larger than what is withdrawn."""
    tick(broker)
    last_ms = until(broker)
    seen: list[object] = []
    put_topic = MetadataStore.put_topic

    def slow(*args: Any) -> None:
        clock.step("5s")
        tick(broker)
        with Client(broker.address) as other:
            found = other.ask.needed(TIMES, "t", AskTimes(0, sums=False))
        seen.append(found.complete_withdrawn)
        put_topic(*args)

    monkeypatch.setattr(MetadataStore, "put_topic", slow)
    alter(broker, message_timestamp_before_max_ms=str(2 * MINUTE_MS))
    assert seen == [Withdrawn.BOUND_RAISED]
    clock.step("54s")
    tick(broker)
    assert until(broker) is Withdrawn.BOUND_RAISED
    clock.step("1s")
    tick(broker)
    assert until(broker) == last_ms


def test_what_was_led_elsewhere_meanwhile_is_withdrawn(
    broker: RunningBroker, clock: ManualClock, make_broker: MakeBroker, tmp_path: Path
) -> None:
    other = make_broker(
        log_dir=tmp_path / "other", clock=clock, horolog_follow=broker.address, node_id="2"
    )
    assert eventually(lambda: other.broker.topics.find("t") is not None)
    clock.step("10s")
    tick(broker)
    last_ms = until(broker)
    assert last_ms == NOW_MS - 50 * SECOND_MS
    clock.step("-10s")
    other.client.promote(["t"])
    broker.demote(other, "t")
    assert until(broker) is Withdrawn.FOLLOWED
    assert sent(other, build_batch(rows(NOW_MS - MINUTE_MS))) == 0  # by its own clock
    broker.client.promote(["t"])
    tick(broker)
    assert until(broker) in (last_ms, Withdrawn.FOLLOWED)
    for crash in (False, True):
        broker.restart(crash=crash)
        clock.step("10s")
        tick(broker)
        found = until(broker)
        assert found is Withdrawn.FOLLOWED or found >= last_ms


def test_what_was_given_before_a_reset_is_withdrawn_where_it_is_led_elsewhere_since(
    broker: RunningBroker, clock: ManualClock, make_broker: MakeBroker, tmp_path: Path
) -> None:
    other = make_broker(
        log_dir=tmp_path / "other", clock=clock, horolog_follow=broker.address, node_id="2"
    )
    assert eventually(lambda: other.broker.topics.find("t") is not None)
    clock.step("10m")
    tick(broker)
    last_ms = until(broker)
    clock.step("-10m")
    broker.client.topics.reset_append_times("t")
    other.client.promote(["t"])
    broker.demote(other, "t")
    alter(other, message_timestamp_before_max_ms=str(2 * MINUTE_MS))
    followed = broker.log("t", 0)
    assert eventually(lambda: followed.config.earliest_ms(0) == -2 * MINUTE_MS)
    broker.client.promote(["t"])
    clock.step(10 * MINUTE_MS + 1)
    tick(broker)
    assert until(broker) is Withdrawn.FOLLOWED
    clock.step("1m")
    tick(broker)
    assert until(broker) == last_ms + 1


def test_a_deleted_topic_leaves_nothing_withdrawn(
    broker: RunningBroker, clock: ManualClock
) -> None:
    tick(broker)
    alter(broker, message_timestamp_before_max_ms=str(HOUR_MS))
    assert until(broker) is Withdrawn.BOUND_RAISED
    assert "raised" in (broker.log_dir / "append-time-clock").read_text()
    broker.client.delete_topics(["t"])
    broker.create_topic("t", 1, message_timestamp_before_max_ms=str(HOUR_MS))
    assert until(broker) == NOW_MS - HOUR_MS
    tick(broker)
    assert "raised" not in (broker.log_dir / "append-time-clock").read_text()
