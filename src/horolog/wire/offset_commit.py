"""OffsetCommit requests that repeat an earlier one, recognised without decoding.

A consumer commits the partitions that it was assigned again and again. The requests differ in
correlation id, offsets and leader epochs alone.
"""

import re
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.wire.api import ApiKey
from horolog.wire.codec import encode_request, encode_response
from horolog.wire.frame import parse_request_header, response_prefix
from horolog.wire.requests import OffsetCommitRequest

__all__ = ["CommitForm"]

_CORRELATION: Final = slice(4, 8)
_OFFSET: Final = Struct(">q")
_OFFSET_AND_EPOCH: Final = Struct(">qi")
_UNKNOWN_EPOCH: Final = -1
_NUMBERS: Final = re.compile(b"\xff+")


class CommitForm(NamedTuple):
    """The form of requests that differ in correlation id, offsets and leader epochs alone."""

    size: int
    """Bytes of each request, header included."""
    places: list[int]
    """Position of the offset of each partition, in order."""
    width: int
    """Bytes of an offset, with the leader epoch that follows it from version 6 on."""
    mask: int
    """The bits of a request that are the same in all."""
    fixed: int
    """The value of these bits."""
    answer: tuple[bytes, bytes]
    """The response without errors: what precedes the correlation id, and what follows it."""

    @classmethod
    def of(cls, version: int, body: OffsetCommitRequest, frame: bytes) -> "CommitForm | None":
        """Return the form of a request of version 2 or later; None if it has unusual bytes.

        Args:
            frame: the request as it was received, header included.
        """
        # What two encodings differ in is offsets and leader epochs.
        zeros, ones = (_encoded(version, body, number) for number in (0, -1))
        start = parse_request_header(frame).body_position
        differing = int.from_bytes(zeros, "big") ^ int.from_bytes(ones, "big")
        numbers = list(_NUMBERS.finditer(differing.to_bytes(len(zeros), "big")))
        if not numbers:
            return None
        same = ((1 << 8 * len(frame)) - 1) ^ differing ^ (0xFFFFFFFF << 8 * (len(frame) - 8))
        fixed = int.from_bytes(frame, "big") & same
        body_bits = (1 << 8 * (len(frame) - start)) - 1
        if len(frame) - start != len(zeros) or fixed & body_bits != int.from_bytes(zeros, "big"):
            return None
        topics = [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [{"partition_index": it.partition_index} for it in topic.partitions],
            }
            for topic in body.topics
        ]
        answer = encode_response(ApiKey.OFFSET_COMMIT, version, {"topics": topics})
        answer = response_prefix(ApiKey.OFFSET_COMMIT, version, 0, len(answer)) + answer
        return cls(
            len(frame),
            [start + number.start() for number in numbers],
            len(numbers[0][0]),
            same,
            fixed,
            (answer[:4], answer[8:]),
        )

    def fits(self, frame: Buffer) -> bool:
        """Return True if a request is of this form."""
        if len(frame) != self.size:
            return False
        return int.from_bytes(frame, "big") & self.mask == self.fixed

    def numbers_of(self, frame: bytes) -> Iterator[tuple[int, int]]:
        """Yield offset and leader epoch of each partition of a request of this form."""
        for place in self.places:
            if self.width == _OFFSET.size:
                yield _OFFSET.unpack_from(frame, place)[0], _UNKNOWN_EPOCH
            else:
                offset, epoch = _OFFSET_AND_EPOCH.unpack_from(frame, place)
                yield offset, epoch

    def committed(self, frame: bytes) -> bytes:
        """Return the whole response to a request of this form whose offsets are all committed."""
        length, rest = self.answer
        return b"".join((length, frame[_CORRELATION], rest))


def _encoded(version: int, body: OffsetCommitRequest, number: int) -> bytes:
    """Encode a request with another number in place of each offset and leader epoch."""
    return encode_request(
        ApiKey.OFFSET_COMMIT,
        version,
        {
            "group_id": body.group_id,
            "generation_id_or_member_epoch": body.generation_id_or_member_epoch,
            "member_id": body.member_id,
            "group_instance_id": body.group_instance_id,
            "retention_time_ms": body.retention_time_ms,
            "topics": [
                {
                    "name": topic.name,
                    "topic_id": topic.topic_id,
                    "partitions": [
                        {
                            "partition_index": partition.partition_index,
                            "committed_offset": number,
                            "committed_leader_epoch": number,
                            "committed_metadata": partition.committed_metadata,
                        }
                        for partition in topic.partitions
                    ],
                }
                for topic in body.topics
            ],
        },
    )
