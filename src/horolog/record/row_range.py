"""Range of rows to read, as kernels take it."""

from typing import Final, NamedTuple

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


class RowRange(NamedTuple):
    """Range of times and of offsets of the rows to read; both ends included, all of 64 bits."""

    first_ms: int
    last_ms: int
    first_offset: int
    last_offset: int

    @property
    def is_empty(self) -> bool:
        """True if no row can be in the range."""
        return self.first_ms > self.last_ms or self.first_offset > self.last_offset


EVERYTHING = RowRange(INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX)
