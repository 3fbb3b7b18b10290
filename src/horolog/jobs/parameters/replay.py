"""Options of `replay`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from horolog.jobs.parameters.option import Hook, Option, as_given, command, location, unordered
from horolog.jobs.parameters.shared import Compression, Keeps, Names, PathLike, Reads, Settings

if TYPE_CHECKING:
    from horolog.jobs.replaying.sending import ReplayProgress


def _no_progress(progress: "ReplayProgress", total: int) -> None:
    """Show nothing."""


@command("replay", "replaying")
@dataclass(frozen=True, kw_only=True)
class Replay(Keeps, Reads):
    """Send the records of several partitions on in time order, at their recorded pace.

    Records are sent in the order of their times, with --clock append of their append times, which
    horolog keeps: over all partitions and inside them, late ones included. Those of the same time
    come by partition and offset. The replay ends where the logs ended at its start. Only committed
    records of transactions are sent.

    With --state records are sent in transactions. After Ctrl-C or a kill the same command with the
    same --state continues up to the same end, and readers of committed records see each record
    once. Run again after that, it sends what was appended since.

    horolog replay --source ./log --topics clicks --target 127.0.0.1:9092 --speed 60 --shift-times
    """

    target: Annotated[str, Option("Send to this broker.", metavar="HOST:PORT", pin=location)]
    topics: Annotated[
        Names,
        Option(
            "The topics to replay; of files all, by default.", metavar="NAME,NAME", pin=unordered
        ),
    ] = None
    to_topic: Annotated[
        str | None,
        Option(
            "Send all to this topic; by default to topics of the same names.",
            metavar="TOPIC",
            pin=as_given,
        ),
    ] = None
    speed: Annotated[
        str | float,
        Option("Times the recorded pace; max does not wait.", metavar="FACTOR|max"),
    ] = "1"
    max_gap_ms: Annotated[
        int | None,
        Option(
            "Cut longer intervals without any record to this, as recorded: 1m.",
            flag="--max-gap",
            is_duration=True,
        ),
    ] = None
    clock: Annotated[
        str | None,
        Option(
            "Whose time counts: the record's own (create, the default), or when the broker "
            "appended it (append; at brokers of Apache Kafka of LogAppendTime topics only).",
            choices=("create", "append"),
            pin=lambda given: given or "create",
        ),
    ] = None
    without_time: Annotated[
        str,
        Option(
            "Records without a time, which are sent at once: last, first, or refuse them.",
            choices=("last", "first", "refuse"),
            pin=as_given,
        ),
    ] = "last"
    order_memory: Annotated[
        str | int,
        Option(
            "How much of records that overlap in time may be held; in Python also a number of "
            "bytes.",
            metavar="SIZE",
        ),
    ] = "256MiB"
    shift_times: Annotated[
        bool,
        Option("Give each record the time at which it is sent; by default it keeps its own."),
    ] = False
    by_key: Annotated[
        bool,
        Option(
            "Partitions by the keys (murmur2), as for a target that has another number of them; by "
            "default each record keeps its partition.",
            pin=as_given,
        ),
    ] = False
    compression: Compression = "none"
    state: Annotated[
        PathLike | None,
        Option("Keep here how far the replay is; the same command continues there.", metavar="DIR"),
    ] = None
    dry_run: Annotated[bool, Option("Send nothing; say what would be sent.")] = False
    settings: Annotated[
        Settings,
        Option(
            "A client property of the source, as kafka.security.protocol=SSL; repeatable.",
            metavar="NAME=VALUE",
            flag="--set",
            is_last=True,
        ),
    ] = field(default=None, repr=False)
    target_settings: Annotated[
        Settings,
        Option(
            "A client property of the target; repeatable.",
            metavar="NAME=VALUE",
            flag="--target-set",
            is_last=True,
        ),
    ] = field(default=None, repr=False)
    on_progress: Annotated[
        Callable[["ReplayProgress", int], None],
        Hook("Is called with how far it is, and of how many offsets."),
    ] = field(default=_no_progress)
