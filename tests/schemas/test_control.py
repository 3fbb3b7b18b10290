"""Control records of a KRaft log, compared with the bytes that Apache Kafka 4.3 wrote."""

from uuid import UUID

import pytest

from horolog.errors import CorruptBatch
from horolog.schemas import control
from horolog.schemas.control import Voter

VOTERS = (
    "000002000000014d75329bf91d42b78c9425776c5784b7020b434f4e54524f4c4c4552"
    "0a3132372e302e302e31a3390000000001000000"
)  # fmt: skip


def test_a_leader_change_is_that_of_kafka() -> None:
    assert control.control_key(control.LEADER_CHANGE) == bytes.fromhex("00000002")
    value = control.leader_change(1, [Voter(1, UUID(int=5))])
    assert value == bytes.fromhex("00000000000102000000010002000000010000")


def test_header_and_footer_of_a_snapshot_are_those_of_kafka() -> None:
    header = bytes.fromhex("0000000001a216bf1b9900")
    assert control.snapshot_header(0x1A216BF1B99) == header
    assert control.header_timestamp(header) == 0x1A216BF1B99
    assert control.snapshot_footer() == bytes.fromhex("000000")


def test_voters_are_read_with_their_directories() -> None:
    voter = Voter(1, UUID("4d75329b-f91d-42b7-8c94-25776c5784b7"))
    data = bytes.fromhex(VOTERS)
    assert control.voters_in(data) == (voter,)
    for size in range(len(data) - 2):
        with pytest.raises(CorruptBatch):
            control.voters_in(data[:size])


def test_keys_that_are_none_have_no_type() -> None:
    assert [control.kind_of(key) for key in (None, b"", b"\0\0\0", b"\0\0\0\6\0")] == [
        -1,
        -1,
        -1,
        6,
    ]
