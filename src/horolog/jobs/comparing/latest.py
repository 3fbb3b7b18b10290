"""Compare the latest record of each key, which every compaction keeps.

Which older records, and which tombstones, are left depends on when a log was compacted. So a key
whose latest record is a tombstone counts as one that is not there, and offsets may differ: another
log may have been compacted before it was copied.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
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
"""Parts of the latest record that can be compared, each with its column of the format."""


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
    renamed: dict[Any, Any] = {one.topic: two.topic for one, two in pairs if one.topic != two.topic}
    ours = _records(spark, source, chosen, "ours")
    if renamed:
        ours = ours.replace(renamed, subset=["topic"])
    columns = (_COLUMNS[name] for name in chosen)
    counted = spark.sql(
        _COUNTED.format(
            same="".join(f" AND ours.{column} <=> theirs.{column}" for column in columns),
            records="{records}",
        ),
        records=ours.unionByName(_records(spark, target, chosen, "theirs")),
    )
    counts = {(row["topic"], row["partition"]): row for row in counted.collect()}
    for one, two in pairs:
        row = counts.get(two)
        if row is None:  # both are empty
            yield ComparedBatch(one)
            continue
        first = row["first"]
        difference = None if first is None else _difference(one, first, chosen)
        yield ComparedBatch(one, row["same"], difference=difference)


_BY: Final = ("topic", "partition", "key")
_COUNTED: Final = """
SELECT topic, partition, count_if(same) AS same,
    min(struct(coalesce(ours.offset, theirs.offset) AS place, key, ours, theirs))
        FILTER (WHERE NOT same) AS first
FROM (
    SELECT *, key IS NOT NULL AND ours IS NOT NULL AND theirs IS NOT NULL{same} AS same
    FROM (
        SELECT topic, partition, key,
            CASE WHEN ours.value IS NOT NULL OR key IS NULL THEN ours END AS ours,
            CASE WHEN theirs.value IS NOT NULL OR key IS NULL THEN theirs END AS theirs
        FROM (
            SELECT topic, partition, key,
                max_by(record, record.offset) FILTER (WHERE side = 'ours') AS ours,
                max_by(record, record.offset) FILTER (WHERE side = 'theirs') AS theirs
            FROM {records} GROUP BY topic, partition, key
        )
    ) WHERE ours IS NOT NULL OR theirs IS NOT NULL
) GROUP BY topic, partition"""
"""Compares the latest record of each key, which is dropped if it is a tombstone."""


def _records(spark: SparkSession, side: Selection, chosen: Sequence[str], name: str) -> DataFrame:
    columns = dict.fromkeys(("offset", "value", *(_COLUMNS[field] for field in chosen)))
    frame = side.frame(spark, columns=",".join((*_BY, *columns)), **COMMITTED)
    return frame.select(*_BY, F.struct(*columns).alias("record"), F.lit(name).alias("side"))


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
    offset, target_offset = (None if side is None else side["offset"] for side in (ours, theirs))
    if ours is None or theirs is None:
        there = f"the latest of key {shown(key)}"
        said = ("missing", there) if ours is None else (there, "missing")
        return Difference(*partition, offset, target_offset, "record", *said)
    field = next(name for name in chosen if ours[_COLUMNS[name]] != theirs[_COLUMNS[name]])
    values: list[Any] = [shown(side[_COLUMNS[field]]) for side in (ours, theirs)]
    return Difference(*partition, offset, target_offset, f"{field} of key {shown(key)}", *values)
