"""What tasks sum up of latencies: by topic, hour and class."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from horolog.jobs.questions.distribution import classes_of, spans_of
from horolog.jobs.questions.groups import Flags, Groups, Pending
from horolog.jobs.questions.scan import NO_HOUR, Times, batch_of, runs
from horolog.record.looks_like import units_of
from horolog.record.stretches import Int64Array

COUNTS: Final = ("records", "untimed", "in_other_unit", "not_appended")
_NONE: Final = NO_HOUR
MEASURED, CLASS, SPAN = "measured", "class", "span_ms"
_FAR_MS = 1 << 61
PARTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        *((name, pa.int64()) for name in ("hour", CLASS, SPAN, *COUNTS, MEASURED)),
        ("min_ms", pa.int64()),
        ("max_ms", pa.int64()),
    ]
)


class LatencySummary:
    """Sums of what a task reads; rows of `PARTS`."""

    def __call__(self, place: int, times: Iterator[Times]) -> Iterator[pa.RecordBatch]:
        """The rows of a task, a topic after the other."""
        pending, constants = Pending(), dict[str, object]()
        for each, begins in runs(times):
            if begins:
                yield from _rows(pending.take(), constants)
                constants = {"topic": each.topic}
            yield from _rows(pending.add(groups_of(each)), constants)
        yield from _rows(pending.take(), constants)


def groups_of(times: Times) -> Groups:
    """The records of a table by hour and class of latency."""
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
    return Groups(
        {
            "hour": times.hours(),
            CLASS: np.where(measured, classes_of(spans), _NONE),
        },
        flags,
        {"min_ms": np.where(measured, spans, -_NONE - 1)},
        {"max_ms": np.where(measured, spans, _NONE)},
    )


def _rows(groups: Groups | None, constants: dict[str, object]) -> Iterator[pa.RecordBatch]:
    if groups is not None and groups.rows:
        classes = groups.keys[CLASS]
        spans = np.where(classes == _NONE, 0, spans_of(np.where(classes == _NONE, 0, classes)))
        yield batch_of(constants, {**groups.columns, SPAN: spans}, PARTS)
