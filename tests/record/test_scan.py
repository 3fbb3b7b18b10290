"""Facts, times and lookups inside a batch, against what was generated; and all malformations."""

from contextlib import suppress
from functools import reduce
from itertools import pairwise

import pytest
import zstandard
from batches import (
    AROUND_MS,
    BASE_OFFSET,
    INT64_MAX,
    INT64_MIN,
    MAX_BYTES,
    GeneratedBatch,
    batches,
    generated_record,
    make_batch,
    timestamps_ms,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from memory import measured_peak
from time_sums import stats_of as sums_of

from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record import (
    HEADER_SIZE,
    LATENCY_BOUNDS,
    LATENCY_COUNT,
    LOG_APPEND_TIME,
    NO_APPEND_TIME,
    NO_COUNTS,
    NO_RECORDS,
    NO_TIMESTAMP,
    Codec,
    LogRecord,
    RecordFacts,
    TimeStats,
    build_batch,
    compress,
    decompress_chunks,
    find_at_or_after,
    find_faults,
    parse_header,
    read_records,
    scan,
    scan_batch,
    scan_plain,
    walk,
    with_records,
)
from horolog.record.scan import timestamps

pytestmark = pytest.mark.usefixtures("both")


def scanned(data: bytes, **options: object) -> RecordFacts:
    return scan_batch(data, parse_header(data), max_bytes=MAX_BYTES, **options)


def latencies_of(timed: list[int], arrival_ms: int) -> tuple[int, ...]:
    """How many records are in each class of age."""
    counts = [0] * LATENCY_COUNT
    for time in timed:
        counts[sum(arrival_ms - time >= bound for bound in LATENCY_BOUNDS)] += 1
    return tuple(counts)


def stats_of(times: list[int], arrival_ms: int) -> TimeStats:
    """What is to be counted of records with these timestamps."""
    timed = [time for time in times if time != NO_TIMESTAMP]
    return NO_RECORDS._replace(
        records=len(times),
        untimed=len(times) - len(timed),
        out_of_order=sum(later < time for time, later in pairwise(timed)),
        create_min_ms=min(timed, default=None),
        create_max_ms=max(timed, default=None),
        first_create_ms=timed[0] if timed else None,
        last_create_ms=timed[-1] if timed else None,
        latencies=latencies_of(timed, arrival_ms),
    )


def counted(facts: RecordFacts) -> TimeStats:
    return sums_of([0, *NO_APPEND_TIME, 0, *facts.counts])


def lengths_of(batch: GeneratedBatch) -> list[int]:
    """What each record has as its length: Kafka's `sizeOfBodyInBytes`."""
    plain = build_batch(batch.sent)
    lengths, position = [], HEADER_SIZE
    while position < len(plain):
        length, position = read_varint(plain, position)
        lengths.append(length)
        position += length
    return lengths


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position


@examples(1)
@given(batch=batches(), arrival_ms=timestamps_ms())
def test_the_facts_are_those_of_what_was_generated(batch: GeneratedBatch, arrival_ms: int):
    timed = [time for time in batch.timestamps if time != NO_TIMESTAMP]
    assert scanned(batch.data, arrival_ms=arrival_ms) == RecordFacts(
        count=len(batch.sent),
        max_timestamp=max(timed, default=None),
        min_timestamp=min(timed, default=None),
        has_null_key=any(record.key is None for record in batch.sent),
        dense_offsets=True,
        growing_offsets=True,
        last_offset_delta=len(batch.sent) - 1,
        longest=max(lengths_of(batch), default=0),
        counts=stats_of(batch.timestamps, arrival_ms).counts(),
    )
    assert not any(counted(scanned(batch.data)).latencies)


@examples(1)
@given(several=st.lists(batches(), min_size=1, max_size=5), arrival_ms=timestamps_ms())
def test_the_times_of_batches_add_up_to_those_of_all_records(
    several: list[GeneratedBatch], arrival_ms: int
):
    found = [counted(scanned(batch.data, arrival_ms=arrival_ms)) for batch in several]
    expected = stats_of([time for batch in several for time in batch.timestamps], arrival_ms)
    for begin in range(len(found)):
        one = reduce(TimeStats.followed_by, found[:begin], NO_RECORDS)
        two = reduce(TimeStats.followed_by, found[begin:], NO_RECORDS)
        assert one.followed_by(two) == expected
    assert NO_RECORDS.followed_by(NO_RECORDS) == NO_RECORDS
    assert not any(NO_COUNTS)


@given(batch=batches(), append_ms=timestamps_ms())
def test_a_stamped_batch_still_has_its_create_times(batch: GeneratedBatch, append_ms: int):
    header = parse_header(batch.data)
    stamp = header._replace(attributes=header.attributes | 8, max_timestamp=append_ms)
    stamped = with_records(stamp, batch.data[HEADER_SIZE:])
    sent = header._replace(attributes=header.attributes & ~8)
    as_sent = scan_batch(batch.data, sent, max_bytes=MAX_BYTES)
    assert scanned(stamped, create_times=True) == as_sent
    if append_ms != NO_TIMESTAMP:
        assert scanned(stamped).min_timestamp == append_ms


@examples(1)
@given(batch=batches())
def test_every_timestamp_comes_back_in_order(batch: GeneratedBatch):
    header = parse_header(batch.data)
    assert list(timestamps(batch.data, header, max_bytes=MAX_BYTES)) == batch.timestamps


@given(batch=batches(), data=st.data())
def test_a_scan_from_an_offset_on_counts_the_times_from_there(
    batch: GeneratedBatch, data: st.DataObject
):
    min_offset = batch.base_offset + data.draw(st.integers(-2, len(batch.sent) + 1))
    header = parse_header(batch.data)
    facts = scan_batch(batch.data, header, max_bytes=MAX_BYTES, min_offset=min_offset)
    times = [
        record.timestamp
        for record in batch.records
        if record.offset >= min_offset and record.timestamp != NO_TIMESTAMP
    ]
    assert facts.max_timestamp == max(times, default=None)
    assert facts.min_timestamp == min(times, default=None)
    assert facts.count == len(batch.sent)


@examples(1)
@given(
    batch=batches(),
    keys=st.booleans(),
    bounds=st.none() | st.tuples(timestamps_ms(), timestamps_ms(), st.integers(0, 99)),
    limit=st.integers(1, 5),
)
def test_the_first_records_at_fault_are_found(
    batch: GeneratedBatch, keys: bool, bounds: tuple[int, int, int] | None, limit: int
):
    def wrapped(number: int) -> int:
        return (number - INT64_MIN) % (1 << 64) + INT64_MIN

    faults = []
    for position, record in enumerate(batch.records):
        if keys and record.key is None:
            faults.append((position, record.timestamp, True))
        elif bounds is not None and record.timestamp != NO_TIMESTAMP:
            earliest, now, after = bounds
            if record.timestamp < earliest or wrapped(record.timestamp - now) > after:
                faults.append((position, record.timestamp, False))
    found = find_faults(batch.data, parse_header(batch.data), keys=keys, times=bounds, limit=limit)
    assert found == faults[:limit]


def test_offset_deltas_with_gaps_are_noticed_and_true():
    kept = [LogRecord(7, b"k", b"v"), LogRecord(9, b"k", b"v")]
    data = _with_records(_record(0, 0) + _record(2, 5), count=2, base_timestamp=7)
    facts = scanned(data)
    assert not facts.dense_offsets
    assert facts.last_offset_delta == 5
    assert facts.growing_offsets
    assert find_at_or_after(data, parse_header(data), 8, 0) == (9, BASE_OFFSET + 5)
    assert scanned(build_batch(kept)).dense_offsets


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1, 0), (0, 2, 1), (5, 4, 6)])
def test_offset_deltas_that_do_not_grow_are_noticed(deltas: tuple[int, ...]):
    records = b"".join(_record(0, delta) for delta in deltas)
    facts = scanned(_with_records(records, count=len(deltas), base_timestamp=7))
    assert not facts.growing_offsets
    assert facts.last_offset_delta == deltas[-1]


