"""Fetch, as the protocol has it: limits, waiting, what is out of range."""

import threading
import time
from typing import Any
from uuid import UUID

import pytest
from made_again import make_again_meanwhile
from patience import PATIENCE_S, eventually
from raw_connection import fetch_fields, produce_fields
from running_broker import RunningBroker, a_broker

from horolog.broker import AT_ONCE
from horolog.record import LogRecord, build_batch, iter_headers
from horolog.storage import Log, LogView, Slice
from horolog.wire import ApiKey

VERSION = 12
LONG_MS = int(1000 * PATIENCE_S)


def batch(size: int = 100) -> bytes:
    return build_batch([LogRecord(-1, None, bytes(size)), LogRecord(-1, None, b"")])


broker = a_broker(now_ms=None, on_disk=True)


@pytest.fixture
def filled(broker: RunningBroker) -> RunningBroker:
    """Ten batches of two records in partitions 0 and 1."""
    broker.create_topic("t", partitions=2)
    with broker.connect() as connection:
        for _ in range(10):
            connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch(), 1: batch()}))
    return broker


def is_delayed(broker: RunningBroker) -> bool:
    """Whether a fetch of partition 0 comes to wait for records."""
    listeners = broker.broker.partitions["t", 0].listeners
    return eventually(lambda: broker.call(lambda: len(listeners)) > 0)


def fetch(broker: RunningBroker, offsets: dict[int, int], **more: Any) -> list[Any]:
    answer = broker.ask(ApiKey.FETCH, VERSION, **fetch_fields("t", offsets, **more))
    assert answer.session_id == 0
    return list(answer.responses[0].partitions)


def base_offsets(partition: Any) -> list[int]:
    return [header.base_offset for _, header in iter_headers(partition.records)]


def test_records_come_from_the_batch_that_holds_the_offset(filled: RunningBroker) -> None:
    (partition,) = fetch(filled, {0: 5})
    assert base_offsets(partition) == list(range(4, 20, 2))
    assert partition.high_watermark == partition.last_stable_offset == 20
    assert partition.log_start_offset == 0
    assert partition.aborted_transactions is None


def test_a_read_committed_fetch_lists_no_aborted_transactions(filled: RunningBroker) -> None:
    (partition,) = fetch(filled, {0: 0}, isolation_level=1)
    assert list(partition.aborted_transactions) == []
    assert len(base_offsets(partition)) == 10


def test_at_the_end_there_is_nothing_and_no_error(filled: RunningBroker) -> None:
    (partition,) = fetch(filled, {0: 20})
    assert (partition.error_code, len(partition.records)) == (0, 0)


@pytest.mark.parametrize("offset", [-1, 21, 2**62])
def test_out_of_range_is_said(filled: RunningBroker, offset: int) -> None:
    (partition,) = fetch(filled, {0: offset}, max_wait_ms=5000)
    assert partition.error_code == 1
    assert partition.high_watermark == -1


def test_the_first_batch_is_given_whole_however_small_the_limits(filled: RunningBroker) -> None:
    first, second = fetch(filled, {0: 2, 1: 0}, max_bytes=1, partition_max_bytes=1)
    assert base_offsets(first) == [2]
    assert len(second.records) == 0


def test_limits_hold_for_each_partition_and_for_all(filled: RunningBroker) -> None:
    size = len(batch())
    first, second = fetch(filled, {0: 0, 1: 0}, partition_max_bytes=3 * size)
    assert base_offsets(first) == base_offsets(second) == [0, 2, 4]
    first, second = fetch(filled, {0: 0, 1: 0}, max_bytes=4 * size, partition_max_bytes=3 * size)
    assert base_offsets(first) == [0, 2, 4]
    assert base_offsets(second) == [0]


def test_the_brokers_own_limit_holds(filled: RunningBroker) -> None:
    assert len(fetch(filled, {0: 0})[0].records) > 1024
    filled.restart(fetch_max_bytes="1024")
    (partition,) = fetch(filled, {0: 0})
    assert len(partition.records) == 1024


def test_a_fetch_waits_for_records_and_is_answered_when_they_come(filled: RunningBroker) -> None:
    with filled.connect() as reader:
        reader.send(ApiKey.FETCH, VERSION, **fetch_fields("t", {0: 20}, max_wait_ms=LONG_MS))
        assert reader.is_silent(0.2)
        filled.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch()}))
        started = time.monotonic()
        _, answer = reader.receive()
    assert time.monotonic() - started < PATIENCE_S
    assert base_offsets(answer.responses[0].partitions[0]) == [20]


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(filled: RunningBroker) -> None:
    asked = fetch_fields("t", {0: 20, 1: 20}, max_wait_ms=LONG_MS, min_bytes=3 * len(batch()))
    with filled.connect() as reader, filled.connect() as writer:
        reader.send(ApiKey.FETCH, VERSION, **asked)
        for index in (0, 1):
            writer.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {index: batch()}))
            assert reader.is_silent(0.1)
        writer.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch()}))
        first, second = reader.receive()[1].responses[0].partitions
    assert (base_offsets(first), base_offsets(second)) == ([20, 22], [20])


