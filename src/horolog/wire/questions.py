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
from horolog.offsets import Doubts, HeldUp, Inexact, OffsetRange, TimeBlock, TransactionStart
from horolog.wire.acl import AclOperation
from horolog.wire.config_resources import ResourceType

TakesT = TypeVar("TakesT", bound=NamedTuple)
GivesT = TypeVar("GivesT", bound=NamedTuple)

_LONGEST_KEY: Final = 8_192


@dataclass(frozen=True, slots=True)
class Question(Generic[TakesT, GivesT]):
    """A question to a broker, and the feature that announces it.

    An answer that may not fit a string of the protocol is given in pages: it has an array named
    `paged` and a `next`, which is the `start` of the question for the next page, or None. Members
    of the answer in `repeated` are arguments of that question as well.
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
        """Return the name to ask for, with the arguments in it."""
        members = takes._asdict()
        return f"{self.name}/{_json(members)}" if members else self.name

    def read_key(self, key: str) -> TakesT:
        """Return the arguments in a key; arguments with defaults may be missing.

        Raises:
            ValueError: the key does not ask this question.
        """
        if len(key) > _LONGEST_KEY:
            raise ValueError(f"it has more than {_LONGEST_KEY} characters")
        text = key.removeprefix(self.name)
        return read_as(self.takes, from_json(text.removeprefix("/")) if text else {})

    def value(self, answer: GivesT) -> str:
        """Return an answer as a string."""
        return _json(answer._asdict())

    def read_value(self, value: str) -> GivesT:
        """Return the answer in a string; members that this version does not know are left out.

        Raises:
            ValueError: the value is no such answer.
        """
        return read_as(self.gives, from_json(value), may_have_more=True)

    def following(self, takes: TakesT, answer: GivesT) -> TakesT | None:
        """Return the question for the page behind this answer; None if the answer is the last page.

        Raises:
            ValueError: the next page begins at or before this one.
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
        """Join the pages of an answer."""
        if self.paged is None or len(pages) == 1:
            return pages[-1]
        items = chain.from_iterable(getattr(page, self.paged) for page in pages)
        return pages[-1]._replace(**{self.paged: tuple(items)})

    @property
    def form(self) -> str:
        """Form of the question, for an error message."""
        members = ",".join(f'"{name}":...' for name in self.takes._fields)
        return f"{self.name}/{{{members}}}" if members else self.name


@dataclass(frozen=True, slots=True)
class Action:
    """An effect in the broker that setting a name has.

    Feature names announce the actions of every broker; a clock can be set only at some.
    """

    name: str
    about: ResourceType
    needs: AclOperation
    is_announced: bool = True
    lacking: str = ""
    """The predicate about a broker that does not announce it; `{}` stands for the resource."""


def json_bytes(value: object) -> int:
    """Return the bytes that a value takes in an answer."""
    return len(_json(value))


def _json(value: object) -> str:
    """Return JSON in ASCII, so that characters are bytes."""
    return json.dumps(value, separators=(",", ":"))


# --- what questions take and give -----------------------------------------------------


class AskNothing(NamedTuple):
    """Arguments of a question about the resource alone."""


class AskEntries(NamedTuple):
    """Arguments of a question whose answer is a list: the first entry wanted."""

    start: int = 0


class AskPartition(NamedTuple):
    """Arguments of a question about a partition of a topic."""

    partition: int


class RangeClock(StrEnum):
    """Clock of the times."""

    RECORD = "record"
    """The timestamps of records."""
    RECORD_OR_NONE = "record-or-none"
    """The timestamps of records, and records without one."""
    APPEND = "append"
    """The append times of records."""


class AskTimeRanges(NamedTuple):
    """Find the ranges of offsets, within two, that may contain records of some times."""

    partition: int
    clock: RangeClock
    first: int
    last: int
    start: int
    end: int


class TimeRangePage(NamedTuple):
    """Ranges of offsets that may contain a record of the times; other offsets do not."""

    ranges: tuple[OffsetRange, ...]
    next: int | None


class AskTimeBlocks(NamedTuple):
    """Find the blocks of a partition between two offsets, with the earliest time of each."""

    partition: int
    clock: RangeClock
    start: int
    end: int


class TimeBlockPage(NamedTuple):
    """Blocks that follow one another, each with a time that none of its records is before."""

    blocks: tuple[TimeBlock, ...]
    next: int | None


class AskCut(NamedTuple):
    """Cut a partition at an append time, and find transactions that had not ended somewhere."""

    partition: int
    at: int
    """Append time in milliseconds."""
    behind: int | None = None
    """The first offset at which the end of a transaction counts; None is the cut."""
    since: Mapping[int, int] = {}
    """Append times of some producers, by id, from which on the ends of theirs count instead."""
    start: int = 0
    """First producer id of the page."""


