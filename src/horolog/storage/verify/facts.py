"""Facts of one pass over a segment, for the checks of the partition."""

from dataclasses import dataclass, field
from typing import NamedTuple

from horolog.storage.index.time import TimeEntry


class EpochRun(NamedTuple):
    """Offsets that were written in one leader epoch."""

    epoch: int
    first_offset: int
    last_offset: int


@dataclass(slots=True, kw_only=True)
class SegmentFacts:
    """What was found in the batches of a segment."""

    path: str
    base_offset: int
    next_offset: int
    first_offset: int | None = None
    size: int = 0
    whole_bytes: int = 0
    """Where its last whole batch ends."""
    largest: TimeEntry | None = None
    is_sound: bool = True
    """All of it was read, and nothing is damaged."""
    epochs: list[EpochRun] = field(default_factory=list)
    missing_offsets: int = 0
    """Within and between its batches."""
    was_emptied: bool = False
    """It was finished without a batch: compaction has left none."""
