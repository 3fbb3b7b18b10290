"""Paths, URIs and patterns of paths as users give them."""

import os
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from horolog.errors import Misconfigured, without_credentials

_MOST_ALTERNATIVES = 1_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_LOCAL_MAGIC, _MAGIC = re.compile(r"[*?\[{]"), re.compile(r"[*\[{]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_S3_OF_HADOOP = re.compile(r"s3[an]://")


def has_scheme(path: str) -> bool:
    """Return True if a path names its file system."""
    return _SCHEME.match(path) is not None


def absolute(path: str) -> str:
    """Return the path as any process can open it: relative paths are the driver's."""
    return path if has_scheme(path) else os.path.abspath(path)


def local_path(path: str) -> str | None:
    """Return the path on this machine, `file:` or plain; None for another file system."""
    if path.startswith("file:"):
        return os.path.abspath("/" + path.removeprefix("file:").lstrip("/"))
    return None if has_scheme(path) else os.path.abspath(path)


def shown(uri: str) -> str:
    """Return a URI without its credentials."""
    return without_credentials(uri)


def for_arrow(uri: str) -> str:
    """Return the URI with `s3` for Spark's `s3a` and `s3n`, as pyarrow expects."""
    return _S3_OF_HADOOP.sub("s3://", uri)


@dataclass(frozen=True, slots=True)
class LogPath:
    """A path or URI of logs, or a pattern of them, parsed once."""

    uri: str = field(repr=False)
    """URI that any process can open."""
    above: str = field(repr=False)
    """URI of the directory above the pattern."""
    local: str | None
    """Path of that directory on this machine; None for another file system."""
    pattern: str | None
    """Pattern below that directory; None if the path is no pattern."""

    @classmethod
    def parse(cls, given: str | os.PathLike[str]) -> "LogPath":
        """Parse a user's path; a relative one is relative to this process."""
        text = os.fspath(given)
        uri = local_path(text) or text
        above, pattern = _split_pattern(uri)
        return cls(uri, above, local_path(above), pattern)

    @property
    def name(self) -> str:
        """URI without credentials, for messages."""
        return shown(self.uri)

    @property
    def scheme(self) -> str:
        """Scheme of the file system; empty on this machine."""
        return "" if self.local is not None else self.uri.partition(":")[0]


def _split_pattern(path: str) -> tuple[str, str | None]:
    """Split a path before the first directory of its pattern; the pattern is None if it has none.

    In a URI "?" begins its parameters, and neither these nor the bucket are of a pattern.
    """
    local = local_path(path)
    head, mark, parameters = path.partition("?") if local is None else (local, "", "")
    parts = head.split("/")
    least, magic = (3, _MAGIC) if local is None else (1, _LOCAL_MAGIC)
    for place, part in enumerate(parts):
        if place >= least and magic.search(part):
            above = "/".join(parts[:place]) or "/"
            return above + mark + parameters, "/".join(parts[place:]).rstrip("/")
    return path, None


def is_pattern(part: str) -> bool:
    """Return True if one part of a path is a pattern."""
    return _LOCAL_MAGIC.search(part) is not None


def alternatives(pattern: str) -> list[str]:
    """Return the patterns that a pattern with `{a,b}` stands for.

    Raises:
        Misconfigured: there are more than a thousand.
    """
    found, done = [pattern], list[str]()
    while found:
        each = found.pop()
        match = _BRACES.search(each)
        if match is None:
            done.append(each)
        else:
            before, after = each[: match.start()], each[match.end() :]
            found += (before + choice + after for choice in match[1].split(","))
        if len(found) + len(done) > _MOST_ALTERNATIVES:
            raise Misconfigured(
                f"The pattern of a path has more than {_MOST_ALTERNATIVES} alternatives: use *"
            )
    return done


def matches(name: str, pattern: str) -> bool:
    """Return True if a file's name matches one part of a pattern: `*`, `?`, `[a-c]`, `[^a]`.

    Names that begin with "." or "_" are hidden, as Spark's sources have it: only a pattern that
    begins so matches them.
    """
    if name[:1] in ("_", ".") and pattern[:1] != name[:1]:
        return False
    return fnmatchcase(name, pattern.replace("[^", "[!"))
