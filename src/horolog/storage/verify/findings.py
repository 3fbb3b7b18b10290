"""What a check tells: findings, and how much it has looked at.

Checks are generators of these; nothing is printed, nothing is changed, nobody is called.
"""

from collections.abc import Generator, Iterator
from enum import StrEnum
from typing import NamedTuple, TypeAlias, TypeVar


class Severity(StrEnum):
    """How bad it is."""

    DAMAGE = "damage"
    """Records are lost, or cannot be told from lost ones."""
    FAULT = "fault"
    """All records are there; something beside them is wrong and can be mended."""
    NOTE = "note"
    """Lawful, and worth knowing."""


class Finding(NamedTuple):
    """One finding, described for the operator who repairs it."""

    severity: Severity
    path: str
    what: str
    mend: str | None = None
    position: int | None = None
    """The byte of the file where it begins."""
    offset: int | None = None
    """The offset of the log where it begins."""


class Checked(NamedTuple):
    """How much more has been looked at."""

    bytes: int = 0
    batches: int = 0
    records: int = 0
    segments: int = 0
    partitions: int = 0


_T = TypeVar("_T")
Findings: TypeAlias = Iterator[Finding]
Steps: TypeAlias = Generator[Finding | Checked, None, _T]


def damage(path: str, what: str, mend: str | None = None, **place: int | None) -> Finding:
    """Records are at stake."""
    return Finding(Severity.DAMAGE, path, what, mend, **place)


def fault(path: str, what: str, mend: str | None = None, **place: int | None) -> Finding:
    """Something beside the records."""
    return Finding(Severity.FAULT, path, what, mend, **place)


def note(path: str, what: str, mend: str | None = None, **place: int | None) -> Finding:
    """Nothing is wrong."""
    return Finding(Severity.NOTE, path, what, mend, **place)
