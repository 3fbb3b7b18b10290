"""Errors inside a broker, kept until the test reports them."""

import asyncio
import logging
import threading
from typing import Any


class BrokerFailed(Exception):
    """Raised if the broker had a bug while the test ran. The text contains the traceback."""


class Failures(logging.Handler):
    """Logging handler that keeps the bugs logged by one thread.

    The broker logs what others got wrong in a sentence, and its own bugs with a traceback.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._thread = threading.get_ident()
        self._texts: list[str] = []
        self._format = logging.Formatter("%(name)s: %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a log record that has a traceback."""
        if record.exc_info and record.thread == self._thread:
            self._texts.append(self._format.format(record))

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an unhandled asyncio error as asyncio would, and keep it."""
        error = context.get("exception")
        logging.getLogger(__name__).error("%s", context.get("message"), exc_info=error)

    def take(self) -> str | None:
        """Return all failures since the last call, in one text; None without any."""
        texts, self._texts = self._texts, []
        return "\n".join(texts) or None
