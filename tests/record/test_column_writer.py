"""Arrow tables as batches: what goes in comes out, in batches that brokers take."""

import numpy as np
import pyarrow as pa
import pytest
from batches import ALL_COLUMNS, AROUND_MS, BASE_OFFSET, records
from hypothesis import given
from hypothesis import strategies as st

from horolog.record import (
    HEADER_SIZE,
    Codec,
    LogRecord,
    PickedRows,
    RecordsEncoder,
    RowColumns,
    batch_schema,
    build_batch,
    decode,
    encode_batches,
    encode_picked,
    iter_headers,
    parse_header,
    read_records,
    verify_crc,
    with_records,
)

pytestmark = pytest.mark.usefixtures("both")

NONE = st.just([])
WRITTEN = ("key", "value", "headers", "timestamp_ms")


def encode(table: pa.Table | pa.RecordBatch, base_offset: int = 0, **options) -> bytes:
    return b"".join(encode_batches(table, base_offset=base_offset, **options))


def as_table(rows: list[LogRecord]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in row.headers] for row in rows],
                batch_schema(("headers",)).field(0).type,
            ),
            "timestamp_ms": pa.array([row.timestamp for row in rows], pa.int64()),
        }
    )


def one_of(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return batch


def read_back(data: bytes) -> list[LogRecord]:
    """By the plain reader of records, which shares nothing with the kernels."""
    rows: list[LogRecord] = []
    for position, header in iter_headers(data):
        verify_crc(data, position, header)
        rows += read_records(data[position : position + header.size])
    return rows


@given(
    rows=st.lists(records(), max_size=15),
    codec=st.sampled_from(Codec),
    batch_bytes=st.sampled_from((1, 100, 400, 1 << 19)),
)
def test_every_record_is_written_as_it_is(rows, codec, batch_bytes):
    data = encode(as_table(rows), codec=codec, batch_bytes=batch_bytes, base_offset=BASE_OFFSET)
    assert read_back(data) == [
        row._replace(offset=BASE_OFFSET + index) for index, row in enumerate(rows)
    ]


@given(
    pieces=st.lists(st.lists(records(), max_size=6), max_size=4),
    data=st.data(),
    codec=st.sampled_from((Codec.NONE, Codec.LZ4)),
    batch_bytes=st.sampled_from((1, 100, 400, 1 << 19)),
)
def test_rows_picked_of_several_pieces_make_the_batches_of_one_table(
    pieces, data, codec, batch_bytes
):
    picked, rows = [], []
    for piece in pieces:
        numbers = data.draw(st.lists(st.integers(0, len(piece) - 1), max_size=8) if piece else NONE)
        columns = RowColumns(one_of(as_table(piece)))
        picked.append(PickedRows(columns, np.array(numbers, np.int64)))
        rows += [piece[number] for number in numbers] or piece
    given_to_both = {"codec": codec, "batch_bytes": batch_bytes, "base_offset": 7}
    expected = list(encode_batches(as_table(rows), **given_to_both))
    batches = list(encode_picked(picked, **given_to_both))
    assert [bytes(batch.data) for batch in batches] == expected
    assert [batch.rows for batch in batches] == [
        parse_header(batch).records_count for batch in expected
    ]


@given(rows=st.lists(records(), min_size=1, max_size=8), codec=st.sampled_from(Codec))
def test_a_batch_is_written_to_the_bit_as_the_builder_writes_it(rows, codec):
    expected = build_batch(rows, codec=codec, base_offset=BASE_OFFSET)
    assert encode(as_table(rows), codec=codec, base_offset=BASE_OFFSET) == expected


@given(rows=st.lists(records(), min_size=1, max_size=12), data=st.data())
def test_slices_and_chunks_of_a_table_are_written_as_what_they_show(rows, data: st.DataObject):
    start = data.draw(st.integers(0, len(rows)))
    cut = data.draw(st.integers(0, len(rows)))
    table = pa.concat_tables([as_table(rows[:cut]), as_table(rows[cut:])]).slice(start)
    seen = [record._replace(offset=None) for record in read_back(encode(table))]
    assert seen == rows[start:]


def test_what_is_decoded_can_be_encoded_again(rng):
    rows = [LogRecord(AROUND_MS, b"k", b"v", (("höhe", None),)), LogRecord(-5000, None, None)] * 50
    data = encode(as_table(rows), codec=Codec.LZ4, base_offset=BASE_OFFSET)
    (table,) = decode(data, columns=ALL_COLUMNS)
    assert encode(table, codec=Codec.LZ4, base_offset=BASE_OFFSET) == data


@pytest.mark.parametrize("batch_bytes", [300, 5_000])
def test_batches_are_filled_and_never_beyond_their_size(batch_bytes):
    rows = [LogRecord(AROUND_MS + index, b"k", bytes(index % 90)) for index in range(500)]
    sizes = [
        header.size for _, header in iter_headers(encode(as_table(rows), batch_bytes=batch_bytes))
    ]
    assert max(sizes) <= batch_bytes
    assert all(size > batch_bytes - 110 for size in sizes[:-1])


def test_by_default_a_batch_fits_what_brokers_take():
    rows = [LogRecord(AROUND_MS, None, bytes(100_000))] * 30
    sizes = [header.size for _, header in iter_headers(encode(as_table(rows)))]
    assert len(sizes) == 6
    assert max(sizes) < 1_048_588


def test_a_record_larger_than_a_batch_has_one_to_itself():
    rows = [LogRecord(1, None, b"a"), LogRecord(2, None, bytes(1000)), LogRecord(3, None, b"b")]
    data = encode(as_table(rows), batch_bytes=200)
    assert [header.records_count for _, header in iter_headers(data)] == [1, 1, 1]
    assert [record.value for record in read_back(data)] == [b"a", bytes(1000), b"b"]


def test_batches_for_a_producer_each_begin_at_zero():
    rows = [LogRecord(AROUND_MS, b"k", bytes(100))] * 10
    parts = list(encode_batches(as_table(rows), batch_bytes=HEADER_SIZE + 250))
    assert len(parts) == 5
    assert [parse_header(part).base_offset for part in parts] == [0] * 5
    assert [parse_header(part).last_offset_delta for part in parts] == [1] * 5
    numbered = list(encode_batches(as_table(rows), batch_bytes=HEADER_SIZE + 250, base_offset=7))
    assert [parse_header(part).base_offset for part in numbered] == [7, 9, 11, 13, 15]


@pytest.mark.parametrize(
    ("times", "base", "largest"),
    [([5, 9, 7], 5, 9), ([-1, 3], -1, 3), ([-1, -1], -1, -1), ([-5000, -1], -5000, -5000)],
)
def test_the_header_bounds_the_times_of_its_records(times, base, largest):
    header = parse_header(encode(as_table([LogRecord(time, None, b"") for time in times])))
    assert (header.base_timestamp, header.max_timestamp) == (base, largest)


def test_text_and_missing_columns_and_missing_times_are_welcome():
    table = pa.table(
        {
            "value": pa.array(["höhe", None, ""], pa.large_string()),
            "timestamp_ms": pa.array([5, None, 7], pa.int32()),
            "topic": ["t"] * 3,
        }
    )
    assert [tuple(record[:4]) for record in read_back(encode(table))] == [
        (5, None, "höhe".encode(), ()),
        (-1, None, None, ()),
        (7, None, b"", ()),
    ]


def test_a_row_whose_headers_are_null_has_none():
    type_ = batch_schema(("headers",)).field(0).type
    headers = pa.array(
        [[{"key": "a", "value": b"1"}], None, [], [{"key": "b", "value": None}]], type_
    )
    table = pa.table({"value": [b"v"] * 4, "timestamp_ms": [1] * 4, "headers": headers})
    for start in range(4):
        seen = [record.headers for record in read_back(encode(table.slice(start)))]
        assert seen == [(("a", b"1"),), (), (), (("b", None),)][start:]


def test_no_rows_are_no_batches():
    assert encode(as_table([])) == b""
    nothing = pa.RecordBatch.from_pylist([], schema=batch_schema(WRITTEN))
    assert encode(nothing) == b""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"value": None}, "needs \\['value'\\]"),
        ({"timestamp_ms": None}, "needs \\['timestamp_ms'\\]"),
        ({"value": [1]}, "cannot be written"),
        ({"timestamp_ms": [1.5]}, "no integer of milliseconds"),
        ({"timestamp_ms": pa.array([1], pa.timestamp("us"))}, "no integer of milliseconds"),
        ({"timestamp_ms": pa.array([1 << 63], pa.uint64())}, "cannot be written"),
        ({"headers": ["text"]}, "no list of structs"),
        (
            {"headers": pa.array([[None]], pa.list_(pa.struct({"key": "str", "value": "binary"})))},
            "null",
        ),
        ({"headers": [[{"key": None, "value": b""}]]}, "null"),
        ({"headers": [[{"name": "a", "value": b""}]]}, "no list of structs"),
    ],
)
def test_a_table_that_holds_no_records_is_refused_with_the_reason(changes, says):
    columns = {"value": [b"v"], "timestamp_ms": [1], **changes}
    table = pa.table({name: column for name, column in columns.items() if column is not None})
    with pytest.raises(ValueError, match=says):
        encode(table)


