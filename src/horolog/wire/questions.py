"""The table of horolog's own questions and actions: what broker and client share of each.

A **question** is asked in DescribeConfigs, by a name with a JSON object of what it takes, and
answered by a read-only entry of that name whose value is a JSON object:

    horolog.lookup.way/{"partition":0,"timestamp":1700000000000}    NAME alone if it takes nothing

An **action** is a name and a value in IncrementalAlterConfigs or AlterConfigs. No setting is stored
under either. The broker's side is `broker/control/`, which says how a row is added; the client's is
`client/asking.py`. `docs/wire.md` describes each, and is checked against this table.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

from horolog.history import AskGroupHistory, AskTopicHistory, GroupHistory, TopicHistory
from horolog.json_text import from_json, read_as
from horolog.offsets import HeldUp, OffsetRange
from horolog.wire.acl import AclOperation
from horolog.wire.config_resources import ResourceType

TakesT = TypeVar("TakesT", bound=NamedTuple)
GivesT = TypeVar("GivesT", bound=NamedTuple)

_LONGEST_KEY: Final = 8_192


@dataclass(frozen=True, slots=True)
class Question(Generic[TakesT, GivesT]):
    """A question, and the feature that announces it.

    An answer that may not fit a string of the protocol is given in pages: it has an array named
    `paged` and a `next`, which is the `start` of the question for the next page, or None. What is
    `repeated` are members of the answer that this question has, too.
    """

    name: str
    about: ResourceType
    needs: AclOperation
    """The operation on that resource that a principal must be allowed."""
    takes: type[TakesT]
    gives: type[GivesT]
    paged: str | None = None
    repeated: tuple[str, ...] = ()
    lacking: str = ""
    """The predicate about a broker that does not announce it; `{}` stands for the resource."""

    def key(self, takes: TakesT) -> str:
        """The name to ask for."""
        members = takes._asdict()
        return f"{self.name}/{_json(members)}" if members else self.name

    def read_key(self, key: str) -> TakesT:
        """The inverse of `key`; members that have defaults may be missing.

        Raises:
            ValueError: it is no such key.
        """
        if len(key) > _LONGEST_KEY:
            raise ValueError(f"it has more than {_LONGEST_KEY} characters")
        text = key.removeprefix(self.name)
        return read_as(self.takes, from_json(text.removeprefix("/")) if text else {})

    def value(self, answer: GivesT) -> str:
        """The answer as a string."""
        return _json(answer._asdict())

    def read_value(self, value: str) -> GivesT:
        """The inverse of `value`; members that this version does not know are left out.

        Raises:
            ValueError: it is no such answer.
        """
        return read_as(self.gives, from_json(value), may_have_more=True)

    def following(self, takes: TakesT, answer: GivesT) -> TakesT | None:
        """The question for the page behind this answer; None if it is the last.

        Raises:
            ValueError: the answer does not lead on.
        """
        members = answer._asdict()
        if self.paged is None or members["next"] is None:
            return None
        start = takes._asdict()["start"]
        if members["next"] <= start:
            raise ValueError(f"it continues at {members['next']} after {start}")
        same = {name: members[name] for name in self.repeated}
        return takes._replace(start=members["next"], **same)

    def joined(self, pages: Sequence[GivesT]) -> GivesT:
        """The pages of an answer as one."""
        if self.paged is None or len(pages) == 1:
            return pages[-1]
        items = chain.from_iterable(getattr(page, self.paged) for page in pages)
        return pages[-1]._replace(**{self.paged: tuple(items)})

    @property
    def form(self) -> str:
        """How it is asked, for an error message."""
        members = ",".join(f'"{name}":...' for name in self.takes._fields)
        return f"{self.name}/{{{members}}}" if members else self.name


@dataclass(frozen=True, slots=True)
class Action:
    """Something that the broker does when a name is set.

    Feature names announce the actions of every broker; a clock can be set only at some.
    """

    name: str
    about: ResourceType
    needs: AclOperation
    is_announced: bool = True
    lacking: str = ""
    """The predicate about a broker that does not announce it; `{}` stands for the resource."""


def json_bytes(value: object) -> int:
    """How much of an answer a value takes."""
    return len(_json(value))


def _json(value: object) -> str:
    """In ASCII, so that characters are bytes."""
    return json.dumps(value, separators=(",", ":"))


# --- what questions take and give -----------------------------------------------------


class AskNothing(NamedTuple):
    """Nothing but the resource is asked about."""


class AskEntries(NamedTuple):
    """The entries of an answer, from one on."""

    start: int = 0


class AskPartition(NamedTuple):
    """A partition of a topic."""

    partition: int


class RangeClock(StrEnum):
    """Clock of the times."""

    RECORD = "record"
    """The timestamps of records."""
    RECORD_OR_NONE = "record-or-none"
    """The same, and records without one."""
    APPEND = "append"
    """When records were appended."""


class AskTimeRanges(NamedTuple):
    """Find the offsets between two that may hold records of a time."""

    partition: int
    clock: RangeClock
    first: int
    last: int
    start: int
    end: int


class TimeRangePage(NamedTuple):
    """Offsets that may hold a record of a time; no others between the two do."""

    ranges: tuple[OffsetRange, ...]
    next: int | None


class AskLookup(NamedTuple):
    """How the offset of a timestamp is found; the lookup is done again for the answer."""

    partition: int
    timestamp: int


class LookupReport(NamedTuple):
    """How a broker finds an offset by timestamp."""

    segments: int
    """Count of the log."""
    passed: int
    """Segments whose largest times are earlier."""
    base_offset: int | None
    """Base offset of the segment looked into last; None if none reaches the time."""
    entry: tuple[int, int] | None
    """Timestamp and offset of the time index entry that the search begins with."""
    position: int
    """Where in the segment's log it begins."""
    batches: int
    """Batches passed by their headers or searched."""
    scanned_bytes: int
    """Size of batches whose records were searched, as they are stored."""


