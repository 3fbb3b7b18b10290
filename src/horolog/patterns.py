"""Patterns of names: regular expressions of RE2's syntax, matched against whole names.

Patterns come from clients, from operators and from disk, and are matched against names that clients
choose. RE2 takes time linear in a name's length, whatever the pattern, and lets other threads run
meanwhile. Python's `re` and Java's take exponential time for some patterns. Apache Kafka's brokers
use RE2's Java port (KIP-848, KIP-1152).

Source: https://github.com/google/re2/wiki/Syntax
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from horolog.errors import Misconfigured

LONGEST_PATTERN: Final = 1_000
"""Characters of the longest pattern."""
LONGEST_NAME: Final = (1 << 15) - 1
"""Bytes of UTF-8 of the longest name that a pattern matches, as in Kafka's strings."""

_MOST_MEMORY: Final = 1 << 16
"""In bytes, of a compiled pattern and its automaton: some 2,000 instructions, a step for each byte
of a name. The library caches 128 compiled patterns."""

MOST_STEPS: Final = 1 << 28
"""Most steps of one instruction for one byte: 1 to 10 ns each without room for the automaton."""

Groups: TypeAlias = dict[str | int, str]
"""Text of the groups of a match, by number and by name."""


class NamePattern:
    """Compiled pattern. For any thread."""

    __slots__ = ("_regexp", "expression")

    def __init__(self, expression: str, *, captures: bool = False) -> None:
        """Compile a pattern.

        Args:
            expression: regular expression in RE2's syntax.
            captures: allows `groups`, which takes longer.

        Raises:
            ValueError: the expression is too long, or RE2 refuses it; the text is a sentence.
        """
        import re2  # noqa: PLC0415 - 10 ms that a start without patterns does not need

        if len(expression) > LONGEST_PATTERN:
            raise ValueError(f"it has more than {LONGEST_PATTERN} characters")
        options = re2.Options()
        options.max_mem = _MOST_MEMORY
        options.log_errors = False
        options.never_capture = not captures
        try:
            self._regexp: Any = re2.compile(expression.encode(), options)
        except UnicodeEncodeError:
            raise ValueError("it has half of a surrogate pair") from None
        except re2.error as error:
            raise ValueError(_sentence(error.args[0])) from None
        self.expression: Final = expression

    def matches(self, name: str) -> bool:
        """Return True if a whole name matches."""
        return self._match(name) is not None

    def groups(self, name: str) -> Groups | None:
        """Return the groups of a match, by number and by name; None without a match."""
        match = self._match(name)
        return None if match is None else self._groups(match)

    def replaced(self, name: str, replace: Callable[[Groups], str]) -> str:
        """Return a name with all that matches replaced."""
        return str(
            self._regexp.sub(
                lambda match: replace(self._groups(match)).encode(errors="surrogatepass"),
                name.encode(errors="surrogatepass"),
            ).decode(errors="replace")
        )

    def _groups(self, match: Any) -> Groups:
        found = [match[0], *match.groups(default=b"")]
        by_name = {key.decode(): found[number] for key, number in self._regexp.groupindex.items()}
        taken = dict(enumerate(found)) | by_name
        return {key: text.decode(errors="replace") for key, text in taken.items()}

    @property
    def group_names(self) -> set[str | int]:
        """Keys of `groups`."""
        numbers = range(self._regexp.groups + 1)
        return {*numbers, *(key.decode() for key in self._regexp.groupindex)}

    def is_slow_for(self, names: Iterable[str]) -> bool:
        """Return True if matching all of these names may take seconds."""
        size = sum(len(name.encode(errors="surrogatepass")) for name in names)
        return size * int(self._regexp.programsize) > MOST_STEPS

    def _match(self, name: str) -> Any:
        encoded = name.encode(errors="surrogatepass")
        return self._regexp.fullmatch(encoded) if len(encoded) <= LONGEST_NAME else None


@lru_cache(maxsize=32)
def name_pattern(expression: str) -> NamePattern:
    """Return a pattern, compiled once.

    Raises:
        ValueError: as `NamePattern`.
    """
    return NamePattern(expression)


def given_pattern(expression: str, option: str) -> NamePattern:
    """Return the pattern that a user has given.

    Args:
        expression: regular expression in RE2's syntax.
        option: name of the option, for the error.

    Raises:
        Misconfigured: it is none.
    """
    try:
        if not expression:
            raise ValueError("it is empty")
        return name_pattern(expression)
    except ValueError as error:
        raise Misconfigured(f"{option}={expression:.80} is no pattern: {error}") from None


def _sentence(reason: bytes) -> str:
    """Translate RE2's error into words that help."""
    text = reason.decode(errors="replace")
    if text.startswith("pattern too large"):
        return "it is too large: fewer or smaller repetitions, or fewer alternatives"
    hint = ""
    if text.startswith(("invalid perl operator", "invalid escape", "bad repetition")):
        hint = (
            ". Patterns have RE2's syntax, which has no look-around, no references to groups and "
            "no possessive repetition"
        )
    return f"{text}{hint}"
