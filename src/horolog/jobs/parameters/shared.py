"""Options that many jobs share, with their help."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Union

from horolog.clock import Moment
from horolog.errors import Misconfigured
from horolog.jobs.parameters.option import (
    Hook,
    Option,
    as_given,
    codec,
    location,
    moment,
    unordered,
)
from horolog.record.compression import Codec

if TYPE_CHECKING:
    from horolog.sources.cut_files import Cut

PathLike = str | os.PathLike[str]
Names = str | Iterable[str] | None
Settings = Mapping[str, str] | None
AsOfTime = Union["Cut", Moment, os.PathLike[str], None]
"""An append time, a cut, or the file of one."""
OnProgress = Callable[[int, int], None]
"""Callback with how much is done, and of how much."""

Source = Annotated[
    PathLike,
    Option(
        "Read from this broker (horolog or Apache Kafka), or from these segment files.",
        metavar="HOST:PORT|PATH",
        pin=location,
    ),
]
Topics = Annotated[Names, Option("The topics to read.", metavar="NAME,NAME", pin=unordered)]
TopicsPattern = Annotated[
    str | None,
    Option(
        "Read the topics whose whole name matches a regular expression, in RE2's syntax.",
        metavar="RE",
        pin=as_given,
    ),
]
From = Annotated[
    Moment | None, Option("Only records at or after this time.", metavar="TIME", pin=moment)
]
To = Annotated[Moment | None, Option("Only records before this time.", metavar="TIME", pin=moment)]
OfStores = Annotated[
    Settings,
    Option(
        "A setting of the clients or stores, as kafka.security.protocol=SSL; repeat for more.",
        metavar="NAME=VALUE",
        flag="--set",
        is_last=True,
    ),
]
State = Annotated[
    PathLike | None,
    Option(
        "Where the job keeps what it has done; run it again with the same directory after a kill. "
        "Needed unless --dry-run is given.",
        metavar="DIR",
    ),
]
DryRun = Annotated[bool, Option("Write nothing; say what would happen, and what be refused.")]
Target = Annotated[
    PathLike,
    Option(
        "Write to this broker, or to this directory of segment files.",
        metavar="HOST:PORT|PATH",
        pin=location,
    ),
]
OfTarget = Annotated[
    Settings,
    Option(
        "A setting of the target's clients, as kafka.security.protocol=SSL; repeat for more.",
        metavar="NAME=VALUE",
        flag="--target-set",
        is_last=True,
    ),
]
Rename = Annotated[
    str | None,
    Option(
        r"Rename topics whose whole name matches: '(.*)=west.\1'.",
        metavar="PATTERN=REPL",
        pin=as_given,
    ),
]
Once = Annotated[bool, Option("Stop at the ends that the logs have at the start.")]
IntoNonempty = Annotated[
    bool,
    Option(
        "Append to a topic that holds records of which --state knows nothing. Without it such a "
        "topic is refused: after a state was lost, all would come twice."
    ),
]
Compression = Annotated[str, Option("none, gzip, snappy, lz4, zstd.", metavar="CODEC", pin=codec)]
Progress = Annotated[OnProgress, Hook("Is called with how much is done, and of how much.")]


def codec_of(compression: str) -> Codec:
    """Return the codec of a name.

    Raises:
        Misconfigured: no codec has this name.
    """
    if compression.upper() not in Codec.__members__:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise Misconfigured(f"compression is {compression}: there are {known}")
    return Codec[compression.upper()]


def no_progress(done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, kw_only=True)
class Chooses:
    """Options that choose topics and a range of time."""

    topics: Topics = None
    topics_pattern: TopicsPattern = None
    from_: From = None
    to: To = None
    settings: OfStores = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Reads(Chooses):
    """Options of a job that reads a log."""

    source: Source


@dataclass(frozen=True, kw_only=True)
class Keeps:
    """Options of a job that keeps its progress in a state directory."""

    state: State = None
    dry_run: DryRun = False

    @property
    def resumable(self) -> PathLike | None:
        """State directory with which the same command continues; None where none is kept."""
        return None if self.dry_run else self.state

    def require_state(self) -> Path:
        """Return the state directory of a run that writes.

        Raises:
            Misconfigured: `--state` is not given.
        """
        if self.state is None:
            raise Misconfigured(
                "give --state DIR, where the job keeps what it has done, or --dry-run"
            )
        return Path(self.state)
