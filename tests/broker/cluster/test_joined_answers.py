"""What brokers of a cluster answer about it, and what they pass on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joined_broker import JoinedBroker
from patience import eventually
from raw_connection import RawConnection
from scripted_controller import ScriptedController

from horolog.clock import SystemClock
from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch
from horolog.wire import GROUP_LAG, HISTORY_GROUP, ApiKey

BOTH = (1, 2)
BROKER, CLIENT_METRICS = 4, 16


@pytest.fixture
def quorum() -> Iterator[ScriptedController]:
    with ScriptedController() as controllers:
        yield controllers


@pytest.fixture
def brokers(quorum: ScriptedController, tmp_path: Path) -> Iterator[list[JoinedBroker]]:
    with (
        JoinedBroker(tmp_path / "1", quorum) as one,
        JoinedBroker(tmp_path / "2", quorum, 2) as two,
    ):
        assert eventually(lambda: len(two.ask(ApiKey.METADATA, 12, topics=[]).brokers) == 2)
        assert eventually(lambda: len(one.ask(ApiKey.METADATA, 12, topics=[]).brokers) == 2)
        yield [one, two]


def topic(broker: JoinedBroker, name: str, **more: Any) -> Any:
    (found,) = broker.ask(ApiKey.METADATA, 12, topics=[{"name": name}], **more).topics
    return found


def test_each_broker_names_all_of_them_and_itself_for_changes(
    brokers: list[JoinedBroker], quorum: ScriptedController
) -> None:
    ports = {(node_id, broker.port) for node_id, broker in zip(BOTH, brokers, strict=True)}
    for node_id, broker in zip(BOTH, brokers, strict=True):
        metadata = broker.ask(ApiKey.METADATA, 12, topics=[])
        assert {(it.node_id, it.port) for it in metadata.brokers} == ports
        assert (metadata.controller_id, metadata.cluster_id) == (node_id, quorum.cluster_id)
        described = broker.ask(
            ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=1, include_fenced_brokers=True
        )
        assert {(it.broker_id, it.port) for it in described.brokers} == ports
        assert described.controller_id == node_id


def test_oldest_clients_are_told_of_replicas_that_are_alive(
    brokers: list[JoinedBroker], quorum: ScriptedController
) -> None:
    """They would connect to the others (v0), and know no error of a listener (before v6)."""
    quorum.create_topic("t", [[1, 2]])
    assert eventually(lambda: topic(brokers[0], "t").partitions)
    quorum.kept_fenced.add(2)
    quorum.fence(2)

    def answer(version: int) -> tuple[Any, ...]:
        (it,) = brokers[0].ask(ApiKey.METADATA, version, topics=[{"name": "t"}]).topics
        (one,) = it.partitions
        return one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes

    assert eventually(lambda: answer(1)[3] == (1,))
    assert answer(0) == (ErrorCode.replica_not_available, 1, (1,), (1,))
    assert answer(1) == (ErrorCode.none, 1, (1, 2), (1,))


def test_finalised_features_are_those_of_the_cluster(
    brokers: list[JoinedBroker], quorum: ScriptedController
) -> None:
    answer = brokers[0].ask(ApiKey.API_VERSIONS, 3)
    levels = {it.name: it.max_version_level for it in answer.finalized_features}
    assert levels == quorum.image.features
    assert answer.finalized_features_epoch >= 0
    supported = {it.name: (it.min_version, it.max_version) for it in answer.supported_features}
    assert supported["share.version"] == (0, 2)
    offered = {it.api_key for it in answer.api_keys}
    assert {ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER} <= offered


def test_a_topic_that_one_broker_passes_on_is_described_by_all(
    brokers: list[JoinedBroker], quorum: ScriptedController
) -> None:
    created = brokers[0].ask(
        *(ApiKey.CREATE_TOPICS, 7),
        topics=[{"name": "t", "num_partitions": 2, "replication_factor": 2}],
    )
    (it,) = created.topics
    assert (it.error_code, it.topic_id) == (0, quorum.image.topics["t"].topic_id)
    for broker in brokers:
        assert eventually(lambda broker=broker: topic(broker, "t").error_code == 0)
        found = topic(broker, "t")
        wanted = quorum.image.topics["t"].partitions
        assert {
            (one.partition_index, one.leader_id, one.leader_epoch, tuple(one.replica_nodes))
            for one in found.partitions
        } == {(n, p.leader, p.leader_epoch, tuple(p.replicas)) for n, p in wanted.items()}
        pages = broker.ask(
            *(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0),
            topics=[{"name": "t"}],
            response_partition_limit=2000,
            cursor=None,
        )
        assert [one.leader_id for one in pages.topics[0].partitions] == [
            wanted[0].leader,
            wanted[1].leader,
        ]
    deleted = brokers[1].ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "t", "topic_id": None}])
    assert deleted.responses[0].error_code == 0
    assert eventually(
        lambda: topic(brokers[0], "t", allow_auto_topic_creation=False).error_code == 3
    )


def test_producers_and_readers_are_sent_to_the_leader(
    brokers: list[JoinedBroker], quorum: ScriptedController
) -> None:
    quorum.create_topic("t", [[2]])
    assert eventually(lambda: topic(brokers[0], "t").error_code == 0)
    refused = brokers[0].produce("t", b"", version=9)
    assert refused.error_code == ErrorCode.not_leader_or_follower
    fetched = brokers[0].fetch("t")
    assert fetched.error_code == ErrorCode.not_leader_or_follower
    unknown = brokers[0].produce("t", b"", partition=7, version=9)
    assert unknown.error_code == ErrorCode.unknown_topic_or_partition


def test_producers_are_described_by_each_replica(
    brokers: list[JoinedBroker], quorum: ScriptedController
) -> None:
    quorum.create_topic("t", [[2, 1]])
    assert eventually(lambda: topic(brokers[1], "t").error_code == 0)
    record = LogRecord(SystemClock().now_ms(), None, b"x")
    batch = build_batch([record], producer_id=5, producer_epoch=0, base_sequence=0)
    assert eventually(lambda: brokers[1].produce("t", batch).error_code == 0)

    def producers(broker: JoinedBroker) -> list[int]:
        asked = [{"name": "t", "partition_indexes": [0, 7]}]
        (found,) = broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked).topics
        here, unknown = found.partitions
        assert unknown.error_code == ErrorCode.unknown_topic_or_partition
        return [] if here.error_code else [it.producer_id for it in here.active_producers]

    for broker in brokers:
        assert eventually(lambda broker=broker: producers(broker) == [5])


def test_a_topic_that_a_client_names_is_created_by_the_controllers(
    brokers: list[JoinedBroker], quorum: ScriptedController
) -> None:
    first = topic(brokers[0], "named", allow_auto_topic_creation=True)
    assert first.error_code == ErrorCode.unknown_topic_or_partition
    assert eventually(lambda: "named" in quorum.image.topics)
    assert eventually(lambda: topic(brokers[0], "named").error_code == 0)


def test_coordinators_are_elsewhere_and_lists_are_empty(brokers: list[JoinedBroker]) -> None:
    found = brokers[0].ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    assert found.coordinators[0].error_code == ErrorCode.coordinator_not_available
    for version, key, code in (
        (6, "g:AAAAAAAAAAAAAAAAAAAAAQ:1", ErrorCode.coordinator_not_available),
        (5, "g:AAAAAAAAAAAAAAAAAAAAAQ:1", ErrorCode.invalid_request),
        (6, "g:AAAAAAAAAAAAAAAAAAAAAQ", ErrorCode.invalid_request),
        (6, ":AAAAAAAAAAAAAAAAAAAAAQ:1", ErrorCode.invalid_request),
        (6, "g:AAAAAAAAAAAAAAAAAAAAAQ:x", ErrorCode.invalid_request),
    ):
        found = brokers[0].ask(
            *(ApiKey.FIND_COORDINATOR, version), key_type=2, coordinator_keys=[key]
        )
        assert found.coordinators[0].error_code == code, (version, key)
    joined = brokers[0].ask(
        *(ApiKey.JOIN_GROUP, 5),
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    assert joined.error_code == ErrorCode.not_coordinator
    assert brokers[0].ask(ApiKey.LIST_GROUPS, 5).error_code == 0
    assert brokers[0].ask(ApiKey.LIST_TRANSACTIONS, 1).error_code == 0
    dirs = brokers[0].ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    assert (dirs.error_code, dirs.results[0].error_code) == (0, 0)


def test_settings_go_to_the_controllers_and_come_back(
    brokers: list[JoinedBroker], quorum: ScriptedController
) -> None:
    quorum.create_topic("t", [[1]])
    assert eventually(lambda: topic(brokers[0], "t").error_code == 0)
    answer = brokers[0].alter("t", retention_ms="123456", horolog_retention_by="append-time")
    assert answer.error_code == 0, answer

    def described() -> dict[str, str | None]:
        resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
        found = brokers[1].ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
        return {it.name: it.value for it in found.results[0].configs}

    assert eventually(lambda: described()["horolog.retention.by"] == "append-time")
    assert described()["retention.ms"] == "123456"
    assert "horolog.retention.by" not in quorum.image.settings_of(2, "t")


def test_subscriptions_to_metrics_and_all_brokers_are_listed_and_described(
    brokers: list[JoinedBroker],
) -> None:
    def listed(kind: int) -> set[str]:
        answer = brokers[1].ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[kind])
        return {it.resource_name for it in answer.config_resources}

    def described() -> dict[str, tuple[str, int, int]]:
        resource = {"resource_type": CLIENT_METRICS, "resource_name": "m"}
        answer = brokers[1].ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
        (result,) = answer.results
        assert result.error_code == 0
        return {it.name: (it.value, it.config_source, it.config_type) for it in result.configs}

    assert listed(BROKER) == {"1", "2"}
    assert listed(CLIENT_METRICS) == set()
    defaults = {"interval.ms": ("300000", 5, 3), "match": ("", 5, 7), "metrics": ("", 5, 7)}
    assert described() == defaults
    for operation, names in ((0, {"m"}), (1, set())):
        change = {"name": "interval.ms", "config_operation": operation, "value": "5000"}
        resource = {"resource_type": CLIENT_METRICS, "resource_name": "m", "configs": [change]}
        brokers[0].ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        assert eventually(lambda names=names: listed(CLIENT_METRICS) == names)
        own = {"interval.ms": ("5000", 7, 3)} if names else {}
        assert described() == {**defaults, **own}


def test_a_topic_is_created_with_its_settings_of_horolog(
    brokers: list[JoinedBroker], quorum: ScriptedController
) -> None:
    def create(name: str, **settings: str) -> Any:
        configs = [{"name": it, "value": value} for it, value in settings.items()]
        created = brokers[0].ask(
            *(ApiKey.CREATE_TOPICS, 5),
            topics=[
                {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs},
                {"name": f"{name}-plain", "num_partitions": 1, "replication_factor": 1},
            ],
        )
        return {it.name: (it.error_code, it.num_partitions) for it in created.topics}

    by = {"horolog.retention.by": "append-time", "retention.ms": "5"}
    assert create("t", **by) == {"t": (0, 1), "t-plain": (0, 1)}
    assert quorum.image.settings_of(2, "t") == {"retention.ms": "5"}
    assert eventually(lambda: "t" in brokers[1].broker.topics)
    assert eventually(lambda: brokers[1].broker.topics.find("t").overrides == by)
    wrong = create("u", **{"horolog.retention.by": "nonsense"})
    assert wrong == {"u": (ErrorCode.invalid_config, -1), "u-plain": (0, 1)}
    assert "u" not in quorum.image.topics
    again = create("t", **by)
    assert again["t"] == (ErrorCode.topic_already_exists, -1)


def test_questions_about_groups_are_for_their_coordinators(brokers: list[JoinedBroker]) -> None:
    """Here they would be answered as of groups without commits."""
    for question in (GROUP_LAG, HISTORY_GROUP):
        resource = {"resource_type": 32, "resource_name": "g"}
        found = brokers[0].ask(
            *(ApiKey.DESCRIBE_CONFIGS, 4),
            resources=[{**resource, "configuration_keys": [question.name]}],
        )
        assert found.results[0].error_code == ErrorCode.not_coordinator, question.name


def test_the_version_of_a_dynamic_quorum_is_a_finalised_feature(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    """As at Apache Kafka's brokers; it is in control records, and in no image."""

    def level(broker: JoinedBroker) -> int:
        found = broker.ask(ApiKey.API_VERSIONS, 3).finalized_features
        return next((it.max_version_level for it in found if it.name == "kraft.version"), 0)

    with JoinedBroker(tmp_path / "1", quorum) as broker:
        assert level(broker) == 0
        quorum.make_dynamic()
        assert eventually(lambda: level(broker) == 1)
        quorum.snapshot()
        with JoinedBroker(tmp_path / "2", quorum, 2) as other:
            assert level(other) == 1