def test_levels_reach_the_codec():
    rows = [LogRecord(AROUND_MS + i, b"%d" % i, b"page %d" % (i * i)) for i in range(3000)]
    sizes = [len(encode(as_table(rows), codec=Codec.ZSTD, level=level)) for level in (1, 19)]
    assert sizes[0] > sizes[1]


@given(
    groups=st.lists(st.tuples(st.lists(st.integers(0, 70), max_size=5), st.integers())),
    value_bytes=st.sampled_from([10, 400_000]),
)
def test_records_of_compacted_batches_keep_their_offsets_and_base_times(groups, value_bytes):
    """As a batch of which a compaction has taken records: gaps, and a base time of none of them."""
    base_ms = [AROUND_MS + number % 1_000_000 for _, number in groups]
    deltas = [sorted(set(chosen)) for chosen, _ in groups]
    times = [ms + delta for ms, chosen in zip(base_ms, deltas, strict=True) for delta in chosen]
    rows = pa.record_batch(
        {
            "key": pa.array([b"%d" % ms for ms in times], pa.binary()),
            "value": pa.array([b"v" * value_bytes for _ in times], pa.binary()),
            "timestamp_ms": pa.array(times, pa.int64()),
        }
    )
    flat = np.array([delta for chosen in deltas for delta in chosen], np.int64)
    sizes = np.array([len(chosen) for chosen in deltas], np.int64)
    records, ends = RecordsEncoder().encode(rows, flat, sizes, np.array(base_ms, np.int64))
    assert len(records) == (ends[-1] if ends else 0)
    empty = build_batch([])
    for start, end, chosen, ms in zip([0, *ends[:-1]], ends, deltas, base_ms, strict=False):
        payload = bytes(records[start:end])
        if not chosen:
            assert payload == b""
            continue
        header = parse_header(empty)._replace(
            batch_length=HEADER_SIZE - 12 + len(payload),
            base_timestamp=ms,
            records_count=len(chosen),
            last_offset_delta=chosen[-1],
        )
        found = list(read_records(with_records(header, payload)))
        assert [record.offset for record in found] == chosen
        assert [record.timestamp for record in found] == [ms + delta for delta in chosen]
        assert all(record.key == b"%d" % record.timestamp for record in found)
