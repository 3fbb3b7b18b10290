"""Produce with acks=all to partitions that have other replicas."""

import threading
from typing import Any

import pytest
from batches import batch
from led_partitions import EPOCH, LedPartitions
from patience import eventually
from raw_connection import produce_fields
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.broker.coordinators.admission import Admitted
from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

broker = a_broker("t", partitions=3)

LONG_MS = 60_000
ALL = -1
VERSIONS = [9, 12]  # both are decoded by hand if they have one partition


@pytest.fixture
def led(broker: RunningBroker) -> LedPartitions:
    return LedPartitions(broker)


def fields(*indexes: int, timeout_ms: int = LONG_MS, acks: int = ALL) -> dict[str, Any]:
    sent = produce_fields("t", {index: batch(NOW_MS, NOW_MS) for index in indexes}, acks=acks)
    return {**sent, "timeout_ms": timeout_ms}


class Producing:
    """A produce request in a thread of the test."""

    def __init__(self, broker: RunningBroker, sent: dict[str, Any], version: int = 12) -> None:
        self.answer: Any = None
        self._connection = broker.connect()
        self._connection.send(ApiKey.PRODUCE, version, **sent)
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        self.answer = self._connection.receive()[1]

    def done(self) -> list[Any]:
        self._thread.join()
        self._connection.socket.close()
        return [found for topic in self.answer.responses for found in topic.partition_responses]


def waiting(led: LedPartitions, index: int = 0) -> bool:
    """Whether a request waits for the partition."""
    return led.broker.call(lambda: any(led.partition(index).listeners))


def produced(broker: RunningBroker, sent: dict[str, Any], version: int = 12) -> Any:
    (topic,) = broker.ask(ApiKey.PRODUCE, version, **sent).responses
    return topic.partition_responses[0]


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_waits_for_the_in_sync_replicas(
    led: LedPartitions, version: int, indexes: tuple[int, ...]
) -> None:
    producing = Producing(led.broker, fields(*indexes), version)
    for index in indexes:
        eventually(lambda index=index: waiting(led, index))
    for index in indexes:
        led.reach(2, 2, index=index)
        assert producing.answer is None
        led.reach(2, 3, index=index)
    for answer in producing.done():
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 0, 0)


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks_wait_for_nobody(led: LedPartitions, acks: int) -> None:
    if acks:
        assert produced(led.broker, fields(0, acks=acks)).error_code == 0
    else:
        with led.broker.connect() as connection:
            connection.send(ApiKey.PRODUCE, 12, **fields(0, acks=0))
            eventually(lambda: led.partition().log.log_end_offset == 2)
    assert led.partition().log.high_watermark == 0


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
@pytest.mark.parametrize("version", [7, 12])
def test_a_timeout_keeps_the_offsets(
    led: LedPartitions, version: int, indexes: tuple[int, ...]
) -> None:
    led.reach(0, 2, 3)
    answer = produced(led.broker, fields(*indexes, timeout_ms=50), version)
    assert answer.error_code == ErrorCode.request_timed_out
    assert (answer.base_offset, answer.log_start_offset) == (0, 0)
    assert led.partition().log.log_end_offset == 2
    led.broker.call(lambda: None)
    assert not waiting(led)


def test_too_few_in_sync_replicas_refuse_before_the_append(broker: RunningBroker) -> None:
    led = LedPartitions(broker, isr=(1,), min_isr=2)
    for indexes in ((0,), (0, 1)):
        answer = produced(broker, fields(*indexes))
        assert answer.error_code == ErrorCode.not_enough_replicas
        assert (answer.base_offset, answer.log_start_offset) == (-1, 0)
    assert led.partition().log.log_end_offset == 0
    assert produced(broker, fields(0, acks=1)).error_code == 0
    assert led.partition().log.high_watermark == 0, "readers are shown nothing either"


def test_a_minimum_above_the_number_of_replicas_counts_as_all_of_them(
    broker: RunningBroker,
) -> None:
    led = LedPartitions(broker, replicas=(1, 2), isr=(1, 2), min_isr=3)
    producing = Producing(broker, fields(0))
    eventually(lambda: waiting(led))
    led.reach(2, 2)
    assert producing.done()[0].error_code == 0