class PartitionCut(NamedTuple):
    """Place that parts the records of a partition that were appended before a time."""

    offset: int
    """First offset that was appended at or after the time."""
    why: Inexact | None
    """Reason why another offset may be right; None if the offset is exact."""
    transactions: tuple[TransactionStart, ...]
    """First transaction of each producer that begins before the offset, and whose end counts or is
    missing there."""
    next: int | None
    doubts: Doubts = Doubts()
    """Other times at which cuts of the partition are not exact."""
    error: str | None = None
    """Error of the disk or the log, which hides the rest; None without one."""


class AskLookup(NamedTuple):
    """Explain how the offset of a timestamp is found, by another lookup."""

    partition: int
    timestamp: int


class LookupReport(NamedTuple):
    """Steps by which a broker finds an offset by timestamp."""

    segments: int
    """Number of segments of the log."""
    passed: int
    """Segments passed because their largest times are earlier."""
    base_offset: int | None
    """Base offset of the segment looked into last; None if none reaches the time."""
    entry: tuple[int, int] | None
    """Timestamp and offset of the time index entry that the search begins with."""
    position: int
    """Position in the segment's log at which the search begins."""
    batches: int
    """Batches passed by their headers or searched."""
    scanned_bytes: int
    """Size of batches whose records were searched, as they are stored."""


class AskRetention(NamedTuple):
    """Explain retention for each segment, from the one that contains `start` on."""

    partition: int
    start: int = 0
    now: int | None = None
    """Present time to assume, in milliseconds; None is the broker's clock."""
    settings: Mapping[str, str] = {}
    """Settings that replace the topic's own in the answer."""


class RetentionReport(NamedTuple):
    """Effect of retention on the segments of a partition."""

    now: int
    """Present time that was assumed, in milliseconds."""
    settings: Mapping[str, str | int | bool]
    """Settings on which retention depends, under Kafka's names."""
    is_exempt: bool
    """The partition was adopted, and nothing of it is deleted."""
    segments: tuple[Mapping[str, Any], ...]
    """Members listed in docs/wire.md for each segment, oldest first."""
    next: int | None
    held_up: HeldUp | None = None
    """The first open transaction, if one is open."""


class LeftBehind(NamedTuple):
    """Data about a topic that only the Kafka has which owned the log directory before."""

    is_adopted: bool
    """True if the topic was found on disk without settings: no record of it expires."""
    is_made_here: bool
    """True if that Kafka does not know the topic."""
    entries: tuple[tuple[str, str] | tuple[str, int, int], ...]
    next: int | None

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the topic in that Kafka that have no effect here."""
        return {entry[0]: entry[1] for entry in self.entries if len(entry) == 2}

    @property
    def offsets(self) -> list[tuple[str, int, int]]:
        """Offsets committed in that Kafka and not here: group, partition and offset."""
        return [entry for entry in self.entries if len(entry) > 2]


class Wrong(NamedTuple):
    """A problem of a broker."""

    kind: str
    """Name in the list of `broker/health.py`."""
    subject: str
    """A partition, or the log directory."""
    value: int | None
    """Milliseconds, bytes or a count, by kind."""
    text: str


class Health(NamedTuple):
    """Problems of a broker that answers; none if it is healthy."""

    served: int
    """Number of partitions that are served."""
    wrong: tuple[Wrong, ...]
    next: int | None
    without_numba: str | None = None
    """Cost of running without numba; None where numba is installed."""


class FollowedState(StrEnum):
    """State of a partition, or of a topic, that another cluster has."""

    FOLLOWING = "following"
    COMPARING = "comparing"
    """The source is being asked where the log here parts from its own."""
    WAITING = "waiting"
    """Following continues once the problem in `text` is over."""
    REFUSED = "refused"
    """Following continues only after an operator has acted."""
    PROMOTED = "promoted"
    """The topic was followed, and is led here now."""


class FollowedEntry(NamedTuple):
    """Progress of one followed partition, or a message about a topic."""

    topic: str
    partition: int | None
    """None: the entry is about the whole topic."""
    state: FollowedState
    offsets_behind: int | None = None
    """Offsets from the log end here to the source's; None if unknown."""
    records_behind: int | None = None
    """None where offsets cannot be counted as records."""
    lag_ms: int | None = None
    """Milliseconds since all records of the source were here, 0 while they are; None if never since
    the broker's start."""
    end_offset: int | None = None
    """The log end here."""
    gaps: int = 0
    """Ranges of missing offsets, which the source had deleted before they were followed."""
    settings: Mapping[str, str] = {}
    """Settings that a topic has at the source and not here, each with the reason."""
    text: str = ""