def test_a_fetch_waits_no_longer_than_it_wants(filled: RunningBroker) -> None:
    started = time.monotonic()
    (partition,) = fetch(filled, {0: 18}, max_wait_ms=300, min_bytes=1_000_000)
    assert 0.3 <= time.monotonic() - started < PATIENCE_S
    assert base_offsets(partition) == [18]


def test_a_batch_written_in_a_thread_wakes_a_fetch_too(filled: RunningBroker) -> None:
    large = build_batch([LogRecord(-1, None, bytes(300_000))], codec=4)
    with filled.connect() as reader:
        reader.send(ApiKey.FETCH, VERSION, **fetch_fields("t", {0: 20}, max_wait_ms=LONG_MS))
        assert is_delayed(filled)
        filled.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: large}))
        _, answer = reader.receive()
    assert base_offsets(answer.responses[0].partitions[0]) == [20]


@pytest.mark.parametrize("records", ["come", "go"])
def test_what_happens_between_reading_and_waiting_is_not_missed(
    filled: RunningBroker, monkeypatch: pytest.MonkeyPatch, records: str
) -> None:
    """The read happens in a thread, which here ends with a request of another client."""
    filled.restart()
    log = filled.log("t")
    log.files.forget(log.segments[0].log.path)  # it has to be opened, which may block
    read, happenings = LogView.read, [1]

    def read_and_let_happen(view: LogView, *asked: Any, **more: Any) -> Slice:
        found = read(view, *asked, **more)
        if happenings and threading.current_thread().name != "broker":
            happenings.pop()
            with filled.connect() as other:
                if records == "come":
                    other.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch()}))
                else:
                    other.ask(ApiKey.DELETE_TOPICS, 4, topic_names=["t"])
        return found

    monkeypatch.setattr(LogView, "read", read_and_let_happen)
    more_than_there_is = 9 * len(batch()) + 1
    (partition,) = fetch(filled, {0: 2}, max_wait_ms=10 * LONG_MS, min_bytes=more_than_there_is)
    assert not happenings
    if records == "come":
        assert base_offsets(partition) == list(range(2, 22, 2))
    else:
        assert partition.error_code == 3


def test_deleting_the_topic_ends_the_wait(filled: RunningBroker) -> None:
    with filled.connect() as reader:
        reader.send(ApiKey.FETCH, VERSION, **fetch_fields("t", {0: 20}, max_wait_ms=LONG_MS))
        assert is_delayed(filled)
        filled.ask(ApiKey.DELETE_TOPICS, 4, topic_names=["t"])
        _, answer = reader.receive()
    assert answer.responses[0].partitions[0].error_code == 3


def test_a_consumer_that_disconnects_leaves_no_delayed_fetch(filled: RunningBroker) -> None:
    with filled.connect() as reader:
        reader.send(ApiKey.FETCH, VERSION, **fetch_fields("t", {0: 20}, max_wait_ms=LONG_MS))
        assert is_delayed(filled)
    listeners = filled.broker.partitions["t", 0].listeners
    assert eventually(lambda: not filled.call(lambda: any(listeners)))


def test_stopping_the_broker_answers_delayed_fetches(filled: RunningBroker) -> None:
    with filled.connect() as reader:
        reader.send(ApiKey.FETCH, VERSION, **fetch_fields("t", {0: 20}, max_wait_ms=LONG_MS))
        assert is_delayed(filled)
        stopping = threading.Thread(target=filled.stop)
        stopping.start()
        assert reader.receive()[1].responses[0].partitions[0].error_code == 0
        assert reader.is_closed()
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive()


def test_topics_by_id(filled: RunningBroker) -> None:
    topic_id = filled.broker.topics.named("t").topic_id
    with filled.connect() as connection:
        answer = connection.ask(ApiKey.FETCH, 13, **fetch_fields(topic_id, {0: 0})).responses[0]
        assert answer.topic_id == topic_id
        assert len(base_offsets(answer.partitions[0])) == 10
        answer = connection.ask(ApiKey.FETCH, 13, **fetch_fields(UUID(int=9), {0: 0})).responses[0]
        assert answer.partitions[0].error_code == 100


