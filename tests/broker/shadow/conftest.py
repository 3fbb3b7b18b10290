"""What all tests of following share: brokers that soon learn what is new at their source."""

from pathlib import Path
from typing import Any

import pytest
from promotion import Start
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


@pytest.fixture
def start(make_broker: MakeBroker, tmp_path: Path) -> Start:
    """Start a broker, which may follow another."""

    def start(name: str, source: RunningBroker | None = None, **settings: Any) -> RunningBroker:
        if source is not None:
            settings["horolog_follow"] = source.address
        return make_broker(
            log_dir=tmp_path / name, node_id=str(ord(name)), log_retention_ms="-1", **settings
        )

    return start
