"""Columns of a read: those of Spark's Kafka source, `timestampMs`, producers and clocks.

`timestamp` is null where Spark, Python or pandas would fail on it: for Kafka's -1,
and outside the years 1 to 9999. The first and the last day of those are left out
too: `collect()` shifts a time into the local zone and `window()` rounds it up, and
either would leave the range and end the query. `timestampMs` is always exact.
"""

from collections.abc import Sequence

from horolog.errors import Misconfigured

KEY = "key"
VALUE = "value"
TOPIC = "topic"
PARTITION = "partition"
OFFSET = "offset"
TIMESTAMP = "timestamp"
TIMESTAMP_TYPE = "timestampType"
HEADERS = "headers"
TIMESTAMP_MS = "timestampMs"
PRODUCER_ID = "producerId"
PRODUCER_EPOCH = "producerEpoch"
SEQUENCE = "sequence"
APPEND_TIME = "appendTime"
APPEND_TIME_MS = "appendTimeMs"
CREATE_TIME = "createTime"
CREATE_TIME_MS = "createTimeMs"
SEEN_TIME = "seenTime"
SEEN_TIME_MS = "seenTimeMs"
OF_CLOCKS = (APPEND_TIME, APPEND_TIME_MS, CREATE_TIME, CREATE_TIME_MS)
LATE_BY_MS = "lateByMs"
COMPLETE_UNTIL = "completeUntil"
OF_SEEN = (SEEN_TIME, SEEN_TIME_MS)
OF_STREAMS = {LATE_BY_MS: "includeLateness", COMPLETE_UNTIL: "includeCompleteUntil"}
"""Columns that only streams have, and the options that include them."""
OF_PRODUCER = (PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE)

# In the order in which a read has them by default; types as Spark's DDL writes them.
TYPES = {
    KEY: "binary",
    VALUE: "binary",
    TOPIC: "string",
    PARTITION: "int",
    OFFSET: "bigint",
    TIMESTAMP: "timestamp",
    TIMESTAMP_TYPE: "int",
    HEADERS: "array<struct<key:string,value:binary>>",
    TIMESTAMP_MS: "bigint",
    PRODUCER_ID: "bigint",
    PRODUCER_EPOCH: "int",
    SEQUENCE: "int",
    APPEND_TIME: "timestamp",
    APPEND_TIME_MS: "bigint",
    CREATE_TIME: "timestamp",
    CREATE_TIME_MS: "bigint",
    SEEN_TIME: "timestamp",
    SEEN_TIME_MS: "bigint",
    LATE_BY_MS: "bigint",
    COMPLETE_UNTIL: "timestamp",
}

FIRST_TIMESTAMP_MS = -62_135_510_400_000  # 0001-01-02T00:00:00Z
LAST_TIMESTAMP_MS = 253_402_214_399_999  # 9999-12-30T23:59:59.999Z


INCLUDED_BY = {
    "includeHeaders": (HEADERS,),
    "includeTimestampMs": (TIMESTAMP_MS,),
    "includeProducer": OF_PRODUCER,
    "includeAppendTime": OF_CLOCKS,
    "includeSeenTime": OF_SEEN,
    "includeLateness": (LATE_BY_MS,),
    "includeCompleteUntil": (COMPLETE_UNTIL,),
}
"""Columns that a read has only if an option asks for them."""


def default_columns(*included: str) -> tuple[str, ...]:
    """Return the columns of a read that names none, with those that options include."""
    left_out = {
        name for option, its in INCLUDED_BY.items() if option not in included for name in its
    }
    return tuple(name for name in TYPES if name not in left_out)


def named_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of option `columns`, in that order; names ignore case.

    Raises:
        Misconfigured: a name is unknown or comes twice.
    """
    by_lower_case = {name.lower(): name for name in TYPES}
    found: list[str] = []
    for name in names:
        column = by_lower_case.get(name.lower())
        if column is None:
            raise Misconfigured(
                f"Option 'columns': there is no column '{name}'; there are {', '.join(TYPES)}"
            )
        if column in found:
            raise Misconfigured(f"Option 'columns' names '{column}' twice")
        found.append(column)
    return tuple(found)


def check_schema(fields: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the columns that a user's schema selects; `fields` are names and types.

    Raises:
        Misconfigured: a name or a type that the log does not have. Left to itself,
            Spark would end the query with an error about Arrow buffers.
    """
    for name, kind in fields:
        if name not in TYPES:
            close = [column for column in TYPES if column.lower() == name.lower()]
            hint = f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(TYPES)}"
            raise Misconfigured(f"The schema has a column '{name}' that the log has not{hint}")
        if kind != TYPES[name]:
            raise Misconfigured(
                f"The schema gives column '{name}' the type {kind}; it is {TYPES[name]} "
                "(read it so, and cast afterwards)"
            )
    names = tuple(name for name, _ in fields)
    if not names or len(set(names)) < len(names):
        raise Misconfigured("The schema has to name at least one column, and none twice")
    return names
