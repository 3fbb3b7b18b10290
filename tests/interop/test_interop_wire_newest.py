"""The versions that only the newest clients speak: what Apache Kafka and horolog answer alike."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection

from horolog.client import Client
from horolog.errors import ErrorCode
from horolog.wire import ApiKey

OURS = "the cluster that is asked"
UNKNOWN_ID = UUID(int=77)
UNAVAILABLE = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
}
"""Errors of a coordinator that is to be asked again."""


class Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class Side:
    """One of the brokers, with two topics of 2 and 1 partitions."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = RawConnection(bootstrap, timeout_s=PATIENCE_S)
        self.cluster_id = self.connection.ask(ApiKey.DESCRIBE_CLUSTER, 2).cluster_id
        names = [f"of-ids-{uuid4().hex}" for _ in range(2)]
        with Client(bootstrap) as client:
            client.create_topics({names[0]: 2, names[1]: 1})
        asked = [{"topic_id": None, "name": name} for name in names]
        self.topics: dict[str, dict[str, Any]] = {}

        def are_known() -> bool:
            described = self.connection.ask(ApiKey.METADATA, 12, topics=asked).topics
            for key, topic in zip("tu", described, strict=True):
                self.topics[key] = {"name": topic.name, "topic_id": topic.topic_id}
            return all(topic.error_code == 0 for topic in described)

        assert eventually(are_known)
        for kind in (0, 1):  # Kafka creates the topics of its coordinators for those who look
            self.connection.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["any"], key_type=kind)
        self.topics["none"] = {"name": "none", "topic_id": UNKNOWN_ID}

    def init(self) -> Producer:
        """A producer whose transaction is not begun."""
        transactional_id = uuid4().hex
        answer = self.until_available(
            ApiKey.INIT_PRODUCER_ID,
            5,
            lambda answer: [answer.error_code],
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        return Producer(transactional_id, answer.producer_id, answer.producer_epoch)

    def commit(
        self, version: int, producer: Producer, partitions: dict[str, list[int]], **more: Any
    ) -> dict[str, dict[int, int]]:
        """Codes by topic and partition; Kafka sorts them and merges unknown topics."""
        offsets = {key: [offset(index) for index in which] for key, which in partitions.items()}
        answer = self.until_available(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            lambda answer: [it.error_code for topic in answer.topics for it in topic.partitions],
            topics=[{**self.topics[key], "partitions": which} for key, which in offsets.items()],
            **producer._asdict(),
            **{"group_id": uuid4().hex, "generation_id": -1, **more},
        )
        field = "topic_id" if version >= 6 else "name"
        keys = {topic[field]: key for key, topic in self.topics.items()}
        return {
            keys[getattr(topic, field)]: {
                it.partition_index: it.error_code for it in topic.partitions
            }
            for topic in answer.topics
            if topic.partitions
        }

    def until_available(self, key: ApiKey, version: int, codes: Any, **fields: Any) -> Any:
        """Ask until none of the codes of the answer is that of a coordinator that is busy."""
        answers: list[Any] = []

        def is_available() -> bool:
            answers.append(self.connection.ask(key, version, **fields))
            return UNAVAILABLE.isdisjoint(codes(answers[-1]))

        assert eventually(is_available)
        return answers[-1]


def offset(index: int) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": 5}


@pytest.fixture(scope="module")
def sides(both_brokers: Any) -> Iterator[tuple[Side, Side]]:
    ours, theirs = (Side(broker.bootstrap) for broker in both_brokers)
    yield ours, theirs
    ours.connection.socket.close()
    theirs.connection.socket.close()


@pytest.mark.parametrize(
    "meant",
    [
        {},
        {"cluster_id": OURS, "node_id": 1},
        {"cluster_id": OURS, "node_id": 2},
        {"cluster_id": OURS, "node_id": -2},
        {"cluster_id": "another", "node_id": 1},
        {"cluster_id": "", "node_id": 1},
        {"cluster_id": OURS},
        {"cluster_id": ""},
        {"node_id": 1},
        {"node_id": -2},
        {"cluster_id": "another", "node_id": 1, "client_software_name": "-"},
        {"client_software_version": ""},
    ],
)
def test_the_same_client_is_sent_away(sides: tuple[Side, Side], meant: dict[str, Any]) -> None:
    answers = []
    for side in sides:
        asked = {**meant, "cluster_id": side.cluster_id} if OURS in meant.values() else meant
        answer = side.connection.ask(ApiKey.API_VERSIONS, 5, **asked)
        answers.append((answer.error_code, bool(answer.api_keys), bool(answer.supported_features)))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize(
    ("partitions", "more"),
    [
        ({"t": [0, 1]}, {}),
        ({"none": [0, 1]}, {}),
        ({"none": [0], "t": [0, 9, -1], "u": [0]}, {}),
        ({}, {}),
        ({"t": []}, {}),
        ({"t": [0]}, {"group_id": ""}),
        ({"none": [0]}, {"group_id": ""}),
        ({"t": [0]}, {"member_id": "m", "generation_id": 3}),
        ({"t": [0]}, {"member_id": "m"}),
        ({"t": [0]}, {"producer_epoch": 9}),
        ({"t": [0]}, {"producer_epoch": -1}),
        ({"t": [0], "none": [0]}, {"producer_id": 999}),
    ],
)
def test_the_same_offsets_are_taken_into_a_transaction(
    sides: tuple[Side, Side], version: int, partitions: dict[str, list[int]], more: dict[str, Any]
) -> None:
    answers = []
    of_producer = {name: value for name, value in more.items() if name in Producer._fields}
    of_group = {name: value for name, value in more.items() if name not in of_producer}
    for side in sides:
        producer = side.init()._replace(**of_producer)
        answers.append(side.commit(version, producer, partitions, **of_group))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("version", [2, 3])
def test_the_same_groups_are_deleted(sides: tuple[Side, Side], version: int) -> None:
    """Kafka has messages for streams groups alone; ours are additions."""
    answers = []
    for side in sides:
        topics = [{**side.topics["t"], "partitions": [offset(0)]}]
        side.until_available(
            ApiKey.OFFSET_COMMIT,
            9,
            lambda answer: [it.error_code for topic in answer.topics for it in topic.partitions],
            group_id="simple",
            topics=topics,
        )
        groups = ["simple", "none", "", "none"]
        answer = side.connection.ask(ApiKey.DELETE_GROUPS, version, groups_names=groups)
        answers.append({result.group_id: result.error_code for result in answer.results})
    assert answers[0] == answers[1] == {"simple": 0, "none": 69, "": 69}