class Following(NamedTuple):
    """Cluster that a broker follows, and its progress."""

    cluster_id: str | None
    """None: no cluster is followed. Empty: the cluster was never reached."""
    servers: str
    topics: str
    """Regular expression of the followed topics."""
    is_ended: bool
    """True if all topics were promoted, so that no topic is followed any more."""
    error: str | None
    """Reason why the source cannot be followed now."""
    upstream: tuple[str, ...]
    """Clusters from which the source's records come: itself, and the clusters that it follows."""
    entries: tuple[FollowedEntry, ...]
    next: int | None
    notes: tuple[str, ...] = ()
    """Sentences about rights, quotas and passwords of the source that are not here."""


class AskPromoted(NamedTuple):
    """List the outcome of promotions since the start of a broker, from one entry on."""

    topics: tuple[str, ...] = ()
    """Topics to report; empty: all."""
    start: int = 0


class PromotedEntry(NamedTuple):
    """Effect of a promotion, or a fact to know about it."""

    topic: str
    epoch: int
    """Least leader epoch in which the topic is led."""
    group: str | None = None
    """Group whose committed offset was beyond the log end here."""
    partition: int | None = None
    committed: int | None = None
    clamped: int | None = None
    """Offset that is committed for the group now."""
    text: str = ""


class Promoted(NamedTuple):
    """Effects of promotions, topic by topic."""

    entries: tuple[PromotedEntry, ...]
    next: int | None


class AppendTimesAhead(NamedTuple):
    """Number of a topic's partitions whose append times are ahead of the clock, and how far."""

    partitions: int
    ahead: int
    most_ahead_ms: int
    resets: int
    """Number of offsets of the topic at which append times go back."""
    clock_ahead_ms: int = 0
    """By how much the broker's clock of append times is ahead of its clock."""


class AskProducerClients(NamedTuple):
    """Name the clients of some idempotent producers."""

    producers: tuple[int, ...]
    start: int = 0


class ProducerClient(NamedTuple):
    """Producer id, its newest epoch, and the client id of its requests."""

    producer_id: int
    epoch: int
    client_id: str


class NamedProducers(NamedTuple):
    """Clients of the requested producers that the broker has heard of since its start."""

    clients: tuple[ProducerClient, ...]
    next: int | None


class AskTimes(NamedTuple):
    """Arguments of the question about the times of a partition."""

    partition: int
    sums: bool = True
    """False: only up to which time it is complete is asked for, which costs a lookup; the sums are
    0."""


class Withdrawn(StrEnum):
    """Reason why it is not known up to which time a partition is complete."""

    NO_BOUND = "no bound"
    """Records of any create time may come: `message.timestamp.before.max.ms` is not set."""
    BOUND_RAISED = "bound raised"
    """The bound was raised; until nothing below the last value can come any more."""
    RESET = "reset"
    """The clock of append times was set back; until it is past where it was."""
    FOLLOWED = "followed"
    """Records come from another cluster or broker, or came since the last value."""
    ADOPTED = "adopted"
    """The topic was found on disk, with records of another broker or a mirror."""
    OPEN_TRANSACTION = "open transaction"
    """The times of records behind an open transaction are unknown."""
    NOT_WRITTEN = "not written"
    """The disk has refused the clock of append times."""


class PartitionTimes(NamedTuple):
    """Times of a partition's records, known without reading a record."""

    records: int
    """Number of records that the other members describe."""
    create_min_ms: int | None
    """None: no record has a create time."""
    create_max_ms: int | None
    append_first_ms: int | None
    """Append time of the first record for which it is known; None if unknown for all."""
    append_last_ms: int | None
    out_of_order: int
    """Records that were created earlier than the previous record."""
    future: int
    """Records that were created later than they were appended."""
    missing: int
    """Records without a create time."""
    latencies: tuple[int, ...]
    """Records by milliseconds from create to append: those of the future, and those from each of
    `LATENCY_BOUNDS` on. Of records whose append time is known."""
    appended_latencies: tuple[int, ...]
    """Latencies of the records appended since the broker's start, deleted records included."""
    unknown_offsets: int
    """Offsets in segments without a whole block map, whose times are unknown."""
    seen_first_ms: int | None = None
    """Time when a follower saw the log's first record, if its append time is unknown."""
    seen_last_ms: int | None = None
    """Time when a follower saw the log's last record, if its append time is unknown."""
    complete_until_ms: int | None = None
    """No record with an earlier timestamp will be appended; None: see `complete_withdrawn`."""
    committed_complete_until_ms: int | None = None
    """No record with an earlier timestamp will become visible to readers of committed records."""
    complete_withdrawn: Withdrawn | None = None
    """Reason why one of both is unknown."""


