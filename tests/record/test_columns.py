"""Batches as Arrow tables: exact rows, bounded memory, and no work that a header spares."""

import struct

import pyarrow as pa
import pytest
from batches import (
    ALL_COLUMNS,
    AROUND_MS,
    BASE_OFFSET,
    INT64_MAX,
    INT64_MIN,
    GeneratedBatch,
    generated_batch,
    generated_log,
    generated_record,
    joined,
    logs,
    make_batch,
    marker,
    timestamps_ms,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from memory import measured_peak

from horolog.errors import CorruptBatch, RequestRefused
from horolog.record import (
    DEFAULT_COLUMNS,
    HEADER_SIZE,
    PRODUCER_TYPES,
    AbortedTransaction,
    AbortedTransactions,
    Codec,
    DecodeStatistics,
    LogRecord,
    TimestampType,
    batch_schema,
    build_batch,
    compress,
    decode,
    iter_headers,
    next_offset_of,
    parse_header,
    with_records,
)

pytestmark = pytest.mark.usefixtures("both")


def rows_of(log: list[GeneratedBatch]) -> list[dict]:
    return [row for batch in log for row in batch.rows()]


def decoded(data: bytes, **options) -> list[dict]:
    """All rows, after checking what every table promises."""
    columns = options.setdefault("columns", ALL_COLUMNS)
    rows = []
    for table in decode(data, **options):
        table.validate(full=True)
        assert table.schema == batch_schema(columns)
        assert table.num_rows > 0
        rows += table.to_pylist()
    return rows


@examples(1)
@given(log=logs())
def test_every_row_is_what_was_generated(log):
    assert decoded(joined(log)) == rows_of(log)


@examples(1)
@given(log=logs(), data=st.data())
def test_a_range_of_times_and_offsets_is_exact_to_the_record(log, data: st.DataObject):
    rows = rows_of(log)
    times = st.none() | st.sampled_from([row["timestamp_ms"] for row in rows]) | timestamps_ms()
    from_ms, to_ms = data.draw(times), data.draw(times)
    offsets = st.none() | st.integers(rows[0]["offset"] - 1, rows[-1]["offset"] + 2)
    start, end = data.draw(offsets), data.draw(offsets)
    assert decoded(
        joined(log), from_ms=from_ms, to_ms=to_ms, start_offset=start, end_offset=end
    ) == [
        row
        for row in rows
        if (from_ms is None or row["timestamp_ms"] >= from_ms)
        and (to_ms is None or row["timestamp_ms"] < to_ms)
        and (start is None or row["offset"] >= start)
        and (end is None or row["offset"] < end)
    ]


@pytest.mark.parametrize("columns", [("offset",), ("timestamp_type", "value"), ("headers", "key")])
def test_only_the_columns_asked_for_come_in_the_order_asked_for(columns, rng):
    log = generated_log(rng, 4)
    expected = [{name: row[name] for name in columns} for row in rows_of(log)]
    assert decoded(joined(log), columns=columns) == expected


def test_headers_are_left_out_unless_asked_for():
    assert "headers" not in DEFAULT_COLUMNS
    with pytest.raises(ValueError, match="No such columns: \\['topic'\\]"):
        list(decode(b"", columns=("topic",)))
    with pytest.raises(ValueError, match="at least one column"):
        list(decode(b"", columns=()))


def test_the_types_are_plain_and_nullable_as_spark_wants_them():
    schema = batch_schema(ALL_COLUMNS)
    assert [(field.name, str(field.type)) for field in schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("headers", "list<element: struct<key: string, value: binary>>"),
        ("offset", "int64"),
        ("timestamp_ms", "int64"),
        ("timestamp_type", "int32"),
    ]
    assert all(field.nullable for field in schema)


def test_tables_stay_within_their_bytes_and_hold_many_batches(rng):
    log = generated_log(rng, 40)
    tables = list(decode(joined(log), columns=ALL_COLUMNS, max_bytes=30_000))
    assert pa.Table.from_batches(tables).to_pylist() == rows_of(log)
    large = 2 * 8192 + 200  # two values that together would overflow a table's rest
    assert all(table.nbytes <= 30_000 + 1_000 for table in tables)
    assert all(table.nbytes >= 30_000 - large - 8_000 for table in tables[:-1])
    (table,) = decode(joined(log), columns=ALL_COLUMNS)
    assert table.num_rows == len(rows_of(log))


def test_a_record_larger_than_a_table_has_one_to_itself(rng):
    records = [
        generated_record(rng),
        LogRecord(5, b"k" * 20_000, b"v" * 50_000),
        generated_record(rng),
    ]
    batch = make_batch(records, codec=Codec.ZSTD)
    tables = list(decode(batch.data, columns=ALL_COLUMNS, max_bytes=10_000))
    assert [table.num_rows for table in tables] == [1, 1, 1]
    assert pa.Table.from_batches(tables).to_pylist() == batch.rows()


@pytest.mark.parametrize("max_bytes", [0, -1, 1 << 31])
def test_a_table_size_that_arrow_cannot_index_is_refused(max_bytes):
    with pytest.raises(ValueError, match="2 GiB"):
        list(decode(b"", max_bytes=max_bytes))


def test_a_small_table_does_not_keep_the_room_for_a_large_one():
    data = make_batch([LogRecord(1, b"k", b"v", (("h", b""),))]).data
    before = pa.total_allocated_bytes()
    tables = list(decode(data, columns=ALL_COLUMNS))
    assert len(tables) == 1
    assert pa.total_allocated_bytes() - before < 1_000


def test_a_large_batch_comes_in_pieces_and_is_never_held_whole():
    value = bytes(100_000)
    batch = make_batch(
        [LogRecord(AROUND_MS + i, None, value) for i in range(1_000)], codec=Codec.ZSTD
    )
    assert len(batch.data) < 200_000
    with measured_peak() as peak:
        count = sum(table.num_rows for table in decode(batch.data, max_bytes=1 << 20))
    assert count == 1_000
    assert peak() < 12 << 20
    with pytest.raises(RequestRefused):
        list(decode(batch.data, max_batch_bytes=50_000_000))


# -- what headers spare --------------------------------------------------------------------


def spoilt(batch: GeneratedBatch) -> bytes:
    """The batch with records that cannot be read, and a CRC that does not hold."""
    return batch.data[:HEADER_SIZE] + b"\xff" * (len(batch.data) - HEADER_SIZE)


def counted(data: bytes, **options) -> DecodeStatistics:
    statistics = DecodeStatistics()
    for _ in decode(data, statistics=statistics, **options):
        pass
    return statistics


def a_batch(*times: int, base_offset: int = BASE_OFFSET, append_time_ms: int | None = None):
    records = [LogRecord(time, b"k", b"v") for time in times]
    return make_batch(records, base_offset=base_offset, append_time_ms=append_time_ms)


@pytest.mark.parametrize(
    ("batch", "options"),
    [
        (a_batch(5, 9), {"from_ms": 10}),
        (a_batch(5, 9), {"start_offset": BASE_OFFSET + 2}),
        (a_batch(5, 9), {"end_offset": BASE_OFFSET}),
        (a_batch(5, 9, append_time_ms=50), {"from_ms": 51}),
        (a_batch(5, 9, append_time_ms=50), {"to_ms": 50}),
    ],
)
def test_a_batch_that_its_header_rules_out_is_not_even_looked_into(batch, options):
    statistics = counted(spoilt(batch), **options)
    assert (statistics.batches, statistics.batches_skipped, statistics.rows) == (1, 1, 0)
    assert statistics.bytes_decoded == 0
    assert statistics.next_offset == BASE_OFFSET + 2


@pytest.mark.parametrize(
    ("batch", "options", "rows"),
    [
        (a_batch(5, 9), {"from_ms": 9}, 1),
        (a_batch(5, 9), {"start_offset": BASE_OFFSET + 1}, 1),
        (a_batch(5, 9), {"end_offset": BASE_OFFSET + 1}, 1),
        (a_batch(9, 5), {"to_ms": 6}, 1),  # older than the base timestamp
        (a_batch(5, 9, append_time_ms=50), {"from_ms": 50}, 2),
        (a_batch(5, 9, append_time_ms=50), {"to_ms": 51}, 2),
    ],
)
def test_a_batch_on_the_border_is_read(batch, options, rows):
    statistics = counted(batch.data, **options)
    assert (statistics.batches_skipped, statistics.rows) == (0, rows)
    with pytest.raises(CorruptBatch):
        counted(spoilt(batch), **options)


def test_the_next_offset_is_known_also_where_no_row_came():
    empty = build_batch([], base_offset=BASE_OFFSET + 2)
    ended = marker(BASE_OFFSET + 3, 4, kind=0)
    statistics = counted(a_batch(5, 9).data + empty + ended)
    assert (statistics.rows, statistics.batches_skipped) == (2, 2)
    assert statistics.next_offset == BASE_OFFSET + 4
    assert counted(b"").next_offset is None


# -- transactions --------------------------------------------------------------------------


def transactional(producer_id: int, offset: int, count: int = 1) -> bytes:
    return build_batch(
        [LogRecord(AROUND_MS, None, b"%d" % producer_id)] * count,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


ABORT, COMMIT = 0, 1
TRANSACTIONS = b"".join(
    [
        transactional(1, 100, 2),
        transactional(2, 102),
        build_batch([LogRecord(1, None, b"plain")], base_offset=103, producer_id=1),
        marker(104, 1, kind=ABORT),
        transactional(1, 105),
        marker(106, 2, kind=COMMIT),
        marker(107, 1, kind=COMMIT),
        transactional(2, 108),
        marker(109, 2, kind=ABORT),
        transactional(2, 110),
    ]
)


@pytest.mark.parametrize(
    ("aborted", "offsets"),
    [
        (None, [100, 101, 102, 103, 105, 108, 110]),
        ([], [100, 101, 102, 103, 105, 108, 110]),
        ([(1, 100), (2, 108)], [102, 103, 105, 110]),
        ([(2, 108), (1, 100)], [102, 103, 105, 110]),
        ([(2, 108)], [100, 101, 102, 103, 105, 110]),
        ([(1, 101)], [102, 103, 105, 108, 110]),  # the fetch began within the transaction
        ([(9, 0)], [100, 101, 102, 103, 105, 108, 110]),
        ([(1, 100, 104)], [102, 103, 105, 108, 110]),
        ([(1, 100, 104), (2, 108, 109)], [102, 103, 105, 110]),
        ([(2, 108, 120)], [100, 101, 102, 103, 105]),  # open, and never to be ended
    ],
)
def test_aborted_records_are_left_out_up_to_their_marker(aborted, offsets):
    if aborted is not None:
        aborted = [AbortedTransaction(*each) for each in aborted]
    rows = decoded(TRANSACTIONS, aborted=aborted, columns=("offset",))
    assert [row["offset"] for row in rows] == offsets


def test_aborted_records_whose_end_is_known_are_left_out_where_markers_are_not_read():
    batches = [
        (header, TRANSACTIONS[at : at + header.size])
        for at, header in iter_headers(TRANSACTIONS)
        if not header.is_control
    ]
    aborted = AbortedTransactions(
        [AbortedTransaction(1, 100, 104), AbortedTransaction(2, 108, 109)]
    )
    assert [each.base_offset for each, data in batches if aborted.drop(each, data)] == [100, 108]


def test_a_damaged_marker_does_not_decide_which_records_are_seen():
    positions = {header.base_offset: at for at, header in iter_headers(TRANSACTIONS)}
    damaged = bytearray(TRANSACTIONS)
    kind = damaged.index(bytes(4), positions[104] + HEADER_SIZE) + 3
    damaged[kind] = 1  # a commit, so that what its producer writes later would be hidden
    with pytest.raises(CorruptBatch, match=r"marker at offset 104 is damaged: .*stored crc"):
        decoded(bytes(damaged), aborted=[AbortedTransaction(1, 100)], columns=("offset",))


def test_control_records_are_shown_on_request():
    rows = decoded(TRANSACTIONS, skip_control=False, columns=("offset", "key"))
    assert [row["offset"] for row in rows if row["key"]] == [104, 106, 107, 109]


# -- what comes as it should not -----------------------------------------------------------


def test_an_incomplete_batch_at_the_end_is_no_row_and_no_error(rng):
    log = generated_log(rng, 3)
    for cut in (1, 30, 70):
        statistics = DecodeStatistics()
        tables = list(decode(joined(log)[:-cut], columns=ALL_COLUMNS, statistics=statistics))
        assert pa.Table.from_batches(tables).to_pylist() == rows_of(log[:-1])
        assert statistics.next_offset == log[-1].base_offset


def test_rows_before_a_damaged_batch_come_before_the_error(rng):
    for damage_at in (61, 20):  # in the records, and in the checksum
        log = [generated_batch(rng, codec=codec) for codec in (Codec.NONE, Codec.ZSTD, Codec.NONE)]
        damaged = bytearray(log[2].data)
        damaged[damage_at] ^= 0x80
        tables = decode(joined(log[:2]) + damaged, columns=ALL_COLUMNS)
        assert next(tables).to_pylist() == rows_of(log[:2])
        with pytest.raises(CorruptBatch):
            next(tables)


def test_of_two_things_wrong_the_first_is_reported_after_the_rows_before_it(rng):
    first, third = generated_batch(rng, codec=Codec.NONE), bytearray(a_batch(1).data)
    payload = b"\x01" + a_batch(5).data[HEADER_SIZE + 1 :]
    malformed = with_records(parse_header(a_batch(5).data), payload)
    third[20] ^= 1
    tables = decode(first.data + malformed + third, columns=ALL_COLUMNS)
    assert next(tables).to_pylist() == first.rows()
    with pytest.raises(CorruptBatch, match="length is negative"):
        next(tables)


def test_markers_count_also_where_their_own_time_is_not_asked_for():
    rows = decoded(
        TRANSACTIONS, aborted=[AbortedTransaction(1, 100)], from_ms=AROUND_MS, columns=("offset",)
    )
    assert [row["offset"] for row in rows] == [102, 105, 108, 110]
    old_marker = TRANSACTIONS.replace(
        marker(104, 1, kind=ABORT),
        build_batch(
            [LogRecord(1, struct.pack(">hh", 0, ABORT), b"")],
            base_offset=104,
            producer_id=1,
            is_transactional=True,
            is_control=True,
        ),
    )
    rows = decoded(
        old_marker, aborted=[AbortedTransaction(1, 100)], from_ms=AROUND_MS, columns=("offset",)
    )
    assert [row["offset"] for row in rows] == [102, 105, 108, 110]


def test_a_wrong_checksum_is_seen_unless_not_asked_for():
    data = bytearray(a_batch(5, 9).data)
    data[20] ^= 1
    with pytest.raises(CorruptBatch, match="stored crc"):
        counted(data)
    assert counted(data, check_crcs=False).rows == 2


def test_header_keys_that_are_no_utf8_are_replaced_as_java_does():
    data = build_batch([LogRecord(1, b"", b"", (("hhhh", b"x"), ("höhe", None), ("a", b"")))])
    data = data.replace(b"hhhh", b"h\xff\xe9h")
    (row,) = decoded(data, check_crcs=False)
    assert [(header["key"], header["value"]) for header in row["headers"]] == [
        ("h��h", b"x"),
        ("höhe", None),
        ("a", b""),
    ]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda payload: payload[:-1], "premature EOF reached: 1 of 2 records"),
        (lambda payload: payload + b"\x00", "records still remaining"),
        (lambda payload: b"\x01" + payload[1:], "Record 0 .* its length is negative"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_malformed_records_are_named_as_the_scan_names_them(edit, says, codec):
    batch = make_batch([LogRecord(1, b"k", b"v"), LogRecord(2, b"k", b"v")])
    payload = compress(codec, edit(batch.data[HEADER_SIZE:]))
    header = parse_header(batch.data)
    header = header._replace(attributes=codec, batch_length=49 + len(payload))
    with pytest.raises(CorruptBatch, match=says):
        counted(with_records(header, payload))


@examples(1)
@given(data=st.data())
def test_mutations_raise_nothing_but_corrupt_or_refused(data: st.DataObject):
    log = data.draw(logs(max_batches=2))
    mutated = bytearray(joined(log))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        for table in decode(
            mutated,
            columns=ALL_COLUMNS,
            check_crcs=False,
            max_batch_bytes=1 << 20,
            aborted=[AbortedTransaction(-1, 0)],
        ):
            table.validate(full=True)
    except (CorruptBatch, RequestRefused):
        pass


def outcome(data: bytes, options: dict) -> tuple[list[dict], DecodeStatistics, str]:
    rows, statistics = [], DecodeStatistics()
    try:
        for table in decode(data, statistics=statistics, **options):
            rows += table.to_pylist()
    except (CorruptBatch, RequestRefused) as error:
        return rows, statistics, f"{error!r}, {getattr(error, 'position', None)}"
    return rows, statistics, ""


def rows_either_way(data: bytes, **options) -> list[dict]:
    """The rows of batches read in runs, which are those of batches read one by one."""
    in_runs = outcome(data, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("horolog.record.columns.may_be_read_in_runs", lambda asked: False)
        assert outcome(data, options) == in_runs
    return in_runs[0]


@examples(1)
@given(data=st.data())
def test_batches_read_in_runs_are_what_they_are_one_by_one(data: st.DataObject):
    parts = [joined(data.draw(logs(max_batches=3))) for _ in range(2)]
    parts.insert(1, transactional(7, 4) + marker(9, 7, kind=0))
    log = bytearray(b"".join(data.draw(st.permutations(parts))))
    for _ in range(data.draw(st.integers(0, 2))):
        log[data.draw(st.integers(0, len(log) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    del log[data.draw(st.integers(0, len(log))) :]
    ends = st.none() | st.integers(BASE_OFFSET - 1, BASE_OFFSET + 40)
    options = {
        "start_offset": data.draw(ends),
        "end_offset": data.draw(ends),
        "check_crcs": data.draw(st.booleans()),
        "aborted": data.draw(st.sampled_from([None, [AbortedTransaction(7, 0)]])),
        "skip_control": data.draw(st.booleans()),
        "as_created": data.draw(st.booleans()),
        "max_batch_bytes": 1 << 20,
        "columns": data.draw(st.sampled_from([DEFAULT_COLUMNS, ("offset", *PRODUCER_TYPES)])),
        "max_bytes": data.draw(st.sampled_from([200, 8 << 20])),
    }
    rows_either_way(bytes(log), **options)


@pytest.mark.parametrize(
    ("start", "end"), [(None, INT64_MIN), (INT64_MIN, INT64_MIN - 1), (1 << 63, None), (1 << 70, 5)]
)
def test_a_range_of_offsets_beyond_64_bits_has_no_rows(start, end):
    data = a_batch(1, 2).data
    assert rows_either_way(data, start_offset=start, end_offset=end) == []


@pytest.mark.parametrize("max_bytes", [1, None])
@pytest.mark.parametrize(
    ("base_offset", "delta"), [(INT64_MIN, -5), (INT64_MAX - 5, 1 << 30), (2 * BASE_OFFSET, -60)]
)
def test_an_impossible_next_offset_is_no_obstacle_to_producers(base_offset, delta, max_bytes):
    """Beyond 64 bits, or before the batch itself."""
    log = bytearray(a_batch(1, base_offset=base_offset).data + a_batch(2).data)
    log[23:27] = struct.pack(">i", delta)
    options = {"check_crcs": False, "columns": ("offset", "producer_id")}
    if max_bytes is not None:
        options["max_bytes"] = max_bytes
    rows = rows_either_way(bytes(log), **options)
    assert [row["offset"] for row in rows] == [base_offset, BASE_OFFSET]


@pytest.mark.parametrize("max_batch_bytes", [1 << 30, 100])
def test_no_row_is_given_of_a_small_batch_that_its_codec_refutes(max_batch_bytes):
    records = [LogRecord(number, None, b"v" * 40) for number in range(9)]
    batch = bytearray(build_batch(records, codec=Codec.GZIP))
    if max_batch_bytes > 100:
        batch[-8] ^= 1  # of gzip's checksum
    log = a_batch(1).data + bytes(batch)
    rows, _, error = outcome(log, {"check_crcs": False, "max_batch_bytes": max_batch_bytes})
    assert len(rows) == 1
    assert error


def test_aborted_transactions_are_left_out_after_plain_batches_of_larger_offsets():
    plain = [a_batch(1, base_offset=offset).data for offset in (30, 10)]
    log = b"".join([*plain, transactional(1, 12), transactional(2, 13)])
    rows = rows_either_way(log, aborted=[AbortedTransaction(1, 20)])
    assert [row["offset"] for row in rows] == [30, 10, 13]


def test_statistics_say_how_far_it_came_where_a_batch_before_plain_ones_is_malformed():
    bad = bytearray(build_batch([LogRecord(1, None, b"v")], codec=Codec.GZIP))
    bad[57:61] = struct.pack(">i", 2)
    log = bytes(bad) + marker(1, 7, kind=COMMIT) + a_batch(1).data
    assert len(rows_either_way(log, check_crcs=False)) == 1


@examples(1)
@given(log=logs(), data=st.data())
def test_the_next_offset_of_a_buffer_is_that_after_its_last_whole_batch(log, data: st.DataObject):
    buffer = joined(log)[: data.draw(st.integers(0, len(joined(log))))]
    last = [header.next_offset for _, header in iter_headers(buffer)][-1:]
    end = max([BASE_OFFSET, *last])
    assert next_offset_of(buffer, BASE_OFFSET, end) == end
    assert next_offset_of(buffer, INT64_MAX, INT64_MAX) == INT64_MAX
    if last:
        with pytest.raises(CorruptBatch, match=f"its log ends at {end - 1}"):
            next_offset_of(buffer, BASE_OFFSET, end - 1)


@pytest.mark.parametrize(
    "times", [(5, 5), (6, 5), (None, INT64_MIN), (1 << 63, None), (1 << 63, 1 << 70)]
)
def test_a_range_without_times_has_no_rows(times):
    batch = make_batch([LogRecord(time, None, None) for time in (INT64_MIN, 5, INT64_MAX)])
    assert decoded(batch.data, from_ms=times[0], to_ms=times[1]) == []


@pytest.mark.parametrize("time", [INT64_MIN, -1, INT64_MAX, AROUND_MS * 1_000_000])
def test_no_time_is_too_wild(time):
    batch = make_batch([LogRecord(time, None, b"v"), LogRecord(0, None, b"w")])
    assert [row["timestamp_ms"] for row in decoded(batch.data)] == [time, 0]
    rows = decoded(batch.data, from_ms=time, to_ms=time + 1)
    assert [row["timestamp_ms"] for row in rows] == [time]


def test_an_offset_past_the_last_number_wraps_and_does_not_raise():
    data = build_batch([LogRecord(1, None, b"v")] * 2, base_offset=INT64_MAX)
    assert [row["offset"] for row in decoded(data)] == [INT64_MAX, INT64_MIN]


def test_timestamp_type_shows_append_time_batch_by_batch(rng):
    log = [a_batch(1, 2), a_batch(3, base_offset=BASE_OFFSET + 2, append_time_ms=9), a_batch(4)]
    rows = decoded(joined(log), columns=("timestamp_type",))
    assert [TimestampType(row["timestamp_type"]).name[0] for row in rows] == ["C", "C", "L", "C"]
