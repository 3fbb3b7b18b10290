"""Encoder of messages from dictionaries: one writer for each message and version, cached.

A message is encoded from nested mappings and sequences with the field names of any version. Fields
that this version lacks are dropped; missing ones take their default. A name that no version has
is a bug of the caller and raises.
"""

from collections.abc import Callable, Mapping
from functools import partial
from reprlib import repr as short_repr
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any, Final, TypeAlias

from horolog.buffers import Buffer
from horolog.errors import MOST_CHARACTERS, ErrorCode, RequestRefused, printable
from horolog.wire.api import ApiKey
from horolog.wire.packing import (
    INT32,
    NULL,
    NUMBERS,
    THERE,
    compact_string,
    string,
    tagged,
    uuid_bytes,
    uvarint,
)
from horolog.wire.schema import REQUIRED, Field, Kind, Shape, knows

__all__ = [
    "APART_BYTES",
    "MOST_ANSWER_BYTES",
    "Paced",
    "Pieces",
    "Unwritable",
    "Writer",
    "writer_of",
]

Writer: TypeAlias = Callable[[bytearray, Any], None]
Encode: TypeAlias = Callable[[Any], bytes]
_MISSING: Final = object()


APART_BYTES: Final = 64 << 10
"""Fields of bytes from this size on are not copied into a `Pieces`."""


class Pieces(bytearray):
    """Encoded bytes without the large fields, which are kept apart with their positions."""

    def __init__(self) -> None:
        super().__init__()
        self.apart: list[tuple[int, Buffer]] = []

    def all(self) -> list[Buffer]:
        """Return all bytes in order; large fields are not copied."""
        pieces: list[Buffer] = []
        start = 0
        with memoryview(self) as written:
            for position, value in self.apart:
                pieces += bytes(written[start:position]), value
                start = position
            pieces.append(bytes(written[start:]))
        return pieces


MOST_ANSWER_BYTES: Final = 256 << 20
"""Limit of an answer that is written with pauses; a client must ask for more in parts."""


class Paced(bytearray):
    """Encoded bytes that are written with pauses between the elements of arrays."""

    def __init__(self, checkpoint: Callable[[], None]) -> None:
        super().__init__()
        self._checkpoint = checkpoint

    def pause(self) -> None:
        """Let other work have its turn.

        Raises:
            RequestRefused: the answer is too large already.
        """
        self._checkpoint()
        if len(self) > MOST_ANSWER_BYTES:
            raise RequestRefused(
                ErrorCode.invalid_request,
                f"the answer has more than {MOST_ANSWER_BYTES} bytes: ask for less at a time",
            )


class Unwritable(ValueError):
    """Error: a value that its field cannot hold, a missing field, or a name that no version has."""


def writer_of(shape: Shape, kind: Kind, api_key: ApiKey) -> Writer:
    """Return the writer of a structure and everything nested in it."""
    names = frozenset(field.name for field in shape.fields)
    plain: list[tuple[str, Writer, Any]] = []
    marked: list[tuple[str, int, Writer, Any]] = []
    for field in shape.fields:
        write_value = _value_writer(field, shape.is_flexible, kind, api_key)
        if field.tag is None:
            plain.append((field.name, write_value, field.default))
        else:
            marked.append((field.name, field.tag, write_value, field.default))

    def write(out: bytearray, response: Mapping[str, Any]) -> None:
        given = 0
        name = ""
        value: Any = None
        try:
            for name, write_value, default in plain:
                value = response.get(name, _MISSING)
                if value is _MISSING:
                    if default is REQUIRED:
                        raise Unwritable(f"{shape.name}.{name} has no default and was not given")
                    value = default
                else:
                    given += 1
                write_value(out, value)
            if marked:
                present = []
                for name, tag, write_value, default in marked:
                    value = response.get(name)
                    given += name in response
                    # An empty list is the default `()`, and defaults are not sent.
                    if value is not None and value != default and (value or default != ()):
                        data = bytearray()
                        write_value(data, value)
                        present.append((tag, bytes(data)))
                out += tagged(*present)
            elif shape.is_flexible:
                out.append(0)
        except (StructError, TypeError, AttributeError) as error:
            raise Unwritable(f"{shape.name}.{name} cannot hold {short_repr(value)}") from error
        if given != len(response):
            for name in response.keys() - names:
                if not knows(kind, api_key, name):
                    raise Unwritable(f"no version of {api_key.title} {kind} has a field {name!r}")

    return write


def _value_writer(field: Field, is_flexible: bool, kind: Kind, api_key: ApiKey) -> Writer:
    if field.shape is not None:
        write_item = writer_of(field.shape, kind, api_key)
    elif field.type in {"bytes", "records"}:
        write_item = partial(_write_bytes, _compact_length if is_flexible else _length, field)
    else:
        encode = _encoder(field, is_flexible)

        def write_item(out: bytearray, value: Any) -> None:
            out += encode(value)

    if not field.is_array:
        if field.shape is not None and field.is_nullable:
            return partial(_write_or_null, write_item)
        return write_item

    write_length = _compact_length if is_flexible else _length

    def write_array(out: bytearray, items: Any) -> None:
        if items is None and field.is_nullable:
            out += write_length(None)
            return
        out += write_length(len(items))
        if isinstance(out, Paced):
            for item in items:
                write_item(out, item)
                out.pause()
        else:
            for item in items:
                write_item(out, item)

    return write_array


def _write_or_null(write_item: Writer, out: bytearray, value: Any) -> None:
    """Append a structure that may be null: a byte tells which."""
    out += NULL if value is None else THERE
    if value is not None:
        write_item(out, value)


def _length(count: int | None) -> bytes:
    return INT32.pack(-1 if count is None else count)


def _compact_length(count: int | None) -> bytes:
    return uvarint(0 if count is None else count + 1)


def _encoder(field: Field, is_flexible: bool) -> Encode:
    """Return the encoder of a primitive; it refuses null unless the field is nullable."""
    number = NUMBERS.get(field.type)
    if number is not None:
        return number.pack
    match field.type:
        case "uuid":
            return uuid_bytes
        case "string":
            encode: Encode = compact_string if is_flexible else string
            if field.name.endswith("error_message"):
                encode = partial(_message, encode)
        case _:
            raise NotImplementedError(f"no field of type {field.type!r} is known")
    # A nullable array may be null itself; its elements may not.
    return encode if field.is_nullable and not field.is_array else partial(_not_null, encode)


def _write_bytes(
    write_length: Callable[[int | None], bytes], field: Field, out: bytearray, value: Any
) -> None:
    """Append bytes of any size with a single copy, or without a copy."""
    if value is None and field.is_nullable and not field.is_array:
        out += write_length(None)
        return
    out += write_length(len(value))
    if len(value) >= APART_BYTES and isinstance(out, Pieces):
        out.apart.append((len(out), value))
    else:
        out += value


def _message(encode: Encode, text: str | None) -> bytes:
    """Encode a message to people, shortened if quoted names make it too long."""
    return encode(text if text is None or len(text) <= MOST_CHARACTERS else printable(text))


def _not_null(encode: Encode, value: Any) -> bytes:
    if value is None:
        raise TypeError("null where the protocol has none")
    return encode(value)
