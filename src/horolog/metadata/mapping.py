"""Converts rows to metadata records and back.

Pure: an image and a row in, records out. Each function returns what differs from the image, as one
change that is appended as one batch; nothing if nothing differs.

A topic is a `TopicRecord` with a `PartitionRecord` for each directory and a `Config` for each
setting; what Kafka has no record for is in `state.py`. A deletion is a `RemoveTopic` and a note,
which is removed once the directories are renamed.
"""

import logging
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from horolog.metadata import state
from horolog.metadata.image import BROKER, GROUP, TOPIC, Image
from horolog.metadata.reconcile import stored_count
from horolog.metadata.rows import (
    AS_FOUND,
    BROKER_SCOPE,
    GROUP_SCOPE,
    TOPIC_SCOPE,
    FollowedRow,
    SettingRow,
    SourceRow,
    Stored,
    TopicRow,
    promoted_once,
)
from horolog.quotas.entities import Entity
from horolog.rights.entries import AclEntry
from horolog.schemas.metadata import (
    GROUP_VERSION,
    METADATA_VERSION,
    Config,
    PartitionRecord,
    Record,
    RemoveTopic,
    TopicRecord,
)
from horolog.security.scram import Credential
from horolog.storage import names

_MOST_RESERVED: Final = 100
_WITH_CONTROLLERS: Final = 15  # 3.7-IV0: a controller that starts is among the records
_TRUE: Final = "true"

_logger = logging.getLogger(__name__)


class DirectoryNode(NamedTuple):
    """Broker that owns a log directory, with the directory's id."""

    broker_id: int
    directory_id: UUID


# --- rows to records ----------------------------------------------------------------------


def topic_records(
    image: Image,
    node: DirectoryNode,
    row: TopicRow,
    overrides: Mapping[str, str] | None = None,
    followed: FollowedRow | None = None,
) -> list[Record]:
    """Create or replace a topic, or begin its deletion.

    Arguments are those of `MetadataStore.put_topic`.
    """
    shared = shared_settings(image)
    changes = _without_deletion(row.name, shared)
    records: list[Record]
    if row.deleting:
        records = _removed(image, row.name)
        changes |= dict.fromkeys(state.topic_names(row.name, shared))
        key, note = state.deletion(row)
        changes[key] = note
    else:
        if overrides is None:
            overrides = _overrides(image, row.name)
        parts = state.split(row, overrides, image.metadata_version)
        records, own = _partitions(image, node, row)
        its = {**dict.fromkeys(own), **parts.own}
        records += [
            Config(TOPIC, row.name, name, value)
            for name, value in its.items()
            if own.get(name) != value
        ]
        changes |= {**dict.fromkeys(state.topic_names(row.name, shared)), **parts.shared}
    if followed is not None:
        changes.update([state.followed_entry(followed)])
    return [*records, *settings_changed(image, changes)]


def _partitions(
    image: Image, node: DirectoryNode, row: TopicRow
) -> tuple[list[Record], Mapping[str, str]]:
    """Return the records of a topic and its partitions, and its settings before them."""
    before = image.topics.get(row.name)
    own = image.settings_of(TOPIC, row.name)
    present: Mapping[int, PartitionRecord] = {}
    if before is not None and before.topic_id == row.topic_id:
        present = before.partitions
    indexes: Collection[int] = range(row.partitions)
    if row.partitions == AS_FOUND:
        indexes = row.indexes or present.keys()
    records: list[Record] = []
    is_new = before is None or before.topic_id != row.topic_id
    if before is not None and (is_new or not present.keys() <= set(indexes)):
        records.append(RemoveTopic(before.topic_id))  # no record removes a partition
        is_new, own = True, {}
    if is_new:
        records.append(TopicRecord(row.name, row.topic_id))
    for index in indexes:
        if is_new or index not in present:
            its = present.get(index)
            records.append(_partition(node, row.topic_id, index) if its is None else its)
    return records, own


def _partition(node: DirectoryNode, topic_id: UUID, index: int) -> PartitionRecord:
    replicas = (node.broker_id,)
    return PartitionRecord(
        index,
        topic_id,
        replicas,
        replicas,
        (),
        (),
        node.broker_id,
        leader_epoch=0,
        partition_epoch=0,
        directories=(node.directory_id,),
    )


