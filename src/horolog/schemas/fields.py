"""Primitive types of Kafka's protocol in keys and values of its internal records (KIP-482)."""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, TypeVar
from uuid import UUID

from horolog.errors import CorruptBatch

T = TypeVar("T")

_MAX_VARINT_BYTES: Final = 5
_I8, _I16, _I32, _I64, _F64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q"), Struct(">d")


class Fields:
    """The bytes of one key or value, from front to back.

    Every method raises CorruptBatch where they end too early or are no such field.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self._data) - self._position

    def take(self, size: int) -> bytes:
        """The next bytes."""
        position = self._position
        self._position = end = position + size
        if size < 0 or end > len(self._data):
            self._position = position
            raise CorruptBatch("a record of Kafka's own ends too early")
        return self._data[position:end]

    def unpack(self, shape: Struct) -> tuple[int, ...]:
        """The next numbers."""
        return shape.unpack(self.take(shape.size))

    def i8(self) -> int:
        """The next INT8."""
        return self.unpack(_I8)[0]

    def i16(self) -> int:
        """The next INT16."""
        return self.unpack(_I16)[0]

    def i32(self) -> int:
        """The next INT32."""
        return self.unpack(_I32)[0]

    def i64(self) -> int:
        """The next INT64."""
        return self.unpack(_I64)[0]

    def f64(self) -> float:
        """The next FLOAT64."""
        (value,) = _F64.unpack(self.take(8))
        return float(value)

    def boolean(self) -> bool:
        """The next BOOLEAN."""
        return self.take(1) != b"\0"

    def uuid(self) -> UUID:
        """The next UUID."""
        return UUID(bytes=self.take(16))

    def unsigned(self) -> int:
        """The next unsigned varint."""
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
        """The next compact string, None if it is null."""
        size = self.unsigned()
        return None if size == 0 else self.text_of(size - 1)

    def plain_text(self) -> str | None:
        """The next string with an INT16 of its length, None if it is null."""
        size = self.i16()
        return None if size == -1 else self.text_of(size)

    def text_of(self, size: int) -> str:
        """The next string, of `size` bytes."""
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise CorruptBatch("a text of a record of Kafka's own is no text") from None

    def data(self) -> bytes | None:
        """The next compact bytes, None if they are null."""
        size = self.unsigned()
        return None if size == 0 else self.take(size - 1)

    def plain_data(self) -> bytes | None:
        """The next bytes with an INT32 of their length, None if they are null."""
        size = self.i32()
        return None if size == -1 else self.take(size)

    def array(self, read: Callable[[], T]) -> list[T] | None:
        """The next compact array, None if it is null."""
        size = self.unsigned()
        return None if size == 0 else self.array_of(size - 1, read)

    def plain_array(self, read: Callable[[], T]) -> list[T] | None:
        """The next array with an INT32 of its length, None if it is null."""
        size = self.i32()
        return None if size == -1 else self.array_of(size, read)

    def array_of(self, size: int, read: Callable[[], T]) -> list[T]:
        """So many elements; more than there are bytes are refused at once."""
        if not 0 <= size <= self.left:
            raise CorruptBatch(f"an array of a record of Kafka's own claims {size} elements")
        return [read() for _ in range(size)]

    def tagged(self) -> dict[int, bytes]:
        """The tagged fields that end a flexible struct, by tag (KIP-482)."""
        found = {}
        for _ in range(self.unsigned()):
            tag = self.unsigned()
            found[tag] = self.take(self.unsigned())
        return found

    def pass_tagged(self) -> None:
        """Skip the tagged fields that end a flexible struct (KIP-482)."""
        for _ in range(self.unsigned()):
            self.unsigned()
            self.take(self.unsigned())


class Encoder:
    """Encodes fields, one after the other; the inverse of `Fields`."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def raw(self, data: bytes) -> "Encoder":
        """Bytes as they are."""
        self._data += data
        return self

    def i8(self, value: int) -> "Encoder":
        """An INT8."""
        return self.raw(_I8.pack(value))

    def i16(self, value: int) -> "Encoder":
        """An INT16."""
        return self.raw(_I16.pack(value))

    def i32(self, value: int) -> "Encoder":
        """An INT32."""
        return self.raw(_I32.pack(value))

    def i64(self, value: int) -> "Encoder":
        """An INT64."""
        return self.raw(_I64.pack(value))

    def f64(self, value: float) -> "Encoder":
        """A FLOAT64."""
        return self.raw(_F64.pack(value))

    def boolean(self, value: bool) -> "Encoder":
        """A BOOLEAN."""
        return self.raw(b"\1" if value else b"\0")

    def uuid(self, value: UUID) -> "Encoder":
        """A UUID."""
        return self.raw(value.bytes)

    def unsigned(self, value: int) -> "Encoder":
        """An unsigned varint."""
        while value >= 0x80:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)
        return self

    def text(self, value: str | None) -> "Encoder":
        """A compact string, or null."""
        return self.data(None if value is None else value.encode())

    def plain_text(self, value: str | None) -> "Encoder":
        """A string with an INT16 of its length, or null."""
        if value is None:
            return self.i16(-1)
        data = value.encode()
        return self.i16(len(data)).raw(data)

    def data(self, value: bytes | None) -> "Encoder":
        """Compact bytes, or null."""
        if value is None:
            return self.unsigned(0)
        return self.unsigned(len(value) + 1).raw(value)

    def plain_data(self, value: bytes | None) -> "Encoder":
        """Bytes with an INT32 of their length, or null."""
        if value is None:
            return self.i32(-1)
        return self.i32(len(value)).raw(value)

    def array(self, values: Iterable[T] | None, write: Callable[[T], object]) -> "Encoder":
        """A compact array, or null."""
        if values is None:
            return self.unsigned(0)
        elements = list(values)
        self.unsigned(len(elements) + 1)
        for element in elements:
            write(element)
        return self

    def plain_array(self, values: Iterable[T] | None, write: Callable[[T], object]) -> "Encoder":
        """An array with an INT32 of its length, or null."""
        if values is None:
            return self.i32(-1)
        elements = list(values)
        self.i32(len(elements))
        for element in elements:
            write(element)
        return self

    def tagged(self, fields: "dict[int, bytes] | None" = None) -> "Encoder":
        """The tagged fields that end a flexible struct, in the order of their tags (KIP-482)."""
        in_order = sorted((fields or {}).items())
        self.unsigned(len(in_order))
        for tag, data in in_order:
            self.unsigned(tag).unsigned(len(data)).raw(data)
        return self
