"""Arguments and results of questions about the past of topics and groups."""

from enum import StrEnum
from typing import Annotated, Final, NamedTuple

MOST_ENTRIES: Final = 1_000
"""Most entries of an answer, over all its pages."""

_Most = Annotated[int, range(1, MOST_ENTRIES + 1)]


class KeptLog(NamedTuple):
    """Log that an answer comes from."""

    name: str
    """A partition of one of Kafka's internal topics, or a file of the log directory."""
    whole_from: int | None
    """Since when it has every change, in milliseconds, up to the time that was asked for; None:
    since its beginning. Of earlier times it has what was not replaced since."""
    damage: tuple[str, ...] = ()
    """Sentences on parts that could not be read."""


class TopicAspect(StrEnum):
    """Aspect of a topic that has changed."""

    CREATED = "created"
    DELETED = "deleted"
    PARTITIONS = "partitions"
    SETTING = "setting"
    STATE = "state"
    """Facts that Kafka does not record: the topic is adopted, or followed."""


class TopicChange(NamedTuple):
    """One change of a topic."""

    time: int
    """Time of the record of the change, in milliseconds."""
    log: str
    topic_id: str
    """Topic id as Kafka prints it."""
    aspect: TopicAspect
    name: str | None = None
    """Name of the setting or state."""
    before: str | None = None
    after: str | None = None
    is_earlier: bool = False
    """True if the change happened by `time`, at an unknown moment."""


class AskTopicHistory(NamedTuple):
    """Question for the changes of a topic, or for its state at a time."""

    topic: str
    at: int | None = None
    most: _Most = MOST_ENTRIES
    """Most entries of the answer: the last ones."""
    start: int = 0
    end: int | None = None


class TopicHistory(NamedTuple):
    """Changes of a topic, as far back as its log keeps them."""

    changes: tuple[TopicChange, ...]
    logs: tuple[KeptLog, ...]
    end: int
    """Number of changes, including those left out."""
    next: int | None = None


class GroupAspect(StrEnum):
    """Aspect of a group that has changed."""

    COMMITTED = "committed"
    REMOVED = "removed"
    """A committed offset was removed."""
    GROUP = "group"
    """A rebalance of a classic group, or a new epoch of a consumer group."""
    GROUP_REMOVED = "group-removed"
    """The group was removed, or its type has changed."""
    MEMBER = "member"
    """A member joined a consumer group, or its subscription has changed."""
    MEMBER_REMOVED = "member-removed"
    ASSIGNED = "assigned"
    """Partitions of a member: an event without a topic, then one for each topic."""


class GroupEvent(NamedTuple):
    """One change of a group."""

    time: int
    """Time of the record, or of its transaction's commit; milliseconds."""
    log: str
    aspect: GroupAspect
    topic: str | None = None
    partition: int | None = None
    committed: int | None = None
    topic_id: str | None = None
    """Topic id as Kafka prints it; None from releases that do not write it."""
    metadata: str | None = None
    """Metadata of a commit, or the subscription of a member."""
    generation: int | None = None
    """Generation of a classic group, or epoch of a consumer group or of its member."""
    members: int | None = None
    """Number of members of a classic group."""
    member: str | None = None
    """Id of a member of a consumer group."""
    partitions: str | None = None
    """Partitions of the topic that a member has; ranges."""
    state: str | None = None
    """State of a member, or of its partitions."""


class AskGroupHistory(NamedTuple):
    """Question for the changes of a group, or for its state at a time."""

    at: int | None = None
    topic: str | None = None
    """Topic whose committed offsets are asked for; None for all."""
    most: _Most = MOST_ENTRIES
    """Most entries of the answer: the last ones; with `at` in order of partitions."""
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
    """Number of events, including those left out."""
    next: int | None = None
    since: int | None = None
    """The offset before which the log was not read, as the last entries are behind it; None: it was
    read whole. `end` does not count what is before, nor is its damage known, nor what it lacks."""
    is_off: bool = False
    """Compaction removes superseded commits at once (`horolog.history.ms`)."""
