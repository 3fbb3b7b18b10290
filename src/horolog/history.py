"""Arguments and results of questions about the past of topics and groups."""

from enum import StrEnum
from typing import Annotated, Final, NamedTuple

MOST_ENTRIES: Final = 1_000
"""In one answer, all its pages together."""

_Most = Annotated[int, range(1, MOST_ENTRIES + 1)]


class KeptLog(NamedTuple):
    """A log that an answer comes from."""

    name: str
    """A partition of one of Kafka's internal topics, or a file of the log directory."""
    whole_from: int | None
    """Since when it has every change, in milliseconds, up to the time that was asked for; None:
    since its beginning. Of earlier times it has what was not replaced since."""
    damage: tuple[str, ...] = ()
    """The parts that could not be read."""


class TopicAspect(StrEnum):
    """Aspect of a topic that has changed."""

    CREATED = "created"
    DELETED = "deleted"
    PARTITIONS = "partitions"
    SETTING = "setting"
    STATE = "state"
    """Facts that Kafka does not have: whether it is adopted, or followed."""


class TopicChange(NamedTuple):
    """One change of a topic."""

    time: int
    """When it was written, in milliseconds."""
    log: str
    topic_id: str
    """As Kafka prints it."""
    aspect: TopicAspect
    name: str | None = None
    """Of the setting or the state."""
    before: str | None = None
    after: str | None = None
    is_earlier: bool = False
    """It was so by then: when it came about is not kept."""


class AskTopicHistory(NamedTuple):
    """How a topic has changed, or what was in force at a time, from one entry on."""

    topic: str
    at: int | None = None
    most: _Most = MOST_ENTRIES
    """At most this number of entries, the last ones."""
    start: int = 0
    end: int | None = None


class TopicHistory(NamedTuple):
    """How a topic has changed, as far back as that is kept."""

    changes: tuple[TopicChange, ...]
    logs: tuple[KeptLog, ...]
    end: int
    """How many changes there are, with those that are left out."""
    next: int | None = None


class GroupAspect(StrEnum):
    """Aspect of a group that has changed."""

    COMMITTED = "committed"
    REMOVED = "removed"
    """A committed offset."""
    GROUP = "group"
    """Its members, after a rebalance."""
    GROUP_REMOVED = "group-removed"


class GroupEvent(NamedTuple):
    """One change of a group."""

    time: int
    """When it was written, and in a transaction when that was committed; milliseconds."""
    log: str
    aspect: GroupAspect
    topic: str | None = None
    partition: int | None = None
    committed: int | None = None
    topic_id: str | None = None
    """As Kafka prints it; None from releases that do not write it."""
    metadata: str | None = None
    generation: int | None = None
    members: int | None = None


class AskGroupHistory(NamedTuple):
    """How a group has changed, or what was in force at a time, from one entry on."""

    at: int | None = None
    topic: str | None = None
    """Only its committed offsets."""
    most: _Most = MOST_ENTRIES
    """At most this number of entries, the last ones; those at a time are in order of partitions."""
    start: int = 0
    end: int | None = None
    since: int | None = None
    """The offset from which the log is read, as an answer has it; None: of a first question as far
    back as it needs, else from the beginning."""


class GroupHistory(NamedTuple):
    """Commits and changes of a group, as far back as the log keeps them."""

    events: tuple[GroupEvent, ...]
    logs: tuple[KeptLog, ...]
    end: int
    """How many events there are, with those that are left out."""
    next: int | None = None
    since: int | None = None
    """The offset before which the log was not read, as the last entries are behind it; None: it was
    read whole. `end` does not count what is before, nor is its damage known, nor what it lacks."""
    is_off: bool = False
    """Compaction removes superseded commits at once (`horolog.history.ms`)."""
