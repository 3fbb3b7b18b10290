"""What the tests of records share."""

import random

import pytest

from horolog.record.kernels.loading import COLUMN_KERNELS, SCAN_KERNELS


@pytest.fixture
def rng() -> random.Random:
    return random.Random(20_241_121)


@pytest.fixture(params=["twins", "kernels"])
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the plain twins and with the kernels."""
    for lazy in (SCAN_KERNELS, COLUMN_KERNELS):
        if request.param == "kernels":
            lazy.load()
        else:
            monkeypatch.setattr(lazy, "module", None)
            monkeypatch.setattr(lazy, "load_in_background", lambda: None)
    return request.param
