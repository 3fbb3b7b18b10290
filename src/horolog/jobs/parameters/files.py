"""Options of `index` and `convert`."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Self

from horolog.jobs.parameters.option import Option, as_given, command, places
from horolog.jobs.parameters.shared import (
    Keeps,
    Names,
    OfStores,
    Progress,
    no_progress,
)

FORMATS: Final = ("v0", "v1", "v2")
OLD_CODECS: Final = ("none", "gzip", "snappy", "lz4")
"""Codecs of the formats v0 and v1."""
INTERVAL_BYTES: Final = 4_096
"""Default of index.interval.bytes."""

Paths = Annotated[
    str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    Option(
        "Log directories, partition directories, .log files, or URIs of an object store.",
        metavar="PATH...",
        is_argument=True,
        pin=places,
    ),
]
# What a run has done of one topic stays done in a run of another one.
OfTopics = Annotated[Names, Option("The topics to read.", metavar="NAME,NAME", flag="--topics")]
OfTopicsPattern = Annotated[
    str | None,
    Option(
        "Read the topics whose whole name matches a regular expression, in RE2's syntax.",
        metavar="RE",
    ),
]


@dataclass(frozen=True, kw_only=True)
class OnFiles(Keeps):
    """Options of a job on segment files."""

    paths: Paths = field(kw_only=False)
    topics: OfTopics = None
    topics_pattern: OfTopicsPattern = None
    on_progress: Progress = no_progress

    def for_tasks(self) -> Self:
        """Return the options that tasks need, which can be pickled whatever was given."""
        return replace(self, paths=(), topics=None, on_progress=no_progress)


@command("index", "files.index", "Verify or rebuild indexes of many partitions.", counts="bytes")
@dataclass(frozen=True, kw_only=True)
class Index(OnFiles):
    """Verify every byte of logs, or rebuild their indexes, many segments at a time.

    Without --rebuild it makes the checks of `horolog log verify` and writes nothing. It works while
    brokers run, on directories of horolog and Apache Kafka, on disks and in object stores
    (s3a://...). With --rebuild it does what `horolog log reindex` does: each new index is compared
    with the log before it replaces the old one, and no .log is changed. Brokers of the directories
    must be stopped: their locks are held. These are locks of this machine, and do not stop a broker
    of another machine that mounts the same disk. All executors must see the paths.

    With --state a killed run is continued, and unchanged segments are not read again; --rebuild
    needs it. The exit code is 1 if something is wrong, or was left wrong.
    """

    rebuild: Annotated[
        bool, Option("Rebuild indexes and block maps that are missing or wrong.", pin=as_given)
    ] = False
    rebuild_all: Annotated[
        bool, Option("Also rebuild those that are correct.", flag="--all", pin=as_given)
    ] = False
    interval_bytes: Annotated[
        int,
        Option(
            "The topic's index.interval.bytes: bytes of log between two entries.",
            flag="--index-interval-bytes",
            metavar="BYTES",
            minimum=0,
            pin=as_given,
        ),
    ] = INTERVAL_BYTES
    settings: OfStores = field(default=None, repr=False)

    @property
    def rebuilds(self) -> bool:
        """True if indexes are rebuilt; otherwise everything is verified."""
        return self.rebuild or self.rebuild_all

    @property
    def what(self) -> str:
        """Name of the work."""
        return "rebuild" if self.rebuilds else "verify"

    @property
    def writes(self) -> bool:
        """True if the run needs a state directory."""
        return self.rebuilds and not self.dry_run


@command("convert", "files.convert", "Rewrite many partitions in another format.", counts="bytes")
@dataclass(frozen=True, kw_only=True)
class Convert(OnFiles):
    """Rewrite logs in another record format, many segments at a time.

    Does what `horolog log convert` does: each segment is rewritten, read back, and compared record
    for record before it replaces the old one. It may be killed at any time: run it again with the
    same --state. Offsets, codecs and modification times stay. Fields that the format cannot store
    are counted. Segments whose meaning would change are refused. Brokers of the directories must be
    stopped: their locks are held. These are locks of this machine, and do not stop a broker of
    another machine that mounts the same disk. All executors must see the paths; each task needs
    room for a copy of its segment.

    The exit code is 1 if a segment was refused.
    """

    to: Annotated[str, Option("The record format to write.", choices=FORMATS, pin=as_given)]
    zstd_as: Annotated[
        str | None,
        Option(
            "What v0 and v1 are compressed with where v2 is with zstd, which came with v2. Without "
            "it such segments are left as they are.",
            choices=OLD_CODECS,
            pin=as_given,
        ),
    ] = None
    interval_bytes: Annotated[
        int,
        Option(
            "The topic's index.interval.bytes: bytes of log between two entries.",
            flag="--index-interval-bytes",
            metavar="BYTES",
            minimum=0,
        ),
    ] = INTERVAL_BYTES

    @property
    def what(self) -> str:
        """Name of the work."""
        return f"convert to {self.to}"

    @property
    def writes(self) -> bool:
        """True if the run needs a state directory."""
        return not self.dry_run
