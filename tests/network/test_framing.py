"""Cutting a stream into requests: however it is cut on the way, the same requests come out."""

import errno
import struct
from itertools import pairwise

import pytest
from faulty_calls import failing
from hypothesis import given
from hypothesis import strategies as st

from horolog.network import (
    FIRST_ALLOCATION_BYTES,
    GROWTH,
    PIECE_BYTES,
    SCRATCH_BYTES,
    STEP_BYTES,
    Frames,
    Mappings,
    mappings,
)
from horolog.wire import LENGTH_BYTES, MalformedRequest

MAX_BYTES = 32 << 20


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
            Mappings().lend,
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
    sent = 0
    for size in (1000, 5000, 100_000, 500_000):
        receiver.feed(stream[sent : sent + size])
        sent += size
        assert receiver.reader.arrived == sent - LENGTH_BYTES
        assert max(receiver.asked) <= max(FIRST_ALLOCATION_BYTES, GROWTH * sent)
    receiver.feed(stream[sent:])
    assert receiver.frames == [body, b"0123456789"]
    assert receiver.asked[-1] == len(body)


def test_a_header_alone_gets_little_memory() -> None:
    receiver = Receiver(scratch_bytes=SCRATCH_BYTES)
    receiver.feed(struct.pack(">i", MAX_BYTES))
    assert receiver.asked == [FIRST_ALLOCATION_BYTES]


def test_a_buffer_that_is_full_waits_for_leave_to_grow_and_loses_nothing() -> None:
    receiver = Receiver(scratch_bytes=SCRATCH_BYTES)
    body = bytes(range(256)) * 1024
    stream = framed(body)
    receiver.feed(stream[:4])
    receiver.may_grow = False
    receiver.feed(stream[4 : 4 + FIRST_ALLOCATION_BYTES])
    assert receiver.reader.next_size == GROWTH * FIRST_ALLOCATION_BYTES
    receiver.may_grow = True
    receiver.reader.resume()
    receiver.feed(stream[4 + FIRST_ALLOCATION_BYTES :])
    assert receiver.frames == [body]


def test_a_request_waits_for_leave_to_grow_and_loses_nothing() -> None:
    receiver = Receiver(may_grow=False)
    body = bytes(200)
    receiver.feed(framed(body)[:50])
    assert receiver.frames == []
    receiver.reader.resume()
    receiver.feed(framed(body)[50:])
    assert receiver.frames == [body]


def test_a_large_request_is_received_in_small_pieces_and_never_copied() -> None:
    """Zeroing and copying fifty megabytes would stop the event loop for forty milliseconds."""
    receiver = Receiver(scratch_bytes=SCRATCH_BYTES)
    body = bytes(range(256)) * ((24 << 20) // 256)
    stream = framed(body, b"0123456789")
    receiver.feed(stream[: 4 << 20])
    room = receiver.reader.room()
    assert len(room) <= PIECE_BYTES
    receiver.feed(stream[4 << 20 : 20 << 20])
    assert receiver.reader.room().obj is room.obj
    steps = [after - before for before, after in pairwise(receiver.asked)]
    assert max(steps) <= STEP_BYTES
    receiver.feed(stream[20 << 20 :])
    assert receiver.frames == [body, b"0123456789"]


def test_a_failed_mapping_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, mappings.mmap, "mmap", OSError(errno.ENOMEM, "Cannot allocate memory"))
    receiver = Receiver(scratch_bytes=SCRATCH_BYTES)
    with pytest.raises(MemoryError, match="no memory for a request of 25165824 bytes"):
        receiver.feed(framed(bytes(24 << 20)))


@pytest.mark.parametrize("length", [-1, 0, 9, MAX_BYTES + 1, (1 << 31) - 1])
def test_a_length_that_cannot_be_is_refused_before_any_memory_is_taken(length: int) -> None:
    receiver = Receiver()
    with pytest.raises(MalformedRequest):
        receiver.feed(struct.pack(">i", length) + b"rest")
    assert receiver.asked == []
