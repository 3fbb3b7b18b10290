"""Options of `audit` and `latency`."""

import threading
from dataclasses import dataclass, field
from typing import Annotated, Final

from horolog.jobs.parameters.option import Hook, Option, command
from horolog.jobs.parameters.shared import (
    OfStores,
    OfTarget,
    PathLike,
    Progress,
    Reads,
    Source,
    Topics,
    TopicsPattern,
    no_progress,
)

DEFAULT_AFTER_MAX_MS: Final = 3_600_000
"""Default bound of Kafka 4 and horolog on times ahead of the clock (KIP-1030)."""
EVERY_MS: Final = 10_000

BeforeMax = Annotated[
    int | None,
    Option(
        "Times more than this before the append time (unknown: before now) are past, as "
        "message.timestamp.before.max.ms would have it; by default none is.",
        flag="--before-max",
        is_duration=True,
    ),
]
AfterMax = Annotated[
    int,
    Option(
        "Times more than this after the append time (unknown: after now) are future, as "
        "message.timestamp.after.max.ms would have it.",
        flag="--after-max",
        is_duration=True,
    ),
]
Every = Annotated[
    int, Option("How long a window of --follow lasts.", flag="--every", is_duration=True)
]


@dataclass(frozen=True, kw_only=True)
class Audit(Reads):
    """Options of `audit` as a function."""

    before_max_ms: BeforeMax = None
    after_max_ms: AfterMax = DEFAULT_AFTER_MAX_MS
    on_progress: Progress = no_progress


@command("audit", "questions.audit", "Find wrong times, and bounds that refuse them.")
@dataclass(frozen=True, kw_only=True)
class AuditCommand(Audit):
    """Find wrong times: in the future or past, in another unit, missing, out of order.

    Counts wrong times by topic, partition, producer id and hour, and suggests bounds with the
    records that they would have refused (KIP-937). Client ids of producers are known from horolog
    brokers that have heard them since the start. Create times are compared with append times in
    horolog's logs and LogAppendTime topics. In other logs they are compared with now, and the
    result says so. The exit code is 1 if times are in the future, in the past, or in another unit.

    With --follow it prints a line for each topic in each window, or with --json a line of JSON for
    each window, and ends with the sums of all.
    """

    follow: Annotated[
        bool,
        Option("Audit what is appended from now on, window by window, until Ctrl-C or SIGTERM."),
    ] = False
    every_ms: Every = EVERY_MS
    for_ms: Annotated[
        int | None,
        Option("End --follow after so long, as Ctrl-C would.", flag="--for", is_duration=True),
    ] = None


@dataclass(frozen=True, kw_only=True)
class FollowAudit:
    """Options of `audit --follow` as a function."""

    source: Source
    topics: Topics = None
    topics_pattern: TopicsPattern = None
    settings: OfStores = field(default=None, repr=False)
    before_max_ms: BeforeMax = None
    after_max_ms: AfterMax = DEFAULT_AFTER_MAX_MS
    every_ms: Every = EVERY_MS
    stop: Annotated[
        threading.Event | None, Hook("Ends the last window; without it, close the iterator.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Latency(Reads):
    """Options of `latency` as a function."""

    live_ms: Annotated[
        int | None,
        Option(
            "Read what is appended for so long, and measure this machine's clock minus create "
            "time: for topics whose log keeps one time only.",
            flag="--live",
            is_duration=True,
        ),
    ] = None
    mirror_state: Annotated[
        PathLike | None,
        Option(
            "The state directory of a mirror of the source: measure its hop, too, from the "
            "source's append times to the target's.",
            metavar="DIR",
        ),
    ] = None
    target: Annotated[
        PathLike | None,
        Option("The broker that it mirrors to.", metavar="HOST:PORT"),
    ] = None
    target_settings: OfTarget = field(default=None, repr=False)
    on_progress: Progress = no_progress


@command("latency", "questions.latency", "Measure how long records take to the log.")
@dataclass(frozen=True, kw_only=True)
class LatencyCommand(Latency):
    """Measure append time minus create time: count, percentiles and extremes, in milliseconds.

    Shows them by topic and hour of append time; they are below zero where clocks differ (KIP-33,
    use case 5). The log has to know both times, as horolog's logs and LogAppendTime topics do, also
    Apache Kafka's. The exit code is 1 if nothing could be measured in a topic with records.
    """

    pictures: Annotated[
        PathLike | None,
        Option(
            "Draw the percentiles of each topic's hours into this directory, as PNG.",
            metavar="DIR",
        ),
    ] = None
