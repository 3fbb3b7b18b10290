"""Findings and progress of a check, and facts that later checks need.

Checks are generators of them. They print nothing and change nothing.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias, TypeVar

from horolog.storage.batches.log_file import TimeEntry


class Severity(StrEnum):
    """Severity of a finding."""

    DAMAGE = "damage"
    """Records are lost, or may be."""
    FAULT = "fault"
    """All records can be read; an index or a checkpoint is wrong and can be repaired."""
    NOTE = "note"
    """Valid, and worth knowing."""


class Finding(NamedTuple):
    """Finding of a check, described for the operator who repairs it."""

    severity: Severity
    path: str
    what: str
    mend: str | None = None
    position: int | None = None
    """Byte of the file at which the finding begins."""
    offset: int | None = None
    """Offset of the log at which the finding begins."""


class Checked(NamedTuple):
    """Progress of a check since its last report."""

    bytes: int = 0
    batches: int = 0
    records: int = 0
    segments: int = 0
    partitions: int = 0

    def plus(self, more: "Checked") -> "Checked":
        """Return the sum of two reports."""
        return Checked(*map(sum, zip(self, more, strict=True)))


_T = TypeVar("_T")
Findings: TypeAlias = Iterator[Finding]
Steps: TypeAlias = Generator[Finding | Checked, None, _T]


def run_steps(
    steps: Steps[_T] | Findings,
    found: Callable[[Finding], None],
    read: Callable[[Checked], None],
) -> _T:
    """Run a check to its end with a call for each step; return its result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as ended:
            result: _T = ended.value
            return result
        if isinstance(step, Finding):
            found(step)
        else:
            read(step)


def gathered(steps: Steps[_T], findings: list[Finding]) -> Generator[Checked, None, _T]:
    """Yield the progress of a check, and add its findings to a list."""
    while True:
        try:
            step = next(steps)
        except StopIteration as ended:
            result: _T = ended.value
            return result
        if isinstance(step, Checked):
            yield step
        else:
            findings.append(step)


def damage(path: str, what: str, mend: str | None = None, **place: int | None) -> Finding:
    """Return a finding that records are lost, or may be."""
    return Finding(Severity.DAMAGE, path, what, mend, **place)


def fault(path: str, what: str, mend: str | None = None, **place: int | None) -> Finding:
    """Return a finding about an index or a checkpoint."""
    return Finding(Severity.FAULT, path, what, mend, **place)


def note(path: str, what: str, mend: str | None = None, **place: int | None) -> Finding:
    """Return a finding that needs no repair."""
    return Finding(Severity.NOTE, path, what, mend, **place)


class EpochRun(NamedTuple):
    """Consecutive offsets of one leader epoch."""

    epoch: int
    first_offset: int
    last_offset: int


@dataclass(slots=True, kw_only=True)
class SegmentFacts:
    """Facts of a segment, from its batches."""

    path: str
    base_offset: int
    next_offset: int
    first_offset: int | None = None
    size: int = 0
    whole_bytes: int = 0
    """Position just past the last whole batch."""
    largest: TimeEntry | None = None
    is_sound: bool = True
    """True if the whole log was read and nothing is damaged."""
    epochs: list[EpochRun] = field(default_factory=list)
    missing_offsets: int = 0
    """Number of offsets missing within and between batches."""
    has_delete_horizon: bool = False
    """True if a cleaner has rewritten a batch."""
    leaves_out: bool = False
    """True if offsets behind the segment may be in no segment, by its seal."""
    open_from: dict[int, int] = field(default_factory=dict)
    """First offsets of the transactions that are open at the end, by producer id."""
    ended: dict[int, int | None] = field(default_factory=dict)
    """First marker of each producer id. The offset is given for an abort of an earlier segment's
    transaction that the index of aborted transactions lacks."""
