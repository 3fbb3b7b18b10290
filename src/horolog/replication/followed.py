"""State machine of one followed partition: next question to its leader, effect of an answer.

              another leader or epoch
                        │
    EPOCH_END ◄─────────┴──── (a log with leader epochs)
        │ ends agree, after a truncation if need be
        ▼
     RECORDS ── OFFSET_OUT_OF_RANGE ──► BOUNDS ── behind the start: a gap ──► RECORDS
                                          └──── beyond the end ──► EPOCH_END or a truncation

After every other error the same question is repeated later.
"""

from typing import Final

from horolog.errors import ErrorCode
from horolog.replication.asked import AskedPartition, Asks, Gap, LocalLog, StartAt
from horolog.replication.truncation import Agree, AskAgain, Decision, TruncateTo, truncation
from horolog.storage.directory.checkpoints import EpochStart

__all__ = ["FollowedPartition"]

MAX_EPOCH: Final = (1 << 31) - 2
"""A leader epoch of a source is at most this: the next leader needs a larger one."""

FALLEN_MS: Final = 10_000
"""Time for which a leader epoch may be lower than before, because a broker of the source lags."""

MOST_GAPS: Final = 100

ANOTHER_TOPIC: Final = (
    "it is another topic of the same name, or the source was restored from a copy. Promote it "
    "here, or delete it after that to follow it anew"
)


