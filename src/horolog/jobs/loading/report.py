"""What a load did, or would do."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from horolog.jobs.loading.survey import Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapped:
    """What a run did, or would do."""

    topic: str
    partitions: int
    records: int
    """In the table; all are in the topic if `is_ok`, but for a dry run."""
    sent: int = 0
    """By this run: an earlier one may have sent the others."""
    survey: Survey | None = None
    """What was counted beforehand; None where an earlier run did it."""
    problems: tuple[str, ...] = ()
    """What keeps the table from being loaded; nothing was sent."""
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """What stopped partitions; run it again once it is mended."""
    is_dry_run: bool = False
    was_loaded: bool = False
    """An earlier run with this state has loaded all of it; this one did nothing."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """Records by partition."""

    @property
    def is_ok(self) -> bool:
        """Whether all of it is loaded, or could be."""
        return not (self.problems or self.errors)
