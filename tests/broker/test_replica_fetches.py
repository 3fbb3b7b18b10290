"""Fetches of replicas: the order of the checks, real bytes to the log end, and what is progress.

What is expected of errors and their fields was seen at Apache Kafka 4.4.0 as the leader
(tests/interop/test_interop_leader.py).
"""

import threading
from typing import Any
from uuid import UUID

import pytest
from batches import batch
from led_partitions import BROKER_EPOCHS, EPOCH, LedPartitions
from overrides import override
from patience import eventually
from replica_session import ReplicaSession
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.broker import replica_reads
from horolog.errors import ErrorCode
from horolog.record import iter_headers
from horolog.storage.batches.slices import Slice
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.view import LogView
from horolog.wire import ApiKey
from horolog.wire.features import WITH_APPEND_TIMES, WITH_SEEN_TIMES

broker = a_broker("t", partitions=3)

NONE = (-1, -1, -1)


def offsets(answer: Any) -> tuple[int, int, int]:
    return answer.high_watermark, answer.last_stable_offset, answer.log_start_offset


@pytest.fixture
def led(broker: RunningBroker) -> LedPartitions:
    return LedPartitions(broker)


@pytest.fixture
def filled(led: LedPartitions) -> LedPartitions:
    """Four records in the first partition, of which none is committed."""
    for _ in range(2):
        led.broker.append("t", batch(NOW_MS, NOW_MS))
    return led


def leader_of(answer: Any) -> tuple[int, int]:
    return answer.current_leader.leader_id, answer.current_leader.leader_epoch


def test_a_replica_reads_to_the_log_end_and_a_consumer_to_the_high_watermark(
    filled: LedPartitions,
) -> None:
    answer = filled.fetch(0)
    assert (answer.error_code, offsets(answer)) == (0, (0, 0, 0))
    assert answer.aborted_transactions is None
    assert [header.next_offset for _, header in iter_headers(answer.records)] == [2, 4]
    assert filled.broker.fetch("t").records == b""
    filled.reach(4, 2, 3)
    assert filled.broker.fetch("t").high_watermark == 4
    assert filled.broker.count("t") == 4


