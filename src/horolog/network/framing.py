"""Splits the received bytes into requests, with as few copies as possible.

Reads go to a scratch buffer that all connections share: the event loop gets and returns it within
one call. A request that is incomplete after a read is received into its own buffer, which grows
with the bytes received: a client that only claims 100 MB gets no memory for it.

Once a request has sent some of its bytes, its buffer is an anonymous mapping of the whole length
(`mappings`): the kernel provides a page when a byte arrives for it. A buffer on the heap is zeroed
and copied at each step of its growth, which takes tens of milliseconds for 50 MB, for all
connections together.
"""

from collections.abc import Callable
from typing import Final

from horolog.buffers import Buffer
from horolog.wire.frame import LENGTH_BYTES, frame_length

SCRATCH_BYTES: Final = 256 * 1024
FIRST_ALLOCATION_BYTES: Final = 4 * 1024
# The size of a buffer relative to the received bytes: few copies, and a limit for false claims.
GROWTH: Final = 4
# Larger buffers are mapped, and are allowed this much more at a time.
MAPPED_FROM_BYTES: Final = 256 * 1024
STEP_BYTES: Final = 4 << 20
# What is received at once: more would occupy the event loop for milliseconds.
PIECE_BYTES: Final = 256 * 1024


class Frames:
    """Receiving half of one connection.

    `on_frame` gets each complete request, without its length. `may_grow` is called with the new
    total size before a request's buffer is created or grows. If it returns False, nothing must be
    received until `resume` is called. `lend` provides the memory of large requests.
    """

    def __init__(
        self,
        scratch: memoryview,
        max_bytes: int,
        on_frame: Callable[[Buffer], None],
        may_grow: Callable[[int], bool],
        lend: Callable[[int], memoryview],
    ) -> None:
        self._scratch = scratch
        self.max_bytes = max_bytes
        """Largest request that is received."""
        self._on_frame = on_frame
        self._may_grow = may_grow
        self._lend = lend
        self._start = b""  # length and first bytes of a request that has no buffer yet
        self.buffer: bytearray | memoryview | None = None
        """Buffer of the request that is being received; a view of a mapping if it is large."""
        self._filled = 0
        self._allowed = 0  # how far the buffer may be filled
        self.length = 0
        """Size of the request that is being received in a buffer, or waits for one."""
        self.next_size = 0
        """Size of the buffer that `resume` makes."""
        self.count = 0
        """Number of requests that needed a buffer."""

    @property
    def arrived(self) -> int:
        """Received bytes of an incomplete request, without its length field."""
        if self.buffer is not None:
            return self._filled
        return max(len(self._start) - LENGTH_BYTES, 0)

    def room(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if self.buffer is not None:
            end = min(self._allowed, self._filled + PIECE_BYTES)
            return memoryview(self.buffer)[self._filled : end]
        if not self._start:
            return self._scratch
        held = len(self._start)
        self._scratch[:held] = self._start
        return self._scratch[held:]

    def received(self, size: int) -> None:
        """Handle `size` bytes that were received into the buffer of `room`.

        Raises:
            MalformedRequest: the length of a request is invalid.
            MemoryError: there is no memory for its buffer.
        """
        if self.buffer is not None:
            self._filled += size
            if self._filled == self.length:
                frame, self.buffer = self.buffer, None
                self._filled = 0
                self._on_frame(frame)
            elif self._filled == self._allowed:
                self._grow()
            return
        end = len(self._start) + size
        self._start = b""
        position = 0
        scratch = self._scratch
        while (body := position + LENGTH_BYTES) <= end:
            length = frame_length(scratch, self.max_bytes, position)
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
        """Drop the received bytes of an incomplete request."""
        self.buffer, self._start, self._filled = None, b"", 0

    def _grow(self) -> None:
        arrived = self.arrived
        grown = max(FIRST_ALLOCATION_BYTES, min(GROWTH * arrived, arrived + STEP_BYTES))
        self.next_size = min(self.length, grown)
        if self._may_grow(self.next_size):
            self.resume()

    def resume(self) -> None:
        """Grow the buffer after `may_grow` has refused it.

        Raises:
            MemoryError: there is no memory for it.
        """
        self._allowed = self.next_size
        if isinstance(self.buffer, memoryview):
            return
        # Not resized in place, because views of it may still exist.
        larger: bytearray | memoryview
        is_large = self.next_size > MAPPED_FROM_BYTES
        larger = self._lend(self.length) if is_large else bytearray(self.next_size)
        if self.buffer is None:
            self._filled = len(self._start) - LENGTH_BYTES
            larger[: self._filled] = self._start[LENGTH_BYTES:]
            self._start = b""
        else:
            larger[: self._filled] = self.buffer
        self.buffer = larger
