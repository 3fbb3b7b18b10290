"""Directories to which `horolog users add --log-dir` added a user, under Apache Kafka."""

from pathlib import Path

import pytest
from command_runner import run_command
from running_broker import RunningBroker
from tools.peers.kafka import Kafka

from horolog.client import AuthenticationFailed, Client

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LISTENER = "USERS"
SETTINGS = {
    "listener.name.users.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.users.scram-sha-512.sasl.jaas.config": f"{MODULE};",
}
OURS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}


def may_log_in(address: str, name: str, password: str) -> bool:
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{MODULE} username="{name}" password="{password}";',
    }
    with Client(address, security=security) as client:
        try:
            client.metadata()
        except AuthenticationFailed:
            return False
    return True


def add(directory: Path, name: str, password: str) -> None:
    added = run_command("users", "add", name, "--log-dir", directory, stdin=f"{password}\n")
    assert added.code == 0, added.err


def kafka_of(path: Path, *format_arguments: str) -> Kafka:
    return Kafka(
        path,
        settings=SETTINGS,
        listeners={LISTENER: "SASL_PLAINTEXT"},
        format_arguments=format_arguments,
    )


@pytest.mark.timeout(900)
def test_kafka_opens_a_directory_that_begins_with_a_user(tmp_path: Path) -> None:
    add(tmp_path / "data", "alice", "pencil")
    kafka = kafka_of(tmp_path)
    with kafka:
        address = kafka.address_of(LISTENER)
        assert may_log_in(address, "alice", "pencil")
        assert not may_log_in(address, "alice", "pencils")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("quorum", [(), ("--standalone",)])
def test_a_user_joins_the_directory_that_kafka_has_formatted(
    tmp_path: Path, quorum: tuple[str, ...]
) -> None:
    scram = ("--add-scram", "SCRAM-SHA-512=[name=alice,password=pencil]")
    kafka = kafka_of(tmp_path, *scram, *quorum)
    if quorum:
        dynamic = {"controller.quorum.bootstrap.servers": kafka.controller}
        kafka.set({**dynamic, "controller.quorum.voters": ""})
    kafka.format()
    add(tmp_path / "data", "bob", "paper")
    with RunningBroker(tmp_path / "data", OURS) as ours:
        assert may_log_in(ours.address, "alice", "pencil")
        assert may_log_in(ours.address, "bob", "paper")
    with kafka:
        address = kafka.address_of(LISTENER)
        assert may_log_in(address, "alice", "pencil")
        assert may_log_in(address, "bob", "paper")
        assert not may_log_in(address, "bob", "pencil")
    refused = run_command("users", "add", "c", "--log-dir", tmp_path / "data", stdin="x\n")
    assert refused.code != 0
    assert "those of the Kafka that owns it" in refused.err
