"""Answers about the past: merges the entries of several logs and selects the last ones."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from pathlib import Path
from typing import Final, Generic, TypeVar

from horolog.errors import printable
from horolog.history import GroupEvent, KeptLog, TopicChange
from horolog.metadata.home import state_dir_beside
from horolog.storage.files import Files

_MOST_READS: Final = 3
_MOST_DAMAGE: Final = 5
_MOST_LOGS: Final = 20
LONGEST: Final = 300
"""Longest text in an answer, in characters."""


EntryT = TypeVar("EntryT", GroupEvent, TopicChange)


class PastLog(ABC, Generic[EntryT]):
    """Log whose records are changes of a topic or a group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.whole_from: int | None = None
        """`KeptLog.whole_from`, after `entries`."""
        self.damage: list[str] = []
        """Sentences about unreadable parts, after `entries`."""

    def note(self, damage: str) -> None:
        """Note damage; only the first few are kept."""
        if len(self.damage) < _MOST_DAMAGE:
            self.damage.append(damage)

    @abstractmethod
    def entries(self) -> Iterator[EntryT]:
        """Yield the changes in the order of the log."""


def past_directories(log_dir: Path, state_dir: Path | None) -> list[tuple[str, str]]:
    """List the directories that may have logs of the past, with a prefix for names of logs."""
    beside = state_dir or state_dir_beside(log_dir)
    found = [("", str(log_dir))]
    if beside != log_dir and beside.is_dir():
        found.append((f"{beside.name}/", str(beside)))
    return found


def answered(
    logs: Callable[[Files], Iterable[PastLog[EntryT]]],
    in_force: Callable[[Iterable[EntryT]], list[EntryT]],
    at_ms: int | None,
    most: int,
    start: int,
    end: int | None,
) -> tuple[tuple[EntryT, ...], tuple[KeptLog, ...], int]:
    """Return the entries of an answer, their logs, and the number after the last entry.

    A log that is damaged is read again: a broker may have been writing, or replacing a file.

    Args:
        logs: returns the logs; nothing is written.
        in_force: returns the entries of one log that still hold after all of them.
        at_ms: time in milliseconds whose state is asked for; None for all changes.
        most: largest number of entries; the last ones are returned.
        start: number of the first entry to return.
        end: number of the first entry that is too late; None without one.

    Raises:
        StorageFailed: the directory cannot be read.
    """
    for _ in range(_MOST_READS):
        files = Files(read_only=True)
        try:
            read = list(logs(files))
            found: Iterable[EntryT]
            if at_ms is None:
                found = merge(*(log.entries() for log in read), key=lambda entry: entry.time)
            else:
                found = chain.from_iterable(_at(log, at_ms, in_force) for log in read)
            entries, count = _last(found, most, start, end)
        finally:
            files.close()
        if not any(log.damage for log in read):
            break
    return entries, _kept(read), count


def _at(
    log: PastLog[EntryT], at_ms: int, in_force: Callable[[Iterable[EntryT]], list[EntryT]]
) -> list[EntryT]:
    # To the end of the log: a clock may have been ahead for a while.
    return in_force(entry for entry in log.entries() if entry.time <= at_ms)


def _last(
    entries: Iterable[EntryT], most: int, start: int, end: int | None
) -> tuple[tuple[EntryT, ...], int]:
    """Return the last entries from a number on, and the number after the last one."""
    count = 0
    kept: deque[EntryT] = deque(maxlen=most)
    for entry in entries:
        if end is None or count < end:
            kept.append(entry)
            count += 1
    skipped = max(0, start - (count - len(kept)))
    return tuple(islice(kept, skipped, None)), count


def _kept(logs: Iterable[PastLog[EntryT]]) -> tuple[KeptLog, ...]:
    """Describe the logs of an answer, within the size of a protocol string."""
    kept, left = [], _MOST_DAMAGE
    for log in islice(logs, _MOST_LOGS):
        damage = [printable(sentence)[:LONGEST] for sentence in log.damage[:left]]
        left -= len(damage)
        kept.append(KeptLog(log.name, log.whole_from, tuple(damage)))
    return tuple(kept)


def shortened(text: str | None) -> str | None:
    """Shorten a text to the longest that an answer may contain."""
    return text if text is None or len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
