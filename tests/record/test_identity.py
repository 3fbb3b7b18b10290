"""Raw batches as batches of another producer: the same records under another identity."""

import subprocess
import sys

import pytest
from batches import GeneratedBatch, joined, logs, marker
from hypothesis import given
from hypothesis import strategies as st
from old_messages import build_messages

from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE, pack_header, parse_header, verify_crc
from horolog.record.builder import Record, build_batch, read_records
from horolog.record.compression import Codec
from horolog.record.identity import with_producer
from horolog.record.transactions import AbortedTransaction

LAST_SEQUENCE = (1 << 31) - 1
NOW = 1_700_000_000_000


def contents(batches: list[bytes]) -> list[Record]:
    return [r._replace(offset=None) for batch in batches for r in read_records(batch)]


@given(log=logs(), sequence=st.sampled_from((-1, 0, 7, LAST_SEQUENCE)))
def test_records_stay_and_sequences_follow_one_another(
    log: list[GeneratedBatch], sequence: int
) -> None:
    producer = (9, 2) if sequence >= 0 else (-1, -1)
    made = list(with_producer(joined(log), producer, base_sequence=sequence))
    assert contents(made) == contents([batch.data for batch in log])
    for batch in made:
        verify_crc(batch)
        header = parse_header(batch)
        assert header.size == len(batch)
        assert (header.producer_id, header.producer_epoch) == producer
        assert header.base_sequence == sequence
        assert not header.timestamp_type
        assert header.last_offset_delta + 1 == header.records_count
        if sequence >= 0:
            sequence = (sequence + header.records_count) % (1 << 31)


def test_payloads_are_the_same_bytes() -> None:
    batch = build_batch([Record(5, b"k", b"v" * 100)], codec=Codec.ZSTD, producer_id=3,
                        producer_epoch=1, base_sequence=40)  # fmt: skip
    (made,) = with_producer(batch)
    assert made[HEADER_SIZE:] == batch[HEADER_SIZE:]
    (again,) = with_producer(made, (3, 1), base_sequence=40)
    assert again == batch
    assert parse_header(made).base_offset == 0


def test_a_batch_with_gaps_is_written_without_them() -> None:
    batch = build_batch([Record(5, b"k", b"v"), Record(6, b"l", b"w")], base_offset=10)
    header = parse_header(batch)
    records = batch[HEADER_SIZE:]
    gaps = pack_header(header._replace(last_offset_delta=7), records) + records
    made = list(with_producer(gaps + gaps, (9, 0), base_sequence=0))
    assert contents(made) == contents([batch, batch])
    assert [parse_header(each).base_sequence for each in made] == [0, 2]
    assert [parse_header(each).last_offset_delta for each in made] == [1, 1]


def transactional(offset: int, producer: int, value: bytes) -> bytes:
    return build_batch(
        [Record(5, None, value)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def test_aborted_transactions_and_markers_are_left_out() -> None:
    abort, commit = 0, 1
    log = b"".join(
        [
            transactional(0, 7, b"aborted"),
            transactional(1, 8, b"kept"),
            marker(2, 7, kind=abort),
            transactional(3, 7, b"after"),
            marker(4, 7, kind=commit),
            marker(5, 8, kind=commit),
        ]
    )
    made = list(with_producer(log, (9, 0), base_sequence=0, aborted=[AbortedTransaction(7, 0)]))
    assert [record.value for record in contents(made)] == [b"kept", b"after"]
    assert not any(parse_header(each).is_transactional for each in made)


def test_a_damaged_batch_does_not_become_right_in_the_copy() -> None:
    batch = bytearray(build_batch([Record(5, None, b"value")]))
    batch[-2] ^= 1
    with pytest.raises(CorruptBatch):
        list(with_producer(batch))


def test_a_batch_that_is_cut_short_is_left_for_the_next_fetch() -> None:
    batch = build_batch([Record(5, None, b"value")])
    assert len(list(with_producer(batch + batch[:-1]))) == 1


def test_raw_batches_need_no_arrow() -> None:
    code = "import sys, horolog.record.identity; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_old_formats_become_batches_of_the_producer(magic: int, codec: Codec) -> None:
    rows = [Record(NOW + place, b"k", b"%d" % place) for place in range(3)]
    data = build_messages(rows, magic, base_offset=70, codec=codec)
    data += build_messages(rows, magic, base_offset=73, codec=codec)
    batches = list(with_producer(data, (9, 2), base_sequence=5))
    headers = [parse_header(batch) for batch in batches]
    assert {(header.magic, header.producer_id, header.producer_epoch) for header in headers} == {
        (2, 9, 2)
    }
    sequences = [5, 8] if codec else [5, 6, 7, 8, 9, 10]
    assert [header.base_sequence for header in headers] == sequences
    read = [record for batch in batches for record in read_records(batch)]
    assert [record.value for record in read] == [b"0", b"1", b"2"] * 2
    assert {record.timestamp for record in read} == (
        {-1} if magic == 0 else {NOW, NOW + 1, NOW + 2}
    )
