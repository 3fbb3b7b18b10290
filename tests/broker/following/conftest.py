"""What all tests of following share: brokers that soon learn what is new at their source."""

from typing import Any

import pytest
from running_broker import MakeBroker, RunningBroker

from horolog.broker.following import follower, shadow


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses do not grow with what a look takes, which is long on a busy machine."""
    monkeypatch.setattr(follower, "LOOK_S", 0.1)
    monkeypatch.setattr(follower, "LOOK_SHARE", 1)
    monkeypatch.setattr(shadow, "GROUPS_S", 0.1)
    monkeypatch.setattr(shadow, "GROUPS_SHARE", 1)


@pytest.fixture
def make_broker(make_broker: MakeBroker) -> MakeBroker:
    """Brokers in this process, whose fetches from a source wait a tenth of the default."""

    def make(**settings: Any) -> RunningBroker:
        return make_broker(**{"replica_fetch_wait_max_ms": "50", **settings})

    return make
