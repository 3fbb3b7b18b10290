"""Open transactions in `horolog lag` and `retention explain`, and markers that keep segments."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from command_runner import Ran, run_command
from running_broker import NOW_MS, RunningBroker, a_broker
from stored import lose_metadata
from transactional import abort, end, init, write

from horolog.client import CommittedOffset
from horolog.clock import DAY_MS, ManualClock
from horolog.record import LogRecord, build_batch

broker = a_broker(
    "t",
    partitions=2,
    of_topics={
        "segment_ms": str(99 * DAY_MS),
        "retention_ms": str(2 * DAY_MS),
        "message_timestamp_before_max_ms": str(99 * DAY_MS),
    },
    transaction_partition_verification_enable="false",
)
PLAIN = build_batch([LogRecord(NOW_MS, None, b"v")] * 3)


def run(broker: RunningBroker, *args: str) -> Ran:
    return run_command(*args, HOROLOG_BOOTSTRAP=broker.address)


def held_up(broker: RunningBroker, *args: str) -> Any:
    broker.client.offset_commit("g", {("t", 0): CommittedOffset(0)})
    (found,) = run(broker, "lag", "g", "--json", *args).json
    return found["held_up"]


def explained(broker: RunningBroker, *args: str) -> Any:
    """Partition 0 by the broker, and by its files."""
    at = ("--at", str(broker.clock.now_ms()), "--json", *args)
    by_broker = run_command(
        "retention", "explain", "t", *at, HOROLOG_BOOTSTRAP=broker.address
    ).json[0]
    by_files = run_command("retention", "explain", str(broker.log_dir / "t-0"), *at).json[0]
    return by_broker, by_files


def test_a_group_is_told_whose_transaction_holds_its_readers_up(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.append("t", PLAIN)
    assert held_up(broker) is None
    producer = init(broker)
    clock.advance("10s")
    assert write(broker, producer, version=12, count=2) == 0
    clock.advance("10s")
    broker.append("t", PLAIN)
    found = held_up(broker)
    assert found == {
        "producer_id": producer.producer_id,
        "producer_epoch": 0,
        "transactional_id": "x",
        "is_hanging": False,
        "offset": 3,
        "since_ms": NOW_MS + 10_000,
        "offsets": 5,
        "records": 5,
        "open_transactions": 1,
    }
    for one in explained(broker):
        assert one["held_up"] == found
    shown = run(broker, "lag", "g", "--read-committed").out
    who = f"'x' (producer {producer.producer_id}, epoch 0), open since 2023-11-14T22:13:30"
    assert f"wait at offset 3 of t-0 for the transaction of {who}" in shown
    assert "5 records from there on" in shown
    assert "wait at" not in run(broker, "lag", "g").out, "it is open, and does not hang"
    assert "wait at offset 3 of t-0" in run(broker, "retention", "explain", "t").out
    assert end(broker, producer) == 0
    assert held_up(broker) is None
    assert [one["held_up"] for one in explained(broker)] == [None, None]


def test_what_hangs_is_shown_always_with_what_ends_it(broker: RunningBroker) -> None:
    producer = init(broker)
    assert write(broker, producer) == 0
    assert write(broker, init(broker, "y")) == 0
    found = held_up(broker)
    assert (found["transactional_id"], found["is_hanging"]) == (None, True)
    assert found["open_transactions"] == 2
    assert [one["held_up"] for one in explained(broker)] == [found, found]
    shown = run(broker, "lag", "g").out
    assert "and 1 more is open" in shown
    assert "kafka-transactions.sh abort --topic t --partition 0 --start-offset 0" in shown
    abort(broker, producer)
    assert held_up(broker)["offset"] == 1


@pytest.mark.parametrize("crash", [False, True])
def test_files_say_the_same_of_a_broker_that_is_gone(
    broker: RunningBroker, clock: ManualClock, crash: bool
) -> None:
    producer = init(broker)
    assert write(broker, producer, version=12) == 0
    broker.roll("t")
    broker.append("t", PLAIN)
    found = held_up(broker)
    assert (found["offset"], found["records"]) == (0, 4)
    broker.kill() if crash else broker.stop()
    shown = run_command("retention", "explain", str(broker.log_dir / "t-0"), "--json").json
    assert shown[0]["held_up"] == found
    broker.restart()
    broker.run(broker.broker.transactions.settle())
    assert held_up(broker) == found


def test_where_the_first_records_are_deleted_readers_wait_at_the_log_start(
    broker: RunningBroker,
) -> None:
    assert write(broker, init(broker), count=2) == 0
    broker.append("t", PLAIN)
    broker.call(lambda: broker.log("t", 0).delete_records(3))
    found = held_up(broker)
    assert (found["offset"], found["since_ms"], found["offsets"]) == (3, None, 2)
    assert explained(broker)[0]["held_up"] == found
    broker.stop()  # writes the log start
    (shown,) = run_command("retention", "explain", str(broker.log_dir / "t-0"), "--json").json
    assert shown["held_up"] == found


def test_damaged_states_leave_open_whether_one_hangs(broker: RunningBroker) -> None:
    assert write(broker, init(broker), version=12) == 0
    broker.stop()
    (log,) = (
        path for path in broker.log_dir.glob("__transaction_state-*/*.log") if path.stat().st_size
    )
    data = bytearray(log.read_bytes())
    data[-3] ^= 1  # of the newest state
    log.write_bytes(data)
    (shown,) = run_command("retention", "explain", str(broker.log_dir / "t-0"), "--json").json
    assert (shown["held_up"]["is_hanging"], shown["held_up"]["transactional_id"]) == (None, None)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_keeps_a_segment_of_old_records_is_named(
    broker: RunningBroker, clock: ManualClock, commit: bool
) -> None:
    old = NOW_MS - 10 * DAY_MS
    producer = init(broker)
    broker.append("t", build_batch([LogRecord(old - 5, None, b"v")]))
    assert write(broker, producer, version=12, time_ms=old) == 0
    assert end(broker, producer, commit=commit) == 0
    broker.roll("t")
    broker.append("t", build_batch([LogRecord(old + 1, None, b"v")]))
    for one in explained(broker):
        first, last = one["segments"]
        assert first["marker"] == {
            "offset": 2,
            "timestamp": NOW_MS,
            "producer_id": producer.producer_id,
            "producer_epoch": 1,
            "is_commit": commit,
            "records_ms": old,
        }
        assert (last["marker"], last["kept_by"]) == (None, 0)
    shown = run(broker, "retention", "explain", "t").out
    which = "commit" if commit else "abort"
    assert f"segment 0 is kept by the {which} marker at offset 2, of 2023-11-14" in shown
    assert "2023-11-04T22:13:20.000Z, are old enough; 1 segment behind it" in shown
    by_append = explained(broker, "--set", "horolog.retention.by=append-time")
    assert [one["segments"][0]["marker"] for one in by_append] == [None, None]


def test_a_marker_behind_records_that_stay_anyway_keeps_nothing(broker: RunningBroker) -> None:
    producer = init(broker)
    assert write(broker, producer, version=12) == 0
    broker.clock.advance("1s")
    assert end(broker, producer) == 0
    for one in explained(broker):
        (only,) = one["segments"]
        assert (only["largest_ms"], only["marker"]) == (NOW_MS + 1_000, None)


@pytest.mark.parametrize("coordinator", [True, False])
def test_what_is_open_in_an_adopted_log_holds_up_while_it_can_be_committed(
    broker: RunningBroker, coordinator: bool
) -> None:
    assert write(broker, init(broker), version=12) == 0
    expected = held_up(broker)
    broker.stop()
    lose_metadata(broker.log_dir)
    if not coordinator:
        for lost in broker.log_dir.glob("__transaction_state-*"):
            shutil.rmtree(lost)
        expected = None
    broker.restart()
    assert held_up(broker) == expected
    assert [one["held_up"] for one in explained(broker)] == [expected] * 2
    tried = explained(broker, "--set", "retention.ms=1")
    assert [one["held_up"] for one in tried] == [expected] * 2