def test_delegation_tokens_are_described_as_without_their_secret(
    brokers: list[JoinedBroker],
) -> None:
    """Seen at Apache Kafka 4.4.0: without a login they are not to be asked for."""
    for version in (1, 2, 3):
        found = brokers[0].ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, version, owners=None)
        assert found.error_code == ErrorCode.delegation_token_request_not_allowed
        assert list(found.tokens) == []


def test_salts_of_unknown_users_are_the_same_at_each_broker_and_after_a_restart(
    tmp_path: Path,
) -> None:
    """Compared, they would say which users exist."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }

    def salt(broker: JoinedBroker, user: str) -> str:
        port = broker.bound[1].port
        with RawConnection(f"127.0.0.1:{port}") as connection:
            connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
            message = f"n,,n={user},r=mine".encode()
            answer = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        assert answer.error_code == 0
        first = dict(part.split("=", 1) for part in bytes(answer.auth_bytes).decode().split(","))
        return first["s"]

    with ScriptedController() as quorum:
        one = JoinedBroker(tmp_path / "1", quorum, 1, settings)
        two = JoinedBroker(tmp_path / "2", quorum, 2, settings)
        with two:
            view = one.node.view
            assert eventually(lambda: one.call(lambda: 2 in view.image.brokers))
            salts = [salt(one, "nobody"), salt(one, "noone")]
            assert salts[0] != salts[1]
            assert [salt(two, "nobody"), salt(two, "noone")] == salts
            one.stop()
            quorum.expire(1)
            with JoinedBroker(tmp_path / "1", quorum, 1, settings) as again:
                assert [salt(again, "nobody"), salt(again, "noone")] == salts
