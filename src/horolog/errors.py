"""Exceptions of horolog, grouped by who has to act.

    HorologError
    ├── RequestRefused        the caller acts: answered with a Kafka error code
    │   └── BatchRefused          the request is valid, the log refuses its batch
    │       └── RecordsRejected       and lists the invalid records of the batch
    ├── Damaged               bytes are corrupt, in a message or on disk
    │   ├── CorruptBatch          from a socket: refuse it; from disk: truncate there
    │   ├── CorruptIndex          rebuild it from the log
    │   └── CorruptFile           a checkpoint or metadata file is unreadable
    ├── StorageFailed         the disk failed: full, removed, read-only
    └── Misconfigured         the operator acts: the process does not start

Bugs are none of these. They are assertion failures or other exceptions, which only the
connection catches: it logs the traceback and closes.

`error_codes` has Kafka's error codes.
"""

import re
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final, NamedTuple

from horolog.error_codes import ErrorCode

__all__ = [
    "BatchRefused",
    "CorruptBatch",
    "CorruptFile",
    "CorruptIndex",
    "Damaged",
    "ErrorCode",
    "HorologError",
    "Misconfigured",
    "RecordError",
    "RecordsRejected",
    "RequestRefused",
    "StorageFailed",
    "code_for",
    "escaped",
    "listed",
    "printable",
    "without_credentials",
]


MOST_CHARACTERS: Final = 2000


HIDDEN: Final = "[hidden]"
_WORD: Final = re.compile(r"[^\s'\"]+")
_PARAMETER: Final = re.compile(r"[?&][^?&]*")
_SECRET: Final = re.compile(r"(?i)key|secret|token|pass|pwd|sig|credential|auth")


def without_credentials(text: str) -> str:
    """Return the text without the credentials of URIs in it."""
    return _WORD.sub(_without_credentials, text) if ":/" in text else text


def _without_credentials(word: re.Match[str]) -> str:
    # The user's part ends at the last "@": secrets of S3 may contain "/". A container of Azure's,
    # as in abfss://container@account, has no colon. A path has lost one of the slashes.
    text = word[0]
    scheme, mark, rest = text.partition(":/")
    if not mark:
        return text
    if rest.startswith("/"):
        mark, rest = "://", rest[1:]
    user, at, place = rest.rpartition("@")
    if ":" in user or "%3a" in user.lower():
        rest = f"{HIDDEN}{at}{place}"
    return f"{scheme}{mark}{_PARAMETER.sub(_without_secret, rest)}"


def _without_secret(parameter: re.Match[str]) -> str:
    name, equals, _ = parameter[0].partition("=")
    return f"{name}={HIDDEN}" if equals and _SECRET.search(name) else parameter[0]


def escaped(text: str, keeps: str = "") -> str:
    """Return the text in one line, with line ends and control characters as in Python's literals.

    `keeps` are characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keeps
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def printable(text: str) -> str:
    """Return the text in one line, safe for logs, terminals and responses.

    Line ends and control characters, with which a client could forge log lines, are escaped as in
    Python's literals, and credentials in URIs are hidden. Text over `MOST_CHARACTERS` is cut: a
    response limits its error message.
    """
    text = escaped(without_credentials(text))
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def listed(names: Collection[str], most: int = 20) -> str:
    """Return the first names for a message, and how many more there are."""
    more = len(names) - most
    return ", ".join(islice(names, most)) + (f" and {more} more" if more > 0 else "")


class HorologError(Exception):
    """Base of all errors that are not bugs; its text is printable."""

    def __str__(self) -> str:
        return printable(super().__str__())


class RequestRefused(HorologError):
    """Raised for a request that is answered with a Kafka error code and, if possible, a message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class RecordError(NamedTuple):
    """Record of a rejected batch: its position in the batch, and the reason."""

    batch_index: int
    message: str


class BatchRefused(RequestRefused):
    """Raised if the log refuses a batch of a valid request.

    Kafka returns the log start offset with this refusal and with no other.
    """


class RecordsRejected(BatchRefused):
    """Raised if a batch is refused because of some of its records (KIP-32, KIP-937, KIP-467)."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        errors: Sequence[RecordError],
        kinds: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(code, message)
        self.errors = tuple(errors)
        self.kinds = tuple(kinds)
        """For each error, if known: the reason (future, past, clock-ahead, no-key or append-time),
        and the unit of the time if it seems to be another than milliseconds, otherwise empty."""


class Damaged(HorologError):
    """Raised for corrupt bytes."""


class CorruptBatch(Damaged):
    """Raised for a record batch that violates format v2.

    `reason` omits the position. `position` is in bytes from the start of the buffer, or of the
    file at `path`.
    """

    def __init__(
        self, reason: str, position: int | None = None, *, path: str | None = None
    ) -> None:
        message = reason
        if path is not None:
            message = f"{path}, byte {position}: {reason}"
        elif position is not None:
            message = f"{reason} (at byte {position})"
        super().__init__(message)
        self.reason = reason
        self.position = position


class CorruptIndex(Damaged):
    """Raised for an index that contradicts itself or its log."""


class CorruptFile(Damaged):
    """Raised for a checkpoint or metadata file that cannot be read."""


class StorageFailed(HorologError):
    """Raised if a read or a write fails. Records acknowledged before remain valid."""


class Misconfigured(HorologError):
    """Raised if the process cannot start with a setting or directory."""


def code_for(error: HorologError) -> ErrorCode:
    """Return the Kafka error code of an exception."""
    match error:
        case RequestRefused():
            return error.code
        case CorruptBatch():
            return ErrorCode.corrupt_message
        case StorageFailed() | CorruptIndex():
            return ErrorCode.kafka_storage_error
        case _:
            return ErrorCode.unknown_server_error
