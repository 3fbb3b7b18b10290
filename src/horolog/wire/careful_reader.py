"""Strict decoding of messages by Apache Kafka's rules, with the field and byte of each error."""

import sys
from collections.abc import Callable
from struct import Struct
from typing import Any, Final
from uuid import UUID

from horolog.buffers import Buffer
from horolog.wire.packing import INT16, INT32, MAX_STRING_BYTES, MOST_INT8, NO_UUID, NUMBERS
from horolog.wire.schema import Field, Shape

__all__ = ["FIELDS_AT_A_TIME", "MAX_FIELDS", "TooManyFields", "Unreadable", "read_carefully"]

MAX_FIELDS: Final = 250_000
"""The limit for large requests: a field takes some microseconds, and hostile bytes must not
occupy the broker for longer."""

FIELDS_AT_A_TIME: Final = 500
"""Fields between two checkpoints: about a millisecond."""


class Unreadable(Exception):
    """Error: bytes that do not follow the protocol."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(what)
        self.what = what
        self.position = position
        self.path: list[str] = []

    def __str__(self) -> str:
        where = "".join(reversed(self.path)).lstrip(".")
        return f"{where or 'message'} at byte {self.position}: {self.what}"


class TooManyFields(Unreadable):
    """Error: the message has more fields than the caller's limit."""


def read_carefully(
    shape: Shape,
    data: Buffer,
    position: int = 0,
    *,
    may_trail: bool,
    max_fields: int = sys.maxsize,
    checkpoint: Callable[[], None] | None = None,
) -> Any:
    """Decode a whole message.

    Records and bytes are slices of `data`: views if `data` is a view.

    Args:
        data: the buffer that ends with the message.
        position: the message's first byte.
        may_trail: whether bytes may follow the message.
        max_fields: most fields to read.
        checkpoint: called every `FIELDS_AT_A_TIME` fields; may raise.

    Raises:
        Unreadable: with the path of the field, the byte and the reason.
        TooManyFields: a subclass; the message has more than `max_fields` fields.
    """
    cursor = _Cursor(data, position, max_fields, checkpoint)
    message = cursor.structure(shape)
    if cursor.position != len(data) and not may_trail:
        raise Unreadable(f"{len(data) - cursor.position} bytes too many", cursor.position)
    return message


class _Cursor:
    """A read position that advances with every value."""

    def __init__(
        self,
        data: Buffer,
        position: int,
        max_fields: int,
        checkpoint: Callable[[], None] | None,
    ) -> None:
        self.data = data
        self.position = position
        self.max_fields = max_fields
        self.fields_left = max_fields
        self.checkpoint = checkpoint
        self.pause_below = 0  # fields left
        self.pause()

    def structure(self, shape: Shape) -> Any:
        values = [self.field(field, shape.is_flexible) for field in shape.plain]
        if shape.is_flexible:
            values += self.tagged(shape)
        return shape.tuple_type(*values)

    def tagged(self, shape: Shape) -> list[Any]:
        """Read the tagged fields, with defaults for missing ones; unknown fields are skipped."""
        by_tag = {field.tag: field for field in shape.tagged}
        values = {field.tag: field.default for field in shape.tagged}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            end = self.uvarint() + self.position
            self.spend()
            if end > len(self.data):
                raise Unreadable(f"tagged field {tag} ends at byte {end}", self.position)
            if tag not in by_tag:
                self.position = end
                continue
            field = by_tag[tag]
            values[tag] = self.field(field, is_flexible=True)
            if self.position != end:
                raise Unreadable(f"tagged field {tag} is not as long as it says", self.position)
        return list(values.values())

    def field(self, field: Field, is_flexible: bool) -> Any:
        try:
            if not field.is_array:
                return self.value(field, is_flexible)
            count = self.length(is_flexible)
            if count is None:
                if not field.is_nullable:
                    raise Unreadable("an array that must not be null is null", self.position)
                return None
            self.afford(count, field)
            return tuple(self.item(field, is_flexible, index) for index in range(count))
        except Unreadable as error:
            error.path.append(f".{field.name}")
            raise

    def item(self, field: Field, is_flexible: bool, index: int) -> Any:
        try:
            return self.value(field, is_flexible)
        except Unreadable as error:
            error.path.append(f"[{index}]")
            raise

    def value(self, field: Field, is_flexible: bool) -> Any:
        self.spend()
        if field.shape is not None:
            if field.is_nullable and not field.is_array and self.take(1)[0] > MOST_INT8:
                return None
            return self.structure(field.shape)
        number = NUMBERS.get(field.type)
        if number is not None:
            return self.number(number)
        match field.type:
            case "uuid":
                raw = bytes(self.take(16))
                return None if raw == NO_UUID else UUID(bytes=raw)
            case "string":
                size = self.string_size(is_flexible)
            case _:
                size = self.length(is_flexible)
        if size is None:
            if not field.is_nullable or field.is_array:
                raise Unreadable("a value that must not be null is null", self.position)
            return None
        if field.type == "string":
            return self.string(size)
        return self.take(size)

    def string(self, size: int) -> str:
        """Decode text. Invalid UTF-8 is replaced, so that the text can be encoded again."""
        text = str(self.take(size), "utf-8", "replace")
        if size > MAX_STRING_BYTES // 3 and len(text.encode()) > MAX_STRING_BYTES:
            raise Unreadable(f"a string of more than {MAX_STRING_BYTES} bytes", self.position)
        return text

    def number(self, number: Struct) -> Any:
        return number.unpack(self.take(number.size))[0]

    def string_size(self, is_flexible: bool) -> int | None:
        return self.length(True) if is_flexible else self.fits(self.number(INT16))

    def length(self, is_flexible: bool) -> int | None:
        """Read a count of bytes or elements, or null; each element takes at least one byte."""
        return self.fits(self.uvarint() - 1 if is_flexible else self.number(INT32))

    def fits(self, count: int) -> int | None:
        if count < -1:
            raise Unreadable(f"a length of {count}", self.position)
        left = len(self.data) - self.position
        if count > left:
            raise Unreadable(f"a length of {count} where {left} bytes are left", self.position)
        return None if count == -1 else count

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise Unreadable("a varint of more than five bytes", self.position)

    def take(self, size: int) -> Buffer:
        end = self.position + size
        if end > len(self.data):
            raise Unreadable(
                f"{size} bytes needed where {len(self.data) - self.position} are left",
                self.position,
            )
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def spend(self) -> None:
        self.fields_left -= 1
        if self.fields_left < self.pause_below:
            self.pause()

    def pause(self) -> None:
        if self.fields_left < 0:
            raise self.too_many_fields()
        if self.checkpoint is not None:
            self.checkpoint()
            self.pause_below = max(self.fields_left - FIELDS_AT_A_TIME, 0)

    def afford(self, count: int, field_of_array: Field) -> None:
        """Refuse an array with more fields than are left, before its elements are decoded."""
        fields = count
        if field_of_array.shape is not None:
            fields *= 1 + sum(not field.is_array for field in field_of_array.shape.plain)
        if fields > self.fields_left:
            raise self.too_many_fields()

    def too_many_fields(self) -> TooManyFields:
        return TooManyFields(f"not readable in {self.max_fields} fields", self.position)
