from pathlib import Path

import pytest
from mirror_lab import MirrorLab
from running_broker import MakeBroker


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_broker: MakeBroker) -> MirrorLab:
    """Mirrors that need no Spark, between two brokers."""
    return MirrorLab(tmp_path, monkeypatch, make_broker)
