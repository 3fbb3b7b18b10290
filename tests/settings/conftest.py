"""The checks lie beside the tests, and their assertions are shown like those of tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("settings_lab")
