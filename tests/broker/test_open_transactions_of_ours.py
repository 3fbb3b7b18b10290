"""Transactions in logs that this broker leads: batches, markers, and what consumers are given."""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from batches import batch
from examples import some_of
from faulty_calls import failing
from overrides import override
from raw_connection import fetch_fields, lookup_fields, produce_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.clock import ManualClock
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.record import (
    HEADER_SIZE,
    Marker,
    TransactionEnd,
    parse_header,
    read_marker,
    with_records,
)
from horolog.storage import Files, TopicPartition
from horolog.wire import ApiKey

broker = a_broker("t", partitions=2)
ID = 1 << 52


class Admits:
    """Admits everything, but where a test says otherwise."""

    def __init__(self) -> None:
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.asked: list[tuple[Any, ...]] = []

    async def admit(self, *about: Any) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append(about)
        partitions: Collection[TopicPartition] = about[3]
        return {each: self.codes.get(each, ErrorCode.none) for each in partitions}


@pytest.fixture(autouse=True)
def admits(broker: RunningBroker) -> Admits:
    found = Admits()
    broker.broker.transactions.admit = found.admit
    return found


def transactional(sequence: int, *, epoch: int = 0, producer_id: int = ID, count: int = 1) -> bytes:
    return batch(
        *[NOW_MS] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def send(broker: RunningBroker, records: bytes, *, topic: str = "t", version: int = 9) -> Any:
    """Produce in the transaction of "x"."""
    fields = produce_fields(topic, {0: records}, acks=-1, transactional_id="x")
    (answer,) = broker.ask(ApiKey.PRODUCE, version, **fields).responses
    return answer.partition_responses[0]


def end(
    broker: RunningBroker,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator: int = 0,
    strict: bool = False,
    producer_id: int = ID,
) -> None:
    async def ended() -> None:
        partition = broker.broker.led("t", 0)
        marker = TransactionEnd(producer_id, epoch, coordinator, commit, strict)
        appended = partition.append(marker, broker.clock.now_ms())
        if isinstance(appended, asyncio.Future):
            await appended

    broker.run(ended())


def code_of_end(broker: RunningBroker, **more: Any) -> ErrorCode:
    with pytest.raises(RequestRefused) as refused:
        end(broker, **more)
    return refused.value.code


def latest(broker: RunningBroker, level: int = 1, time: int = -1) -> int:
    fields = lookup_fields("t", {0: time}, isolation_level=level)
    (answer,) = broker.ask(ApiKey.LIST_OFFSETS, 7, **fields).topics
    return int(answer.partitions[0].offset)


def committed(broker: RunningBroker, offset: int = 0) -> Any:
    return broker.fetch("t", offset, isolation_level=1)


def test_what_is_open_is_stable_once_it_is_committed(broker: RunningBroker) -> None:
    broker.append("t", batch(NOW_MS))
    assert send(broker, transactional(0)).base_offset == 1
    broker.append("t", batch(NOW_MS))
    found = committed(broker)
    assert (found.high_watermark, found.last_stable_offset) == (3, 1)
    assert parse_header(found.records).size == len(found.records)
    assert (latest(broker), latest(broker, 0)) == (1, 3)
    assert latest(broker, 1, NOW_MS) == 0
    end(broker, commit=True)
    found = committed(broker)
    assert (found.high_watermark, found.last_stable_offset) == (4, 4)
    assert found.aborted_transactions in (None, [], ())
    assert latest(broker) == 4


@pytest.mark.parametrize("asked", [NOW_MS, -3], ids=["by time", "largest time"])
def test_a_lookup_of_committed_readers_finds_nothing_that_is_open(
    broker: RunningBroker, asked: int
) -> None:
    broker.append("t", batch(NOW_MS - 5))
    send(broker, transactional(0))
    assert (latest(broker, 0, asked), latest(broker, 1, asked)) == (1, -1)
    end(broker, commit=True)
    assert latest(broker, 1, NOW_MS) == 1


def test_what_is_aborted_is_named_to_consumers_of_committed_records(broker: RunningBroker) -> None:
    send(broker, transactional(0))
    end(broker, commit=False)
    send(broker, transactional(1))
    end(broker, commit=True)
    found = committed(broker)
    named = [(each.producer_id, each.first_offset) for each in found.aborted_transactions]
    assert named == [(ID, 0)]
    assert committed(broker, 2).aborted_transactions in (None, [], ())
    headers = broker.headers("t")
    assert [header.is_control for header in headers] == [False, True, False, True]
    assert read_marker(broker.fetch("t", 1).records[: headers[1].size]) == Marker(True, 0)


@pytest.mark.parametrize("crash", [False, True])
def test_an_open_transaction_outlives_a_restart_and_a_crash(
    broker: RunningBroker, admits: Admits, crash: bool
) -> None:
    broker.append("t", batch(NOW_MS))
    send(broker, transactional(0))
    broker.restart(crash=crash)
    broker.broker.transactions.admit = admits.admit
    assert latest(broker) == 1
    assert send(broker, transactional(1)).error_code == 0
    end(broker, commit=False)
    assert latest(broker) == 4
    broker.restart(crash=crash)
    assert [each.first_offset for each in committed(broker).aborted_transactions] == [1]


def test_a_producer_with_an_open_transaction_writes_nothing_outside_of_it(
    broker: RunningBroker,
) -> None:
    send(broker, transactional(0))
    plain = batch(NOW_MS, producer_id=ID, producer_epoch=0, base_sequence=1)
    assert broker.produce("t", plain).error_code == ErrorCode.invalid_txn_state
    end(broker, commit=True)
    assert broker.produce("t", plain).error_code == 0


def test_transactional_records_without_a_transactional_id_are_refused(
    broker: RunningBroker, admits: Admits
) -> None:
    refused = broker.produce("t", transactional(0))
    assert refused.error_code == ErrorCode.transactional_id_authorization_failed
    assert not broker.headers("t")
    assert send(broker, batch(NOW_MS)).error_code == 0, "plain ones in such a request are taken"
    assert not admits.asked


def test_what_the_coordinator_refuses_is_not_appended(
    broker: RunningBroker, admits: Admits
) -> None:
    admits.codes[TopicPartition("t", 0)] = ErrorCode.transaction_abortable
    fields = produce_fields("t", {0: transactional(0), 1: transactional(0)}, transactional_id="x")
    (answer,) = broker.ask(ApiKey.PRODUCE, 12, **{**fields, "acks": -1}).responses
    codes = [each.error_code for each in answer.partition_responses]
    assert codes == [ErrorCode.transaction_abortable, 0]
    assert [about[:3] + about[4:] for about in admits.asked] == [("x", ID, 0, 12)]


def test_batches_of_two_producers_in_one_request_are_refused(broker: RunningBroker) -> None:
    other = transactional(0, producer_id=ID + 1)
    fields = produce_fields("t", {0: transactional(0), 1: other}, acks=-1, transactional_id="x")
    (answer,) = broker.ask(ApiKey.PRODUCE, 9, **fields).responses
    codes = {each.error_code for each in answer.partition_responses}
    assert codes == {ErrorCode.invalid_producer_id_mapping}


def test_only_the_second_flow_asks_for_sequence_0_of_an_unknown_producer(
    broker: RunningBroker,
) -> None:
    answer = send(broker, transactional(5), version=12)
    assert answer.error_code == ErrorCode.out_of_order_sequence_number
    assert send(broker, transactional(5), version=11).error_code == 0


def test_a_marker_of_an_earlier_epoch_or_coordinator_is_refused(broker: RunningBroker) -> None:
    send(broker, transactional(0, epoch=3))
    assert code_of_end(broker, commit=True, epoch=2) == ErrorCode.invalid_producer_epoch
    assert code_of_end(broker, commit=True, epoch=3, strict=True) == (
        ErrorCode.invalid_producer_epoch
    )
    end(broker, commit=True, epoch=4, coordinator=5, strict=True)
    end(broker, commit=True, epoch=4, coordinator=5, strict=True)  # a retry
    fenced = code_of_end(broker, commit=True, epoch=4, coordinator=4)
    assert fenced == ErrorCode.transaction_coordinator_fenced
    assert send(broker, transactional(1, epoch=3)).error_code == ErrorCode.invalid_producer_epoch
    assert send(broker, transactional(0, epoch=4)).error_code == 0


def test_a_batch_that_was_admitted_before_the_marker_is_not_appended_after_it(
    broker: RunningBroker,
) -> None:
    send(broker, transactional(0))

    async def late() -> None:
        partition = broker.broker.led("t", 0)
        admission = partition.admit(ID, is_strict=False)
        partition.append(TransactionEnd(ID, 0, 0, True), NOW_MS)
        appended = partition.writes.append(transactional(1), NOW_MS, 9, "me", admission=admission)
        if not hasattr(appended, "base_offset"):
            await appended

    with pytest.raises(RequestRefused) as refused:
        broker.run(late())
    assert refused.value.code is ErrorCode.invalid_txn_state
    assert latest(broker) == 2


def test_a_waiting_fetch_of_committed_records_is_answered_by_the_marker(
    broker: RunningBroker,
) -> None:
    fields = fetch_fields("t", {0: 0}, isolation_level=1, max_wait_ms=60_000, min_bytes=1)
    with broker.connect() as waiting:
        waiting.send(ApiKey.FETCH, 12, **fields)
        send(broker, transactional(0))
        end(broker, commit=True)
        (answer,) = waiting.receive()[1].responses
    found = answer.partitions[0]
    assert found.last_stable_offset == 2
    assert parse_header(found.records).base_offset == 0


def test_a_producer_gives_no_batch_a_delete_horizon(broker: RunningBroker) -> None:
    plain = batch(NOW_MS)
    header = parse_header(plain)
    claimed = with_records(header._replace(attributes=0x40), plain[HEADER_SIZE:])
    assert broker.produce("t", claimed).error_code == 0
    (stored,) = broker.headers("t")
    assert stored.attributes == 0
    assert stored.base_timestamp == NOW_MS


@pytest.mark.parametrize("type_", ["CreateTime", "LogAppendTime"])
def test_a_marker_has_the_time_of_its_append(make_broker: MakeBroker, type_: str) -> None:
    one = make_broker(clock=ManualClock(NOW_MS))
    one.create_topic("t", message_timestamp_type=type_)
    one.broker.transactions.admit = Admits().admit
    send(one, transactional(0))
    one.clock.advance(7)
    end(one, commit=True)
    last = one.headers("t")[-1]
    assert (last.max_timestamp, last.is_control) == (NOW_MS + 7, True)
    assert latest(one, 1, -3) in (0, 1)


def test_consumers_are_named_what_was_aborted_in_what_they_are_given(
    make_broker: MakeBroker,
) -> None:
    one = make_broker(clock=ManualClock(NOW_MS))
    one.create_topic("t", segment_bytes="300")
    one.broker.transactions.admit = Admits().admit
    for sequence in range(20):
        send(one, transactional(sequence))
        end(one, commit=sequence % 2 == 0)
    assert len(one.log("t").segments) > 3

    def aborted() -> list[int]:
        return [each.first_offset for each in one.log("t").look().aborted_transactions(0, 40)]

    assert aborted() == list(range(2, 40, 4))
    named, offset = set[int](), 0
    while offset < 40:
        found = committed(one, offset)
        assert all(each.first_offset < 40 for each in found.aborted_transactions or ())
        named |= {each.first_offset for each in found.aborted_transactions or ()}
        header = parse_header(found.records)
        offset = header.next_offset
    assert named == set(aborted())
    one.restart(crash=True)
    assert aborted() == list(range(2, 40, 4))


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[9] ^= 1  # of the producer id: an entry as it could be
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: path.unlink(),
    "without its last entry": lambda path: path.write_bytes(path.read_bytes()[:-34]),
    "flipped": _flipped,
    "with an entry twice": lambda path: path.write_bytes(path.read_bytes() + path.read_bytes()),
}


