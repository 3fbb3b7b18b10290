"""Random batches whose truth is what was generated, never what our own reader says of them.

`generated_batch(rng)` and `generated_log(rng)` take a `random.Random`, for models that
draw their own numbers; `batches()` and `logs()` are the same for hypothesis.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from horolog.record import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    with_records,
)

if TYPE_CHECKING:
    from horolog.client import Client

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
BASE_OFFSET = 1_000_007
AROUND_MS = 1_700_000_000_000
MAX_BYTES = 64 << 20
ALL_COLUMNS = ("key", "value", "headers", "offset", "timestamp_ms", "timestamp_type")

# What is special about a time: none, near none, before 1970, sizes of varints, wild units.
ODD_TIMES = (-1, 0, 1, -2, -5000, 63, 64, AROUND_MS * 1_000_000, INT64_MIN, INT64_MAX)


@dataclass(frozen=True)
class GeneratedBatch:
    """Batch bytes and the truth about them."""

    data: bytes
    base_offset: int
    codec: Codec
    timestamp_type: TimestampType
    sent: tuple[LogRecord, ...]
    """The records with the timestamps that are in the bytes."""
    header_max_timestamp: int

    @property
    def records(self) -> tuple[LogRecord, ...]:
        """The records as a consumer must see them, with offsets."""
        stamp = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        return tuple(
            record._replace(
                offset=self.base_offset + index,
                timestamp=self.header_max_timestamp if stamp else record.timestamp,
            )
            for index, record in enumerate(self.sent)
        )

    @property
    def timestamps(self) -> list[int]:
        return [record.timestamp for record in self.records]

    @property
    def next_offset(self) -> int:
        return self.base_offset + max(1, len(self.sent))

    def rows(self) -> list[dict[str, Any]]:
        """What decoding all columns must give."""
        return [
            {
                "key": record.key,
                "value": record.value,
                "headers": [{"key": key, "value": value} for key, value in record.headers],
                "offset": record.offset,
                "timestamp_ms": record.timestamp,
                "timestamp_type": int(self.timestamp_type),
            }
            for record in self.records
        ]


def batch(
    *timestamps: int, key: bytes | None = b"k", value: bytes = b"v" * 20, **more: Any
) -> bytes:
    """A batch as a producer sends it, with a record for each time."""
    return build_batch([LogRecord(timestamp, key, value) for timestamp in timestamps], **more)


def numbered_batch(count: int, start_ms: int = AROUND_MS, **more: Any) -> bytes:
    """Records a millisecond apart, each with a value of its own."""
    return build_batch([LogRecord(start_ms + n, b"k", b"v%d" % n) for n in range(count)], **more)


def fill(
    client: "Client",
    topic: str,
    times: Iterable[int],
    partition: int = 0,
    *,
    size: int = 40,
    key: bytes | None = None,
    value: bytes = b"v",
    **more: Any,
) -> None:
    """Send a record of each of these times, `size` in a batch."""
    times = list(times)
    for start in range(0, len(times), size):
        some = times[start : start + size]
        client.produce(topic, partition, batch(*some, key=key, value=value, **more))


def marker(
    base_offset: int,
    producer_id: int,
    *,
    kind: int,
    ms: int = AROUND_MS,
    epoch: int = 0,
    value: bytes = bytes(6),
    **more: Any,
) -> bytes:
    """The control batch that ends a transaction: of kind 1 if it commits, 0 if it aborts."""
    return build_batch(
        [LogRecord(ms, kind.to_bytes(4, "big"), value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
        **more,
    )


def make_batch(
    records: Sequence[LogRecord],
    *,
    base_offset: int = BASE_OFFSET,
    codec: Codec = Codec.NONE,
    append_time_ms: int | None = None,
) -> GeneratedBatch:
    """A batch of these records; with `append_time_ms` one of LogAppendTime."""
    timed = [record.timestamp for record in records if record.timestamp != NO_TIMESTAMP]
    type_ = TimestampType.CREATE_TIME
    largest = max(timed, default=NO_TIMESTAMP)
    if append_time_ms is not None:
        type_, largest = TimestampType.LOG_APPEND_TIME, append_time_ms
    data = build_batch(
        records, base_offset=base_offset, codec=codec, timestamp_type=type_, max_timestamp=largest
    )
    return GeneratedBatch(data, base_offset, codec, type_, tuple(records), largest)


def generated_record(rng: random.Random, around_ms: int = AROUND_MS) -> LogRecord:
    """A record with a time out of order within an hour, now and then an odd one."""
    odd = rng.random() < 0.05
    return LogRecord(
        timestamp=rng.choice(ODD_TIMES)
        if odd
        else around_ms + rng.randrange(-1_800_000, 1_800_000),
        key=None if rng.random() < 0.3 else rng.randbytes(rng.choice((0, 1, 8, 63, 64))),
        value=None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 1, 100, 8191, 8192))),
        headers=tuple(
            (rng.choice(("", "trace", "höhe")), rng.choice((None, b"", b"\x00\xff")))
            for _ in range(rng.choice((0, 0, 0, 1, 3)))
        ),
    )


def generated_batch(
    rng: random.Random,
    *,
    base_offset: int = BASE_OFFSET,
    count: int | None = None,
    codec: Codec | None = None,
    around_ms: int = AROUND_MS,
) -> GeneratedBatch:
    """A batch of any codec; one in five has LogAppendTime."""
    count = rng.choice((1, 2, 7, 40)) if count is None else count
    return make_batch(
        [generated_record(rng, around_ms) for _ in range(count)],
        base_offset=base_offset,
        codec=rng.choice(tuple(Codec)) if codec is None else codec,
        append_time_ms=around_ms if rng.random() < 0.2 else None,
    )


def generated_log(
    rng: random.Random, batches: int = 10, *, base_offset: int = BASE_OFFSET
) -> list[GeneratedBatch]:
    """Batches with offsets that follow one another and times that drift on, not in order."""
    log: list[GeneratedBatch] = []
    for index in range(batches):
        around = AROUND_MS + index * 600_000
        log.append(generated_batch(rng, base_offset=base_offset, around_ms=around))
        base_offset = log[-1].next_offset
    return log


def timestamps_ms() -> st.SearchStrategy[int]:
    """Mostly near each other, some odd, any at all."""
    return st.one_of(
        st.integers(AROUND_MS, AROUND_MS + 50),
        st.sampled_from(ODD_TIMES),
        st.integers(INT64_MIN, INT64_MAX),
    )


def records() -> st.SearchStrategy[LogRecord]:
    header = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))
    return st.builds(
        LogRecord,
        timestamp=timestamps_ms(),
        key=st.none() | st.binary(max_size=70),
        value=st.none() | st.binary(max_size=200),
        headers=st.lists(header, max_size=3).map(tuple),
        offset=st.none(),
    )


@st.composite
def batches(draw: st.DrawFn, *, min_records: int = 1, max_records: int = 12) -> GeneratedBatch:
    sent = draw(st.lists(records(), min_size=min_records, max_size=max_records))
    return make_batch(
        sent,
        base_offset=draw(st.sampled_from((BASE_OFFSET, 0, 1 << 40))),
        codec=draw(st.sampled_from(Codec)),
        append_time_ms=draw(st.none() | timestamps_ms()),
    )


@st.composite
def logs(draw: st.DrawFn, *, max_batches: int = 4) -> list[GeneratedBatch]:
    log: list[GeneratedBatch] = []
    base_offset = BASE_OFFSET
    for _ in range(draw(st.integers(1, max_batches))):
        batch = draw(batches())
        gap = draw(st.sampled_from((0, 0, 3)))  # as compaction leaves them
        log.append(
            make_batch(
                batch.sent,
                base_offset=base_offset + gap,
                codec=batch.codec,
                append_time_ms=batch.header_max_timestamp if batch.timestamp_type else None,
            )
        )
        base_offset = log[-1].next_offset
    return log


def joined(log: Sequence[GeneratedBatch]) -> bytes:
    """The batches one after the other, as a fetch or a segment has them."""
    return b"".join(batch.data for batch in log)


def batch_of(
    codec: Codec, count: int, payload: bytes, base_ms: int = 1_000, step_ms: int = 1
) -> bytes:
    """A batch whose records are `payload`, compressed or not, be it sound or not."""
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=base_ms,
        max_timestamp=base_ms + (count - 1) * step_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )
    return with_records(header, payload)
