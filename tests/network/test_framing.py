"""Cutting a stream into requests: however it is cut on the way, the same requests come out."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.network.framing import FIRST_ALLOCATION_BYTES, SCRATCH_BYTES, Frames
from horolog.wire.malformed import MalformedRequest

MAX_BYTES = 4 << 20


class Receiver:
    """The frames of one connection, fed as a socket would."""

    def __init__(self, *, may_grow: bool = True, scratch_bytes: int = 64) -> None:
        self.frames: list[bytes] = []
        self.asked: list[int] = []
        self.may_grow = may_grow
        self.reader = Frames(
            memoryview(bytearray(scratch_bytes)),
            MAX_BYTES,
            lambda frame: self.frames.append(bytes(frame)),
            self._may_grow,
        )

    def _may_grow(self, size: int) -> bool:
        self.asked.append(size)
        return self.may_grow

    def feed(self, data: bytes) -> None:
        while data:
            room = self.reader.room()
            assert len(room)
            part = data[: len(room)]
            room[: len(part)] = part
            self.reader.received(len(part))
            data = data[len(part) :]


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@given(
    st.lists(st.binary(min_size=10, max_size=300), max_size=8),
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
)
def test_requests_come_out_whole_however_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    receiver = Receiver()
    stream = framed(*bodies)
    for i in range(len(stream)):
        if not stream:
            break
        size = cuts[i % len(cuts)]
        receiver.feed(stream[:size])
        stream = stream[size:]
    assert receiver.frames == bodies


def test_a_large_request_grows_with_what_arrives_not_with_what_is_claimed() -> None:
    receiver = Receiver(scratch_bytes=SCRATCH_BYTES)
    body = bytes(range(256)) * ((3 << 20) // 256)
    stream = framed(body, b"0123456789")
    receiver.feed(stream[:1000])
    assert len(receiver.reader.room()) < FIRST_ALLOCATION_BYTES
    receiver.feed(stream[1000:])
    assert receiver.frames == [body, b"0123456789"]
    assert receiver.asked == [len(body)]


def test_a_request_waits_for_leave_to_grow_and_loses_nothing() -> None:
    receiver = Receiver(may_grow=False)
    body = bytes(200)
    receiver.feed(framed(body)[:50])
    assert receiver.frames == []
    receiver.reader.resume()
    receiver.feed(framed(body)[50:])
    assert receiver.frames == [body]


@pytest.mark.parametrize("length", [-1, 0, 9, MAX_BYTES + 1, (1 << 31) - 1])
def test_a_length_that_cannot_be_is_refused_before_any_memory_is_taken(length: int) -> None:
    receiver = Receiver()
    with pytest.raises(MalformedRequest):
        receiver.feed(struct.pack(">i", length) + b"rest")
    assert receiver.asked == []
