"""Reads that wait until nothing earlier can come, and exact order in a log that grows."""

import random
import threading

import pytest
from command_runner import run_command
from running_broker import NOW_MS, RunningBroker, a_broker
from transactional import end, init, write

from horolog.clock import MINUTE_MS, SECOND_MS, ManualClock
from horolog.errors import Misconfigured
from horolog.record import ALL_TIMES, LogRecord, RecordClock, build_batch
from horolog.sources import (
    NotComplete,
    OrderedRecords,
    ReadOptions,
    RecordLog,
    WithoutTime,
    scan,
)
from horolog.storage import TopicPartition

BOUND = {"message_timestamp_before_max_ms": str(MINUTE_MS)}
broker = a_broker("t", partitions=2, of_topics=BOUND)


def tick(broker: RunningBroker) -> None:
    broker.run(broker.broker.partitions.keep_stamp_clock())


def put(broker: RunningBroker, *times: int, partition: int = 0) -> None:
    broker.append("t", build_batch([LogRecord(ms, None, b"v") for ms in times]), partition)


def scanned(broker: RunningBroker, **options: object) -> list[int]:
    table = scan(broker.address, "t", columns=["timestamp_ms"], complete=True, **options).read_all()
    return sorted(table.column("timestamp_ms").to_pylist())


def test_a_scan_waits_until_its_range_is_complete(
    broker: RunningBroker, clock: ManualClock
) -> None:
    put(broker, NOW_MS - 2)
    tick(broker)
    with pytest.raises(NotComplete, match="and not until"):
        scanned(broker, to_ms=NOW_MS, timeout="10ms")

    def go_on() -> None:
        put(broker, NOW_MS - 1, partition=1)
        clock.step("1m")

    later = threading.Timer(0.3, go_on)
    later.start()
    assert scanned(broker, to_ms=NOW_MS, timeout="60s") == [NOW_MS - 2, NOW_MS - 1]
    later.join()
    assert broker.produce("t", build_batch([LogRecord(NOW_MS - 1, None, b"v")])).error_code == 32


def test_a_scan_of_committed_records_waits_for_transactions(
    broker: RunningBroker, clock: ManualClock
) -> None:
    producer = init(broker)
    assert write(broker, producer, version=12) == 0
    clock.step("2m")
    tick(broker)
    assert scanned(broker, to_ms=NOW_MS + 1, timeout=0) == [NOW_MS]
    with pytest.raises(NotComplete):
        scanned(broker, to_ms=NOW_MS + 1, timeout=0, read_committed=True)
    assert scanned(broker, to_ms=NOW_MS, timeout=0, read_committed=True) == []
    assert end(broker, producer) == 0
    assert scanned(broker, to_ms=NOW_MS + 1, timeout=0, read_committed=True) == [NOW_MS]


def test_what_cannot_be_complete_is_refused_by_name(broker: RunningBroker) -> None:
    broker.create_topic("free")
    for topic, options, message in (
        ("free", {"to_ms": NOW_MS}, "message.timestamp.before.max.ms"),
        ("t", {}, "ends before"),
        ("t", {"to_ms": NOW_MS, "clock": RecordClock.APPEND}, "append times"),
        ("t", {"to_ms": NOW_MS, "as_of": NOW_MS}, "as of"),
    ):
        with pytest.raises(Misconfigured, match=message):
            scan(broker.address, topic, complete=True, **options)
    with pytest.raises(Misconfigured, match="files do not say"):
        scan(broker.log_dir / "t-0", "t", complete=True, to_ms=NOW_MS)


