"""Decide which indexes are checked before a lookup by time uses them, and which later.

Invariant: a table of largest times is kept only of segments whose indexes need no check any more;
what is not checked at once is due, until `check_next` has checked it.
"""

import logging
from collections.abc import Sequence

from horolog.errors import CorruptBatch
from horolog.storage.lookup.by_timestamp import LargestTimes
from horolog.storage.segments.segment import Segment

CHECKED_INLINE_BYTES = 64 << 20  # of log whose headers a lookup reads before it answers

_logger = logging.getLogger(__name__)


class IndexChecks:
    """Checks the indexes of a log's finished segments in the background.

    Any thread may call it.

    Methods raise StorageFailed where the disk refuses.
    """

    __slots__ = ("_largest_times", "_wants_maps", "are_due")

    def __init__(self) -> None:
        self.are_due = False
        """Whether lookups use indexes that `check_next` has not checked yet."""
        self._wants_maps = False  # a search for a time has read segments without block maps
        self._largest_times = LargestTimes(())  # only of segments with a valid seal

    def largest_times_of(self, finished: tuple[Segment, ...]) -> LargestTimes:
        """Return the largest timestamps of finished segments."""
        times = self._largest_times
        if len(times.segments) != len(finished) or times.segments != finished:
            are_final = self.need_no_check(finished)  # asked first: it may change them
            times = LargestTimes(finished)
            if are_final:
                self._largest_times = times
        return times

    def need_no_check(self, finished: Sequence[Segment]) -> bool:
        """Return True if the indexes of these segments are proved, as far as possible.

        Those of others are checked here if that is quick, else left to `check_next`: until
        then a lookup uses those entries that match their batches.
        """
        unproved = [s for s in finished if not s.indexes.need_no_check(s.size)]
        if sum(segment.size for segment in unproved) > CHECKED_INLINE_BYTES:
            self.are_due = True
            return False
        for segment in unproved:
            _check(segment)
        return True

    def want_maps(self) -> None:
        """Have `check_next` complete block maps too, because a search by time found none."""
        self._wants_maps = self.are_due = True

    def check_next(self, finished: Sequence[Segment]) -> bool:
        """Check the next unsealed indexes against their log; return whether more remain."""
        for segment in finished:
            if not segment.indexes.need_no_check(segment.size):
                _check(segment)
                return True
        for segment in finished if self._wants_maps else ():
            if not segment.blocks.is_final(segment.size):
                segment.complete_blocks()
                return True
        self._wants_maps = self.are_due = False
        return False


def _check(segment: Segment) -> None:
    try:
        segment.indexes.check(segment.size)
    except CorruptBatch as error:
        _logger.warning("%s: its indexes cannot be checked: %s", segment.log.path, error)
