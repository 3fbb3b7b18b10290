"""Ends of a continuous job: signals, or a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from horolog.cli.screen import say
from horolog.cli.working import handling_signals


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets; a second signal interrupts."""
    stop = threading.Event()

    def on_signal(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("Ending after what is under way; once more to interrupt it.")

    with handling_signals(on_signal, replaces=True):
        yield stop


@contextmanager
def stopped_after(stop: threading.Event, after_ms: int | None) -> Iterator[None]:
    """Set the event after a time in milliseconds; never for None."""
    if after_ms is None:
        yield
        return
    timer = threading.Timer(after_ms / 1000, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