class AskRetention(NamedTuple):
    """Explain retention for each segment from the one of an offset on."""

    partition: int
    start: int = 0
    now: int | None = None
    """The time that counts, in milliseconds; None: the broker's clock."""
    settings: Mapping[str, str] = {}
    """Settings of topics that count in the place of the topic's."""


class RetentionReport(NamedTuple):
    """What retention does about the segments of a partition."""

    now: int
    """The time that counted, in milliseconds."""
    settings: Mapping[str, str | int | bool]
    """Those that it depends on, under Kafka's names."""
    is_exempt: bool
    """The partition was adopted, and nothing of it is deleted."""
    segments: tuple[Mapping[str, Any], ...]
    """Members that docs/wire.md lists, of each segment, oldest first."""
    next: int | None
    held_up: HeldUp | None = None
    """The first open transaction, if one is open."""


class LeftBehind(NamedTuple):
    """What a Kafka that had the log directory knows of a topic, and its broker does not."""

    is_adopted: bool
    """The topic was found on disk and has no settings here: nothing of it expires."""
    is_made_here: bool
    """That Kafka does not know the topic."""
    entries: tuple[tuple[str, str] | tuple[str, int, int], ...]
    next: int | None

    @property
    def settings(self) -> Mapping[str, str]:
        """Those that it gave the topic and that are without effect here."""
        return {entry[0]: entry[1] for entry in self.entries if len(entry) == 2}

    @property
    def offsets(self) -> list[tuple[str, int, int]]:
        """Group, partition and offset of what was committed with it, and not here."""
        return [entry for entry in self.entries if len(entry) > 2]


class Wrong(NamedTuple):
    """One thing that is wrong with a broker."""

    kind: str
    """Name in the list of `broker/health.py`."""
    subject: str
    """A partition, or the log directory."""
    value: int | None
    """Milliseconds, bytes or a count, by kind."""
    text: str


class Health(NamedTuple):
    """What is wrong with a broker that answers: nothing if it is healthy."""

    served: int
    """Partitions."""
    wrong: tuple[Wrong, ...]
    next: int | None
    without_numba: str | None = None
    """What it costs that numba is not installed; None where it is."""


class FollowedState(StrEnum):
    """State of a partition, or of a topic, that another cluster has."""

    FOLLOWING = "following"
    COMPARING = "comparing"
    """It is being asked where the log here parts from the source's."""
    WAITING = "waiting"
    """It is followed as soon as what is said of it has passed."""
    REFUSED = "refused"
    """It is not followed until an operator acts."""
    PROMOTED = "promoted"
    """It was followed, and is led here now."""


