"""What a request names twice, asked of Apache Kafka and of horolog: the same answers.

Left out is AlterConfigs with a resource twice, which a Kafka never answers, and Produce with a
partition twice: a Kafka appends the last batch alone, and clients take both for written.
"""

from __future__ import annotations

from typing import Any

import pytest
from patience import eventually
from raw_connection import RawConnection
from tests.interop.conftest import Broker

from horolog.wire import ApiKey

TOPICS = ("a", "b", "c", "d", "e")


def config(kind: int, name: str, *settings: str) -> dict[str, Any]:
    changes = [{"name": each, "config_operation": 0, "value": "1000001"} for each in settings]
    return {"resource_type": kind, "resource_name": name, "configs": changes}


def described(name: str, *keys: str) -> dict[str, Any]:
    return {"resource_type": 2, "resource_name": name, "configuration_keys": [*keys]}


def partitions(**fields: Any) -> list[dict[str, Any]]:
    return [{"partition_index": 0, **fields}] * 2


def grown(name: str, count: int) -> dict[str, Any]:
    return {"name": name, "count": count, "assignments": None}


def made(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1}


TWICE: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
    "create": (ApiKey.CREATE_TOPICS, 7, {"topics": [made("n"), made("n"), made("m")]}),
    "delete": (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["a", "a", "b"]}),
    "delete by name": (
        *(ApiKey.DELETE_TOPICS, 6),
        {"topics": [{"name": each, "topic_id": None} for each in ("c", "c", "none", "none")]},
    ),
    "delete without a name": (
        *(ApiKey.DELETE_TOPICS, 6),
        {"topics": [{"name": None, "topic_id": None}]},
    ),
    "grow": (
        ApiKey.CREATE_PARTITIONS,
        3,
        {"topics": [grown("c", 2), grown("c", 3), grown("d", 2)]},
    ),
    "alter a topic": (
        *(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1),
        {
            "resources": [
                config(2, "c", "retention.ms"),
                config(2, "c", "segment.ms"),
                config(2, "d", "retention.ms"),
            ]
        },
    ),
    "alter a setting": (
        *(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1),
        {"resources": [config(2, "c", "retention.ms", "retention.ms")]},
    ),
    "describe": (
        *(ApiKey.DESCRIBE_CONFIGS, 4),
        {
            "resources": [
                described("c", "retention.ms"),
                described("c", "min.insync.replicas"),
                described("d", "retention.ms"),
            ]
        },
    ),
    "look up": (
        *(ApiKey.LIST_OFFSETS, 7),
        {"topics": [{"name": "e", "partitions": partitions(timestamp=-1)}]},
    ),
    "look up a topic": (
        *(ApiKey.LIST_OFFSETS, 7),
        {"topics": [{"name": "e", "partitions": partitions(timestamp=-1)[:1]}] * 2},
    ),
    "delete records": (
        *(ApiKey.DELETE_RECORDS, 2),
        {"topics": [{"name": "e", "partitions": partitions(offset=0)}]},
    ),
    "ask for topics": (ApiKey.METADATA, 12, {"topics": [{"name": "e", "topic_id": None}] * 2}),
    "elect": (
        *(ApiKey.ELECT_LEADERS, 2),
        {"election_type": 0, "topic_partitions": [{"topic": "e", "partitions": [0, 0]}]},
    ),
    "producers": (
        *(ApiKey.DESCRIBE_PRODUCERS, 0),
        {"topics": [{"name": "e", "partition_indexes": [0, 0]}]},
    ),
    "directories": (
        *(ApiKey.DESCRIBE_LOG_DIRS, 4),
        {"topics": [{"topic": "e", "partitions": [0, 0]}]},
    ),
}


def codes(answer: Any) -> list[Any]:
    """The codes of an answer, each once with the names around it, in any order."""
    found: list[Any] = []

    def look(value: Any, *names: Any) -> None:
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            for each in value:
                look(each, *names)
        elif hasattr(value, "_fields"):
            own = [
                getattr(value, each)
                for each in ("name", "resource_name", "topic", "partition_index", "partition_id")
                if hasattr(value, each)
            ]
            code = getattr(value, "error_code", None)
            if code is not None:
                found.append((*names, *own, int(code)))
            for each in value._fields:
                look(getattr(value, each), *names, *own)

    look(answer)
    return sorted(set(found), key=str)


@pytest.mark.parametrize("what", TWICE)
def test_both_answer_the_same(both_brokers: tuple[Broker, Broker], what: str) -> None:
    api, version, fields = TWICE[what]
    answers = []
    for broker in both_brokers:
        with RawConnection(broker.bootstrap, timeout_s=60) as connection:
            wanted = [made(each) for each in TOPICS]
            connection.ask(ApiKey.CREATE_TOPICS, 7, topics=wanted, timeout_ms=30_000)
            asked = {"topics": [{"name": each, "topic_id": None} for each in TOPICS]}

            def is_led(connection: RawConnection = connection) -> bool:
                found = connection.ask(ApiKey.METADATA, 12, **asked).topics  # noqa: B023
                leaders = [part.leader_id for each in found for part in each.partitions]
                return len(leaders) >= len(TOPICS) and min(leaders) >= 0

            assert eventually(is_led)
            answers.append(codes(connection.ask(api, version, **fields)))
    ours, theirs = answers
    assert ours == theirs
