"""Decoding to named tuples: a fast reader per message and version, and a strict fallback.

The fast reader decodes a message in a few microseconds and gives up on anything unusual: truncated
bytes, null where not allowed, invalid UTF-8, tagged fields. The careful reader then decodes the
message again by Kafka's rules and names the field and the byte of an error.

Large messages go to the careful reader only. It does not copy records and bytes (they are views of
the message) and limits the fields of a request: a hundred megabytes of empty topics would
otherwise occupy the broker for a minute.

kio's native reader is not used: it allocates as many elements as an array claims to have, so seven
bytes from a socket can exhaust the memory of the process.
"""

from collections.abc import Callable
from functools import partial
from itertools import groupby
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any, Final, TypeAlias
from uuid import UUID

from horolog.wire.careful_reader import read_carefully
from horolog.wire.packing import INT16, INT32, MAX_STRING_BYTES, NO_UUID, NUMBERS, Bytes
from horolog.wire.schema import Field, Shape

__all__ = ["LARGE_BYTES", "Reader", "reader_of"]

Reader: TypeAlias = Callable[[Bytes, int, int], Any]
"""Decodes the message at a position; the third argument limits the fields of a large one."""
Step: TypeAlias = Callable[[Bytes, int, list[Any]], int]
"""Decodes a value at a position, appends it to a list and returns the position after it."""

LARGE_BYTES: Final = 64 << 10


class _GiveUp(ValueError):  # noqa: N818 - errors are named by what happened
    """The message needs the careful reader."""


def reader_of(shape: Shape, *, is_request: bool) -> Reader:
    """The reader of whole messages; it raises only `Unreadable`.

    Bytes after a request are ignored, as by Apache Kafka (tested with 4.3.1). Bytes after a
    response are an error: they show that it was decoded with the wrong schema.
    """
    read_quickly = _structure(shape)

    def read(data: Bytes, position: int, max_fields: int) -> Any:
        if len(data) > LARGE_BYTES:
            data = memoryview(data).toreadonly()
        else:
            message: list[Any] = []
            try:
                end = read_quickly(data, position, message)
                if is_request or end == len(data):
                    return message[0]
            except (ValueError, IndexError, StructError):
                pass
            data = bytes(data)  # so that small records are copies, whichever reader decodes them
        return read_carefully(shape, data, position, may_trail=is_request, max_fields=max_fields)

    return read


def _structure(shape: Shape) -> Step:
    steps: list[Step] = []
    for is_number, group in groupby(shape.plain, lambda it: it.type in NUMBERS and not it.is_array):
        if is_number:
            steps.append(_numbers([each.type for each in group]))
        else:
            steps += [_field(each, shape.is_flexible) for each in group]
    if shape.is_flexible:
        steps.append(_no_tags(tuple(each.default for each in shape.tagged)))
    make = partial(tuple.__new__, shape.tuple_type)  # `_make` would check the length once more

    def step(data: Bytes, position: int, values: list[Any]) -> int:
        own: list[Any] = []
        for take in steps:
            position = take(data, position, own)
        values.append(make(own))
        return position

    return step


def _numbers(types: list[str]) -> Step:
    together = Struct(">" + "".join(NUMBERS[each].format[1:] for each in types))
    unpack_from, size = together.unpack_from, together.size

    def step(data: Bytes, position: int, values: list[Any]) -> int:
        values += unpack_from(data, position)
        return position + size

    return step


def _no_tags(defaults: tuple[Any, ...]) -> Step:
    def step(data: Bytes, position: int, values: list[Any]) -> int:
        if data[position]:
            raise _GiveUp
        values += defaults
        return position + 1

    return step


def _field(each: Field, is_flexible: bool) -> Step:
    if not each.is_array:
        return _value(each, is_flexible, is_nullable=each.is_nullable)
    read_item = _value(each, is_flexible, is_nullable=False)
    read_size = _compact_size if is_flexible else _size

    def step(data: Bytes, position: int, values: list[Any]) -> int:
        count, position = read_size(data, position)
        if count == -1 and each.is_nullable:
            values.append(None)
            return position
        # Each element takes at least one byte.
        if not 0 <= count <= len(data) - position:
            raise _GiveUp
        items: list[Any] = []
        for _ in range(count):
            position = read_item(data, position, items)
        values.append(tuple(items))
        return position

    return step


def _value(each: Field, is_flexible: bool, *, is_nullable: bool) -> Step:
    if each.shape is not None:
        return _structure(each.shape)
    if each.type in NUMBERS:
        return _numbers([each.type])
    if each.type == "uuid":
        return _uuid
    is_string = each.type == "string"
    read_size = _compact_size if is_flexible else _string_size if is_string else _size

    def step(data: Bytes, position: int, values: list[Any]) -> int:
        size, position = read_size(data, position)
        if size == -1 and is_nullable:
            values.append(None)
            return position
        end = position + size
        if size < 0 or end > len(data) or (is_string and size > MAX_STRING_BYTES):
            raise _GiveUp
        taken = data[position:end]
        values.append(str(taken, "utf-8") if is_string else bytes(taken))
        return end

    return step


def _uuid(data: Bytes, position: int, values: list[Any]) -> int:
    raw = bytes(data[position : position + 16])
    if len(raw) < 16:
        raise _GiveUp
    values.append(None if raw == NO_UUID else UUID(bytes=raw))
    return position + 16


def _size(data: Bytes, position: int) -> tuple[int, int]:
    return INT32.unpack_from(data, position)[0], position + 4


def _string_size(data: Bytes, position: int) -> tuple[int, int]:
    return INT16.unpack_from(data, position)[0], position + 2


def _compact_size(data: Bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 128:
        return byte - 1, position + 1
    value = byte & 127
    for shift in range(7, 35, 7):
        position += 1
        byte = data[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return value - 1, position + 1
    raise _GiveUp
