"""The log says who changed rights, users, quotas and settings."""

import logging
from collections.abc import Iterator

import pytest
import rights_matrix as matrix
from raw_connection import RawConnection
from running_broker import MakeBroker

from horolog.wire import AclOperation, AclPattern, AclPermission, AclResource, ApiKey

ENTRY = {
    "resource_type": AclResource.TOPIC,
    "resource_name": "t",
    "resource_pattern_type": AclPattern.LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": AclPermission.ALLOW,
}
FILTER = {
    "resource_type_filter": AclResource.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": AclPattern.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermission.ANY,
}
TOPIC, BROKER, LOGGER = 2, 4, 8
JAAS = "listener.name.x.plain.sasl.jaas.config"


@pytest.fixture
def connection(make_broker: MakeBroker) -> Iterator[RawConnection]:
    broker = make_broker(
        **{"authorizer.class.name": matrix.AUTHORIZER, "super.users": "User:ANONYMOUS"}
    )
    broker.create_topic("t", 1)
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "horolog.broker.changes")
    return caplog


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    """What the log says, without who it was, which is the same each time."""
    who = "User:ANONYMOUS from /127.0.0.1 "
    said = [it.getMessage() for it in log.records if it.name == "horolog.broker.changes"]
    assert all(line.startswith(who) for line in said)
    return [line.removeprefix(who) for line in said]


def alter(connection: RawConnection, kind: int, name: str, *changes: tuple[str, int, str]) -> None:
    configs = [
        {"name": key, "config_operation": number, "value": value} for key, number, value in changes
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)


def test_entries(connection: RawConnection, log: pytest.LogCaptureFixture) -> None:
    wrong = {**ENTRY, "resource_name": ""}
    connection.ask(ApiKey.CREATE_ACLS, 3, creations=[ENTRY, ENTRY, wrong])
    connection.ask(ApiKey.DELETE_ACLS, 3, filters=[FILTER, FILTER])
    entry = (
        "StandardAcl[resourceType=TOPIC, resourceName=t, patternType=LITERAL, "
        "principal=User:alice, host=*, operation=READ, permissionType=ALLOW]"
    )
    assert lines(log) == [f"added {entry}", f"removed {entry}"]


def test_users(connection: RawConnection, log: pytest.LogCaptureFixture) -> None:
    change = {
        "name": "al\nice",
        "mechanism": 2,
        "iterations": 4096,
        "salt": b"salt-secret",
        "salted_password": b"password-secret",
    }
    of = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    connection.ask(of, 0, deletions=[], upsertions=[change])
    removal = {"name": "al\nice", "mechanism": 2}
    connection.ask(of, 0, deletions=[removal], upsertions=[])
    connection.ask(of, 0, deletions=[removal], upsertions=[])
    told = lines(log)
    assert len(told) == 2
    assert told[0].startswith("set the password of al")
    assert told[0].endswith("for SCRAM-SHA-512")
    assert told[1].startswith("removed the password of al")
    assert not any("\n" in line or "secret" in line for line in told)


def test_quotas(connection: RawConnection, log: pytest.LogCaptureFixture) -> None:
    for value, remove in ((1000.0, False), (0.0, True)):
        entry = {
            "entity": [{"entity_type": "client-id", "entity_name": None}],
            "ops": [{"key": "producer_byte_rate", "value": value, "remove": remove}],
        }
        connection.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False)
    assert lines(log) == [
        "set producer_byte_rate of client-id <default> to 1000.0",
        "removed producer_byte_rate of client-id <default>",
    ]


def test_settings(connection: RawConnection, log: pytest.LogCaptureFixture) -> None:
    alter(connection, TOPIC, "t", ("retention.ms", 0, "60000"))
    alter(connection, TOPIC, "t", ("cleanup.policy", 2, "compact"), ("retention.ms", 1, ""))
    alter(connection, BROKER, "", ("log.retention.ms", 0, "1\x1b[2J"))  # refused
    alter(connection, BROKER, "", ("log.cleaner.backoff.ms", 0, "1000"))
    alter(connection, TOPIC, "none", ("retention.ms", 0, "1"))  # there is none
    alter(connection, LOGGER, "1", ("horolog.broker.changes", 0, "INFO"))
    assert lines(log) == [
        "set retention.ms of topic t to '60000'",
        "appended to cleanup.policy of topic t 'compact'",
        "removed retention.ms of topic t",
        "set log.cleaner.backoff.ms of broker <default> to '1000'",
        "set horolog.broker.changes of broker logger 1 to 'INFO'",
    ]


def test_passwords_are_left_out(connection: RawConnection, log: pytest.LogCaptureFixture) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    alter(connection, BROKER, "1", (JAAS, 0, f'{module} user_a="the-secret";'))
    assert [line for line in lines(log) if "secret" in line] == []


def test_what_is_only_checked_is_not_in_it(
    connection: RawConnection, log: pytest.LogCaptureFixture
) -> None:
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "1"}]
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": configs}
    connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=True)
    assert lines(log) == []
