"""Rows to records without Spark: which columns are written, and where rows go."""

from typing import Any

import pyarrow as pa
import pytest
from overrides import override

from horolog.errors import Misconfigured
from horolog.spark.errors import RowsRefused
from horolog.spark.write import rows as sink_rows
from horolog.spark.write.rows import SinkColumns

HEADERS = "array<struct<key:string,value:binary>>"
VALUE = ("value", "binary")


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def runs(columns: SinkColumns, *batches: pa.RecordBatch) -> list[tuple[str, dict[str, Any]]]:
    return [(topic, rows.to_pydict()) for topic, rows in columns.runs(iter(batches))]


def test_columns_of_sparks_kafka_sink_and_times_are_written_and_others_are_not() -> None:
    fields = [
        ("offset", "bigint"),
        ("key", "string"),
        VALUE,
        ("topic", "string"),
        ("partition", "int"),
        ("headers", HEADERS),
        ("timestampType", "int"),
        ("timestampMs", "bigint"),
        ("window", "struct<start:timestamp,end:timestamp>"),
    ]
    columns = SinkColumns.of(fields, None)
    assert columns == SinkColumns(("key", "value", "partition", "headers", "timestampMs"), None)
    rows = batch(
        offset=[9],
        key=["k"],
        value=[b"v"],
        topic=["t"],
        partition=pa.array([3], pa.int32()),
        headers=[[{"key": "h", "value": b"1"}]],
        timestampMs=[-7],
    )
    sent = {
        "key": ["k"],
        "value": [b"v"],
        "partition": [3],
        "headers": [[{"key": "h", "value": b"1"}]],
        "timestamp_ms": [-7],
    }
    assert runs(columns, rows) == [("t", sent)]
    assert SinkColumns.of([("value", "string"), ("timestamp", "timestamp")], "t").names == (
        "value",
        "timestamp",
    )


@pytest.mark.parametrize(
    ("fields", "topic", "said"),
    [
        ([("key", "string")], "t", "Required column 'value' not found"),
        ([VALUE], None, "Option 'topic' is required where the rows have no column 'topic'"),
        ([("value", "int")], "t", "Column 'value' is int; it must be string or binary"),
        ([VALUE, ("key", "bigint")], "t", "Column 'key' is bigint; it must be string or binary"),
        ([VALUE, ("topic", "int")], None, "Column 'topic' is int; it must be string"),
        ([VALUE, ("partition", "bigint")], "t", "'partition' is bigint; .* int .cast it to int"),
        ([VALUE, ("headers", "map<string,binary>")], "t", "'headers' is map.*; it must be array"),
        ([VALUE, ("timestamp", "timestamp_ntz")], "t", "a time without a zone is no moment"),
        ([VALUE, ("timestamp", "bigint")], "t", "write milliseconds in column 'timestampMs'"),
        ([VALUE, ("timestampMs", "int")], "t", "'timestampMs' is int; it must be bigint"),
        ([VALUE, ("timestampMs", "bigint"), ("timestamp", "timestamp")], "t", "both 'timestamp'"),
        ([VALUE, VALUE], "t", "two columns 'value'"),
        ([VALUE, ("timestamp_ms", "bigint")], "t", "did you mean 'timestampMs'"),
        ([VALUE, ("Key", "binary")], "t", "'Key'; did you mean 'key'"),
        ([VALUE, ("keys", "binary")], "t", "'keys'; did you mean 'key'"),
        ([VALUE, ("header", "string")], "t", "'header'; did you mean 'headers'"),
        ([VALUE, ("time_stamps", "timestamp")], "t", "'time_stamps'; did you mean 'timestamp'"),
    ],
)
def test_a_column_that_cannot_be_written_is_refused_in_a_sentence(
    fields: list[tuple[str, str]], topic: str | None, said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        SinkColumns.of(fields, topic)


def test_the_topic_option_wins_over_the_column_whatever_its_type() -> None:
    columns = SinkColumns.of([VALUE, ("topic", "int")], "option")
    assert runs(columns, batch(value=[b"a"], topic=[1]), batch(value=[], topic=[])) == [
        ("option", {"value": [b"a"]})
    ]


def test_strings_with_a_collation_are_strings() -> None:
    fields = [("value", "string collate UTF8_LCASE"), ("topic", "string collate UNICODE")]
    assert SinkColumns.of(fields, None).names == ("value",)


@pytest.mark.parametrize("gathered", [1, 100, sink_rows.GATHERED_BYTES])
def test_rows_of_mixed_topics_keep_their_order_within_each(
    gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.spark", GATHERED_BYTES=gathered)
    columns = SinkColumns.of([VALUE, ("topic", "string")], None)
    topics = ["a", "b", "a", "c", "a", "b", "a"]
    batches = [
        batch(value=[b"%d" % (10 * n + at) for at in range(7)], topic=topics[n:] + topics[:n])
        for n in range(5)
    ]
    batches.insert(2, batches[0].slice(0, 0))
    found: dict[str, list[bytes]] = {}
    for topic, rows in runs(columns, *batches):
        found.setdefault(topic, []).extend(rows["value"])
    expected: dict[str, list[bytes]] = {}
    for each in batches:
        for row in each.to_pylist():
            expected.setdefault(row["topic"], []).append(row["value"])
    assert found == expected


def test_rows_of_one_topic_are_passed_on_as_they_came() -> None:
    columns = SinkColumns.of([VALUE, ("topic", "string")], None)
    batches = [batch(value=[b"%d" % n] * 3, topic=["a"] * 3) for n in range(3)]
    passed = list(columns.runs(iter(batches)))
    assert [topic for topic, _ in passed] == ["a"] * 3
    for (_, rows), given in zip(passed, batches, strict=True):
        assert rows.column("value").buffers()[2].address == given.column(0).buffers()[2].address


def test_a_row_without_a_topic_is_named() -> None:
    columns = SinkColumns.of([VALUE, ("topic", "string")], None)
    batches = [
        batch(value=[b"a"] * 2, topic=["a", "b"]),
        batch(value=[b"a"] * 3, topic=["a", "b", None]),
    ]
    with pytest.raises(RowsRefused, match="Row 4 of a task has no topic"):
        runs(columns, *batches)


def test_no_rows_are_no_runs() -> None:
    columns = SinkColumns.of([VALUE, ("topic", "string")], None)
    empty = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary()), "topic": ["x"][:0]})
    assert runs(columns) == runs(columns, empty) == []
