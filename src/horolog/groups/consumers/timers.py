"""Timers of the members of one consumer group, in milliseconds of the event loop's clock."""

from typing import Final

from horolog.groups.consumers.values import Timer, TimerKind

_RETRY_MS: Final = 1_000


class Timers:
    """Deadlines of members. The earliest is looked for only when `wake_at_ms` is over."""

    __slots__ = ("_deadlines", "wake_at_ms")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKind, dict[str, int]] = {kind: {} for kind in TimerKind}
        self.wake_at_ms: int | None = None
        """Never later than the earliest deadline."""

    def set(self, timer: Timer, now_ms: int) -> None:
        """Begin a timer anew, or end it."""
        deadlines = self._deadlines[timer.kind]
        if timer.after_ms is None:
            deadlines.pop(timer.member_id, None)
            return
        if timer.if_none and timer.member_id in deadlines:
            return
        deadline_ms = deadlines[timer.member_id] = now_ms + timer.after_ms
        if self.wake_at_ms is None or deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms

    def drop(self, member_id: str) -> None:
        """End all timers of a member."""
        for deadlines in self._deadlines.values():
            deadlines.pop(member_id, None)

    def due(self, now_ms: int) -> dict[str, TimerKind]:
        """Return the members whose time is over, and which of their timers it was."""
        if self.wake_at_ms is None or now_ms < self.wake_at_ms:
            return {}
        due: dict[str, TimerKind] = {}
        earliest: int | None = None
        for kind, deadlines in self._deadlines.items():
            for member_id, deadline_ms in deadlines.items():
                if now_ms >= deadline_ms:
                    due[member_id] = kind
                elif earliest is None or deadline_ms < earliest:
                    earliest = deadline_ms
        if due:  # to be tried again where their end cannot be stored
            earliest = now_ms + _RETRY_MS if earliest is None else min(earliest, now_ms + _RETRY_MS)
        self.wake_at_ms = earliest
        return due
