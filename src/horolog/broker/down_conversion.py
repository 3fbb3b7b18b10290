"""Converts records for clients that cannot read format v2: Fetch versions 0 to 3 (KIP-32, KIP-283).

A version knows formats up to one: 0 and 1 know v0, 2 and 3 know v1, later ones know v2. Only
batches of a later format are converted, and records that need no conversion are the bytes of the
log. (Kafka 3.9 decides by the topic's `message.format.version` and not by what is there, so that
old clients get bytes that they cannot read where that was lowered.)

Conversion takes memory, so a response of converted records is smaller than others: a megabyte of
the log for a partition, and `CONVERTED_BYTES` of all.
"""

from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch import MAGIC
from horolog.record.conversion import down_convert
from horolog.storage.logs.view import LogView

__all__ = ["CONVERTED_BYTES", "DownConverted", "newest_format", "read_converted"]

CONVERTED_BYTES: Final = 8 << 20
"""Bytes of records in a response to a client that may need conversion, beyond its first batch."""

SOURCE_BYTES: Final = 1 << 20
_MAX_BATCH_BYTES: Final = 64 << 20
"""Decompressed size of a batch. A larger one cannot be given to old clients."""
_MAX_ROUNDS: Final = 64  # of reads that find control batches only

_LAST_WITH_V0: Final = 1
_LAST_WITH_V1: Final = 3


class DownConverted(NamedTuple):
    """Records that a client can read, and the number of converted ones."""

    records: Buffer
    converted: int


def newest_format(fetch_version: int) -> int:
    """Return the newest format that a version of Fetch may return: 0, 1 or 2."""
    if fetch_version <= _LAST_WITH_V0:
        return 0
    return 1 if fetch_version <= _LAST_WITH_V1 else MAGIC


def read_converted(
    view: LogView, offset: int, max_bytes: int, magic: int, *, at_least_one: bool
) -> DownConverted:
    """Read records from an offset on in a format up to `magic`; this may block and take long.

    Control batches have no form in older formats and are skipped.

    Args:
        view: of the log, up to its high watermark.
        offset: the first one to give; of batches that become plain messages, those before it are
            left out.
        max_bytes: of the log that are read, up to a megabyte.
        magic: 0 or 1.
        at_least_one: whether the first batch is read whole, however large it is.

    Raises:
        RequestRefused: the first batch would be converted and `message.downconversion.enable` is
            off (35), or it is compressed with zstd (76) or too large (10).
        CorruptBatch: the first batch is damaged.
        StorageFailed: a read failed.
    """
    at = offset
    for _ in range(_MAX_ROUNDS):
        size = min(max(max_bytes, 0), SOURCE_BYTES)
        found = view.read(at, size, min_one_batch=at_least_one, up_to=view.high_watermark)
        if not found.size:
            break
        data = found.read()
        pieces: list[Buffer] = []
        converted, next_offset = 0, at
        seen = False
        conversion = down_convert(
            data, magic, start_offset=offset, max_batch_bytes=_MAX_BATCH_BYTES
        )
        while True:
            try:
                batch = next(conversion, None)
                if batch is not None and not batch.is_untouched:
                    _check_enabled(view, magic)
            except (RequestRefused, CorruptBatch):
                if pieces:  # what is before it can be had; the client meets it with its next fetch
                    break
                raise
            if batch is None:
                break
            seen = True
            converted += batch.records
            next_offset = batch.next_offset
            if len(batch.data):
                pieces.append(batch.data)
        if not seen:  # part of a batch, and it need not be of a format that the client reads
            break
        if pieces:  # `data` may continue behind them, in a format that the client does not read
            return DownConverted(b"".join(pieces), converted)
        at = next_offset
    return DownConverted(b"", 0)


def _check_enabled(view: LogView, magic: int) -> None:
    if not view.config.message_downconversion_enable:
        topic, index = view.name
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"{topic}-{index} has records of a later format than v{magic}, and "
            "message.downconversion.enable=false",
        )
