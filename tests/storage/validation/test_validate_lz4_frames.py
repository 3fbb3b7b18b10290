"""Which lz4 frames a leader takes: those that every consumer can read."""

import lz4.frame
import pytest

from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.record import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    Codec,
    LogRecord,
    build_batch,
    parse_header,
    with_records,
)
from horolog.storage import prepare

NOW_MS = 1_700_000_000_000


def batch_of(*, linked: bool) -> bytes:
    plain = build_batch([LogRecord(NOW_MS, b"k", b"value" * 20_000)])
    frame = lz4.frame.compress(plain[HEADER_SIZE:], block_linked=linked, store_size=False)
    header = parse_header(plain)._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(frame), attributes=int(Codec.LZ4)
    )
    return with_records(header, frame)


def test_a_frame_of_blocks_that_lean_on_each_other_is_refused_because_java_cannot_read_it():
    with pytest.raises(RequestRefused, match="depend on each other") as refused:
        prepare(batch_of(linked=True), TopicConfig(), NOW_MS)
    assert refused.value.code is ErrorCode.invalid_record


def test_a_frame_of_independent_blocks_is_taken_as_it_is():
    sent = batch_of(linked=False)
    assert bytes(prepare(sent, TopicConfig(), NOW_MS).batch) == sent
