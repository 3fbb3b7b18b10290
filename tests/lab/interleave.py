"""Running one thing between any two lines of another, as threads may, but every time the same."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

from patience import PATIENCE_S

T = TypeVar("T")

_MAY_WAIT_FOR_A_LOCK_S = 0.005


def at_each_line(
    run: Callable[[], T],
    meanwhile: Callable[[], object],
    within: str = "horolog/storage/",
    every: int = 1,
) -> Iterator[T]:
    """Call `run` again and again; in call number n, `meanwhile` is called before its nth line.

    Only lines of files `within` a folder count. Ends when `run` has fewer lines than n, which
    grows by `every`.
    `meanwhile` has a thread of its own; where it waits for a lock that `run` holds, both continue.
    """
    number = 1 - every
    while True:
        number += every
        tracer = _Tracer(number, meanwhile, within)
        before = sys.gettrace()
        sys.settrace(tracer.trace)
        try:
            result = run()
        finally:
            sys.settrace(before)
        if tracer.thread is None:
            return
        tracer.thread.join(PATIENCE_S)
        yield result


class _Tracer:
    def __init__(self, number: int, meanwhile: Callable[[], object], within: str) -> None:
        self.thread: threading.Thread | None = None
        self._left = number
        self._meanwhile = meanwhile
        self._within = within

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if self.thread is not None or self._within not in frame.f_code.co_filename:
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.thread = threading.Thread(target=self._meanwhile)
                self.thread.start()
                self.thread.join(_MAY_WAIT_FOR_A_LOCK_S)
        return self.trace
