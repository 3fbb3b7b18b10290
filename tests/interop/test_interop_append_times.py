"""Append times reset by Kafka's own tool; and Apache Kafka, which cannot, told apart."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest
from command_runner import run_command
from tools.peers.kafka import Kafka, run_tool

from horolog.client import Client
from horolog.record.builder import Record, build_batch

T0_MS = 1_577_836_800_000  # 2020-01-01
DAY_MS = 86_400_000


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of a broker whose clock stands still on the first day of 2020."""
    command = [sys.executable, "-m", "horolog", "serve", "--port", "0", "--log-dir", str(tmp_path)]
    with Popen(
        [*command, "--clock", "manual:2020-01-01T00:00Z"], stdout=PIPE, stderr=DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


def configs(address: str, kind: str, name: str, *arguments: str) -> str:
    entity = ("--bootstrap-server", address, "--entity-type", kind, "--entity-name", name)
    return run_tool("configs", *entity, *arguments).stdout.decode()


def test_kafkas_tool_resets_append_times_and_sees_no_other_setting(address: str) -> None:
    batch = build_batch([Record(-1, None, b"v")])
    with Client(address) as client:
        client.create_topics({"t": 2}, configs={"message.timestamp.type": "LogAppendTime"})
        configs(address, "brokers", "1", "--alter", "--add-config", "horolog.clock.advance=100d")
        client.produce("t", 0, batch)
        configs(address, "brokers", "1", "--alter", "--add-config", "horolog.clock.advance=-100d")
        assert client.produce("t", 0, batch).log_append_time_ms == T0_MS + 100 * DAY_MS
        reset = "horolog.append.time.reset=[0,1]"
        assert "Completed" in configs(address, "topics", "t", "--alter", "--add-config", reset)
        assert client.produce("t", 0, batch).log_append_time_ms == T0_MS
    assert not re.search("horolog", configs(address, "topics", "t", "--describe", "--all"))


def test_apache_kafka_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with Kafka(tmp_path) as kafka:
        with Client(kafka.bootstrap) as client:
            client.create_topics({"t": 1})
        refused = run_command("topics", "reset-append-time", "t", HOROLOG_BOOTSTRAP=kafka.bootstrap)
        assert refused.code == 1
        assert "Apache Kafka's go back with its clock" in refused.err
