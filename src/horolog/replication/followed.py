"""State machine of one followed partition: next question to its leader, effect of an answer.

              another leader or epoch
                        │
    EPOCH_END ◄─────────┴──── (a log with leader epochs)
        │ ends agree, after a truncation if need be
        ▼
     RECORDS ── OFFSET_OUT_OF_RANGE ──► BOUNDS ── behind the start: a gap ──► RECORDS
                                          └──── beyond the end ──► EPOCH_END or a truncation

After every other error the same question is repeated later. Between two answers the caller
applies the returned instruction (`TruncateTo`, `StartAt`) to the log. Times are milliseconds of a
clock that never goes back.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from horolog.errors import ErrorCode
from horolog.replication.truncation import Agree, AskAgain, Decision, TruncateTo, truncation
from horolog.storage.directory.checkpoints import EpochStart

__all__ = ["Asks", "FollowedPartition", "Gap", "LocalLog", "StartAt"]

MAX_EPOCH: Final = (1 << 31) - 2
"""A leader epoch of a source is at most this: the next leader needs a larger one."""

SOON_MS: Final = 50
"""Pause after the first error that an election explains."""

FALLEN_MS: Final = 10_000
"""Time for which a leader epoch may be lower than before, because a broker of the source lags."""

MOST_GAPS: Final = 100

ANOTHER_TOPIC: Final = (
    "it is another topic of the same name, or the source was restored from a copy. Promote it "
    "here, or delete it after that to follow it anew"
)

_MOVED: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
"""Errors right after an election, or before a broker has heard of a topic. Nothing is truncated."""


class Asks(Enum):
    """Kind of the next question to the leader."""

    NOTHING = "nothing"
    EPOCH_END = "epoch end"
    BOUNDS = "bounds"
    RECORDS = "records"


class LocalLog(NamedTuple):
    """State of the follower's log."""

    start: int
    end: int
    high_watermark: int
    epochs: Sequence[EpochStart]

    @property
    def latest_epoch(self) -> int:
        """Latest leader epoch of the log's records; -1 without records of format v2."""
        return self.epochs[-1].epoch if self.epochs else -1


class Gap(NamedTuple):
    """Offsets from `start` to before `end` that the source deleted before they were followed."""

    start: int
    end: int


class StartAt(NamedTuple):
    """Instruction: let the log, which is empty, start at this offset."""

    offset: int


class FollowedPartition:
    """State machine of one followed partition, described by the module.

    Args:
        backoff_ms: pause after an error that no election explains; it doubles each time.
        longest_backoff_ms: limit of that pause.
    """

    def __init__(self, backoff_ms: int = 1_000, longest_backoff_ms: int = 30_000) -> None:
        self.leader: int | None = None
        self.epoch = -1
        """Leader epoch: the largest that the source has announced."""
        self.asks = Asks.NOTHING
        self.asked_epoch = -1
        """Epoch whose end is asked for."""
        self.not_before_ms = 0
        """Time of the next question, at the earliest."""
        self.why: str | None = None
        """Sentence why the partition is not followed now; None if it is."""
        self.is_refused = False
        """The source's topic is not the one that was followed: nothing is asked of it."""
        self.failures = 0
        """Errors in a row."""
        self.is_denied = False
        """The source does not let it be read."""
        self.caught_up_ms: int | None = None
        """Last time at which all records of the source were here."""
        self.offsets_behind: int | None = None
        """Number of missing offsets of the source at the last answer; None before the first."""
        self.gaps: list[Gap] = []
        """The last gaps that were found."""
        self.turn = 0
        """Changes with the leader: an answer to an earlier turn's request is of no use."""
        self._backoff_ms = backoff_ms
        self._longest_backoff_ms = longest_backoff_ms
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

    def release(self) -> None:
        """Ask nothing more, and ignore answers that are still to come."""
        self._stop("it is not followed any more")

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

    def _stop(self, why: str) -> None:
        if self.asks is not Asks.NOTHING or self.leader is not None:
            self.turn += 1
        self.leader, self.asks, self.why = None, Asks.NOTHING, why

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
        self.failures, self.why, self.is_denied = 0, None, False
        self.offsets_behind = max(0, high_watermark - self.position(log))
        if not self.offsets_behind:
            self.caught_up_ms = now_ms

    def on_diverging(self, log: LocalLog) -> None:
        """Take the end of an earlier epoch in place of records: compare as after an election."""
        self._ask_epoch_end(log)

    def on_error(self, code: ErrorCode, what: str, now_ms: int) -> bool:
        """Take the leader's refusal; return True if the source's metadata should be read again."""
        sentence = f"{what}: {code.name.upper()}"
        self.is_denied |= code == ErrorCode.topic_authorization_failed  # until records come
        if code == ErrorCode.offset_out_of_range and self.asks is Asks.RECORDS:
            self.asks = Asks.BOUNDS
            # From the second time on without an answer in between, not at once.
            self._back_off(SOON_MS if self.failures else 0, sentence, now_ms)
            return False
        if code in _MOVED:
            pause_ms = min(SOON_MS << min(self.failures, 16), self._backoff_ms)
            self._back_off(pause_ms, sentence, now_ms)
            return True
        self.on_failure(sentence, now_ms)
        return False

    def on_failure(self, why: str, now_ms: int) -> None:
        """Retry later, after an answer that cannot be used or that the log here refuses."""
        pause_ms = min(self._backoff_ms << min(self.failures, 16), self._longest_backoff_ms)
        self._back_off(pause_ms, why, now_ms)

    def _back_off(self, pause_ms: int, why: str, now_ms: int) -> None:
        self.failures += 1
        self.why = why
        self.not_before_ms = now_ms + pause_ms

    def _note_gap(self, gap: Gap) -> None:
        if self.gaps and self.gaps[-1].end == gap.start:
            gap = Gap(self.gaps.pop().start, gap.end)
        self.gaps = [*self.gaps[-MOST_GAPS + 1 :], gap]
