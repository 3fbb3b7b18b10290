"""Records of Kafka's protocol generator, declared as classes: fields, types, versions, tags.

    class Partition(NamedTuple):
        partition: I32
        directories: Annotated[Ids, Since(1)] = ()
        elr: Annotated[NullableInt32s, Tag(1, 2)] = None

The fields are in the order of the wire. A field that a version lacks has its default. A version is
flexible (KIP-482) if the reader or the encoder is.
"""

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from struct import Struct
from typing import Annotated, Any, Final, NamedTuple, get_type_hints
from uuid import UUID

from horolog.schemas.fields import Encoder, Fields, there

NIL: Final = UUID(int=0)

_U16 = Struct(">H")


class Kind(NamedTuple):
    """A type of field: its reader, its writer, and its value where a version lacks the field."""

    read: Callable[[Fields], Any]
    write: Callable[[Encoder, Any], object]
    default: Any = 0


class Since(NamedTuple):
    """First version that has a field."""

    version: int


class Tag(NamedTuple):
    """A tagged field: its number, and the first version that has it."""

    number: int
    version: int = 0


def _read_text(fields: Fields) -> str:
    return there(fields.text())


def _array_of(kind: Kind, *, nullable: bool = False) -> Kind:
    def read(fields: Fields) -> tuple[Any, ...] | None:
        found = fields.array(partial(kind.read, fields))
        if found is None:
            return None if nullable else there(None)
        return tuple(found)

    def write(to: Encoder, values: Iterable[Any] | None) -> None:
        to.array(values, partial(kind.write, to))

    return Kind(read, write, None if nullable else ())


_UUID_KIND = Kind(Fields.uuid, Encoder.uuid, NIL)

I8 = Annotated[int, Kind(Fields.i8, Encoder.i8)]
I16 = Annotated[int, Kind(Fields.i16, Encoder.i16)]
U16 = Annotated[
    int,
    Kind(lambda fields: fields.unpack(_U16)[0], lambda to, value: to.raw(_U16.pack(value))),
]
I32 = Annotated[int, Kind(Fields.i32, Encoder.i32)]
I64 = Annotated[int, Kind(Fields.i64, Encoder.i64)]
F64 = Annotated[float, Kind(Fields.f64, Encoder.f64)]
Bool = Annotated[bool, Kind(Fields.boolean, Encoder.boolean, default=False)]
Id = Annotated[UUID, _UUID_KIND]
Text = Annotated[str, Kind(_read_text, Encoder.text, "")]
NullableText = Annotated[str | None, Kind(Fields.text, Encoder.text, None)]
Bytes = Annotated[bytes, Kind(lambda fields: there(fields.data()), Encoder.data, b"")]
Int32s = Annotated[tuple[int, ...], Kind(lambda fields: there(fields.i32s()), Encoder.i32s, ())]
NullableInt32s = Annotated[tuple[int, ...] | None, Kind(Fields.i32s, Encoder.i32s, None)]
Ids = Annotated[tuple[UUID, ...], _array_of(_UUID_KIND)]
NullableIds = Annotated[tuple[UUID, ...] | None, _array_of(_UUID_KIND, nullable=True)]
Texts = Annotated[tuple[str, ...], _array_of(Kind(_read_text, Encoder.text, ""))]


class _Field(NamedTuple):
    name: str
    kind: Kind
    since: int
    tag: int | None
    default: Any


class RecordShape:
    """Reader and writer of the fields of one class."""

    def __init__(self, record: type[Any]) -> None:
        self.record = record
        self._reads: dict[int, list[Callable[[Fields], Any]]] = {}

    @cached_property
    def fields(self) -> list[_Field]:
        """Fields in the order of the wire, found from the annotations at first use."""
        fields = []
        defaults = self.record._field_defaults
        for name, hint in get_type_hints(self.record, include_extras=True).items():
            kind, *rules = hint.__metadata__
            since, tag = 0, None
            for rule in rules:
                since = rule.version
                tag = rule.number if isinstance(rule, Tag) else None
            fields.append(_Field(name, kind, since, tag, defaults.get(name, kind.default)))
        return fields

    @cached_property
    def _tags(self) -> dict[int, tuple[int, _Field]]:
        return {
            field.tag: (index, field)
            for index, field in enumerate(self.fields)
            if field.tag is not None
        }

    def read(self, version: int, fields: Fields) -> Any:
        """Read a record of a version.

        Raises:
            CorruptBatch: the bytes are no such record.
        """
        fields.version = version
        reads = self._reads.get(version)
        if reads is None:
            reads = self._reads[version] = [
                field.kind.read
                if field.tag is None and field.since <= version
                else partial(_default, field.default)
                for field in self.fields
            ]
        values = [read(fields) for read in reads]
        for tag, data in fields.tagged().items():
            index, field = self._tags.get(tag, (0, None))
            if field is not None and field.since <= version:
                within = Fields(data)
                values[index] = field.kind.read(within)
                within.check_end(f"tagged field {tag} of a metadata record")
        return self.record._make(values)

    def write(self, version: int, record: Any, to: Encoder) -> None:
        """Write a record in a version; fields that the version lacks are dropped.

        Raises:
            struct.error: a number does not fit its field.
        """
        to.version = version
        tagged: dict[int, bytes] = {}
        for field, value in zip(self.fields, record, strict=True):
            if field.since > version:
                continue
            if field.tag is None:
                field.kind.write(to, value)
            elif value != field.default:
                data = Encoder()
                field.kind.write(data, value)
                tagged[field.tag] = bytes(data)
        to.tagged(tagged)


def _default(value: Any, _: Fields) -> Any:
    return value


def struct_of(record: type[Any]) -> Kind:
    """Return the type of an array of structs, which are declared as records are."""
    return _array_of(_struct(RecordShape(record)))


def nullable_struct_of(record: type[Any]) -> Kind:
    """Return the type of a struct that may be null; a number in front of it tells.

    Where it is tagged, its default is the struct's own defaults: null is written.
    """
    struct = _struct(RecordShape(record))

    def read(fields: Fields) -> Any:
        return struct.read(fields) if fields.unsigned() else None

    def write(to: Encoder, value: Any) -> None:
        to.unsigned(0 if value is None else 1)
        if value is not None:
            struct.write(to, value)

    return Kind(read, write, record())


def _struct(shape: RecordShape) -> Kind:
    return Kind(
        lambda fields: shape.read(fields.version, fields),
        lambda to, value: shape.write(to.version, value, to),
    )
