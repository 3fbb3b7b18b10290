"""State that every rule book of a follower keeps: next question to the leader, and when to ask it.

The rule books are `followed` (partitions of another cluster) and `replica` (partitions of this
cluster). Between two answers the caller applies the returned instruction (`TruncateTo`, `StartAt`)
to the log. Times are milliseconds of a clock that never goes back.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from horolog.errors import ErrorCode
from horolog.replication.truncation import TruncateTo
from horolog.storage.directory.checkpoints import EpochStart

__all__ = ["MOVED", "SOON_MS", "AskedPartition", "Asks", "Gap", "LocalLog", "StartAt"]

SOON_MS: Final = 50
"""Pause after the first error that an election explains."""

MOVED: Final = frozenset(
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
    """Instruction: remove all records, and let the log start at this offset."""

    offset: int


class AskedPartition(ABC):
    """Partition about which its leader is asked.

    `is_replica` says that leader and follower are brokers of one cluster: each change of leaders
    may cut what is not committed, and logs start at the same offset.

    Args:
        backoff_ms: pause after an error that no election explains; it doubles each time.
        longest_backoff_ms: limit of that pause.
    """

    is_replica = False

    def __init__(self, backoff_ms: int = 1_000, longest_backoff_ms: int = 30_000) -> None:
        self.leader: int | None = None
        self.epoch = -1
        """Leader epoch: the largest that was announced."""
        self.asks = Asks.NOTHING
        self.asked_epoch = -1
        """Epoch whose end is asked for."""
        self.not_before_ms = 0
        """Time of the next question, at the earliest."""
        self.why: str | None = None
        """Sentence why the partition is not followed now; None if it is."""
        self.failures = 0
        """Errors in a row."""
        self.caught_up_ms: int | None = None
        """Last time at which all records of the leader were here."""
        self.offsets_behind: int | None = None
        """Number of missing offsets of the leader at the last answer; None before the first."""
        self.gaps: list[Gap] = []
        """The last gaps that were found, of a log that keeps what is before them."""
        self.turn = 0
        """Changes with the leader: an answer to an earlier turn's request is of no use."""
        self._backoff_ms = backoff_ms
        self._longest_backoff_ms = longest_backoff_ms

    def position(self, log: LocalLog) -> int:
        """Return the next offset to fetch."""
        return log.end

    def last_epoch(self, log: LocalLog) -> int:
        """Return the leader epoch of the last record before that position; -1 without one."""
        return log.latest_epoch

    def release(self) -> None:
        """Ask nothing more, and ignore answers that are still to come."""
        self._stop("it is not followed any more")

    def _stop(self, why: str) -> None:
        if self.asks is not Asks.NOTHING or self.leader is not None:
            self.turn += 1
        self.leader, self.asks, self.why = None, Asks.NOTHING, why

    def before_reading(self, log: LocalLog) -> TruncateTo | None:
        """Return what to cut before records are fetched."""
        return None

    # --- answers ----------------------------------------------------------------------

    @abstractmethod
    def on_bounds(
        self, start: int, end: int, log: LocalLog, now_ms: int
    ) -> TruncateTo | StartAt | None:
        """Take the start and the end of the leader's log; asked after OFFSET_OUT_OF_RANGE."""

    @abstractmethod
    def on_diverging(
        self, diverging: EpochStart, log: LocalLog, now_ms: int
    ) -> TruncateTo | StartAt | None:
        """Take a fetch without records: the log ends in an epoch that the leader's does not have.

        Args:
            diverging: the largest epoch of the leader up to that, and its end.
        """

    @abstractmethod
    def on_epoch_end(self, epoch: int, end: int, log: LocalLog, now_ms: int) -> TruncateTo | None:
        """Take the leader's answer about `asked_epoch`; -1 where the leader does not know it."""

    @abstractmethod
    def on_undone(self, log: LocalLog) -> None:
        """Ask again, because an instruction could not be carried out."""

    def on_records(self, high_watermark: int, log: LocalLog, now_ms: int) -> None:
        """Take a fetch whose records, if there were any, were appended."""
        self.failures, self.why = 0, None
        self.offsets_behind = max(0, high_watermark - self.position(log))
        if not self.offsets_behind:
            self.caught_up_ms = now_ms

    def on_error(self, code: ErrorCode, what: str, now_ms: int) -> bool:
        """Take the leader's refusal; return True if another broker may lead."""
        sentence = f"{what}: {code.name.upper()}"
        if code == ErrorCode.offset_out_of_range and self.asks is Asks.RECORDS:
            self.asks = Asks.BOUNDS
            # From the second time on without an answer in between, not at once.
            self._back_off(SOON_MS if self.failures else 0, sentence, now_ms)
            return False
        if code in MOVED:
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
