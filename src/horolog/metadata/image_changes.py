"""Changes of an image of the cluster: the new values, as one immutable object.

    tracked = TrackedImage()
    tracked.apply(record)                       # or `replace`, by the image of a snapshot
    changes = tracked.take(offset, timestamp)   # all changes since the last call

Changes that are applied in order (`Changes.apply_to`) keep another image equal. A snapshot gives
changes as records do: what it lacks is deleted. No I/O.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.metadata.image import TOPIC, Image, Resource, TopicImage
from horolog.metadata.replay import MetadataUnreadable
from horolog.quotas.entities import Entity
from horolog.schemas import metadata as m
from horolog.schemas.metadata import PartitionRecord, Record

MOST_AT_ONCE: Final = 5_000
"""Topics and partitions of one piece of large changes; the event loop takes it in about 20 ms."""


class PartitionKey(NamedTuple):
    """Identifies a partition, also if its topic's name is used again."""

    topic_id: UUID
    partition: int


class TopicKey(NamedTuple):
    """Name and id of a topic."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """New values of what changed. What is not mentioned is as it was."""

    offset: int
    """Offset after the last record that is applied; the next one to apply.

    A heartbeat carries the offset *of* that record, `offset` - 1.
    """
    timestamp: int = -1
    """Timestamp of the last applied record in milliseconds; -1 if unknown."""
    topics_deleted: tuple[TopicKey, ...] = ()
    """Topics that are gone, with their partitions. They come before those that are created."""
    topics_created: tuple[TopicKey, ...] = ()
    partitions: Mapping[PartitionKey, PartitionRecord] = field(default_factory=dict)
    """Whole new values. A partition never goes without its topic."""
    configs: Mapping[Resource, Mapping[str, str]] = field(default_factory=dict)
    """All settings of a resource; empty if it has none left."""
    features: Mapping[str, int] | None = None
    """All finalised levels, if one changed."""
    brokers: Mapping[int, m.RegisterBroker | None] = field(default_factory=dict)
    controllers: Mapping[int, m.RegisterController | None] = field(default_factory=dict)
    entries: Mapping[UUID, m.AccessControlEntry | None] = field(default_factory=dict)
    credentials: Mapping[tuple[str, int], m.ScramCredential | None] = field(default_factory=dict)
    quotas: Mapping[tuple[Entity, str], m.ClientQuota | None] = field(default_factory=dict)
    tokens: Mapping[str, m.DelegationToken | None] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if nothing but the offset changed."""
        every = (self.topics_deleted, self.topics_created, self.partitions, self.configs)
        keyed = (getattr(self, name) for name in _KEYED)
        return self.features is None and not any(every) and not any(keyed)

    def apply_to(self, image: Image) -> None:
        """Apply the changes to an image that has all earlier ones."""
        for name, topic_id in self.topics_deleted:
            del image.by_id[topic_id], image.topics[name]
        for name, topic_id in self.topics_created:
            image.topics[name] = image.by_id[topic_id] = TopicImage(name, topic_id)
        by_id = image.by_id
        for (topic_id, index), partition in self.partitions.items():
            by_id[topic_id].partitions[index] = partition
        for resource, settings in self.configs.items():
            if settings:
                image.configs[resource] = dict(settings)
            else:
                image.configs.pop(resource, None)
        if self.features is not None:
            image.features = dict(self.features)
        for keyed in _KEYED:
            _put(getattr(image, keyed), getattr(self, keyed))

    def pieces(self, before: int, most: int = MOST_AT_ONCE) -> Iterator["Changes"]:
        """Yield the same changes in pieces of bounded size, in an order in which they apply.

        A topic comes in one piece with its partitions and settings, however many they are.

        Args:
            before: offset of the changes before these, which all pieces but the last one have.
            most: topics and partitions of a piece.
        """
        size = len(self.topics_deleted) + len(self.topics_created) + len(self.partitions)
        if size <= most:
            yield self
            return
        for start in range(0, len(self.topics_deleted), most):
            yield Changes(offset=before, topics_deleted=self.topics_deleted[start : start + most])
        created = {(TOPIC, key.name) for key in self.topics_created}
        first = {key: {} if key in created else its for key, its in self.configs.items()}
        yield replace(
            self,
            offset=before,
            topics_deleted=(),
            topics_created=(),
            partitions={},
            configs=first,
        )
        topics: list[TopicKey] = []
        partitions: dict[PartitionKey, PartitionRecord] = {}
        for topic, its in self._by_topic():
            topics += [] if topic is None else [topic]
            partitions |= its
            if len(topics) + len(partitions) >= most:
                yield self._piece(before, topics, partitions)
                topics, partitions = [], {}
        yield replace(self._piece(self.offset, topics, partitions), timestamp=self.timestamp)

    def _by_topic(self) -> Iterator[tuple[TopicKey | None, dict[PartitionKey, PartitionRecord]]]:
        """Yield the partitions of each topic; None for a topic that is not new."""
        by_id: dict[UUID, dict[PartitionKey, PartitionRecord]] = {}
        for key, partition in self.partitions.items():
            by_id.setdefault(key.topic_id, {})[key] = partition
        for topic in self.topics_created:
            yield topic, by_id.pop(topic.topic_id, {})
        for its in by_id.values():
            yield None, its

    def _piece(
        self,
        offset: int,
        topics: Sequence[TopicKey],
        partitions: Mapping[PartitionKey, PartitionRecord],
    ) -> "Changes":
        keys = [(TOPIC, topic.name) for topic in topics]
        configs = {key: self.configs[key] for key in keys if key in self.configs}
        return Changes(
            offset=offset, topics_created=tuple(topics), partitions=partitions, configs=configs
        )