def test_base_and_delta_wrap_at_64_bits_as_javas_do():
    data = _with_records(_record(10, 0), count=1, base_timestamp=INT64_MAX)
    assert scanned(data).max_timestamp == INT64_MIN + 9
    data = _with_records(_record(-10, 0), count=1, base_timestamp=INT64_MIN)
    assert list(timestamps(data, parse_header(data), max_bytes=9)) == [INT64_MAX - 9]


def test_a_base_that_is_a_delete_horizon_changes_nothing():
    data = _with_records(_record(-4_000, 0), count=1, base_timestamp=9_000, attributes=0x40)
    assert scanned(data).max_timestamp == 5_000


def test_no_timestamp_counts_neither_as_largest_nor_as_smallest():
    facts = scanned(build_batch([LogRecord(-1, None, b""), LogRecord(-5000, None, b"")]))
    assert (facts.max_timestamp, facts.min_timestamp) == (-5000, -5000)
    facts = scanned(build_batch([LogRecord(-1, None, b"")] * 2))
    assert (facts.max_timestamp, facts.min_timestamp) == (None, None)


def test_an_empty_batch_has_no_facts_but_its_emptiness():
    assert scanned(build_batch([], base_offset=BASE_OFFSET)) == RecordFacts(
        0,
        None,
        None,
        has_null_key=False,
        dense_offsets=True,
        growing_offsets=True,
        last_offset_delta=-1,
        longest=0,
        counts=NO_COUNTS,
    )


