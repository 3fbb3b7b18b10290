"""What the clients do of their own accord, and a test can do nothing about; the tools beside us."""

import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
ROOT = _HERE.parent.parent
sys.path.insert(0, str(ROOT))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let kafka-python read its schemas in a way that Python deprecates."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:read_text is deprecated"))
