"""Memory limit of all connections together.

Requests that are received or processed, and responses that are not sent yet, are charged to one
budget: by the memory they occupy, not by the length that a client claims. A connection that needs
more than is available stops reading until others release bytes: back-pressure reaches the client
through the kernel's socket buffers.

Waiting connections continue smallest first, so that small requests do not wait for those that
claim a hundred megabytes. Buffers grow while a request arrives, so incomplete requests may use up
the whole budget and none could be completed. To prevent this deadlock, if waiting connections hold
most of the budget, the smallest may exceed the limit: one at a time, until its request is complete.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

SMALL_BYTES = 64 * 1024


class ByteBudget:
    """Counts bytes and queues waiting accounts. For the event loop's thread only.

    `on_pressure` is called when a connection starts to wait, and when the limit is exceeded.
    """

    def __init__(self, limit: int, on_pressure: Callable[[], None] = lambda: None) -> None:
        self._limit = limit
        self._used = 0  # the sum of all accounts
        self._line: list[tuple[int, int, Account]] = []  # a heap; may have accounts that left
        self._tickets = count(1)
        self._waiting = 0
        self._requested = 0  # the sum of waiting accounts
        self._held_by_waiting = 0
        self._overdrawn_by: Account | None = None
        self._on_pressure = on_pressure

    @property
    def limit(self) -> int:
        """Most bytes of all accounts; a few may exceed it."""
        return self._limit

    @property
    def used(self) -> int:
        """Bytes in use by all accounts."""
        return self._used

    @property
    def is_spent(self) -> bool:
        """True if the limit is exceeded."""
        return self._used > self._limit

    @property
    def is_under_pressure(self) -> bool:
        """True if a connection waits for bytes, or the limit is exceeded."""
        return self._waiting > 0 or self._used > self._limit

    @property
    def missing(self) -> int:
        """Number of bytes to release before all waiting connections can continue."""
        return self._used + self._requested - self._limit

    def account(self) -> "Account":
        """Create the account of a connection."""
        return Account(self)

    def _first(self) -> "Account | None":
        """Return the next waiting account to grant."""
        while self._line:
            _, ticket, account = self._line[0]
            if account.ticket == ticket:
                return account
            heappop(self._line)
        return None

    def _leave_line(self, account: "Account") -> None:
        self._waiting -= 1
        self._requested -= account.requested
        self._held_by_waiting -= account.held

    def _serve(self) -> None:
        """Grant waiting accounts while bytes are available."""
        while (first := self._first()) is not None:
            if self._used and self._used + first.requested > self._limit:
                if self._overdrawn_by is not None or 2 * self._held_by_waiting < self._used:
                    self._on_pressure()
                    return
                self._overdrawn_by = first
            self._leave_line(first)
            self._used += first.requested
            first.granted()


class Account:
    """Bytes of a budget that one connection holds."""

    __slots__ = ("_budget", "_when_granted", "held", "requested", "ticket")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.held = 0
        self.requested = 0  # bytes waited for; 0 while nothing is
        self.ticket = 0  # of the place in line
        self._when_granted: Callable[[], None] = lambda: None

    def take(self, size: int) -> bool:
        """Take `size` bytes if they are available and no other account waits.

        A single account always gets its bytes, so a limit below the largest request only slows.
        """
        budget = self._budget
        is_free = not (budget._used and (budget._waiting or budget._used + size > budget._limit))
        if is_free or self is budget._overdrawn_by:
            budget._used += size
            self.held += size
            return True
        return False

    def force(self, size: int) -> None:
        """Charge bytes that are already allocated, even beyond the limit."""
        budget = self._budget
        budget._used += size
        self.held += size
        if self.requested:
            budget._held_by_waiting += size
        if budget._used > budget._limit:
            budget._on_pressure()

    def wait(self, size: int, when_granted: Callable[[], None]) -> None:
        """Call `when_granted` once `size` bytes are taken, possibly within this call."""
        assert not self.requested
        budget = self._budget
        self.requested, self._when_granted = size, when_granted
        self.ticket = next(budget._tickets)
        heappush(budget._line, (size, self.ticket, self))
        budget._waiting += 1
        budget._requested += size
        budget._held_by_waiting += self.held
        budget._serve()

    def granted(self) -> None:
        """Take the bytes that the budget has granted."""
        self.held += self.requested
        self.requested = self.ticket = 0
        self._when_granted()

    def finish_request(self) -> None:
        """End the overdraft of this account: its request is complete."""
        budget = self._budget
        if self is budget._overdrawn_by:
            budget._overdrawn_by = None
            budget._serve()

    def give(self, size: int) -> None:
        """Release bytes, and grant waiting accounts."""
        budget = self._budget
        self.held -= size
        budget._used -= size
        assert budget._used >= 0
        if self.requested:
            budget._held_by_waiting -= size
        if budget._waiting:
            budget._serve()

    def close(self) -> None:
        """Release everything and stop waiting."""
        if self.requested:
            self._budget._leave_line(self)
            self.requested = self.ticket = 0
        self.give(self.held)
        self.finish_request()
