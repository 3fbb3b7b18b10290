"""Distributions of spans of time in few numbers: each goes to a class less than 1 % wide.

Each span below `EXACT_MS` has a class of its own, longer ones share 128 classes an octave; spans
below zero are classed by their size. A class is a number, and stands for the span amid it.
"""

from typing import Final

import numpy as np

from horolog.record.stretches import Int64Array

EXACT_MS: Final = 256
_PER_OCTAVE: Final = 128
_FIRST_OCTAVE: Final = 8  # 2 ** 8 is the first span that shares a class
_MOST_MS: Final = (1 << 61) - 1


def classes_of(spans_ms: Int64Array) -> Int64Array:
    """The class of each span; spans of more than 2 ** 61 ms are in the last one."""
    size = np.abs(np.clip(spans_ms, -_MOST_MS, _MOST_MS))
    classes = size.copy()
    is_long = size >= EXACT_MS
    if is_long.any():
        long = size[is_long]
        # A size that rounds up to a power of two is in the last class below that.
        octave = np.frexp(long.astype(np.float64))[1].astype(np.int64) - 1
        within = (long >> (octave - 7)) - _PER_OCTAVE
        classes[is_long] = EXACT_MS + (octave - _FIRST_OCTAVE) * _PER_OCTAVE + within
    return np.where(spans_ms < 0, -classes, classes)


def spans_of(classes: Int64Array) -> Int64Array:
    """The span amid each class, in milliseconds."""
    place = np.abs(classes)
    is_long = place >= EXACT_MS
    shift = np.where(is_long, (place - EXACT_MS) // _PER_OCTAVE + 1, 0)
    base = np.where(is_long, _PER_OCTAVE + (place - EXACT_MS) % _PER_OCTAVE, place)
    amid = np.where(is_long, (base << shift) + (np.int64(1) << shift) // 2, place)
    return np.where(classes < 0, -amid, amid)
