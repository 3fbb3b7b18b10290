"""Suggested bounds on times, with the records that each would have rejected (KIP-937)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from horolog.jobs.questions.audit import BY_APPEND_TIME, STEPS_MS, totals
from horolog.record.looks_like import OTHER_UNITS
from horolog.times import duration_text

AFTER: Final = "message.timestamp.after.max.ms"
BEFORE: Final = "message.timestamp.before.max.ms"

_FEW: Final = 1_000
"""A bound is suggested where it rejects at most one in this many of the times in milliseconds."""
_UNITS: Final = tuple(f"in_{unit}" for unit in OTHER_UNITS)
# Seconds are of 1970, the other units are of times far ahead.
_REJECTED_ANYWAY = {AFTER: ("in_microseconds", "in_nanoseconds"), BEFORE: ("in_seconds",)}
_STEPS = {AFTER: ("ahead", STEPS_MS[1]), BEFORE: ("behind", STEPS_MS[2])}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Count of the records of a topic that a bound would have rejected."""

    topic: str
    setting: str
    value_ms: int
    records: int
    """Number of records that the bound would have rejected."""
    producers: int
    """Number of their producers; records without a producer id count as one producer's."""
    units: Mapping[str, int]
    """Number of these records in each other unit."""
    of_records: int
    is_exact: bool
    """True if append times are known; otherwise `records` is a lower bound."""
    is_suggested: bool

    def __str__(self) -> str:
        units = ", ".join(f"{count:,} in {unit}" for unit, count in self.units.items() if count)
        value = f"{self.value_ms} ({duration_text(self.value_ms)})"
        return (
            f"{self.topic}: {self.setting}={value} would have refused "
            f"{'' if self.is_exact else 'at least '}{_many(self.records, 'record')} of "
            f"{_many(self.producers, 'producer')}, of {self.of_records:,}"
            + (f" ({units})" if units else "")
        )


def evidence(audited: DataFrame) -> list[Evidence]:
    """Count the records that each of `STEPS_MS` would have rejected as a bound, by topic.

    Of topics whose append times are unknown only the bound on times ahead can be judged: how old
    a record was when it was appended is not known.
    """
    by_producer = totals(audited, "topic", "compared_with", "producer")
    columns = [f"sum({name}) AS {name}" for name in ("records", "untimed", *_UNITS)]
    for setting, (distances, _) in _STEPS.items():
        for at in range(len(STEPS_MS)):
            rejected = " + ".join((f"{distances}[{at}]", *_REJECTED_ANYWAY[setting]))
            columns.append(f"sum({rejected}) AS {distances}_{at}")
            columns.append(f"count_if({rejected} > 0) AS {distances}_{at}_producers")
    rows = by_producer.groupBy("topic", "compared_with").agg(*map(F.expr, columns))
    counts = rows.orderBy("topic", "compared_with").collect()
    return [
        bound
        for row in counts
        for setting in _STEPS
        if setting == AFTER or row.compared_with == BY_APPEND_TIME
        for bound in _of_setting(row, setting)
    ]


def _of_setting(row: Row, setting: str) -> list[Evidence]:
    distances, least = _STEPS[setting]
    anyway = _REJECTED_ANYWAY[setting]
    units = {unit: int(row[name]) for unit in OTHER_UNITS if (name := f"in_{unit}") in anyway}
    in_ms = row.records - row.untimed - sum(row[name] for name in _UNITS)
    bounds: list[Evidence] = []
    for at, step in enumerate(STEPS_MS):
        records = int(row[f"{distances}_{at}"])
        of_right_unit = records - sum(units.values())
        fits = step >= least and records > 0 and of_right_unit * _FEW <= in_ms
        bounds.append(
            Evidence(
                topic=row.topic,
                setting=setting,
                value_ms=step,
                records=records,
                producers=int(row[f"{distances}_{at}_producers"]),
                units=units,
                of_records=int(row.records),
                is_exact=row.compared_with == BY_APPEND_TIME,
                is_suggested=fits and not any(bound.is_suggested for bound in bounds),
            )
        )
    return bounds


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def as_json(bound: Evidence) -> dict[str, Any]:
    """Return the evidence for `--json`."""
    return {
        "topic": bound.topic,
        "setting": bound.setting,
        "value_ms": bound.value_ms,
        "would_refuse": bound.records,
        "of_producers": bound.producers,
        "of_records": bound.of_records,
        "exact": bound.is_exact,
        "suggested": bound.is_suggested,
        "sentence": str(bound),
    }