class CleaningSummary(NamedTuple):
    """Progress of a run of the cleaner over a partition."""

    started_ms: int
    ended_ms: int | None
    """None while the run is under way."""
    is_whole: bool
    """True if the run reached its end."""
    from_offset: int
    end_offset: int
    keys: int
    """Number of different keys from `from_offset` on."""
    read_bytes: int
    records_before: int
    """Records in the segments that were replaced, markers included."""
    records_after: int
    bytes_before: int
    bytes_after: int


class PartitionCleaning(NamedTuple):
    """Progress of compaction in a partition, and its last run since the broker's start."""

    is_compacted: bool
    first_dirty: int | None
    """Offset up to which the log is compacted; None for a log that is not compacted."""
    end: int | None
    """Offset up to which the log may be compacted now."""
    clean_bytes: int
    dirty_bytes: int
    """Size of the part that may be compacted now and is not yet."""
    overdue_ms: int
    """Milliseconds since max.compaction.lag.ms has elapsed."""
    uncleanable: str | None
    """Reason why the cleaner skips the partition; None if it does not."""
    last_run: CleaningSummary | None


class LagClock(StrEnum):
    """Clock by which a lag is measured."""

    APPEND = "append"
    """The age of the first unread record."""
    CREATE = "create"
    """The age of the oldest unread record, which need not be the first (KIP-33)."""


class AskGroupLag(NamedTuple):
    """Report the lag of a group, one partition after the other."""

    clock: LagClock = LagClock.APPEND
    committed: bool = False
    """True if the group reads up to the last stable offset, not to the log end."""
    start: int = 0


class GroupPartitionLag(NamedTuple):
    """Lag of a group in a partition, with the names of `horolog lag --json`."""

    group: str
    topic: str
    partition: int
    committed: int
    start: int
    """The log start offset."""
    end: int
    """Offset up to which the group reads: the log end, or the last stable offset."""
    offsets_behind: int
    """Offsets from the committed one to the end, lost offsets included, as Kafka's tools count."""
    records_behind: int | None
    """Records left to read, None where block maps do not count them."""
    lost_records: int
    """Offsets that were deleted before the group read them."""
    lag_ms: int | None
    """0 if nothing is left to read, None if the time is not known."""
    clock: LagClock
    catch_up_ms: int | None
    """Milliseconds until the group reaches the end at its pace; None: never, or unknown."""
    is_pace_known: bool
    """True if the group has committed for long enough to know its pace."""
    unread_deleted: int | None
    """Unread records that retention deletes before the group gets to them at its pace; None where
    that is not known."""
    first_deleted_ms: int | None
    """Time when the first unread record is deleted; in the past: at the next check."""
    held_up: HeldUp | None = None
    """The first open transaction, if one is open: the end of groups that read committed records."""


class GroupLag(NamedTuple):
    """Lags of a group in its partitions, in order."""

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
    """Groups that lose records, in order."""

    unread: tuple[GroupUnread, ...]
    next: int | None


class RefusedRecords(NamedTuple):
    """Records of refused batches, at most 1,000 of a batch."""

    reason: str
    unit: str
    """Unit that the time looks to be in: seconds, microseconds, nanoseconds, or none."""
    records: int


class Refused(NamedTuple):
    """Counts of refused records by reason and unit, most first."""

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
TIMES: Final = Question("horolog.times", _TOPIC, _DESCRIBE, AskTimes, PartitionTimes)
RETENTION_UNREAD: Final = Question(
    "horolog.retention.unread", _TOPIC, _DESCRIBE_CONFIGS, AskUnread, UnreadDeleted, paged="unread"
)
TIME_RANGES: Final = Question(
    "horolog.time.ranges", _TOPIC, _DESCRIBE, AskTimeRanges, TimeRangePage, paged="ranges"
)
CUT: Final = Question(
    "horolog.cut",
    _TOPIC,
    _DESCRIBE,
    AskCut,
    PartitionCut,
    paged="transactions",
    lacking="keeps no append times, so that {} cannot be read as of a time: only horolog's does",
)
TIME_BLOCKS: Final = Question(
    "horolog.time.blocks", _TOPIC, _DESCRIBE, AskTimeBlocks, TimeBlockPage, paged="blocks"
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
STAMP_CLOCK_RESET: Final = Action(
    "horolog.append.clock.reset", _BROKER, AclOperation.ALTER_CONFIGS, lacking=_NO_APPEND_TIMES
)
"""Lowers the clock of append times, and resets no partition; the value is `ALL_PARTITIONS`."""

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
FAULT: Final = Action("horolog.fault", _BROKER, AclOperation.ALTER, is_announced=False)
"""Makes requests fail on purpose: a JSON object (docs/wire.md)."""
ACTIONS: Final[tuple[Action, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Action)
)
