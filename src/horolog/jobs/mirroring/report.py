"""Outcome of a mirror, with the lag of each partition."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from horolog.jobs.mirroring.groups import CarriedGroup
from horolog.results import Aside, Outcome, Shown, Table, size


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """Progress and lag of one partition of the source."""

    topic: str
    partition: int
    target: str
    records: int
    """Records mirrored by all runs with this state."""
    offset: int
    """Offset up to which the source is mirrored."""
    end: int
    """End of the source's log when it was last asked."""
    lag_ms: int | None
    """Age of the last mirrored record if more are to come; 0 without, None if unknown."""
    error: str | None = None

    @property
    def lag(self) -> int:
        """Number of offsets that are not mirrored yet."""
        return max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True)
class Mirrored(Outcome):
    """Outcome of a mirror, or its progress."""

    records: int
    """Records mirrored by this run."""
    bytes: int
    """Sent bytes, after compression."""
    partitions: tuple[MirroredPartition, ...]
    groups: tuple[CarriedGroup, ...] = ()
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Errors that stopped topics or partitions; each names its own."""
    is_dry_run: bool = False

    @property
    def is_ok(self) -> bool:
        """True if nothing stopped."""
        return not self.errors

    @property
    def lag(self) -> int:
        """Number of offsets that are not mirrored yet."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def lag_ms(self) -> int | None:
        """Longest known lag of a partition in milliseconds; None if no lag is known."""
        known = [partition.lag_ms for partition in self.partitions if partition.lag_ms is not None]
        return max(known, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the members, by their names on the command line."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "lag": self.lag,
            "lag_ms": self.lag_ms,
            "dry_run": self.is_dry_run,
            "partitions": [
                {**asdict(partition), "lag": partition.lag} for partition in self.partitions
            ],
            "groups": [asdict(group) for group in self.groups],
            "notes": list(self.notes),
            "errors": list(self.errors),
        }

    def lines(self) -> Iterator[Shown]:
        """Yield the partitions with their lags, the groups, notes and errors, and a summary."""
        columns = ("behind", "lag"), ("lag", lambda partition: age_text(partition.lag_ms))
        yield Table(
            self.partitions, "topic", "partition", "target", "records", "offset", "end", *columns
        )
        for group in self.groups:
            carried = f"{group.partitions} committed offsets carried over"
            sentences = [carried] if group.partitions or not group.note else []
            sentences += [group.note] if group.note else []
            yield f"group {group.group}: {'; '.join(sentences)}"
        yield from (f"note: {note}" for note in self.notes)
        yield from (Aside(f"error: {error}") for error in self.errors)
        count = len(self.errors)
        if self.is_dry_run:
            refused = f", {count} refused" if count else ""
            yield f"A run would read {self.lag} offsets{refused}; nothing was changed."
            return
        ends = [f"{count} error{'s' * (count > 1)}"] if count else []
        if self.partitions or not count:
            ends.append(f"{self.lag} offsets behind")
        yield f"Mirrored {self.records} records ({size(self.bytes)}); {', '.join(ends)}."


def age_text(lag_ms: int | None) -> str:
    """Format a lag in seconds."""
    return "-" if lag_ms is None else f"{lag_ms / 1000:.1f} s"


@dataclass(frozen=True, slots=True)
class Control:
    """Callbacks with which a caller follows a mirror and ends it."""

    on_progress: Callable[[Mirrored], None] = field(default=lambda _: None)
    should_stop: Callable[[], bool] = field(default=lambda: False)
