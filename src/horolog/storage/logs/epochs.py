"""Which leader wrote which offsets (KIP-101): for each leader epoch its first offset.

Both columns strictly grow. The list is small and is written whole whenever it
changes, before a batch of the new epoch is appended.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from horolog.storage.directory.checkpoints import EpochStart, write_epochs
from horolog.storage.files import Files

NO_EPOCH = -1
_START_OFFSET = attrgetter("start_offset")


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
        """Begin an epoch at an offset; what claims to be newer or later is wrong and goes.

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

    def epoch_at(self, offset: int) -> int:
        """In which epoch an offset was written, -1 if that is not known."""
        entries = self.entries
        number = bisect_right(entries, offset, key=_START_OFFSET)
        return entries[number - 1].epoch if number else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart | None:
        """Where an epoch ended: the largest one not above it, and the first offset after that."""
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


def _latest(entries: Sequence[EpochStart]) -> int:
    return entries[-1].epoch if entries else NO_EPOCH