_KEYED: Final = ("brokers", "controllers", "entries", "credentials", "quotas", "tokens")
"""Attributes of changes, and of an image, whose values are set or removed one by one."""
_KEY_OF: Final[dict[type[Any], tuple[str, Callable[[Any], Any]]]] = {
    **dict.fromkeys(
        (m.RegisterBroker, m.UnregisterBroker, m.BrokerChange, m.FenceBroker, m.UnfenceBroker),
        ("brokers", attrgetter("broker_id")),
    ),
    **dict.fromkeys(
        (m.RegisterController, m.UnregisterController),
        ("controllers", attrgetter("controller_id")),
    ),
    **dict.fromkeys(
        (m.AccessControlEntry, m.RemoveAccessControlEntry), ("entries", attrgetter("entry_id"))
    ),
    **dict.fromkeys(
        (m.ScramCredential, m.RemoveScramCredential),
        ("credentials", attrgetter("name", "mechanism")),
    ),
    **dict.fromkeys(
        (m.DelegationToken, m.RemoveDelegationToken), ("tokens", attrgetter("token_id"))
    ),
    m.ClientQuota: ("quotas", lambda record: (frozenset(record.entity), record.key)),
    m.Config: ("configs", attrgetter("resource_type", "resource")),
    m.PartitionRecord: ("partitions", lambda record: PartitionKey(record.topic_id, record[0])),
    m.PartitionChange: ("partitions", lambda record: PartitionKey(record.topic_id, record[0])),
}
"""For each type of record, what it changes, and the key."""


