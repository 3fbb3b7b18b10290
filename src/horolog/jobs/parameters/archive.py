"""Options of `archive` and `restore`."""

from dataclasses import dataclass, field
from typing import Annotated, Final

from horolog.errors import Misconfigured
from horolog.jobs.parameters.option import Hook, Option, command, location, place, window
from horolog.jobs.parameters.shared import (
    AsOfTime,
    Chooses,
    DryRun,
    Keeps,
    OfStores,
    PathLike,
    Progress,
    no_progress,
)

TARGET_BYTES: Final = 128 << 20
GRACE_MS: Final = 24 * 3_600_000
COMPLETE_TIMEOUT_MS: Final = 30_000


def require_target_bytes(target_bytes: int) -> None:
    """Refuse a target size of files below a megabyte.

    Raises:
        Misconfigured: the size is below a megabyte.
    """
    if target_bytes < 1 << 20:
        raise Misconfigured(f"target size {target_bytes} is below a megabyte: files would be tiny")


ArchivePlace = Annotated[
    PathLike,
    Option(
        "The archive: a directory that all workers see, or a URI in an object store.",
        metavar="PATH|URI",
        pin=place,
    ),
]
TargetBytes = Annotated[
    int,
    Option(
        "Begin another file of an hour where one has reached this size in megabytes.",
        flag="--target-size",
        metavar="MB",
        minimum=1,
        scale=1 << 20,
        in_python="a file of an hour that has reached this many bytes is closed.",
    ),
]
RemoveUnreferenced = Annotated[
    bool,
    Option(
        "With --check: remove files that the manifest does not name and that are older than a day, "
        "of killed runs and of merges."
    ),
]


@dataclass(frozen=True, kw_only=True)
class Archive(Keeps, Chooses):
    """Options of `archive` as a function."""

    archive: ArchivePlace
    source: Annotated[
        PathLike | None,
        Option(
            "Archive what this broker has (horolog or Apache Kafka), or these segment files.",
            metavar="HOST:PORT|PATH",
            pin=location,
        ),
    ] = None
    window: Annotated[
        str | None,
        Option(
            "Records with times outside of it get a partition of their own, date=outside; records "
            "without a time are in date=untimed.",
            metavar="FROM..TO",
            pin=window,
        ),
    ] = None
    as_of: Annotated[
        AsOfTime,
        Option(
            "Archive what was appended before this time, or up to a cut, of every topic.",
            metavar="TIME|FILE",
        ),
    ] = None
    complete: Annotated[
        bool,
        Option("Archive only once no record before --to can come any more (horolog only)."),
    ] = False
    complete_timeout_ms: Annotated[
        int,
        Option("How long --complete waits for that.", flag="--complete-timeout", is_duration=True),
    ] = COMPLETE_TIMEOUT_MS
    target_bytes: TargetBytes = TARGET_BYTES
    accept_gaps: Annotated[
        bool,
        Option("Go on behind records that the source deleted before they were archived."),
    ] = False
    on_progress: Progress = no_progress


@command("archive", "archives.archiving", "Archive topics as Parquet, by date and hour.")
@dataclass(frozen=True, kw_only=True)
class ArchiveCommand(Archive):
    """Archive topics as Parquet files by date and hour of their records' times, in UTC.

    Committed records only, from where the archive ends to where the logs end: run it again, with
    the same --state, for what came since, or after a kill. The archive's manifest alone decides
    what is in it; it has counts and checksums of every range of offsets. Files keep offsets, both
    times, headers and the headers of batches, so that `horolog spark restore` makes the same log.
    """

    check: Annotated[
        bool,
        Option(
            "Compare all files of the archive with its manifest, and list those that it does not "
            "name; archive nothing."
        ),
    ] = False
    remove_unreferenced: RemoveUnreferenced = False
    merge: Annotated[
        bool,
        Option(
            "Merge small files of each hour up to the target size; archive nothing. Old files stay "
            "for a day for readers that have them open, see --remove-unreferenced."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class CheckArchive:
    """Options of `archive --check` as a function."""

    archive: ArchivePlace
    settings: OfStores = field(default=None, repr=False)
    remove_unreferenced: RemoveUnreferenced = False
    grace_ms: Annotated[
        int,
        Hook(
            "But not those that were changed later than so long ago, by the clock of the store: a "
            "run may be about to name them, or a reader may read them."
        ),
    ] = GRACE_MS
    on_progress: Progress = no_progress


@dataclass(frozen=True, kw_only=True)
class MergeArchive:
    """Options of `archive --merge` as a function."""

    archive: ArchivePlace
    settings: OfStores = field(default=None, repr=False)
    target_bytes: TargetBytes = TARGET_BYTES
    dry_run: DryRun = False
    on_progress: Progress = no_progress


@dataclass(frozen=True, kw_only=True)
class ArchiveView(Chooses):
    """Options of `archived` as a function."""

    archive: ArchivePlace
    source: Annotated[
        PathLike | None,
        Option(
            "The log that is archived there, as `archive` took it; None for the archive alone.",
            metavar="HOST:PORT|PATH",
        ),
    ] = None


@command("restore", "archives.restoring", "Restore the logs of an archive.", counts="records")
@dataclass(frozen=True, kw_only=True)
class Restore(Keeps, Chooses):
    """Restore the logs of an archive: the same records at the same offsets and times.

    Each segment is written, read again and compared with the checksums of the manifest before its
    partition appears in the target, as a whole. Run it again with the same --state after a kill. A
    partition that is there already is refused. The broker that is started on the target then adopts
    its topics, so that nothing expires until they are given settings.
    """

    archive: ArchivePlace
    target: Annotated[
        PathLike,
        Option(
            "The log directory to restore to, new or of a broker that is stopped; all workers have "
            "to see it.",
            metavar="PATH",
            pin=place,
        ),
    ]
    on_progress: Progress = no_progress
