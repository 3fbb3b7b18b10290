"""How the broker's log is written: one line a message, whatever clients have sent."""

import logging
from typing import Any

from horolog.errors import printable


class LogLines(logging.Formatter):
    """Escapes control characters in messages, and indents tracebacks.

    So every line that begins with a time was written by the broker.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line of a message."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """The lines of a traceback."""
        return "\n".join("    " + line for line in super().formatException(ei).splitlines())
