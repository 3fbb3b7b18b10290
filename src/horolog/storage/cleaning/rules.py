"""Rules for records and batches that remain besides the latest record of each key.

- Records of aborted transactions go. A marker remains while a batch of its transaction does, and
  then until its delete horizon (KIP-534).
- The last batch of a producer remains, if necessary without records. The next batch is compared
  with its sequence, or with the epoch of its marker (KIP-98).
- The last batch before the end of the pass remains, since it says where the log ends. Kafka 4.4
  keeps it only if the high watermark is there.
- A tombstone remains until its delete horizon, which it gets in the first pass that keeps it.
  Formats v0 and v1 have no place for a horizon. There it remains while its segment was changed
  later than `delete.retention.ms` before the last clean segment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from horolog.record.batch import MAGIC, BatchHeader
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.producers.states import Producers
from horolog.storage.segments.reader import SegmentReader


class LastOfProducer(NamedTuple):
    """Last batch of a producer. The log must keep it."""

    last_data_offset: int | None
    """Last offset of the last batch with records; None if only a marker is known."""
    epoch: int


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of one pass over a log."""

    now_ms: int
    """The clock."""
    delete_retention_ms: int
    """Time for which clean tombstones and markers remain."""
    end_offset: int
    """Base offset of the first segment that is not cleaned."""
    legacy_horizon_ms: int = 0
    """Modification time after which a segment keeps its tombstones of v0 and v1."""
    producers: Mapping[int, LastOfProducer] = field(default_factory=dict)
    """Producers that may append again, by id."""
    aborted: Sequence[AbortedTxn] = ()
    """Aborted transactions of the whole log, also those without a marker before `end_offset`."""
    keeps_keyless: bool = False
    """True to keep records without a key; Kafka's cleaner removes them."""


def last_of_producers(producers: Producers) -> dict[int, LastOfProducer]:
    """Return the last batch of each producer."""
    return {
        producer_id: LastOfProducer(
            state.batches[-1].last_offset if state.batches else None, state.epoch
        )
        for producer_id, state in producers
    }


def legacy_horizon(clean: Sequence[SegmentReader], delete_retention_ms: int) -> int:
    """Return `Rules.legacy_horizon_ms` for a log whose clean segments are these."""
    return clean[-1].modified_ms() - delete_retention_ms if clean else 0


class Fate(NamedTuple):
    """Decision of a pass on a batch."""

    loses_records: bool = False
    """True if all records go, whatever their keys."""
    stays_empty: bool = False
    """True if the batch remains even without records."""
    keeps_tombstones: bool = True
    needs_horizon: bool = False
    """True for a marker whose transaction is gone: it gets a delete horizon."""


def fate_of(header: BatchHeader, rules: Rules, may_go: bool, modified_ms: int) -> Fate:
    """Decide on a batch.

    Args:
        modified_ms: when its segment was last changed.
    """
    if header.magic != MAGIC:
        return Fate(
            stays_empty=header.next_offset == rules.end_offset,
            keeps_tombstones=modified_ms > rules.legacy_horizon_ms,
        )
    horizon_ms = header.base_timestamp if header.has_delete_horizon else None
    is_over = horizon_ms is not None and horizon_ms <= rules.now_ms
    loses_records = may_go and (is_over or not header.is_control)
    return Fate(
        loses_records,
        header.next_offset == rules.end_offset or _is_last_of_producer(header, rules),
        keeps_tombstones=not is_over,
        needs_horizon=may_go and header.is_control and horizon_ms is None,
    )


def _is_last_of_producer(header: BatchHeader, rules: Rules) -> bool:
    if header.producer_id < 0:
        return False
    last = rules.producers.get(header.producer_id)
    if last is None:
        return False
    if last.last_data_offset is None:
        return header.is_control and header.producer_epoch == last.epoch
    return header.last_offset == last.last_data_offset
