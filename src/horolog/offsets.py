"""Offsets of one partition that follow each other."""

from typing import NamedTuple


class OffsetRange(NamedTuple):
    """Offsets from `start` to before `end`, and the bytes of their batches."""

    start: int
    end: int
    size: int
