"""Transactional batches whose coordinator is another broker: what it is asked, and what counts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from batches import batch
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.broker.cluster.other_brokers import OtherBrokers
from horolog.broker.cluster.own_rights import OwnRights
from horolog.broker.cluster.remote_admission import RemoteAdmission
from horolog.broker.coordinators.admission import Admitted
from horolog.client import NoAnswer, Security
from horolog.client.security import PLAINTEXT
from horolog.errors import BatchRefused, ErrorCode, RequestRefused
from horolog.record import LogRecord, build_batch
from horolog.record.markers import TransactionEnd
from horolog.storage.names import TopicPartition
from horolog.storage.producers.states import Admission
from horolog.transactions.values import ProducerIdentity
from horolog.wire import ApiKey, NodeEndpoint

broker = a_broker("t", partitions=3, add_partitions_to_txn_retry_backoff_max_ms="100")

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = ProducerIdentity(7, 2)
COORDINATOR = NodeEndpoint(5, "localhost", 9)
FIRST, SECOND = 11, 12


def transactional(sequence: int = 0, producer: ProducerIdentity = PRODUCER) -> bytes:
    return build_batch(
        [LogRecord(NOW_MS, None, b"x")],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


class Coordinator:
    """A broker that answers AddPartitionsToTxn with given codes, or all with 0."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.asked: list[list[Mapping[str, Any]]] = []
        self.top = ErrorCode.none
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.pause = asyncio.Event()
        self.pause.set()

    async def __call__(
        self, node: NodeEndpoint, api_key: ApiKey, body: Mapping[str, Any], /, *, timeout_ms: int
    ) -> Any:
        assert (node, api_key) == (COORDINATOR, ApiKey.ADD_PARTITIONS_TO_TXN)
        self.asked.append(body["transactions"])
        await self.pause.wait()
        if self.meanwhile is not None:
            await self.meanwhile()
        code = self.codes.pop(0) if self.codes else ErrorCode.none
        if code is ErrorCode.network_exception:
            raise NoAnswer("it has gone")
        return SimpleNamespace(
            error_code=self.top,
            results_by_transaction=[
                SimpleNamespace(
                    transactional_id=each["transactional_id"],
                    topic_results=[
                        SimpleNamespace(
                            name=topic["name"],
                            results_by_partition=[
                                SimpleNamespace(partition_index=index, partition_error_code=code)
                                for index in topic["partitions"]
                            ],
                        )
                        for topic in each["topics"]
                    ],
                )
                for each in body["transactions"]
            ],
        )


def coordinator_of(transactional_id: str) -> NodeEndpoint:
    if transactional_id == "lost":
        raise RequestRefused(ErrorCode.coordinator_not_available, "it is lost")
    return COORDINATOR


def admitting(
    broker: RunningBroker, scenario: "Callable[[RemoteAdmission, Coordinator], Awaitable[None]]"
) -> None:
    async def run() -> None:
        parts = broker.broker
        coordinator = Coordinator()
        admission = RemoteAdmission(
            coordinator,
            coordinator_of,
            parts.partitions,
            parts.catalogue.live,
            OwnRights(PLAINTEXT),
        )
        await scenario(admission, coordinator)
        await admission.close()

    broker.run(run())


async def append(partition: Any, records: bytes, admission: Admission) -> None:
    appended = partition.writes.append(records, NOW_MS, SECOND, "me", admission=admission)
    if isinstance(appended, asyncio.Future):
        await appended


def codes(admitted: Admitted) -> list[ErrorCode]:
    return list(admitted.codes.values())


@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_the_first_flow_verifies_and_the_second_adds(broker: RunningBroker, version: int) -> None:
    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        admitted = await admission.admitted("tx", PRODUCER, [P0, P1], version)
        assert codes(admitted) == [0, 0]
        ((asked,),) = coordinator.asked
        assert asked == {
            "transactional_id": "tx",
            "producer_id": 7,
            "producer_epoch": 2,
            "verify_only": version == FIRST,
            "topics": [{"name": "t", "partitions": [0, 1]}],
        }

    admitting(broker, scenario)


def test_an_open_transaction_is_not_asked_about_again(broker: RunningBroker) -> None:
    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        partition = broker.broker.partitions["t", 0]
        for sequence in range(3):
            admitted = await admission.admitted("tx", PRODUCER, [P0], SECOND)
            await append(partition, transactional(sequence), admitted.admissions[P0])
        assert len(coordinator.asked) == 1
        later = ProducerIdentity(7, 3)
        assert codes(await admission.admitted("tx", later, [P0], SECOND)) == [0]
        assert len(coordinator.asked) == 2

    admitting(broker, scenario)


