"""`horolog consume --latest`: the last record of each key, from a broker and from files."""

import json
from pathlib import Path
from typing import Any

import pytest
from arrivals import Producer
from command_runner import Ran, run_command
from running_broker import NOW_MS, RunningBroker, a_broker
from storelogs import snapshot_of

from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch
from horolog.storage import TopicPartition

broker = a_broker("prices", partitions=2, log_cleaner_backoff_ms="100000000")


@pytest.fixture
def filled(broker: RunningBroker, clock: ManualClock) -> RunningBroker:
    """Two keys in each partition, a value of each every second; at 3 s one is deleted."""
    for second in range(5):
        for partition in (0, 1):
            records = [
                LogRecord(NOW_MS, key, None if second == 3 and key == b"b" else b"%d" % second)
                for key in (b"a", b"b")
            ]
            broker.append("prices", build_batch(records), partition)
        clock.step("1s")
    producer = Producer(broker, "p")
    producer.write(TopicPartition("prices", 1), LogRecord(NOW_MS, b"a", b"aborted"))
    producer.end(commit=False)
    broker.run(broker.broker.partitions.keep_stamp_clock())
    return broker


def table(broker: RunningBroker, *args: object) -> Ran:
    return run_command("consume", *args, "--format", "json", HOROLOG_BOOTSTRAP=broker.address)


def rows(ran: Ran) -> list[tuple[int, int, str, str]]:
    assert ran.code == 0, ran.err
    found = [json.loads(line) for line in ran.lines]
    return [(its["partition"], its["offset"], its["key"], its["value"]) for its in found]


def both(second: int, *keys: str) -> list[tuple[int, int, str, str]]:
    return [
        (partition, second * 2 + "ab".index(key), key, f"{second}")
        for partition in (0, 1)
        for key in keys
    ]


def test_the_last_record_of_each_key_is_printed_now_and_as_of_a_time(
    filled: RunningBroker, tmp_path: Path
) -> None:
    copy = snapshot_of(filled.log_dir, tmp_path / "copy")
    for what in ("prices", copy):
        assert rows(table(filled, what, "--latest")) == both(4, "a", "b")
        for second in (1, 3, 4):
            at_ms = NOW_MS + second * 1000 + 500
            expected = both(second, *("a" if second == 3 else "ab"))
            assert rows(table(filled, what, "--latest", "--as-of", at_ms)) == expected
        only = table(filled, what, "--latest", "--partition", 1, "--max-messages", 1)
        assert rows(only) == both(4, "a")[1:]


def test_a_table_of_one_partition_directory_is_printed(filled: RunningBroker) -> None:
    filled.stop()
    found = rows(table(filled, filled.log_dir / "prices-1", "--latest"))
    assert found == both(4, "a", "b")[2:]


def test_records_without_a_key_are_said_to_be_left_out(filled: RunningBroker) -> None:
    filled.append("prices", build_batch([LogRecord(NOW_MS, None, b"keyless")]))
    ran = table(filled, "prices", "--latest")
    assert rows(ran) == both(4, "a", "b")
    assert "prices-0 has records without a key, which are in no table: 1" in ran.err


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--from-time", "-1d"], 2, "leave out --from-time"),
        (["--follow"], 2, "leave out --follow"),
        (["--offset", 0], 2, "leave out --offset"),
        (["--order", "create-time"], 2, "leave out --order"),
        (["--clock", "append"], 2, "leave out --clock"),
        (["--latest-memory", "1"], 2, "more than --latest-memory of 1 B allows: 1MiB would do"),
        (["--latest-memory", "much"], 2, "--latest-memory"),
        (["--as-of", "2999-01-01T00:00Z"], 2, "future"),
    ],
)
def test_a_table_that_cannot_be_is_refused(
    args: list[Any], code: int, said: str, filled: RunningBroker
) -> None:
    ran = table(filled, "prices", "--latest", *args)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_damage_is_reported(filled: RunningBroker) -> None:
    filled.stop()
    log = filled.log_dir / "prices-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[-5] ^= 1
    log.write_bytes(content)
    ran = table(filled, filled.log_dir, "--latest")
    assert ran.code == 1
    assert "prices-0" in ran.err


def test_a_table_behind_the_cleaner_is_refused_by_name(
    filled: RunningBroker, clock: ManualClock
) -> None:
    settings = {"cleanup_policy": "compact", "segment_bytes": "500"}
    filled.create_topic("keyed", min_cleanable_dirty_ratio="0.01", **settings)
    for value in range(30):
        filled.append("keyed", build_batch([LogRecord(NOW_MS, b"k", b"%d" % value)]))
        clock.step("1s")
    filled.run(filled.broker.partitions.keep_stamp_clock())
    filled.run(filled.broker.cleaner.clean_all())
    ran = table(filled, "keyed", "--latest", "--as-of", clock.now_ms() - 20_000)
    assert (ran.code, ran.out) == (2, "")
    assert "compacted" in ran.err
    late = table(filled, "keyed", "--latest", "--as-of", clock.now_ms())
    assert rows(late) == [(0, 29, "k", "29")]
