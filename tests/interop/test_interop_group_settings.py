"""Settings of single groups beside Apache Kafka: the same answers, and one metadata log."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from patience import eventually
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker
from tools.peers.kafka import Kafka

from horolog.wire import ApiKey

GROUP = 32
OWN = 8
SAME = re.compile("(?:must be in the range|must be greater than|Null|Default) .*")
SET, DELETE, APPEND = 0, 1, 2
SESSION, INTERVAL, ASSIGNMENT, OFFLOAD = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
    "consumer.assignor.offload.enable",
)
NARROW = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.session.timeout.ms": "46000",
}


def altered(connection: RawConnection, name: str, *changes: tuple[str, int, str | None]) -> Any:
    configs = [{"name": key, "config_operation": how, "value": text} for key, how, text in changes]
    resource = {"resource_type": GROUP, "resource_name": name, "configs": configs}
    (answer,) = connection.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    ).responses
    return answer


def replaced(connection: RawConnection, name: str, **settings: str) -> int:
    configs = [{"name": key, "value": text} for key, text in settings.items()]
    resource = {"resource_type": GROUP, "resource_name": name, "configs": configs}
    (answer,) = connection.ask(
        ApiKey.ALTER_CONFIGS, 2, resources=[resource], validate_only=False
    ).responses
    return int(answer.error_code)


def described(connection: RawConnection, name: str, *keys: str) -> tuple[int, list[Any]]:
    resource = {
        "resource_type": GROUP,
        "resource_name": name,
        "configuration_keys": list(keys) or None,
    }
    (answer,) = connection.ask(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True
    ).results
    entries = [
        (
            *(it.name, it.value, it.config_source, it.read_only, it.is_sensitive, it.config_type),
            *((synonym.name, synonym.value, synonym.source) for synonym in it.synonyms),
        )
        for it in answer.configs
    ]
    return int(answer.error_code), sorted(entries)


def listed(connection: RawConnection) -> list[str]:
    asked = connection.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP])
    return sorted(it.resource_name for it in asked.config_resources)


def await_change(connection: RawConnection, changes: Sequence[tuple[str, int, str | None]]) -> None:
    """Wait until a broker of Kafka has what its controller has taken."""

    def is_there() -> bool:
        own = {it[0]: it[1] for it in described(connection, "g")[1] if it[2] == OWN}
        return all(own.get(name) == text for name, _, text in changes)

    assert eventually(is_there)


def session(connection: RawConnection) -> Iterator[Any]:
    """Answers of a broker to changes and questions, each with the request."""
    for name, keys in (("g", ()), ("", ()), ("g", ("none", SESSION, SESSION))):
        yield name, keys, described(connection, name, *keys)
    for changes in (
        [("x", SET, "1")],
        [("x", DELETE, None)],
        *([(SESSION, SET, text)] for text in ("999", "60001", "0", "a", "2147483648", None, "")),
        [(SESSION, APPEND, "50000")],
        *([(INTERVAL, SET, text)] for text in ("999", "15001")),
        *([(ASSIGNMENT, SET, text)] for text in ("-1", "15001")),
        *([(OFFLOAD, SET, text)] for text in ("maybe", "false")),
        [(SESSION, SET, "50000"), (SESSION, SET, "50001")],
        [(SESSION, SET, "50000"), (ASSIGNMENT, SET, "0")],
        [(SESSION, SET, "5000")],
        [(SESSION, SET, "5001")],
        [(INTERVAL, SET, "5001")],
        [(INTERVAL, SET, "1000"), (SESSION, SET, "1001")],
        [(INTERVAL, DELETE, None)],
        [("share.session.timeout.ms", SET, "1")],
        [("share.isolation.level", SET, "x")],
        [("share.auto.offset.reset", SET, "x")],
        [("share.auto.offset.reset", SET, "by_duration:PT1H")],
        [("share.auto.offset.reset", SET, "by_duration:P1DT2H3M4.5S")],
        [("share.auto.offset.reset", SET, "by_duration:P")],
        [("streams.session.timeout.ms", SET, "5000")],
        [("streams.num.standby.replicas", SET, "1")],
        [("errors.deadletterqueue.topic.name", SET, "a/b")],
        [(f" {SESSION}", SET, "50000")],
    ):
        answer = altered(connection, "g", *changes)
        yield changes, int(answer.error_code), SAME.findall(answer.error_message or "")
        if answer.error_code == 0:
            await_change(connection, changes)
        yield changes, described(connection, "g", SESSION, INTERVAL, ASSIGNMENT, OFFLOAD)
    yield "default", int(altered(connection, "", (SESSION, SET, "50000")).error_code)
    yield "odd", int(altered(connection, "a b/ö", (SESSION, SET, "50000")).error_code)
    yield listed(connection)
    for name, settings in (("g", {INTERVAL: "6000"}), ("g", {"x": "1"}), ("", {}), ("a b/ö", {})):
        yield name, settings, replaced(connection, name, **settings)
    assert eventually(lambda: listed(connection) == ["g"])
    yield described(connection, "g"), listed(connection)


@pytest.mark.timeout(1200)
def test_settings_of_groups_are_answered_as_by_kafka(
    tmp_path: Path, make_broker: MakeBroker
) -> None:
    kafka = Kafka(tmp_path / "kafka", settings=NARROW)
    with kafka, RawConnection(kafka.bootstrap) as connection:
        theirs = list(session(connection))
    with RawConnection(make_broker(**NARROW).address) as connection:
        ours = list(session(connection))
    for mine, its in zip(ours, theirs, strict=True):
        assert mine == its


@pytest.mark.timeout(1200)
def test_settings_of_groups_move_to_kafka_and_back(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path)
    with RunningBroker(tmp_path / "data") as ours, RawConnection(ours.address) as connection:
        assert altered(connection, "g", (SESSION, SET, "50000")).error_code == 0
        assert altered(connection, "h", (INTERVAL, SET, "7000")).error_code == 0
    with kafka, RawConnection(kafka.bootstrap) as connection:
        assert eventually(lambda: listed(connection) == ["g", "h"])
        assert described(connection, "g", SESSION)[1][0][1:3] == ("50000", 8)
        assert altered(connection, "g", (SESSION, SET, "51000")).error_code == 0
        assert altered(connection, "h", (INTERVAL, DELETE, None)).error_code == 0
    with RunningBroker(tmp_path / "data") as ours, RawConnection(ours.address) as connection:
        assert listed(connection) == ["g"]
        assert described(connection, "g", SESSION)[1][0][1:3] == ("51000", 8)


@pytest.mark.timeout(1200)
def test_settings_made_beside_a_kafka_s_directory_join_its_own_once_it_is_taken_over(
    tmp_path: Path,
) -> None:
    with Kafka(tmp_path) as kafka, RawConnection(kafka.bootstrap) as connection:
        for group in ("g", "k"):
            assert altered(connection, group, (INTERVAL, SET, "7000")).error_code == 0
    with RunningBroker(tmp_path / "data") as ours:
        with RawConnection(ours.address) as connection:
            assert listed(connection) == []
            assert altered(connection, "g", (INTERVAL, SET, "8000")).error_code == 0
        ours.restart(crash=True)
        with RawConnection(ours.address) as connection:
            assert described(connection, "g", INTERVAL)[1][0][1:3] == ("8000", 8)
    taken = {"horolog.take.over": "true"}
    with RunningBroker(tmp_path / "data", taken) as ours, RawConnection(ours.address) as connection:
        assert described(connection, "g", INTERVAL)[1][0][1:3] == ("8000", 8)
        assert described(connection, "k", INTERVAL)[1][0][1:3] == ("7000", 8)
