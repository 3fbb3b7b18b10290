"""Checksums of records and of batches that do not depend on how they are cut into tables.

A digest is a CRC-32C for each stream of values, in offset order: offsets, times, lengths of keys
(-1 for null), bytes of keys, and so on. Records of format v0, whose times have no type, count as
CreateTime: a restored log holds them in v2. Equal records give equal digests, whatever holds them:
a log, its archive, a log that was restored from it. Each CRC has the length of its stream beside
it, so that the digest of records that follow each other is that of their digests (`joined`).
"""

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from horolog.jobs.archives.facts import NO_APPEND_TIME, Facts
from horolog.record.stretches import Int64Array
from horolog.record.timestamps import TimestampType

_NUMBERS = ("offset", "timestamp_ms", "timestamp_type", "create_ms", "append_ms")
RECORD_STREAMS: Final = 14
BATCH_STREAMS: Final = 2
_STREAM = re.compile(r"[0-9a-f]{8}:[0-9a-f]{1,16}")


class _Stream:
    """CRC-32C and length of a stream of bytes."""

    __slots__ = ("_crc", "_size")

    def __init__(self, crc: int = 0, size: int = 0) -> None:
        self._crc, self._size = crc, size

    def __str__(self) -> str:
        return f"{self._crc:08x}:{self._size:x}"

    @classmethod
    def parse(cls, text: str) -> "_Stream":
        crc, _, size = text.partition(":")
        return cls(int(crc, 16), int(size, 16))

    def add(self, data: memoryview) -> None:
        self._crc = crc32c(data, self._crc)
        self._size += data.nbytes

    def followed_by(self, other: "_Stream") -> "_Stream":
        shifted = _times(_power_of_x(8 * other._size), self._crc)
        return _Stream(shifted ^ other._crc, self._size + other._size)


# Polynomials over GF(2) modulo that of CRC-32C, the highest power in the lowest bit: a CRC that
# is followed by n zero bytes is the product with x to the 8n-th.
_POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31


def _times(one: int, two: int) -> int:
    product = 0
    while one:
        if one & _ONE:
            product ^= two
        one = one << 1 & 0xFFFFFFFF
        two = two >> 1 ^ (_POLYNOMIAL if two & 1 else 0)
    return product


def _power_of_x(exponent: int) -> int:
    power, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            power = _times(power, square)
        square = _times(square, square)
        exponent >>= 1
    return power


class _Digest:
    """Digest of several streams of bytes."""

    def __init__(self, streams: int) -> None:
        self._streams = [_Stream() for _ in range(streams)]

    def text(self) -> str:
        """Return the digest as text."""
        return " ".join(map(str, self._streams))


class RecordDigest(_Digest):
    """Digest of rows with the columns of `reading.SCHEMA`, added in offset order."""

    def __init__(self) -> None:
        super().__init__(RECORD_STREAMS)
        self.records = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the next rows."""
        self.records += rows.num_rows
        streams = self._streams
        for place, name in enumerate(_NUMBERS):
            column = rows.column(name)
            if column.null_count:
                column = column.fill_null(NO_APPEND_TIME)
            values = column.to_numpy()
            if name == "append_ms":
                values = _with_seen(values, rows.column("seen_ms"))
            if name == "timestamp_type":
                values = np.maximum(values, np.int32(TimestampType.CREATE_TIME))  # as wide
            streams[place].add(_bytes_of(values))
        self._add_bytes(5, rows.column("key"))
        self._add_bytes(7, rows.column("value"))
        headers = rows.column("headers")
        flat = headers.flatten()
        if not len(flat):
            streams[9].add(memoryview(bytes(4 * len(headers))))
        else:
            lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
            streams[9].add(_bytes_of(lengths))
            self._add_bytes(10, pc.struct_field(flat, "key").cast(pa.binary()))
            values = pc.struct_field(flat, "value")
            self._add_bytes(12, values)

    def _add_bytes(self, place: int, column: pa.Array) -> None:
        lengths = pc.binary_length(column)
        if lengths.null_count:
            lengths = lengths.fill_null(-1)
        self._streams[place].add(_bytes_of(lengths.to_numpy()))
        _, ends, data = column.buffers()
        if data is None or not len(column):
            return
        places = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
        self._streams[place + 1].add(memoryview(data)[places[0] : places[-1]])


class BatchDigest(_Digest):
    """Digest of the facts of batches, added in offset order."""

    def __init__(self) -> None:
        super().__init__(BATCH_STREAMS)
        self.batches = 0

    def add(self, facts: Facts) -> None:
        """Add the next batches."""
        self.batches += len(facts)
        self._streams[0].add(_bytes_of(facts.numbers))
        for payload in facts.payloads[facts.is_control]:
            self._streams[1].add(memoryview(payload))


def is_digest(text: str, streams: int) -> bool:
    """True if a text is a digest of so many streams, or of nothing."""
    return not text or (
        text.count(" ") == streams - 1 and all(map(_STREAM.fullmatch, text.split(" ")))
    )


def joined(first: str, second: str) -> str:
    """Join the digests of two parts of a log to the digest of both."""
    if not first or not second:  # of nothing
        return first or second
    pairs = zip(first.split(" "), second.split(" "), strict=True)
    return " ".join(str(_Stream.parse(one).followed_by(_Stream.parse(two))) for one, two in pairs)


def _bytes_of(values: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B") if values.size else memoryview(b"")


def _with_seen(append_ms: Int64Array, seen_ms: pa.Array) -> Int64Array:
    """Return append times, or the inverted bits of the time when a follower saw the record.

    So the digests of what has none are those that they were before there were any.
    """
    if seen_ms.null_count == len(seen_ms):
        return append_ms
    seen = seen_ms.is_valid().to_numpy(zero_copy_only=False)
    return np.where(seen, ~seen_ms.fill_null(0).to_numpy(), append_ms)
