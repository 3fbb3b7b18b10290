"""Making, growing and removing topics; and that it survives."""

from typing import Any
from uuid import UUID

import pytest
from raw_connection import fetch_fields, produce_fields
from running_broker import RunningBroker

from horolog.config import Settings
from horolog.record import LogRecord, build_batch
from horolog.storage import INTERNAL_TOPICS
from horolog.wire import ApiKey

BATCH = build_batch([LogRecord(-1, None, b"v")])


def create(broker: RunningBroker, name: str, *, validate_only: bool = False, **more: Any) -> Any:
    topics = [{"name": name, **more}]
    return broker.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, validate_only=validate_only).topics[0]


def describe(broker: RunningBroker, *names: str, version: int = 12, **more: Any) -> list[Any]:
    asked = [{"name": name} for name in names] if names else None
    answer = broker.ask(ApiKey.METADATA, version, topics=asked, **more)
    return list(answer.topics)


def delete(broker: RunningBroker, name: str) -> Any:
    answer = broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[name])
    return answer.responses[0]


@pytest.mark.parametrize(
    "name", ["message.timestamp.difference.max.ms", "max.message.time.difference.ms"]
)
def test_a_deprecated_setting_is_accepted_with_a_warning(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    broker.create_topic("old", 1, **{name.replace(".", "_"): "5000"})
    broker.create_topic("new")
    broker.alter("new", (name, 0, "5000"))
    said = [each for each in caplog.messages if "is deprecated (KIP-937)" in each]
    assert [each.partition(":")[0] for each in said] == ["topic old", "topic new"]
    assert all("message.timestamp.before.max.ms" in each for each in said)
    assert Settings({f"log.{name}" if name.startswith("message") else name: "5"}).deprecated()
    assert not Settings({"log.message.timestamp.after.max.ms": "5"}).deprecated()


def test_a_topic_is_made_as_asked_and_the_same_after_a_restart(broker: RunningBroker) -> None:
    made = create(
        broker,
        "t",
        num_partitions=3,
        configs=[{"name": "retention.ms", "value": "12345"}],
    )
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 3, 1)
    assert {c.name: c.value for c in made.configs}["retention.ms"] == "12345"
    for _ in range(2):
        (topic,) = describe(broker, "t")
        assert topic.topic_id == made.topic_id != UUID(int=0)
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        assert {p.leader_id for p in topic.partitions} == {broker.broker.config.node_id}
        assert broker.log("t").config.retention_ms == 12345
        assert broker.log("t").topic_id == topic.topic_id
        broker.restart()


def test_validate_only_makes_nothing(broker: RunningBroker) -> None:
    assert create(broker, "t", validate_only=True).error_code == 0
    assert create(broker, "t", validate_only=True, num_partitions=-2).error_code == 37
    (topic,) = describe(broker, "t", allow_auto_topic_creation=False)
    assert topic.error_code == 3


def test_minus_one_leaves_the_numbers_to_the_broker(broker: RunningBroker) -> None:
    broker.restart(num_partitions="4")
    made = create(broker, "t", num_partitions=-1, replication_factor=-1)
    assert (made.error_code, made.num_partitions) == (0, 4)


