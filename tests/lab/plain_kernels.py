"""Kernels as plain Python, beside the compiled ones."""

from hashlib import sha256
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


class Answers:
    """All answers to a generated test, as one digest.

    The digests in tests were taken when the same text was equal to a second implementation of each
    kernel. A text that answers differently, compiled and plain alike, gives another one.
    """

    def __init__(self) -> None:
        self._digest = sha256()

    def add(self, *answer: object) -> None:
        """Add what a kernel answered to one case."""
        self._digest.update(repr(answer).encode())

    def digest(self) -> str:
        """The digest of all so far."""
        return self._digest.hexdigest()[:16]
