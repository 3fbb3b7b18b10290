"""Producer id, epoch and sequence of each row, as the batches' headers have them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.record import Codec, LogRecord, build_batch, decode

pytestmark = pytest.mark.usefixtures("both")

COLUMNS = ("producer_id", "producer_epoch", "sequence")
LAST = (1 << 31) - 1


def batch(offset: int, count: int, *producer: int, value: bytes = b"v", **options: Any) -> bytes:
    records = [LogRecord(number, b"k", value) for number in range(count)]
    if producer:
        id_, epoch, sequence = producer
        options |= {"producer_id": id_, "producer_epoch": epoch, "base_sequence": sequence}
    return build_batch(records, base_offset=offset, **options)


def rows(data: bytes, **options: Any) -> list[tuple[Any, ...]]:
    options.setdefault("columns", COLUMNS)
    tables = [*decode(data, **options)]
    for table in tables:
        table.validate(full=True)
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def test_rows_have_their_batchs_producer_and_a_sequence_of_their_own() -> None:
    data = batch(5, 2, 7, 1, 40) + batch(7, 1) + batch(20, 2, 8, 0, 0)
    assert rows(data) == [
        (7, 1, 40),
        (7, 1, 41),
        (None, None, None),
        (8, 0, 0),
        (8, 0, 1),
    ]


def test_sequences_wrap_and_may_be_absent() -> None:
    assert rows(batch(0, 3, 7, 1, LAST - 1)) == [(7, 1, LAST - 1), (7, 1, LAST), (7, 1, 0)]
    assert rows(batch(0, 1, 7, 1, -1)) == [(7, 1, None)]


def test_offsets_that_go_back_do_not_mix_producers() -> None:
    data = batch(10, 3, 7, 1, 0) + batch(11, 2, 8, 2, 50) + batch(0, 1, 9, 3, 5)
    assert rows(data) == [(7, 1, 0), (7, 1, 1), (7, 1, 2), (8, 2, 50), (8, 2, 51), (9, 3, 5)]


BATCHES = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.integers(0, 3),
        st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, LAST)),
        st.sampled_from([Codec.NONE, Codec.ZSTD]),
        st.sampled_from([1, 3000]),
    ),
    min_size=1,
    max_size=8,
)


@given(BATCHES, st.integers(0, 30), st.integers(100, 8000))
def test_producers_do_not_depend_on_how_rows_are_put_into_tables(
    batches: list[Any], start: int, max_bytes: int
) -> None:
    data, expected, offset = b"", [], 0
    for count, gap, producer, codec, size in batches:
        offset += gap
        data += batch(offset, count, *(producer or ()), codec=codec, value=b"v" * size)
        for number in range(count):
            who = (None,) * 3
            if producer is not None:
                who = (*producer[:2], (producer[2] + number) % (LAST + 1))
            expected.append((offset + number, *who))
        offset += count
    found = rows(data, columns=("offset", *COLUMNS), start_offset=start, max_bytes=max_bytes)
    assert found == [row for row in expected if row[0] >= start]
