"""What a stretch of a log is read as, wherever it is: whole batches."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.record.timestamps import AppendTimeStretch
from horolog.record.transactions import AbortedTransaction


class Batches(NamedTuple):
    """Whole batches of one partition, in the order of their offsets."""

    data: Buffer
    start: int
    """The first wanted offset; the first batch may begin before it."""
    end: int
    """After the last wanted offset; the last batch may go on behind it."""
    append_times: Callable[[int, int], Sequence[AppendTimeStretch]] | None
    """Gives them in order, for offsets from the first up to the second; perhaps not those of
    batches that are stamped with LogAppendTime. None where nothing else is known."""
    aborted: Sequence[AbortedTransaction] | None = None
    """Whose records are not wanted; None if all are, or theirs are not among them."""
