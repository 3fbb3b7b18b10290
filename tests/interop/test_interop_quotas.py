"""Quotas as Apache Kafka has them: the same requests, the same answers and the same waits."""

from typing import Any

import pytest
from patience import eventually
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import MakeBroker
from tools.peers.kafka import Kafka

from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

PRODUCED, FETCHED, MUTATED = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
WITHIN_MS = 400  # of a wait: the window is as old as the time between two requests


def change(connection: RawConnection, key: str, value: float, **entity: str | None) -> Any:
    parts = [
        {"entity_type": kind.replace("_", "-"), "entity_name": name}
        for kind, name in entity.items()
    ]
    entry = {"entity": parts, "ops": [{"key": key, "value": value, "remove": value < 0}]}
    answer = connection.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False)
    return answer.entries[0].error_code


def batch(size: int) -> bytes:
    return build_batch([LogRecord(1_700_000_000_000, None, bytes(size))])


class Asked:
    """What a broker answers; each client has an id of its own, so that none waits for another."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._clients = 0
        with RawConnection(address) as connection:
            topic = {"name": "quota", "num_partitions": 1, "replication_factor": 1}
            connection.ask(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=30_000)
            fields = produce_fields("quota", {0: batch(20_000)}, timeout_ms=30_000)

            def is_there() -> bool:
                answer = connection.ask(ApiKey.PRODUCE, 9, **fields)
                return answer.responses[0].partition_responses[0].error_code == 0

            assert eventually(is_there)

    def client(self, key: str, value: float) -> RawConnection:
        """A connection of a client with a quota that is in force."""
        self._clients += 1
        connection = RawConnection(self._address)
        connection.client_id = f"client-{key}-{self._clients}"
        with RawConnection(self._address) as other:
            assert change(other, key, value, client_id=connection.client_id) == 0

            def is_described() -> bool:
                part = {"entity_type": "client-id", "match_type": 0, "match": connection.client_id}
                answer = other.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[part], strict=True)
                return len(answer.entries) == 1

            assert eventually(is_described)
        return connection

    def answers(self) -> dict[str, Any]:
        """The answers: numbers of milliseconds under names that end with ms."""
        found: dict[str, Any] = {}
        fields = produce_fields("quota", {0: batch(20_000)}, timeout_ms=30_000)
        for version in (3, 9, 12):
            with self.client(PRODUCED, 1_000) as connection:
                answer = connection.ask(ApiKey.PRODUCE, version, **fields)
                found[f"produce {version} ms"] = answer.throttle_time_ms
        with self.client(PRODUCED, 2_600) as connection:
            found["produce within ms"] = connection.ask(
                ApiKey.PRODUCE, 9, **fields
            ).throttle_time_ms
            found["produce again ms"] = connection.ask(ApiKey.PRODUCE, 9, **fields).throttle_time_ms
        for version in (4, 12):
            with self.client(FETCHED, 1_000) as connection:
                asked = fetch_fields("quota", {0: 0}, max_wait_ms=500, session_epoch=-1)
                answer = connection.ask(ApiKey.FETCH, version, **asked)
                found[f"fetch {version} ms"] = answer.throttle_time_ms
                found[f"fetch {version}"] = len(answer.responses)
        with self.client(FETCHED, 3_000) as connection:
            answer = connection.ask(ApiKey.FETCH, 12, **asked)
            found["fetch of what fills the window ms"] = answer.throttle_time_ms
            found["fetch of what fills the window"] = len(answer.responses)
        with self.client(FETCHED, 3_000) as connection:
            asked = fetch_fields("quota", {0: 0}, partition_max_bytes=25_000)
            answer = connection.ask(ApiKey.FETCH, 12, **asked)
            found["fetch within ms"] = answer.throttle_time_ms
            found["fetch within"] = len(answer.responses[0].partitions[0].records) > 20_000
        for version in (5, 9):
            with self.client("request_percentage", 1e-6) as connection:
                answer = connection.ask(ApiKey.METADATA, version, topics=[])
                found[f"metadata {version} ms"] = answer.throttle_time_ms
        with self.client("request_percentage", 1e-6) as connection:
            answer = connection.ask(ApiKey.FETCH, 12, **asked)
            found["timed fetch ms"] = answer.throttle_time_ms
            found["timed fetch"] = len(answer.responses)
        for version in (5, 7):
            with self.client(MUTATED, 1) as connection:
                topics = [
                    {"name": f"{name}{version}", "num_partitions": 12, "replication_factor": 1}
                    for name in "ab"
                ]
                answer = connection.ask(
                    ApiKey.CREATE_TOPICS, version, topics=topics, timeout_ms=30_000
                )
                codes = sorted(topic.error_code for topic in answer.topics)
                found[f"create {version}"] = codes
                found[f"create {version} ms"] = answer.throttle_time_ms
        with self.client(MUTATED, 1) as connection:
            names = [{"name": "a5", "topic_id": None}, {"name": "b5", "topic_id": None}]
            answer = connection.ask(ApiKey.DELETE_TOPICS, 6, topics=names, timeout_ms=30_000)
            found["delete"] = sorted(topic.error_code for topic in answer.responses)
            found["delete ms"] = answer.throttle_time_ms
        with RawConnection(self._address) as connection:
            for key, value, entity in (
                (PRODUCED, 0.0, {"user": "a"}),
                (PRODUCED, 1.5, {"user": "a"}),
                (MUTATED, 1.5, {"user": "a"}),
                (PRODUCED, 1e19, {"user": "a"}),
                (PRODUCED, 1.0, {}),
                (PRODUCED, 1.0, {"user": ""}),
                (PRODUCED, 1.0, {"moon": "a"}),
                (PRODUCED, 1.0, {"user": "a", "ip": "1.2.3.4"}),
                (PRODUCED, 1.0, {"ip": "1.2.3.4"}),
                ("connection_creation_rate", 1.0, {"user": "a"}),
                ("connection_creation_rate", 1.5, {"ip": "1.2.3.4"}),
                ("connection_creation_rate", 1e6, {"ip": "1.2.3.4"}),
                ("connection_creation_rate", 1e6, {"ip": "no.such.host.invalid"}),
                ("nonsense", 1.0, {"user": "a"}),
                (PRODUCED, -1.0, {"user": "nobody"}),
            ):
                found[f"set {key} {value} of {entity}"] = change(connection, key, value, **entity)
        return found


@pytest.fixture(scope="module")
def of_kafka(kafka: Kafka) -> dict[str, Any]:
    return Asked(kafka.bootstrap).answers()


def test_answers_and_waits_are_those_of_kafka(
    make_broker: MakeBroker, of_kafka: dict[str, Any]
) -> None:
    ours = Asked(make_broker().address).answers()
    differing = {
        name: (its, ours[name])
        for name, its in of_kafka.items()
        if (abs(its - ours[name]) > WITHIN_MS if name.endswith("ms") else its != ours[name])
    }
    assert differing == {}
