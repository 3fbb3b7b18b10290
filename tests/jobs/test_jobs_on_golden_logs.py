"""Jobs on the logs of Apache Kafka, compared with what Kafka served of them.

Formats v0, v1 and v2, aborted and open transactions, compacted topics, times before 1970, in other
units and missing, LogAppendTime, deleted records.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import golden
from horolog import jobs
from horolog.record.looks_like import looks_like

pytestmark = pytest.mark.spark

SETS = ("clean", "old-formats")
ALL: dict[str, Any] = {"topics_pattern": "[^_].*"}
COMMITTED = {"kafka.isolation.level": "read_committed"}


def served(name: str) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """The offset and the time of each record, by partition.

    Kafka serves records of format v0, which have no time, with the time 0.
    """
    untold = (0,) if name == "old-formats" else ()
    return {
        (each.topic, each.partition): [
            (offset, -1 if ms in untold else ms) for offset, ms, *_ in each.answers["records"]
        ]
        for each in golden.partitions(name)
    }


def counted(times: list[int]) -> dict[str, int]:
    """What an audit counts of the times of a partition, in the order of the log."""
    found = Counter(records=len(times), untimed=times.count(-1))
    largest: int | None = None
    for each in times:
        found["before_1970"] += each < -1
        if each == -1 or looks_like(each) is not None:
            continue
        found["out_of_order"] += largest is not None and each < largest
        largest = each if largest is None else max(largest, each)
    return {name: found[name] for name in ("records", "untimed", "before_1970", "out_of_order")}


@pytest.mark.parametrize("name", SETS)
def test_an_audit_counts_what_kafka_served(spark: Any, name: str) -> None:
    rows = jobs.audit(spark, source=golden.GOLDEN / name, **ALL).collect()
    found: dict[tuple[str, int], Counter[str]] = {}
    for row in rows:
        its = found.setdefault((row.topic, row.partition), Counter())
        for count in ("records", "untimed", "before_1970", "out_of_order"):
            its[count] += row[count]
    for partition, records in served(name).items():
        its = found.pop(partition, Counter())
        if "append-time" in partition[0]:  # Kafka serves append times, and create times are judged
            assert its["records"] == len(records), partition
        else:
            expected = counted([ms for _, ms in records])
            assert {count: its[count] for count in expected} == expected, partition
    assert found == {}


def test_an_audit_of_committed_records_leaves_out_aborted_and_open_transactions(spark: Any) -> None:
    topics = ("transactions", "transaction-open")
    frame = jobs.audit(spark, source=golden.GOLDEN / "clean", topics=topics, settings=COMMITTED)
    found = Counter[str]()
    for row in frame.collect():
        found[row.topic] += row.records
    expected = {
        each.topic: len(each.answers["committed_offsets"])
        for each in golden.partitions("clean")
        if each.topic in topics
    }
    assert found == expected
    assert all(
        len(each.answers["records"]) > expected[each.topic] > 0
        for each in golden.partitions("clean")
        if each.topic in topics
    )


@pytest.mark.parametrize("name", SETS)
def test_latency_is_measured_where_kafka_keeps_both_times_and_elsewhere_it_is_not(
    spark: Any, name: str
) -> None:
    totals = jobs.latency(spark, source=golden.GOLDEN / name, **ALL).where("is_total").collect()
    found = {row.topic: row for row in totals}
    expected = Counter[str]()
    for (topic, _), records in served(name).items():
        expected[topic] += len(records)
    assert {topic: row.records for topic, row in found.items()} == +expected
    for topic, row in found.items():
        if "append-time" in topic:
            assert row.measured + row.untimed + row.in_other_unit == row.records, topic
            assert row.measured > 0
        elif topic != "mixed":  # of all formats and timestamp types
            assert (row.measured, row.not_appended) == (0, row.records), topic


@pytest.mark.parametrize(
    ("name", "from_ms"),
    [
        ("clean", -5_000),
        pytest.param("old-formats", 1_700_000_005_000, marks=pytest.mark.slow),
    ],
)
def test_a_table_gets_exactly_the_committed_records_of_the_range(
    spark: Any, tmp_path: Path, name: str, from_ms: int
) -> None:
    given: dict[str, Any] = {"source": golden.GOLDEN / name, "from_": from_ms, **ALL}
    counted = jobs.reprocess(spark, **given, table=tmp_path / "table", dry_run=True)
    done = jobs.reprocess(spark, **given, table=tmp_path / "table", state=tmp_path / "state")
    rows = spark.read.parquet(str(tmp_path / "table")).select(
        "topic", "partition", "offset", "timestampMs"
    )
    found = sorted(tuple(row) for row in rows.collect())
    committed = {
        (each.topic, each.partition): each.answers["committed_offsets"]
        for each in golden.partitions(name)
        if each.answers["committed_offsets"] is not None
    }
    expected = sorted(
        (*partition, offset, ms)
        for partition, records in served(name).items()
        for offset, ms in records
        if ms >= from_ms and ms != -1
        if partition not in committed or offset in committed[partition]
    )
    assert found == expected
    assert done.records == counted.records == len(expected)