class FollowedEntry(NamedTuple):
    """How far one partition is, or what is to be said of a topic."""

    topic: str
    partition: int | None
    """None: of the topic."""
    state: FollowedState
    offsets_behind: int | None = None
    """From the log end here to the source's; None where that is not known."""
    records_behind: int | None = None
    """None where offsets cannot be counted as records."""
    lag_ms: int | None = None
    """How long ago everything of the source was here, 0 where it is; None if it never was since
    the start of the broker."""
    end_offset: int | None = None
    """The log end here."""
    gaps: int = 0
    """Stretches of offsets that are missing: the source had deleted them before."""
    settings: Mapping[str, str] = {}
    """Settings that a topic has at the source and not here, each with the reason."""
    text: str = ""


class Following(NamedTuple):
    """Which cluster a broker follows, and how far."""

    cluster_id: str | None
    """None: none is followed. Empty: it was never reached."""
    servers: str
    topics: str
    """The regular expression of those that are followed."""
    is_ended: bool
    """All topics were promoted: nothing is followed any more."""
    error: str | None
    """Why the source cannot be followed now."""
    upstream: tuple[str, ...]
    """The clusters that the source's records come from: itself, and those that it follows."""
    entries: tuple[FollowedEntry, ...]
    next: int | None


class AskPromoted(NamedTuple):
    """List the outcome of promotions since the start of a broker, from one entry on."""

    topics: tuple[str, ...] = ()
    """Empty: all."""
    start: int = 0


class PromotedEntry(NamedTuple):
    """Something that was done in a promotion, or has to be known of it."""

    topic: str
    epoch: int
    """In which the topic is led at least."""
    group: str | None = None
    """One whose committed offset was beyond what is here."""
    partition: int | None = None
    committed: int | None = None
    clamped: int | None = None
    """Offset that it is committed at now."""
    text: str = ""


class Promoted(NamedTuple):
    """What promotions have done, topic by topic."""

    entries: tuple[PromotedEntry, ...]
    next: int | None


class AppendTimesAhead(NamedTuple):
    """How many of a topic's partitions have append times ahead of the clock, and how far."""

    partitions: int
    ahead: int
    most_ahead_ms: int
    resets: int
    """At how many offsets of the topic append times go back."""


class AskProducerClients(NamedTuple):
    """Name the clients of some idempotent producers."""

    producers: tuple[int, ...]
    start: int = 0


class ProducerClient(NamedTuple):
    """A producer id, its newest epoch, and the client id of the requests that it came with."""

    producer_id: int
    epoch: int
    client_id: str


class NamedProducers(NamedTuple):
    """The producers among those asked for that the broker has heard since it started."""

    clients: tuple[ProducerClient, ...]
    next: int | None


class PartitionTimes(NamedTuple):
    """What a broker knows of the times of a partition's records without reading one."""

    records: int
    """Those that the other members are about."""
    create_min_ms: int | None
    """None: no record has a create time."""
    create_max_ms: int | None
    append_first_ms: int | None
    """When the first record was appended whose append time is known; None if none is."""
    append_last_ms: int | None
    out_of_order: int
    """Records that were created earlier than the record before."""
    future: int
    """Records that were created later than they were appended."""
    missing: int
    """Records without a create time."""
    latencies: tuple[int, ...]
    """Records by milliseconds from create to append: those of the future, and those from each of
    `LATENCY_BOUNDS` on. Of records whose append time is known."""
    appended_latencies: tuple[int, ...]
    """The same of the records appended since the broker was started, deleted ones included."""
    unknown_offsets: int
    """Offsets that nothing is known of: their segments have no whole block map."""
    seen_first_ms: int | None = None
    """When a follower saw the log's first record, where it is unknown when that was appended."""
    seen_last_ms: int | None = None
    """The same of its last record."""


