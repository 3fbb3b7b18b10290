"""`horolog lag`, `topics describe --times` and `report` beside Apache Kafka: what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_runner import run_command
from tools.peers.kafka import Kafka

from horolog.client import Client, CommittedOffset
from horolog.clock import DAY_MS, SystemClock
from horolog.record.builder import Record, build_batch


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.bootstrap


def test_offsets_are_known_and_times_where_they_are_timestamps(kafka: str) -> None:
    with Client(kafka) as client:
        client.create_topics({"created": 1})
        client.create_topics({"stamped": 1}, configs={"message.timestamp.type": "LogAppendTime"})
        batch = build_batch([Record(-1, None, b"v") for _ in range(5)])
        for topic in ("created", "stamped"):
            client.produce(topic, 0, batch)
            client.offset_commit("g", {(topic, 0): CommittedOffset(2)})
    created, stamped = run_command("lag", "g", "-b", kafka, "--json").json
    assert (created["offsets_behind"], created["records_behind"], created["lag_ms"]) == (
        3,
        None,
        None,
    )
    assert stamped["offsets_behind"] == 3
    assert created["unread_deleted"] is stamped["unread_deleted"] is None
    assert 0 <= stamped["lag_ms"] < 600_000
    assert run_command("lag", "--all-groups", "-b", kafka).code == 0
    refused = run_command("topics", "describe", "created", "--times", "-b", kafka)
    assert refused.code == 2
    assert "Apache Kafka" in refused.err


def test_a_report_says_what_a_kafka_does_not_keep(kafka: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = run_command("report", "created", "-b", kafka, "-o", page)
    assert done.code == 0, done.err
    assert "does not explain retention" in page.read_text()


def test_a_simulation_needs_arrivals(kafka: str) -> None:
    until = f"{SystemClock().now_ms() + 7 * DAY_MS}ms"
    tried = ("--set", "retention.ms=60000", "--until", until, "--json", "-b", kafka)
    refused = run_command("retention", "simulate", "created", *tried)
    assert refused.code == 2
    assert "It is not known when the batch at offset 0 of created-0 arrived" in refused.err
    stamped = run_command("retention", "simulate", "stamped", *tried).json
    assert stamped["deleted_records"] == 5
