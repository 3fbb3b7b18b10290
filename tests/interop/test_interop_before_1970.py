"""KIP-228 with clients in Java and Go, and with Kafka Streams, as they are released."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_connection import RawConnection, produce_fields
from tests.interop.conftest import CLIENTS, PEERS, TIMEOUT_S
from tools.peers.kafka import NEWEST, SHORT_LIVED, jars

from horolog.client import Client
from horolog.record import LogRecord, build_batch
from horolog.sources import scan
from horolog.wire import ApiKey

APOLLO_11 = -14_182_940_000  # 1969-07-20T20:17:40Z
TIMES = [APOLLO_11, -2, 0, 1_000, -1]
FOREVER = {"retention.ms": "-1", "message.timestamp.before.max.ms": str((1 << 63) - 1)}


@pytest.fixture
def moon(broker: Any, topic: Callable[[str], str]) -> str:
    """Records from both sides of 1970, and one without a time."""
    name = topic("moon")
    created(broker, name)
    rows = [LogRecord(ms, b"k", b"v") for ms in TIMES]
    with RawConnection(broker.bootstrap) as connection:
        fields = produce_fields(name, {0: build_batch(rows)})
        answer = connection.ask(ApiKey.PRODUCE, 9, **fields)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return name


def created(broker: Any, name: str) -> None:
    with Client(broker.bootstrap) as client:
        client.create_topics({name: 1}, configs=FOREVER)


def times_in(broker: Any, name: str) -> list[int]:
    with Client(broker.bootstrap) as client:
        return scan(client, name).read_all().column("timestamp_ms").to_pylist()


@pytest.mark.parametrize("language", ["java", "go"])
def test_a_client_reads_them(broker, moon, language, request):
    client = request.getfixturevalue(f"{language}_client")
    read = client.ask(broker, "consume", topic=moon, count=len(TIMES))["records"]
    assert [row["timestamp"] for row in read] == TIMES


def test_franz_go_writes_them(broker, go_client, topic):
    name = topic("written")
    created(broker, name)
    sent = [APOLLO_11, APOLLO_11 - 7, -2, 5]
    go_client.ask(
        broker, "produce", topic=name, codec="none", records=[[t, "k", "v"] for t in sent]
    )
    assert times_in(broker, name) == sent


def test_javas_producer_refuses_them(broker, java_client, topic):
    name = topic("refused")
    created(broker, name)
    with pytest.raises(AssertionError, match="Invalid timestamp: -2"):
        java_client.ask(broker, "produce", topic=name, records=[[-2, "k", "v"]])
    assert times_in(broker, name) == []


def test_javas_consumer_looks_up_no_earlier_time(broker, java_client, moon):
    with pytest.raises(AssertionError, match="The target time cannot be negative"):
        java_client.ask(broker, "lookup", topic=moon, times=[APOLLO_11])
    assert java_client.ask(broker, "lookup", topic=moon, times=[0])["found"] == [[2, 0]]


def test_franz_go_sends_earlier_times_which_mean_something_else(broker, go_client, moon):
    with pytest.raises(AssertionError, match=r"(?i)unsupported|version"):
        go_client.ask(broker, "lookup", topic=moon, times=[APOLLO_11])
    assert go_client.ask(broker, "lookup", topic=moon, times=[0])["found"] == [[2, 0]]


@pytest.fixture(scope="session")
def streams(tmp_path_factory: Any) -> Callable[..., dict[str, Any]]:
    """Copies a topic with an extractor of timestamps, until this many records are there."""
    classes: Path = tmp_path_factory.mktemp("streams")
    jars("kafka-streams")
    path = os.pathsep.join(str(PEERS / peer / "*") for peer in (NEWEST, "kafka-streams"))
    source = str(CLIENTS / "streams" / "Streams.java")
    subprocess.run(["javac", "-cp", path, "-d", str(classes), source], check=True)

    def run(broker: Any, source: str, target: str, extractor: str, records: int) -> dict[str, Any]:
        command = [
            *("java", "-Xmx128m", *SHORT_LIVED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
            *("-cp", os.pathsep.join([str(classes), path]), "Streams", broker.bootstrap),
            *(source, target, extractor, str(records), str(classes / target)),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    return run


@pytest.mark.parametrize(
    ("extractor", "state", "passed"),
    [
        ("default", "failed", []),  # FailOnInvalidTimestamp
        ("skip", "running", [0, 1_000]),
        # The time of the partition is unknown until a record has one that is not negative.
        ("any", "running", [0, 1_000]),
    ],
)
def test_kafka_streams_passes_only_times_from_1970_on(
    broker, moon, topic, streams, extractor, state, passed
):
    name = topic(f"copied-{extractor}")
    created(broker, name)
    told = streams(broker, moon, name, extractor, len(passed) or 1)
    assert told["state"] == state, told
    assert times_in(broker, name) == passed
    if state == "failed":
        assert "negative timestamp" in told["failure"] or "invalid" in told["failure"]
