"""Which transaction is open first in a partition's directory, read without a broker.

The producers' newest snapshot and the batches after it say what is open; transactional ids are in
`__transaction_state`, or beside another's logs in `horolog-transactions.log`. A broker may be at
work meanwhile. It writes the state of an id before the first record, and again after the marker: so
what was open before and after states were read has had its state in between.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from horolog.metadata.opening import is_own
from horolog.offsets import HeldUp
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_meta_properties
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.lookup.by_append_time import append_times, with_ends
from horolog.storage.lookup.replay import replay_segments
from horolog.storage.lookup.unread import unread
from horolog.storage.names import TopicPartition
from horolog.storage.offline.partition_reader import PartitionReader
from horolog.storage.producers.replay import read_producers
from horolog.storage.producers.states import OpenNow, Producers
from horolog.storage.record_file import RecordFile
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.validation.validate import MAX_UNCOMPRESSED_BYTES
from horolog.transactions.replay import Replay
from horolog.transactions.values import Transaction


class OpenTransactions:
    """The open transactions of a log directory's partitions. Not for several threads."""

    def __init__(self, files: Files, log_dir: Path) -> None:
        self._files = files
        self._log_dir = log_dir

    def held_up(self, log: PartitionReader) -> HeldUp | None:
        """The first one of a partition; None if none is open.

        Raises:
            StorageFailed: the disk refused.
            CorruptBatch: the log is damaged where it has to be read.
        """
        producers = self._producers(log)
        if producers is None or not producers.open_count:
            return None
        states = _read_states(self._files, self._log_dir)
        after = self._producers(PartitionReader(self._files, log.directory))
        opened = set() if after is None else set(after.unended())
        left = [
            each
            for each in producers.open_now(producers.open_count)
            if (each.producer_id, each.first_offset) in opened
        ]
        return _held_up(log, left, states) if left else None

    def _producers(self, log: PartitionReader) -> Producers | None:
        if not log.segments:
            return None
        return read_producers(self._files, str(log.directory), log.segments)


class _States(NamedTuple):
    """The transactional ids of a log directory."""

    states: Mapping[str, Transaction]
    are_all: bool
    """Whether none is missing: the coordinator of all is here, and nothing is damaged."""


def _read_states(files: Files, log_dir: Path) -> _States:
    is_ours = is_own(log_dir)
    if files.exists(str(log_dir / names.TRANSACTIONS_FILE)) and not is_ours:
        replay, is_whole = _in_file(files, log_dir)
        return _States(replay.states, is_whole)
    replay, is_whole = _in_topic(files, log_dir)
    return _States(replay.states, is_ours and is_whole)


def _in_file(files: Files, log_dir: Path) -> tuple[Replay, bool]:
    """What is beside another's logs, if anything, and whether all of it could be read."""
    replay, path = Replay(), str(log_dir / names.TRANSACTIONS_FILE)
    if not files.exists(path):
        return replay, True
    file = RecordFile(files, path)
    for batch in file.read():
        replay.take(batch)
    return replay, not replay.unreadable and not file.lost


def _in_topic(files: Files, log_dir: Path) -> tuple[Replay, bool]:
    """What `__transaction_state` has, and whether all of it could be read."""
    replay, skipped = Replay(), 0
    for name in sorted(files.names_in(str(log_dir))):
        partition = names.partition_of(name)
        if partition is None or partition.topic != names.TRANSACTION_STATE:
            continue
        try:
            log = PartitionReader(files, log_dir / name)
            skipped += sum(1 for _ in replay_segments(log.segments, 0, replay.take))
        except FileMissing:  # compaction has replaced a segment meanwhile
            skipped += 1
    return replay, not skipped and not replay.unreadable


def may_end(files: Files, log_dir: str, partition: TopicPartition) -> frozenset[int] | None:
    """The producers whose transactions in a partition the coordinator of ours may still end.

    None where that is not known: the directory is not horolog's. A Kafka may be at work in it, or
    it is a copy of what one is writing.

    Raises:
        StorageFailed: the disk refused.
    """
    path = Path(log_dir)
    meta = read_meta_properties(files, str(path / names.META_PROPERTIES), [])
    if meta is not None and names.METADATA_PROPERTY in meta.others:
        states = _in_topic(files, path)[0].states
    elif files.exists(str(path / names.METADATA_FILE)):
        states = _in_file(files, path)[0].states
    else:
        return None
    return frozenset(
        state.producer.id
        for state in states.values()
        if state.is_open and partition in state.partitions
    )


def open_in(files: Files, log_dir: Path) -> Mapping[tuple[str, int], frozenset[int]]:
    """By partition, the producers whose transactions the coordinator of a directory may still end.

    Raises:
        StorageFailed: the disk refused.
    """
    found: dict[tuple[str, int], set[int]] = {}
    for state in _read_states(files, log_dir).states.values():
        for partition in state.partitions if state.is_open else ():
            found.setdefault(partition, set()).add(state.producer.id)
    return {partition: frozenset(ids) for partition, ids in found.items()}


def _held_up(log: PartitionReader, left: Sequence[OpenNow], known: _States) -> HeldUp:
    first, start, end = left[0], log.log_start_offset, log.log_end_offset
    offset = max(first.first_offset, start)
    owner = _owner(first.producer_id, log.partition, known.states)
    return HeldUp(
        first.producer_id,
        first.epoch,
        owner,
        False if owner is not None else True if known.are_all else None,
        offset,
        _appended_ms(log.segments, offset) if first.first_offset >= start else None,
        max(0, end - offset),
        unread(log.segments, offset, end, MAX_UNCOMPRESSED_BYTES).records if offset < end else 0,
        len(left),
    )


def _owner(
    producer_id: int, partition: TopicPartition, states: Mapping[str, Transaction]
) -> str | None:
    """The transactional id whose open transaction has the partition."""
    for transactional_id, state in states.items():
        if state.is_open and state.producer.id == producer_id and partition in state.partitions:
            return transactional_id
    return None


def _appended_ms(segments: Sequence[SegmentReader], offset: int) -> int | None:
    for segment, end_offset, size in with_ends(segments):
        if segment.base_offset <= offset < end_offset:
            found = append_times(segment, offset, offset + 1, size)
            return found[0].ms if found else None
    return None