class TrackedImage:
    """An image, and the keys of what changed in it. For one thread."""

    def __init__(self, image: Image | None = None) -> None:
        """Begin with an image that those who take the changes have already."""
        self.image = image or Image()
        self._begin()

    def _begin(self) -> None:
        self._created: dict[UUID, str] = {}
        self._deleted: dict[UUID, str] = {}
        self._has_features = False
        self._keys: dict[str, set[Any]] = defaultdict(set)

    def apply(self, record: Record) -> None:
        """Apply a record.

        Raises:
            CorruptBatch: it does not fit the image. Nothing has changed.
        """
        image, keys = self.image, self._keys
        noted = _KEY_OF.get(type(record))
        if noted is not None:
            image.apply(record)
            name, key_of = noted
            keys[name].add(key_of(record))
        elif isinstance(record, m.TopicRecord):
            is_new = record.topic_id not in image.by_id
            image.apply(record)
            if is_new:
                self._created[record.topic_id] = record.name
        elif isinstance(record, m.RemoveTopic):
            topic = image.by_id.get(record.topic_id)
            image.apply(record)
            assert topic is not None
            self._delete(topic)
        elif isinstance(record, m.ClearElr):
            before = {topic: dict(topic.partitions) for topic in image.topics.values()}
            image.apply(record)
            for topic, its in before.items():
                self._note_partitions(topic, _differing(its, topic.partitions))
        else:
            image.apply(record)
            self._has_features |= isinstance(record, m.FeatureLevel)

    def replace(self, image: Image) -> None:
        """Replace the image, e.g. by that of a snapshot.

        Raises:
            MetadataUnreadable: a partition is gone though its topic is not. Nothing has changed.
        """
        old = self.image
        for topic_id, topic in old.by_id.items():
            now = image.by_id.get(topic_id)
            if now is not None and not topic.partitions.keys() <= now.partitions.keys():
                raise MetadataUnreadable(f"topic {topic.name} has lost partitions in a snapshot")
        for topic_id, topic in old.by_id.items():
            now = image.by_id.get(topic_id)
            if now is None or now.name != topic.name:
                self._delete(topic)
        for topic_id, topic in image.by_id.items():
            before = old.by_id.get(topic_id)
            if before is None or before.name != topic.name:
                self._created[topic_id] = topic.name
                self._note_partitions(topic, topic.partitions)
            else:
                self._note_partitions(topic, _differing(before.partitions, topic.partitions))
        for name in ("configs", *_KEYED):
            self._keys[name] |= _differing(getattr(old, name), getattr(image, name))
        self._has_features |= old.features != image.features
        self.image = image

    def _note_partitions(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        self._keys["partitions"].update(PartitionKey(topic.topic_id, index) for index in indexes)

    def _delete(self, topic: TopicImage) -> None:
        if self._created.pop(topic.topic_id, None) is None:
            self._deleted[topic.topic_id] = topic.name
        self._keys["configs"].add((TOPIC, topic.name))

    def take(self, offset: int, timestamp: int = -1) -> Changes:
        """Return the changes since the last call.

        Args:
            offset: offset after the last applied record.
            timestamp: timestamp of that record in milliseconds.
        """
        image, keys = self.image, self._keys
        changes = Changes(
            offset=offset,
            timestamp=timestamp,
            topics_deleted=_topics(self._deleted),
            topics_created=_topics(self._created),
            partitions={
                key: image.by_id[key.topic_id].partitions[key.partition]
                for key in keys["partitions"]
                if key.topic_id in image.by_id
            },
            configs={key: dict(image.configs.get(key, {})) for key in keys["configs"]},
            features=dict(image.features) if self._has_features else None,
            **{name: {key: getattr(image, name).get(key) for key in keys[name]} for name in _KEYED},
        )
        self._begin()
        return changes


def difference(before: Image, after: Image, offset: int = 0) -> Changes:
    """Return the changes that lead from one image to another.

    Raises:
        MetadataUnreadable: a partition is gone though its topic is not.
    """
    tracked = TrackedImage(before)
    tracked.replace(after)
    return tracked.take(offset)


def _topics(names: Mapping[UUID, str]) -> tuple[TopicKey, ...]:
    return tuple(TopicKey(name, topic_id) for topic_id, name in names.items())


def _differing(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> set[Any]:
    """Return the keys whose values differ, absent ones included."""
    changed = {key for key, value in after.items() if before.get(key) != value}
    return changed | (before.keys() - after.keys())


def _put(into: dict[Any, Any], values: Mapping[Any, Any]) -> None:
    """Set values; None removes one."""
    for key, value in values.items():
        if value is None:
            into.pop(key, None)
        else:
            into[key] = value
