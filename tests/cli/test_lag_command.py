"""`horolog lag`, and what `retention explain` says of groups."""

from dataclasses import replace
from typing import Any

import pytest
from command_runner import Ran, run_command
from overrides import override
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.client import CommittedOffset
from horolog.clock import DAY_MS, ManualClock
from horolog.errors import StorageFailed
from horolog.record import LogRecord, build_batch
from horolog.wire import GROUP_LAG

SETTINGS = {"segment_bytes": "1500", "retention_ms": str(7 * DAY_MS)}
broker = a_broker("t", partitions=2, of_topics=SETTINGS)


def send(broker: RunningBroker, *times: int, partition: int = 0) -> None:
    records = [LogRecord(each, None, b"v" * 100) for each in times]
    broker.append("t", build_batch(records), partition)


def commit(broker: RunningBroker, offset: int, group: str = "g", partition: int = 0) -> None:
    broker.client.offset_commit(group, {("t", partition): CommittedOffset(offset)})


def run(broker: RunningBroker, *args: str) -> Ran:
    return run_command(*args, HOROLOG_BOOTSTRAP=broker.address)


def lags(broker: RunningBroker, *args: str) -> Any:
    return run(broker, "lag", *args, "--json").json


def test_every_number_of_a_group(broker: RunningBroker, clock: ManualClock) -> None:
    send(broker, NOW_MS - 9_000, NOW_MS - 50)
    clock.advance("1m")
    send(broker, NOW_MS - 70_000, NOW_MS - 20)
    commit(broker, 1)
    (found,) = lags(broker, "g")
    assert found == {
        "group": "g",
        "topic": "t",
        "partition": 0,
        "committed": 1,
        "start": 0,
        "end": 4,
        "offsets_behind": 3,
        "records_behind": 3,
        "lost_records": 0,
        "lag_ms": 60_000,
        "clock": "append",
        "catch_up_ms": None,
        "is_pace_known": False,
        "unread_deleted": 3,
        "first_deleted_ms": NOW_MS + 7 * DAY_MS + 1 - 20,
        "held_up": None,
    }
    (by_create,) = lags(broker, "g", "--clock", "create")
    assert (by_create["lag_ms"], by_create["clock"]) == (60_000 + 70_000, "create")


def test_a_group_behind_the_log_start_has_lost_records(broker: RunningBroker) -> None:
    for _ in range(30):
        send(broker, NOW_MS - DAY_MS)
    commit(broker, 3)
    broker.call(lambda: broker.log("t", 0).delete_records(20))
    (found,) = lags(broker, "g")
    assert (found["start"], found["lost_records"]) == (20, 17)
    assert (found["offsets_behind"], found["records_behind"]) == (27, 10)


def test_all_groups_and_partitions_come_in_order(broker: RunningBroker) -> None:
    send(broker, NOW_MS)
    send(broker, NOW_MS, partition=1)
    for group in ("b", "a"):
        for partition in (1, 0):
            commit(broker, 0, group, partition)
    found = lags(broker, "--all-groups")
    assert [(each["group"], each["partition"]) for each in found] == [
        *(("a", 0), ("a", 1)),
        *(("b", 0), ("b", 1)),
    ]
    assert lags(broker, "b", "b", "none") == [each for each in found if each["group"] == "b"]
    empty = run(broker, "lag", "")
    assert (empty.code, empty.err) == (2, "horolog: the name of a group is empty\n")
    lacking = run(broker, "lag", "b", "none", "nor")
    assert lacking.code == 1
    assert [line.partition(":")[0] for line in lacking.err.splitlines()] == [
        "there is no group none",
        "there is no group nor",
    ]


def test_the_screen_names_what_retention_takes_from_a_group(broker: RunningBroker) -> None:
    for _ in range(30):
        send(broker, NOW_MS - 6 * DAY_MS)
    commit(broker, 2)
    shown = run(broker, "lag", "g")
    assert shown.code == 0
    assert (
        "retention deletes 28 records of t-0 that g has not read, first at 2023-11-15" in shown.out
    )
    explained = run(broker, "retention", "explain", "t")
    assert "retention deletes 28 records that group g has not read, first at 2023" in explained.out
    of_zero, of_one = run(broker, "retention", "explain", "t", "--json").json
    assert of_zero["unread"] == [
        {"group": "g", "records": 28, "first_deleted_ms": NOW_MS + DAY_MS + 1}
    ]
    assert of_one["unread"] == []
    commit(broker, 29)
    assert "retention deletes 1 record of t-0 that g has" in run(broker, "lag", "g").out
    explained = run(broker, "retention", "explain", "t")
    assert "retention deletes 1 record that group g has" in explained.out
    longer = ("retention", "explain", "t", "--set", "retention.ms=-1", "--json")
    assert run(broker, *longer).json[0]["unread"] == []


def test_of_a_broker_that_does_not_say_it_offsets_are_known(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.client", GROUP_LAG=replace(GROUP_LAG, name="not.announced"))
    send(broker, NOW_MS, NOW_MS)
    commit(broker, 1)
    (found,) = lags(broker, "g")
    assert (found["offsets_behind"], found["records_behind"], found["lag_ms"]) == (1, None, None)
    assert (found["unread_deleted"], found["first_deleted_ms"]) == (None, None)
    assert "-: not known. Apache Kafka's brokers keep offsets" in run(broker, "lag", "g").out
    broker.create_topic("stamped", 1, message_timestamp_type="LogAppendTime")
    broker.append("stamped", build_batch([LogRecord(5, None, b"v")]))
    broker.client.offset_commit("g", {("stamped", 0): CommittedOffset(0)})
    stamped, _ = lags(broker, "g")
    assert stamped["topic"] == "stamped"
    assert stamped["lag_ms"] > 0
    commit(broker, 2)
    _, read = lags(broker, "g")
    assert (read["lag_ms"], read["unread_deleted"]) == (0, 0)


def test_of_a_log_that_cannot_be_read_offsets_are_known(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise StorageFailed("the disk refused")

    send(broker, NOW_MS - 6 * DAY_MS)
    commit(broker, 0)
    override(monkeypatch, "horolog.broker.control", partition_lag=failing)
    (found,) = lags(broker, "g")
    assert (found["offsets_behind"], found["records_behind"], found["lag_ms"]) == (1, None, None)
    assert (found["unread_deleted"], found["first_deleted_ms"]) == (None, None)
    assert "-: not known." in run(broker, "lag", "g").out


def test_a_group_with_more_partitions_than_fit_an_answer(broker: RunningBroker) -> None:
    broker.create_topic("many", 300)
    offsets = {("many", number): CommittedOffset(0) for number in range(300)}
    broker.client.offset_commit("g", offsets)
    found = lags(broker, "g")
    assert [each["partition"] for each in found] == list(range(300))


def test_which_groups_has_to_be_said(broker: RunningBroker) -> None:
    assert run(broker, "lag", "--watch").code == 2
    assert run(broker, "lag", "g", "--all-groups").code == 2
