"""Errors inside a broker, kept until the test can report them."""

import asyncio
import logging
import threading
from typing import Any


class BrokerFailed(Exception):
    """A bug in the broker showed while the test ran; the traceback is in the message."""


class Failures(logging.Handler):
    """Notes the bugs that one thread logs.

    The broker logs what others got wrong in a sentence, and its own bugs with a traceback.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._thread = threading.get_ident()
        self._texts: list[str] = []
        self._format = logging.Formatter("%(name)s: %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record that carries a traceback."""
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