class FollowedPartition(AskedPartition):
    """State machine of one followed partition, described by the module.

    Args:
        backoff_ms: pause after an error that no election explains; it doubles each time.
        longest_backoff_ms: limit of that pause.
    """

    def __init__(self, backoff_ms: int = 1_000, longest_backoff_ms: int = 30_000) -> None:
        super().__init__(backoff_ms, longest_backoff_ms)
        self.is_refused = False
        """The source's topic is not the one that was followed: nothing is asked of it."""
        self.is_denied = False
        """The source does not let it be read."""
        self._resume = 0  # behind a gap
        self._started_at: int | None = None  # the empty log, because the source started there
        self._beyond: int | None = None  # the source's end, where it is before the log's
        self._fallen_since_ms: int | None = None

    def position(self, log: LocalLog) -> int:
        """Return the next offset to fetch."""
        return max(log.end, self._resume)

    # --- leaders ----------------------------------------------------------------------

    def lead(self, leader: int | None, epoch: int | None, log: LocalLog, now_ms: int) -> None:
        """Take the leader that the source announces, and its epoch.

        A lower epoch than before comes from a broker that lags, unless it lasts.
        """
        if epoch is None:
            if leader is None and not self.is_refused:
                self._stop("the partition has no leader at the source")
            elif leader is not None:
                self._refuse(
                    "the source has no leader epochs: Apache Kafka 2.1 or later can be followed"
                )
            return
        if not 0 <= epoch <= MAX_EPOCH:
            self._refuse(f"the source says that it leads in epoch {epoch}, which cannot be")
            return
        if epoch < max(self.epoch, log.latest_epoch):
            self._fall(epoch, log, now_ms)
            return
        self._fallen_since_ms = None
        if leader is None:
            self._stop("the partition has no leader at the source")
            self.epoch = epoch
            return
        if (leader, epoch) == (self.leader, self.epoch):
            return
        self.leader, self.epoch = leader, epoch
        self.is_refused, self.why, self.failures, self.not_before_ms = False, None, 0, 0
        self.turn += 1
        self._beyond = None
        # After an unclean election the leader may have offsets that the one before had deleted.
        if self._resume > log.end:
            self._resume = 0
            del self.gaps[-1:]
        self._ask_epoch_end(log)
        if self._may_start_earlier(log):
            self.asks = Asks.BOUNDS

    def _ask_epoch_end(self, log: LocalLog) -> None:
        """Ask for the end of the log's latest epoch, before any record."""
        if log.epochs:
            self.asks, self.asked_epoch = Asks.EPOCH_END, log.latest_epoch
        else:  # empty, or of formats v0 and v1, which have no epochs
            self.asks = Asks.RECORDS

    def _may_start_earlier(self, log: LocalLog) -> bool:
        """Return True if the log is empty, and starts where it does because its source did."""
        return log.start == log.end == self._started_at

    def _fall(self, epoch: int, log: LocalLog, now_ms: int) -> None:
        if self._fallen_since_ms is None:
            self._fallen_since_ms = now_ms
        known = max(self.epoch, log.latest_epoch)
        if now_ms - self._fallen_since_ms >= FALLEN_MS:
            self._refuse(
                f"the source leads it in epoch {epoch}, and was followed up to epoch {known}: "
                f"{ANOTHER_TOPIC}"
            )
        elif self.leader is None and not self.is_refused:
            self._stop(f"the source leads it in epoch {epoch}, which is before {known}")

    def _refuse(self, why: str) -> None:
        self._stop(why)
        self.is_refused = True

    # --- answers ----------------------------------------------------------------------

    def on_epoch_end(self, epoch: int, end: int, log: LocalLog, now_ms: int) -> TruncateTo | None:
        """Take the leader's answer about `asked_epoch`; -1 where the leader does not know it."""
        if epoch > self.asked_epoch:
            self.on_failure(
                f"the source answered with epoch {epoch}, asked for the end of {self.asked_epoch}",
                now_ms,
            )
            return None
        decision: Decision
        if epoch < 0 or end < 0:  # it has no epochs there: as between formats v0 and v1
            decision = TruncateTo(log.high_watermark) if log.high_watermark < log.end else Agree()
        else:
            decision = truncation(log.epochs, log.end, epoch, end)
        match decision:
            case AskAgain(earlier):
                self.asked_epoch = earlier
                return None
            case TruncateTo(offset) if epoch == self.epoch == log.latest_epoch:
                self.on_failure(
                    f"the source ends at offset {end} in leader epoch {epoch}, in which it had "
                    f"reached {log.end}, and a leader does not truncate: {ANOTHER_TOPIC}",
                    now_ms,
                )
                return None
            case TruncateTo(offset):
                self._resume, self._beyond = 0, None
                self.asks, self.failures, self.why = Asks.RECORDS, 0, None
                return TruncateTo(offset)
        self.asks = Asks.RECORDS
        if self._beyond is None:
            self.failures, self.why = 0, None
            return None
        self.on_failure(
            f"the source ends at offset {self._beyond} and yet has all that is here, up to "
            f"offset {log.end}",
            now_ms,
        )
        self._beyond = None
        return None

    def on_bounds(
        self, start: int, end: int, log: LocalLog, now_ms: int
    ) -> TruncateTo | StartAt | None:
        """Take the start and the end of the source's log; asked after OFFSET_OUT_OF_RANGE."""
        if not 0 <= start <= end:
            self.on_failure(f"the source has offsets {start} to {end}, which cannot be", now_ms)
            return None
        position = self.position(log)
        self.asks = Asks.RECORDS
        if self._may_start_earlier(log) and start <= position <= end:
            self.failures, self.why = 0, None
            if start == position:
                return None
            self._started_at = start
            return StartAt(start)
        if position < start:
            self.failures, self.why = 0, None
            if log.start == log.end:
                self._started_at = start
                return StartAt(start)
            self._resume = start
            self._note_gap(Gap(position, start))
            return None
        if self._resume > end:
            self._resume = 0
        if end < log.end:
            if not log.epochs:
                self.failures, self.why = 0, None
                return TruncateTo(end)
            self._beyond = end
            self._ask_epoch_end(log)
            return None
        # It is in range, as it seems: the source's log has changed meanwhile.
        self.on_failure(
            f"the source refuses offset {position}, and has offsets {start} to {end}", now_ms
        )
        return None

    def on_undone(self, log: LocalLog) -> None:
        """Ask again, because a decision could not be carried out."""
        self._ask_epoch_end(log)
        if self.asks is Asks.RECORDS:
            self.asks = Asks.BOUNDS

    def on_records(self, high_watermark: int, log: LocalLog, now_ms: int) -> None:
        """Take a fetch whose records, if there were any, were appended."""
        super().on_records(high_watermark, log, now_ms)
        self.is_denied = False

    def on_diverging(self, diverging: EpochStart, log: LocalLog, now_ms: int) -> None:
        """Take the end of an earlier epoch in place of records: compare as after an election."""
        self._ask_epoch_end(log)

    def on_error(self, code: ErrorCode, what: str, now_ms: int) -> bool:
        """Take the leader's refusal; return True if the source's metadata should be read again."""
        self.is_denied |= code == ErrorCode.topic_authorization_failed  # until records come
        return super().on_error(code, what, now_ms)

    def _note_gap(self, gap: Gap) -> None:
        if self.gaps and self.gaps[-1].end == gap.start:
            gap = Gap(self.gaps.pop().start, gap.end)
        self.gaps = [*self.gaps[-MOST_GAPS + 1 :], gap]
