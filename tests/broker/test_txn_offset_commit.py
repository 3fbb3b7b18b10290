"""TxnOffsetCommit on the wire: what each version asks the coordinator, and what it answers."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest
from running_broker import RunningBroker, a_broker

from horolog.errors import ErrorCode
from horolog.record import TransactionEnd
from horolog.schemas.transactions import TransactionStatus
from horolog.storage import CONSUMER_OFFSETS, TopicPartition
from horolog.wire import ApiKey

broker = a_broker("t", partitions=2)


class Coordinator:
    """Answers as it was told to."""

    def __init__(self) -> None:
        self.code = self.code_when_written = ErrorCode.none
        self.asked: list[tuple[Any, ...]] = []

    async def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        produce_version: int,
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, produce_version))
        return dict.fromkeys(partitions, self.code)

    def admitted(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        produce_version: int,
    ) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(partitions, self.code_when_written)


@pytest.fixture
def coordinator(broker: RunningBroker) -> Coordinator:
    coordinator = Coordinator()
    broker.broker.transactions.admit = coordinator.admit
    broker.broker.transactions.admitted = coordinator.admitted
    return coordinator


UNKNOWN_ID = UUID(int=77)


def named(broker: RunningBroker, topic: str) -> dict[str, Any]:
    """A topic by its name and its id."""
    found = broker.broker.topics.find(topic)
    return {"name": topic, "topic_id": UNKNOWN_ID if found is None else found.topic_id}


def commit_to(
    broker: RunningBroker, version: int, topics: list[dict[str, Any]], **more: Any
) -> list[tuple[Any, list[int]]]:
    """The codes of each topic, with the name or id in the answer."""
    answer = broker.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id="tx",
        producer_id=7,
        producer_epoch=2,
        topics=topics,
        **{"group_id": "g", **more},
    )
    return [(topic[0], [each.error_code for each in topic.partitions]) for topic in answer.topics]


def commit(broker: RunningBroker, version: int = 3, *, topic: str = "t", **more: Any) -> list[int]:
    offsets = [{"partition_index": p, "committed_offset": 10 + p} for p in (0, 1, 2)]
    topics = [{**named(broker, topic), "partitions": offsets}]
    ((_, codes),) = commit_to(broker, version, topics, **more)
    return codes


def committed(broker: RunningBroker) -> dict[int, tuple[int, int]]:
    topics = [{"name": "t", "partition_indexes": [0, 1]}]
    answer = broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics, require_stable=True)
    (topic,) = answer.topics
    return {p.partition_index: (p.committed_offset, p.error_code) for p in topic.partitions}


def end(broker: RunningBroker, *, commit: bool) -> None:
    transactions = broker.broker.groups.transactions
    ended = TransactionEnd(7, 2, 0, commit)
    broker.run(transactions.end(transactions.partition_of("g"), ended))


def test_offsets_are_there_after_the_marker_and_partitions_fail_alone(
    broker: RunningBroker, coordinator: Coordinator
) -> None:
    assert commit(broker) == [0, 0, 3]
    assert committed(broker) == {0: (-1, 88), 1: (-1, 88)}
    end(broker, commit=True)
    assert committed(broker) == {0: (10, 0), 1: (11, 0)}


def test_a_restart_has_what_is_pending(broker: RunningBroker, coordinator: Coordinator) -> None:
    commit(broker)
    for crash in (False, True):
        broker.restart(crash=crash)
        assert committed(broker) == {0: (-1, 88), 1: (-1, 88)}
    end(broker, commit=False)
    broker.restart(crash=True)
    assert committed(broker) == {0: (-1, 0), 1: (-1, 0)}


def test_without_a_partition_that_exists_no_transaction_begins(
    broker: RunningBroker, coordinator: Coordinator
) -> None:
    coordinator.code = ErrorCode.invalid_txn_state
    assert commit(broker, 5, topic="none") == [3, 3, 3]
    assert not coordinator.asked
    assert commit(broker, 5) == [48, 48, 3]
    assert coordinator.asked


@pytest.mark.parametrize(("version", "as_produce"), [(0, 10), (3, 10), (4, 11), (5, 12), (6, 12)])
def test_the_coordinator_is_asked_as_the_version_has_it(
    broker: RunningBroker, coordinator: Coordinator, version: int, as_produce: int
) -> None:
    assert commit(broker, version) == [0, 0, 3]
    assert coordinator.asked == [("tx", 7, 2, as_produce)]


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (ErrorCode.invalid_txn_state, 48),
        (ErrorCode.transaction_abortable, 120),
        (ErrorCode.invalid_producer_epoch, 47),
        (ErrorCode.not_enough_replicas, 15),
        (ErrorCode.not_leader_or_follower, 16),
    ],
)
def test_refusals_of_the_coordinator_are_those_of_a_group(
    broker: RunningBroker, coordinator: Coordinator, code: ErrorCode, answered: int
) -> None:
    coordinator.code = code
    assert commit(broker, 4) == [answered, answered, 3]
    assert committed(broker) == {0: (-1, 0), 1: (-1, 0)}


def test_a_transaction_that_ends_before_its_offsets_are_written_has_none(
    broker: RunningBroker, coordinator: Coordinator
) -> None:
    coordinator.code_when_written = ErrorCode.invalid_producer_epoch
    assert commit(broker, 5) == [47, 47, 3]
    assert committed(broker) == {0: (-1, 0), 1: (-1, 0)}


def test_loading_is_another_error_for_clients_before_2_3(
    broker: RunningBroker, coordinator: Coordinator
) -> None:
    coordinator.code = ErrorCode.coordinator_load_in_progress
    assert commit(broker, 1)[:2] == [15, 15]
    assert commit(broker, 2)[:2] == [14, 14]


@pytest.mark.parametrize("version", [0, 5, 6])
def test_a_group_without_a_name_is_refused_before_the_coordinator_is_asked(
    broker: RunningBroker, coordinator: Coordinator, version: int
) -> None:
    assert commit(broker, version, group_id="") == [24, 24, 3]
    assert not coordinator.asked


def test_topics_are_named_by_id_since_version_6(
    broker: RunningBroker, coordinator: Coordinator
) -> None:
    broker.create_topic("u")
    topic_id = named(broker, "u")["topic_id"]
    offset = [{"partition_index": 0, "committed_offset": 4}]
    answered = commit_to(
        broker,
        6,
        [
            {"topic_id": UNKNOWN_ID, "partitions": offset},
            {"topic_id": topic_id, "partitions": offset},
            {"topic_id": None, "partitions": offset},
            {**named(broker, "t"), "partitions": [*offset, {"partition_index": 9}]},
        ],
    )
    codes = [[100], [0], [100], [0, 3]]
    assert answered == list(
        zip([UNKNOWN_ID, topic_id, None, named(broker, "t")["topic_id"]], codes, strict=True)
    )
    end(broker, commit=True)
    assert committed(broker) == {0: (4, 0), 1: (-1, 0)}


@pytest.mark.parametrize("topics", [[], [{"topic_id": UNKNOWN_ID, "partitions": []}]])
def test_request_by_id_for_no_partition_begins_no_transaction(
    broker: RunningBroker, coordinator: Coordinator, topics: list[dict[str, Any]]
) -> None:
    assert commit_to(broker, 6, topics) == [(topic["topic_id"], []) for topic in topics]
    assert commit(broker, 6, topic="none") == [100, 100, 100]
    assert not coordinator.asked


def test_id_of_a_topic_that_was_deleted_is_not_the_id_of_its_successor(
    broker: RunningBroker, coordinator: Coordinator
) -> None:
    former = named(broker, "t")
    broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
    broker.create_topic("t", partitions=2)
    offsets = [{"partition_index": 0, "committed_offset": 1}]
    assert commit_to(broker, 6, [{**former, "partitions": offsets}]) == [
        (former["topic_id"], [100])
    ]
    assert commit(broker, 6) == [0, 0, 3]


@pytest.mark.parametrize(("version", "code"), [(3, 22), (5, 22), (6, 69)])
def test_a_generation_of_a_group_that_is_not_there_is_refused(
    broker: RunningBroker, coordinator: Coordinator, version: int, code: int
) -> None:
    assert commit(broker, version, member_id="m", generation_id=3) == [code, code, 3]
    assert committed(broker) == {0: (-1, 0), 1: (-1, 0)}
    assert commit(broker, version, member_id="m", generation_id=-1) == [0, 0, 3]


def test_what_is_wrong_with_the_group_is_answered_for_each_partition(
    broker: RunningBroker, coordinator: Coordinator
) -> None:
    assert commit(broker, topic="none") == [3, 3, 3]
    offsets = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 5000}]
    answer = broker.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        transactional_id="tx",
        group_id="g",
        producer_id=7,
        producer_epoch=2,
        topics=[{"name": "t", "partitions": offsets}],
    )
    assert answer.topics[0].partitions[0].error_code == 12


def test_a_topic_that_is_deleted_and_made_again_has_no_pending_offsets(
    broker: RunningBroker, coordinator: Coordinator
) -> None:
    commit(broker)
    broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
    broker.create_topic("t", partitions=2)
    end(broker, commit=True)
    assert committed(broker) == {0: (-1, 0), 1: (-1, 0)}


def write_marker(broker: RunningBroker, epoch: int = 2, *, index: int | None = None) -> int:
    """Commit as `kafka-transactions.sh` does where a transaction hangs."""
    if index is None:
        index = broker.broker.groups.transactions.partition_of("g")
    marker = {
        "producer_id": 7,
        "producer_epoch": epoch,
        "transaction_result": True,
        "topics": [{"name": CONSUMER_OFFSETS, "partition_indexes": [index]}],
        "coordinator_epoch": 0,
        "transaction_version": 1,
    }
    answer = broker.ask(ApiKey.WRITE_TXN_MARKERS, 2, markers=[marker])
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def test_a_marker_of_a_tool_ends_what_is_pending_in_a_partition_of_groups(
    broker: RunningBroker, coordinator: Coordinator
) -> None:
    assert write_marker(broker) == 3, "there is no such topic yet"
    commit(broker)
    assert write_marker(broker, epoch=1) == ErrorCode.invalid_producer_epoch
    assert write_marker(broker, index=99) == 3
    assert committed(broker) == {0: (-1, 88), 1: (-1, 88)}
    assert write_marker(broker) == 0
    assert committed(broker) == {0: (10, 0), 1: (11, 0)}
    broker.restart(crash=True)
    assert committed(broker) == {0: (10, 0), 1: (11, 0)}


def test_a_transaction_completes_whose_offsets_a_tool_has_ended_with_a_later_epoch(
    broker: RunningBroker,
) -> None:
    with broker.connect() as connection:
        producer = connection.ask(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id="tx", transaction_timeout_ms=60_000
        )
        who = {
            "transactional_id": "tx",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        assert connection.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, group_id="g", **who).error_code == 0
        offsets = [{"partition_index": 0, "committed_offset": 5}]
        topics = [{"name": "t", "partitions": offsets}]
        connection.ask(ApiKey.TXN_OFFSET_COMMIT, 3, group_id="g", topics=topics, **who)
        index = broker.broker.groups.transactions.partition_of("g")
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch + 1,
            "topics": [{"name": CONSUMER_OFFSETS, "partition_indexes": [index]}],
        }
        answer = connection.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
        assert answer.markers[0].topics[0].partitions[0].error_code == 0
        assert committed(broker) == {0: (-1, 0), 1: (-1, 0)}
        assert connection.ask(ApiKey.END_TXN, 3, **who, committed=True).error_code == 0
        broker.run(broker.broker.transactions.settle(), timeout_s=60)
    assert broker.broker.transactions.describe("tx").status is TransactionStatus.COMPLETE_COMMIT