# -- bytes as they should not be -----------------------------------------------------------


def _varint(value: int) -> bytes:
    raw = (value << 1 ^ value >> 63) & ((1 << 64) - 1)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def _record(time_delta: int, offset_delta: int, tail: bytes = b"\x02k\x02v\x00") -> bytes:
    body = b"\x00" + _varint(time_delta) + _varint(offset_delta) + tail
    return _varint(len(body)) + body


def _with_records(
    records: bytes,
    *,
    count: int,
    base_timestamp: int = 1_000,
    attributes: int = 0,
    codec: Codec = Codec.NONE,
) -> bytes:
    payload = compress(codec, records)
    header = parse_header(
        build_batch([LogRecord(1, b"k", b"v")], base_offset=BASE_OFFSET)
    )._replace(
        batch_length=49 + len(payload),
        attributes=attributes | codec,
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp,
        last_offset_delta=max(0, count - 1),
        records_count=count,
    )
    return with_records(header, payload)


GOOD = _record(1, 0)
MALFORMED = {
    "fewer records than declared": (GOOD, 2, "premature EOF reached: 1 of 2 records are there"),
    "more records than declared": (GOOD * 3, 2, "records still remaining in file"),
    "bytes after the records": (GOOD + b"\x00", 1, "records still remaining in file"),
    "bytes without records": (b"\x00", 0, "records still remaining in file"),
    "no records at all": (b"", 1, "premature EOF reached: 0 of 1"),
    "a negative count": (GOOD, -1, "Found invalid record count -1"),
    "a record cut off": (GOOD + GOOD[:-1], 2, "premature EOF reached: 1 of 2"),
    "a record cut off in its length": (GOOD + b"\x80", 2, "premature EOF reached: 1 of 2"),
    "a length shorter than the fields": (
        b"\x0e" + GOOD[1:],
        1,
        "Record 0 .* past the record's end",
    ),
    "a length longer than the fields": (
        b"\x14" + GOOD[1:] + b"\0",
        1,
        "0 .* longer than its fields",
    ),
    "a length of zero": (b"\x00", 1, "Record 0 .* past the record's end"),
    "a negative length": (GOOD + b"\x01", 2, "Record 1 .* its length is negative"),
    "a length of two gigabytes": (b"\xfe\xff\xff\xff\x0f" + GOOD, 1, "premature EOF"),
    "a length of six bytes": (b"\x80" * 5 + b"\x00", 1, "Record 0 .* varint is too long"),
    "a time of eleven bytes": (b"\x20\x00" + b"\x80" * 10 + GOOD, 1, "varint is too long"),
    "a time that ends the record": (b"\x06\x00\x80\x80" + GOOD, 1, "past the record's end"),
    "a key beyond the record": (_record(1, 0, b"\x20k\x02v\x00"), 1, "past the record's end"),
    "a key of two gigabytes": (_record(1, 0, b"\xfe\xff\xff\xff\x0f"), 1, "past the record's end"),
    "a value beyond the record": (_record(1, 0, b"\x02k\x20v\x00"), 1, "past the record's end"),
    "no header count": (_record(1, 0, b"\x02k\x02v"), 1, "past the record's end"),
    "a negative header count": (_record(1, 0, b"\x02k\x02v\x01"), 1, "headers is impossible"),
    "more headers than bytes": (_record(1, 0, b"\x02k\x02v\x06ab"), 1, "headers is impossible"),
    "two billion headers": (_record(1, 0, b"\x02k\x02v\xfe\xff\xff\xff\x0f"), 1, "is impossible"),
    "a header without a key": (_record(1, 0, b"\x02k\x02v\x02\x01\x00"), 1, "a header has no key"),
    "a header without a value": (_record(1, 0, b"\x02k\x02v\x02\x02k"), 1, "past the record's end"),
    "a header value beyond": (
        _record(1, 0, b"\x02k\x02v\x02\x02k\x04x"),
        1,
        "past the record's end",
    ),
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4], ids=["plain", "packed"])
@pytest.mark.parametrize(("records", "count", "says"), MALFORMED.values(), ids=MALFORMED.keys())
def test_every_malformation_is_corrupt_and_named(records, count, says, codec):
    data = _with_records(records, count=count, codec=codec)
    if codec is not Codec.NONE and count == 0:
        says = "records still remaining"
    for ask in (scanned, lambda data: timestamps(data, parse_header(data), max_bytes=MAX_BYTES)):
        with pytest.raises(CorruptBatch, match=says):
            ask(data)