@pytest.mark.parametrize(
    ("name", "more", "code", "text"),
    [
        ("", {}, 17, "the empty string is not allowed"),
        (".", {}, 17, "'.' is not allowed"),
        ("..", {}, 17, "'..' is not allowed"),
        ("a b", {}, 17, "other than ASCII alphanumerics"),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}", {}, 17, "other than ASCII alphanumerics"),
        ("x" * 250, {}, 17, "longer than the max allowed length 249"),
        ("there", {}, 36, "Topic 'there' already exists."),
        ("a_b", {}, 17, "collides with existing topic: a.b"),
        ("t", {"num_partitions": 0}, 37, "non-positive"),
        ("t", {"replication_factor": 3}, 38, "only 1 broker"),
        ("t", {"replication_factor": 0}, 38, "larger than 0"),
        ("t", {"configs": [{"name": "retention.ms", "value": "x"}]}, 40, "retention.ms"),
        ("t", {"configs": [{"name": "no.such", "value": "1"}]}, 40, "no.such"),
        ("t", {"configs": [{"name": "cleanup.policy", "value": "keep"}]}, 40, "compact"),
        ("t", {"assignments": [{"partition_index": 0, "broker_ids": [1]}]}, 42, "replication"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    broker: RunningBroker, name: str, more: dict[str, Any], code: int, text: str
) -> None:
    create(broker, "there")
    create(broker, "a.b")
    refused = create(broker, name, **more)
    assert refused.error_code == code
    assert text in refused.error_message
    assert {topic.name for topic in describe(broker)} == {"there", "a.b"}


def test_a_manual_assignment_to_this_broker_is_taken(broker: RunningBroker) -> None:
    given = {"num_partitions": -1, "replication_factor": -1}
    ok = [{"partition_index": n, "broker_ids": [1]} for n in (1, 0)]
    assert create(broker, "t", assignments=ok, **given).num_partitions == 2
    for wrong in (
        [{"partition_index": 0, "broker_ids": [7]}],
        [{"partition_index": 1, "broker_ids": [1]}],
        [{"partition_index": 0, "broker_ids": [1]}] * 2,
    ):
        assert create(broker, "u", assignments=wrong, **given).error_code == 39


def test_topics_are_made_on_first_use_where_both_sides_allow_it(broker: RunningBroker) -> None:
    (topic,) = describe(broker, "new", allow_auto_topic_creation=False)
    assert topic.error_code == 3
    (topic,) = describe(broker, "new")
    assert (topic.error_code, len(topic.partitions)) == (3, 0), "as of Kafka, once"
    (topic,) = describe(broker, "new", allow_auto_topic_creation=False)
    assert (topic.error_code, len(topic.partitions)) == (0, 1)
    (topic,) = describe(broker, "not a name")
    assert topic.error_code == 17
    (topic,) = describe(broker, "__consumer_offsets")
    assert topic.error_code == 3
    broker.restart(auto_create_topics_enable="false")
    (topic,) = describe(broker, "other")
    assert topic.error_code == 3


@pytest.mark.parametrize("name", ["", "a b"])
def test_an_invalid_name_is_no_unknown_topic(broker: RunningBroker, name: str) -> None:
    for may_create in (True, False):
        (topic,) = describe(broker, name, allow_auto_topic_creation=may_create)
        assert topic.error_code == 17
    resource = {"resource_type": 2, "resource_name": name}
    (described,) = broker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    assert described.error_code == 17
    assert described.error_message.startswith("Topic name is invalid: ")


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_no_request_creates_one_of_kafkas_internal_topics(broker: RunningBroker, name: str) -> None:
    before = {path.name for path in broker.log_dir.iterdir()}
    for validate_only in (True, False):
        refused = create(broker, name, validate_only=validate_only)
        assert refused.error_code == 17
        assert "reserved" in refused.error_message
    (topic,) = describe(broker, name)
    assert (topic.error_code, topic.is_internal) == (3, True)
    assert {path.name for path in broker.log_dir.iterdir()} == before
    broker.restart()
    assert describe(broker) == []


def test_two_clients_that_want_a_topic_at_once_get_the_same(broker: RunningBroker) -> None:
    with broker.connect() as first, broker.connect() as second:
        for connection in (first, second):
            connection.send(ApiKey.METADATA, 12, topics=[{"name": "new"}])
        ids = {connection.receive()[1].topics[0].topic_id for connection in (first, second)}
    assert len(ids) == 1


def test_topics_by_id(broker: RunningBroker) -> None:
    made = create(broker, "t")
    asked = [{"name": None, "topic_id": made.topic_id}, {"name": None, "topic_id": UUID(int=9)}]
    known, unknown = broker.ask(ApiKey.METADATA, 12, topics=asked).topics
    assert (known.error_code, known.name) == (0, "t")
    assert (unknown.error_code, unknown.topic_id) == (100, UUID(int=9))


def test_a_deleted_topic_is_gone_also_after_a_restart_and_may_come_again(
    broker: RunningBroker,
) -> None:
    first = create(broker, "t", configs=[{"name": "retention.ms", "value": "5"}])
    broker.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: BATCH}))
    assert delete(broker, "t").error_code == 0
    assert delete(broker, "t").error_code == 3
    broker.restart()
    assert describe(broker) == []
    second = create(broker, "t")
    assert second.topic_id != first.topic_id
    assert broker.log("t").log_end_offset == 0
    assert broker.log("t").config.retention_ms != 5


