"""Counts and checksums of archived ranges of offsets, which prove a restored log."""

from dataclasses import dataclass
from typing import Final

from horolog.jobs.archives.digests import joined
from horolog.json_text import Natural

JOINED_BYTES: Final = 32 << 20
"""Of ranges that a manifest has as one: runs that come often make ranges of a few records."""
MOST_OFFSETS: Final = 1 << 30
"""Of a range: it is never split over two segments, whose offsets have 31 bits."""


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """Counts, checksums and append times of the offsets from `start` to before `end`."""

    start: Natural
    end: Natural
    records: Natural = 0
    batches: Natural = 0
    bytes: Natural = 0
    """Of the batches where they were read."""
    digest: str = ""
    batch_digest: str = ""
    first_append_ms: int | None = None
    last_append_ms: int | None = None
    is_lost: bool = False
    """The source had deleted these offsets before they were archived."""


def followed_by(before: ArchivedRange, after: ArchivedRange) -> ArchivedRange | None:
    """Join two neighbouring ranges to one; None if they have to stay apart.

    They do where append times go back between them, where one was lost, and where they are large
    or far apart.
    """
    is_later = (
        before.last_append_ms is None
        or after.first_append_ms is None
        or before.last_append_ms <= after.first_append_ms
    )
    if before.is_lost or after.is_lost or not is_later:
        return None
    if before.bytes + after.bytes > JOINED_BYTES or after.end - before.start > MOST_OFFSETS:
        return None
    first_ms, last_ms = before.first_append_ms, after.last_append_ms
    return ArchivedRange(
        start=before.start,
        end=after.end,
        records=before.records + after.records,
        batches=before.batches + after.batches,
        bytes=before.bytes + after.bytes,
        digest=joined(before.digest, after.digest),
        batch_digest=joined(before.batch_digest, after.batch_digest),
        first_append_ms=after.first_append_ms if first_ms is None else first_ms,
        last_append_ms=before.last_append_ms if last_ms is None else last_ms,
    )
