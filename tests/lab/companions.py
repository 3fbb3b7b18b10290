"""The companions of a partition's segments, as a test damages or loses a part of them."""

from pathlib import Path

from horolog.storage import Companion, Files, LogFile

SEAL = slice(52, 132)
MAP = slice(132, 148)


def companion_of(path: Path) -> Companion:
    """The companion of a segment, of which `path` is any file."""
    log = str(path).removesuffix(path.suffix) + ".log"
    base_offset = int(path.stem) if path.stem.isdigit() else 0
    return Companion(LogFile(Files(), log, base_offset), base_offset)


def seal_in(path: Path) -> bytes:
    """The bytes of a segment's seal."""
    return companion_of(path).seal()


def has_seal(path: Path) -> bool:
    return any(seal_in(path))


def put_seal(path: Path, content: bytes) -> None:
    """Put these bytes in the place of a segment's seal."""
    companion_of(path).write_seal(content or bytes(80))


def lose_seals(directory: Path) -> None:
    """As if no segment of a partition, or of any in a log directory, had ever been sealed."""
    for path in directory.rglob("*.companion"):
        content = bytearray(path.read_bytes())
        content[SEAL] = bytes(80)
        path.write_bytes(content)


def map_in(path: Path) -> bytes:
    """The bytes of a segment's block map."""
    return companion_of(path).map()


def put_map(path: Path, content: bytes) -> None:
    """Put these bytes in the place of a segment's block map."""
    companion_of(path).write_map(content)


def lose_maps(directory: Path) -> None:
    """As if no segment had a block map."""
    for path in directory.rglob("*.companion"):
        companion = companion_of(path)
        end = companion.times_end()
        content = bytearray(path.read_bytes())[:end]
        content[MAP] = bytes(16)
        path.write_bytes(content)
