"""Decoding to named tuples: a fast reader per message and version, and a strict fallback.

The fast reader decodes a message in a few microseconds and gives up on anything unusual: truncated
bytes, null where not allowed, invalid UTF-8, tagged fields. The careful reader then decodes the
message again by Kafka's rules and names the field and the byte of an error.

The fast reader of a version is one Python function, compiled from its schema as `dataclasses` and
`namedtuple` do: a function per field would take three times as long to decode a small request.

Large messages go to the careful reader only. It does not copy records and bytes (they are views of
the message) and limits the fields of a request: a hundred megabytes of empty topics would
otherwise occupy the broker for a minute.

kio's native reader is not used: it allocates as many elements as an array claims to have, so seven
bytes from a socket can exhaust the memory of the process.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any, Final, TypeAlias
from uuid import UUID

from horolog.buffers import Buffer
from horolog.wire.careful_reader import read_carefully
from horolog.wire.packing import MAX_STRING_BYTES, MOST_INT8, NO_UUID, NUMBERS
from horolog.wire.schema import Field, Shape

__all__ = ["LARGE_BYTES", "Reader", "reader_of"]

Reader: TypeAlias = Callable[[Buffer, int, int, Callable[[], None] | None], Any]
"""Decodes the message at a position.

The third argument limits the fields of a large one, the fourth is called between them.
"""
FastReader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
"""Decodes the message at a position; returns the position after it as well."""

LARGE_BYTES: Final = 64 << 10


class _GiveUp(ValueError):
    """Error: the message needs the careful reader."""


def reader_of(shape: Shape, *, is_request: bool) -> Reader:
    """Return the reader of whole messages; it raises only `Unreadable`.

    Bytes after a request are ignored, as by Apache Kafka (tested with 4.3.1). Bytes after a
    response are an error: they show that it was decoded with the wrong schema.
    """
    read_fast = _Source().compile(shape)

    def read(
        data: Buffer, position: int, max_fields: int, checkpoint: Callable[[], None] | None
    ) -> Any:
        if len(data) > LARGE_BYTES:
            data = memoryview(data).toreadonly()
        else:
            try:
                message, end = read_fast(data, position)
                if is_request or end == len(data):
                    return message
            except (ValueError, IndexError, StructError):
                pass
            data = bytes(data)  # so that small records are copies, whichever reader decodes them
        return read_carefully(
            shape,
            data,
            position,
            may_trail=is_request,
            max_fields=max_fields,
            checkpoint=checkpoint,
        )

    return read


class _Source:
    """Source text of a fast reader, written field by field.

    All its names are generated; types and defaults of the schema are passed in as values.
    Successive numbers and lengths are unpacked at once.
    """

    def __init__(self) -> None:
        self._lines = ["def read(data, position):", " end = len(data)"]
        self._indent = " "
        self._values: dict[str, Any] = {
            "GiveUp": _GiveUp,
            "compact_size": _compact_size,
            "uuid": _uuid,
            "new": tuple.__new__,  # `_make` would check the length once more
        }
        self._made = 0
        self._numbers: list[tuple[str, str]] = []  # formats and names, not unpacked yet

    def compile(self, shape: Shape) -> FastReader:
        message = self._structure(shape)
        self._write(f"return {message}, position")
        exec("\n".join(self._lines), self._values)  # noqa: S102 - nothing in it is from outside
        read: FastReader = self._values["read"]
        return read

    def _write(self, *lines: str) -> None:
        self._lines += [self._indent + line for line in lines]

    def _name(self) -> str:
        self._made += 1
        return f"v{self._made}"

    def _value(self, value: Any) -> str:
        name = self._name()
        self._values[name] = value
        return name

    def _number(self, kind: str) -> str:
        name = self._name()
        self._numbers.append((NUMBERS[kind].format[1:], name))
        return name

    def _unpack(self) -> None:
        """Write the unpacking of collected numbers, before another field is read."""
        if self._numbers:
            together = Struct(">" + "".join(layout for layout, _ in self._numbers))
            names = ", ".join(name for _, name in self._numbers)
            self._write(f"{names}, = {self._value(together.unpack_from)}(data, position)")
            self._write(f"position += {together.size}")
            self._numbers.clear()

    def _structure(self, shape: Shape) -> str:
        """Write the reading of a structure; return the expression that makes it."""
        names = [self._field(field, shape.is_flexible) for field in shape.plain]
        self._unpack()
        if shape.is_flexible:
            names += self._tagged(shape)
        values = "".join(f"{name}, " for name in names)
        return f"new({self._value(shape.tuple_type)}, ({values}))"

    def _tagged(self, shape: Shape) -> list[str]:
        """Write the reading of the tagged fields; return the names of their values.

        Short ones that are known: a replica's state in Fetch, and clocks. Others are not read here.
        """
        defaults = [self._value(field.default) for field in shape.tagged]
        if not defaults:
            self._write("if data[position]: raise GiveUp", "position += 1")
            return []
        names = [self._name() for _ in defaults]
        tag, stop = self._name(), self._name()
        self._write(*map("{} = {}".format, names, defaults))
        self._write("position += 1", "if data[position - 1]:")
        self._indent += " "
        self._write(f"if data[position - 1] > {MOST_INT8}: raise GiveUp")
        self._write("for _ in range(data[position - 1]):")
        self._indent += " "
        self._write(
            f"{tag}, position = compact_size(data, position)",
            f"{stop} = position + 1 + data[position]",
            f"if {stop} > position + {MOST_INT8 + 1} or {stop} > end: raise GiveUp",
            "position += 1",
        )
        for name, field in zip(names, shape.tagged, strict=True):
            self._write(f"if {tag} + 1 == {field.tag}:")
            self._indent += " "
            value = self._field(field, is_flexible=True)
            self._unpack()
            self._write(f"{name} = {value}")
            self._indent = self._indent[1:]
        self._write(f"if position != {stop}: raise GiveUp")  # or it is none of these
        self._indent = self._indent[2:]
        return names

    def _field(self, field: Field, is_flexible: bool) -> str:
        """Write the reading of a field; return the name of its value."""
        if not field.is_array:
            return self._single(field, is_flexible, is_nullable=field.is_nullable)
        count, items = self._length("int32", is_flexible), self._name()
        if field.is_nullable:
            self._write(f"if {count} == -1: {items} = None", "else:")
            self._indent += " "
        # Each element takes at least one byte.
        self._write(f"if not 0 <= {count} <= end - position: raise GiveUp", f"{items} = []")
        self._write(f"for _ in range({count}):")
        self._indent += " "
        item = self._single(field, is_flexible, is_nullable=False)
        self._unpack()
        self._write(f"{items}.append({item})")
        self._indent = self._indent[1:]
        self._write(f"{items} = tuple({items})")
        if field.is_nullable:
            self._indent = self._indent[1:]
        return items

    def _single(self, field: Field, is_flexible: bool, *, is_nullable: bool) -> str:
        if field.type in NUMBERS:
            return self._number(field.type)
        if field.shape is not None:
            self._unpack()
            return (
                self._structure_or_null(field.shape)
                if is_nullable
                else self._structure(field.shape)
            )
        name = self._name()
        if field.type == "uuid":
            self._unpack()
            self._write(f"{name} = uuid(data, position)", "position += 16")
            return name
        is_string = field.type == "string"
        size, start = self._length("int16" if is_string else "int32", is_flexible), self._name()
        is_wrong = f"{size} < 0 or position > end"
        take = f"bytes(data[{start}:position])"
        if is_string:
            is_wrong += f" or {size} > {MAX_STRING_BYTES}"
            take = f"str(data[{start}:position], 'utf-8')"
        if is_nullable:
            self._write(f"if {size} == -1: {name} = None", "else:")
            self._indent += " "
        self._write(f"{start} = position", f"position += {size}")
        self._write(f"if {is_wrong}: raise GiveUp", f"{name} = {take}")
        if is_nullable:
            self._indent = self._indent[1:]
        return name

    def _structure_or_null(self, shape: Shape) -> str:
        """Write the reading of a structure that may be null; return the name of its value."""
        name = self._name()
        self._write("position += 1", f"if data[position - 1] > {MOST_INT8}: {name} = None", "else:")
        self._indent += " "
        self._write(f"{name} = {self._structure(shape)}")
        self._indent = self._indent[1:]
        return name

    def _length(self, kind: str, is_flexible: bool) -> str:
        """Write the reading of a length, -1 for null; return its name."""
        if not is_flexible:
            name = self._number(kind)
            self._unpack()
            return name
        self._unpack()
        name = self._name()
        self._write(f"{name} = data[position] - 1", "position += 1")
        self._write(f"if {name} > 126: {name}, position = compact_size(data, position - 1)")
        return name


def _uuid(data: Buffer, position: int) -> UUID | None:
    raw = bytes(data[position : position + 16])
    if len(raw) < 16:
        raise _GiveUp
    return _uuid_of(raw)


@lru_cache(maxsize=1024)
def _uuid_of(raw: bytes) -> UUID | None:
    return None if raw == NO_UUID else UUID(bytes=raw)


def _compact_size(data: Buffer, position: int) -> tuple[int, int]:
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
