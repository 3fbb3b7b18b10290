"""Which transactions a Kafka had decided to commit when it stopped; read, never written.

Its coordinator writes its decision to `__transaction_state` before the first marker goes to
a partition (KIP-98): from then on the transaction is committed, and a Kafka that starts
again only makes up for the markers. Every record has the state of one transactional id:

    key    i16 version · i16 length and transactional id
    value  i16 version · i64 producer id · i16 epoch · i32 timeout · i8 state
           · partitions, each a topic and numbers · times, and tagged fields (not read)

Version 0 has counts of 4 and lengths of 2 bytes, version 1 is compact (KIP-482).
"""

import logging
import os
from collections.abc import Iterator
from struct import Struct

from horolog.errors import CorruptFile, HorologError
from horolog.schemas.fields import Fields
from horolog.storage import names
from horolog.storage.adoption.records import records_in
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_PREPARE_COMMIT = 2
_COMPACT = 1
_HEAD = Struct(">hqhib")
_COUNT = Struct(">i")
_LENGTH = Struct(">h")

_logger = logging.getLogger(__name__)

PreparedCommits = dict[TopicPartition, frozenset[int]]


def read_prepared_commits(files: Files, log_dir: str) -> PreparedCommits:
    """For each partition the producer ids whose open transaction there is committed.

    Unreadable records are skipped with a warning.

    Raises:
        StorageFailed: the log directory cannot be listed.
    """
    found: dict[TopicPartition, set[int]] = {}
    for name in files.names_in(log_dir):
        named, directory = names.partition_of(name), f"{log_dir}/{name}"
        if named is None or named.topic != names.TRANSACTION_STATE or os.path.islink(directory):
            continue
        for producer_id, partitions in _prepared_in(files, directory):
            for partition in partitions:
                found.setdefault(partition, set()).add(producer_id)
    return {partition: frozenset(ids) for partition, ids in found.items()}


def _prepared_in(files: Files, directory: str) -> Iterator[tuple[int, list[TopicPartition]]]:
    states: dict[bytes, bytes] = {}  # the newest of each transactional id
    try:
        for name in files.names_in(directory):
            if names.base_offset_of(name, names.LOG) is None:
                continue
            for record in records_in(files, f"{directory}/{name}"):
                if record.key is None:
                    continue
                if record.value is None:
                    states.pop(record.key, None)
                else:
                    states[record.key] = record.value
    except (HorologError, FileMissing) as error:
        _logger.warning("What Kafka's transactions came to is known only in part: %s", error)
    for value in states.values():
        try:
            prepared = _prepared(Fields(value))
        except HorologError as error:
            _logger.warning("What a transaction of Kafka's came to is not known: %s", error)
            continue
        if prepared is not None:
            yield prepared


def _prepared(fields: Fields) -> tuple[int, list[TopicPartition]] | None:
    """Producer id and partitions, if this is the state in which a commit is decided."""
    version, producer_id, _epoch, _timeout_ms, state = fields.unpack(_HEAD)
    if version not in (0, _COMPACT):
        raise CorruptFile(f"a transaction's state is of version {version}; known are 0 and 1")
    if state != _PREPARE_COMMIT:
        return None
    is_compact = version == _COMPACT
    partitions = []
    for _ in range(_count(fields, is_compact=is_compact)):
        topic = (fields.text() or "") if is_compact else fields.text_of(*fields.unpack(_LENGTH))
        partitions += [
            TopicPartition(topic, *fields.unpack(_COUNT))
            for _ in range(_count(fields, is_compact=is_compact))
        ]
        if is_compact:
            fields.pass_tagged()
    return producer_id, partitions


def _count(fields: Fields, *, is_compact: bool) -> int:
    """Of an array's elements; none if it is null."""
    return fields.unsigned() - 1 if is_compact else fields.unpack(_COUNT)[0]
