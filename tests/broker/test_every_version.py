"""Whatever ApiVersions advertises is answered, every version of it, in that version's shape."""

from collections.abc import Iterator
from typing import Any

import pytest
from every_request import requests
from raw_connection import RawConnection
from running_broker import RunningBroker, a_broker

from horolog.broker import served
from horolog.testing import Broker
from horolog.wire import SUPPORTED, ApiKey

broker = a_broker(now_ms=None, scope="module")

# What these ask for is not there, or is not theirs: an error is the right answer.
EXPECTED_ERRORS = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: {69},
    ApiKey.SASL_HANDSHAKE: {34},
    ApiKey.SASL_AUTHENTICATE: {34},
    ApiKey.DESCRIBE_ACLS: {54},
    ApiKey.CREATE_ACLS: {54},
    ApiKey.DELETE_ACLS: {54},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {91},
    ApiKey.TXN_OFFSET_COMMIT: {48, 49},
    ApiKey.OFFSET_FETCH: {0, 3},  # v0 has an error for what was never committed
    ApiKey.HEARTBEAT: {25},
    ApiKey.LEAVE_GROUP: {0, 25},
    ApiKey.SYNC_GROUP: {25},
    ApiKey.JOIN_GROUP: {0, 79},
    ApiKey.DESCRIBE_GROUPS: {0, 69},
    ApiKey.DELETE_TOPICS: {3},
    ApiKey.DELETE_GROUPS: {69},
    ApiKey.OFFSET_DELETE: {69},
    ApiKey.ELECT_LEADERS: {84},
    ApiKey.ADD_OFFSETS_TO_TXN: {49},
    ApiKey.END_TXN: {49},
    ApiKey.DESCRIBE_TRANSACTIONS: {105},
}


def errors_in(value: Any) -> set[int]:
    """Every error code in an answer."""
    if not isinstance(value, (list, tuple)):
        return set()
    names = ("error_code", "partition_error_code")
    own = {int(getattr(value, name)) for name in names if hasattr(value, name)}
    return own.union(*map(errors_in, value))


def test_every_api_in_wire_has_a_handler() -> None:
    assert set(served()) == SUPPORTED.keys()


@pytest.mark.parametrize("key", list(served()), ids=lambda key: key.title)
def test_every_advertised_version_is_answered(key: ApiKey, broker: RunningBroker) -> None:
    with broker.connect() as connection:
        for _ in range(2):  # the first makes it, and is answered that there is none
            created = connection.ask(ApiKey.METADATA, 12, topics=[{"name": "t"}]).topics[0]
        fields = requests(created.topic_id)[key]
        for version in range(SUPPORTED[key].min, SUPPORTED[key].max + 1):
            given = fields(version) if callable(fields) else fields
            connection.socket.sendall(connection.packed(key, version, given))
            _, answer = connection.receive()
            errors = errors_in(answer) - {0}
            assert errors <= EXPECTED_ERRORS.get(key, set()), (version, answer)


@pytest.fixture(scope="module")
def failing_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize("key", list(served()), ids=lambda key: key.title)
def test_every_advertised_version_can_be_failed_on_purpose(
    key: ApiKey, failing_broker: Broker
) -> None:
    with RawConnection(failing_broker.bootstrap_servers) as connection:
        for _ in range(2):
            created = connection.ask(ApiKey.METADATA, 12, topics=[{"name": "t"}]).topics[0]
        fields = requests(created.topic_id)[key]
        for version in range(SUPPORTED[key].min, SUPPORTED[key].max + 1):
            given = fields(version) if callable(fields) else fields
            if key is ApiKey.ADD_PARTITIONS_TO_TXN and version < 4:
                given = {**given, "v3_and_below_topics": [{"name": "t", "partitions": [0, 1]}]}
            failing_broker.fail(key.title, "THROTTLING_QUOTA_EXCEEDED")
            connection.socket.sendall(connection.packed(key, version, given))
            _, answer = connection.receive()
            if key is ApiKey.DESCRIBE_LOG_DIRS and version < 3:
                assert answer.results == ()  # the only way: there is no field for it
            else:
                assert errors_in(answer) - {0} == {89}, (version, answer)
