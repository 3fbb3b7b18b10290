"""One broker for all commands, and a way to run them."""

from pathlib import Path

import pytest
from command_runner import Ran, Run, run_command
from running_broker import EVER, RunningBroker, a_broker

# Lookups and ranges are tried on moments far from now.
broker = a_broker(
    now_ms=None,
    scope="session",
    log_message_timestamp_after_max_ms=EVER,
    log_retention_ms="-1",
)


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
