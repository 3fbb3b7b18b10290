"""Options of the steps of `failover`."""

from dataclasses import dataclass, field
from typing import Annotated, Final

from horolog.errors import Misconfigured
from horolog.jobs.parameters.option import Option, command, names
from horolog.jobs.parameters.shared import (
    DryRun,
    Names,
    OfStores,
    PathLike,
    Source,
    Target,
    Topics,
    TopicsPattern,
)

MARGIN_MS: Final = 60_000
"""Default margin of bounds: clocks of two clusters differ, and producers may stamp twice."""
LIVE_MS: Final = 30_000


@dataclass(frozen=True, kw_only=True)
class Step:
    """Options of every step of a failover."""

    state: Annotated[
        PathLike,
        Option(
            "Where the recordings and the plan are kept; copy it to where the survivor is.",
            metavar="DIR",
        ),
    ]
    groups: Annotated[Names, Option("Consumer groups.", metavar="NAME,NAME")] = None
    groups_pattern: Annotated[
        str | None,
        Option(
            "Those whose whole name matches a regular expression, in RE2's syntax.", metavar="RE"
        ),
    ] = None
    settings: OfStores = field(default=None, repr=False)

    def given_groups(self) -> list[str]:
        """Return the names of the given groups.

        Raises:
            Misconfigured: names and a pattern are given.
        """
        given = names(self.groups)
        if given and self.groups_pattern is not None:
            raise Misconfigured("give groups or groups-pattern, not both")
        return given


@command("failover record", "failing_over.failover", "Let groups continue in another cluster.")
@dataclass(frozen=True, kw_only=True)
class RecordStep(Step):
    """Record how far groups have read, and how long records take, while the source lives.

    Without --topics it records all topics in which the groups have committed offsets. Record often,
    since groups read again what they have read after the last recording. A recording reads the
    records since the last one, and some near the offsets of groups that have moved. Append times
    tell how long records take. For partitions without known append times the broker is asked for
    its counts (Apache Kafka has none, see --live).
    """

    source: Source
    topics: Topics = None
    topics_pattern: TopicsPattern = None
    live_ms: Annotated[
        int,
        Option(
            "Where neither records nor the broker say how long records took (Apache Kafka), "
            "measure for so long what is appended meanwhile; 0s for not at all.",
            flag="--live",
            is_duration=True,
        ),
    ] = LIVE_MS


@command("failover plan", "failing_over.failover")
@dataclass(frozen=True, kw_only=True)
class PlanStep(Step):
    """Plan where groups start on the survivor; the source is not asked, nothing is committed.

    The exit code is 1 if records could be missing; the plan gives the reasons.
    """

    target: Target
    margin_ms: Annotated[
        int, Option("Added to what records took at most.", flag="--margin", is_duration=True)
    ] = MARGIN_MS
    bound_ms: Annotated[
        int | None,
        Option(
            "What a record takes at most to the source's log, instead of what was recorded.",
            flag="--bound",
            is_duration=True,
        ),
    ] = None
    same_partitions: Annotated[
        bool,
        Option(
            "Producers put a record into the partition of the same number in both clusters (by "
            "key, as many partitions): less is read again."
        ),
    ] = False
    ignore_odd_times: Annotated[
        bool, Option("Let records be lost that have no time, or one in another unit.")
    ] = False


@command("failover apply", "failing_over.failover")
@dataclass(frozen=True, kw_only=True)
class ApplyStep(Step):
    """Commit the plan's offsets at the survivor, group by group.

    Groups that have members are refused, since brokers let only members commit for them: stop them
    first. Run it again after a failure; committed groups are left alone. The exit code is 1 if a
    group is refused.
    """

    target: Target
    dry_run: DryRun = False
    overwrite: Annotated[
        bool,
        Option(
            "Commit for groups, too, that have committed other offsets at the survivor, or that "
            "this plan was applied to before."
        ),
    ] = False
    accept_unproven: Annotated[
        bool,
        Option("Commit for groups, too, of which the plan says that records could be missing."),
    ] = False
