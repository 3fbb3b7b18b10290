"""Many kinds of damage to a file, and things that are no file in its place."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

HUGE_NUMBER = 10**30


def _numbers_replaced(path: Path, number: int) -> None:
    """The numbers at the ends of the lines of a text file, but for a version and a count."""
    data = path.read_bytes()
    counted = re.match(rb"0\n\d+\n", data)
    start = counted.end() if counted else 0
    lines = re.sub(rb"-?\d+$", str(number).encode(), data[start:], flags=re.MULTILINE)
    path.write_bytes(data[:start] + lines)


def _flipped(path: Path, count: int) -> None:
    data = bytearray(path.read_bytes())
    rng = random.Random(len(data) * 31 + count)
    for _ in range(count if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _emptied_in_part(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def _sparse(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def _with(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # its name may be too long for a socket's address
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


def _full_directory(path: Path) -> None:
    path.mkdir()
    (path / "in it").write_bytes(b"x")


def _linked(path: Path) -> None:
    """The file itself elsewhere, and a symbolic link to it."""
    target = path.parent.parent.parent / f"outside-{path.name}"
    shutil.copy(path, target)
    path.unlink()
    path.symlink_to(target)


CONTENTS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "one-line": lambda path: path.write_bytes(b"0"),
    "one-line-ended": lambda path: path.write_bytes(b"0\n"),
    "not-a-number": lambda path: path.write_bytes("0\n1\nd 0 \u0663\n".encode()),
    "huge-numbers": lambda path: _numbers_replaced(path, HUGE_NUMBER),
    "beyond-int64": lambda path: _numbers_replaced(path, 1 << 63),
    "int64-max": lambda path: _numbers_replaced(path, (1 << 63) - 1),
    "beyond-int32": lambda path: _numbers_replaced(path, 1 << 31),
    "negative": lambda path: _numbers_replaced(path, -5),
    "a-number-without-end": lambda path: path.write_bytes(b"0\n" + b"9" * 100_000 + b"\n"),
    "not-utf-8": lambda path: path.write_bytes(b"0\n\xff\xfe\xfd\n"),
    "nul-bytes": lambda path: path.write_bytes(bytes(4096)),
    "ff-bytes": lambda path: path.write_bytes(b"\xff" * 4096),
    "zeros-in-it": _emptied_in_part,
    "cut": _cut,
    "one-bit": lambda path: _flipped(path, 1),
    "few-bits": lambda path: _flipped(path, 5),
    "many-bits": lambda path: _flipped(path, 200),
    "huge": lambda path: _sparse(path, 200 << 20),
}

NO_FILES: dict[str, Callable[[Path], object]] = {
    "directory": lambda path: _with(path, Path.mkdir),
    "full-directory": lambda path: _with(path, _full_directory),
    "fifo": lambda path: _with(path, os.mkfifo),
    "socket": lambda path: _with(path, _socket),
    "link-to-itself": lambda path: _with(path, lambda each: each.symlink_to(each.name)),
    "link-to-nothing": lambda path: _with(path, lambda each: each.symlink_to("no/such")),
    "link-outside": _linked,
}

DAMAGES = CONTENTS | NO_FILES
