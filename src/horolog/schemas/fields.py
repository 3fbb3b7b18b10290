"""Primitive types of Kafka's protocol in keys and values of its internal records.

In flexible versions (KIP-482) strings, bytes and arrays are compact, and tagged fields end each
struct; in others lengths have 2 or 4 bytes, and there are no tagged fields.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct, pack, unpack
from typing import Final, TypeVar
from uuid import UUID

from horolog.errors import CorruptBatch

T = TypeVar("T")

_MAX_VARINT_BYTES: Final = 5
_I8, _I16, _I32, _I64, _F64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q"), Struct(">d")


def there(value: T | None) -> T:
    """Return a value that must not be null.

    Raises:
        CorruptBatch: the value is null.
    """
    if value is None:
        raise CorruptBatch("a field of a record of Kafka's own is null that cannot be")
    return value


@lru_cache(4096)
def uuid_of(data: bytes) -> UUID:
    """Return the UUID of 16 bytes; cached, because most repeat."""
    return UUID(bytes=data)


class Fields:
    """Reader of one key or value, from front to back.

    Every method raises CorruptBatch if the bytes end too early or are no such field.
    """

    def __init__(self, data: bytes, *, is_flexible: bool = True) -> None:
        self.is_flexible = is_flexible
        self.version = 0
        """Version of the record that is being read."""
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        """Number of bytes that are not read yet."""
        return len(self._data) - self._position

    def take(self, size: int) -> bytes:
        """Read the next bytes."""
        position = self._position
        self._position = end = position + size
        if size < 0 or end > len(self._data):
            self._position = position
            raise CorruptBatch("a record of Kafka's own ends too early")
        return self._data[position:end]

    def check_end(self, what: str) -> None:
        """Refuse bytes behind the last field."""
        if self.left:
            raise CorruptBatch(f"{what} is {self.left} bytes longer than its fields")

    def unpack(self, shape: Struct) -> tuple[int, ...]:
        """Read the next numbers."""
        return shape.unpack(self.take(shape.size))

    def i8(self) -> int:
        """Read an INT8."""
        return self.unpack(_I8)[0]

    def i16(self) -> int:
        """Read an INT16."""
        return self.unpack(_I16)[0]

    def i32(self) -> int:
        """Read an INT32."""
        return self.unpack(_I32)[0]

    def i64(self) -> int:
        """Read an INT64."""
        return self.unpack(_I64)[0]

    def f64(self) -> float:
        """Read a FLOAT64."""
        (value,) = _F64.unpack(self.take(8))
        return float(value)

    def boolean(self) -> bool:
        """Read a BOOLEAN."""
        return self.take(1) != b"\0"

    def uuid(self) -> UUID:
        """Read a UUID."""
        return uuid_of(self.take(16))

    def unsigned(self) -> int:
        """Read an unsigned varint."""
        if self._position < len(self._data):
            value = self._data[self._position]
            if value < 0x80:  # as most are
                self._position += 1
                return value
        value = 0
        for index in range(_MAX_VARINT_BYTES):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise CorruptBatch("a varint of a record of Kafka's own has no end")

    def text(self) -> str | None:
        """Read a string; None for null."""
        size = self.unsigned() - 1 if self.is_flexible else self.i16()
        if size == -1:
            return None
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise CorruptBatch("a text of a record of Kafka's own is no text") from None

    def data(self) -> bytes | None:
        """Read bytes; None for null."""
        size = self.unsigned() - 1 if self.is_flexible else self.i32()
        return None if size == -1 else self.take(size)

    def array(self, read: Callable[[], T]) -> list[T] | None:
        """Read an array, None for null; refuse more elements than bytes are left."""
        size = self._elements()
        return None if size is None else [read() for _ in range(size)]

    def i32s(self) -> tuple[int, ...] | None:
        """Read an array of INT32, None for null; faster than one by one."""
        size = self._elements()
        return None if size is None else unpack(f">{size}i", self.take(4 * size))

    def _elements(self) -> int | None:
        size = self.unsigned() - 1 if self.is_flexible else self.i32()
        if size == -1:
            return None
        if not 0 <= size <= self.left:
            raise CorruptBatch(f"an array of a record of Kafka's own claims {size} elements")
        return size

    def tagged(self) -> dict[int, bytes]:
        """Read the tagged fields that end a struct, by tag (KIP-482)."""
        by_tag = {}
        for _ in range(self.unsigned() if self.is_flexible else 0):
            tag = self.unsigned()
            by_tag[tag] = self.take(self.unsigned())
        return by_tag


class Encoder:
    """Writer of fields, one after the other; the inverse of `Fields`."""

    def __init__(self, *, is_flexible: bool = True) -> None:
        self.version = 0
        """Version of the record that is being written."""
        self._is_flexible = is_flexible
        self._data = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def raw(self, data: bytes) -> "Encoder":
        """Append bytes as they are."""
        self._data += data
        return self

    def i8(self, value: int) -> "Encoder":
        """Append an INT8."""
        return self.raw(_I8.pack(value))

    def i16(self, value: int) -> "Encoder":
        """Append an INT16."""
        return self.raw(_I16.pack(value))

    def i32(self, value: int) -> "Encoder":
        """Append an INT32."""
        return self.raw(_I32.pack(value))

    def i64(self, value: int) -> "Encoder":
        """Append an INT64."""
        return self.raw(_I64.pack(value))

    def f64(self, value: float) -> "Encoder":
        """Append a FLOAT64."""
        return self.raw(_F64.pack(value))

    def boolean(self, value: bool) -> "Encoder":
        """Append a BOOLEAN."""
        return self.raw(b"\1" if value else b"\0")

    def uuid(self, value: UUID) -> "Encoder":
        """Append a UUID."""
        return self.raw(value.bytes)

    def unsigned(self, value: int) -> "Encoder":
        """Append an unsigned varint."""
        while value >= 0x80:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)
        return self

    def _size(self, size: int, plain: Callable[[int], "Encoder"]) -> "Encoder":
        """Append a length; -1 for null."""
        return self.unsigned(size + 1) if self._is_flexible else plain(size)

    def text(self, value: str | None) -> "Encoder":
        """Append a string, or null."""
        if value is None:
            return self._size(-1, self.i16)
        data = value.encode()
        return self._size(len(data), self.i16).raw(data)

    def data(self, value: bytes | None) -> "Encoder":
        """Append bytes, or null."""
        if value is None:
            return self._size(-1, self.i32)
        return self._size(len(value), self.i32).raw(value)

    def array(self, values: Iterable[T] | None, write: Callable[[T], object]) -> "Encoder":
        """Append an array, or null."""
        if values is None:
            return self._size(-1, self.i32)
        elements = list(values)
        self._size(len(elements), self.i32)
        for element in elements:
            write(element)
        return self

    def i32s(self, values: Sequence[int] | None) -> "Encoder":
        """Append an array of INT32, or null; faster than one by one."""
        if values is None:
            return self._size(-1, self.i32)
        return self._size(len(values), self.i32).raw(pack(f">{len(values)}i", *values))

    def tagged(self, fields: "dict[int, bytes] | None" = None) -> "Encoder":
        """Append the tagged fields that end a struct, by tag; nothing where it is not flexible."""
        if not self._is_flexible:
            return self
        in_order = sorted((fields or {}).items())
        self.unsigned(len(in_order))
        for tag, data in in_order:
            self.unsigned(tag).unsigned(len(data)).raw(data)
        return self
