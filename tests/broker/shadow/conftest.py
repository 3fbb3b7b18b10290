"""What all tests of following share: brokers that soon learn what is new at their source."""

from typing import Any

import pytest
from running_broker import MakeBroker, RunningBroker
from short_pauses import SHORT_PAUSES


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in SHORT_PAUSES:
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def make_broker(make_broker: MakeBroker) -> MakeBroker:
    """Brokers in this process, whose fetches from a source wait a tenth of the default."""

    def make(**settings: Any) -> RunningBroker:
        return make_broker(**{"replica_fetch_wait_max_ms": "50", **settings})

    return make