class CleaningSummary(NamedTuple):
    """Progress of a run of the cleaner over a partition."""

    started_ms: int
    ended_ms: int | None
    """None while it is under way."""
    is_whole: bool
    """Whether it came to its end."""
    from_offset: int
    end_offset: int
    keys: int
    """Different ones from `from_offset` on."""
    read_bytes: int
    records_before: int
    """In the segments that were replaced; markers count, too."""
    records_after: int
    bytes_before: int
    bytes_after: int


class PartitionCleaning(NamedTuple):
    """How far a partition is compacted, and what the last run since the broker's start did."""

    is_compacted: bool
    first_dirty: int | None
    """Before it the log is compacted; None of a log that is not."""
    end: int | None
    """Up to here it may be compacted now."""
    clean_bytes: int
    dirty_bytes: int
    """Size of what may be compacted now and is not."""
    overdue_ms: int
    """For how long max.compaction.lag.ms has been over."""
    uncleanable: str | None
    """Why the cleaner leaves it out; None where it does not."""
    last_run: CleaningSummary | None


class LagClock(StrEnum):
    """Clock that a lag is measured by."""

    APPEND = "append"
    """The age of the first unread record."""
    CREATE = "create"
    """The age of the oldest unread record, which need not be the first (KIP-33)."""


class AskGroupLag(NamedTuple):
    """How far a group is behind, in one of its partitions after the other."""

    clock: LagClock = LagClock.APPEND
    committed: bool = False
    """It reads up to the last stable offset, not to the log end."""
    start: int = 0


class GroupPartitionLag(NamedTuple):
    """The lag of a group in a partition, with the names of `horolog lag --json`."""

    group: str
    topic: str
    partition: int
    committed: int
    start: int
    """The log start offset."""
    end: int
    """Where the group reads to: the log end, or the last stable offset."""
    offsets_behind: int
    """From the committed offset to the end, as Kafka's tools count: lost ones included."""
    records_behind: int | None
    """Records left to read, None where block maps do not count them."""
    lost_records: int
    """Offsets that were deleted before the group read them."""
    lag_ms: int | None
    """0 if nothing is left to read, None if the time is not known."""
    clock: LagClock
    catch_up_ms: int | None
    """How long the group takes to reach the end; None: never, or not known."""
    is_pace_known: bool
    """Whether the group has committed for long enough to say so."""
    unread_deleted: int | None
    """Unread records that retention deletes before the group gets to them at its pace; None where
    that is not known."""
    first_deleted_ms: int | None
    """When the first of them is deleted; a time in the past: at the next check."""
    held_up: HeldUp | None = None
    """The first open transaction, if one is open: the end of groups that read committed records."""


class GroupLag(NamedTuple):
    """Partitions that a group has committed offsets of, in order."""

    lags: tuple[GroupPartitionLag, ...]
    next: int | None


class AskUnread(NamedTuple):
    """List what retention deletes of a partition unread, for one group after the other."""

    partition: int
    start: int = 0
    settings: Mapping[str, str] = {}
    """Settings of topics that count in the place of the topic's."""


class GroupUnread(NamedTuple):
    """Records that retention deletes before a group reads them."""

    group: str
    records: int
    first_deleted_ms: int | None


class UnreadDeleted(NamedTuple):
    """The groups that lose records, in order."""

    unread: tuple[GroupUnread, ...]
    next: int | None


class RefusedRecords(NamedTuple):
    """Records of refused batches, at most 1,000 of a batch."""

    reason: str
    unit: str
    """That the time looks to be in: seconds, microseconds, nanoseconds, or none."""
    records: int


class Refused(NamedTuple):
    """What was refused, by reason and unit, most first."""

    refused: tuple[RefusedRecords, ...]


# --- the table ------------------------------------------------------------------------

_TOPIC, _BROKER, _GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP
_DESCRIBE, _DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS

_FOLLOWS_NONE: Final = "follows no other, as only horolog does"
_NO_APPEND_TIMES: Final = (
    "has no append times of {} to reset: Apache Kafka's go back with its clock, and only horolog's "
    "never do"
)