@pytest.mark.parametrize("name", [name for name in MALFORMED if name != "bytes without records"])
def test_the_reader_that_makes_records_refuses_the_same(name):
    """But for bytes without records: it makes none, and so looks at none, as Kafka's consumer."""
    records, count, _ = MALFORMED[name]
    with pytest.raises(CorruptBatch):
        list(read_records(_with_records(records, count=count)))


def test_a_malformation_is_placed_to_the_byte():
    data = _with_records(GOOD + _record(1, 1, b"\x02k\x20v\x00"), count=2)
    with pytest.raises(CorruptBatch) as caught:
        scanned(data)
    assert caught.value.position == HEADER_SIZE + len(GOOD) + 1 + 3 + 2
    packed = _with_records(GOOD + _record(1, 1, b"\x02k\x20v\x00"), count=2, codec=Codec.GZIP)
    with pytest.raises(CorruptBatch, match="at byte 15 of the decompressed records") as caught:
        scanned(packed)
    assert caught.value.position is None


@pytest.mark.parametrize(
    "tail",
    [
        b"\x01\x01\x00",  # null key and value
        b"\x09\x03\x00",  # any negative length is null
        b"\x00\x00\x00",
        b"\x82\x00k\x82\x80\x80\x80\x00v\x00",  # varints longer than they need be
        b"\x02k\x82\x80\x80\x80\x70v\x00",  # and bits beyond the 32nd, which Java drops
        b"\x02k\x02v\x04\x00\x01\x02\xff\x00",  # header keys empty and no UTF-8
    ],
)
def test_what_kafka_reads_is_read(tail):
    data = _with_records(_record(5, 0, tail), count=1)
    assert scanned(data).max_timestamp == 1_005


def test_a_buffer_that_ends_within_the_batch_is_corrupt():
    data = make_batch([LogRecord(1, None, b"v" * 100)]).data
    header = parse_header(data)
    with pytest.raises(CorruptBatch, match="only 100 are there"):
        scan_batch(data[:100], header, max_bytes=MAX_BYTES)


def test_bytes_after_the_batch_are_not_looked_at(rng):
    data = make_batch([generated_record(rng) for _ in range(9)]).data
    assert scanned(data + b"\xff" * 50) == scanned(data)


@examples(1)
@given(data=st.data())
def test_mutations_raise_nothing_but_corrupt_or_refused(data: st.DataObject):
    batch = data.draw(batches(max_records=4))
    header = parse_header(batch.data)
    payload = bytearray(batch.data[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(payload)))
        match data.draw(st.sampled_from(("flip", "cut", "insert"))):
            case "flip" if at < len(payload):
                payload[at] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del payload[at : at + data.draw(st.integers(0, 5))]
            case _:
                payload[at:at] = data.draw(st.binary(max_size=11))
    header = header._replace(
        batch_length=49 + len(payload),
        records_count=header.records_count + data.draw(st.sampled_from((0, 0, -1, 1, 1 << 30))),
        attributes=header.attributes ^ data.draw(st.sampled_from((0, 0, 1, 2, 4, 8))),
    )
    mutated = with_records(header, payload)
    header = parse_header(mutated)
    for ask in (
        lambda: scan_batch(mutated, header, max_bytes=1 << 20),
        lambda: timestamps(mutated, header, max_bytes=1 << 20),
        lambda: find_at_or_after(mutated, header, AROUND_MS, BASE_OFFSET, max_bytes=1 << 20),
    ):
        with suppress(CorruptBatch, RequestRefused):
            ask()


