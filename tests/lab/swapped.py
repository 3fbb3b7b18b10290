"""Logs whose segments are being replaced: what a kill leaves at each change of a name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from compacting import COMPACT, clean, put
from examples import stride
from storelogs import NOW, TOPIC_ID, UnsyncedFiles, copy_sparse, open_dir, records_in

from horolog.storage import Log, TopicPartition, tidy

T = TypeVar("T")

EVENTS = TopicPartition("events", 3)
KEYS = [b"a", b"b", b"c", b"d", b"e"]


class Watched(UnsyncedFiles):
    """Calls `look` before each change of a name."""

    look: Callable[[], None] | None = None

    def _looked(self) -> None:
        look, self.look = self.look, None
        if look is not None:
            look()
            self.look = look

    def os_rename(self, source: str, target: str) -> None:
        self._looked()
        super().os_rename(source, target)

    def os_unlink(self, path: str) -> None:
        self._looked()
        super().os_unlink(path)


def fill(log: Log, count: int = 30) -> None:
    """Append records, most of which are superseded."""
    for n in range(count):
        key = b"once-%d" % n if n % 4 == 0 else KEYS[n % 5]
        put(log, key, at=NOW + 1000 * n, now=NOW + 1000 * n + 7)


def offsets(log: Log) -> list[int]:
    """The offsets of all its records."""
    return [record.offset or 0 for record in records_in(log)]


def states(
    tmp_path: Path,
    write: Callable[[Log], None] = fill,
    partition: TopicPartition = EVENTS,
    every: int = 2,
) -> Iterator[tuple[Path, list[list[int]]]]:
    """What a kill leaves within a swap, a log directory each; its offsets before and after it.

    Of all steps `every` so many are tried, or all of them (`stride`).
    """
    files, seen = Watched(), list[list[int]]()
    directory = open_dir(tmp_path / "log", COMPACT, files=files)
    log = directory.create(*partition, TOPIC_ID, COMPACT, NOW)
    write(log)

    def look() -> None:
        target = tmp_path / str(len(seen))
        shutil.copytree(tmp_path / "log", target, copy_function=copy_sparse)
        seen.append(offsets(log))

    files.look = look
    clean(log)
    files.look = None
    seen.append(offsets(log))
    directory.close(clean=False)
    assert seen[-1] != seen[0]
    for step in range(0, len(seen) - 1, stride(every)):
        after = next((each for each in seen[step:] if each != seen[step]), seen[step])
        yield tmp_path / str(step), [seen[step], after]


def end_swap(path: Path, partition: TopicPartition = EVENTS) -> None:
    """Have the directory as a start would."""
    tidy(UnsyncedFiles(), str(path / str(partition)), keep=True, now_ms=NOW)
