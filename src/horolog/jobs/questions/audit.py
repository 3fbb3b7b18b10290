"""Job `audit`: finds wrong times in a log, and what bounds would have rejected (KIP-937)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from horolog.client import Client, NoAnswer
from horolog.clock import SystemClock
from horolog.errors import Misconfigured, RequestRefused
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.questions import Audit
from horolog.jobs.parameters.shared import Reads
from horolog.jobs.questions.groups import Flags, GroupTable
from horolog.jobs.questions.late import (
    IN_ORDER,
    InOrder,
    LargestTimes,
    counted_in,
    with_late_across,
)
from horolog.jobs.questions.scan import (
    KEYS,
    NO_HOUR,
    NO_PRODUCER,
    Scan,
    Summary,
    Times,
    keys_of,
)
from horolog.jobs.selection import Selection
from horolog.record.looks_like import OTHER_UNITS, units_of
from horolog.record.stretches import Int64Array
from horolog.sources.rows import NO_TIME
from horolog.storage.names import TopicPartition
from horolog.wire.questions import PRODUCER_CLIENTS, AskProducerClients, ProducerClient

STEPS_MS: Final = (300_000, 3_600_000, 86_400_000, 604_800_000, 2_592_000_000, 31_536_000_000)
"""Bounds that might be set: of 5 minutes, an hour, 1, 7, 30 and 365 days."""

BY_APPEND_TIME, BY_NOW = "append time", "now"
"""Times with which create times were compared."""

_MOST_PRODUCERS: Final = 300  # in one question
_FAR_MS = 1 << 61

COUNTS: Final = (
    "records",
    "untimed",
    "before_1970",
    *(f"in_{unit}" for unit in OTHER_UNITS),
    "future",
    "past",
    "out_of_order",
)
_AHEAD = tuple(f"ahead_{step}" for step in STEPS_MS)
_BEHIND = tuple(f"behind_{step}" for step in STEPS_MS)
_SUMS = (*COUNTS, *_AHEAD, *_BEHIND, IN_ORDER)
_SMALLEST = ("min_ms", "late_min_ms", "in_order_min_ms", "in_order_from")
_LARGEST = ("max_ms", "late_max_ms", "in_order_max_ms", "in_order_to")
_NO_MIN, _NO_MAX = np.iinfo(np.int64).max, NO_TIME
PARTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("place", pa.int64()),
        ("run", pa.int64()),
        *((name, pa.int64()) for name in (*KEYS, *_SUMS, *_SMALLEST, *_LARGEST)),
    ]
)


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Largest distances of a create time from the append time or, where unknown, from now."""

    before_max_ms: int | None
    after_max_ms: int | None
    now_ms: int


def bounds_of(before_max_ms: int | None, after_max_ms: int | None, now_ms: int) -> TimeBounds:
    """Return the bounds of a job.

    Raises:
        Misconfigured: one is below zero.
    """
    for name, bound in (("before_max_ms", before_max_ms), ("after_max_ms", after_max_ms)):
        if bound is not None and bound < 0:
            raise Misconfigured(f"{name} is {bound}; it is not below zero")
    return TimeBounds(before_max_ms, after_max_ms, now_ms)


@on_spark(Audit)
def audit(spark: SparkSession, job: Audit) -> DataFrame:
    """Count records whose create times are wrong.

    A create time is compared with the append time where the log knows it (horolog; LogAppendTime
    topics), else with now: then `future` counts too few and `past` too many, as a record was
    appended before now. Of LogAppendTime topics the create times in the bytes are judged.

    Returns:
        A row for each topic, partition, producer, clock and hour that has records:

        - `topic`, `partition`; `producer` bigint, null for records without a producer id;
        - `compared_with`: "append time" or "now";
        - `hour` timestamp: of the append time or, compared with now, of the create time; null
          where there is none that Spark can show;
        - `records`; `untimed` (-1); `before_1970`; `in_seconds`, `in_microseconds`,
          `in_nanoseconds`: what the number looks like;
        - `future`, `past`: what the two bounds reject, of whatever unit;
        - `out_of_order`: before the largest time before them in the partition, among the records
          that are read; `late_max_ms`: by how much at most. Times in another unit do not count;
        - `min_ms`, `max_ms`: of the create times, null where there is none;
        - `ahead`, `behind` array<bigint>: of times in milliseconds, how many are ahead or behind by
          more than each of `STEPS_MS`.

    Raises:
        HorologError: an argument is wrong, or the log cannot be read.
    """
    bounds = bounds_of(job.before_max_ms, job.after_max_ms, SystemClock().now_ms())
    scan = Scan.plan(spark, Selection.asked(job), with_producers=True)
    job.on_progress(0, scan.offsets)
    return added_up(with_late_across(scan.frame(spark, AuditSummary(bounds, {})), scan, {}))


