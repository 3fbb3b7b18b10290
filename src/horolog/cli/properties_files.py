"""Property files that are options of commands."""

from pathlib import Path

from horolog.config import parse_properties
from horolog.errors import Misconfigured


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of properties in Java's format.

    Raises:
        Misconfigured: the file is not UTF-8, or Java would refuse a line.
    """
    try:
        return parse_properties(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise Misconfigured(f"{path} is not UTF-8 text") from None
