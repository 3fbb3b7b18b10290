"""The rows of a log to read, as the kernels take it."""

from typing import Final, NamedTuple

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


class RowRange(NamedTuple):
    """The rows to read, of times and of offsets; both ends included, all of 64 bits."""

    first_ms: int
    last_ms: int
    first_offset: int
    last_offset: int

    @property
    def is_empty(self) -> bool:
        """No row can be in it."""
        return self.first_ms > self.last_ms or self.first_offset > self.last_offset


EVERYTHING = RowRange(INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX)
