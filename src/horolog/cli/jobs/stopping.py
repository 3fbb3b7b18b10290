"""Ends of a continuous job: signals, or a time."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from horolog.cli.screen import say


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets; a second signal interrupts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("Ending after what is under way; once more to interrupt it.")

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
