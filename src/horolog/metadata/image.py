"""State of the cluster after some metadata records: topics, settings, features and brokers.

No I/O. An image is made from the records of a snapshot and of the log behind it, and gives the
records of the next snapshot, in the order of Kafka's own. What horolog has no use for (e.g.
records of unknown types) is kept as it is, so that a snapshot loses nothing of a
Kafka's.

Not for several threads at a time while records are applied.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from horolog.errors import CorruptBatch
from horolog.quotas.entities import Entity
from horolog.schemas import metadata
from horolog.schemas.metadata import METADATA_VERSION, NO_CHANGE, Record, encode

TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32
"""Types of resources that have settings; a broker's name "" is that of all brokers."""

Resource = tuple[int, str]


class TopicImage:
    """A topic and its partitions."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, metadata.PartitionRecord] = {}
        """Partitions by index, after the last change."""


class Image:
    """State of the cluster after some records."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.by_id: dict[UUID, TopicImage] = {}
        self.configs: dict[Resource, dict[str, str]] = {}
        """Settings by type and name of the resource; resources without settings are absent."""
        self.features: dict[str, int] = {}
        self.brokers: dict[int, metadata.RegisterBroker] = {}
        """Registrations, after the last change."""
        self.controllers: dict[int, metadata.RegisterController] = {}
        self.producer_ids: metadata.ProducerIdsRecord | None = None
        """Last reserved block."""
        self.entries: dict[UUID, metadata.AccessControlEntry] = {}
        """Access control entries by id."""
        self.credentials: dict[tuple[str, int], metadata.ScramCredential] = {}
        """Keys that check passwords, by user and mechanism."""
        self.quotas: dict[tuple[Entity, str], metadata.ClientQuota] = {}
        """Quotas by entity and key."""
        self.tokens: dict[str, metadata.DelegationToken] = {}
        """Delegation tokens by id, without their secrets."""
        self.others: dict[tuple[object, ...], Record] = {}
        """Records that are only kept, by the key that a later record shares to replace or remove
        them."""
        self._takes = {
            metadata.TopicRecord: self._topic,
            metadata.PartitionRecord: self._partition,
            metadata.PartitionChange: self._change_partition,
            metadata.RemoveTopic: self._remove_topic,
            metadata.ClearElr: self._clear_elr,
            metadata.Config: self._configure,
            metadata.FeatureLevel: self._feature,
            metadata.RegisterBroker: self._broker,
            metadata.UnregisterBroker: self._unregister,
            metadata.BrokerChange: self._change_broker,
            metadata.FenceBroker: self._fence,
            metadata.UnfenceBroker: self._fence,
            metadata.RegisterController: self._controller,
            metadata.UnregisterController: self._unregister_controller,
            metadata.ProducerIdsRecord: self._producer_ids,
            metadata.AccessControlEntry: self._entry,
            metadata.RemoveAccessControlEntry: self._remove_entry,
            metadata.ScramCredential: self._credential,
            metadata.RemoveScramCredential: self._remove_credential,
            metadata.DelegationToken: self._token,
            metadata.RemoveDelegationToken: self._remove_token,
            metadata.ClientQuota: self._quota,
            metadata.ZkMigrationState: self._keep,
            metadata.Unknown: self._keep,
            metadata.NoOp: _nothing,
            # Which records a transaction holds is known where they are read (`log`).
            metadata.BeginTransaction: _nothing,
            metadata.EndTransaction: _nothing,
            metadata.AbortTransaction: _nothing,
        }

    @property
    def metadata_version(self) -> int:
        """Level of the feature `metadata.version`, which decides the versions of records."""
        return self.features.get(METADATA_VERSION, metadata.OLDEST_LEVEL)

    @property
    def next_producer_id(self) -> int:
        """Lowest producer id that was not reserved yet."""
        return 0 if self.producer_ids is None else self.producer_ids.next_producer_id

    def settings_of(self, resource_type: int, name: str) -> dict[str, str]:
        """Return the settings of a resource; not to be changed."""
        return self.configs.get((resource_type, name), {})

    def apply(self, record: Record) -> None:
        """Apply a record.

        Raises:
            CorruptBatch: it is about a topic, a partition or a broker that is not there. Nothing
                has changed.
        """
        self._takes[type(record)](record)  # type: ignore[operator]

    def check(self, records: Iterable[Record]) -> None:
        """Check that records can be applied one after the other.

        Raises:
            CorruptBatch: one is about something that is not there.
        """
        shadow = Image()
        shadow.brokers = dict(self.brokers)
        seen: set[UUID] = set()
        for record in records:
            touched: TopicImage | None = None
            if isinstance(record, metadata.TopicRecord):
                touched = self.topics.get(record.name)
            elif isinstance(record, metadata.ClearElr):
                touched = self.topics.get(record.topic)
            elif isinstance(
                record, metadata.PartitionRecord | metadata.PartitionChange | metadata.RemoveTopic
            ):
                touched = self.by_id.get(record.topic_id)
            if touched is not None and touched.topic_id not in seen:
                seen.add(touched.topic_id)
                copy = TopicImage(touched.name, touched.topic_id)
                copy.partitions = dict(touched.partitions)
                shadow.topics[copy.name] = shadow.by_id[copy.topic_id] = copy
            shadow.apply(record)

    def records(self) -> Iterator[bytes]:
        """Yield the records of a snapshot, encoded at the level of `metadata.version`."""
        for record in self._records():
            yield encode(record, self.metadata_version)

    def _records(self) -> Iterator[Record]:
        features = dict(self.features)
        for name in (METADATA_VERSION, *sorted(features)):
            if name in features:
                yield metadata.FeatureLevel(name, features.pop(name))
        yield from self.brokers.values()
        yield from self.controllers.values()
        for topic in self.topics.values():
            yield metadata.TopicRecord(topic.name, topic.topic_id)
            yield from topic.partitions.values()
        for (kind, resource), settings in self.configs.items():
            for name, value in settings.items():
                yield metadata.Config(kind, resource, name, value)
        if self.producer_ids is not None:
            yield self.producer_ids
        yield from self.credentials.values()
        yield from self.entries.values()
        yield from self.quotas.values()
        yield from self.tokens.values()
        yield from self.others.values()

    # Topics.

    def _topic(self, record: metadata.TopicRecord) -> None:
        earlier = self.topics.get(record.name)
        if earlier is not None and earlier.topic_id != record.topic_id:
            raise CorruptBatch(f"topic {record.name} is made while there is one of that name")
        if earlier is None:
            topic = TopicImage(record.name, record.topic_id)
            self.topics[record.name] = self.by_id[record.topic_id] = topic

    def _of(self, topic_id: UUID) -> TopicImage:
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise CorruptBatch(f"there is no topic with the id {topic_id}")
        return topic

    def _partition(self, record: metadata.PartitionRecord) -> None:
        self._of(record.topic_id).partitions[record.partition] = record

    def _change_partition(self, record: metadata.PartitionChange) -> None:
        partitions = self._of(record.topic_id).partitions
        old = partitions.get(record.partition)
        if old is None:
            raise CorruptBatch(f"topic {record.topic_id} has no partition {record.partition}")
        partitions[record.partition] = changed(old, record)

    def _remove_topic(self, record: metadata.RemoveTopic) -> None:
        topic = self._of(record.topic_id)
        del self.by_id[record.topic_id], self.topics[topic.name]
        self.configs.pop((TOPIC, topic.name), None)

    def _clear_elr(self, record: metadata.ClearElr) -> None:
        topics = list(self.topics.values())
        if record.topic:
            topic = self.topics.get(record.topic)
            if topic is None:
                raise CorruptBatch(f"there is no topic {record.topic}")
            topics = [topic]
        for topic in topics:
            for number, partition in topic.partitions.items():
                if partition.elr or partition.last_known_elr:
                    topic.partitions[number] = partition._replace(
                        elr=None, last_known_elr=None, partition_epoch=partition.partition_epoch + 1
                    )

    def _configure(self, record: metadata.Config) -> None:
        resource = record.resource_type, record.resource
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
            return
        settings = self.configs.get(resource)
        if settings is not None:
            settings.pop(record.name, None)
            if not settings:
                del self.configs[resource]

    def _feature(self, record: metadata.FeatureLevel) -> None:
        if record.level:
            self.features[record.name] = record.level
        else:
            self.features.pop(record.name, None)

    # Nodes.

    def _broker(self, record: metadata.RegisterBroker) -> None:
        self.brokers[record.broker_id] = record

    def _unregister(self, record: metadata.UnregisterBroker) -> None:
        self._registration(record)
        del self.brokers[record.broker_id]

    def _registration(
        self,
        record: metadata.UnregisterBroker
        | metadata.BrokerChange
        | metadata.FenceBroker
        | metadata.UnfenceBroker,
    ) -> metadata.RegisterBroker:
        broker = self.brokers.get(record.broker_id)
        if broker is None:
            raise CorruptBatch(f"broker {record.broker_id} is not registered")
        if broker.broker_epoch != record.broker_epoch:
            raise CorruptBatch(
                f"broker {record.broker_id} is registered in epoch {broker.broker_epoch}, not in "
                f"{record.broker_epoch}"
            )
        return broker

    def _change_broker(self, record: metadata.BrokerChange) -> None:
        old = self._registration(record)
        self.brokers[record.broker_id] = old._replace(
            fenced=record.fenced > 0 if record.fenced else old.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown > 0
            if record.in_controlled_shutdown
            else old.in_controlled_shutdown,
            log_dirs=record.log_dirs or old.log_dirs,
            cordoned=old.cordoned if record.cordoned is None else record.cordoned,
        )

    def _fence(self, record: metadata.FenceBroker | metadata.UnfenceBroker) -> None:
        fenced = isinstance(record, metadata.FenceBroker)
        old = self._registration(record)
        self.brokers[record.broker_id] = old._replace(fenced=fenced)

    def _controller(self, record: metadata.RegisterController) -> None:
        self.controllers[record.controller_id] = record

    def _unregister_controller(self, record: metadata.UnregisterController) -> None:
        self.controllers.pop(record.controller_id, None)  # Kafka accepts an unknown one, too

    def _producer_ids(self, record: metadata.ProducerIdsRecord) -> None:
        self.producer_ids = record

    # Security.

    def _entry(self, record: metadata.AccessControlEntry) -> None:
        self.entries[record.entry_id] = record

    def _remove_entry(self, record: metadata.RemoveAccessControlEntry) -> None:
        self.entries.pop(record.entry_id, None)

    def _credential(self, record: metadata.ScramCredential) -> None:
        self.credentials[record.name, record.mechanism] = record

    def _remove_credential(self, record: metadata.RemoveScramCredential) -> None:
        self.credentials.pop((record.name, record.mechanism), None)

    def _quota(self, record: metadata.ClientQuota) -> None:
        key = frozenset(record.entity), record.key
        if record.remove:
            self.quotas.pop(key, None)
        else:
            self.quotas[key] = record

    def _token(self, record: metadata.DelegationToken) -> None:
        self.tokens[record.token_id] = record

    def _remove_token(self, record: metadata.RemoveDelegationToken) -> None:
        self.tokens.pop(record.token_id, None)

    def _keep(self, record: Record) -> None:
        """Keep a record for snapshots only."""
        key = record.data if isinstance(record, metadata.Unknown) else None
        self.others[type(record), key] = record


def changed(
    old: metadata.PartitionRecord, change: metadata.PartitionChange
) -> metadata.PartitionRecord:
    """Return a partition after a change.

    The new epochs follow from the change.

    Every leader, even the same one again, begins a leader epoch. Every change begins a partition
    epoch.
    """
    leads = change.leader != NO_CHANGE
    return old._replace(
        replicas=old.replicas if change.replicas is None else change.replicas,
        isr=old.isr if change.isr is None else change.isr,
        removing=old.removing if change.removing is None else change.removing,
        adding=old.adding if change.adding is None else change.adding,
        leader=change.leader if leads else old.leader,
        recovery_state=old.recovery_state if change.recovery_state < 0 else change.recovery_state,
        leader_epoch=old.leader_epoch + leads,
        partition_epoch=old.partition_epoch + 1,
        directories=change.directories or old.directories,
        elr=old.elr if change.elr is None else change.elr or None,
        last_known_elr=old.last_known_elr
        if change.last_known_elr is None
        else change.last_known_elr or None,
    )


def _nothing(_: Record) -> None:
    """Ignore a record without consequence for an image."""
