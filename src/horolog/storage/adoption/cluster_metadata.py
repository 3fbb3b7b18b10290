"""What a Kafka that had this log directory knew of its topics and settings; read, never written.

A broker that is its own controller (KRaft) keeps them in `__cluster_metadata-0`: a
snapshot `<offset>-<epoch>.checkpoint` and the log after it, both batches of format v2
whose records hold (KIP-631, and metadata/src/main/resources/common/metadata in Kafka)

    unsigned varint 1 · unsigned varint type · unsigned varint version · fields

Of these are read, strings being compact, tagged fields at the end skipped:

     2  TopicRecord                       name · uuid
     4  ConfigRecord                      i8 resource type · resource name · name · value or null
     9  RemoveTopicRecord                 uuid
    11  UserScramCredentialRecord         user · i8 mechanism
    14  ClientQuotaRecord                 array of (type · name or null) · name · f64 · i8 remove
    18  AccessControlEntryRecord          uuid
    19  RemoveAccessControlEntryRecord    uuid
    22  RemoveUserScramCredentialRecord   user · i8 mechanism

The last five are counted only. Others keep no settings here; `cleaner-offset-checkpoint` still says
what was compacted.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from horolog.errors import CorruptFile, HorologError
from horolog.schemas.fields import Fields
from horolog.storage import names
from horolog.storage.adoption.records import records_in
from horolog.storage.directory.checkpoints import read_offsets
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

_DIRECTORY = "__cluster_metadata-0"
_CLEANED = "cleaner-offset-checkpoint"
_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_FRAME_VERSION = 1
_TOPIC, _CONFIG, _REMOVE_TOPIC = 2, 4, 9
_SCRAM, _QUOTA, _ACL, _REMOVE_ACL, _REMOVE_SCRAM = 11, 14, 18, 19, 22
_COUNTED = {_SCRAM: "SCRAM credential", _QUOTA: "client quota", _ACL: "access control entry"}
_OF_TOPIC = 2
_RESOURCES = {4: "broker", 16: "client metrics subscription", 32: "group"}

_logger = logging.getLogger(__name__)

Overrides = dict[str, dict[str, str]]


class ClusterMetadata(NamedTuple):
    """What the metadata of a Kafka says; settings are under Kafka's names."""

    topics: Overrides
    """Of each topic that has settings of its own."""
    topic_ids: Mapping[str, UUID]
    others: Mapping[tuple[str, str], Mapping[str, str]]
    """Settings by kind and name of what has them; those of all brokers have the name ""."""
    counted: Mapping[str, int]
    """How many there are of what is no setting, by what it is called."""


def read_cluster_metadata(files: Files, log_dir: Path) -> ClusterMetadata:
    """Read the metadata of the Kafka that has had a log directory; empty if it holds none.

    Unreadable records are skipped with a warning.
    """
    found = _Found()
    try:
        for value in _values(files, log_dir / _DIRECTORY):
            found.take(value)
    except (HorologError, FileMissing) as error:
        _logger.warning("Kafka's metadata is known only in part: %s", error)
    topics = {name: its for (kind, name), its in found.settings.items() if kind == _OF_TOPIC}
    for topic in _cleaned(files, log_dir):
        topics.setdefault(topic, {}).setdefault("cleanup.policy", "compact")
    return ClusterMetadata(
        {topic: settings for topic, settings in topics.items() if settings},
        {name: UUID(bytes=topic_id) for topic_id, name in found.names.items()},
        {
            (_RESOURCES[kind], name): its
            for (kind, name), its in found.settings.items()
            if kind in _RESOURCES and its
        },
        Counter(_COUNTED[kind] for kind, _ in found.counted),
    )


def _cleaned(files: Files, log_dir: Path) -> set[str]:
    """The topics that Kafka's cleaner has compacted."""
    try:
        return {key.topic for key in read_offsets(files, str(log_dir / _CLEANED))}
    except HorologError as error:
        _logger.warning("Which topics were compacted is not known: %s", error)
        return set()


def _values(files: Files, directory: Path) -> Iterator[bytes]:
    """The value of every record of the newest snapshot and of the log after it."""
    if directory.is_symlink() or not directory.is_dir():
        return
    entries = sorted(entry.name for entry in directory.iterdir())
    snapshots = [name for name in entries if _SNAPSHOT.fullmatch(name)]
    start = 0
    if snapshots:
        start = int(snapshots[-1][:20])
        yield from _values_in(files, directory / snapshots[-1], 0)
    for name in entries:
        if names.base_offset_of(name, names.LOG) is not None:
            yield from _values_in(files, directory / name, start)


def _values_in(files: Files, path: Path, start: int) -> Iterator[bytes]:
    for record in records_in(files, str(path), start):
        if record.value is not None:
            yield record.value


class _Found:
    """Settings as record after record leaves them."""

    def __init__(self) -> None:
        self.settings: dict[tuple[int, str], dict[str, str]] = {}  # by resource type and name
        self.names: dict[bytes, str] = {}  # by topic id
        self.counted: set[tuple[int, Any]] = set()

    def take(self, value: bytes) -> None:
        """Take one record.

        Raises:
            CorruptBatch: it ends too early, or is no text where a text must be.
        """
        fields = Fields(value)
        if fields.unsigned() != _FRAME_VERSION:
            raise CorruptFile("a metadata record has a frame of another version")
        kind, _ = fields.unsigned(), fields.unsigned()
        if kind == _TOPIC:
            name = fields.text()
            self.names[fields.take(16)] = name or ""
        elif kind == _CONFIG:
            self._configure(fields)
        elif kind == _REMOVE_TOPIC:
            self.settings.pop((_OF_TOPIC, self.names.pop(fields.take(16), "")), None)
        elif kind in (_ACL, _SCRAM):
            self.counted.add((kind, _identity(kind, fields)))
        elif kind == _REMOVE_ACL:
            self.counted.discard((_ACL, _identity(_ACL, fields)))
        elif kind == _REMOVE_SCRAM:
            self.counted.discard((_SCRAM, _identity(_SCRAM, fields)))
        elif kind == _QUOTA:
            entity = []
            for _ in range(fields.unsigned() - 1):
                entity.append((fields.text(), fields.text()))
                fields.pass_tagged()
            quota = _QUOTA, (tuple(entity), fields.text())
            fields.take(8)
            is_removed = fields.take(1) != b"\0"
            (self.counted.discard if is_removed else self.counted.add)(quota)

    def _configure(self, fields: Fields) -> None:
        (resource_type,) = fields.take(1)
        resource, name, value = fields.text(), fields.text(), fields.text()
        if resource is None or name is None:
            return
        settings = self.settings.setdefault((resource_type, resource), {})
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = value


def _identity(kind: int, fields: Fields) -> Any:
    return fields.take(16) if kind == _ACL else (fields.text(), fields.take(1))
