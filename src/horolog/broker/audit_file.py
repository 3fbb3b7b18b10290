"""AuditFile: the lines of the audit in a file of their own (`horolog.audit.log`).

A thread writes them, so that a slow disk does not hold up the event loop. A file that was moved
away is made anew, for programs that rotate logs. What cannot be written goes to the broker's log:
a full disk neither stops the broker nor loses a line.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from horolog.broker.audit import RIGHTS
from horolog.errors import Misconfigured
from horolog.security.files import is_readable_by_others

__all__ = ["MOST_LINES", "AuditFile"]

_LOG = logging.getLogger(__name__)

AUDITED: Final = (RIGHTS.name, "horolog.broker.logins", "horolog.broker.changes")
"""Loggers whose lines are the audit."""
MOST_LINES: Final = 10_000
"""Lines that wait for the disk; further ones go to the broker's log."""
_MODE: Final = 0o600
_CLOSE_S: Final = 5.0
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class AuditFile(logging.Handler):
    """Takes the lines of the audit's loggers until it is closed."""

    def __init__(self, path: str) -> None:
        """Open the file, and take the lines.

        Raises:
            Misconfigured: it cannot be opened.
        """
        super().__init__()
        self._path = path
        try:
            self._fd = _opened(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise Misconfigured(f"horolog.audit.log={path}: {why}") from None
        logged = (handler.formatter for handler in logging.root.handlers)
        self.setFormatter(next(filter(None, logged), None) or logging.Formatter(_FORMAT))
        self._waiting: deque[tuple[int, str, bytes]] = deque()
        self._writing = 0
        self._is_closing = self._is_failing = self._is_torn = False
        self._changed = threading.Event()
        self._writer = threading.Thread(target=self._write_all, name="audit", daemon=True)
        self._writer.start()
        for name in AUDITED:
            logger = logging.getLogger(name)
            logger.addHandler(self)
            logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a line to the thread."""
        text = f"{record.name}: {record.getMessage()}"
        if len(self._waiting) + self._writing >= MOST_LINES:
            _LOG.log(record.levelno, "%s", text)
            return
        line = self.format(record).encode(errors="backslashreplace") + b"\n"
        self._waiting.append((record.levelno, text, line))
        self._changed.set()

    def close(self) -> None:
        """Give the loggers back, and write what waits, unless the disk takes too long."""
        for name in AUDITED:
            logger = logging.getLogger(name)
            logger.removeHandler(self)
            logger.propagate = True
        self._is_closing = True
        self._changed.set()
        self._writer.join(_CLOSE_S)
        super().close()

    # --- in the thread ----------------------------------------------------------------

    def _write_all(self) -> None:
        while not self._is_closing or self._waiting:
            self._changed.wait()
            self._changed.clear()
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            self._writing = len(lines)
            if lines:
                self._write(lines)
            self._writing = 0
        if self._fd >= 0:
            os.close(self._fd)

    def _write(self, lines: Sequence[tuple[int, str, bytes]]) -> None:
        """Write lines; those that the disk refuses go to the broker's log."""
        done = 0
        try:
            self._reopen_moved()
            for _, _, encoded in lines:
                self._append(encoded)
                done += 1
        except OSError as error:
            if not self._is_failing:
                _LOG.error(
                    "%s cannot be written (%s): lines of the audit are logged here meanwhile",
                    self._path,
                    error.strerror,
                )
            self._is_failing = True
            for level, line, _ in lines[done:]:
                _LOG.log(level, "%s", line)
        else:
            if self._is_failing:
                _LOG.warning("%s is written again", self._path)
            self._is_failing = False

    def _append(self, line: bytes) -> None:
        rest = b"\n" + line if self._is_torn else line
        while rest:
            rest = rest[os.write(self._fd, rest) :]
            self._is_torn = bool(rest)

    def _reopen_moved(self) -> None:
        """Make the file anew where it was moved away or removed."""
        if self._fd >= 0:
            own = os.fstat(self._fd)
            try:
                if os.path.samestat(own, os.stat(self._path)):
                    return
            except FileNotFoundError:
                pass
            os.close(self._fd)
        self._fd = -1
        self._fd = _opened(self._path)
        self._is_torn = False


def _opened(path: str) -> int:
    """Open a file to append to; a new one can be read by its owner only."""
    # A pipe that nobody reads is refused instead of waited for.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, _MODE)
    if is_readable_by_others(fd):
        _LOG.warning("other users of this machine can read %s: chmod 600 %s", path, path)
    return fd
