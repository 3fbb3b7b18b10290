r"""Java's properties format, as used by `server.properties`.

    key = value        `=`, `:` or blanks end a key
    # or ! starts a comment; a backslash at the end continues a line
    \t \n \r \f \uXXXX are characters; any other escaped character is itself

The result is that of `java.util.Properties`, with UTF-8 instead of Latin-1.
"""

import re
from collections.abc import Iterator

from horolog.errors import Misconfigured

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.|$)", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)


def parse_properties(text: str, origin: str = "properties") -> dict[str, str]:
    """Parse a properties file; the last value of a repeated key wins.

    Raises:
        Misconfigured: Java would refuse an escape; names `origin` and the line.
    """
    values = {}
    for number, line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match
        where = f"{origin}, line {number}"
        values[_unescape(match[1], where)] = _unescape(match[2], where)
    return values


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their continuations joined, each with the number of its first line."""
    joined: list[str] = []
    first = 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = line.lstrip(_BLANKS)
        if not joined:
            first = number
            if not line or line[0] in "#!":
                continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined.append(line[:-1])
            continue
        yield first, "".join((*joined, line))
        joined = []
    if joined:
        yield first, "".join(joined)


def _unescape(text: str, where: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped.startswith("u"):
            if len(escaped) != 5:
                raise Misconfigured(f"{where}: \\u needs four hexadecimal digits")
            return chr(int(escaped[1:], 16))
        return _ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(replacement, text)
