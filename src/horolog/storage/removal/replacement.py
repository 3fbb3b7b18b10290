"""Record of a replacement of segments, written before the first old segment goes.

`replaced-segments`, ours, in the partition's directory while segments are replaced:

    0
    <number of lines>
    new <base offset> <bytes of its .log>
    old <base offset>

The file exists from before the new segments count (`.swap`) until they have their names. So a start
after a kill need not compare the offsets of new and old segments: a compaction leaves records out,
and may empty a segment. An Apache Kafka ignores the file and finishes by its own rules. Then the
record does not fit any more, and is ignored.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from horolog.errors import StorageFailed
from horolog.storage import names
from horolog.storage.files import Files

_VERSION = "0"
_MAX_BYTES = 16 << 20


class Replacement(NamedTuple):
    """Base offsets of new segments, with the sizes of their logs, and of old ones."""

    new: Mapping[int, int]
    old: Sequence[int]

    def fits(self, files: Files, directory: str) -> bool:
        """Return True if the new segments exist with these sizes."""
        for base, size in self.new.items():
            path = names.log_path(directory, base)
            swap = path + names.SWAP
            present = swap if files.exists(swap) else path
            if not files.exists(present) or files.size(present) != size:
                return False
        return True


def read_replacement(files: Files, directory: str) -> Replacement | None:
    """Return the recorded replacement of a directory; None without a readable record."""
    try:
        data = files.read_whole(_path(directory), _MAX_BYTES)
    except StorageFailed:
        return None
    lines = (data or b"").decode("ascii", "replace").splitlines()
    if lines[:2] != [_VERSION, str(len(lines) - 2)]:
        return None
    new: dict[int, int] = {}
    old: list[int] = []
    for line in lines[2:]:
        what, *numbers = line.split(" ")
        if not all(text.isascii() and text.isdigit() and len(text) < 20 for text in numbers):
            return None
        match what, [int(text) for text in numbers]:
            case "new", [base, size]:
                new[base] = size
            case "old", [base]:
                old.append(base)
            case _:
                return None
    return Replacement(new, tuple(old))


def write_replacement(files: Files, directory: str, replacement: Replacement) -> None:
    """Write the record and sync it, but for its name.

    Raises:
        StorageFailed: the disk refused.
    """
    lines = [f"new {base} {size}" for base, size in replacement.new.items()]
    lines += [f"old {base}" for base in replacement.old]
    content = "\n".join([_VERSION, str(len(lines)), *lines, ""])
    files.replace(_path(directory), content.encode())


def end_replacement(files: Files, directory: str) -> None:
    """Remove the record, because the replacement was finished or undone.

    Raises:
        StorageFailed: the disk refused.
    """
    files.remove(_path(directory))


def _path(directory: str) -> str:
    return f"{directory}/{names.REPLACED}"
