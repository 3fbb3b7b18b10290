"""`horolog lag`, `times` and `report` beside Apache Kafka: what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from patience import eventually
from tools.peers.kafka import Kafka, run_tool

from horolog.client import Client, CommittedOffset, Transaction
from horolog.clock import DAY_MS, MINUTE_MS, SystemClock
from horolog.record import LogRecord, build_batch


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # As before KIP-890: a transaction can hang.
    settings = {"transaction.partition.verification.enable": "false"}
    with Kafka(tmp_path_factory.mktemp("kafka"), settings=settings) as broker:
        yield broker.bootstrap


def test_offsets_are_known_and_times_where_they_are_timestamps(kafka: str) -> None:
    with Client(kafka) as client:
        client.create_topics({"created": 1})
        client.create_topics({"stamped": 1}, configs={"message.timestamp.type": "LogAppendTime"})
        batch = build_batch([LogRecord(-1, None, b"v") for _ in range(5)])
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
    refused = run_command("times", "created", "-b", kafka)
    assert refused.code == 2
    assert "Apache Kafka" in refused.err


def append(client: Client, transaction: Transaction, time_ms: int) -> None:
    batch = build_batch(
        [LogRecord(time_ms, None, b"v")] * 2,
        producer_id=transaction.producer.id,
        producer_epoch=transaction.producer.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    client.appends.append(
        {("held", 0): batch}, {}, is_idempotent=True, transactional_id=transaction.id
    )


def test_the_transaction_that_holds_readers_up_is_named(kafka: str) -> None:
    def held_up() -> Any:
        (found,) = run_command("lag", "h", "-b", kafka, "--json").json
        return found["held_up"]

    before_ms = SystemClock().now_ms()
    with Client(kafka) as client:
        client.create_topics({"held": 1})
        client.offset_commit("h", {("held", 0): CommittedOffset(0)})
        client.produce("held", 0, build_batch([LogRecord(-1, None, b"v")]))
        assert held_up() is None
        opened = client.init_transactions("named", transaction_timeout_ms=600_000)
        client.transactions.add(opened, [("held", 0)])
        append(client, opened, before_ms)
        found = held_up()
        assert before_ms <= found["since_ms"] <= SystemClock().now_ms()
        assert found == {
            "producer_id": opened.producer.id,
            "producer_epoch": opened.producer.epoch,
            "transactional_id": "named",
            "is_hanging": False,
            "offset": 1,
            "since_ms": found["since_ms"],
            "offsets": 2,
            "records": None,
            "open_transactions": 1,
        }
        shown = run_command("lag", "h", "--read-committed", "-b", kafka).out
        assert "wait at offset 1 of held-0 for the transaction of 'named'" in shown
        hanging = client.init_transactions("hangs", transaction_timeout_ms=600_000)
        append(client, hanging, before_ms - 16 * MINUTE_MS)
        assert held_up()["open_transactions"] == 2
        client.end_transaction(opened, commit=True)
        assert eventually(lambda: held_up()["producer_id"] == hanging.producer.id)
        found = held_up()
        assert (found["offset"], found["is_hanging"], found["transactional_id"]) == (3, True, None)
        assert "kafka-transactions.sh abort --topic held --partition 0 --start-offset 3" in (
            run_command("lag", "h", "-b", kafka).out
        )
        at = ("--topic", "held", "--partition", "0", "--start-offset", "3")
        run_tool("transactions", "--bootstrap-server", kafka, "abort", *at)
        assert held_up() is None


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
