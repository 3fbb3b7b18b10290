"""The write-ahead log of an SQLite file: finds the first invalid frame.

SQLite silently ignores everything after the last commit before the first frame whose checksum
fails. At the end of the file such a frame is a write that a kill interrupted. Elsewhere it is
damage, and the commits after it are lost.

    header    32   magic, version, page size, checkpoint, salt (2), checksum (2)
    frame     24   page number, pages after a commit (else 0), salt (2), checksum (2); the page

Frames with another salt, from before the last restart of the log, may follow the last one.
"""

from pathlib import Path
from struct import Struct, iter_unpack

from horolog.storage.verify.findings import Findings, fault, note

_HEADER = Struct(">8I")
_FRAME = Struct(">6I")
_MAGIC = {0x377F0682: "<II", 0x377F0683: ">II"}  # the order of bytes that checksums are made in


def check_wal(path: Path, name: str, mend: str) -> Findings:
    """Whether everything that was committed to a write-ahead log can be read.

    Args:
        path: a copy of the file; there may be none.
        name: what to call it.
        mend: how to repair damage.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    data = path.read_bytes()
    if len(data) < _HEADER.size:
        yield note(name, "It ends within its header: a kill cut its creation short")
        return
    magic, _, page_bytes, _, *salt, sum1, sum2 = _HEADER.unpack_from(data)
    order = _MAGIC.get(magic)
    is_whole = order is not None and _checksum(order, data[:24], (0, 0)) == (sum1, sum2)
    if order is None or not is_whole or not 512 <= page_bytes <= 65536:
        yield fault(name, "Its header is damaged: all changes in it are lost", mend, position=0)
        return
    running = sum1, sum2
    first_bad: int | None = None
    lost = 0
    width = _FRAME.size + page_bytes
    for start in range(_HEADER.size, len(data), width):
        if len(data) - start < width:
            break  # cut short, by a kill or just now
        _, _, *frame_salt, sum1, sum2 = _FRAME.unpack_from(data, start)
        if first_bad is None:
            body = data[start + _FRAME.size : start + width]
            running = _checksum(order, data[start : start + 8], running)
            running = _checksum(order, body, running)
            if frame_salt == salt and running == (sum1, sum2):
                continue
            first_bad = start
        lost += frame_salt[0] == salt[0] or frame_salt[1] == salt[1]
    if first_bad is not None and lost:
        yield fault(
            name,
            f"The frame at byte {first_bad} is damaged: SQLite ignores it and all that was "
            f"committed with it and later ({lost} frames)",
            mend,
            position=first_bad,
        )


def _checksum(order: str, data: bytes, start: tuple[int, int]) -> tuple[int, int]:
    first, second = start
    for one, other in iter_unpack(order, data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
