"""What a Kafka that had this log directory knew of its topics' settings; read, never written.

A broker that is its own controller (KRaft) keeps them in `__cluster_metadata-0`: a
snapshot `<offset>-<epoch>.checkpoint` and the log after it, both batches of format v2
whose records hold (KIP-631, and metadata/src/main/resources/common/metadata in Kafka)

    unsigned varint 1 · unsigned varint type · unsigned varint version · fields

Of these are read, strings being compact, tagged fields at the end skipped:

    2  TopicRecord          name · uuid
    4  ConfigRecord         i8 resource type (2: topic) · resource name · name · value or null
    9  RemoveTopicRecord    uuid

Others keep no settings here; `cleaner-offset-checkpoint` still says what was compacted.
"""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

from horolog.errors import CorruptFile, HorologError
from horolog.storage import names
from horolog.storage.adoption.records import Fields, records_in
from horolog.storage.directory.checkpoints import read_offsets
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

_DIRECTORY = "__cluster_metadata-0"
_CLEANED = "cleaner-offset-checkpoint"
_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_FRAME_VERSION = 1
_TOPIC, _CONFIG, _REMOVE_TOPIC = 2, 4, 9
_OF_TOPIC = 2

_logger = logging.getLogger(__name__)

TopicSettings = dict[str, dict[str, str]]


def read_topic_settings(files: Files, log_dir: Path) -> TopicSettings:
    """The settings of each topic that has any of its own, under Kafka's names.

    Unreadable records are skipped with a warning.
    """
    found = _Found()
    try:
        for value in _values(files, log_dir / _DIRECTORY):
            found.take(value)
    except (HorologError, FileMissing) as error:
        _logger.warning("Kafka's metadata is known only in part: %s", error)
    for topic in _cleaned(files, log_dir):
        found.settings.setdefault(topic, {}).setdefault("cleanup.policy", "compact")
    return {topic: settings for topic, settings in found.settings.items() if settings}


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
    for record in records_in(files, path, start):
        if record.value is not None:
            yield record.value


class _Found:
    """Settings as record after record leaves them."""

    def __init__(self) -> None:
        self.settings: TopicSettings = {}
        self._names: dict[bytes, str] = {}  # by topic id

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
            self._names[fields.take(16)] = name or ""
        elif kind == _CONFIG:
            self._configure(fields)
        elif kind == _REMOVE_TOPIC:
            self.settings.pop(self._names.pop(fields.take(16), ""), None)

    def _configure(self, fields: Fields) -> None:
        (resource_type,) = fields.take(1)
        topic, name, value = fields.text(), fields.text(), fields.text()
        if resource_type != _OF_TOPIC or topic is None or name is None:
            return
        settings = self.settings.setdefault(topic, {})
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = value
