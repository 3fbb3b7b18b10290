"""Fetch of a replica, written and read by hand: versions 17 and 18.

It is sent once for each append that is replicated, mostly for one partition. By the schema that
takes several times as long. The readers know the usual form alone: a later fetch of a session, for
at most one partition, and its answer.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from horolog.buffers import Buffer
from horolog.wire.other_versions import CLOCK_TAG, NO_CLOCK
from horolog.wire.packing import INT32, INT64, read_uvarint, tagged, uuid_bytes, uvarint
from horolog.wire.single_partition import REQUEST_HEAD, WRONG, read_topic_id

__all__ = [
    "LaterAnswer",
    "LaterFetch",
    "ReplicaFetch",
    "encode_replica_fetch",
    "read_later_answer",
    "read_later_fetch",
]

_HEAD: Final = Struct(">iiibii")
_PARTITION: Final = Struct(">iiqiqix")
_NO_RACK: Final = b"\x01"
_STATE: Final = Struct(">iqx")
_STATE_TAG: Final = 1

# The header's tags, the head, and the number of topics; then of a topic its id, the number of
# partitions, the partition, and no tags of both.
_LATER: Final = Struct(">BiiibiiB")
_TOPIC: Final = Struct(">16sBiiqiqiBB")
# No forgotten topics, no rack; one or two tagged fields: the replica's state, and the clock.
_TAIL: Final = Struct(">BBBBBiqB")
_ONE_TAG: Final = (1, 1, 1, _STATE_TAG, _STATE.size)
_TWO_TAGS: Final = (1, 1, 2, _STATE_TAG, _STATE.size)
_CLOCK: Final = Struct(f">{len(uvarint(CLOCK_TAG))}sBq")
_CLOCK_HEAD: Final = (uvarint(CLOCK_TAG), INT64.size)

# Throttle time, error, session, number of topics; then of a topic its id, the number of
# partitions, the partition, and the number of aborted transactions.
_ANSWER: Final = Struct(">ihiB")
_ANSWERED: Final = Struct(">16sBihqqqB")
_ABORTED: Final = Struct(">qqB")
_NO_REPLICA: Final = INT32.pack(-1)
_NO_TAGS: Final = b"\0\0"  # of the partition and its topic
_MOST_ABORTED: Final = 100


class ReplicaFetch(NamedTuple):
    """Fields of a replica's Fetch, without its partitions."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    replica_id: int
    replica_epoch: int


def encode_replica_fetch(
    fetch: ReplicaFetch,
    topics: Sequence[tuple[UUID | None, Sequence[tuple[int, int, int, int, int, int]]]],
    forgotten: Iterable[tuple[UUID | None, Iterable[int]]] = (),
    *,
    append_clock_ms: int | None = None,
) -> bytes:
    """Encode the body of a request.

    Args:
        topics: partitions by topic: number, leader epoch, offset, epoch of the last record, start
            of the log, and most bytes.
        forgotten: numbers of partitions that leave the session, by topic.
        append_clock_ms: the replica's clock of append times, for a leader of horolog.
    """
    out = bytearray(_HEAD.pack(*fetch[:6]))
    out += uvarint(len(topics) + 1)
    for topic_id, partitions in topics:
        out += uuid_bytes(topic_id)
        out += uvarint(len(partitions) + 1)
        for partition in partitions:
            out += _PARTITION.pack(*partition)
        out.append(0)
    gone = [(topic_id, sorted(indexes)) for topic_id, indexes in forgotten]
    out += uvarint(len(gone) + 1)
    for topic_id, indexes in gone:
        out += uuid_bytes(topic_id)
        out += uvarint(len(indexes) + 1)
        out += b"".join(map(INT32.pack, indexes))
        out.append(0)
    out += _NO_RACK
    fields = [(_STATE_TAG, _STATE.pack(fetch.replica_id, fetch.replica_epoch))]
    if append_clock_ms is not None:
        fields.append((CLOCK_TAG, INT64.pack(append_clock_ms)))
    out += tagged(*fields)
    return bytes(out)


