"""What a mirror did, and how far it is behind."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from horolog.jobs.mirroring.groups import CarriedGroup


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """One partition of the source."""

    topic: str
    partition: int
    target: str
    records: int
    """Mirrored by all runs with this state."""
    offset: int
    """Up to which the source is mirrored."""
    end: int
    """Where the source ended when it was last asked."""
    lag_ms: int | None
    """How old the last mirrored record is, if more are to come; 0 if none are, None if unknown."""
    error: str | None = None

    @property
    def lag(self) -> int:
        """How many offsets are to come."""
        return max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What a run did."""

    records: int
    """Mirrored by this run."""
    bytes: int
    """Sent, as they are compressed."""
    partitions: tuple[MirroredPartition, ...]
    groups: tuple[CarriedGroup, ...] = ()
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """What stopped: each names its topic or partition."""
    is_dry_run: bool = False

    @property
    def lag(self) -> int:
        """How many offsets are to come."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def lag_ms(self) -> int | None:
        """The longest lag of a partition."""
        known = [partition.lag_ms for partition in self.partitions if partition.lag_ms is not None]
        return max(known, default=None)

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
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


@dataclass(frozen=True, slots=True)
class Control:
    """How the caller follows a mirror and ends it."""

    on_progress: Callable[[Mirrored], None] = field(default=lambda _: None)
    should_stop: Callable[[], bool] = field(default=lambda: False)
