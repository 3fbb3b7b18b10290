"""Encoder of the Fetch request of a replica, written by hand: versions 17 and 18.

It is sent once for each append that is replicated, mostly for one partition. By the schema that
takes several times as long.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from horolog.wire.other_versions import CLOCK_TAG
from horolog.wire.packing import INT32, INT64, tagged, uuid_bytes, uvarint

__all__ = ["ReplicaFetch", "encode_replica_fetch"]

_HEAD: Final = Struct(">iiibii")
_PARTITION: Final = Struct(">iiqiqix")
_NO_RACK: Final = b"\x01"
_STATE: Final = Struct(">iqx")
_STATE_TAG: Final = 1


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