def test_too_few_in_sync_replicas_after_the_append_are_told(led: LedPartitions) -> None:
    producing = Producing(led.broker, fields(0))
    eventually(lambda: waiting(led))

    def shrink() -> None:
        leading = led.partition().leading
        assert leading is not None
        leading.on_min_isr(3)
        led.fetched(led.partition(), 2, 102, 2, 0, 2)
        led.fetched(led.partition(), 3, 103, 2, 0, 2)
        leading.on_state(led.record()._replace(isr=(1, 2), partition_epoch=9), 0)

    led.broker.call(shrink)
    (answer,) = producing.done()
    assert answer.error_code == ErrorCode.not_enough_replicas_after_append
    assert (answer.base_offset, answer.log_start_offset) == (0, 0)


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
def test_a_lost_leadership_ends_the_wait_and_names_the_leader(
    led: LedPartitions, indexes: tuple[int, ...]
) -> None:
    producing = Producing(led.broker, fields(*indexes))
    eventually(lambda: waiting(led))
    if len(indexes) > 1:
        led.reach(2, 2, 3, index=1)
    led.lose()
    answers = producing.done()
    assert answers[0].error_code == ErrorCode.not_leader_or_follower
    leader = answers[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, EPOCH + 1)
    assert [endpoint.node_id for endpoint in producing.answer.node_endpoints] == [2]
    assert [answer.error_code for answer in answers[1:]] == [0] * (len(answers) - 1)


def test_a_partition_that_was_lost_and_won_again_is_not_acknowledged(led: LedPartitions) -> None:
    producing = Producing(led.broker, fields(0))
    eventually(lambda: waiting(led))
    led.lose()
    led.win()
    led.reach(2, 2, 3)
    assert producing.done()[0].error_code == ErrorCode.not_leader_or_follower


def test_a_deleted_topic_ends_the_wait(led: LedPartitions) -> None:
    producing = Producing(led.broker, fields(0))
    eventually(lambda: waiting(led))
    parts = led.broker.broker
    led.broker.run(parts.controller.delete_topic(parts.topics.find("t")))
    (answer,) = producing.done()
    assert answer.error_code in (
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
    )


def idempotent(sequence: int) -> dict[str, Any]:
    records = build_batch(
        [LogRecord(NOW_MS, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    return {**produce_fields("t", {0: records}, acks=ALL), "timeout_ms": LONG_MS}


def test_a_retry_waits_until_the_original_is_replicated(led: LedPartitions) -> None:
    timed_out = {**idempotent(0), "timeout_ms": 20}
    assert produced(led.broker, timed_out).error_code == ErrorCode.request_timed_out
    answer = produced(led.broker, timed_out)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.request_timed_out, 0)
    producing = Producing(led.broker, idempotent(0))
    eventually(lambda: waiting(led))
    led.reach(1, 2, 3)
    (answer,) = producing.done()
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert led.partition().log.log_end_offset == 1
    assert produced(led.broker, idempotent(0)).error_code == 0


def test_requests_of_one_connection_overlap(led: LedPartitions) -> None:
    with led.broker.connect() as connection:
        for _ in range(3):
            connection.send(ApiKey.PRODUCE, 12, **fields(0))
        eventually(lambda: led.partition().log.log_end_offset == 6)
        led.reach(6, 2, 3)
        answers = [connection.receive()[1] for _ in range(3)]
    bases = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert bases == [0, 2, 4]


def test_a_client_that_has_gone_leaves_nothing_waiting(led: LedPartitions) -> None:
    with led.broker.connect() as connection:
        connection.send(ApiKey.PRODUCE, 12, **fields(0))
        eventually(lambda: waiting(led))
    eventually(lambda: not waiting(led))
    assert not waiting(led)


def test_a_stop_answers_what_waits(broker: RunningBroker) -> None:
    led = LedPartitions(broker)
    producing = Producing(broker, fields(0))
    eventually(lambda: waiting(led))
    broker.call(broker.broker.end_waits)
    assert producing.done()[0].error_code == ErrorCode.request_timed_out


class Electing:
    """Coordinator of transactions; while it is asked, the leadership is lost and won again."""

    def __init__(self, led: LedPartitions) -> None:
        self._led = led

    async def admitted(
        self, transactional_id: str, producer: Any, partitions: Any, produce_version: int
    ) -> Admitted:
        led, partition = self._led, self._led.partition()
        led.leaders.stop(led.record())
        await partition.change(lambda log: log.become_follower(EPOCH + 1))
        # Queued: the append comes behind it, and before the new leader knows its replicas.
        _ = partition.change(lambda log: log.become_leader(EPOCH + 2, is_replicated=True))
        return Admitted(7, True, dict.fromkeys(partitions, ErrorCode.none))


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_appended_before_the_replicas_of_a_new_leader_are_known(
    led: LedPartitions, version: int, indexes: tuple[int, ...]
) -> None:
    led.broker.broker.other_coordinators = Electing(led)
    records = batch(NOW_MS, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    sent = produce_fields("t", dict.fromkeys(indexes, records), acks=ALL, transactional_id="tx")
    connection = led.broker.connect()
    connection.send(ApiKey.PRODUCE, version, **{**sent, "timeout_ms": 1_000})
    (topic,) = connection.receive()[1].responses
    connection.socket.close()
    assert topic.partition_responses[0].error_code == ErrorCode.not_leader_or_follower
    assert led.partition().log.log_end_offset == 0
