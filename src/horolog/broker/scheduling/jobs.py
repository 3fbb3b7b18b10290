"""Jobs of a write queue or of a thread, which run in order."""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.storage.producers.states import Admission
from horolog.storage.validation.validate import Prepared


class Append:
    """Batch to append; `prepared` is set once it is validated."""

    __slots__ = (
        "admission",
        "batch",
        "check",
        "config",
        "in_thread",
        "is_refused",
        "now_ms",
        "owner",
        "prepared",
        "produce_version",
        "stamp_ms",
    )

    def __init__(
        self,
        owner: Hashable,
        batch: Buffer,
        config: TopicConfig,
        now_ms: int,
        stamp_ms: int,
        produce_version: int,
        in_thread: bool,
        admission: Admission | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        self.owner = owner
        self.batch = batch
        self.config = config  # by which it is checked
        self.now_ms = now_ms
        self.stamp_ms = stamp_ms  # the clock of append times when it came
        self.produce_version = produce_version
        self.admission = admission
        self.in_thread = in_thread  # has to be checked there
        self.is_refused = False
        self.check: Future[Prepared] | None = None  # while it is being checked
        self.prepared = prepared


class Failure:
    """Exception that a job raised."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Job:
    """Call and its future; `append` is set for appends."""

    __slots__ = ("append", "call", "done")

    def __init__(
        self, call: Callable[[], Any], done: asyncio.Future[Any], append: Append | None = None
    ) -> None:
        self.call = call
        self.done = done
        self.append = append

    @property
    def is_ready(self) -> bool:
        """True if the job can run in a thread now."""
        return self.append is None or self.append.prepared is not None

    def settle(self, outcome: Any) -> None:
        """Resolve the future, unless it was cancelled."""
        if self.done.done():
            return
        if isinstance(outcome, Failure):
            self.done.set_exception(outcome.error)
        else:
            self.done.set_result(outcome)


def perform(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run calls in a thread; return each result, or a `Failure`."""
    outcomes: list[Any] = []
    for call in calls:
        try:
            outcomes.append(call())
        except Exception as error:  # noqa: BLE001 - raised where the outcome is awaited
            outcomes.append(Failure(error))
    return outcomes
