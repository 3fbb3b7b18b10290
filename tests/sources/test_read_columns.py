import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from horolog.errors import Misconfigured
from horolog.record import batch_schema
from horolog.sources import RowShaper, columns, decoded_columns, shown_times
from horolog.storage import TopicPartition

KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def test_columns_are_those_of_sparks_kafka_source() -> None:
    assert columns.default_columns() == KAFKA
    assert columns.default_columns("includeHeaders") == (
        *KAFKA,
        "headers",
    )
    assert columns.default_columns("includeTimestampMs") == (
        *KAFKA,
        "timestampMs",
    )


def test_columns_may_be_picked_in_any_order_and_case() -> None:
    assert columns.named_columns(["TIMESTAMPMS", "key"]) == ("timestampMs", "key")


@pytest.mark.parametrize(
    ("names", "said"), [(["when"], "no column 'when'"), (["key"] * 2, "twice")]
)
def test_columns_that_cannot_be_are_refused(names, said) -> None:
    with pytest.raises(Misconfigured, match=said):
        columns.named_columns(names)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("when", "timestamp")], "'when' that the log has not; there are key"),
        ([("Offset", "bigint")], "did you mean 'offset'"),
        ([("offset", "int")], "'offset' the type int; it is bigint"),
        ([("key", "string")], "'key' the type string; it is binary"),
        ([("key", "binary"), ("key", "binary")], "none twice"),
        ([], "at least one column"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_before_the_query_runs(fields, said) -> None:
    with pytest.raises(Misconfigured, match=said):
        columns.check_schema(fields)


def test_only_what_a_query_wants_is_decoded() -> None:
    assert decoded_columns(["timestamp", "timestampMs", "topic"]) == ("timestamp_ms",)
    assert decoded_columns(["topic", "partition"]) == ("offset",)


@pytest.mark.parametrize(
    ("timestamp_ms", "microseconds"),
    [
        (0, 0),
        (-2, -2000),
        (-1, None),
        (columns.FIRST_TIMESTAMP_MS, columns.FIRST_TIMESTAMP_MS * 1000),
        (columns.FIRST_TIMESTAMP_MS - 1, None),
        (columns.LAST_TIMESTAMP_MS, columns.LAST_TIMESTAMP_MS * 1000),
        (columns.LAST_TIMESTAMP_MS + 1, None),
        (1_700_000_000_000_000_000, None),
        ((1 << 63) - 1, None),
        (-(1 << 63), None),
    ],
)
def test_times_that_spark_cannot_show_are_null(timestamp_ms, microseconds) -> None:
    for others in ([], [7, 8]):
        times = shown_times(pa.array([timestamp_ms, *others], pa.int64()))
        assert times.type == pa.timestamp("us", tz="UTC")
        assert times.cast(pa.int64()).to_pylist() == [microseconds, *(ms * 1000 for ms in others)]


def decoded(rows: int) -> pa.RecordBatch:
    named = decoded_columns(tuple(columns.TYPES))
    values = {
        "key": [None] * rows,
        "value": [b"v"] * rows,
        "headers": [[{"key": "h", "value": None}] if row % 2 else [] for row in range(rows)],
        "offset": np.arange(rows),
        "timestamp_ms": np.arange(rows),
        "timestamp_type": np.zeros(rows, np.int32),
        "producer_id": np.arange(rows),
        "producer_epoch": np.zeros(rows, np.int32),
        "sequence": np.arange(rows, dtype=np.int32),
        "append_ms": [None] * rows,
        "seen_ms": [None] * rows,
        "create_ms": np.arange(rows),
    }
    clocks = ("append_ms", "seen_ms", "create_ms")
    of_records = batch_schema([name for name in named if name not in clocks])
    schema = pa.schema([*of_records, *(pa.field(name, pa.int64()) for name in clocks)])
    return pa.RecordBatch.from_arrays(
        [pa.array(values[field.name], field.type) for field in schema], schema=schema
    )


@pytest.mark.parametrize("rows", [1, 4096, 4097, 9000])
def test_rows_have_exactly_the_schema_of_the_query(rows) -> None:
    names = tuple(columns.TYPES)
    shaper = RowShaper(names, [True] * len(names))
    for partition in (TopicPartition("orders", 3), TopicPartition("ü", 0)):
        shaper.begin(partition)
        table = shaper.shape(decoded(rows))
        table.validate(full=True)
        assert table.schema == shaper.schema
        assert table.column("topic").to_pylist() == [partition.topic] * rows
        assert table.column("partition").to_pylist() == [partition.partition] * rows
        assert table.column("offset").to_pylist() == list(range(rows))


def test_a_record_without_headers_has_null_as_in_sparks_kafka_source() -> None:
    shaper = RowShaper(["headers"], [True])
    shaper.begin(TopicPartition("orders", 0))
    headers = shaper.shape(decoded(4)).column("headers").to_pylist()
    one = [{"key": "h", "value": None}]
    assert headers == [None, one, None, one]


def test_the_columns_of_a_plain_read_need_no_pandas() -> None:
    code = """
import sys
from horolog.record.builder import LogRecord, build_batch
from horolog.record.columns import decode
from horolog.sources import columns
from horolog.sources.rows import RowShaper, decoded_columns
from horolog.storage.names import TopicPartition
names = columns.default_columns()
shaper = RowShaper(names, [True] * len(names))
shaper.begin(TopicPartition("orders", 0))
batch = build_batch([LogRecord(at, b"k", b"v") for at in (1000, -1, 2000)])
(table,) = decode(batch, columns=decoded_columns(names))
rows = shaper.shape(table)
rows.validate(full=True)
print(rows.column("timestamp").null_count, "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
