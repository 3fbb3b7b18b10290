"""Compare the latest record of each key, which every compaction keeps.

Which older records, and which tombstones, are left depends on when a log was compacted. So a key
whose latest record is a tombstone counts as one that is not there, and offsets may differ: another
log may have been compacted before it was copied.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from horolog.jobs.comparing.walking import COMMITTED, ComparedBatch, Difference, shown
from horolog.jobs.selection import Selection
from horolog.storage.names import TopicPartition

_COLUMNS: Final = {
    "value": "value",
    "headers": "headers",
    "time": "timestampMs",
    "type": "timestampType",
}
"""What can be compared of the latest record, and the column of the format."""


def compare_latest(
    spark: SparkSession,
    source: Selection,
    target: Selection,
    pairs: Sequence[tuple[TopicPartition, TopicPartition]],
    fields: Sequence[str],
) -> Iterator[ComparedBatch]:
    """Yield for each partition the number of equal keys, and the first different one.

    Args:
        pairs: the partitions of both that belong together.
        fields: of a record that have to be equal.
    """
    chosen = [name for name in _COLUMNS if name in fields]
    names = {one.topic: two.topic for one, two in pairs}
    ours, theirs = (
        _latest(_read(spark, side, chosen), chosen, renamed).withColumnRenamed("last", name)
        for side, renamed, name in ((source, names, "ours"), (target, {}, "theirs"))
    )
    on = [ours[each].eqNullSafe(theirs[each]) for each in _BY]
    joined = ours.join(theirs, on, "full_outer").select(
        *(F.coalesce(ours[each], theirs[each]).alias(each) for each in _BY),
        "ours",
        "theirs",
    )
    same: Column = F.col("key").isNotNull()
    same &= F.col("ours").isNotNull() & F.col("theirs").isNotNull()
    for name in chosen:
        column = _COLUMNS[name]
        same &= F.col(f"ours.{column}").eqNullSafe(F.col(f"theirs.{column}"))
    place = F.coalesce("ours.offset", "theirs.offset")
    counted = joined.groupBy("topic", "partition").agg(
        F.count(F.when(same, 1)).alias("same"),
        F.min(F.when(~same, F.struct(place, "key", "ours", "theirs"))).alias("first"),
    )
    found = {(row["topic"], row["partition"]): row for row in counted.collect()}
    for one, two in pairs:
        row = found.get(two)
        if row is None:  # both are empty
            yield ComparedBatch(one)
            continue
        first = row["first"]
        difference = None if first is None else _difference(one, first, chosen)
        yield ComparedBatch(one, row["same"], difference=difference)


_BY: Final = ("topic", "partition", "key")


def _read(spark: SparkSession, side: Selection, chosen: Sequence[str]) -> DataFrame:
    columns = dict.fromkeys((*_BY, "offset", "value", *(_COLUMNS[name] for name in chosen)))
    return side.frame(spark, columns=",".join(columns), **COMMITTED)


def _latest(frame: DataFrame, chosen: Sequence[str], names: Mapping[str, str]) -> DataFrame:
    """Return the latest record of each key unless it is a tombstone, with renamed topics."""
    renamed: dict[Any, Any] = {name: other for name, other in names.items() if name != other}
    if renamed:
        frame = frame.replace(renamed, subset=["topic"])
    columns = dict.fromkeys(["value", *(_COLUMNS[name] for name in chosen)])
    return (
        frame.groupBy(*_BY)
        .agg(F.max_by(F.struct("offset", *columns), "offset").alias("last"))
        .where(F.col("last.value").isNotNull() | F.col("key").isNull())
    )


def _difference(partition: TopicPartition, first: Row, chosen: Sequence[str]) -> Difference:
    key, ours, theirs = first["key"], first["ours"], first["theirs"]
    if key is None:
        return Difference(
            *partition,
            None,
            None,
            "error",
            "records without a key are there, which compaction removes: compare them record by "
            "record, without --latest",
            "not compared",
        )
    offset, target_offset = (None if each is None else each["offset"] for each in (ours, theirs))
    if ours is None or theirs is None:
        there = f"the latest of key {shown(key)}"
        said = ("missing", there) if ours is None else (there, "missing")
        return Difference(*partition, offset, target_offset, "record", *said)
    field = next(name for name in chosen if ours[_COLUMNS[name]] != theirs[_COLUMNS[name]])
    values: list[Any] = [shown(each[_COLUMNS[field]]) for each in (ours, theirs)]
    return Difference(*partition, offset, target_offset, f"{field} of key {shown(key)}", *values)
