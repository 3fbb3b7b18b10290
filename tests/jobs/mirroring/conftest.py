from pathlib import Path

import pytest
from mirror_lab import MirrorLab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MirrorLab:
    """Mirrors that need no Spark."""
    return MirrorLab(tmp_path, monkeypatch)