def test_the_command_prints_a_range_that_is_complete(
    broker: RunningBroker, clock: ManualClock
) -> None:
    put(broker, NOW_MS - 5, NOW_MS - 1)
    tick(broker)
    command = ("consume", "t", "--format", "json", "--complete", "--timeout", "100ms")
    at = {"HOROLOG_BOOTSTRAP": broker.address}
    refused = run_command(*command, "--to-time", NOW_MS, **at)
    assert (refused.code, refused.out) == (1, "")
    assert "and not until 2023-11-14T22:13:20.000Z yet" in refused.err
    clock.step("1m")
    tick(broker)
    assert len(run_command(*command, "--to-time", NOW_MS, **at).lines) == 2
    broker.create_topic("free")
    for args, message in (
        (("consume", "free", "--complete", "--to-time", "-1h"), "message.timestamp.before.max.ms"),
        (("consume", "t", "--complete"), "ends before"),
        (("consume", "t", "--complete", "--follow"), "--order"),
        (("consume", "t", "--complete", "--follow", "--order", "append-time"), "--lateness"),
        (
            ("consume", "t", "--complete", "-f", "--order", "create-time", "--lateness", "5s"),
            "is not needed",
        ),
        (("consume", broker.log_dir, "--complete", "--to-time", "-1h"), "needs a broker"),
    ):
        ran = run_command(*args, **at)
        assert ran.code == 2, args
        assert message in ran.err, args


@pytest.mark.parametrize("seed", range(4))
def test_records_of_a_log_that_grows_come_in_their_exact_order(
    broker: RunningBroker, clock: ManualClock, seed: int
) -> None:
    """Late records of both partitions, given out while they come, against a sort of all."""
    chosen = random.Random(seed)
    sent: list[int] = []

    def produce() -> None:
        for _ in range(chosen.randrange(6)):
            times = [
                clock.now_ms() - chosen.randrange(MINUTE_MS + 1)
                for _ in range(chosen.randrange(1, 4))
            ]
            put(broker, *times, partition=chosen.randrange(2))
            sent.extend(times)

    produce()
    tick(broker)
    options = ReadOptions.of_topic(broker.client.config, "t")
    given: list[int] = []
    with RecordLog(options, ALL_TIMES, runs_ahead=False) as log:
        partitions = [TopicPartition("t", index) for index in range(2)]
        ordered = OrderedRecords(
            log,
            RecordClock.CREATE,
            memory=256 << 20,
            without_time=WithoutTime.LAST,
            on_damage=lambda partition, error: None,
        )
        until_ms = log.complete_until(partitions)
        assert until_ms is not None
        produce()
        plan = log.plan(partitions)
        for _, read in ordered.read(plan.stretches, until_ms=until_ms):
            given.append(read.record.timestamp)
        rounds = log.follow_complete(plan.ends)

        def some() -> object:
            for _ in range(12):
                until_ms, records = next(rounds)
                produce()  # between the time and the ends
                yield until_ms, records
                assert all(ms < until_ms for ms in given)
                assert sorted(ms for ms in sent if ms < until_ms) == given
                clock.step(chosen.randrange(30 * SECOND_MS))
                tick(broker)

        for _, read in ordered.follow_complete(some()):
            given.append(read.record.timestamp)
    assert given == sorted(given)
    assert given
    assert not ordered.late


def test_a_block_that_overlaps_what_is_still_to_come_is_held_back(
    broker: RunningBroker, clock: ManualClock
) -> None:
    """Also where much is held: only what is complete may go out before the end."""
    large = [LogRecord(NOW_MS + ms, None, bytes(900_000)) for ms in range(12)]
    for record in large:
        broker.append("t", build_batch([record]), 0)
    tick(broker)
    options = ReadOptions.of_topic(broker.client.config, "t")
    with RecordLog(options, ALL_TIMES, runs_ahead=False) as log:
        ordered = OrderedRecords(
            log,
            RecordClock.CREATE,
            memory=256 << 20,
            without_time=WithoutTime.LAST,
            on_damage=lambda partition, error: None,
        )
        until_ms = log.complete_until([TopicPartition("t", 0)])
        stretches = log.plan([TopicPartition("t", 0)]).stretches
        assert list(ordered.read(stretches, until_ms=until_ms)) == []
        assert len(list(ordered.release(None))) == len(large)
