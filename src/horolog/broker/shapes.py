"""The requests of one client that were decoded, for shortcuts to recognise the next ones.

A decoder goes through a request in order, so bytes that are the same say the same. A request's head
is what comes before its numbers, the correlation id apart; its shape is what a shortcut keeps of
it.
"""

from typing import Final, Generic, TypeVar

from horolog.wire.reader import LARGE_BYTES

# What surrounds the correlation id: API and version, then the client id.
START_BYTES: Final = 4
_HEAD_AT: Final = 8

_MOST_SHAPES: Final = 16  # of one client: as many topics as it may ask for in turn
_MOST_HEAD_BYTES: Final = 512  # of each: no budget counts them
FORGET_AFTER: Final = 100  # requests that had to be decoded

ShapeT = TypeVar("ShapeT")


class Shapes(Generic[ShapeT]):
    """Shapes by heads, in bounded memory; for one API."""

    __slots__ = ("_decoded", "_ends", "_shapes")

    def __init__(self) -> None:
        # By the bytes from _HEAD_AT to the numbers, with API and version; None: not for some time.
        self._shapes: dict[bytes, tuple[bytes, ShapeT] | None] = {}
        self._ends: tuple[int, ...] = ()  # of these heads in a frame
        self._decoded = 0  # requests since everything was forgotten

    def __len__(self) -> int:
        return len(self._shapes)

    def may_learn(self, frame: bytes) -> bool:
        """Whether to look for a shape in a request that was decoded; counts it."""
        self._decoded += 1
        if self._decoded > FORGET_AFTER:
            self._decoded, self._shapes, self._ends = 0, {}, ()
        return len(self._shapes) < _MOST_SHAPES and len(frame) <= LARGE_BYTES

    def knows(self, frame: bytes, end: int) -> bool:
        """Whether a head that ends there is known, or too long to be kept."""
        return not _HEAD_AT < end <= _MOST_HEAD_BYTES or frame[_HEAD_AT:end] in self._shapes

    def learn(self, frame: bytes, end: int, shape: ShapeT) -> None:
        """Keep the shape of all requests with this head."""
        self._shapes[frame[_HEAD_AT:end]] = frame[:START_BYTES], shape
        self._ends = tuple({_HEAD_AT + len(each): None for each in self._shapes})

    def find(self, frame: bytes) -> tuple[int, ShapeT] | None:
        """Where the head of a request ends, and its shape; None if none is known."""
        for end in self._ends:
            known = self._shapes.get(frame[_HEAD_AT:end])
            if known is not None:
                start, shape = known
                return (end, shape) if frame.startswith(start) else None
        return None

    def pause(self, frame: bytes, end: int) -> None:
        """Find this head no more until everything is forgotten."""
        self._shapes[frame[_HEAD_AT:end]] = None
