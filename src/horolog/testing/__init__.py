"""A Kafka broker and its clock, for your tests.

    def test_a_week_is_kept(horolog_broker):             # a fixture, with pytest
        ...
        horolog_broker.clock.advance("8d")
        horolog_broker.expire()

    with horolog.testing.Broker() as broker:             # without
        Producer({"bootstrap.servers": broker.bootstrap_servers})

docs/testing.md says more. Importing this costs next to nothing; the broker is imported
when the first one is made.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horolog.broker.background_tasks import Expired
    from horolog.clock import ManualClock
    from horolog.testing.broker import Broker
    from horolog.testing.failures import BrokerFailed

__all__ = ["Broker", "BrokerFailed", "Expired", "ManualClock"]

_HOMES = {
    "Broker": "horolog.testing.broker",
    "BrokerFailed": "horolog.testing.failures",
    "Expired": "horolog.broker.background_tasks",
    "ManualClock": "horolog.clock",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - every pytest start imports this module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