def test_a_topic_is_deleted_by_id(broker: RunningBroker) -> None:
    made = create(broker, "t")
    asked = [{"name": None, "topic_id": made.topic_id}, {"name": None, "topic_id": UUID(int=9)}]
    known, unknown = broker.ask(ApiKey.DELETE_TOPICS, 6, topics=asked).responses
    assert (known.error_code, known.name) == (0, "t")
    assert unknown.error_code == 100


def test_deletion_can_be_switched_off(broker: RunningBroker) -> None:
    broker.restart(delete_topic_enable="false")
    create(broker, "t")
    assert delete(broker, "t").error_code == 73


def test_a_deleted_topic_takes_its_committed_offsets_along(broker: RunningBroker) -> None:
    create(broker, "t")
    partition = {"partition_index": 0, "committed_offset": 45}
    broker.ask(
        ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=[{"name": "t", "partitions": [partition]}]
    )
    delete(broker, "t")
    create(broker, "t")
    broker.restart()
    topics = [{"name": "t", "partition_indexes": [0]}]
    answer = broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics)
    assert answer.topics[0].partitions[0].committed_offset == -1


def grow(broker: RunningBroker, count: int, **more: Any) -> Any:
    topic = {"name": "t", "count": count, **more}
    answer = broker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[topic])
    return answer.results[0]


def test_partitions_are_added_and_never_taken_away(broker: RunningBroker) -> None:
    create(broker, "t", num_partitions=2)
    assert grow(broker, 4).error_code == 0
    assert grow(broker, 4).error_message == "Topic already has 4 partition(s)."
    assert "currently has 4 partition(s); 3 would not be" in grow(broker, 3).error_message
    assert grow(broker, 5, assignments=[{"broker_ids": [9]}]).error_code == 39
    assert grow(broker, 6, assignments=[{"broker_ids": [1]}]).error_code == 39
    broker.restart()
    (topic,) = describe(broker, "t")
    assert len(topic.partitions) == 4
    with broker.connect() as connection:
        connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {3: BATCH}))
        answer = connection.ask(ApiKey.FETCH, 12, **fetch_fields("t", {3: 0}))
    assert len(answer.responses[0].partitions[0].records) == len(BATCH)


def test_the_log_directory_is_described(broker: RunningBroker) -> None:
    create(broker, "t", num_partitions=2)
    with broker.connect() as connection:
        connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {1: BATCH}))
        (directory,) = connection.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results
    assert directory.log_dir == str(broker.log_dir)
    assert directory.total_bytes > directory.usable_bytes > 0
    assert {p.partition_index: p.partition_size for p in directory.topics[0].partitions} == {
        0: 0,
        1: len(BATCH),
    }


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("asked", [{"name": None}, {"topic_id": UUID(int=7)}])
def test_versions_that_cannot_ask_by_id_are_refused_as_in_kafka(
    broker: RunningBroker, version: int, asked: dict[str, Any]
) -> None:
    create(broker, "t")
    with broker.connect() as connection:
        answer = connection.ask(
            ApiKey.METADATA,
            version,
            topics=[{"name": "t", "topic_id": None}, {"name": "u"} | asked],
        )
        assert [topic.error_code for topic in answer.topics] == [42, 42]  # INVALID_REQUEST
        assert [topic.name for topic in answer.topics] == ["t", "u" if "name" not in asked else ""]
        assert (answer.brokers, answer.cluster_id, answer.controller_id) == ((), None, -1)
        assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0
    assert "u" not in broker.broker.topics


def test_a_topic_without_name_and_id_is_refused_and_others_are_described(
    broker: RunningBroker,
) -> None:
    made = create(broker, "t")
    answer = broker.ask(
        ApiKey.METADATA,
        12,
        topics=[{"name": None, "topic_id": None}, {"name": None, "topic_id": made.topic_id}],
    )
    assert [topic.error_code for topic in answer.topics] == [42, 0]
    assert [topic.name for topic in answer.topics] == [None, "t"]


def test_a_topic_that_is_asked_for_twice_is_described_once(broker: RunningBroker) -> None:
    create(broker, "t")
    assert [topic.name for topic in describe(broker, "t", "u", "t")] == ["t", "u"]
