"""The format of the broker's log output: one line per message, whatever clients send."""

import logging
from typing import Any

from horolog.errors import printable


class LogLines(logging.Formatter):
    """Escapes control characters in messages, and indents tracebacks.

    Every line that starts with a time is therefore the broker's.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Format a message as one line."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Format a traceback as indented lines."""
        return "\n".join("    " + line for line in super().formatException(ei).splitlines())
