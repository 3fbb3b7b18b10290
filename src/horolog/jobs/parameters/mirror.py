"""Options of `mirror`, `compare` and `reprocess`."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from horolog.clock import Moment
from horolog.errors import Misconfigured
from horolog.jobs.parameters.option import Hook, Option, command, moment, names, place
from horolog.jobs.parameters.shared import (
    AsOfTime,
    IntoNonempty,
    Keeps,
    Names,
    OfTarget,
    Once,
    PathLike,
    Progress,
    Reads,
    Rename,
    Settings,
    Target,
    no_progress,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from horolog.jobs.mirroring.report import Control


def _function(named: str) -> Any:
    """Return the function that `MODULE:FUNCTION` names.

    Raises:
        Misconfigured: the module or the function does not exist.
    """
    module, colon, name = named.partition(":")
    if not (module and colon and name):
        raise Misconfigured(f"--foreach-batch {named}: write MODULE:FUNCTION")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise Misconfigured(f"--foreach-batch {named}: {error}") from None
    if not callable(function):
        raise Misconfigured(f"--foreach-batch {named}: it is no function")
    return function


Controlled = Annotated["Control | None", Hook("How the caller follows the job and ends it.")]


@command(
    "mirror", "mirroring", "Mirror topics into another cluster or a directory.", counts="records"
)
@dataclass(frozen=True, kw_only=True)
class Mirror(Keeps, Reads):
    """Mirror topics into another cluster or a log directory, until Ctrl-C, or once.

    Topics are created with their partitions and settings. Create times are kept, append times are
    the target's; a log directory gets the same offsets, bytes and append times. Run it again with
    the same --state after a kill: no record is lost or doubled.

    horolog spark mirror --source east:9092 --target west:9092 --topics clicks --state ./mirror
    """

    target: Target
    rename: Rename = None
    groups: Annotated[
        Names,
        Option(
            "Carry over the committed offsets of these groups, as offsets of the target.",
            metavar="NAME,NAME",
        ),
    ] = None
    groups_pattern: Annotated[
        str | None,
        Option(
            "Carry over those of groups whose whole name matches a regular expression, in RE2's "
            "syntax.",
            metavar="RE",
        ),
    ] = None
    once: Once = True
    until: Annotated[
        AsOfTime,
        Option(
            "Mirror what was appended before this time, or up to a cut (horolog cut), and stop "
            "there.",
            metavar="TIME|FILE",
        ),
    ] = None
    batch_bytes: Annotated[
        int | None,
        Option(
            "Send small successive batches of a partition as one of up to this many bytes before "
            "compression; 0 leaves each as it is, which takes several times longer. By default "
            "524288, and compressed batches stay as they are.",
            metavar="BYTES",
        ),
    ] = None
    replace_create_times: Annotated[
        bool,
        Option("Mirror into topics of LogAppendTime, which replace the records' create times."),
    ] = False
    skip_lost: Annotated[
        bool, Option("Go on behind records that the source has deleted before they were mirrored.")
    ] = False
    into_nonempty: IntoNonempty = False
    topic_settings: Annotated[
        Settings,
        Option(
            "A setting of topics that are created, instead of the source's; NAME= leaves it to the "
            "target.",
            metavar="NAME=VALUE",
            flag="--topic-set",
        ),
    ] = None
    target_settings: OfTarget = field(default=None, repr=False)
    control: Controlled = None

    @property
    def has_groups(self) -> bool:
        """True if committed offsets are to be carried over."""
        return bool(names(self.groups)) or self.groups_pattern is not None


@command("compare", "comparing", "Prove that two topics hold the same records.", counts="records")
@dataclass(frozen=True, kw_only=True)
class Compare(Reads):
    """Compare topics record by record, and show the first difference of each partition.

    The exit code is 1 if records differ. Offsets have to be equal, unless a mirror maps them. For
    compacted topics --latest compares what every compaction keeps.

    horolog spark compare --source east:9092 --target ./copy --topics clicks
    """

    target: Annotated[
        PathLike,
        Option("Compare with this broker, or with these segment files.", metavar="HOST:PORT|PATH"),
    ]
    rename: Rename = None
    mirror_state: Annotated[
        PathLike | None,
        Option(
            "The state directory of a mirror: compare what it has mirrored, by its map of offsets "
            "and names.",
            metavar="DIR",
        ),
    ] = None
    fields: Annotated[
        Names,
        Option(
            "What has to be equal: key, value, headers, time, and type (of the timestamp).",
            metavar="NAME,NAME",
        ),
    ] = "key,value,headers,time"
    ignore_offsets: Annotated[bool, Option("The order of records counts, not their offsets.")] = (
        False
    )
    as_of: Annotated[
        AsOfTime,
        Option(
            "Compare what was appended at the source before this time, or up to a cut (horolog "
            "cut), with the same offsets of the target, or with what a mirror made of them.",
            metavar="TIME|FILE",
        ),
    ] = None
    latest: Annotated[
        bool,
        Option(
            "Compare the latest record of each key, not all records: for topics that are "
            "compacted. A key that was deleted counts as one that is not there."
        ),
    ] = False
    target_settings: OfTarget = field(default=None, repr=False)
    on_progress: Progress = no_progress


@command("reprocess", "reprocessing", "Give the records since a time to a sink.", counts="records")
@dataclass(frozen=True, kw_only=True)
class Reprocess(Keeps, Reads):
    """Give exactly the records at or after a time to a sink, late ones included.

    Runs until Ctrl-C, or with --once up to the present ends of the logs. Run it again with the same
    --state after a kill: topics and tables get each record once. --dry-run counts the records; its
    exit code is 1 if the sink would refuse a run. With --state it knows what earlier runs began.

    horolog spark reprocess --source east:9092 --topics clicks --from -3d --table ./t --state ./s
    """

    from_: Annotated[
        Moment, Option("Records at or after this time.", metavar="TIME", pin=moment)
    ] = field()
    target: Annotated[
        PathLike | None,
        Option(
            "Into topics of this cluster or log directory, as `horolog spark mirror` does it.",
            metavar="HOST:PORT|PATH",
        ),
    ] = None
    rename: Rename = None
    into_nonempty: IntoNonempty = False
    table: Annotated[
        PathLike | None, Option("Or into Parquet files there.", metavar="PATH", pin=place)
    ] = None
    each_batch: Annotated[
        'Callable[["DataFrame", int], None] | None',
        Option(
            "Or to a function of a DataFrame and the number of the micro-batch, from a module in "
            "the current directory or installed.",
            metavar="MODULE:FUNCTION",
            flag="--foreach-batch",
            parse=_function,
        ),
    ] = None
    transform: Annotated[
        'Callable[["DataFrame"], "DataFrame"] | None',
        Hook("Of the streaming DataFrame, before table or function: aggregates, say."),
    ] = None
    output_mode: Annotated[
        str, Hook("Of the stream that comes of it: append, update or complete.")
    ] = "append"
    once: Once = True
    target_settings: OfTarget = field(default=None, repr=False)
    control: Controlled = None