class AuditSummary(Summary):
    """Summary that counts wrong times; rows of `PARTS`."""

    schema = PARTS

    def __init__(self, bounds: TimeBounds, largest_ms: LargestTimes) -> None:
        self.bounds = bounds
        self.largest_ms = largest_ms

    def grouping(self, partition: TopicPartition) -> Callable[[Times], GroupTable]:
        """Return the function that groups the tables of one run of a partition, in order."""
        order = InOrder(largest_ms=self.largest_ms.get(partition, NO_TIME))
        return partial(self._groups, order=order)

    def _groups(self, times: Times, order: InOrder) -> GroupTable:
        """Group the records of a table; the first ones in order of a run have a key each."""
        created, timed = times.created_ms, times.is_timed
        units = units_of(created)
        counted = counted_in(times)
        late_ms, alone = order.add(created, counted)
        is_late = counted & (late_ms > 0)
        in_order = counted & ~is_late
        apart = np.zeros(len(created), np.int64)
        apart[alone] = times.offsets[alone] + 1
        flags: dict[str, Int64Array | Flags] = {
            "records": np.ones(len(created), np.bool_),
            "untimed": ~timed,
            "before_1970": timed & (created < 0),
            **{f"in_{unit}": units == place for place, unit in enumerate(OTHER_UNITS, 1)},
            "out_of_order": is_late,
            IN_ORDER: in_order,
            **self._distances(times, timed, counted),
        }
        has_all_times = bool(timed.all())
        return GroupTable(
            {**keys_of(times), "apart": apart},
            {name: flags[name] for name in _SUMS},
            {
                "min_ms": created if has_all_times else np.where(timed, created, _NO_MIN),
                "late_min_ms": np.where(is_late, created, _NO_MIN),
                "in_order_min_ms": np.where(in_order, created, _NO_MIN),
                "in_order_from": np.where(in_order, times.offsets, _NO_MIN),
            },
            {
                "max_ms": created if has_all_times else np.where(timed, created, _NO_MAX),
                "late_max_ms": np.where(is_late, late_ms, 0),
                "in_order_max_ms": np.where(in_order, created, _NO_MAX),
                "in_order_to": np.where(in_order, times.offsets, _NO_MAX),
            },
        )

    def _distances(
        self, times: Times, timed: Flags, counted: Flags
    ) -> dict[str, Int64Array | Flags]:
        """Mark the records that are too far ahead or behind, by the bounds and by each step."""
        bounds = self.bounds
        clock: Int64Array | int = min(max(-_FAR_MS, bounds.now_ms), _FAR_MS)
        if times.is_appended.any():
            clock = np.where(times.is_appended, times.appended_ms, clock)
            clock = np.clip(clock, -_FAR_MS, _FAR_MS)
        # Limited, so that no difference leaves 64 bits; every bound is as far away.
        ahead = np.clip(times.created_ms, -_FAR_MS, _FAR_MS) - clock
        if not timed.all():
            ahead = np.where(timed, ahead, 0)
        nothing = np.zeros(len(ahead), np.bool_)
        after, before = bounds.after_max_ms, bounds.before_max_ms
        marks: dict[str, Int64Array | Flags] = {
            "future": nothing if after is None else ahead > after,
            "past": nothing if before is None else ahead < -before,
        }
        if not counted.all():
            ahead = np.where(counted, ahead, 0)
        most, least = (ahead.max(), ahead.min()) if len(ahead) else (0, 0)
        for step, name, other in zip(STEPS_MS, _AHEAD, _BEHIND, strict=True):
            marks[name] = ahead > step if most > step else nothing
            marks[other] = ahead < -step if least < -step else nothing
        return marks