def test_the_high_watermark_is_what_all_in_sync_replicas_have(filled: LedPartitions) -> None:
    log = filled.partition().log
    filled.reach(4, 2)
    assert log.high_watermark == 0
    filled.reach(2, 3)
    assert log.high_watermark == 2
    filled.change(isr=(1, 2))
    assert log.high_watermark == 2, "it is about to join again"
    filled.fence(3)
    assert log.high_watermark == 4


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"epoch": EPOCH - 1}, ErrorCode.fenced_leader_epoch),
        ({"epoch": EPOCH + 1}, ErrorCode.unknown_leader_epoch),
        ({"epoch": EPOCH + 1, "replica": 9}, ErrorCode.unknown_leader_epoch),
        ({"replica": 9}, ErrorCode.unknown_leader_epoch),
        ({"replica": 1}, ErrorCode.unknown_leader_epoch),
        ({"replica": 9, "offset": 99}, ErrorCode.unknown_leader_epoch),
        ({"offset": 99}, ErrorCode.offset_out_of_range),
        ({"offset": 99, "broker_epoch": 1}, ErrorCode.offset_out_of_range),
        ({"last_epoch": EPOCH + 1, "offset": 2}, ErrorCode.offset_out_of_range),
        ({"offset": -1}, ErrorCode.offset_out_of_range),
        ({"broker_epoch": 1}, ErrorCode.not_leader_or_follower),
        ({"topic_id": UUID(int=77)}, ErrorCode.unknown_topic_id),
        ({"index": 7}, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_a_refused_fetch_has_no_offsets_and_is_no_progress(
    filled: LedPartitions, asked: dict[str, Any], code: ErrorCode
) -> None:
    """KAFKA-8400."""
    answer = filled.fetch(**{"offset": 4, **asked})
    assert (answer.error_code, offsets(answer), answer.records) == (code, NONE, b"")
    assert filled.fetched_by == []
    has_leader = code in (ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower)
    assert leader_of(answer) == ((1, EPOCH) if has_leader else (-1, -1))


def test_answers_name_the_leader_from_version_16_on_and_no_endpoints(
    filled: LedPartitions,
) -> None:
    assert leader_of(filled.fetch(4, epoch=4, version=16)) == (1, EPOCH)
    assert leader_of(filled.fetch(4, epoch=4, version=15)) == (-1, -1)
    filled.lose()
    fields = filled.fields({0: 4}, epoch=-1)
    answer = filled.broker.ask(ApiKey.FETCH, 18, **fields)
    (found,) = answer.responses[0].partitions
    assert found.error_code == ErrorCode.not_leader_or_follower
    assert leader_of(found) == (2, EPOCH + 1)
    assert answer.node_endpoints == ()


@pytest.mark.parametrize("broker_epoch", [-1, BROKER_EPOCHS[2] + 1])
def test_an_unknown_or_newer_registration_is_taken(
    filled: LedPartitions, broker_epoch: int
) -> None:
    assert filled.fetch(4, broker_epoch=broker_epoch).error_code == 0
    assert filled.fetched_by == [("t-0", 2, 4)]


@pytest.mark.parametrize("version", [13, 14])
def test_a_replica_without_a_state_says_no_broker_epoch(
    filled: LedPartitions, version: int
) -> None:
    assert filled.fetch(4, version=version).error_code == 0
    assert filled.fetched_by == [("t-0", 2, 4)]


def test_a_diverging_log_is_told_where_and_is_no_progress(filled: LedPartitions) -> None:
    """KAFKA-13141."""
    filled.reach(4, 3)
    filled.fetched_by.clear()
    answer = filled.fetch(9, last_epoch=EPOCH)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (EPOCH, 4)
    assert (answer.error_code, answer.records, offsets(answer)) == (0, b"", (0, 0, 0))
    stale = filled.fetch(9, last_epoch=EPOCH, broker_epoch=1)
    assert stale.diverging_epoch.end_offset == 4
    filled.lose()
    filled.win()
    filled.broker.append("t", batch(NOW_MS))
    answer = filled.fetch(6, last_epoch=EPOCH + 1, epoch=EPOCH + 2)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (EPOCH, 4)
    assert filled.fetched_by == []
    assert filled.fetch(4, last_epoch=EPOCH, epoch=EPOCH + 2).diverging_epoch.epoch == -1


def test_an_offset_before_the_log_start_is_out_of_range_before_it_diverges(
    filled: LedPartitions,
) -> None:
    """KAFKA-12996."""
    filled.reach(4, 2, 3)
    filled.broker.delete_records("t", 2)
    filled.fetched_by.clear()
    assert filled.fetch(1, last_epoch=EPOCH).error_code == ErrorCode.offset_out_of_range
    assert filled.fetch(1).error_code == ErrorCode.offset_out_of_range
    assert filled.fetch(1, last_epoch=EPOCH + 3).error_code == ErrorCode.offset_out_of_range
    assert filled.fetched_by == []
    assert filled.fetch(2, last_epoch=EPOCH).log_start_offset == 2


def test_what_is_not_committed_is_copied_into_the_answer(led: LedPartitions) -> None:
    large = batch(*[NOW_MS] * 5_000)
    led.broker.append("t", large)
    assert len(led.fetch(0).records) == len(large)
    led.reach(5_000, 2, 3)
    led.broker.append("t", batch(NOW_MS))
    answer = led.fetch(0)
    assert len(answer.records) == len(large), "up to the high watermark first, from its file"
    assert len(led.fetch(5_000).records) == len(batch(NOW_MS))


def test_a_first_batch_is_whole_and_the_limit_is_of_all_partitions(led: LedPartitions) -> None:
    for index in range(3):
        led.broker.append("t", batch(NOW_MS, NOW_MS), index)
    fields = led.fields({0: 0, 1: 0, 2: 0}, max_bytes=1)
    (topic,) = led.broker.ask(ApiKey.FETCH, 18, **fields).responses
    sizes = [bool(answer.records) for answer in topic.partitions]
    assert sizes == [True, False, False]
    assert [name for name, _, _ in led.fetched_by] == ["t-0", "t-1", "t-2"]


class Waiting:
    """A fetch in a thread of the test."""

    def __init__(self, led: LedPartitions, fields: dict[str, Any]) -> None:
        self._led, self.answer = led, None
        self._connection = led.broker.connect()
        self._connection.send(ApiKey.FETCH, 18, **fields)
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        self.answer = self._connection.receive()[1]

    @property
    def is_answered(self) -> bool:
        return self.answer is not None

    def done(self) -> Any:
        self._thread.join()
        self._connection.socket.close()
        return self.answer


LONG_MS = 60_000


def waiters(led: LedPartitions, index: int = 0) -> int:
    return led.broker.call(lambda: sum(map(len, led.partition(index).listeners)))


def test_a_fetch_waits_for_appends_and_not_for_the_high_watermark(led: LedPartitions) -> None:
    """KAFKA-9952."""
    led.broker.append("t", batch(NOW_MS))
    led.reach(1, 2)
    waiting = Waiting(led, led.fields({0: 1}, max_wait_ms=LONG_MS))
    eventually(lambda: waiters(led) == 1)
    led.reach(1, 3)
    assert led.partition().log.high_watermark == 1
    assert not waiting.is_answered
    assert waiters(led) == 1
    led.broker.append("t", batch(NOW_MS, NOW_MS))
    (found,) = waiting.done().responses[0].partitions
    assert found.high_watermark == 1
    assert [header.base_offset for _, header in iter_headers(found.records)] == [1]
    assert [entry[1:] for entry in led.fetched_by] == [(2, 1), (2, 1), (3, 1)]


def test_a_fetch_that_waits_is_answered_once_leadership_is_lost(led: LedPartitions) -> None:
    waiting = Waiting(led, led.fields({0: 0}, max_wait_ms=LONG_MS))
    eventually(lambda: waiters(led) == 1)
    led.lose()
    (found,) = waiting.done().responses[0].partitions
    assert found.error_code == ErrorCode.fenced_leader_epoch
    assert leader_of(found) == (2, EPOCH + 1)


def test_an_error_of_one_partition_ends_the_wait(led: LedPartitions) -> None:
    waiting = Waiting(led, led.fields({0: 0, 7: 0}, max_wait_ms=LONG_MS))
    first, second = waiting.done().responses[0].partitions
    assert (first.error_code, second.error_code) == (0, ErrorCode.unknown_topic_or_partition)


def test_the_client_listener_takes_no_replica(broker: RunningBroker, led: LedPartitions) -> None:
    broker.append("t", batch(NOW_MS))
    between = broker.broker.config.inter_broker_listener_name
    object.__setattr__(broker.broker.config, "inter_broker_listener_name", "INTERNAL")
    try:
        answer = broker.ask(ApiKey.FETCH, 18, **led.fields({0: 1}))
    finally:
        object.__setattr__(broker.broker.config, "inter_broker_listener_name", between)
    assert answer.error_code == ErrorCode.cluster_authorization_failed
    assert led.fetched_by == []


def test_no_replica_is_known_where_a_broker_is_alone(broker: RunningBroker) -> None:
    broker.append("t", batch(NOW_MS))
    state = {"replica_id": 2, "replica_epoch": 9}
    answer = broker.fetch(broker.broker.topics.find("t").topic_id, version=18, replica_state=state)
    assert (answer.error_code, answer.high_watermark) == (0, 1)


# --- sessions ---------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["shortcut", "whole"])
def either(broker: RunningBroker, request: pytest.FixtureRequest) -> LedPartitions:
    """Later fetches of a session are answered by the shortcut, or as others are."""
    return LedPartitions(broker, has_shortcuts=request.param)


def test_a_session_gives_news_to_the_log_end(either: LedPartitions) -> None:
    led = either
    session = ReplicaSession(led)
    assert list(session.fetch({0: 0, 1: 0, 2: 0})) == [0, 1, 2]
    assert session.id
    assert session.fetch() == {}
    led.broker.append("t", batch(NOW_MS), 1)
    found = session.fetch()
    assert list(found) == [1], "it is above the high watermark, and news to a replica"
    assert found[1].records
    assert session.fetch({1: 1}) == {}
    led.reach(1, 3, index=1)
    assert session.fetch()[1].high_watermark == 1
    assert session.fetch() == {}


def test_a_high_watermark_found_before_a_wait_is_told_after_it(either: LedPartitions) -> None:
    led = either
    led.change(isr=(1, 3))
    led.fence(2)
    session = ReplicaSession(led)
    session.fetch({0: 0})
    led.broker.append("t", batch(NOW_MS))
    assert session.fetch()[0].high_watermark == 0
    led.reach(1, 3)
    found = session.fetch({0: 1}, max_wait_ms=1, min_bytes=1)
    assert found[0].high_watermark == led.partition().log.high_watermark == 1
    assert session.fetch(max_wait_ms=1, min_bytes=1) == {}


def test_a_replica_that_names_its_offset_again_is_told_the_high_watermark_again(
    either: LedPartitions,
) -> None:
    """It drops the answer to its last fetch where the partition is led in another epoch."""
    led = either
    led.broker.append("t", batch(NOW_MS))
    session = ReplicaSession(led)
    session.fetch({0: 0, 1: 0})
    session.fetch({0: 1})
    led.reach(1, 2, 3)
    assert session.fetch()[0].high_watermark == 1
    assert session.fetch() == {}
    found = session.fetch({0: 1})
    assert (list(found), found[0].high_watermark) == ([0], 1)
    assert session.fetch() == {}


def test_idle_partitions_of_a_session_are_noted_now_and_then(either: LedPartitions) -> None:
    led = either
    session = ReplicaSession(led)
    session.fetch({0: 0, 1: 0, 2: 0})
    session.fetch()
    led.fetched_by.clear()
    for _ in range(5):
        assert session.fetch() == {}
    assert led.fetched_by == []
    led.broker.clock.advance(2_100)
    assert session.fetch() == {}
    assert led.fetched_by == [("t-0", 2, 0), ("t-1", 2, 0), ("t-2", 2, 0)]
    led.broker.append("t", batch(NOW_MS), 2)
    led.fetched_by.clear()
    session.fetch()
    assert led.fetched_by == [("t-2", 2, 0)]


def test_a_session_tells_of_divergence_and_of_moved_starts(either: LedPartitions) -> None:
    led = either
    """KAFKA-9567."""
    for index in (0, 1):
        led.broker.append("t", batch(NOW_MS, NOW_MS), index)
        led.reach(2, 2, 3, index=index)
    session = ReplicaSession(led)
    session.fetch({0: 2, 1: 2}, last_epoch=EPOCH)
    assert session.fetch() == {}
    for _ in range(2):
        found = session.fetch({0: 5}, last_epoch=EPOCH)
        assert found[0].diverging_epoch.end_offset == 2, "until the replica has truncated"
    assert list(session.fetch({0: 2}, last_epoch=EPOCH)) == []
    led.broker.delete_records("t", 1, 1)
    assert session.fetch()[1].log_start_offset == 1


def test_a_session_tells_of_a_lost_leadership_at_once(either: LedPartitions) -> None:
    led = either
    session = ReplicaSession(led)
    session.fetch({0: 0, 1: 0})
    assert session.fetch() == {}
    led.lose(1)
    found = session.fetch()
    assert (list(found), found[1].error_code) == ([1], ErrorCode.fenced_leader_epoch)
    led.win(1)
    assert session.fetch()[1].error_code == ErrorCode.fenced_leader_epoch, "of an old epoch"
    assert session.fetch({1: 0}, epoch=EPOCH + 2)[1].error_code == 0


def test_a_session_goes_on_with_its_next_epoch_alone(either: LedPartitions) -> None:
    led = either
    session = ReplicaSession(led)
    session.fetch({0: 0})
    more = {"session_id": session.id, "session_epoch": 7}
    assert led.broker.ask(ApiKey.FETCH, 18, **led.fields({}, **more)).error_code == 71
    more = {"session_id": session.id + 1, "session_epoch": 1}
    assert led.broker.ask(ApiKey.FETCH, 18, **led.fields({}, **more)).error_code == 70
    assert session.fetch() == {}


# --- what happens meanwhile -------------------------------------------------------------


def test_a_leadership_lost_during_a_read_gives_no_records_and_is_no_progress(
    led: LedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    led.broker.append("t", batch(NOW_MS, NOW_MS))
    read, threads = replica_reads._read, []

    def lost_meanwhile(*given: Any, may_wait: bool, **more: Any) -> Any:
        if not may_wait:
            raise WouldBlock
        threads.append(threading.current_thread().name)
        led.lose()
        led.win()
        return read(*given, may_wait=may_wait, **more)

    override(monkeypatch, "horolog.broker.replica_reads", _read=lost_meanwhile)
    found = led.fetch(0, isolation_level=WITH_APPEND_TIMES)  # needs more than the last records
    assert threads[0].startswith("horolog-read")
    assert (found.error_code, found.records) == (ErrorCode.fenced_leader_epoch, b"")
    assert led.fetched_by == []


def test_a_gap_at_the_log_end_is_given_as_an_empty_batch(
    filled: LedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.lose()
    filled.win()

    def nothing(view: LogView, *_: Any, **__: Any) -> Slice:
        return Slice(view.files, None, 0, 0)

    monkeypatch.setattr(LogView, "read", nothing)
    found = filled.fetch(1, last_epoch=EPOCH, epoch=EPOCH + 2)
    ((_, header),) = iter_headers(found.records)
    assert (header.base_offset, header.next_offset, header.records_count) == (1, 4, 0)
    assert header.leader_epoch == EPOCH, "of the batches before the gap"
    assert filled.fetch(4, last_epoch=EPOCH, epoch=EPOCH + 2).records == b""


def test_a_horolog_replica_is_given_append_times(filled: LedPartitions) -> None:
    for level in (WITH_APPEND_TIMES, WITH_APPEND_TIMES | WITH_SEEN_TIMES):
        found = filled.fetch(0, isolation_level=level)
        assert len(found.records) == len(filled.fetch(0).records)
        count, *times = [
            (entry.producer_id, entry.first_offset) for entry in found.aborted_transactions
        ]
        assert count == (0, -1), "no transaction, then the times"
        assert times == [(NOW_MS, 0)]


def test_what_was_read_for_one_replica_is_given_to_the_others_while_it_is_true(
    filled: LedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = replica_reads._read, []

    def counted(*given: Any, **more: Any) -> Any:
        found = read(*given, **more)  # raises if it would wait for the disk; then it is read again
        reads.append(given[2].fetch_offset)
        return found

    override(monkeypatch, "horolog.broker.replica_reads", _read=counted)
    times = {"isolation_level": WITH_APPEND_TIMES}
    first = filled.fetch(0, replica=2, **times)
    assert filled.fetch(0, replica=3, **times) == first
    assert len(reads) == 1
    assert len(filled.fetch(0, replica=3).records) == len(first.records)
    second = filled.fetch(2, replica=3)
    assert len(reads) == 3, "other questions"
    filled.broker.append("t", batch(NOW_MS, NOW_MS))
    assert len(filled.fetch(2, replica=2).records) > len(second.records)
    filled.reach(4, 2, 3)
    assert filled.fetch(2, replica=2).high_watermark == 4
    filled.lose()
    assert filled.fetch(2, replica=3).records == b""
    filled.win()
    assert filled.fetch(2, replica=3, epoch=EPOCH + 2).records
    assert reads.count(2) == 4


def test_a_topic_that_was_made_anew_is_another_one(led: LedPartitions) -> None:
    session = ReplicaSession(led)
    session.fetch({0: 0})
    assert session.fetch() == {}
    parts = led.broker.broker
    led.broker.run(parts.controller.delete_topic(parts.topics.find("t")))
    assert session.fetch()[0].error_code == ErrorCode.unknown_topic_id
    led.broker.create_topic("t", 3)
    assert session.fetch()[0].error_code == ErrorCode.unknown_topic_id


def test_a_registration_that_is_over_gets_no_records_through_its_session(
    led: LedPartitions,
) -> None:
    session = ReplicaSession(led)
    session.fetch({0: 0})
    led.broker.append("t", batch(NOW_MS))
    found = session.fetch(broker_epoch=7)
    assert (found[0].error_code, found[0].records) == (ErrorCode.not_leader_or_follower, b"")
