"""APIs about clusters, quotas and other resources, as a broker that is the only one answers them.

The codes are those that Apache Kafka 4.4.0 answers to the same requests.
"""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from raw_connection import RawConnection
from running_broker import RunningBroker

from horolog.wire import ApiKey

TOPIC, BROKER, LOGGER, METRICS = 2, 4, 8, 16
SET, DELETE, APPEND = 0, 1, 2
HERE = "1"


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[RawConnection]:
    broker.create_topic("two", 2)
    with broker.connect() as connection:
        yield connection


OURS = "the cluster of this broker"


@pytest.mark.parametrize(
    ("meant", "code"),
    [
        ({}, 0),
        ({"cluster_id": OURS, "node_id": 1}, 0),
        ({"cluster_id": OURS, "node_id": 2}, 129),
        ({"cluster_id": OURS, "node_id": -2}, 129),
        ({"cluster_id": "another", "node_id": 1}, 129),
        ({"cluster_id": "", "node_id": 1}, 129),
        ({"cluster_id": OURS}, 42),
        ({"node_id": 1}, 42),
        ({"node_id": -2}, 42),
        ({"cluster_id": "another", "node_id": 1, "client_software_name": "-"}, 42),
    ],
)
def test_client_that_means_another_broker_is_sent_to_its_bootstrap_servers(
    broker: RunningBroker, connection: RawConnection, meant: dict[str, Any], code: int
) -> None:
    described = connection.ask(ApiKey.DESCRIBE_CLUSTER, 2)
    (node,) = described.brokers
    if meant.get("cluster_id") == OURS:
        meant = {**meant, "cluster_id": described.cluster_id}
    answer = connection.ask(ApiKey.API_VERSIONS, 5, **meant)
    assert (node.broker_id, answer.error_code) == (1, code)
    assert bool(answer.api_keys) == bool(answer.supported_features) == (code == 0)
    assert connection.ask(ApiKey.API_VERSIONS, 5).error_code == 0, "the connection stays"


@pytest.mark.parametrize(("kind", "code"), [(2, 114), (3, 115)])
def test_a_broker_describes_no_controllers(connection: RawConnection, kind: int, code: int) -> None:
    described = connection.ask(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=kind)
    assert (described.error_code, described.cluster_id, described.brokers) == (code, "", ())
    assert {2: "of type CONTROLLER", 3: "endpoint type 3"}[kind] in described.error_message


def test_versions_before_5_name_no_broker(connection: RawConnection) -> None:
    for version in (0, 3, 4):
        answer = connection.ask(ApiKey.API_VERSIONS, version, cluster_id="another", node_id=7)
        assert answer.error_code == 0


@pytest.mark.parametrize(
    ("election_type", "codes", "code"),
    [(0, [84, 3, 84], 0), (1, [84, 3, 84], 0), (7, [42, 3, 42], 42)],
)
def test_no_partition_needs_an_election(
    connection: RawConnection, election_type: int, codes: list[int], code: int
) -> None:
    answer = connection.ask(
        ApiKey.ELECT_LEADERS,
        2,
        election_type=election_type,
        topic_partitions=[
            {"topic": "two", "partitions": [0, 9, 0]},
            {"topic": "none", "partitions": [0]},
        ],
    )
    two, none = answer.replica_election_results
    assert [partition.error_code for partition in two.partition_result] == codes
    assert [partition.error_code for partition in none.partition_result] == [3]
    assert answer.error_code == code
    everywhere = connection.ask(ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=None)
    assert (everywhere.error_code, list(everywhere.replica_election_results)) == (0, [])


def test_a_partition_is_assigned_to_this_broker_and_to_no_other(connection: RawConnection) -> None:
    asked = [(0, [1]), (0, [2]), (0, [1, 2]), (0, [1, 1]), (0, []), (1, None), (9, [1])]
    partitions = [{"partition_index": index, "replicas": replicas} for index, replicas in asked]
    answer = connection.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        1,
        topics=[
            {"name": "two", "partitions": partitions},
            {"name": "none", "partitions": partitions[:1]},
        ],
    )
    two, none = answer.responses
    assert [partition.error_code for partition in two.partitions] == [0, 39, 39, 39, 39, 85, 3]
    assert [partition.error_code for partition in none.partitions] == [3]
    for topics in (None, [{"name": "two", "partition_indexes": [0]}]):
        listed = connection.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=topics)
        assert (listed.error_code, list(listed.topics)) == (0, [])


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([], 0),
        ([("user", 2, None)], 0),
        ([("user", 0, "x"), ("client-id", 1, None)], 0),
        ([("ip", 0, "1.2.3.4")], 0),
        ([("moon", 0, "x")], 35),
        ([("user", 7, None)], 42),
        ([("user", 2, None), ("user", 2, None)], 42),
        ([("ip", 2, None), ("user", 2, None)], 42),
        ([("user", 2, None), ("ip", 2, None)], 42),
        ([("user", 1, "x")], 42),
        ([("user", 0, None)], 42),
        ([("", 0, "x")], 42),
    ],
)
def test_a_filter_of_quotas_is_checked(
    connection: RawConnection, components: list[tuple[str, int, str | None]], code: int
) -> None:
    fields = ("entity_type", "match_type", "match")
    asked = [dict(zip(fields, component, strict=True)) for component in components]
    answer = connection.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=asked, strict=False)
    assert answer.error_code == code
    assert answer.entries == (None if code else ())
    assert bool(answer.error_message) == bool(code)


