"""Progress of long work on standard error, and the point where it stopped.

A terminal shows a bar. Other outputs get a line each half minute, also while nothing advances.
"""

import logging
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from horolog.cli.screen import say
from horolog.clock import SystemClock
from horolog.errors import HorologError, escaped
from horolog.results import size
from horolog.times import format_time

LOG_EVERY_S: Final = 30.0
_BAR_EVERY_S: Final = 0.5
_WINDOW_S: Final = 60.0
"""Window of the rate: the last minute, or longer if it has only one step."""

CountTasks = Callable[[], tuple[int, int]]
"""Returns how many of the running tasks are done, and how many exist."""


class Work:
    """Progress and rate of some work; the work updates it, a thread shows it.

    Its text is `mirror: 1,200 of 4,800 records (25 %), 300/s, 3,600 left, 12 s to go`.
    """

    def __init__(self, what: str, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing done; `unit` names the counted things, as records or bytes."""
        self.done = self.total = 0
        self.remark = ""
        self._what, self._unit = what, unit
        self._clock = clock
        self._before: int | None = None  # done by earlier runs
        self._tasks = (0, 0)
        self._steps: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def __call__(self, done: int, total: int, remark: str = "") -> None:
        """Set how much is done, and the total; 0 if the total is unknown."""
        if self._before is None:
            self._before = done
        self.total, self.remark = total, remark
        self._step(done)

    def count(self, done: int) -> None:
        """Set how much the tasks have reported, including those under way."""
        done += self._before or 0
        self._step(min(done, self.total) if self.total else done)

    def tasks(self, done: int, total: int) -> None:
        """Set how many tasks are done, and how many exist."""
        self._tasks = (done, total)

    def _step(self, done: int) -> None:
        now = self._clock()
        with self._lock:
            if not self._steps or done > self.done:
                self.done = done
                self._steps.append((now, done))
            while len(self._steps) > 2 and self._steps[1][0] < now - _WINDOW_S:
                self._steps.popleft()

    def _rate(self) -> float:
        """Return the amount per second; 0 before the first step."""
        with self._lock:
            if len(self._steps) < 2:
                return 0.0
            since, before = self._steps[0]
        return max(0.0, (self.done - before) / max(self._clock() - since, 1e-3))

    def __str__(self) -> str:
        parts = []
        if self.total:
            share = 100 * self.done // self.total
            done, of = self._amount(self.done), self._amount(self.total)
            parts.append(f"{done} of {of}{self._named} ({share} %)")
        elif self.done:
            parts.append(f"{self._amount(self.done)}{self._named}")
        if rate := self._rate():
            parts.append(f"{self._amount(round(rate))}/s")
            if (left := self.total - self.done) > 0:
                parts.append(f"{self._amount(left)} left")
                parts.append(f"{_span(left / rate)} to go")
        if self._tasks[1]:
            parts.append(f"{self._tasks[0]} of {self._tasks[1]} tasks")
        if self.remark:
            parts.append(self.remark)
        return f"{self._what}: {', '.join(parts) or 'nothing done yet'}"

    @property
    def _named(self) -> str:
        return "" if self._unit == "bytes" else f" {self._unit}"

    def _amount(self, count: int) -> str:
        return size(count) if self._unit == "bytes" else f"{count:,}"


@contextmanager
def working(
    what: str,
    unit: str,
    *,
    resumable: str | None = None,
    where: Callable[[], str] | None = None,
    count_tasks: CountTasks | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Work]:
    """Show the progress of work until it ends, and where it stopped if a signal ends it.

    Args:
        resumable: the option and directory with which the same command continues.
        where: returns the point where the work stopped, if the shown progress does not say it.
        stop: event of a signal that the work itself obeys; errors after it count as the signal's.

    Raises:
        typer.Exit: a signal has ended it: 130 for Ctrl-C, 143 for SIGTERM.
    """
    work = Work(what, unit)
    numbers: list[int] = []

    def interrupt(number: int, _: object) -> None:
        numbers.append(number)
        logging.disable()  # py4j logs what interrupts its calls, with a traceback
        raise KeyboardInterrupt

    def look() -> None:
        if count_tasks is not None:
            work.tasks(*count_tasks())

    with ExitStack() as stack:
        stack.enter_context(handling_signals(interrupt))
        stack.enter_context(_shown(work, look))
        try:
            yield work
        except (KeyboardInterrupt, Exception) as error:
            is_interrupted = isinstance(error, KeyboardInterrupt)
            is_stopped = stop is not None and stop.is_set()
            if not is_interrupted and (not is_stopped or isinstance(error, HorologError)):
                raise
            stack.close()
            logging.disable(logging.NOTSET)
            place = str(work) if where is None else where()
            again = (
                "" if resumable is None else f". The same command with {resumable} continues there"
            )
            say(f"stopped at {place}{again}")
            number = signal.SIGINT if is_interrupted else signal.SIGTERM
            raise typer.Exit(128 + (numbers or [number])[0]) from None


@contextmanager
def handling_signals(
    handle: Callable[[int, object], None], *, replaces: bool = False
) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM call a handler, unless they have others that it must not replace."""
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    is_main = threading.current_thread() is threading.main_thread()
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if is_main and ((handler := signal.getsignal(number)) in defaults or replaces)
    }
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(work: Work, look: Callable[[], None]) -> Iterator[None]:
    ended = threading.Event()
    with ExitStack() as stack:
        if sys.stderr.isatty():
            show, every_s = stack.enter_context(_bar(work)), _BAR_EVERY_S
        else:
            clock = SystemClock()
            show = lambda: say(f"{format_time(clock.now_ms())}  {work}")  # noqa: E731
            every_s = LOG_EVERY_S

        def follow() -> None:
            while not ended.wait(every_s):
                look()
                show()

        thread = threading.Thread(target=follow, name="progress", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        yield


@contextmanager
def _bar(work: Work) -> Iterator[Callable[[], None]]:
    text = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    options: Any = {"transient": True, "redirect_stdout": sys.stdout.isatty()}
    with Progress(BarColumn(bar_width=12), text, console=Console(stderr=True), **options) as bar:
        task = bar.add_task(escaped(str(work)), total=None)
        yield lambda: bar.update(
            task, description=escaped(str(work)), completed=work.done, total=work.total or None
        )


def _span(seconds: float) -> str:
    """Format seconds in at most two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60} min"
