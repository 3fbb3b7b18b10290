"""Digests of rows: equal for equal rows in whatever pieces, different for others."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.client import RowsDigest

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.large_string()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("partition", pa.int32()),
        ("timestamp_ms", pa.int64()),
    ]
)
HEADER = st.fixed_dictionaries(
    {"key": st.text(max_size=2), "value": st.none() | st.binary(max_size=2)}
)
ROW = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=2),
        "value": st.none() | st.text("ab", max_size=2),
        "headers": st.none() | st.lists(HEADER, max_size=2),
        "partition": st.none() | st.integers(0, 2),
        "timestamp_ms": st.none() | st.sampled_from([-(1 << 63), -1, 0, (1 << 63) - 1]),
    }
)
Rows = list[tuple[str, dict[str, Any]]]
ROWS = st.lists(st.tuples(st.sampled_from(["t", "u"]), ROW), max_size=6)


def digest_of(rows: Rows, cuts: frozenset[int] = frozenset()) -> str:
    """The digest of rows that come in pieces which end before the rows at `cuts`."""
    digest = RowsDigest()
    table = pa.Table.from_pylist([row for _, row in rows], schema=SCHEMA).combine_chunks()
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or end in cuts or rows[end][0] != rows[start][0]:
            for batch in table.slice(start, end - start).to_batches():
                digest.add(rows[start][0], batch)
            start = end
    assert digest.rows == len(rows)
    return digest.hexdigest()


@given(rows=ROWS, cuts=st.frozensets(st.integers(1, 5)))
def test_how_rows_are_divided_does_not_count(rows: Rows, cuts: frozenset[int]) -> None:
    assert digest_of(rows) == digest_of(rows, cuts)


@given(rows=ROWS, others=ROWS)
def test_rows_that_differ_have_digests_that_differ(rows: Rows, others: Rows) -> None:
    def by_topic(them: Rows) -> list[list[dict[str, Any]]]:
        return [[row for name, row in them if name == topic] for topic in ("t", "u")]

    assert (digest_of(rows) == digest_of(others)) is (by_topic(rows) == by_topic(others))


@given(rows=st.lists(ROW, min_size=2, max_size=6, unique_by=lambda row: str(sorted(row.items()))))
def test_the_order_of_rows_counts(rows: list[dict[str, Any]]) -> None:
    one = [("t", row) for row in rows]
    assert digest_of(one) != digest_of(one[::-1])


@pytest.mark.parametrize("type_", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_how_arrow_holds_bytes_does_not_count(type_: pa.DataType) -> None:
    digest, plain = RowsDigest(), RowsDigest()
    digest.add("t", pa.record_batch({"value": pa.array(["a", None, "bc"], type_)}))
    plain.add("t", pa.record_batch({"value": pa.array([b"a", None, b"bc"])}))
    assert digest.hexdigest() == plain.hexdigest()


def test_bytes_under_a_null_do_not_count() -> None:
    ends = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 1, 3)))
    validity = pa.py_buffer(b"\x01")
    column = pa.Array.from_buffers(pa.binary(), 2, [validity, ends, pa.py_buffer(b"abc")])
    digest, plain = RowsDigest(), RowsDigest()
    digest.add("t", pa.record_batch({"value": column}))
    plain.add("t", pa.record_batch({"value": pa.array([b"a", None])}))
    assert digest.hexdigest() == plain.hexdigest()


def test_times_count_in_milliseconds_whatever_their_unit() -> None:
    digest, plain = RowsDigest(), RowsDigest()
    times = pa.array([-1500, 1500], pa.timestamp("us", "UTC"))
    digest.add("t", pa.record_batch({"value": pa.array(["a", "b"]), "timestamp": times}))
    times = pa.array([-2, 1])
    plain.add("t", pa.record_batch({"value": pa.array(["a", "b"]), "timestamp_ms": times}))
    assert digest.hexdigest() == plain.hexdigest()


def test_a_column_that_holds_no_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        RowsDigest().add("t", pa.record_batch({"value": pa.array([1.5])}))
