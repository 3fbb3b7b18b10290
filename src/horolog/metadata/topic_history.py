"""Reads the history of a topic: its changes, and its settings in force at a time.

Each answer reads the metadata log from its first record on. If horolog keeps its records beside
another's log, both are read, and each entry names its log.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from horolog.errors import CorruptBatch, StorageFailed
from horolog.history import AskTopicHistory, TopicAspect, TopicChange, TopicHistory
from horolog.metadata import state
from horolog.metadata.forms import PARTITION, KafkaForm
from horolog.metadata.image import BROKER, TOPIC, Image
from horolog.metadata.mapping import shared_settings
from horolog.metadata.past import PastLog, answered, past_directories, shortened
from horolog.metadata.reconcile import stored_count
from horolog.metadata.replay import Damage, MetadataReplay
from horolog.metadata.rows import AS_FOUND, TopicRow
from horolog.record.batch import parse_header
from horolog.schemas import metadata as m
from horolog.schemas.metadata import Record
from horolog.storage.directory.checkpoints import kafka_uuid
from horolog.storage.files import Files

_TRUE: Final = "true"

_Facts = dict[tuple[TopicAspect, str | None], str]


class _View(NamedTuple):
    """A topic at a time."""

    topic_id: UUID
    facts: _Facts


def read_topic_history(
    log_dir: Path, ask: AskTopicHistory, state_dir: Path | None = None
) -> TopicHistory:
    """Read the history of a topic from a log directory.

    A broker may be at work there.

    Args:
        ask: which of its entries; those from `ask.start` on are the last of the answer.
        state_dir: of the broker; None: where one has it by default.

    Raises:
        StorageFailed: the directory cannot be read.
    """

    def logs(files: Files) -> Iterator[PastLog[TopicChange]]:
        for name, directory in past_directories(log_dir, state_dir):
            log = _MetadataLog(files, directory, f"{name}{PARTITION}", ask.topic)
            if files.exists(f"{directory}/{PARTITION}"):
                yield log

    return TopicHistory(*answered(logs, _in_force, ask.at, ask.most, ask.start, ask.end))


class Change(NamedTuple):
    """Records that count together: a batch, a transaction, or a part of a snapshot."""

    timestamp: int
    """Time in milliseconds at which they were written, by the leader's clock."""
    records: list[Record]
    is_snapshot: bool
    """Whether they are from a snapshot, so that the time of the change is unknown."""


def changes(files: Files, log_dir: str, damage: list[Damage] | None = None) -> Iterator[Change]:
    """Yield the changes in order; those of a transaction at the time of its end.

    Unreadable records are left out. Applied to an `Image`, the changes before a time give the state
    at that time. Changes before the log begins (`forms.HISTORY_MS`) come as records of a snapshot,
    all at the time of the last of them.

    Args:
        files: the way to the disk; nothing is written.
        log_dir: the log directory, of a broker that runs or not.
        damage: what cannot be read is added to it.

    Raises:
        StorageFailed: the log cannot be read at all.
    """
    form = KafkaForm(files, log_dir)
    replay = MetadataReplay(log_dir)
    if damage is not None:
        replay.damage = damage
    for batch in form.kept(replay.damage):
        records = [record for _, record in replay.counted(batch)]
        if records:
            snapshot_ms = replay.snapshot_ms
            time_ms = parse_header(batch).max_timestamp if snapshot_ms is None else snapshot_ms
            yield Change(time_ms, records, snapshot_ms is not None)


class _MetadataLog(PastLog[TopicChange]):
    """One metadata log, read for one topic."""

    def __init__(self, files: Files, log_dir: str, name: str, topic: str) -> None:
        super().__init__(name)
        self._files = files
        self._log_dir = log_dir
        self._topic = topic

    def entries(self) -> Iterator[TopicChange]:
        """Yield the changes of the topic."""
        damage: list[Damage] = []
        try:
            yield from self._entries(damage)
        except StorageFailed as error:  # e.g. something else has the name of the directory
            self.note(str(error))
        for lost in damage:
            self.note(str(lost))

    def _entries(self, damage: list[Damage]) -> Iterator[TopicChange]:
        image, before = Image(), None
        for change in changes(self._files, self._log_dir, damage):
            touches = False
            for record in change.records:
                touches |= _touches(image, self._topic, record)
                try:
                    image.apply(record)
                except CorruptBatch as error:
                    damage.append(Damage(self.name, f"a record does not count: {error}"))
            if change.is_snapshot:
                self.whole_from = change.timestamp
            if touches:
                after = _view(image, self._topic)
                for difference in _differences(before, after):
                    yield difference._replace(
                        time=change.timestamp, log=self.name, is_earlier=change.is_snapshot
                    )
                before = after


def _touches(image: Image, topic: str, record: Record) -> bool:
    """Return True if a record may change a topic."""
    match record:
        case m.TopicRecord():
            return record.name == topic
        case m.Config():
            resource = record.resource_type, record.resource
            return resource == (TOPIC, topic) or (resource == (BROKER, "") and topic in record.name)
        case m.PartitionRecord() | m.RemoveTopic():
            its = image.topics.get(topic)
            return its is not None and its.topic_id == record.topic_id
        case _:
            return False


def _view(image: Image, name: str) -> _View | None:
    """Return a topic as an image has it; None if it does not exist."""
    topic = image.topics.get(name)
    if topic is None:
        return None
    row = TopicRow(name, topic.topic_id, AS_FOUND)
    row, settings = state.joined(row, image.settings_of(TOPIC, name), shared_settings(image))
    count = stored_count(topic.partitions)
    partitions = ",".join(map(str, sorted(topic.partitions))) if count == AS_FOUND else str(count)
    facts: _Facts = {(TopicAspect.PARTITIONS, None): partitions}
    flags = {"adopted": row.adopted, "followed": row.followed, "salvaged": row.is_salvaged}
    facts |= {(TopicAspect.STATE, flag): _TRUE for flag, holds in flags.items() if holds}
    facts |= {(TopicAspect.SETTING, setting): settings[setting] for setting in sorted(settings)}
    return _View(topic.topic_id, facts)


def _differences(before: _View | None, after: _View | None) -> Iterator[TopicChange]:
    """Yield the differences between two states of a topic, without a time."""
    is_same = before is not None and after is not None and before.topic_id == after.topic_id
    if before is not None and not is_same:
        yield TopicChange(0, "", kafka_uuid(before.topic_id), TopicAspect.DELETED)
    if after is None:
        return
    topic_id = kafka_uuid(after.topic_id)
    if not is_same:
        yield TopicChange(0, "", topic_id, TopicAspect.CREATED)
    old = before.facts if before is not None and is_same else {}
    for key in dict.fromkeys([*old, *after.facts]):
        was, comes = old.get(key), after.facts.get(key)
        if was != comes:
            aspect, name = key
            yield TopicChange(
                0, "", topic_id, aspect, shortened(name), shortened(was), shortened(comes)
            )


def _in_force(entries: Iterable[TopicChange]) -> list[TopicChange]:
    """Return the last change of each fact that still holds after these entries."""
    found: dict[tuple[TopicAspect, str | None], TopicChange] = {}
    for entry in entries:
        if entry.aspect in (TopicAspect.CREATED, TopicAspect.DELETED):
            found.clear()
        if entry.aspect is TopicAspect.CREATED or entry.after is not None:
            found[entry.aspect, entry.name] = entry
        else:
            found.pop((entry.aspect, entry.name), None)
    return list(found.values())
