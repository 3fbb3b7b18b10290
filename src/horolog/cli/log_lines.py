"""Format of the broker's log output: one line per message, whatever clients send."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from horolog.errors import MOST_CHARACTERS, escaped, printable, without_credentials


class LogLines(logging.Formatter):
    """Escapes control characters in messages, and indents tracebacks.

    Clients cannot forge a line: every line that starts with a time is the broker's.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Format a message as one line."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Format a traceback as indented lines."""
        lines = super().formatException(ei).splitlines()
        return "\n".join("    " + escaped(without_credentials(line)) for line in lines)


class JsonLines(logging.Formatter):
    """Formats a message as JSON: `time` (UTC), `level`, `logger`, `message`, `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a message as one line, in ASCII."""
        time = datetime.fromtimestamp(record.created, UTC)
        message = without_credentials(record.getMessage())
        line = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": message
            if len(message) <= MOST_CHARACTERS
            else message[:MOST_CHARACTERS] + "...",
        }
        if record.exc_info:
            line["exception"] = without_credentials(self.formatException(record.exc_info))
        return json.dumps(line)
