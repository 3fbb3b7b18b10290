"""Deadlines of a rebalance, and the earliest deadline of a group."""


class Deadlines:
    """The deadlines of one group, in milliseconds of the event loop's clock."""

    __slots__ = (
        "_extension_left_ms",
        "_initial_delay_ms",
        "_more_came",
        "joins_until_ms",
        "syncs_until_ms",
        "wake_at_ms",
    )

    def __init__(self, initial_delay_ms: int) -> None:
        self.wake_at_ms: int | None = None  # never later than the earliest deadline
        self.joins_until_ms: int | None = None  # while members are to join
        self.syncs_until_ms: int | None = None  # while members are to send SyncGroup
        self._initial_delay_ms = initial_delay_ms
        self._extension_left_ms: int | None = None  # set during the initial rebalance delay
        self._more_came = False

    def wake_by(self, deadline_ms: int) -> int:
        """Note a deadline of the group or of a member, and return it."""
        if self.wake_at_ms is None or deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms
        return deadline_ms

    def begin_first(self, now_ms: int, timeout_ms: int) -> None:
        """Begin the rebalance of an empty group, in which others may join meanwhile (KIP-134)."""
        self.begin(now_ms, self._initial_delay_ms)
        self._extension_left_ms = max(timeout_ms - self._initial_delay_ms, 0)
        self._more_came = False

    def begin(self, now_ms: int, timeout_ms: int) -> None:
        """Begin a rebalance: members are to join within the timeout."""
        self._extension_left_ms = None
        self.joins_until_ms = self.wake_by(now_ms + timeout_ms)
        self.syncs_until_ms = None

    def note_newcomer(self) -> None:
        """Note a new member, which extends the initial delay."""
        self._more_came = True

    def joining_is_over(self, now_ms: int, *, all_joined: bool) -> bool:
        """Return True if the rebalance can be completed; extend the initial delay if due."""
        assert self.joins_until_ms is not None
        time_is_up = now_ms >= self.joins_until_ms
        if self._extension_left_ms is not None:
            if not time_is_up:
                return False
            if self._more_came and self._extension_left_ms > 0:
                delay_ms = min(self._initial_delay_ms, self._extension_left_ms)
                self._extension_left_ms -= delay_ms
                self.joins_until_ms = self.wake_by(now_ms + delay_ms)
                self._more_came = False
                return False
        return all_joined or time_is_up

    def wait_on(self, now_ms: int, timeout_ms: int) -> None:
        """Wait for as long again, because no member has joined."""
        self.joins_until_ms = self.wake_by(now_ms + timeout_ms)

    def end_joining(self) -> None:
        """Drop the deadlines of the rebalance, which is complete."""
        self.joins_until_ms = self._extension_left_ms = None

    def begin_syncing(self, now_ms: int, timeout_ms: int) -> None:
        """Begin to wait for SyncGroup: members are to send it within the timeout."""
        self.syncs_until_ms = self.wake_by(now_ms + timeout_ms)

    def syncing_is_over(self, now_ms: int) -> bool:
        """Return True if members that have sent no SyncGroup are to be removed."""
        return self.syncs_until_ms is not None and now_ms >= self.syncs_until_ms
