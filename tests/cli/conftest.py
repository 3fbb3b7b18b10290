"""One broker for all commands, and a way to run them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_runner import Ran, Run, run_command
from running_broker import RunningBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(
        tmp_path_factory.mktemp("cli-broker"),
        # Lookups and ranges are tried on moments far from now.
        {"log.message.timestamp.after.max.ms": str((1 << 63) - 1), "log.retention.ms": "-1"},
    )
    yield broker
    broker.stop()


@pytest.fixture
def horolog(broker: RunningBroker) -> Run:
    """Runs a command that asks the broker."""

    def run(*args: object, stdin: str | bytes | None = None) -> Ran:
        return run_command(*args, stdin=stdin, HOROLOG_BOOTSTRAP=broker.address)

    return run


@pytest.fixture
def offline() -> Run:
    """Runs a command that needs no broker."""
    return run_command


@pytest.fixture
def golden() -> Path:
    """Log directories that Apache Kafka wrote."""
    return Path(__file__).parent.parent / "golden"