def forgotten(image: Image, name: str) -> list[Record]:
    """Forget a topic and its settings, except that it was promoted."""
    shared = shared_settings(image)
    changes = _without_deletion(name, shared)
    changes |= dict.fromkeys(state.topic_names(name, shared))
    key = state.followed_name(name)
    its = state.followed_in({key: shared[key]} if key in shared else {})
    if any(row.led for row in its):
        changes.update([state.followed_entry(promoted_once(name))])
    else:
        changes[key] = None
    return [*_removed(image, name), *settings_changed(image, changes)]


def source_records(
    image: Image, source: SourceRow, forgotten_topics: Iterable[str]
) -> list[Record]:
    """Replace the followed cluster, and forget that some topics were promoted."""
    shared = shared_settings(image)
    led = {row.topic for row in state.followed_in(shared) if row.led}
    changes: dict[str, str | None] = {state.SOURCE: state.json_of(source)}
    changes |= {state.followed_name(name): None for name in forgotten_topics if name in led}
    return settings_changed(image, changes)


def epochs_raised(image: Image, epochs: Mapping[tuple[str, int], int]) -> list[Record]:
    """Raise the stored leader epochs of partitions to those of their batches."""
    records: list[Record] = []
    for (topic, index), epoch in epochs.items():
        known = image.topics.get(topic)
        its = None if known is None else known.partitions.get(index)
        if its is not None and its.leader_epoch < epoch:
            after = its._replace(leader_epoch=epoch, partition_epoch=its.partition_epoch + 1)
            records.append(after)
    return records


def is_before_groups(image: Image) -> bool:
    """Return True if an earlier horolog has made the metadata, which had no consumer groups yet.

    Metadata that Apache Kafka has made, or has had meanwhile, name its controller: there its
    operator says which features are on.
    """
    by_horolog = image.metadata_version >= _WITH_CONTROLLERS and not image.controllers
    return METADATA_VERSION in image.features and by_horolog and GROUP_VERSION not in image.features


def tidied(image: Image) -> list[Record]:
    """Remove settings of topics that Apache Kafka has deleted, or has made again."""
    shared = shared_settings(image)
    ids = {name: topic.topic_id for name, topic in image.topics.items()}
    stale = [*state.stale_names(ids, shared)]
    stale += [key for key, row in state.deletions(shared) if row.name in ids]
    return settings_changed(image, dict.fromkeys(stale))


def guarded(image: Image) -> list[Record]:
    """Exempt every topic from retention, because some of their settings may be lost."""
    shared = {**shared_settings(image), state.SALVAGED: _TRUE}
    records: list[Record] = [Config(BROKER, "", state.SALVAGED, _TRUE)]
    for row, overrides in _topics(image, shared):
        parts = state.split(row._replace(adopted=True, is_salvaged=True), overrides)
        own = dict.fromkeys(image.settings_of(TOPIC, row.name))
        records += settings_changed(image, {**own, **parts.own}, row.name, TOPIC)
        records += settings_changed(image, parts.shared)
    return records


def placed(image: Image, node: DirectoryNode) -> list[Record]:
    """Give partitions the id of this directory, where theirs does not exist any more.

    Kafka elects no leader for these.
    """
    here = (node.directory_id,)
    if not _is_known(here):
        return []
    records: list[Record] = []
    for topic in image.topics.values():
        for its in topic.partitions.values():
            alone = (*its.replicas,) == (node.broker_id,)
            if alone and _is_known(its.directories) and (*its.directories,) != here:
                epoch = its.partition_epoch + 1
                records.append(its._replace(directories=here, partition_epoch=epoch))
    return records


def _is_known(directories: Sequence[UUID]) -> bool:
    """Return True if these ids are assigned ones, not reserved ones (KIP-858)."""
    return bool(directories) and all(directory.int > _MOST_RESERVED for directory in directories)


