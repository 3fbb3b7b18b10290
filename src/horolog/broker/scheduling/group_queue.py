"""Ordered queue of the operations on one consumer group.

An operation is decided on the state in memory, its change is written to the store, and then it is
applied to memory. So memory has only durable state, and a failed write changes nothing.

Most operations are shared: they are decided while other writes of the group are in flight, because
their result does not depend on them (commits of members, joins). An exclusive operation (deletion,
expiry) checks state that such a write could change: it waits until all earlier ones are applied,
and all later ones wait for it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from horolog.errors import RequestRefused
from horolog.groups.rows import GroupChange, Outcomes

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Write: TypeAlias = "Callable[[Sequence[GroupChange]], Outcomes | asyncio.Future[Outcomes]]"


def _nothing() -> None:
    pass


@dataclass(slots=True)
class GroupDecision(Generic[T_co]):
    """Result of an operation, the change to write first, and its effect on memory.

    `refused` takes the error of a write that fails, and the result holds; without it the error is
    the outcome.
    """

    result: T_co
    change: GroupChange | None = None
    apply: Callable[[], None] = _nothing
    refused: Callable[[BaseException], None] | None = None


@dataclass(slots=True)
class _Operation:
    decide: Callable[[], GroupDecision[Any]]
    done: "asyncio.Future[Any]"
    exclusive: bool


_Writing: TypeAlias = list[tuple[_Operation, GroupDecision[Any], GroupChange]]


class GroupQueue:
    """Decides, writes and applies operations. For the event loop's thread only.

    `write` writes changes in order and returns the error or None of each, or their future.
    `on_idle` is called when no operation is queued or in flight.
    """

    __slots__ = (
        "_advancing",
        "_decided",
        "_exclusive",
        "_in_flight",
        "_loop",
        "_on_idle",
        "_waiting",
        "_write",
    )

    def __init__(self, write: Write, on_idle: Callable[[], None] = _nothing) -> None:
        self._write = write
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Operation] = []  # few; a deque of each group takes 600 bytes more
        self._decided: _Writing = []  # to be written when the write in flight has returned
        self._in_flight: _Writing = []
        self._exclusive = False  # what is decided or in flight is one exclusive operation
        self._advancing = False

    @property
    def is_idle(self) -> bool:
        """True if no operation is queued or in flight."""
        return not (self._waiting or self._decided or self._in_flight or self._advancing)

    def run(
        self, decide: Callable[[], GroupDecision[T]], *, exclusive: bool = False
    ) -> "asyncio.Future[T]":
        """Return the future result of an operation, set once its change is durable and applied.

        `decide` runs at the operation's turn, immediately if the queue allows. If it or the store
        raises, that is the result, and nothing is applied.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Operation(decide, done, exclusive))
        self._advance()
        return done

    def _advance(self) -> None:
        """Decide operations whose turn it is; write them unless a write is in flight."""
        if self._advancing:  # an operation that is being decided has asked for another
            return
        self._advancing = True
        while True:
            while self._waiting and not self._exclusive:
                operation = self._waiting[0]
                if operation.exclusive and (self._decided or self._in_flight):
                    break
                del self._waiting[0]
                self._decide(operation)
            if self._in_flight or not self._decided:
                break
            self._in_flight, self._decided = self._decided, []
            written = self._write([change for _, _, change in self._in_flight])
            if isinstance(written, asyncio.Future):
                written.add_done_callback(self._on_written)
                break
            self._settle(written)
        self._advancing = False
        if self.is_idle:
            self._on_idle()

    def _decide(self, operation: _Operation) -> None:
        try:
            decided = operation.decide()
        except RequestRefused as error:
            # Its traceback holds this frame, which holds the future, which holds the error: only
            # the collector would free the request.
            _resolve(operation.done, error.with_traceback(None), None)
            return
        except Exception as error:  # noqa: BLE001 - raised where the operation is awaited
            _resolve(operation.done, error, None)
            return
        if decided.change is None:
            decided.apply()
            _resolve(operation.done, None, decided.result)
            return
        self._decided.append((operation, decided, decided.change))
        self._exclusive = operation.exclusive

    def _on_written(self, written: "asyncio.Future[Outcomes]") -> None:
        failure = written.exception()
        self._advancing = True
        self._settle([failure] * len(self._in_flight) if failure is not None else written.result())
        self._advancing = False
        self._advance()

    def _settle(self, outcomes: Sequence[BaseException | None]) -> None:
        """Apply the written changes, and resolve the futures of their operations."""
        in_flight, self._in_flight = self._in_flight, []
        for (operation, decided, _), error in zip(in_flight, outcomes, strict=True):
            if error is None:
                decided.apply()
            elif decided.refused is not None:
                decided.refused(error)
                error = None
            _resolve(operation.done, error, decided.result)
        self._exclusive = False


def _resolve(done: "asyncio.Future[Any]", error: BaseException | None, result: object) -> None:
    """Resolve the future, unless it was cancelled."""
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