def test_a_marker_before_the_answer_refuses_the_batch(broker: RunningBroker) -> None:
    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        partition = broker.broker.partitions["t", 0]
        admitted = await admission.admitted("tx", PRODUCER, [P0], FIRST)
        await append(partition, transactional(), admitted.admissions[P0])

        async def end() -> None:
            ended = TransactionEnd(7, 2, 0, False, False)
            appended = partition.append(ended, NOW_MS)
            if isinstance(appended, asyncio.Future):
                await appended

        await end()
        coordinator.meanwhile = end  # of the transaction that was asked about
        admitted = await admission.admitted("tx", PRODUCER, [P0], FIRST)
        assert codes(admitted) == [0]
        with pytest.raises(BatchRefused, match="not part of an ongoing transaction"):
            await append(partition, transactional(1), admitted.admissions[P0])

    admitting(broker, scenario)


def test_a_marker_of_the_transaction_before_does_not_refuse_the_next_one(
    broker: RunningBroker,
) -> None:
    """In the second flow it has the epoch of the next transaction, which it may overtake."""

    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        partition = broker.broker.partitions["t", 0]
        admitted = await admission.admitted("tx", PRODUCER, [P0], SECOND)
        await append(partition, transactional(), admitted.admissions[P0])

        async def end(epoch: int) -> None:
            appended = partition.append(TransactionEnd(7, epoch, 0, False, True), NOW_MS)
            if isinstance(appended, asyncio.Future):
                await appended

        later = ProducerIdentity(7, 3)
        coordinator.meanwhile = partial(end, 3)
        admitted = await admission.admitted("tx", later, [P0], SECOND)
        await append(partition, transactional(0, later), admitted.admissions[P0])
        await end(4)
        later = ProducerIdentity(7, 4)
        coordinator.meanwhile = partial(end, 5)  # its own: it was given up meanwhile
        admitted = await admission.admitted("tx", later, [P0], SECOND)
        with pytest.raises(BatchRefused, match="smaller than the last seen epoch 5"):
            await append(partition, transactional(0, later), admitted.admissions[P0])

    admitting(broker, scenario)


@pytest.mark.parametrize(
    ("code", "first", "second"),
    [
        (ErrorCode.network_exception, 19, 19),
        (ErrorCode.coordinator_load_in_progress, 19, 19),
        (ErrorCode.not_coordinator, 19, 19),
        (ErrorCode.producer_fenced, 47, 47),
        (ErrorCode.invalid_producer_epoch, 47, 47),
        (ErrorCode.transaction_abortable, 120, 120),
        (ErrorCode.invalid_txn_state, 48, 48),
        (ErrorCode.invalid_producer_id_mapping, 49, 49),
    ],
)
def test_codes_become_those_that_clients_repeat(
    broker: RunningBroker, code: ErrorCode, first: int, second: int
) -> None:
    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        for version, expected in ((FIRST, first), (SECOND, second)):
            coordinator.codes = [code]
            assert codes(await admission.admitted("tx", PRODUCER, [P0], version)) == [expected]

    admitting(broker, scenario)


