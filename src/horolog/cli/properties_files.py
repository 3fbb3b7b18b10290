"""Property files that are options of commands."""

from pathlib import Path

from horolog.config import parse_properties, with_provided
from horolog.config.providers import PROVIDERS
from horolog.errors import Misconfigured


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of properties in Java's format, with its variables as they are written.

    Raises:
        Misconfigured: the file is not UTF-8, or Java would refuse a line.
    """
    try:
        return parse_properties(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise Misconfigured(f"{path} is not UTF-8 text") from None


def read_client_properties(path: Path) -> dict[str, str]:
    """Read the properties of a client, with the values of its `config.providers`.

    Raises:
        Misconfigured: the file cannot be read, or a value is not to be had.
    """
    given = with_provided(read_properties(path))
    return {name: text for name, text in given.items() if not name.startswith(PROVIDERS)}