@pytest.mark.parametrize(
    ("users", "codes"),
    [(None, []), ([], []), (["x", "y", "x"], [("x", 92), ("y", 91)])],
)
def test_no_user_has_scram_credentials(
    connection: RawConnection, users: list[str] | None, codes: list[tuple[str, int]]
) -> None:
    asked = None if users is None else [{"name": user} for user in users]
    answer = connection.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=asked)
    assert answer.error_code == 0
    assert [(result.user, result.error_code) for result in answer.results] == codes


def test_resources_with_settings_are_listed_by_kind(connection: RawConnection) -> None:
    def listed(*kinds: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
        answer = connection.ask(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=list(kinds))
        found = [(each.resource_type, each.resource_name) for each in answer.config_resources]
        return answer.error_code, found

    assert listed(TOPIC) == (0, [(TOPIC, "two")])
    assert listed() == (0, [(TOPIC, "two"), (BROKER, HERE), (LOGGER, HERE)])
    assert listed(METRICS) == (0, [])
    assert listed(TOPIC, 7) == (35, [])
    assert listed(version=0) == (0, [])


def described(connection: RawConnection, kind: int, name: str) -> tuple[int, dict[str, str]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    (result,) = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    return result.error_code, {each.name: each.value for each in result.configs}


def test_settings_of_client_metrics_are_refused(connection: RawConnection) -> None:
    assert described(connection, METRICS, "x") == (42, {})
    assert described(connection, METRICS, "")[0] == 42
    assert described(connection, 99, "x")[0] == 42


@pytest.fixture
def levels() -> Iterator[None]:
    """Puts back the levels that a test has changed."""
    names = ("horolog.broker", "horolog.broker.opening")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def altered(connection: RawConnection, broker: str, *changes: Any, check: bool = False) -> int:
    configs = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in changes
    ]
    resource = {"resource_type": LOGGER, "resource_name": broker, "configs": configs}
    answer = connection.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=check
    )
    return int(answer.responses[0].error_code)


@pytest.mark.usefixtures("levels")
def test_levels_of_loggers_are_described_and_set_while_the_broker_runs(
    connection: RawConnection,
) -> None:
    name = "horolog.broker.opening"
    code, before = described(connection, LOGGER, HERE)
    assert code == 0
    assert {"root", name} <= before.keys()
    assert altered(connection, HERE, (name, SET, "DEBUG"), check=True) == 0
    assert described(connection, LOGGER, HERE) == (0, before)
    for value in ("DEBUG", "TRACE", "INFO", "WARN", "ERROR", "FATAL"):
        assert altered(connection, HERE, (name, SET, value)) == 0
        assert described(connection, LOGGER, HERE)[1][name] == value
    assert not logging.getLogger(name).isEnabledFor(logging.ERROR)
    assert altered(connection, HERE, (name, DELETE, None)) == 0
    assert described(connection, LOGGER, HERE) == (0, before)


@pytest.mark.usefixtures("levels")
@pytest.mark.parametrize(
    ("broker_id", "change", "code"),
    [
        (HERE, ("no.such", SET, "INFO"), 40),
        (HERE, ("horolog.no.such", SET, "INFO"), 40),
        (HERE, ("horolog.broker.opening", SET, "LOUD"), 40),
        (HERE, ("horolog.broker.opening", SET, None), 40),
        (HERE, ("horolog.broker.opening", APPEND, "INFO"), 42),
        (HERE, ("root", DELETE, None), 42),
        ("2", ("root", SET, "INFO"), 42),
        ("", ("root", SET, "INFO"), 42),
    ],
)
def test_a_change_of_levels_that_cannot_be_changes_nothing(
    connection: RawConnection, broker_id: str, change: Any, code: int
) -> None:
    before = described(connection, LOGGER, HERE)
    assert altered(connection, broker_id, ("horolog.broker.opening", SET, "FATAL"), change) == code
    assert described(connection, LOGGER, HERE) == before
    assert described(connection, LOGGER, "2")[0] == described(connection, LOGGER, "")[0] == 42
