"""What runs beside an open transaction: retention, DeleteRecords, compaction, expiry, adoption."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batches import batch
from following import is_caught_up
from overrides import override
from partition_files import flip
from raw_connection import lookup_fields, produce_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker
from storelogs import DAY, records_in

from golden import GOLDEN
from horolog.clock import ManualClock
from horolog.errors import ErrorCode, StorageFailed
from horolog.record import LogRecord, TimeRange, TransactionEnd, build_batch
from horolog.sources import ReadOptions, RecordLog
from horolog.storage import Batch, Log
from horolog.wire import ApiKey

SMALL = {"segment_bytes": "300", "retention_ms": "-1", "min_cleanable_dirty_ratio": "0.01"}


broker = a_broker(log_cleaner_backoff_ms="100000000")


class Writer:
    """A producer of the second flow."""

    def __init__(self, broker: RunningBroker, name: str = "x", topic: str = "t") -> None:
        self._broker = broker
        self._topic = topic
        self._name = name
        answer = broker.ask(
            ApiKey.INIT_PRODUCER_ID, 5, transactional_id=name, transaction_timeout_ms=60_000
        )
        assert answer.error_code == 0, answer
        self._id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0

    def send(self, key: bytes = b"k", value: bytes = bytes(100)) -> int:
        sent = build_batch(
            [LogRecord(self._broker.clock.now_ms(), key, value)],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        fields = produce_fields(self._topic, {0: sent}, acks=-1, transactional_id=self._name)
        (answer,) = self._broker.ask(ApiKey.PRODUCE, 12, **fields).responses
        assert answer.partition_responses[0].error_code == 0, answer
        self._sequence += 1
        return int(answer.partition_responses[0].base_offset)

    def end(self, *, commit: bool) -> int:
        answer = self._broker.ask(
            ApiKey.END_TXN,
            5,
            transactional_id=self._name,
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        if not answer.error_code:
            self._id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0
            self._broker.run(self._broker.broker.transactions.settle())
        return int(answer.error_code)


def plain(broker: RunningBroker, key: bytes = b"k") -> int:
    return broker.append("t", build_batch([LogRecord(broker.clock.now_ms(), key, bytes(100))]))


def bounds(broker: RunningBroker) -> tuple[int, int, int]:
    """Where the log starts, and ends for readers of committed records and of all."""
    found = []
    for time, level in ((-2, 0), (-1, 1), (-1, 0)):
        fields = lookup_fields("t", {0: time}, isolation_level=level)
        found.append(broker.ask(ApiKey.LIST_OFFSETS, 7, **fields).topics[0].partitions[0].offset)
    return found[0], found[1], found[2]


def aborted(broker: RunningBroker, offset: int) -> list[int]:
    found = broker.fetch("t", offset, isolation_level=1)
    assert found.error_code == 0
    return [each.first_offset for each in found.aborted_transactions or ()]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("crash", [None, False, True])
def test_records_of_an_open_transaction_are_deleted_and_it_still_ends(
    broker: RunningBroker, commit: bool, crash: bool | None
) -> None:
    broker.create_topic("t", **SMALL)
    plain(broker)
    writer = Writer(broker)
    for _ in range(4):
        writer.send()
    plain(broker)
    broker.delete_records("t", 3)
    assert bounds(broker) == (3, 3, 6), "it is not stable before the log starts"
    broker.run(broker.broker.background_tasks.run_retention())
    if crash is not None:
        broker.restart(crash=crash)
        broker.run(broker.broker.transactions.settle())
    assert bounds(broker) == (3, 3, 6)
    assert broker.fetch("t", 3, isolation_level=1).error_code == 0
    writer.send()
    assert writer.end(commit=commit) == 0
    assert bounds(broker) == (3, 8, 8)
    assert len(aborted(broker, 3)) == (not commit)
    broker.restart(crash=True)
    assert bounds(broker) == (3, 8, 8)
    assert len(aborted(broker, 3)) == (not commit)
    broker.delete_records("t", 8)
    assert bounds(broker) == (8, 8, 8)
    assert aborted(broker, 8) == []


def test_a_transaction_all_of_whose_records_retention_deletes_still_ends(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("t", **{**SMALL, "retention_ms": str(DAY), "file_delete_delay_ms": "0"})
    writer = Writer(broker)
    for _ in range(6):
        writer.send()
    clock.advance(2 * DAY)
    broker.run(broker.broker.background_tasks.run_retention())
    assert bounds(broker) == (6, 6, 6)
    for crash in (False, True):
        broker.restart(crash=crash)
        broker.run(broker.broker.transactions.settle())
        assert bounds(broker) == (6, 6, 6)
    plain(broker)
    assert bounds(broker)[1] == 6, "it is still open"
    broker.run(broker.broker.transactions.abort_timed_out())
    broker.run(broker.broker.transactions.settle())
    assert bounds(broker) == (6, 8, 8)
    assert writer.end(commit=True) != 0


def test_the_cleaner_leaves_what_is_not_stable_until_the_transaction_ends(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t", **{**SMALL, "cleanup_policy": "compact"})
    for _ in range(6):
        plain(broker)
    writer, other = Writer(broker), Writer(broker, "y")
    first = writer.send()
    for _ in range(6):
        plain(broker)
        other.send(b"o")
    other.end(commit=False)
    plain(broker, b"last")

    def offsets() -> list[int]:
        return [record.offset or 0 for record in records_in(broker.log("t"))]

    before = offsets()
    broker.run(broker.broker.cleaner.clean_all())
    kept = offsets()
    assert [each for each in kept if each >= first] == [each for each in before if each >= first]
    assert len([each for each in kept if each < first]) < 6
    assert bounds(broker)[1] == first
    broker.restart(crash=True)
    broker.run(broker.broker.transactions.settle())
    assert offsets() == kept
    assert bounds(broker)[1] == first
    assert writer.end(commit=True) == 0
    for _ in range(6):
        plain(broker, b"later")
    broker.run(broker.broker.cleaner.clean_all())
    keys = [record.key for record in records_in(broker.log("t"))]
    assert keys.count(b"k") == 1
    assert b"o" not in keys, "it was aborted"
    assert bounds(broker)[1] == bounds(broker)[2]


def test_a_transactional_id_does_not_expire_beside_its_open_transaction(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("t")
    writer, transactions = Writer(broker), broker.broker.transactions
    Writer(broker, "idle")
    writer.send()
    clock.advance(8 * DAY)
    assert broker.run(transactions.remove_expired()) == 1

    def described(name: str) -> Any:
        answer = broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name])
        return answer.transaction_states[0]

    assert described("idle").error_code == ErrorCode.transactional_id_not_found
    assert described("x").transaction_state == "Ongoing"
    assert broker.run(transactions.abort_timed_out()) == 1
    broker.run(transactions.settle())
    assert bounds(broker)[1:] == (2, 2)
    assert broker.run(transactions.remove_expired()) == 0, "it has just ended"
    clock.advance(8 * DAY)
    assert broker.run(transactions.remove_expired()) == 1
    assert described("x").error_code == ErrorCode.transactional_id_not_found
    broker.restart(crash=True)
    broker.run(broker.broker.transactions.settle())
    assert described("x").error_code == ErrorCode.transactional_id_not_found
    assert writer.end(commit=True) == ErrorCode.invalid_producer_id_mapping


# --- transactions that another broker has left open -------------------------------------------

OPEN = "transaction-open"


def refusing(times: int, real: Callable[..., Any]) -> Callable[..., Any]:
    left = [times]

    def append(log: Log, batch: Batch, *args: Any, **more: Any) -> Any:
        left[0] -= isinstance(batch, TransactionEnd)
        if isinstance(batch, TransactionEnd) and left[0] >= 0:
            raise StorageFailed("full")
        return real(log, batch, *args, **more)

    return append


def open_in(broker: RunningBroker) -> list[int]:
    asked = [{"name": OPEN, "partition_indexes": [0]}]
    (topic,) = broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked).topics
    return [
        each.producer_id
        for each in topic.partitions[0].active_producers
        if each.current_txn_start_offset >= 0
    ]


def committed_end(broker: RunningBroker) -> tuple[int, int]:
    found = broker.fetch(OPEN, 0, isolation_level=1)
    return found.last_stable_offset, found.high_watermark


def test_settings_for_an_adopted_topic_end_what_was_left_open(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(GOLDEN / "clean" / f"{OPEN}-0", tmp_path / "log" / f"{OPEN}-0")
    broker = make_broker(log_dir=tmp_path / "log", clock=ManualClock(NOW_MS))
    left = open_in(broker)
    assert left
    stable, end = committed_end(broker)
    assert stable == end, "they count as aborted"
    with monkeypatch.context() as full:
        append = refusing(1, Log.append)
        full.setattr(Log, "append", append)
        refused = broker.alter(OPEN, retention_ms="-1")
        assert refused.error_code == ErrorCode.kafka_storage_error
    assert open_in(broker) == left
    assert broker.alter(OPEN, retention_ms="-1").error_code == 0
    assert open_in(broker) == []
    assert committed_end(broker) == (end + len(left), end + len(left))
    last = broker.headers(OPEN)[-len(left) :]
    assert {each.producer_id for each in last if each.is_control} == {*left}
    broker.restart(crash=True)
    assert open_in(broker) == []
    assert committed_end(broker) == (end + len(left), end + len(left))


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_readers_of_files_wait_for_what_is_open_as_those_of_the_broker_do(
    make_broker: MakeBroker, tmp_path: Path, beside: bool, crash: bool
) -> None:
    log_dir = tmp_path / "log"
    for name in (f"{OPEN}-0", *(["__cluster_metadata-0"] if beside else [])):
        shutil.copytree(GOLDEN / "clean" / name, log_dir / name)
    if beside:
        shutil.copy(GOLDEN / "clean" / "meta.properties", log_dir)
    broker = make_broker(log_dir=log_dir, clock=ManualClock(NOW_MS), node_id="1")
    assert (tmp_path / "log.horolog").exists() is beside, "then states are there"
    assert broker.alter(OPEN, retention_ms="-1").error_code == 0  # it takes transactions
    (_, end), writer = committed_end(broker), Writer(broker, topic=OPEN)
    assert writer.send() == end
    broker.append(OPEN, batch(NOW_MS))
    broker.restart(crash=crash)
    broker.run(broker.broker.transactions.settle())  # its states are loaded
    assert committed_end(broker) == (end, end + 2)
    assert max(committed_in_files(log_dir)) < end
    assert writer.end(commit=True) == 0
    assert committed_end(broker) == (end + 3, end + 3)
    assert committed_in_files(log_dir)[-2:] == [end, end + 1]


def committed_in_files(log_dir: Path) -> list[int]:
    options = ReadOptions.parse(
        {"path": str(log_dir), "subscribe": OPEN, "kafka.isolation.level": "read_committed"}
    )
    with RecordLog(options, TimeRange()) as log:
        return [
            record.offset
            for stretch in log.plan(log.partitions).stretches
            for _, records in log.read(stretch)
            for record in records
        ]


@pytest.mark.parametrize("crash", [False, True])
def test_a_start_ends_what_a_promotion_could_not(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    source = make_broker(log_dir=tmp_path / "a", node_id="1", log_retention_ms="-1")
    source.create_topic("t")
    writer = Writer(source)
    source.append("t", batch(NOW_MS))
    writer.send()
    shadow = make_broker(log_dir=tmp_path / "b", node_id="2", log_retention_ms="-1")
    shadow.create_topic("ours")  # so that transactions of the source are not followed
    shadow.restart(horolog_follow=source.address)
    assert is_caught_up(shadow, source, [("t", 0)])
    assert bounds(shadow) == (0, 1, 2)
    with monkeypatch.context() as full:
        append = refusing(1 << 30, Log.append)
        full.setattr(Log, "append", append)
        shadow.client.promote(None)
        assert bounds(shadow) == (0, 2, 2), "it counts as aborted"
        assert aborted(shadow, 1) == [1]
    ours = Writer(shadow, "ours")
    assert ours.send() == 2
    shadow.restart(crash=crash)
    shadow.run(shadow.broker.transactions.settle())
    assert aborted(shadow, 1) == [1]
    assert bounds(shadow) == (0, 2, 4), "of the two only the one begun here is still open"
    assert [each.is_control for each in shadow.headers("t")] == [False, False, False, True]
    assert ours.end(commit=True) == 0
    assert bounds(shadow) == (0, 5, 5)


def lose_metadata(log_dir: Path) -> None:
    shutil.rmtree(log_dir / "__cluster_metadata-0")


def damage_metadata(log_dir: Path) -> None:
    (log,) = (log_dir / "__cluster_metadata-0").glob("*.log")
    flip(log, log.stat().st_size // 2)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("lose", [lose_metadata, damage_metadata])
def test_a_transaction_whose_coordinator_is_here_is_open_though_the_metadata_was_lost(
    broker: RunningBroker, lose: Callable[[Path], None], commit: bool
) -> None:
    broker.create_topic("t")
    writer = Writer(broker)
    before = plain(broker)
    offset = writer.send()
    broker.stop()
    lose(broker.log_dir)
    broker.restart()
    broker.run(broker.broker.transactions.settle())
    assert broker.broker.topics.find("t").adopted
    assert bounds(broker)[1] == offset, "a reader waits, and is not told that it was aborted"
    assert aborted(broker, before) == []
    assert writer.end(commit=commit) == 0
    assert bounds(broker)[1] == offset + 2
    assert aborted(broker, offset) == ([] if commit else [offset])
    broker.restart()
    assert aborted(broker, offset) == ([] if commit else [offset])


def test_open_transactions_stay_open_where_their_states_cannot_be_read(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **more: object) -> None:
        raise StorageFailed("no")

    broker.create_topic("t")
    writer = Writer(broker)
    offset = writer.send()
    broker.stop()
    lose_metadata(broker.log_dir)
    with monkeypatch.context() as failing:
        override(failing, "horolog.broker", may_end_in=refused)
        broker.restart()
    broker.run(broker.broker.transactions.settle())
    assert bounds(broker)[1] == offset
    assert writer.end(commit=True) == 0
    assert bounds(broker)[1] == offset + 2
