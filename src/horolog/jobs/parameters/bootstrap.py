"""Options of `bootstrap`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from horolog.jobs.parameters.option import Hook, Option, as_given, command, location, names, place
from horolog.jobs.parameters.shared import (
    Compression,
    IntoNonempty,
    Keeps,
    Names,
    OfStores,
    PathLike,
    Settings,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _no_progress(done: int, total: int, what: str) -> None:
    """Show nothing."""


@command("bootstrap", "loading", "Load a table into a topic, with its times.", counts="records")
@dataclass(frozen=True, kw_only=True)
class Bootstrap(Keeps):
    """Load a table into a topic: one record a row, with the time of the row.

    First all rows are counted, and nothing is sent if the topic would refuse some: times outside
    message.timestamp.before.max.ms and after.max.ms, rows without a time, records without a key
    for a compacted topic, a topic of LogAppendTime. If its retention would delete what is about to
    be loaded, a warning says how many records, and how old the oldest is.

    Then the table is read once, and written down as segment files in --stage (as large as the
    records), which are sent. Run it again with the same --state after a kill: no record is lost or
    doubled, at horolog and Apache Kafka. After it has ended, the same --state does nothing. It is
    refused where the topic was deleted since.

    horolog spark bootstrap --table clicks.parquet --target 127.0.0.1:9092 --topic clicks --time at
    --key user --partitions 4 --topic-set retention.ms=-1 --state ./load
    """

    table: Annotated[
        "DataFrame | PathLike",
        Option(
            "The table: a path or URI that Spark reads; with --format jdbc any name.",
            metavar="PATH",
            in_python="a DataFrame, or a path or URI that Spark reads.",
            pin=place,
        ),
    ]
    target: Annotated[
        str, Option("The broker, horolog or Apache Kafka.", metavar="HOST:PORT", pin=location)
    ]
    topic: Annotated[str, Option("The topic to load.", metavar="TOPIC", pin=as_given)]
    format: Annotated[
        str | None,
        Option(
            "parquet (default), csv (a header, types inferred), json, orc, jdbc.",
            metavar="FORMAT",
            pin=as_given,
        ),
    ] = None
    options: Annotated[
        Settings,
        Option(
            "An option of Spark's reader, as url=jdbc:... or dbtable=...; repeat for more.",
            metavar="NAME=VALUE",
            flag="--option",
        ),
    ] = field(default=None, repr=False)
    time: Annotated[
        str | None,
        Option(
            "Record times: a timestamp, a date, or integers with --unit. Old times and times "
            "before 1970 too. Without it records have the time of the load.",
            metavar="COLUMN",
            pin=as_given,
        ),
    ] = None
    unit: Annotated[
        str | None,
        Option(
            "What integers of --time count, from 1970.",
            choices=("s", "ms", "us", "ns"),
            pin=as_given,
        ),
    ] = None
    tz: Annotated[
        str | None, Option("The zone of times without one.", metavar="ZONE", pin=as_given)
    ] = None
    key: Annotated[
        Names,
        Option(
            "One column: its text, or its bytes. Several: a JSON object of them.",
            metavar="COLUMN[,COLUMN]",
            pin=names,
        ),
    ] = None
    value: Annotated[
        str,
        Option(
            "A JSON object, or the text or bytes of one column.",
            choices=("json", "string", "binary"),
            pin=as_given,
        ),
    ] = "json"
    value_columns: Annotated[
        Names,
        Option(
            "Columns of the value; of JSON all by default. A null of string or binary is a "
            "tombstone.",
            metavar="COLUMN[,COLUMN]",
            pin=names,
        ),
    ] = None
    headers: Annotated[
        Settings,
        Option(
            "A header, the text of a column; rows with null there have none. Repeatable.",
            metavar="NAME=COLUMN",
            flag="--header",
            pin=lambda given: list((given or {}).items()),
        ),
    ] = None
    tombstone_when: Annotated[
        str | None,
        Option(
            "Rows that meet this condition become tombstones: records without a value.",
            metavar="SQL",
            pin=as_given,
        ),
    ] = None
    partition_column: Annotated[
        str | None,
        Option(
            "Partition numbers. By default those of Kafka's clients (murmur2 of the key); records "
            "without a key are spread by their values.",
            metavar="COLUMN",
            pin=as_given,
        ),
    ] = None
    order_by: Annotated[
        Names,
        Option(
            "The order of records within a partition; by default that of their times.",
            metavar="COLUMN[,COLUMN]",
            pin=names,
        ),
    ] = None
    compression: Compression = "none"
    partitions: Annotated[
        int | None,
        Option(
            "Create the topic with this number of partitions, if it is not there.",
            metavar="N",
            minimum=1,
        ),
    ] = None
    topic_settings: Annotated[
        Settings,
        Option(
            "A setting of the topic that is created, as retention.ms=-1; repeat for more.",
            metavar="NAME=VALUE",
            flag="--topic-set",
        ),
    ] = None
    replace_create_times: Annotated[
        bool,
        Option("Load into a topic of LogAppendTime, which replaces the times of the records."),
    ] = False
    into_nonempty: IntoNonempty = False
    stage: Annotated[
        PathLike | None,
        Option(
            "Where the records are written before they are sent; shared by all executors. By "
            "default in --state.",
            metavar="DIR",
        ),
    ] = None
    settings: OfStores = field(default=None, repr=False)
    on_progress: Annotated[
        Callable[[int, int, str], None],
        Hook("Is called with how much is done, of how much, and what is done."),
    ] = _no_progress
