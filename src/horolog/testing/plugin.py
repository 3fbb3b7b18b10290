"""Pytest plugin: a broker as a fixture (docs/testing.md).

pytest imports this at every start, so it imports nothing but pytest; the broker is imported
by the first test that needs one.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from horolog.testing.broker import Broker


@pytest.fixture(scope="session")
def horolog_settings() -> Mapping[str, object]:
    """Settings of both fixtures' brokers, under Kafka's names; define your own to change them."""
    return {}


@pytest.fixture
def horolog_broker(
    horolog_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Broker]":
    """A Kafka broker for one test, with a clock: `bootstrap_servers`, `clock`, `expire()`, ..."""
    yield from _broker(horolog_settings, tmp_path_factory)


@pytest.fixture(scope="session")
def horolog_session_broker(
    horolog_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Broker]":
    """A Kafka broker for all tests together, with one clock."""
    yield from _broker(horolog_settings, tmp_path_factory)


@pytest.fixture
def horolog_secured(
    horolog_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Callable[..., Broker]]":
    """Start a broker with TLS, users and rights: `horolog_secured(alice="read topic:clicks")`."""
    from horolog.testing.broker import Broker  # noqa: PLC0415 - most test suites need none

    with ExitStack() as brokers:

        def start(**users: str | Iterable[str]) -> Broker:
            log_dir = tmp_path_factory.mktemp("horolog")
            return brokers.enter_context(Broker(horolog_settings, log_dir=log_dir, users=users))

        yield start


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Clear the faults of all brokers, so that fixtures can close their clients."""
    module = sys.modules.get("horolog.testing.broker")  # not imported: no test had a broker
    if module is not None:
        module.clear_all_faults()


def _broker(
    settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Broker]":
    from horolog.testing.broker import Broker  # noqa: PLC0415 - most test suites need none

    with Broker(settings, log_dir=tmp_path_factory.mktemp("horolog")) as broker:
        yield broker
