"""What the tests of records share."""

import random

import pytest
from plain_kernels import without_numba

from horolog.record import COLUMN_KERNELS, SCAN_KERNELS


@pytest.fixture
def rng() -> random.Random:
    return random.Random(20_241_121)


@pytest.fixture(params=["plain", "compiled"])
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with kernels as plain Python, and compiled."""
    for lazy in (SCAN_KERNELS, COLUMN_KERNELS):
        if request.param == "compiled":
            pytest.importorskip("numba")
            lazy.load()
        else:
            without_numba(lazy, monkeypatch)
    return request.param
