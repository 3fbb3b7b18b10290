"""Rule book of a replica: a partition of this cluster that another broker leads.

    RECORDS ── diverging epoch ──► a truncation ──► RECORDS                          (KIP-595)
       │
       └── OFFSET_OUT_OF_RANGE ──► BOUNDS ── the leader's log ends before: a truncation there
                                      └──── it starts behind: all goes, and begins there

The controllers decide who leads, in which epoch. Whatever a leader answers besides, the same
question is repeated later, until the cluster's metadata name another one. Nothing is truncated but
by an answer of the leader of the current epoch, and no replica waits for an operator.
"""

from collections.abc import Sequence
from typing import Final

from horolog.replication.asked import SOON_MS, AskedPartition, Asks, LocalLog, StartAt
from horolog.replication.truncation import TruncateTo, common_end
from horolog.storage.directory.checkpoints import EpochStart

__all__ = ["REFUSALS", "ReplicaPartition"]

REFUSALS: Final = 4
"""Refusals in a row of an offset that is in the leader's log, after which the log begins anew."""


class ReplicaPartition(AskedPartition):
    """State machine of one replica, described by the module."""

    is_replica = True

    def __init__(self, backoff_ms: int = 1_000, longest_backoff_ms: int = 1_000) -> None:
        super().__init__(backoff_ms, longest_backoff_ms)
        self._refusals = 0

    def lead(self, leader: int, epoch: int) -> None:
        """Take the leader of the cluster's metadata. An epoch before the known one is ignored."""
        if epoch < self.epoch or (leader, epoch) == (self.leader, self.epoch):
            return
        self.leader, self.epoch = leader, epoch
        self.asks, self.why, self.failures, self.not_before_ms = Asks.RECORDS, None, 0, 0
        self._refusals = 0
        self.turn += 1

    def last_epoch(self, log: LocalLog) -> int:
        """Return the leader epoch of the last record; -1 without one.

        An epoch in which the log was led, and nothing was written, may be unknown to its leader,
        and nothing is there to be cut (KAFKA-10706).
        """
        epochs = _with_records(log)
        return epochs[-1].epoch if epochs else -1

    def before_reading(self, log: LocalLog) -> TruncateTo | None:
        """Cut what is not committed of a log without epochs: no answer says where it diverges."""
        if not log.epochs and log.high_watermark < log.end:
            return TruncateTo(log.high_watermark)
        return None

    def on_records(self, high_watermark: int, log: LocalLog, now_ms: int) -> None:
        """Take a fetch whose records, if there were any, were appended."""
        super().on_records(high_watermark, log, now_ms)
        self._refusals = 0

    def on_diverging(
        self, diverging: EpochStart, log: LocalLog, now_ms: int
    ) -> TruncateTo | StartAt | None:
        """Cut the log where the leader's parts from it; the next fetch compares them again."""
        epoch, end = diverging
        epochs, latest = _with_records(log), self.last_epoch(log)
        offset = common_end(epochs, log.end, epoch, end)
        if not 0 <= epoch <= latest or end < 0 or offset >= log.end:
            self.on_failure(
                f"the leader says that its epoch {epoch} ends at offset {end}, and that therefore "
                f"its log parts from the one here, which ends at {log.end} in epoch {latest}",
                now_ms,
            )
            return None
        self._refusals = 0
        return TruncateTo(offset)

    def on_bounds(
        self, start: int, end: int, log: LocalLog, now_ms: int
    ) -> TruncateTo | StartAt | None:
        """Take the start and the end of the leader's log; asked after OFFSET_OUT_OF_RANGE."""
        self.asks = Asks.RECORDS
        if not 0 <= start <= end:
            self.on_failure(f"the leader has offsets {start} to {end}, which cannot be", now_ms)
            return None
        self._refusals += 1
        is_new = log.start == log.end == start
        if start > log.end:
            return StartAt(start)
        if end < log.end:
            return TruncateTo(end) if log.start < end else StartAt(start)
        if self._refusals >= REFUSALS and not is_new:
            # It knows none of the epochs here. Nothing of this log is known to be in the leader's.
            return StartAt(start)
        # Its log has changed since it refused, as it seems.
        pause_ms = min(SOON_MS << min(self.failures, 16), self._backoff_ms)
        why = f"the leader refuses offset {log.end}, and has offsets {start} to {end}"
        self._back_off(pause_ms, why, now_ms)
        return None

    def on_epoch_end(self, epoch: int, end: int, log: LocalLog, now_ms: int) -> None:
        """Take no such answer: epochs are compared by fetches."""
        raise AssertionError("a replica does not ask for ends of epochs")

    def on_undone(self, log: LocalLog) -> None:
        """Fetch again, because an instruction could not be carried out."""
        self.asks = Asks.RECORDS


def _with_records(log: LocalLog) -> Sequence[EpochStart]:
    """Return the epochs of the log that have records."""
    epochs = log.epochs
    if epochs and epochs[-1].start_offset >= log.end:
        return [epoch for epoch in epochs if epoch.start_offset < log.end]
    return epochs