# In `make test` each damage, to the first and the last index, after a kill and a clean stop.
@pytest.mark.parametrize("how", some_of(product(DAMAGE, [0, 1, -1], [False, True]), 5), ids=str)
def test_a_damaged_index_of_aborted_transactions_is_noticed_after_a_clean_stop(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture, how: tuple[str, int, bool]
) -> None:
    damage, which, crash = how
    one = make_broker(clock=ManualClock(NOW_MS))
    one.create_topic("t", segment_bytes="900")
    one.broker.transactions.admit = Admits().admit
    for sequence in range(21):
        send(one, transactional(sequence))
        end(one, commit=sequence % 3 == 0)
    one.restart()  # its recovery point is the end
    before = one.log("t").look().aborted_transactions(0, 42)
    assert [each.first_offset for each in before] == [2 * n for n in range(21) if n % 3]
    one.kill() if crash else one.stop()
    indexes = sorted((one.log_dir / "t-0").glob("*.txnindex"))
    assert len(indexes) > 2
    DAMAGE[damage](indexes[which])
    caplog.set_level("INFO")
    one.restart()
    assert one.log("t").look().aborted_transactions(0, 42) == before
    is_recovered = crash and which == -1  # and rebuilt whatever it says
    assert (f"{indexes[which]} is " in caplog.text) is not is_recovered
    caplog.clear()
    one.restart(crash=True)
    one.restart()
    assert one.log("t").look().aborted_transactions(0, 42) == before
    assert ".txnindex" not in caplog.text


