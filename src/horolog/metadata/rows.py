"""The rows of the store as values, and their validation when they are read back.

Every row is stored with a checksum, because SQLite has none: a flipped bit may leave a row that
looks valid, and rows decide which topics are deleted and which records expire.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import crc32c

from horolog.groups.rows import GroupRow, OffsetRow
from horolog.json_text import from_json
from horolog.record.attempts import MOST_BATCHES, MOST_TASKS, SLOTS
from horolog.storage import names

AS_FOUND: Final = 0
"""A number of partitions that means: those that have directories."""

_FOLLOWED: Final = 4
"""In the column `adopted` of a topic."""

TOPIC_SCOPE = "topic"
BROKER_SCOPE = "broker"


class TopicRow(NamedTuple):
    """A topic. Its partitions are 0 to `partitions` - 1, or those on disk if `AS_FOUND`.

    `indexes` are those that were last seen of one with gaps.

    An adopted topic always has the partitions on disk. A salvaged one is adopted because its row
    or its settings were damaged: its records do not expire even with `horolog.adopt.defaults`.
    A followed one is not led here, also where its `FollowedRow` is lost.
    """

    name: str
    topic_id: UUID
    partitions: int
    adopted: bool = False
    deleting: bool = False
    is_salvaged: bool = False
    followed: bool = False
    indexes: tuple[int, ...] = ()


class SettingRow(NamedTuple):
    """One override; `resource` is a topic, a broker id, or "" for all brokers."""

    scope: str
    resource: str
    name: str
    value: str


class QueryRow(NamedTuple):
    """A query that writes exactly once (docs/exactly-once.md), and the last batch that it began.

    One that was forgotten stays as a row without a batch (-1): of its name a new one has another
    `life`, so that what logs still hold of the old one is not taken for its own.
    """

    query: str
    life: int
    slot: int
    """Its number in the producer ids of its attempts."""
    batch: int
    tasks: int
    """How many tasks the batch has; -1 if that is not known before it is committed."""
    started_ms: int
    committed: int
    """`batch_digest` of the rows that the logs held when the batch was committed; -1 before."""
    layout: int
    """How attempts form batches of rows."""
    batch_bytes: int
    run: str
    """The run of the batch that its attempts belong to; empty where they do not say."""
    is_open: int
    """1 if rows may be appended; 0 while a run repeats what earlier runs have written."""
    repeated: str
    """A JSON array of the tasks that have done that, as far as it was noted."""
    topics: str
    """A JSON object: by name, the id and the number of partitions when the batch met the topic."""

    @property
    def is_committed(self) -> bool:
        """Whether the batch is complete."""
        return self.committed >= 0


class SourceRow(NamedTuple):
    """The cluster that this broker follows, or has followed (docs/following.md)."""

    cluster_id: str
    """Empty if it was never reached; so it is stored only once it has ended."""
    servers: str
    """Its bootstrap servers, as in Kafka's setting."""
    topics: str
    """A regular expression that the names of followed topics match as a whole."""
    config: str
    """The path of a file of client properties, empty for none."""
    ended: bool = False
    """Every topic was promoted: nothing is followed until this broker is demoted."""


class FollowedRow(NamedTuple):
    """A topic that is followed, or was until it was promoted.

    The row of a promoted topic stays when the topic is deleted, so that it is not followed again.
    """

    topic: str
    source_id: UUID | None
    """The topic id at the source; None if the source has none (Kafka before 2.8)."""
    led: bool
    """Whether it was promoted."""
    epoch: int
    """The least leader epoch in which its partitions are led; -1 while it is followed."""
    settings: str
    """A JSON object: the topic's own settings at the source, as they were last seen."""

    @property
    def is_compacted(self) -> bool:
        """Whether the source compacts the topic."""
        policy = settings_of_source(self.settings).get("cleanup.policy", "")
        return "compact" in policy.split(",")


def promoted_once(topic: str) -> FollowedRow:
    """What is kept of a promoted topic that was deleted: another of its name is led here, too."""
    return FollowedRow(topic, None, True, 0, "{}")


