"""Random passwords of tests, and a search for them in all that a test has written or shown.

Each password has the same random mark. `tests/conftest.py` looks for it at the end of every test of
a file that uses passwords of the lab: in its output, its log at every level, the output of commands
(`--json`, too), pages of metrics, and each file below its directory: log directories, audits.
"""

import base64
import logging
import os
import secrets
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

MARK: Final = os.environ.setdefault("HOROLOG_TEST_MARK", secrets.token_hex(12))
"""The same in all processes of a run, whose tests have names with it."""
USERS: Final = frozenset({"certificates", "login_dialogues", "rights_matrix", "secrets_kept"})
"""Modules of the lab that have passwords."""
CONFIGURATION: Final = frozenset({".properties", ".password", ".jaas"})
"""Endings of files that a test writes itself, with passwords in them."""

_LOGGERS: Final = ("horolog", "kafka.authorizer.logger", "asyncio")


def password(name: str) -> str:
    """The password of a user, or of a store."""
    return f"{name}-password-{MARK}"


def uses_passwords(module: ModuleType) -> bool:
    """Whether a file of tests has taken anything of the lab's passwords."""
    values = list(vars(module).values())
    named = {value.__name__ for value in values if isinstance(value, ModuleType)}
    return bool(USERS & (named | {str(getattr(value, "__module__", "")) for value in values}))


def _forms() -> list[bytes]:
    """The mark as it is, and within BASE64 at each of three places."""
    mark = MARK.encode()
    inner = [base64.b64encode(bytes(place) + mark) for place in range(3)]
    # The first and last characters depend on what is before and behind.
    return [mark, *(text[4:-4] for text in inner)]


FORMS: Final = _forms()


def shows_a_password(text: str | bytes) -> bool:
    """Whether one of the passwords is in a text."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return any(form in data for form in FORMS)


class Kept(logging.Handler):
    """What a test has shown until now, but for what pytest captures of it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.leaks: list[str] = []
        self.exempt: set[str] = set()
        """Names of files and directories that may have passwords."""
        self._levels: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a record with its traceback."""
        text = record.getMessage() + (record.stack_info or "")
        if record.exc_info:
            text += "".join(traceback.format_exception(*record.exc_info))
        self.note(text, f"the log of {record.name}")

    def note(self, text: str | bytes, where: str) -> None:
        """Look at what was shown."""
        if shows_a_password(text):
            self.leaks.append(where)

    def listen(self) -> None:
        """Take records of every level from now on."""
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.addHandler(self)
            if name == _LOGGERS[0]:  # the audit writes more at a lower level
                self._levels[name] = logger.level
                logger.setLevel(logging.DEBUG)

    def stop(self) -> None:
        """Take no more records."""
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)

    def look_into(self, directory: Path) -> None:
        """Look at each file below a directory, and at its name."""
        for path in _files_below(directory):
            parts = path.relative_to(directory).parts
            if path.suffix in CONFIGURATION or self.exempt & set(parts):
                continue
            self.note("/".join(parts), f"the name {path}")
            self.note(path.read_bytes(), f"the file {path}")


def _files_below(directory: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(directory):
        for name in names:
            path = Path(parent) / name
            if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                yield path


current: Kept | None = None
"""Of the test that runs, if its file uses passwords."""


def note(text: str | bytes, where: str) -> None:
    """Look at what a broker or a command has shown."""
    if current is not None:
        current.note(text, where)