def write_marker(broker: RunningBroker, index: int = 0, *, version: int = 2, **more: Any) -> int:
    marker = {
        "producer_id": ID,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [index]}],
        "coordinator_epoch": 0,
        "transaction_version": 1,
        **more,
    }
    answer = broker.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=[marker])
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def test_the_producers_of_a_partition_are_repeated_so_often(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker.handlers.transaction_tools", MOST_AGAIN=3)
    send(broker, transactional(0))
    asked = [{"name": "t", "partition_indexes": [0, 1, *[0] * 5]}]
    (topic,) = broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked).topics
    assert [(each.error_code, len(each.active_producers)) for each in topic.partitions] == [
        *((0, 1), (0, 0)),
        *[(0, 1)] * 3,
        *[(42, 0)] * 2,
    ]


def test_a_tool_sees_what_hangs_and_aborts_it(broker: RunningBroker) -> None:
    broker.append("t", batch(NOW_MS))
    send(broker, transactional(0, count=3))

    def described() -> Any:
        asked = [{"name": "t", "partition_indexes": [0, 7]}]
        (topic,) = broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked).topics
        known, unknown = topic.partitions
        assert (unknown.error_code, unknown.active_producers) == (3, ())
        (found,) = known.active_producers
        return found.producer_id, found.last_sequence, found.current_txn_start_offset

    assert described() == (ID, 2, 1)
    assert write_marker(broker) == 0
    assert described() == (ID, 2, -1)
    assert latest(broker) == 5
    assert [each.first_offset for each in committed(broker).aborted_transactions] == [1]


