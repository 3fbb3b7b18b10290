"""Kernels as plain Python, beside the compiled ones."""

from typing import Any

import pytest

from horolog.record import Kernels, PlainKernels


def plain_and_compiled(kernels: Kernels) -> tuple[Any, Any]:
    """The kernels of a module as both, by name."""
    pytest.importorskip("numba")
    kernels.load()
    return PlainKernels(kernels.text_name), kernels.run


def without_numba(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave kernels plain, as where numba is not installed."""
    monkeypatch.setattr(kernels, "run", PlainKernels(kernels.text_name))
    monkeypatch.setattr(kernels, "is_loaded", False)
    monkeypatch.setattr(kernels, "load", lambda: None)
