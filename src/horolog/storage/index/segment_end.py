"""How far a segment goes: what a reader takes once, and never looks past."""

from typing import NamedTuple

from horolog.storage.index.time import TimeEntry


class SegmentEnd(NamedTuple):
    """One value, so that a reader never sees half of an append."""

    size: int
    """Bytes of whole batches."""
    next_offset: int
    """The offset that follows them. Of a segment that was never appended to, its base offset."""
    last_position: int = 0
    last_base_offset: int | None = None
    """Of the batch appended last: what a consumer at the log end asks for next."""
    largest: TimeEntry | None = None
    """Largest timestamp of these batches; only known of the segment that is appended to."""
