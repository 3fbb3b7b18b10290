"""What a record's timestamp means (KIP-32)."""

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

NO_TIMESTAMP: Final = -1
"""The timestamp of a record that has none."""
NO_TIMESTAMP_TYPE: Final = -1
"""The type of the timestamps of format v0, which has none (Kafka's NoTimestampType)."""


class TimestampType(IntEnum):
    """Whose time a record carries; the numbers are those of attribute bit 3."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def kafka_name(self) -> str:
        """The value of `message.timestamp.type`."""
        return "LogAppendTime" if self else "CreateTime"


# To be compared with where each batch passes: to look a member up in its enumeration takes longer
# in Python 3.11 than most of what is done with it.
CREATE_TIME: Final = TimestampType.CREATE_TIME
LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class RecordClock(StrEnum):
    """Whose time a record is found by."""

    CREATE = "create"
    """Its producer's, as the record carries it."""
    APPEND = "append"
    """Its broker's, when it was appended."""


class AppendTimeStretch(NamedTuple):
    """Records from `offset` on, up to the next stretch, that have one append time."""

    offset: int
    ms: int | None
    """Milliseconds since the epoch; None where it is not known."""
