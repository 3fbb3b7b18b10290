"""Control records of a KRaft log and of its snapshots (KIP-595, KIP-630, KIP-853).

key    i16 version (0) · i16 type
value  i16 version · fields, all flexible (KIP-482)
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from horolog.schemas.fields import Encoder, Fields, there

LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
VOTERS: Final = 6

_KEY = Struct(">hh")


class Voter(NamedTuple):
    """A voter; its directory is known where the quorum is dynamic (`kraft.version` 1)."""

    voter_id: int
    directory: UUID | None = None


def control_key(kind: int) -> bytes:
    """Return the key of a control record."""
    return _KEY.pack(0, kind)


def kind_of(key: bytes | None) -> int:
    """Return the type that a key names; -1 if it names none."""
    return -1 if key is None or len(key) < _KEY.size else int(_KEY.unpack_from(key)[1])


def leader_change(leader_id: int, voters: Sequence[Voter]) -> bytes:
    """Return the record that begins a leader epoch, for whose leader all voters have voted.

    It is of version 0, without directories, because Kafka's readers up to 4.3 accept no other.
    """
    to = Encoder().i16(0).i32(leader_id)

    def write(voter: Voter) -> None:
        to.i32(voter.voter_id).tagged()

    to.array(voters, write).array(voters, write)
    return bytes(to.tagged())


def snapshot_header(last_timestamp: int) -> bytes:
    """Return the first record of a snapshot, with the timestamp of the last record in it."""
    return bytes(Encoder().i16(0).i64(last_timestamp).tagged())


def snapshot_footer() -> bytes:
    """Return the last record of a snapshot."""
    return bytes(Encoder().i16(0).tagged())


def header_timestamp(value: bytes | None) -> int:
    """Return the timestamp in a snapshot's header.

    Raises:
        CorruptBatch: the value is no such header.
    """
    fields = Fields(value or b"")
    fields.i16()
    return fields.i64()


def version_in(value: bytes | None) -> int:
    """Return the level of `kraft.version` that a record names; 0 without one.

    Raises:
        CorruptBatch: the value is no such record.
    """
    if value is None:
        return 0
    fields = Fields(value)
    fields.i16()
    return fields.i16()


def voters_in(value: bytes | None) -> tuple[Voter, ...]:
    """Return the voters that a voters record names.

    Raises:
        CorruptBatch: the value is no such record.
    """
    fields = Fields(value or b"")
    fields.i16()

    def endpoint() -> None:
        fields.text()
        fields.text()
        fields.i16()
        fields.tagged()

    def voter() -> Voter:
        found = Voter(fields.i32(), fields.uuid())
        fields.array(endpoint)
        fields.i16()
        fields.i16()
        fields.tagged()  # of the versions that it supports
        fields.tagged()
        return found

    return tuple(there(fields.array(voter)))
