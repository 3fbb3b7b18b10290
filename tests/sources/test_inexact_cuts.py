"""Cuts that are not exact say so, from a broker and from files, and no reader takes them."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest
from faulty_calls import failing
from following import is_caught_up
from raw_connection import produce_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker
from transactional import end, init, write

from horolog.client import CUT, AskCut, PartitionCut
from horolog.clock import ManualClock
from horolog.errors import StorageFailed
from horolog.record import LogRecord, build_batch
from horolog.sources import (
    BrokerLog,
    CutEntry,
    FileLog,
    LogPath,
    Pattern,
    ReadOptions,
    cut_of,
)
from horolog.storage import LogDir, SegmentReader, TopicPartition
from horolog.wire import ApiKey, TransactionStart

BATCH = build_batch([LogRecord(3, None, b"v")])
T0, U0, UT0 = (TopicPartition(topic, 0) for topic in ("t", "u", "ut"))


broker = a_broker("t", "u", of_topics={"retention_ms": "-1"})


def tick(broker: RunningBroker) -> None:
    broker.run(broker.broker.partitions.keep_stamp_clock())


def from_broker(broker: RunningBroker, at_ms: int) -> dict[TopicPartition, CutEntry]:
    options = ReadOptions(brokers=broker.client.config, subscription=Pattern("t|u|ut"))
    with BrokerLog(options) as log:
        return cut_of(log, at_ms, log.partitions(), NOW_MS).by_partition()


def from_files(path: Path, at_ms: int) -> dict[TopicPartition, CutEntry]:
    options = ReadOptions(paths=(LogPath.parse(str(path)),), subscription=Pattern("t|u|ut"))
    with FileLog(options, is_cut=True) as log:
        return cut_of(log, at_ms, log.partitions(), NOW_MS).by_partition()


def why(entry: CutEntry) -> str:
    return (entry.why or "").partition(":")[0]


def test_a_reset_counts_where_the_records_before_it_are_deleted(
    broker: RunningBroker, clock: ManualClock
) -> None:
    clock.step("1h")
    broker.append("t", BATCH)
    clock.step("-1h")
    broker.client.topics.reset_append_times("t")
    broker.delete_records("t", 1)
    broker.append("t", BATCH)
    clock.step("1m")
    broker.append("t", BATCH)
    tick(broker)
    for make in (from_broker, lambda broker, at_ms: from_files(broker.log_dir, at_ms)):
        assert why(make(broker, NOW_MS + 60_000)[T0]) == "reset"
    assert why(from_broker(broker, NOW_MS)[T0]) == "deleted"


def test_a_clock_that_is_lowered_while_a_partition_is_cut_proves_nothing(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.step("1h")
    tick(broker)
    partition = broker.broker.led("u", 0)

    async def written() -> None:
        clock.step("-1h")
        await broker.broker.partitions.lower_stamp_clock()

    monkeypatch.setattr(type(partition.writes), "written", lambda _: written())
    assert why(from_broker(broker, NOW_MS + 60_000)[U0]) == "future"


def test_what_a_partition_stamps_once_the_clock_is_lowered_counts_as_ahead(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.step("1h")
    broker.append("u", BATCH)
    clock.step("-1h")
    broker.client.topics.reset_append_times("t")
    clock.step("5ms")  # before anything is written down
    broker.append("u", BATCH)
    assert why(from_broker(broker, NOW_MS + 3)[U0]) == "ahead"


def test_a_cleaner_that_has_passed_the_first_open_transaction_makes_a_cut_inexact(
    broker: RunningBroker, clock: ManualClock
) -> None:
    producer = init(broker)
    broker.append("t", BATCH)
    assert write(broker, producer, version=12) == 0
    for _ in range(3):
        broker.append("t", build_batch([LogRecord(3, b"k", b"v")]))
    clock.step("1s")
    at_ms = clock.now_ms()
    assert end(broker, producer) == 0
    assert not why(from_broker(broker, at_ms)[T0])

    async def clean() -> None:
        await broker.broker.led("t", 0).change(lambda log: log.cleaned_to(3))

    broker.run(clean())
    entry = from_broker(broker, at_ms)[T0]
    assert (entry.committed_offset, entry.offset, why(entry)) == (1, 5, "compacted")


def test_a_transaction_that_began_in_front_of_the_log_start_has_its_append_time(
    broker: RunningBroker, clock: ManualClock
) -> None:
    for _ in range(3):  # transactions of long ago
        producer = init(broker)
        assert write(broker, producer, version=12, topic="u") == 0
        assert end(broker, producer) == 0
        clock.step("1s")
    producer = init(broker)
    assert write(broker, producer, version=12) == 0
    broker.append("t", BATCH)
    broker.delete_records("t", 1)
    clock.step("1s")
    entries = from_broker(broker, clock.now_ms())
    assert (entries[T0].committed_offset, entries[T0].why) == (1, None)
    assert (entries[U0].committed_offset, entries[U0].why) == (6, None)
    for since in ({producer.producer_id: 0}, {1: 0}):
        answer = broker.client.ask(CUT, "t", AskCut(0, clock.now_ms(), since=since))
        assert answer is not None
        assert [start.producer_id for start in answer.transactions] == [
            id_ for id_ in since if id_ == producer.producer_id
        ]  # others are not asked about


def test_a_transaction_whose_beginning_is_gone_makes_others_of_its_producer_uncertain(
    broker: RunningBroker, clock: ManualClock
) -> None:
    producer = init(broker)
    assert write(broker, producer, version=12, topic="u") == 0
    assert end(broker, producer) == 0
    producer = init(broker)
    assert write(broker, producer, version=12) == 0
    broker.roll("t")
    broker.append("t", BATCH)
    broker.delete_records("t", 1)
    clock.step("1s")
    broker.run(broker.broker.background_tasks.run_retention())
    entries = from_broker(broker, clock.now_ms())
    assert (entries[T0].committed_offset, entries[T0].why) == (1, None)
    assert why(entries[U0]) == "unknown"


def test_questions_about_thousands_of_producers_are_short_enough() -> None:
    starts = tuple(
        TransactionStart((1 << 63) - 1 - number, number, -(1 << 63) + number)
        for number in range(3000)
    )
    asked: list[AskCut] = []

    class Log:
        topic_ids: Mapping[str, str] = {}

        def cluster_id(self) -> str | None:
            return None

        def cut(self, asks: Mapping[TopicPartition, AskCut]) -> dict[TopicPartition, PartitionCut]:
            found = {}
            for key, ask in asks.items():
                asked.append(CUT.read_key(CUT.key(ask)))  # refuses what is too long
                its = starts if key == T0 else ()
                found[key] = PartitionCut(5000, None, its, None)
            return found

    cut = cut_of(Log(), (1 << 63) - 1, [T0, U0], 0).by_partition()
    assert cut[T0].committed_offset == 0
    told = {id_ for ask in asked for id_ in ask.since}
    assert len(told) == 3000


def test_a_partition_that_cannot_be_read_hides_no_other(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("t", "u"):
        broker.append(topic, BATCH)
    failing(
        monkeypatch,
        SegmentReader,
        "locate",
        StorageFailed("the disk is broken"),
        when=lambda segment, _: "/t-0/" in segment.log.path,
    )
    entries = from_broker(broker, NOW_MS)
    assert entries[T0].why == "the disk is broken"
    assert (entries[U0].offset, entries[U0].why) == (0, None)


@pytest.mark.parametrize("rolls", [False, True])
def test_batches_are_not_read_where_no_transaction_was(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, rolls: bool
) -> None:
    plain, read, count = SegmentReader.headers, list[int](), 4000

    def headers(segment: SegmentReader, start: int, end: int) -> Iterator[Any]:
        for found in plain(segment, start, end):
            read.append(found[0])
            yield found

    with broker.connect() as connection:
        for number in range(count):
            if number == count // 2:
                clock.step("1s")
                if rolls:
                    broker.roll("t")
            connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: BATCH}))
    monkeypatch.setattr(SegmentReader, "headers", headers)
    entry = from_broker(broker, NOW_MS + 1000)[T0]
    assert (entry.offset, entry.committed_offset) == (count // 2, count // 2)
    assert len(read) < count
    producer = init(broker)
    assert write(broker, producer, version=12) == 0
    broker.append("t", BATCH)
    clock.step("1s")
    entry = from_broker(broker, clock.now_ms())[T0]
    assert (entry.committed_offset, entry.offset) == (count, count + 2)


# Copies.


@pytest.fixture
def half_old(broker: RunningBroker, clock: ManualClock, tmp_path: Path) -> Path:
    """A directory copied while it was written: a partition is older than the clock."""
    copy = tmp_path / "copy"
    broker.append("u", BATCH)
    shutil.copytree(broker.log_dir / "u-0", copy / "u-0")
    clock.step("1s")
    broker.append("u", BATCH)
    broker.append("t", BATCH)
    clock.step("1s")
    tick(broker)
    shutil.copytree(broker.log_dir, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("u-0"))
    return copy


def test_a_copy_of_a_growing_directory_is_cut_only_where_later_records_prove_it(
    broker: RunningBroker, half_old: Path
) -> None:
    at_ms = NOW_MS + 1500
    assert from_broker(broker, at_ms)[U0].offset == 2
    assert why(from_files(half_old, at_ms)[U0]) == "future"
    assert not why(from_files(half_old, NOW_MS)[U0])
    assert not why(from_files(half_old, NOW_MS + 1000)[T0])


def test_a_directory_in_its_place_is_cut_up_to_its_clock_also_after_a_kill(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.append("u", BATCH)
    clock.step("2s")
    tick(broker)
    at_ms = clock.now_ms()
    assert not why(from_files(broker.log_dir, at_ms)[U0])
    assert why(from_files(broker.log_dir, at_ms + 1)[U0]) == "future"
    broker.kill()
    assert not why(from_files(broker.log_dir, at_ms)[U0])


def test_a_copy_of_a_stopped_directory_is_whole(
    broker: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    broker.append("u", BATCH)
    clock.step("2s")
    tick(broker)
    broker.stop()
    shutil.copytree(broker.log_dir, tmp_path / "copy")
    assert not why(from_files(tmp_path / "copy", clock.now_ms())[U0])
    (tmp_path / "copy" / "u-0" / f"{0:020}.log").write_bytes(b"")  # copied before the stop
    assert why(from_files(tmp_path / "copy", clock.now_ms())[U0]) == "future"


def test_files_of_a_shadow_say_that_its_source_may_have_more(
    make_broker: MakeBroker, broker: RunningBroker, clock: ManualClock
) -> None:
    broker.append("u", BATCH)
    clock.step("1s")
    broker.append("t", BATCH)
    shadow = make_broker(clock=clock, horolog_follow=broker.address, node_id="2")
    assert is_caught_up(shadow, broker, [("t", 0), ("u", 0)])
    clock.step("1s")
    for made in (from_broker(shadow, NOW_MS + 500), from_files(shadow.log_dir, NOW_MS + 500)):
        assert (why(made[U0]), why(made[T0])) == ("following", "")
    shadow.client.topics.promote(None)
    clock.step("1s")
    tick(shadow)
    for made in (from_broker(shadow, NOW_MS + 500), from_files(shadow.log_dir, NOW_MS + 500)):
        assert (why(made[U0]), why(made[T0])) == ("", "")


def test_a_followed_log_is_not_ahead_because_the_clock_has_yet_to_rise(
    make_broker: MakeBroker, broker: RunningBroker, clock: ManualClock
) -> None:
    shadow = make_broker(clock=clock, horolog_follow=broker.address, node_id="2")
    broker.append("u", BATCH)
    assert is_caught_up(shadow, broker, [("u", 0)])
    tick(shadow)
    for _ in range(2):
        clock.step("1h")
        broker.append("u", BATCH)
        assert is_caught_up(shadow, broker, [("u", 0)])
        shadow.run(shadow.broker.partitions.run(LogDir.save_stamps))  # before the clock's rise
        tick(shadow)
    assert not why(from_broker(shadow, NOW_MS + 3_600_000)[U0])


def test_append_times_of_another_broker_that_go_back_are_not_exact_between_both_sides(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.alter("t", message_timestamp_type="LogAppendTime")
    for step in ("1s", "10s", "-7s", "0s", "10s"):
        broker.append("t", BATCH)  # at 0, 1, 11, 4 and 4 s
        clock.step(step)
        if step[0] == "-":
            broker.client.topics.reset_append_times("t")
    broker.append("t", BATCH)  # at 14 s
    broker.stop()
    for pattern in ("*/*.companion", "*/append-time-*", "append-time-clock"):
        for ours in broker.log_dir.glob(pattern):
            ours.unlink()
    for seconds, (offset, reason) in {
        0: (0, ""),
        4: (2, ""),
        5: (2, "reset"),
        11: (2, "reset"),
        12: (5, ""),
        14: (5, ""),
        15: (6, "future"),
    }.items():
        entry = from_files(broker.log_dir, NOW_MS + 1000 * seconds)[T0]
        assert (entry.offset, why(entry)) == (offset, reason), seconds


def test_copies_of_a_compacted_topic_are_not_cut_where_records_are_missing(
    make_broker: MakeBroker, broker: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    broker.create_topic("ut", **settings, retention_ms="-1")
    broker.alter("ut", segment_ms="1", retention_ms="-1")
    for number in range(30):
        broker.append("ut", build_batch([LogRecord(NOW_MS, b"k%d" % (number % 3), b"v")]))
        clock.step("1s")
    broker.roll("ut")
    broker.append("ut", build_batch([LogRecord(NOW_MS, b"z", b"v")]))
    clock.step("1s")
    assert not why(from_broker(broker, NOW_MS + 5000)[UT0])
    clock.step("10m")
    broker.run(broker.broker.cleaner.clean_all())
    assert why(from_broker(broker, NOW_MS + 5000)[UT0]) == "compacted"
    alone = (
        tmp_path / "alone"
    )  # as it is restored or mirrored: nothing says how far it is compacted
    copytree(broker.log_dir / "ut-0", alone / "ut-0", ignore=ignore_patterns("cleaning-*"))
    assert why(from_files(alone, NOW_MS + 5000)[UT0]) == "compacted"
    shadow = make_broker(clock=clock, horolog_follow=broker.address, node_id="2")
    assert is_caught_up(shadow, broker, [("ut", 0)])
    for _ in range(2):
        tick(shadow)
        for made in (from_broker(shadow, NOW_MS + 5000), from_files(shadow.log_dir, NOW_MS + 5000)):
            assert why(made[UT0]) == "compacted"
        shadow.client.topics.promote(None)
