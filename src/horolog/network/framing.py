"""Cutting what a socket delivers into whole requests, with as few copies as can be.

Short reads land in a scratch buffer that all connections share: the loop hands it out
and takes it back within one call. A request that does not fit what came is received
into a buffer of its own, which grows with what has really arrived: a client that merely
claims 100 MB gets no memory for it.
"""

from collections.abc import Callable
from typing import Final

from horolog.wire.frame import LENGTH_BYTES, frame_length
from horolog.wire.packing import Bytes

SCRATCH_BYTES: Final = 256 * 1024
FIRST_ALLOCATION_BYTES: Final = 1 << 20


class Frames:
    """The receiving half of one connection.

    `on_frame` takes each whole request, without its length. `may_grow` is asked before a
    buffer of its own is opened for a request of so many bytes; when it says no, `resume`
    must be called once it may, and nothing is to be received until then. `length` is the
    size of the request that is being received.
    """

    def __init__(
        self,
        scratch: memoryview,
        max_bytes: int,
        on_frame: Callable[[Bytes], None],
        may_grow: Callable[[int], bool],
    ) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._on_frame = on_frame
        self._may_grow = may_grow
        self._start = b""  # what is known of a request that has no buffer yet
        self._buffer: bytearray | None = None
        self.length = 0
        self._filled = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes received of a request that is not whole."""
        return self._filled if self._buffer is not None else len(self._start)

    def room(self) -> memoryview:
        """Where the next bytes are to be put."""
        if self._buffer is not None:
            return self._room_in_buffer(self._buffer)
        if not self._start:
            return self._scratch
        held = len(self._start)
        self._scratch[:held] = self._start
        return self._scratch[held:]

    def received(self, size: int) -> None:
        """So many bytes were put where `room` said.

        Raises:
            MalformedRequest: a length that cannot be.
        """
        if self._buffer is not None:
            self._filled += size
            if self._filled == self.length:
                frame, self._buffer = self._buffer, None
                self._filled = 0
                self._on_frame(frame)
            return
        end = len(self._start) + size
        self._start = b""
        position = 0
        scratch = self._scratch
        while (body := position + LENGTH_BYTES) <= end:
            length = frame_length(scratch, self._max_bytes, position)
            if body + length > end:
                break
            position = body + length
            self._on_frame(bytes(scratch[body:position]))
        if position == end:
            return
        self._start = bytes(scratch[position:end])
        if end - position >= LENGTH_BYTES:
            self.length = length
            if self._may_grow(length):
                self.resume()

    def resume(self) -> None:
        """Open the buffer that `may_grow` had to refuse."""
        assert self._buffer is None
        self._buffer = bytearray(min(self.length, max(FIRST_ALLOCATION_BYTES, len(self._start))))
        self._filled = len(self._start) - LENGTH_BYTES
        self._buffer[: self._filled] = self._start[LENGTH_BYTES:]
        self._start = b""

    def _room_in_buffer(self, buffer: bytearray) -> memoryview:
        if self._filled == len(buffer):
            # Not resized in place: whoever received into it may still hold a view.
            self._buffer = bytearray(min(2 * len(buffer), self.length))
            self._buffer[: self._filled] = buffer
            buffer = self._buffer
        return memoryview(buffer)[self._filled :]
