"""Splits the received bytes into requests, with as few copies as possible.

Reads go to a scratch buffer that all connections share: the event loop gets and returns it within
one call. A request that is incomplete after a read is received into its own buffer, which grows
with the bytes received: a client that only claims 100 MB gets no memory for it.
"""

from collections.abc import Callable
from typing import Final

from horolog.buffers import Buffer
from horolog.wire.frame import LENGTH_BYTES, frame_length

SCRATCH_BYTES: Final = 256 * 1024
FIRST_ALLOCATION_BYTES: Final = 4 * 1024
# The size of a buffer relative to the received bytes: few copies, and a limit for false claims.
GROWTH: Final = 4


class Frames:
    """The receiving half of one connection.

    `on_frame` gets each complete request, without its length. `may_grow` is called with the new
    total size before a request's buffer is created or grows. If it returns False, nothing must be
    received until `resume` is called.
    """

    def __init__(
        self,
        scratch: memoryview,
        max_bytes: int,
        on_frame: Callable[[Buffer], None],
        may_grow: Callable[[int], bool],
    ) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._on_frame = on_frame
        self._may_grow = may_grow
        self._start = b""  # length and first bytes of a request that has no buffer yet
        self._buffer: bytearray | None = None
        self._filled = 0
        self.length = 0
        """Size of the request that is being received in a buffer, or waits for one."""
        self.wanted = 0
        """Size of the buffer that `resume` makes."""
        self.count = 0
        """How many requests have needed a buffer."""

    @property
    def arrived(self) -> int:
        """Bytes held of a request that is not whole, its length apart."""
        if self._buffer is not None:
            return self._filled
        return max(len(self._start) - LENGTH_BYTES, 0)

    def room(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._buffer is not None:
            return memoryview(self._buffer)[self._filled :]
        if not self._start:
            return self._scratch
        held = len(self._start)
        self._scratch[:held] = self._start
        return self._scratch[held:]

    def received(self, size: int) -> None:
        """`size` bytes were received into the buffer that `room` returned.

        Raises:
            MalformedRequest: the length of a request is invalid.
        """
        if self._buffer is not None:
            self._filled += size
            if self._filled == self.length:
                frame, self._buffer = self._buffer, None
                self._filled = 0
                self._on_frame(frame)
            elif self._filled == len(self._buffer):
                self._grow()
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
            self.count += 1
            self._grow()

    def forget(self) -> None:
        """Let go of what has arrived; nothing more will."""
        self._buffer, self._start, self._filled = None, b"", 0

    def _grow(self) -> None:
        self.wanted = min(self.length, max(FIRST_ALLOCATION_BYTES, GROWTH * self.arrived))
        if self._may_grow(self.wanted):
            self.resume()

    def resume(self) -> None:
        """Grow the buffer after `may_grow` has refused it."""
        # Not resized in place, because views of it may still exist.
        larger = bytearray(self.wanted)
        if self._buffer is None:
            self._filled = len(self._start) - LENGTH_BYTES
            larger[: self._filled] = self._start[LENGTH_BYTES:]
            self._start = b""
        else:
            larger[: self._filled] = self._buffer
        self._buffer = larger
