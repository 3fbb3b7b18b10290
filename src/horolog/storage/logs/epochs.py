"""Leader epochs of a log: the first offset of each (KIP-101).

Both columns strictly grow. The list is small and is written whole whenever it
changes, before a batch of the new epoch is appended.

The file only repeats what the batch headers contain. A log that is opened compares the two
(`disagreement`), and takes the epochs from all headers where they differ (`epochs_of`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Final, NamedTuple

from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader
from horolog.storage.directory.checkpoints import EpochStart, write_epochs
from horolog.storage.files import Files
from horolog.storage.index.indexes import ANY_SIZE
from horolog.storage.names import MAX_OFFSET
from horolog.storage.segments.reader import SegmentReader

NO_EPOCH = -1
_START_OFFSET = attrgetter("start_offset")
_MOST_COMPARED: Final = 1000  # entries of a file, of more some


class Disagreement(NamedTuple):
    """A batch whose leader epoch contradicts the list of epochs."""

    offset: int
    listed: int
    """-1 if the list has no epoch there."""
    found: int

    def __str__(self) -> str:
        listed = "no epoch" if self.listed == NO_EPOCH else f"epoch {self.listed}"
        return f"offset {self.offset} has {listed} there, and epoch {self.found} in its batch"


class FoundEpochs(NamedTuple):
    """The leader epochs of the batches of a log."""

    entries: list[EpochStart]
    falls_at: int | None
    """The first offset whose epoch is earlier than one before it; a header may be damaged."""


class LeaderEpochs:
    """The epochs of one log. One thread changes them; readers see one list or the next."""

    def __init__(self, files: Files, path: str, entries: Sequence[EpochStart] = ()) -> None:
        self.entries: tuple[EpochStart, ...] = tuple(entries)
        self.latest = _latest(self.entries)
        """The newest epoch, -1 if nothing was written in any."""
        self._on_disk = self.entries
        self._files = files
        self.path = path

    def assign(self, epoch: int, start_offset: int, *, sync: bool = True) -> None:
        """Begin an epoch at an offset, and remove entries that claim to be newer or later.

        Not synced, the file at `path` is to be synced by the caller.
        """
        if self.entries and self.entries[-1].epoch == epoch:
            return
        kept = [e for e in self.entries if e.epoch < epoch and e.start_offset < start_offset]
        self._set([*kept, EpochStart(epoch, start_offset)], sync=sync)

    def learn(self, found: Iterable[EpochStart]) -> None:
        """Assign each epoch that is newer than those before it, and write them at once."""
        entries = list(self.entries)
        for entry in found:
            if not entries or entry.epoch > entries[-1].epoch:
                while entries and entries[-1].start_offset >= entry.start_offset:
                    entries.pop()
                entries.append(entry)
        self._set(entries)

    def replace(self, found: Sequence[EpochStart], end_offset: int) -> None:
        """Take the epochs of all batches; a later one without records stays at the log end."""
        entries = list(found)
        last = self.entries[-1] if self.entries else None
        if last is not None and last.start_offset >= end_offset and last.epoch > _latest(entries):
            entries.append(EpochStart(last.epoch, end_offset))
        self._set(entries)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written; -1 if unknown."""
        return _epoch_at(self.entries, offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart | None:
        """Return the largest epoch not above `epoch`, and the first offset after that epoch."""
        entries = self.entries
        if epoch < 0 or not entries or epoch > entries[-1].epoch:
            return None
        if epoch == entries[-1].epoch:
            return EpochStart(epoch, log_end_offset)
        if epoch < entries[0].epoch:
            return EpochStart(epoch, entries[0].start_offset)
        number = bisect_right(entries, epoch, key=attrgetter("epoch"))
        return EpochStart(entries[number - 1].epoch, entries[number].start_offset)

    def truncate_from_end(self, offset: int, *, write: bool = True) -> None:
        """Forget epochs that begin at or after `offset`; not written, the file has them still."""
        entries = self.entries
        self._set(entries[: bisect_left(entries, offset, key=_START_OFFSET)], write=write)

    def truncate_from_start(self, offset: int) -> None:
        """Let the epoch that was current at `offset` begin there, and forget those before."""
        current = self.epoch_at(offset)
        if current == NO_EPOCH:
            return
        later = self.entries[bisect_right(self.entries, offset, key=_START_OFFSET) :]
        self._set([EpochStart(current, offset), *later])

    def _set(self, entries: Sequence[EpochStart], *, sync: bool = True, write: bool = True) -> None:
        if (new := tuple(entries)) == self.entries:
            return
        if write and new != self._on_disk and not self._files.read_only:
            write_epochs(self._files, self.path, new, sync=sync)
            self._on_disk = new
        self.entries, self.latest = new, _latest(new)


def disagreement(
    entries: Sequence[EpochStart], segments: Sequence[SegmentReader], log_start: int
) -> Disagreement | None:
    """Return a batch that contradicts a list of leader epochs; None if no batch does.

    Epochs grow in a log. If the batches around each start and at both ends of the log agree, the
    others do, too. Damaged batches, and those of formats without epochs, contradict nothing.

    Args:
        segments: of the log, in order.
        log_start: batches that end before this offset do not count.
    """
    filled = [segment for segment in segments if segment.size]
    bases = [segment.base_offset for segment in filled]
    some = entries[:: len(entries) // _MOST_COMPARED + 1]
    for offset in dict.fromkeys((log_start, *map(_START_OFFSET, some), MAX_OFFSET)):
        first = max(bisect_left(bases, offset) - 1, 0)
        with suppress(CorruptBatch):
            for header in _headers_around(filled[first : first + 2], offset):
                epoch, at = header.leader_epoch, max(header.base_offset, log_start)
                if epoch == NO_EPOCH or header.last_offset < log_start:
                    continue
                if (listed := _epoch_at(entries, at)) != epoch:
                    return Disagreement(at, listed, epoch)
    return None


def _headers_around(segments: Sequence[SegmentReader], offset: int) -> Iterator[BatchHeader]:
    """Yield a few batches before an offset, and the first that begins there or behind."""
    for segment in segments:
        position = 0
        if offset > segment.base_offset:
            before = min(offset - 1, segment.base_offset + ANY_SIZE)
            position = segment.indexes.position_before(before, segment.size)
        for _, header in segment.headers(position, segment.size):
            yield header
            if header.base_offset >= offset:
                return


def epochs_of(segments: Iterable[SegmentReader]) -> FoundEpochs:
    """Return the leader epochs that the batch headers of a log name."""
    entries: list[EpochStart] = []
    falls_at = None
    for segment in segments:
        with suppress(CorruptBatch):
            for _, header, _ in segment.batches().stretches():
                epoch = header.leader_epoch
                if epoch > _latest(entries):
                    entries.append(EpochStart(epoch, header.base_offset))
                elif falls_at is None and NO_EPOCH < epoch < entries[-1].epoch:
                    falls_at = header.base_offset
    return FoundEpochs(entries, falls_at)


def _epoch_at(entries: Sequence[EpochStart], offset: int) -> int:
    number = bisect_right(entries, offset, key=_START_OFFSET)
    return entries[number - 1].epoch if number else NO_EPOCH


def _latest(entries: Sequence[EpochStart]) -> int:
    return entries[-1].epoch if entries else NO_EPOCH