class Stored(NamedTuple):
    """The whole content of the store, as of the last stop."""

    topics: list[TopicRow]
    settings: list[SettingRow]
    groups: Sequence[GroupRow] = ()
    offsets: Sequence[OffsetRow] = ()
    queries: Sequence[QueryRow] = ()
    source: SourceRow | None = None
    followed: Sequence[FollowedRow] = ()
    is_salvaged: bool = False
    """Rows of topics may be lost: topics on disk without a row must not expire."""


class Table(NamedTuple):
    """A table of the store: its columns without the checksum, and the reader of its rows."""

    name: str
    columns: str
    key: str
    read: Callable[[Sequence[Any]], Any]
    """Raises ValueError for values that no version of horolog writes."""
    since: int = 1
    """The first version of the schema that has it."""

    @property
    def schema(self) -> str:
        """The statement that creates it."""
        return (
            f"CREATE TABLE {self.name} ({self.columns}, checksum INTEGER NOT NULL, "
            f"PRIMARY KEY ({self.key})) WITHOUT ROWID;"
        )

    @property
    def insert(self) -> str:
        """The statement that writes a row."""
        marks = ", ".join("?" * (self.columns.count(",") + 2))
        return f"INSERT OR REPLACE INTO {self.name} VALUES ({marks})"  # noqa: S608 - a constant

    @property
    def select(self) -> str:
        """The statement that reads all rows, each with its checksum last."""
        return f"SELECT * FROM {self.name}"  # noqa: S608 - a constant

    def select_by_key(self, *, backwards: bool) -> str:
        """The statement that reads all rows in the order of their key, or from its end."""
        direction = "DESC" if backwards else "ASC"
        order = ", ".join(f"{column} {direction}" for column in self.key.split(", "))
        return f"{self.select} ORDER BY {order}"

    def checked(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The values of a row with their checksum, for `insert`."""
        return (*values, checksum(self.name, values))


def checksum(table: str, values: Sequence[Any]) -> int:
    """CRC-32C of a table's name and the values of a row."""
    return crc32c.crc32c(ascii((table, *values)).encode())


def topic_values(row: TopicRow) -> tuple[Any, ...]:
    """The column values of a topic."""
    origin = (1 + row.is_salvaged) if row.adopted else 0
    origin |= _FOLLOWED * row.followed
    return (row.name, row.topic_id.bytes, row.partitions, origin, int(row.deleting))


def _read_topic(values: Sequence[Any]) -> TopicRow:
    name, topic_id, partitions, origin, deleting = values
    is_name = isinstance(name, str) and names.partition_of(f"{name}-0") is not None
    _expect(is_name, "the name is no name of a topic")
    is_id = isinstance(topic_id, bytes) and len(topic_id) == 16
    _expect(is_id, f"its topic id has not 16 bytes: {topic_id!r:.60}")
    _expect(_is_int(partitions, 0, names.MAX_PARTITION + 1), f"it has {partitions} partitions")
    are_flags = origin in (0, 1, 2, 4, 5, 6) and deleting in (0, 1)
    _expect(are_flags, "adopted is 0, 1 or 2, or 4 more, and deleting 0 or 1")
    followed, adopted = bool(origin & _FOLLOWED), origin & ~_FOLLOWED
    deletes, salvaged = bool(deleting), adopted > 1
    id_ = UUID(bytes=topic_id)
    return TopicRow(name, id_, partitions, adopted > 0, deletes, salvaged, followed)


def _read_setting(values: Sequence[Any]) -> SettingRow:
    _expect(all(isinstance(value, str) for value in values), "it has a column that is no text")
    row = SettingRow(*values)
    _expect(row.scope in (TOPIC_SCOPE, BROKER_SCOPE), f"there is no scope {row.scope!r}")
    return row


def _read_group(values: Sequence[Any]) -> GroupRow:
    row = GroupRow(*values)
    _expect(isinstance(row.group_id, str) and isinstance(row.protocol_type, str), "it has no name")
    _expect(isinstance(row.empty_since_ms, int | None), "it is empty since no time")
    return row


def _read_offset(values: Sequence[Any]) -> OffsetRow:
    row = OffsetRow(*values)
    group_id, topic, partition, committed, epoch, metadata, commit_ms, expire_ms = row
    texts = isinstance(group_id, str) and isinstance(topic, str) and isinstance(metadata, str)
    numbers = isinstance(committed, int) and isinstance(commit_ms, int)  # SQLite has no longer ones
    _expect(texts and numbers and isinstance(expire_ms, int | None), "a column is of another type")
    _expect(_is_int(partition, 0, names.MAX_PARTITION), f"{topic} has no partition {partition}")
    _expect(_is_int(epoch, -(1 << 31), (1 << 31) - 1), f"there is no leader epoch {epoch}")
    return row


def _read_query(values: Sequence[Any]) -> QueryRow:
    row = QueryRow(*values)
    _expect(isinstance(row.query, str) and isinstance(row.topics, str), "it has no name")
    _expect(_is_int(row.life, 0, names.MAX_PARTITION), f"it was forgotten {row.life!r} times")
    _expect(_is_int(row.slot, 0, SLOTS - 1), f"there is no slot {row.slot!r}")
    _expect(_is_int(row.batch, -1, MOST_BATCHES - 1), f"there is no batch {row.batch!r}")
    _expect(_is_int(row.tasks, -1, MOST_TASKS), f"it has {row.tasks!r} tasks")
    _expect(_is_int(row.started_ms, -(1 << 63), names.MAX_OFFSET), "it began at no time")
    _expect(_is_int(row.committed, -1, (1 << 32) - 1), "it was committed with no digest")
    _expect(_is_int(row.layout, 0, names.MAX_PARTITION), f"there is no layout {row.layout!r}")
    pinned_topics(row.topics)
    _expect(isinstance(row.run, str) and row.is_open in (0, 1), "it is neither open nor not")
    repeated_tasks(row.repeated)
    _expect(_is_int(row.batch_bytes, 1, names.MAX_PARTITION), "its batches have no size")
    return row


def checked_query(row: QueryRow) -> QueryRow:
    """A query, if a version of horolog writes such a one.

    Raises:
        ValueError: none does.
    """
    found: QueryRow = _read_query(row)
    for _, partitions in pinned_topics(found.topics).values():
        _expect(0 < partitions <= names.MAX_PARTITION, f"a topic has {partitions} partitions")
    return found


def pinned_topics(text: str) -> dict[str, tuple[UUID, int]]:
    """The topics of a query's batch: by name, the id and the number of partitions.

    Raises:
        ValueError: no version of horolog writes this.
    """
    try:
        return {
            name: (UUID(hex=topic_id), int(partitions))
            for name, (topic_id, partitions) in from_json(text).items()
        }
    except (TypeError, AttributeError) as error:
        raise ValueError(f"these are no topics: {text!r:.60}") from error


def repeated_tasks(text: str) -> set[int]:
    """The tasks that a row names as `repeated`.

    Raises:
        ValueError: no version of horolog writes this.
    """
    tasks = from_json(text)
    if not isinstance(tasks, list) or not all(_is_int(task, 0, MOST_TASKS - 1) for task in tasks):
        raise ValueError(f"these are no tasks: {text!r:.60}")
    return set(tasks)


def topics_text(topics: Mapping[str, tuple[UUID, int]]) -> str:
    """The reverse of `pinned_topics`."""
    return json.dumps({name: (id_.hex, partitions) for name, (id_, partitions) in topics.items()})


def source_values(row: SourceRow) -> tuple[Any, ...]:
    """The column values of a source."""
    return (*row[:-1], int(row.ended))


def _read_source(values: Sequence[Any]) -> SourceRow:
    cluster_id, servers, topics, config, ended = values
    texts = (cluster_id, servers, topics, config)
    _expect(all(isinstance(text, str) for text in texts), "it has a column that is no text")
    _expect(ended in (0, 1), "it has neither ended nor not")
    row = SourceRow(*texts, bool(ended))
    is_named = bool(row.servers) and (bool(row.cluster_id) or row.ended)
    _expect(is_named, "it has no cluster id or no servers")
    try:
        re.compile(row.topics)
    except re.error as error:
        raise ValueError(f"{row.topics!r:.60} is no regular expression: {error}") from error
    return row


def followed_values(row: FollowedRow) -> tuple[Any, ...]:
    """The column values of a followed topic."""
    source_id = b"" if row.source_id is None else row.source_id.bytes
    return (row.topic, source_id, int(row.led), row.epoch, row.settings)


def _read_followed(values: Sequence[Any]) -> FollowedRow:
    topic, source_id, led, epoch, settings = values
    is_name = isinstance(topic, str) and names.partition_of(f"{topic}-0") is not None
    _expect(is_name, "the name is no name of a topic")
    is_id = isinstance(source_id, bytes) and len(source_id) in (0, 16)
    _expect(is_id, f"its topic id has not 16 bytes: {source_id!r:.60}")
    _expect(led in (0, 1), "it is neither led nor followed")
    _expect(_is_int(epoch, -1, (1 << 31) - 1), f"there is no leader epoch {epoch!r}")
    _expect(isinstance(settings, str), "its settings are no text")
    settings_of_source(settings)
    id_ = UUID(bytes=source_id) if source_id else None
    return FollowedRow(topic, id_, bool(led), epoch, settings)


def settings_of_source(text: str) -> dict[str, str]:
    """The settings that a row holds as JSON.

    Raises:
        ValueError: no version of horolog writes this.
    """
    found = from_json(text)
    is_sound = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    _expect(is_sound, f"these are no settings: {text!r:.60}")
    return dict(found)


def settings_text(settings: Mapping[str, str]) -> str:
    """The inverse of `settings_of_source`."""
    return json.dumps(settings, sort_keys=True)


def _read_counter(values: Sequence[Any]) -> tuple[str, int]:
    name, value = values
    _expect(isinstance(name, str) and _is_int(value, 0, names.MAX_OFFSET), f"{name!r} is {value!r}")
    return name, value


def _is_int(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and least <= value <= most


def _expect(holds: bool, why: str) -> None:
    if not holds:
        raise ValueError(why)


TOPICS: Final = Table(
    "topics",
    "name TEXT NOT NULL, topic_id BLOB NOT NULL, partitions INTEGER NOT NULL, "
    "adopted INTEGER NOT NULL, deleting INTEGER NOT NULL",
    "name",
    _read_topic,
)
SETTINGS: Final = Table(
    "settings",
    "scope TEXT NOT NULL, resource TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL",
    "scope, resource, name",
    _read_setting,
)
GROUPS: Final = Table(
    "groups",
    "group_id TEXT NOT NULL, protocol_type TEXT NOT NULL, empty_since_ms INTEGER",
    "group_id",
    _read_group,
)
OFFSETS: Final = Table(
    "offsets",
    "group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, "
    "committed INTEGER NOT NULL, leader_epoch INTEGER NOT NULL, metadata TEXT NOT NULL, "
    "commit_ms INTEGER NOT NULL, expire_ms INTEGER",
    "group_id, topic, partition",
    _read_offset,
)
COUNTERS: Final = Table(
    "counters", "name TEXT NOT NULL, value INTEGER NOT NULL", "name", _read_counter
)
QUERIES: Final = Table(
    "queries",
    "query TEXT NOT NULL, life INTEGER NOT NULL, slot INTEGER NOT NULL, batch INTEGER NOT NULL, "
    "tasks INTEGER NOT NULL, started_ms INTEGER NOT NULL, committed INTEGER NOT NULL, "
    "layout INTEGER NOT NULL, batch_bytes INTEGER NOT NULL, run TEXT NOT NULL, "
    "open INTEGER NOT NULL, repeated TEXT NOT NULL, topics TEXT NOT NULL",
    "query",
    _read_query,
    since=3,
)
SOURCES: Final = Table(
    "sources",
    "cluster_id TEXT NOT NULL, servers TEXT NOT NULL, topics TEXT NOT NULL, config TEXT NOT NULL, "
    "ended INTEGER NOT NULL",
    "cluster_id",
    _read_source,
    since=4,
)
FOLLOWED: Final = Table(
    "followed",
    "topic TEXT NOT NULL, source_id BLOB NOT NULL, led INTEGER NOT NULL, epoch INTEGER NOT NULL, "
    "settings TEXT NOT NULL",
    "topic",
    _read_followed,
    since=4,
)
# The root pages of the tables follow the first page in this order (see salvage.py).
TABLES: Final = (TOPICS, SETTINGS, GROUPS, OFFSETS, COUNTERS, QUERIES, SOURCES, FOLLOWED)
# Counters: the first producer id that is free; whether `Stored.is_salvaged`.
NEXT_PRODUCER_ID: Final = "next_producer_id"
IS_SALVAGED: Final = "is_salvaged"