def test_markers_that_cannot_be_are_refused(broker: RunningBroker) -> None:
    send(broker, transactional(0, epoch=2))
    assert write_marker(broker, 7) == ErrorCode.unknown_topic_or_partition
    assert write_marker(broker, producer_epoch=1) == ErrorCode.invalid_producer_epoch
    strict = {"producer_epoch": 2, "transaction_version": 2}
    assert write_marker(broker, **strict) == ErrorCode.invalid_producer_epoch
    assert write_marker(broker, producer_id=-1) == ErrorCode.invalid_producer_id_mapping
    assert write_marker(broker, producer_epoch=-1) == ErrorCode.invalid_producer_id_mapping
    assert latest(broker) == 0
    assert write_marker(broker, producer_epoch=2, version=1) == 0
    assert latest(broker) == 2


@pytest.mark.parametrize(
    ("settings", "commit", "is_at_once"),
    [
        ({}, True, True),
        ({}, False, False),  # it has an entry in the index of aborted transactions, too
        ({"flush_messages": "1"}, True, False),
        ({"segment_bytes": "150"}, True, False),
        ({"segment_bytes": "150"}, False, False),
    ],
)
def test_a_marker_is_written_at_once_unless_its_write_may_block(
    broker: RunningBroker, settings: dict[str, str], commit: bool, is_at_once: bool
) -> None:
    broker.create_topic("u", 1, **settings)
    send(broker, transactional(0), topic="u")

    async def ended() -> tuple[bool, int]:
        partition = broker.broker.led("u", 0)
        appended = partition.append(TransactionEnd(ID, 0, 0, commit), NOW_MS)
        if isinstance(appended, asyncio.Future):
            await appended
            return False, partition.log.last_stable_offset
        return True, partition.log.last_stable_offset

    assert broker.run(ended()) == (is_at_once, 2)
    broker.restart()
    assert broker.log("u").last_stable_offset == 2


def test_a_marker_waits_for_the_writes_before_it(broker: RunningBroker) -> None:
    send(broker, transactional(0))
    written = threading.Event()

    async def ended() -> int:
        partition = broker.broker.led("t", 0)
        before = partition.writes.run(written.wait)
        marker = partition.append(TransactionEnd(ID, 0, 0, True), NOW_MS)
        assert isinstance(marker, asyncio.Future)
        assert partition.log.last_stable_offset == 0
        written.set()
        await before
        return (await marker).base_offset

    assert broker.run(ended()) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_the_disk_refuses_leaves_the_transaction_open(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    send(broker, transactional(0))
    with monkeypatch.context() as disk:
        failing(disk, Files, "write_at", StorageFailed("no space left on device"))
        with pytest.raises(StorageFailed):
            end(broker, commit=commit)
    assert latest(broker) == 0
    end(broker, commit=commit)
    assert latest(broker) == 2
