"""What the store holds, as values: topics, settings, queries, what is followed."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from horolog.json_text import from_json
from horolog.record.attempts import MOST_BATCHES, MOST_TASKS, SLOTS
from horolog.storage import names

AS_FOUND: Final = 0
"""A number of partitions that means: those that have directories."""

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
    queries: Sequence[QueryRow] = ()
    source: SourceRow | None = None
    followed: Sequence[FollowedRow] = ()
    is_salvaged: bool = False
    """Rows of topics may be lost: topics on disk without a row must not expire."""


def checked_query(row: QueryRow) -> QueryRow:
    """A query, if a version of horolog writes such a one.

    Raises:
        ValueError: none does.
    """
    _expect(isinstance(row.query, str) and isinstance(row.topics, str), "it has no name")
    _expect(_is_int(row.life, 0, names.MAX_PARTITION), f"it was forgotten {row.life!r} times")
    _expect(_is_int(row.slot, 0, SLOTS - 1), f"there is no slot {row.slot!r}")
    _expect(_is_int(row.batch, -1, MOST_BATCHES - 1), f"there is no batch {row.batch!r}")
    _expect(_is_int(row.tasks, -1, MOST_TASKS), f"it has {row.tasks!r} tasks")
    _expect(_is_int(row.started_ms, -(1 << 63), names.MAX_OFFSET), "it began at no time")
    _expect(_is_int(row.committed, -1, (1 << 32) - 1), "it was committed with no digest")
    _expect(_is_int(row.layout, 0, names.MAX_PARTITION), f"there is no layout {row.layout!r}")
    for _, partitions in pinned_topics(row.topics).values():
        _expect(0 < partitions <= names.MAX_PARTITION, f"a topic has {partitions} partitions")
    _expect(isinstance(row.run, str) and row.is_open in (0, 1), "it is neither open nor not")
    repeated_tasks(row.repeated)
    _expect(_is_int(row.batch_bytes, 1, names.MAX_PARTITION), "its batches have no size")
    return row


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


def _is_int(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and least <= value <= most


def _expect(holds: bool, why: str) -> None:
    if not holds:
        raise ValueError(why)
