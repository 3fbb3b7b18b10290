"""Where in a segment's file an offset lives. Sparse; 8 bytes an entry.

    0   4  offset, relative to the segment's base offset
    4   4  position in the `.log` file

An entry says: the batch that begins at `position` ends with `offset`. Offsets
strictly grow, and so do positions; so a search from the entry at or before an
offset never begins behind its batch.

Files stay Kafka's to the byte. One thread appends, any number look up.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from horolog.storage.index.entries import SegmentIndex


class OffsetPosition(NamedTuple):
    """An absolute offset, and the file position of the batch that ends with it."""

    offset: int
    position: int


class OffsetIndex(SegmentIndex):
    """From offsets to positions, for one segment."""

    __slots__ = ()

    LAYOUT = Struct(">ii")

    @property
    def is_full(self) -> bool:
        """Whether the segment must be rolled before it can be indexed further."""
        return len(self.entries) >= self.entries.capacity

    @property
    def last(self) -> OffsetPosition:
        """The last entry; of an empty index the segment's beginning."""
        return self[len(self.entries) - 1]

    def __getitem__(self, index: int) -> OffsetPosition:
        if index < 0:
            return OffsetPosition(self.base_offset, 0)
        offset, position = self.entries[index]
        return OffsetPosition(self.base_offset + offset, position)

    def append(self, offset: int, position: int) -> None:
        """Index the batch at `position` that ends with `offset`."""
        self.entries.append(offset - self.base_offset, position)

    def append_all(self, found: Sequence[OffsetPosition]) -> None:
        """As `append` of each, in one write."""
        if found:
            self.entries.append_all([(offset - self.base_offset, at) for offset, at in found])

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry not after `offset`; a search for the offset may start there."""
        found = self.entries.last_at(offset - self.base_offset)
        if found is None:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + found[0], found[1])

    def position_after(self, offset: int) -> int | None:
        """Where the batch of the next entry begins, if it is known without another read."""
        found = self.entries.first_behind(offset - self.base_offset)
        return None if found is None else found[1]

    def last_before(self, position: int) -> OffsetPosition:
        """The last entry of a batch that begins before `position`."""
        return self[self.entries.search(1, position - 1) - 1]