class LaterFetch(NamedTuple):
    """A fetch of a replica within its session, that changes one partition or none."""

    version: int
    correlation_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    replica_id: int
    replica_epoch: int
    append_clock_ms: int
    topic_id: UUID | None
    """Topic of the partition that is fetched from another offset; None without one."""
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


_NO_PARTITION: Final = (-1,) * 6


def read_later_fetch(frame: bytes) -> LaterFetch | None:
    """Decode a request without its length; None if it is of another form, malformed or not."""
    try:
        version, correlation_id, size = REQUEST_HEAD.unpack_from(frame)
        if not 17 <= version <= 18 or size < -1:
            return None
        at = REQUEST_HEAD.size + max(size, 0)
        tags, *head, topics = _LATER.unpack_from(frame, at)
        at += _LATER.size
        topic_id: UUID | None = None
        asked: Sequence[int] = _NO_PARTITION
        if topics == 2:
            raw_id, partitions, *asked, no_tags, none_either = _TOPIC.unpack_from(frame, at)
            topic_id = read_topic_id(raw_id)
            if topic_id is None or partitions != 2 or no_tags or none_either:
                return None
            at += _TOPIC.size
        elif topics != 1:
            return None
        *tail, replica_id, replica_epoch, more = _TAIL.unpack_from(frame, at)
        at += _TAIL.size
        clock_ms = NO_CLOCK
        if tuple(tail) == _TWO_TAGS:
            *clock_head, clock_ms = _CLOCK.unpack_from(frame, at)
            at += _CLOCK.size
            if tuple(clock_head) != _CLOCK_HEAD:
                return None
        elif tuple(tail) != _ONE_TAG:
            return None
    except WRONG:
        return None
    if tags or more or at != len(frame):
        return None
    return tuple.__new__(  # the constructor takes three times as long
        LaterFetch,
        (
            *(version, correlation_id, *head),
            *(replica_id, replica_epoch, clock_ms, topic_id, *asked),
        ),
    )


class LaterAnswer(NamedTuple):
    """Answer to such a fetch, about one partition and without an error, or about none."""

    error_code: int
    session_id: int
    append_clock_ms: int
    topic_id: UUID | None
    """Topic of the partition; None without one."""
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[tuple[int, int]]
    """Producer id and first offset of each."""
    records: Buffer


def read_later_answer(frame: Buffer, position: int) -> LaterAnswer | None:
    """Decode the body of a response; None if it is of another form, malformed or not."""
    try:
        _, error_code, session_id, topics = _ANSWER.unpack_from(frame, position)
        at = position + _ANSWER.size
        topic_id: UUID | None = None
        partition, offsets, aborted = -1, (-1, -1, -1), list[tuple[int, int]]()
        records: Buffer = b""
        if topics == 2:
            raw_id, count, partition, error, *three, listed = _ANSWERED.unpack_from(frame, at)
            topic_id, offsets = read_topic_id(raw_id), tuple(three)
            if topic_id is None or count != 2 or error or listed > _MOST_ABORTED:
                return None
            at += _ANSWERED.size
            for _ in range(listed - 1):
                producer_id, first, tags = _ABORTED.unpack_from(frame, at)
                if tags:
                    return None
                aborted.append((producer_id, first))
                at += _ABORTED.size
            if frame[at : at + INT32.size] != _NO_REPLICA:
                return None
            size, at = read_uvarint(frame, at + INT32.size)
            if not size:
                return None
            end = at + size - 1
            records, at = memoryview(frame)[at:end], end + len(_NO_TAGS)
            if frame[end:at] != _NO_TAGS:
                return None
        elif topics != 1:
            return None
        clock_ms, tags = NO_CLOCK, frame[at]
        at += 1
        if tags == 1:
            *clock_head, clock_ms = _CLOCK.unpack_from(frame, at)
            at += _CLOCK.size
            if tuple(clock_head) != _CLOCK_HEAD:
                return None
        elif tags:
            return None
    except WRONG:
        return None
    if at != len(frame):
        return None
    return tuple.__new__(
        LaterAnswer,
        (
            *(error_code, session_id, clock_ms, topic_id, partition, *offsets),
            *(aborted, records),
        ),
    )
