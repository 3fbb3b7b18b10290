"""Raw batches as batches of another producer: the same records under another identity."""

import subprocess
import sys

from batches import GeneratedBatch, logs, marker
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from old_messages import build_messages

from horolog.record import (
    HEADER_SIZE,
    NO_PRODUCER,
    Codec,
    LogRecord,
    build_batch,
    is_left_out,
    needs_writing,
    parse_header,
    read_records,
    renamed,
    verify_crc,
)

LAST_SEQUENCE = (1 << 31) - 1
NOW = 1_700_000_000_000


def contents(batches: list[bytes]) -> list[LogRecord]:
    return [r._replace(offset=None) for batch in batches for r in read_records(batch)]


def under(batch: bytes, producer: tuple[int, int], sequence: int, **more: bool) -> bytes:
    return renamed(parse_header(batch), memoryview(batch), producer, sequence, **more)


@examples(1)
@given(
    log=logs(), sequence=st.sampled_from((-1, 0, 7, LAST_SEQUENCE)), in_transaction=st.booleans()
)
def test_records_stay_the_same_under_another_producer(
    log: list[GeneratedBatch], sequence: int, in_transaction: bool
) -> None:
    producer = (9, 2) if sequence >= 0 else NO_PRODUCER
    for batch in (each.data for each in log if not needs_writing(parse_header(each.data))):
        made = under(batch, producer, sequence, is_transactional=in_transaction)
        verify_crc(made)
        assert contents([made]) == contents([batch])
        header = parse_header(made)
        assert header.size == len(made)
        assert (header.producer_id, header.producer_epoch) == producer
        assert (header.base_offset, header.base_sequence) == (0, sequence)
        assert header.is_transactional == in_transaction
        assert not header.timestamp_type


def test_payloads_are_the_same_bytes() -> None:
    batch = build_batch([LogRecord(5, b"k", b"v" * 100)], codec=Codec.ZSTD, producer_id=3,
                        producer_epoch=1, base_sequence=40)  # fmt: skip
    made = under(batch, NO_PRODUCER, -1)
    assert made[HEADER_SIZE:] == batch[HEADER_SIZE:]
    assert under(made, (3, 1), 40) == batch
    assert parse_header(made).base_offset == 0


def test_what_brokers_take_from_no_producer_is_written_anew() -> None:
    batch = build_batch([LogRecord(5, b"k", b"v"), LogRecord(6, b"l", b"w")], base_offset=10)
    header = parse_header(batch)
    assert not needs_writing(header)
    assert needs_writing(header._replace(last_offset_delta=7))
    stamped = header._replace(attributes=header.attributes | 8)
    assert needs_writing(stamped)
    assert not needs_writing(stamped, keeps_stamps=False)
    for magic in (0, 1):
        assert needs_writing(parse_header(build_messages([LogRecord(NOW, b"k", b"v")], magic)))


def test_what_no_consumer_sees_is_left_out() -> None:
    batch = build_batch([LogRecord(5, None, b"v")])
    assert not is_left_out(parse_header(batch))
    assert is_left_out(parse_header(batch)._replace(records_count=0))
    assert is_left_out(parse_header(marker(2, 7, kind=0)))


def test_raw_batches_need_no_arrow() -> None:
    code = "import sys, horolog.record.identity; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
