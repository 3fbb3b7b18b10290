"""Finds the open transactions of a partition's directory, and their owners, without a broker.

The newest snapshot of producers and the batches after it contain the open transactions;
transactional ids are in `__transaction_state` of the state directory. A broker may be at work
meanwhile. It writes the state of an id before the first record and after the marker. So a
transaction that is open before and after the states are read has its state in between.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from horolog.metadata.home import state_dir_beside
from horolog.metadata.internal_topics import replay_topic
from horolog.metadata.opening import state_dir_of
from horolog.offsets import HeldUp
from horolog.schemas.transactions import TransactionStatus
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_meta_properties
from horolog.storage.files import Files
from horolog.storage.lookup.by_append_time import append_times, with_ends
from horolog.storage.lookup.unread import unread
from horolog.storage.names import TopicPartition
from horolog.storage.offline.partition_reader import PartitionReader
from horolog.storage.offline.transactions import Decided
from horolog.storage.producers.replay import read_producers
from horolog.storage.producers.states import OpenNow, Producers
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.validation.validate import MAX_UNCOMPRESSED_BYTES
from horolog.transactions.replay import TransactionReplay
from horolog.transactions.values import CoordinatedTransaction

_logger = logging.getLogger(__name__)


def find_held_up(
    files: Files, log_dir: Path, log: PartitionReader, *, is_adopted: bool = False
) -> HeldUp | None:
    """Describe the first open transaction of a partition; None if no transaction is open.

    Of a log that was adopted only those are open that the broker here may still end.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    producers = _producers(files, log)
    if producers is None or not producers.open_count:
        return None
    states = _read_states(files, log_dir)
    after = _producers(files, PartitionReader(files, log.directory))
    opened = set() if after is None else set(after.unended())
    left = [
        transaction
        for transaction in producers.open_now(producers.open_count)
        if (transaction.producer_id, transaction.first_offset) in opened
    ]
    if is_adopted:
        decided = decided_in(files, str(log_dir), log.partition)
        may_end = decided.may_end if decided else frozenset[int]()
        left = [transaction for transaction in left if transaction.producer_id in may_end]
    return _held_up(log, left, states) if left else None


def _producers(files: Files, log: PartitionReader) -> Producers | None:
    return read_producers(files, str(log.directory), log.segments) if log.segments else None


class _States(NamedTuple):
    """States of the transactional ids of a log directory."""

    states: Mapping[str, CoordinatedTransaction]
    are_all: bool
    """Whether all ids are known: their coordinator is here, and nothing is damaged."""


def _read_states(files: Files, log_dir: Path) -> _States:
    state_dir = state_dir_of(log_dir)
    is_ours = state_dir.is_dir()
    replay, is_whole = _in_topic(files, state_dir if is_ours else log_dir)
    return _States(replay.states, is_ours and is_whole)


def _in_topic(
    files: Files, log_dir: Path, *, is_lenient: bool = False
) -> tuple[TransactionReplay, bool]:
    """Replay `__transaction_state`; return also whether all of it could be read.

    A lenient read leaves out the partitions that the disk does not give, with a warning.
    """
    replay, is_whole = TransactionReplay(), True
    for replayed in replay_topic(files, log_dir, names.TRANSACTION_STATE, replay.take):
        if replayed.error is not None:
            if not is_lenient:
                raise replayed.error
            _logger.warning("What transactions came to is not known: %s", replayed.error)
        is_whole = is_whole and not replayed.damage and replayed.error is None
    return replay, is_whole and not replay.unreadable


def decided_in(files: Files, log_dir: str, partition: TopicPartition) -> Decided | None:
    """Return the decisions on the open transactions of a partition.

    None where that is not known: the directory is not horolog's. A Kafka may be at work in it, or
    it is a copy of what one is writing.

    Raises:
        StorageFailed: the disk refused.
    """
    path = Path(log_dir)
    meta = read_meta_properties(files, str(path / names.META_PROPERTIES), [])
    committed: Mapping[TopicPartition, frozenset[int]] = {}
    state_dir = path
    if meta is None or names.METADATA_PROPERTY not in meta.others:
        state_dir = state_dir_beside(path)
        if not files.exists(str(state_dir)):
            return None
        committed = committed_in(files, path)
    may_end = may_end_in(files, state_dir)
    none = frozenset[int]()
    return Decided(may_end.get(partition, none), committed.get(partition, none))


def may_end_in(
    files: Files, state_dir: Path, others: Iterable[CoordinatedTransaction] = ()
) -> Mapping[TopicPartition, frozenset[int]]:
    """Group the producers by partition whose open transactions the coordinator here can still end.

    Args:
        files: the way to the disk.
        others: transactions that the coordinator takes over.

    Raises:
        StorageFailed: the disk refused.
    """
    replay, _ = _in_topic(files, state_dir)
    return _by_partition(state for state in (*others, *replay.states.values()) if state.is_open)


def committed_in(files: Files, log_dir: Path) -> Mapping[TopicPartition, frozenset[int]]:
    """Group the producers by partition whose transactions a Kafka had decided to commit.

    Its coordinator writes its decision to `__transaction_state` before the first marker goes to a
    partition (KIP-98): from then on the transaction is committed, and a Kafka that starts again
    only makes up for the markers. What cannot be read is left out, with a warning.

    Raises:
        StorageFailed: the log directory cannot be listed.
    """
    replay, is_whole = _in_topic(files, log_dir, is_lenient=True)
    if not is_whole:
        why = replay.reason or "some of its batches are damaged"
        _logger.warning("What transactions in %s came to is known only in part: %s", log_dir, why)
    known = (state for name, state in replay.states.items() if name not in replay.uncertain)
    return _by_partition(
        state for state in known if state.status is TransactionStatus.PREPARE_COMMIT
    )


def _by_partition(
    states: Iterable[CoordinatedTransaction],
) -> Mapping[TopicPartition, frozenset[int]]:
    """Group the producers of transactions by partition."""
    found: dict[TopicPartition, set[int]] = {}
    for state in states:
        for partition in state.partitions:
            found.setdefault(TopicPartition(*partition), set()).add(state.producer.id)
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
    producer_id: int, partition: TopicPartition, states: Mapping[str, CoordinatedTransaction]
) -> str | None:
    """Return the transactional id whose open transaction contains the partition."""
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