APPEND_TIMES_AHEAD: Final = Question(
    "horolog.append.time.ahead",
    _TOPIC,
    _DESCRIBE,
    AskNothing,
    AppendTimesAhead,
    lacking=_NO_APPEND_TIMES,
)
FOLLOWING: Final = Question(
    "horolog.follow.status",
    _BROKER,
    _DESCRIBE,
    AskEntries,
    Following,
    paged="entries",
    lacking=_FOLLOWS_NONE,
)
PROMOTED: Final = Question(
    "horolog.follow.promoted", _BROKER, _DESCRIBE, AskPromoted, Promoted, paged="entries"
)
GROUP_LAG: Final = Question(
    "horolog.group.lag", _GROUP, _DESCRIBE, AskGroupLag, GroupLag, paged="lags"
)
HEALTH: Final = Question("horolog.health", _BROKER, _DESCRIBE, AskEntries, Health, paged="wrong")
LEFT_BEHIND: Final = Question(
    "horolog.left.behind", _TOPIC, _DESCRIBE_CONFIGS, AskEntries, LeftBehind, paged="entries"
)
LOOKUP_WAY: Final = Question("horolog.lookup.way", _TOPIC, _DESCRIBE, AskLookup, LookupReport)
PRODUCER_CLIENTS: Final = Question(
    "horolog.producer.clients",
    _BROKER,
    _DESCRIBE,
    AskProducerClients,
    NamedProducers,
    paged="clients",
)
REFUSED: Final = Question("horolog.refused", _TOPIC, _DESCRIBE, AskNothing, Refused)
RETENTION: Final = Question(
    "horolog.retention.explain",
    _TOPIC,
    _DESCRIBE_CONFIGS,
    AskRetention,
    RetentionReport,
    paged="segments",
    repeated=("now",),
    lacking="does not explain retention, as only horolog does: give the path of its log directory "
    "instead",
)
TIMES: Final = Question("horolog.times", _TOPIC, _DESCRIBE, AskPartition, PartitionTimes)
RETENTION_UNREAD: Final = Question(
    "horolog.retention.unread", _TOPIC, _DESCRIBE_CONFIGS, AskUnread, UnreadDeleted, paged="unread"
)
TIME_RANGES: Final = Question(
    "horolog.time.ranges", _TOPIC, _DESCRIBE, AskTimeRanges, TimeRangePage, paged="ranges"
)
CLEANING: Final = Question("horolog.cleaning", _TOPIC, _DESCRIBE, AskPartition, PartitionCleaning)
HISTORY_GROUP: Final = Question(
    "horolog.history.group",
    _GROUP,
    _DESCRIBE,
    AskGroupHistory,
    GroupHistory,
    paged="events",
    repeated=("end", "since"),
)
HISTORY_TOPIC: Final = Question(
    "horolog.history.topic",
    _BROKER,
    _DESCRIBE_CONFIGS,
    AskTopicHistory,
    TopicHistory,
    paged="changes",
    repeated=("end",),
)
"""About the broker, because a topic may have been deleted."""
QUESTIONS: Final[tuple[Question[Any, Any], ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Question)
)

APPEND_TIME_RESET: Final = Action(
    "horolog.append.time.reset", _TOPIC, AclOperation.ALTER_CONFIGS, lacking=_NO_APPEND_TIMES
)
ALL_PARTITIONS: Final = "all"
"""The value of `APPEND_TIME_RESET` for all partitions; otherwise a comma-separated list."""

PROMOTE: Final = Action("horolog.promote", _BROKER, AclOperation.ALTER, lacking=_FOLLOWS_NONE)
"""Leads topics that were followed: a JSON array of names, or `ALL_TOPICS`."""
ALL_TOPICS: Final = "all"
DEMOTE: Final = Action("horolog.demote", _BROKER, AclOperation.ALTER, lacking=_FOLLOWS_NONE)
"""Follows a cluster from now on: a JSON object, read as `Demotion`."""


class Demotion(NamedTuple):
    """Cluster to follow from now on, and its topics."""

    servers: str
    topics: str = ".*"


CLOCK_ADVANCE, CLOCK_FROZEN, CLOCK_NOW, EXPIRE = (
    Action(name, _BROKER, AclOperation.ALTER_CONFIGS, is_announced=False)
    for name in (
        "horolog.clock.advance",
        "horolog.clock.frozen",
        "horolog.clock.now",
        "horolog.expire",
    )
)
ACTIONS: Final[tuple[Action, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Action)
)
