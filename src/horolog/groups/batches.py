"""Changes of groups as batches of records: whole changes, up to the size of a batch."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.replay import records_of, transaction_batch
from horolog.groups.rows import GroupChange
from horolog.record.builder import LogRecord, build_batch
from horolog.record.compression import Codec

_BATCH_BYTES: Final = 1 << 20  # of keys and values, unless one change has more
MOST_CHANGE_BYTES: Final = 8 << 20
RECORD_OVERHEAD: Final = 32
"""Bytes of a record beside its key and value, at most."""


def parts_of(
    change: GroupChange, now_ms: int, most_bytes: int = MOST_CHANGE_BYTES
) -> list[list[LogRecord]]:
    """Return the records of a change, divided into parts that must each be in one batch.

    A change is in one batch, so that a kill leaves all of it or nothing. Only a drop of very many
    keys is in several batches, the last of which drops the group.

    Raises:
        RequestRefused: it has more bytes than a batch may have, or does not fit its fields.
    """
    records = records_of(change, now_ms)
    if sum(map(size_of, records)) <= most_bytes:
        return [records]
    if any(record.value is not None for record in records):
        raise too_large(change, most_bytes)
    return [join(parts) for parts in gathered(([record] for record in records), most_bytes)]


def batch_of_transaction(
    change: GroupChange,
    now_ms: int,
    most_bytes: int = MOST_CHANGE_BYTES,
    codec: Codec = Codec.NONE,
) -> bytes | None:
    """Return the batch of a change that is part of a transaction or ends one; None for others.

    Raises:
        RequestRefused: as `parts_of`.
    """
    batch = transaction_batch(change, now_ms, codec)
    if batch is not None and len(batch) > most_bytes:
        raise too_large(change, most_bytes)
    return batch


def too_large(change: GroupChange, most_bytes: int) -> RequestRefused:
    """Return the refusal of a change that is too large for a batch."""
    if change.records:
        return RequestRefused(
            ErrorCode.message_too_large,
            f"{len(change.records)} records of a group have more than {most_bytes} bytes, the most "
            "of one batch: divide the members among several groups",
        )
    if not change.offsets:
        members = sum(len(group.members) for group in change.groups)
        return RequestRefused(
            ErrorCode.message_too_large,
            f"the subscriptions and assignments of {members} members have more than {most_bytes} "
            "bytes, the most of one record: divide the members among several groups",
        )
    return RequestRefused(
        ErrorCode.invalid_commit_offset_size,
        f"{len(change.offsets)} offsets have more than {most_bytes} bytes",
    )


def size_of(record: LogRecord) -> int:
    """Return the most bytes that a record takes in a batch."""
    return len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD


def gathered(
    parts: Iterable[list[LogRecord]], most_bytes: int = _BATCH_BYTES
) -> Iterator[list[list[LogRecord]]]:
    """Yield whole parts that fit a batch together."""
    most_bytes = min(most_bytes, _BATCH_BYTES)
    together: list[list[LogRecord]] = []
    size = 0
    for part in parts:
        more = sum(map(size_of, part))
        if together and size + more > most_bytes:
            yield together
            together, size = [], 0
        together.append(part)
        size += more
    if together:
        yield together


def join(parts: Iterable[list[LogRecord]]) -> list[LogRecord]:
    """Return the records of parts as one list."""
    return list(chain.from_iterable(parts))


def batches_of(parts: Iterable[list[LogRecord]], leader_epoch: int = -1) -> Iterator[bytes]:
    """Yield the batches of parts."""
    for together in gathered(parts):
        yield build_batch(join(together), leader_epoch=leader_epoch)
