"""When a group has to act: the deadlines of a rebalance, and the earliest of all."""


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
        """Note a deadline of the group or a member; it is returned."""
        if self.wake_at_ms is None or deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms
        return deadline_ms

    def begin_first(self, now_ms: int, timeout_ms: int) -> None:
        """The group was empty: wait for others that start at the same time (KIP-134)."""
        self.begin(now_ms, self._initial_delay_ms)
        self._extension_left_ms = max(timeout_ms - self._initial_delay_ms, 0)
        self._more_came = False

    def begin(self, now_ms: int, timeout_ms: int) -> None:
        """Members are to join within the timeout."""
        self._extension_left_ms = None
        self.joins_until_ms = self.wake_by(now_ms + timeout_ms)
        self.syncs_until_ms = None

    def note_newcomer(self) -> None:
        """A member was added, which extends the initial delay."""
        self._more_came = True

    def joining_is_over(self, now_ms: int, *, all_joined: bool) -> bool:
        """Whether the rebalance can be completed; extends the initial delay if it is due."""
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
        """No member has joined: wait as long again."""
        self.joins_until_ms = self.wake_by(now_ms + timeout_ms)

    def end_joining(self) -> None:
        """The rebalance is complete."""
        self.joins_until_ms = self._extension_left_ms = None

    def begin_syncing(self, now_ms: int, timeout_ms: int) -> None:
        """Members are to send SyncGroup within the timeout."""
        self.syncs_until_ms = self.wake_by(now_ms + timeout_ms)

    def syncing_is_over(self, now_ms: int) -> bool:
        """Whether members that have sent no SyncGroup are to be removed."""
        return self.syncs_until_ms is not None and now_ms >= self.syncs_until_ms