def carried(
    image: Image, beside: Image, node: DirectoryNode, present: Container[str]
) -> list[Record]:
    """Return the records that horolog kept beside another's log and takes into it now.

    These are topics and settings of horolog, and the followed cluster. An adopted topic keeps its
    records in the log. A topic of the log that horolog has deleted has neither a row nor a
    directory, and is deleted in the log.

    Args:
        beside: horolog's state; empty if it was never started in the directory.
        present: topics that have directories.
    """
    rows = stored(beside)
    given: dict[str, dict[str, str]] = {row.name: {} for row in rows.topics}
    records: list[Record] = []
    for setting in rows.settings:
        if setting.scope == TOPIC_SCOPE:
            given[setting.resource][setting.name] = setting.value
        else:
            kind = BROKER if setting.scope == BROKER_SCOPE else GROUP
            records.append(Config(kind, setting.resource, setting.name, setting.value))
    followed = {row.topic: row for row in rows.followed}
    if beside.features:
        kept = {row.name for row in rows.topics} | names.INTERNAL_TOPICS
        for name in image.topics.keys() - kept:
            if name not in present:
                records += _removed(image, name)
    for row in rows.topics:
        if row.name in names.SERVED_INTERNAL:
            continue  # the log directory has its own, into which groups are carried
        is_known = row.topic_id in image.by_id or row.name in image.topics
        if not row.deleting and not (row.adopted and is_known):
            its = followed.get(row.name)
            records += topic_records(image, node, row, given[row.name], its)
    if rows.source is not None:
        records += source_records(image, rows.source, ())
    return records


def shared_settings(image: Image) -> Mapping[str, str]:
    """Return the settings of all brokers, including those in which horolog keeps its state."""
    return image.settings_of(BROKER, "")


def _removed(image: Image, name: str) -> list[Record]:
    before = image.topics.get(name)
    return [] if before is None else [RemoveTopic(before.topic_id)]


def _without_deletion(name: str, shared: Mapping[str, str]) -> dict[str, str | None]:
    return {key: None for key, row in state.deletions(shared) if row.name == name}


def settings_changed(
    image: Image, changes: Mapping[str, str | None], resource: str = "", kind: int = BROKER
) -> list[Record]:
    """Change settings of a resource, by default of all brokers; None deletes a setting."""
    before = image.settings_of(kind, resource)
    return [
        Config(kind, resource, name, value)
        for name, value in changes.items()
        if before.get(name) != value
    ]


# --- records to rows ----------------------------------------------------------------------


def stored(image: Image) -> Stored:
    """Return the rows of an image."""
    shared = shared_settings(image)
    topics: list[TopicRow] = []
    settings: list[SettingRow] = []
    for row, overrides in _topics(image, shared):
        topics.append(row)
        settings += [SettingRow(TOPIC_SCOPE, row.name, *item) for item in overrides.items()]
    topics += [row for _, row in state.deletions(shared) if row.name not in image.topics]
    for (kind, resource), its in image.configs.items():
        if kind == BROKER:
            settings += [
                SettingRow(BROKER_SCOPE, resource, *item)
                for item in its.items()
                if resource or not state.is_hidden(item[0])
            ]
        elif kind == GROUP:
            settings += [SettingRow(GROUP_SCOPE, resource, *item) for item in its.items()]
    return Stored(
        topics,
        settings,
        source=state.source_in(shared),
        followed=tuple(state.followed_in(shared)),
        is_salvaged=state.SALVAGED in shared,
        entries=entries_in(image),
        credentials=credentials_in(image),
        quotas=quotas_in(image),
        copied_quotas=frozenset(filter(None, shared.get(state.COPIED_QUOTAS, "").split(","))),
    )


def credentials_in(image: Image) -> dict[tuple[str, int], Credential]:
    """Return the keys that check passwords, by user and number of the mechanism."""
    return {key: Credential(*record[2:]) for key, record in image.credentials.items()}


def quotas_in(image: Image) -> dict[tuple[Entity, str], float]:
    """Return the quotas of an image by entity and key."""
    return {key: record.value for key, record in image.quotas.items()}


def entries_in(image: Image) -> dict[UUID, AclEntry]:
    """Return the access control entries of an image by id."""
    return {entry_id: AclEntry(*record[1:]) for entry_id, record in image.entries.items()}


def _topics(image: Image, shared: Mapping[str, str]) -> Iterator[tuple[TopicRow, dict[str, str]]]:
    for name, topic in image.topics.items():
        if names.partition_of(f"{name}-0") is None:
            _logger.error("%r in the metadata is no name of a topic: it is ignored", name)
            continue
        count = stored_count(topic.partitions)
        indexes = tuple(sorted(topic.partitions)) if count == AS_FOUND else ()
        row = TopicRow(name, topic.topic_id, count, indexes=indexes)
        yield state.joined(row, image.settings_of(TOPIC, name), shared)


def _overrides(image: Image, name: str) -> dict[str, str]:
    """Return the settings of a topic."""
    topic = image.topics.get(name)
    if topic is None:
        return {}
    row = TopicRow(name, topic.topic_id, AS_FOUND)
    return state.joined(row, image.settings_of(TOPIC, name), shared_settings(image))[1]