def totals(audited: DataFrame, *keys: str) -> DataFrame:
    """Add up the rows of `audit` to one for each value of these columns."""
    return audited.groupBy(*keys).agg(*map(F.expr, _TOTALS))


def _sum(column: str) -> str:
    return f"coalesce(sum({column}), 0)"


# SQL here and below: the driver needs as much time for each column that Python makes of columns.
_TOTALS: Final = (
    *(f"{_sum(name)} AS {name}" for name in COUNTS),
    "max(late_max_ms) AS late_max_ms",
    "min(min_ms) AS min_ms",
    "max(max_ms) AS max_ms",
    *(
        f"array({', '.join(_sum(f'{name}[{at}]') for at in range(len(STEPS_MS)))}) AS {name}"
        for name in ("ahead", "behind")
    ),
)


def added_up(parts: DataFrame) -> DataFrame:
    """Add up the rows of all tasks to the rows that `audit` returns."""
    return parts.sparkSession.sql(_ADDED_UP, parts=parts)


_ADDED_UP = f"""
SELECT
    topic,
    partition,
    CASE WHEN producer <> {NO_PRODUCER} THEN producer END AS producer,
    CASE WHEN by_append = 1 THEN '{BY_APPEND_TIME}' ELSE '{BY_NOW}' END AS compared_with,
    CASE WHEN hour <> {NO_HOUR} THEN timestamp_millis(hour) END AS hour,
    {", ".join(COUNTS)},
    CASE WHEN late_max_ms > 0 THEN late_max_ms END AS late_max_ms,
    CASE WHEN untimed < records THEN min_ms END AS min_ms,
    CASE WHEN untimed < records THEN max_ms END AS max_ms,
    array({", ".join(_AHEAD)}) AS ahead,
    array({", ".join(_BEHIND)}) AS behind
FROM (
    SELECT
        topic,
        partition,
        {", ".join(KEYS)},
        {", ".join(f"sum({name}) AS {name}" for name in (*COUNTS, *_AHEAD, *_BEHIND))},
        min(min_ms) AS min_ms,
        max(max_ms) AS max_ms,
        max(late_max_ms) AS late_max_ms
    FROM {{parts}}
    GROUP BY topic, partition, {", ".join(KEYS)}
)"""  # noqa: S608 - of names of this package


def known_clients(client: Client, producers: Iterable[int]) -> dict[int, str]:
    """Return the client ids of producers that a broker has seen since it started.

    Raises:
        RequestRefused: a broker refuses.
        NoAnswer: a broker does not answer.
    """
    ids = tuple(dict.fromkeys(producers))
    clients: list[ProducerClient] = []
    for first in range(0, len(ids), _MOST_PRODUCERS):
        asked = AskProducerClients(ids[first : first + _MOST_PRODUCERS])
        for answer in client.ask.each_broker(PRODUCER_CLIENTS, asked).values():
            clients += () if answer is None else answer.clients
    clients.sort(key=lambda producer: producer.epoch)
    return {producer.producer_id: producer.client_id for producer in clients}


def producer_clients(job: Reads, producers: Iterable[int]) -> dict[int, str]:
    """Return client ids by producer id, as far as a horolog cluster knows them.

    Files and Apache Kafka name none. Nor does a broker that does not answer: what was found does
    not depend on names.
    """
    selection, ids = Selection.asked(job), list(producers)
    if not ids or not selection.source.is_broker:
        return {}
    try:
        with selection.client() as client:
            return known_clients(client, ids)
    except (RequestRefused, NoAnswer):
        return {}
