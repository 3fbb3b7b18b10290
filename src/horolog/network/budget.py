"""How many bytes all connections together may hold in memory.

Requests being received or worked on, and answers made but not sent, count against one
budget, by the memory that they take and not by the length that a client claims. A connection
that needs more than there is stops reading until others have given back, so that the kernel,
and in the end the client, waits instead of the broker growing.

Those that wait go on smallest first, so that a request of usual size does not stand behind
claims of a hundred megabytes. Buffers grow while a request arrives. So it can happen that all there
is has gone to requests that are not whole, and none of them can be finished. Therefore, where those
that wait hold most of what is held, the smallest may go beyond the limit: one at a time, until its
request is whole.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

SMALL_BYTES = 64 * 1024


class ByteBudget:
    """A count of bytes, and who waits for some. For the event loop's thread only.

    `on_pressure` is called when a connection begins to wait, and when more is held than there
    should be.
    """

    def __init__(self, limit: int, on_pressure: Callable[[], None] = lambda: None) -> None:
        self._limit = limit
        self._used = 0  # the sum of what all accounts hold
        self._line: list[tuple[int, int, Account]] = []  # a heap; may hold those that left
        self._tickets = count(1)
        self._waiting = 0
        self._wanted = 0  # by those that wait
        self._held_by_waiting = 0
        self._overdrawn_by: Account | None = None
        self._on_pressure = on_pressure

    @property
    def used(self) -> int:
        """Bytes held now."""
        return self._used

    @property
    def is_spent(self) -> bool:
        """Whether more is held than there should be."""
        return self._used > self._limit

    @property
    def is_under_pressure(self) -> bool:
        """Whether a connection waits for bytes, or more is held than there should be."""
        return self._waiting > 0 or self._used > self._limit

    @property
    def missing(self) -> int:
        """How many bytes must be given back before all that wait can go on."""
        return self._used + self._wanted - self._limit

    def account(self) -> "Account":
        """The share of one connection."""
        return Account(self)

    def _take(self, account: "Account", size: int) -> bool:
        if account is self._overdrawn_by or not (
            self._used and (self._waiting or self._used + size > self._limit)
        ):
            self._used += size
            return True
        return False

    def _force(self, size: int, *, of_waiting: bool) -> None:
        self._used += size
        if of_waiting:
            self._held_by_waiting += size
        if self._used > self._limit:
            self._on_pressure()

    def _wait(self, account: "Account") -> int:
        ticket = next(self._tickets)
        heappush(self._line, (account.wanted, ticket, account))
        self._waiting += 1
        self._wanted += account.wanted
        self._held_by_waiting += account.held
        return ticket

    def _leave_line(self, account: "Account") -> None:
        self._waiting -= 1
        self._wanted -= account.wanted
        self._held_by_waiting -= account.held

    def _first(self) -> "Account | None":
        """The one that goes on next."""
        while self._line:
            _, ticket, account = self._line[0]
            if account.ticket == ticket:
                return account
            heappop(self._line)
        return None

    def _end_overdraft(self, account: "Account") -> None:
        if account is self._overdrawn_by:
            self._overdrawn_by = None
            self._serve()

    def _give(self, size: int, *, of_waiting: bool = False) -> None:
        self._used -= size
        assert self._used >= 0
        if of_waiting:
            self._held_by_waiting -= size
        if self._waiting:
            self._serve()

    def _serve(self) -> None:
        """Let those go on for which there are bytes."""
        while (first := self._first()) is not None:
            if self._used and self._used + first.wanted > self._limit:
                if self._overdrawn_by is not None or 2 * self._held_by_waiting < self._used:
                    self._on_pressure()
                    return
                self._overdrawn_by = first
            self._leave_line(first)
            self._used += first.wanted
            first.granted()


class Account:
    """What one connection holds of a budget."""

    __slots__ = ("_budget", "_when_granted", "held", "ticket", "wanted")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.held = 0
        self.wanted = 0  # bytes waited for; 0 while nothing is
        self.ticket = 0  # of the place in line
        self._when_granted: Callable[[], None] = lambda: None

    def take(self, size: int) -> bool:
        """Take `size` bytes if they are there and nobody was first.

        What is alone always fits, so a limit below the largest request slows but never stops.
        """
        if self._budget._take(self, size):
            self.held += size
            return True
        return False

    def force(self, size: int) -> None:
        """Take bytes that are held already, whether they fit or not."""
        self.held += size
        self._budget._force(size, of_waiting=bool(self.wanted))

    def wait(self, size: int, when_granted: Callable[[], None]) -> None:
        """Call back once `size` bytes have been taken; perhaps at once."""
        assert not self.wanted
        self.wanted, self._when_granted = size, when_granted
        self.ticket = self._budget._wait(self)
        self._budget._serve()

    def granted(self) -> None:
        """The budget has taken what was waited for."""
        self.held += self.wanted
        self.wanted = self.ticket = 0
        self._when_granted()

    def finish_request(self) -> None:
        """The request that was being received is whole: it needs no more."""
        self._budget._end_overdraft(self)

    def give(self, size: int) -> None:
        """Give bytes back, and let those go on whose turn it is."""
        self.held -= size
        self._budget._give(size, of_waiting=bool(self.wanted))

    def close(self) -> None:
        """Give everything back, and wait no longer."""
        if self.wanted:
            self._budget._leave_line(self)
            self.wanted = self.ticket = 0
        held, self.held = self.held, 0
        self._budget._give(held)
        self._budget._end_overdraft(self)