@given(batch=batches(max_records=4), data=st.data(), arrival_ms=timestamps_ms())
def test_a_plain_batch_is_scanned_as_any_other_or_left_to_the_other_scan(
    batch: GeneratedBatch, data: st.DataObject, arrival_ms: int
):
    scan.load_kernels()
    header = parse_header(batch.data)
    if header.codec_number or header.timestamp_type is LOG_APPEND_TIME or not header.records_count:
        return
    payload = bytearray(batch.data[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(0, 2))):
        payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    count = header.records_count + data.draw(st.sampled_from((0, 0, 1, 1 << 30)))
    header = header._replace(records_count=count)
    changed = with_records(header, payload)
    header = parse_header(changed)
    plain = scan_plain(changed, header, arrival_ms=arrival_ms)
    try:
        facts = scan_batch(changed, header, max_bytes=MAX_BYTES, arrival_ms=arrival_ms)
    except CorruptBatch:
        assert plain is None
    else:
        assert plain == facts


@pytest.mark.parametrize(("records", "count", "says"), MALFORMED.values(), ids=MALFORMED.keys())
def test_the_scan_of_plain_batches_leaves_every_malformation_to_the_other(records, count, says):
    scan.load_kernels()
    if count > 0:
        data = _with_records(records, count=count)
        assert scan_plain(data, parse_header(data), arrival_ms=0) is None


# -- size ----------------------------------------------------------------------------------


def test_records_are_counted_across_pieces_of_any_size(rng, monkeypatch):
    """The walk must not care where decompression happens to pause."""
    batch = make_batch([generated_record(rng) for _ in range(12)], codec=Codec.ZSTD)
    header = parse_header(batch.data)
    whole = scanned(batch.data)
    for size in (1, 2, 10, 997):
        monkeypatch.setattr(walk, "fleeting_chunks", _in_pieces(size))
        assert scanned(batch.data) == whole
        assert list(timestamps(batch.data, header, max_bytes=MAX_BYTES)) == batch.timestamps
        last = batch.records[-1].offset
        assert find_at_or_after(batch.data, header, INT64_MIN, last)[1] == last


@pytest.mark.parametrize(("records", "count", "says"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformation_is_the_same_wherever_the_pieces_end(records, count, says, monkeypatch):
    data = _with_records(records, count=count, codec=Codec.ZSTD)
    with pytest.raises(CorruptBatch, match=says) as whole:
        scanned(data)
    for size in (1, 2, 5):
        monkeypatch.setattr(walk, "fleeting_chunks", _in_pieces(size))
        with pytest.raises(CorruptBatch) as pieces:
            scanned(data)
        assert str(pieces.value) == str(whole.value)


def _in_pieces(size: int):
    def pieces(codec, data, *, max_bytes, is_search=False):
        scratch = bytearray(size)
        for piece in decompress_chunks(codec, data, max_bytes=max_bytes, chunk_bytes=size):
            scratch[: len(piece)] = piece
            yield memoryview(scratch)[: len(piece)]
            scratch[:] = b"\xff" * size  # it is good no longer

    return pieces


def test_a_record_of_a_quarter_gigabyte_in_a_small_batch_is_never_held():
    size = 256 << 20
    tail = b"\x02k" + _varint(size)
    start = _varint(1 + 1 + 1 + len(tail) + size + 1) + b"\x00\x00\x00" + tail
    stream = zstandard.ZstdCompressor().compressobj()
    zeros = bytes(1 << 20)
    payload = (
        b"".join(
            [
                stream.compress(start),
                *(stream.compress(zeros) for _ in range(256)),
                stream.compress(b"\0"),
            ]
        )
        + stream.flush()
    )
    header = parse_header(build_batch([LogRecord(1, b"k", b"v")], codec=Codec.ZSTD))
    header = header._replace(batch_length=49 + len(payload))
    data = with_records(header, payload)
    with measured_peak() as peak:
        assert scan_batch(data, header, max_bytes=1 << 30).count == 1
        with pytest.raises(RequestRefused) as caught:
            scan_batch(data, header, max_bytes=size)
    assert caught.value.code is ErrorCode.message_too_large
    assert peak() < 4 << 20


def test_a_million_headers_of_a_record_are_passed_in_pieces(both):
    count = 1_000_000 if both == "compiled" else 50_000
    body = b"\x00\x00\x00\x01\x01" + _varint(count) + b"\x00\x01" * count
    data = _with_records(_varint(len(body)) + body, count=1, codec=Codec.ZSTD)
    assert scanned(data).count == 1
