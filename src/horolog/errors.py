"""Everything that can go wrong, sorted by who has to act.

    HorologError
    ├── RequestRefused        the caller acts: answered with a Kafka error code
    │   └── BatchRefused          the request is in order, the log will not have its batch
    │       └── RecordsRejected       and which records of the batch were at fault
    ├── Damaged               nobody's request is wrong, the bytes are
    │   ├── CorruptBatch          from a socket: refuse it; from disk: truncate there
    │   ├── CorruptIndex          rebuild it from the log
    │   └── CorruptFile           a checkpoint or metadata file that cannot be read
    ├── StorageFailed         the disk refused: full, gone, read-only
    └── Misconfigured         the operator acts: the process does not start

A bug is none of these. Bugs are assertion failures; nothing catches them but
the connection, which logs the traceback and closes.

Kafka's numbers and which of them may be retried come from kio's table.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple


@contextmanager
def _absent(module: str) -> Iterator[None]:
    """Let an import not find `module`, unless it is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # as the import system's docs say
    try:
        yield
    finally:
        del sys.modules[module]


# kio offers strategies to hypothesis where that is installed: half of a broker's start.
with _absent("hypothesis"):
    from kio.schema.errors import ErrorCode

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
    "printable",
]


MOST_CHARACTERS: Final = 2000


def printable(text: str) -> str:
    """The text in one line, as logs, terminals and answers may carry it.

    What a client sends may hold line ends and control characters, with which it could forge lines
    of a log, and may be longer than an answer's error message can be. The former are escaped, as in
    Python's literals; of the latter the end is left out.
    """
    if not text.isprintable():
        text = "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
        )
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


class HorologError(Exception):
    """The root of all errors that are not bugs; its text is printable."""

    def __str__(self) -> str:
        return printable(super().__str__())


class RequestRefused(HorologError):
    """A request that Kafka answers with an error code and we with a sentence besides."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class RecordError(NamedTuple):
    """One record of a rejected batch: its position in the batch, and why."""

    batch_index: int
    message: str


class BatchRefused(RequestRefused):
    """A batch that the log would not have, in a request that is in order.

    Kafka tells the log start offset with such an answer, and with no other refusal.
    """


class RecordsRejected(BatchRefused):
    """A batch refused for what some of its records say (KIP-32, KIP-937, KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.errors = tuple(errors)


class Damaged(HorologError):
    """Bytes that are not what they claim to be."""


class CorruptBatch(Damaged):
    """A record batch that breaks format v2.

    `reason` says how, without the place. `position` counts bytes from the start of the buffer, or
    of the file at `path`.
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
    """An index that contradicts itself or its log."""


class CorruptFile(Damaged):
    """A checkpoint or metadata file that cannot be read."""


class StorageFailed(HorologError):
    """The disk refused a read or a write; what was acknowledged before still stands."""


class Misconfigured(HorologError):
    """A setting or a directory that the process cannot start with."""


def code_for(error: HorologError) -> ErrorCode:
    """What a client is told. The only place where errors become Kafka's numbers."""
    match error:
        case RequestRefused():
            return error.code
        case CorruptBatch():
            return ErrorCode.corrupt_message
        case StorageFailed():
            return ErrorCode.kafka_storage_error
        case _:
            return ErrorCode.unknown_server_error