def test_without_a_coordinator_clients_try_again(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        assert codes(await admission.admitted("lost", PRODUCER, [P0], SECOND)) == [19]
        coordinator.top = ErrorCode.cluster_authorization_failed
        for _ in range(2):
            assert codes(await admission.admitted("tx", PRODUCER, [P0], SECOND)) == [48]
        assert len(coordinator.asked) == 2

    admitting(broker, scenario)
    assert caplog.text.count("--allow-principal User:ANONYMOUS --operation ClusterAction") == 1


def test_a_transaction_that_has_to_wait_is_asked_about_again(broker: RunningBroker) -> None:
    waits = ErrorCode.concurrent_transactions

    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        coordinator.codes = [waits, waits]
        assert codes(await admission.admitted("tx", PRODUCER, [P0], SECOND)) == [0]
        assert len(coordinator.asked) == 3
        coordinator.codes = [waits] * 10_000
        assert codes(await admission.admitted("tx", PRODUCER, [P0], SECOND)) == [51]
        coordinator.codes = [waits]
        assert codes(await admission.admitted("tx", PRODUCER, [P0], FIRST)) == [19]

    admitting(broker, scenario)


def test_questions_that_come_meanwhile_go_into_one_request(broker: RunningBroker) -> None:
    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        coordinator.pause.clear()
        asking = [
            asyncio.ensure_future(
                admission.admitted(f"tx{n}", ProducerIdentity(n, 0), [P0], SECOND)
            )
            for n in range(5)
        ]
        again = asyncio.ensure_future(
            admission.admitted("tx4", ProducerIdentity(4, 0), [P1], SECOND)
        )
        while not coordinator.asked:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        coordinator.pause.set()
        for each in [*asking, again]:
            assert codes(await each) == [0]
        sizes = [len(asked) for asked in coordinator.asked]
        assert sum(sizes) == 6
        assert len(sizes) <= 3
        for asked in coordinator.asked:
            ids = [each["transactional_id"] for each in asked]
            assert len(ids) == len(set(ids))

    admitting(broker, scenario)


def test_the_older_of_two_epochs_that_wait_is_fenced(broker: RunningBroker) -> None:
    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        coordinator.pause.clear()
        first = asyncio.ensure_future(admission.admitted("other", PRODUCER, [P0], SECOND))
        await asyncio.sleep(0)
        while not coordinator.asked:
            await asyncio.sleep(0)
        old = asyncio.ensure_future(admission.admitted("tx", ProducerIdentity(9, 1), [P0], SECOND))
        await asyncio.sleep(0)
        new = asyncio.ensure_future(admission.admitted("tx", ProducerIdentity(9, 2), [P0], SECOND))
        await asyncio.sleep(0)
        older = asyncio.ensure_future(
            admission.admitted("tx", ProducerIdentity(9, 0), [P0], SECOND)
        )
        assert codes(await old) == codes(await older) == [ErrorCode.invalid_producer_epoch]
        coordinator.pause.set()
        assert codes(await new) == codes(await first) == [0]

    admitting(broker, scenario)


def test_a_stop_fails_what_waits(broker: RunningBroker) -> None:
    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        coordinator.pause.clear()
        waiting = [
            asyncio.ensure_future(admission.admitted(f"tx{n}", PRODUCER, [P0], SECOND))
            for n in range(3)
        ]
        while not coordinator.asked:
            await asyncio.sleep(0)
        await admission.close()
        for each in waiting:
            assert codes(await each) == [ErrorCode.not_enough_replicas]

    admitting(broker, scenario)


def test_a_batch_of_a_topic_that_is_gone_is_to_be_sent_again(broker: RunningBroker) -> None:
    async def scenario(admission: RemoteAdmission, coordinator: Coordinator) -> None:
        gone = TopicPartition("gone", 0)
        admitted = await admission.admitted("tx", PRODUCER, [gone], SECOND)
        assert admitted.codes == {}
        assert coordinator.asked == []

    admitting(broker, scenario)


def test_a_produce_request_asks_the_coordinator_of_the_cluster(broker: RunningBroker) -> None:
    async def begin() -> Coordinator:
        parts, coordinator = broker.broker, Coordinator()
        parts.other_coordinators = RemoteAdmission(
            coordinator,
            coordinator_of,
            parts.partitions,
            parts.catalogue.live,
            OwnRights(PLAINTEXT),
        )
        return coordinator

    coordinator = broker.run(begin())
    fields = {
        "transactional_id": "tx",
        "acks": -1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": transactional()}]}],
    }
    for version in (FIRST, SECOND):
        (topic,) = broker.ask(ApiKey.PRODUCE, version, **fields).responses
        assert topic.partition_responses[0].error_code == 0
    assert len(coordinator.asked) == 1
    assert broker.produce("t", batch(NOW_MS), 1).error_code == 0
    two = [{"index": 1, "records": transactional()}, {"index": 2, "records": transactional()}]
    fields["topic_data"] = [{"name": "t", "partition_data": two}]
    (topic,) = broker.ask(ApiKey.PRODUCE, SECOND, **fields).responses
    assert [answer.error_code for answer in topic.partition_responses] == [0, 0]
    assert len(coordinator.asked) == 2


@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_a_coordinator_is_asked_over_a_connection_of_its_own(
    broker: RunningBroker, version: int
) -> None:
    host, _, port = broker.address.rpartition(":")
    node = NodeEndpoint(5, host, int(port))

    async def begin() -> OtherBrokers:
        parts, others = broker.broker, OtherBrokers(Security(), client_id="broker-9-txn")
        parts.other_coordinators = RemoteAdmission(
            others.ask, lambda _: node, parts.partitions, parts.catalogue.live, OwnRights(PLAINTEXT)
        )
        return others

    others = broker.run(begin())
    named = {"transactional_id": "tx", "transaction_timeout_ms": 60_000}
    made = broker.ask(ApiKey.INIT_PRODUCER_ID, 5, producer_id=-1, producer_epoch=-1, **named)
    producer = ProducerIdentity(made.producer_id, made.producer_epoch)

    def produced() -> int:
        records = transactional(producer=producer)
        data = {"name": "t", "partition_data": [{"index": 0, "records": records}]}
        (topic,) = broker.ask(
            ApiKey.PRODUCE, version, transactional_id="tx", acks=-1, topic_data=[data]
        ).responses
        return int(topic.partition_responses[0].error_code)

    if version == FIRST:
        assert produced() == ErrorCode.transaction_abortable
        broker.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        )
    assert produced() == 0
    broker.run(others.close())
    assert produced() == 0, "a repeated batch of an open transaction needs no coordinator"
