"""Sums of latencies by topic, hour and class, which tasks compute."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from horolog.jobs.questions.groups import Flags, GroupTable
from horolog.jobs.questions.scan import NO_HOUR, Summary, Times
from horolog.record.looks_like import units_of
from horolog.record.stretches import Int64Array
from horolog.storage.names import TopicPartition

COUNTS: Final = ("records", "untimed", "in_other_unit", "not_appended")
_NONE: Final = NO_HOUR
MEASURED, CLASS, SPAN = "measured", "class", "span_ms"
_FAR_MS = 1 << 61
EXACT_MS: Final = 256
_PER_OCTAVE: Final = 128
_FIRST_OCTAVE: Final = 8  # 2 ** 8 is the first span that shares a class
_MOST_MS: Final = (1 << 61) - 1
PARTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        *((name, pa.int64()) for name in ("hour", CLASS, SPAN, *COUNTS, MEASURED)),
        ("min_ms", pa.int64()),
        ("max_ms", pa.int64()),
    ]
)


class LatencySummary(Summary):
    """Summary of latencies by topic, hour and class; rows of `PARTS`."""

    schema = PARTS

    def grouping(self, partition: TopicPartition) -> Callable[[Times], GroupTable]:
        """Return the function that groups a table by hour and class."""
        return groups_of

    def columns(self, groups: GroupTable) -> Mapping[str, Int64Array | Flags]:
        """Return the columns of groups with the span of each class; 0 where none is measured."""
        classes = groups.keys[CLASS]
        return {**groups.columns, SPAN: spans_of(np.where(classes == _NONE, 0, classes))}


def groups_of(times: Times) -> GroupTable:
    """Group the records of a table by hour and class of latency."""
    created, timed, known = times.created_ms, times.is_timed, times.is_appended
    is_other = timed & (units_of(created) != 0)
    measured = timed & ~is_other & known
    spans = np.clip(times.appended_ms, -_FAR_MS, _FAR_MS) - np.clip(created, -_FAR_MS, _FAR_MS)
    flags: dict[str, Int64Array | Flags] = {
        "records": np.ones(len(created), np.bool_),
        "untimed": ~timed,
        "in_other_unit": is_other,
        "not_appended": ~known,
        MEASURED: measured,
    }
    return GroupTable(
        {
            "hour": times.hours(),
            CLASS: np.where(measured, classes_of(spans), _NONE),
        },
        flags,
        {"min_ms": np.where(measured, spans, -_NONE - 1)},
        {"max_ms": np.where(measured, spans, _NONE)},
    )


def classes_of(spans_ms: Int64Array) -> Int64Array:
    """Return the class of each span; a class is less than 1 % wide.

    Each span below `EXACT_MS` has a class of its own, longer ones share 128 classes an octave;
    spans below zero are classed by their size. A class is a number, and means the span amid it.
    """
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
    """Return the span in the middle of each class, in milliseconds."""
    place = np.abs(classes)
    is_long = place >= EXACT_MS
    shift = np.where(is_long, (place - EXACT_MS) // _PER_OCTAVE + 1, 0)
    base = np.where(is_long, _PER_OCTAVE + (place - EXACT_MS) % _PER_OCTAVE, place)
    amid = np.where(is_long, (base << shift) + (np.int64(1) << shift) // 2, place)
    return np.where(classes < 0, -amid, amid)