def test_a_client_with_another_leader_epoch_is_refused(filled: RunningBroker) -> None:
    filled.stop()
    (filled.log_dir / ".kafka_cleanshutdown").unlink()
    filled.restart()
    epoch = filled.log("t").leader_epoch
    assert epoch == 1
    for claimed, code in ((epoch, 0), (-1, 0), (epoch + 1, 75), (epoch - 1, 74)):
        fields = fetch_fields("t", {0: 0})
        fields["topics"][0]["partitions"][0]["current_leader_epoch"] = claimed
        answer = filled.ask(ApiKey.FETCH, VERSION, **fields)
        assert answer.responses[0].partitions[0].error_code == code, claimed


def test_a_session_of_another_broker_is_not_known(filled: RunningBroker) -> None:
    fields = fetch_fields("t", {0: 0}) | {"session_id": 77, "session_epoch": 3}
    assert filled.ask(ApiKey.FETCH, VERSION, **fields).error_code == 70


def test_what_is_not_in_memory_is_read_in_a_thread(filled: RunningBroker) -> None:
    """After a restart nothing is known to be in memory; the answers are the same."""
    before = bytes(fetch(filled, {0: 3})[0].records)
    filled.restart()
    assert not filled.call(lambda: filled.broker.partitions["t", 0].is_hot(3, committed=False))
    assert bytes(fetch(filled, {0: 3})[0].records) == before


@pytest.mark.parametrize("count", [1, AT_ONCE, AT_ONCE + 1, 1001])
def test_however_many_partitions_are_read_all_are_answered(
    filled: RunningBroker, count: int
) -> None:
    fields = fetch_fields("t", {0: 0})
    fields["topics"][0]["partitions"] *= count
    answer = filled.ask(ApiKey.FETCH, VERSION, **fields).responses[0]
    assert len(answer.partitions) == count
    assert base_offsets(answer.partitions[0])


def test_a_topic_that_is_made_again_while_a_fetch_is_looked_up_is_another_one(
    filled: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch by topic id of many partitions gives way to others between its partitions."""
    topic = make_again_meanwhile(filled, monkeypatch, "t", 2)
    fields = fetch_fields(topic.topic_id, {0: 0})
    fields["topics"][0]["partitions"] *= AT_ONCE + 1
    answer = filled.ask(ApiKey.FETCH, 13, **fields).responses[0]
    assert {it.error_code for it in answer.partitions} == {100}  # UNKNOWN_TOPIC_ID


@pytest.fixture
def lagging(filled: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    """As with a follower behind and a transaction open: stable to 7, replicated to 13, end 20."""
    monkeypatch.setattr(Log, "high_watermark", property(lambda log: 13))
    monkeypatch.setattr(Log, "last_stable_offset", property(lambda log: 7))
    return filled


@pytest.mark.parametrize(("isolation", "end"), [(0, 13), (1, 7)])
def test_a_consumer_reads_up_to_the_end_of_its_isolation_level(
    lagging: RunningBroker, isolation: int, end: int
) -> None:
    for offset in range(21):
        (partition,) = fetch(lagging, {0: offset}, isolation_level=isolation, max_wait_ms=0)
        assert (partition.high_watermark, partition.last_stable_offset) == (13, 7)
        assert partition.error_code == 0, "in range up to the log end offset"
        whole = [base for base in range(0, 20, 2) if base + 2 > offset and base + 2 <= end]
        assert base_offsets(partition) == whole
    assert fetch(lagging, {0: 21}, isolation_level=isolation)[0].error_code == 1


@pytest.mark.parametrize(("isolation", "end"), [(0, 13), (1, 7)])
def test_lookups_end_where_the_isolation_level_does(
    lagging: RunningBroker, isolation: int, end: int
) -> None:
    now_ms = lagging.clock.now_ms()
    with lagging.connect() as connection:
        stamped = [build_batch([LogRecord(now_ms - 5, None, b"v")]) for _ in range(2)]
        for each in stamped:
            connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: each}))

        def look(timestamp: int) -> int:
            answer = connection.ask(
                ApiKey.LIST_OFFSETS,
                8,
                isolation_level=isolation,
                topics=[
                    {
                        "name": "t",
                        "partitions": [{"partition_index": 0, "timestamp": timestamp}],
                    }
                ],
            )
            return int(answer.topics[0].partitions[0].offset)

        assert (look(-1), look(-2)) == (end, 0)
        assert (look(now_ms - 5), look(-3)) == (-1, -1), "not to be fetched yet"
