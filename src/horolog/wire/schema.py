"""Schema of a message by API and version, derived from kio's declarations.

Versions that kio lacks are derived from their neighbours (`other_versions`).

Only `declarations` knows kio. The schema differs from what it declares in two ways:
durations and times are `int` milliseconds under Kafka's own names (`timeout_ms`, `max_wait_ms`,
`log_append_time_ms`), and error codes are `int`s, because a newer peer may send an unknown one. A
decoded message is a named tuple; all other fields keep kio's names. A decoded request is also a
view of `requests`, so that a field that its version lacks has its default.

Loading one version takes one to two milliseconds, on first use and never at import.
"""

from collections import namedtuple
from dataclasses import MISSING
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin

from horolog.wire import requests
from horolog.wire.api import ApiKey
from horolog.wire.declarations import Declared, declaration, declared_fields
from horolog.wire.other_versions import NEWER, OLDER, OWN_TAGS, Extra, VersionChange

__all__ = ["REQUIRED", "Field", "Kind", "Shape", "knows", "load", "request_view"]

Kind: TypeAlias = Literal["request", "response"]

REQUIRED: Final = object()
"""The default of a mandatory field."""

_PLAIN: Final = {
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "error_code": "int16",
}
_MILLISECONDS: Final = frozenset({"timedelta_i32", "timedelta_i64", "datetime_i64"})


class Field(NamedTuple):
    """A field on the wire."""

    name: str
    type: str  # kio's name of a primitive ("int32", "string", ...); "" for a structure
    shape: "Shape | None"
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any


class Shape:
    """A structure on the wire.

    Args:
        is_flexible: whether it has tagged fields.
        plain: fields that are always present, in wire order.
        tagged: fields that are present only if not the default, by ascending tag (KIP-482).
        request: API whose requests contain the structure, if any.
    """

    def __init__(
        self,
        name: str,
        is_flexible: bool,
        plain: tuple[Field, ...],
        tagged: tuple[Field, ...],
        request: ApiKey | None,
    ) -> None:
        self.name = name
        self.is_flexible = is_flexible
        self.plain = plain
        self.tagged = tagged
        self._request = request

    def with_tagged(self, field: Field) -> "Shape":
        """Return this shape with one more tagged field, behind the others."""
        return Shape(self.name, self.is_flexible, self.plain, (*self.tagged, field), self._request)

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields, plain ones first."""
        return self.plain + self.tagged

    @cached_property
    def tuple_type(self) -> type[Any]:
        """Named tuple of a decoded structure, with `fields` in order."""
        names = [field.name for field in self.fields]
        plain_type = namedtuple(self.name, names)  # type: ignore[misc]  # fields are of the schema
        members: dict[str, Any] = {"__slots__": ()}
        if self._request is not None:  # its view has the defaults of what this version lacks
            lacks = vars(request_view(self._request, self.name)).items()
            members |= {name: it for name, it in lacks if name not in names and name[0] != "_"}
        return type(self.name, (plain_type,), members)


@cache
def load(kind: Kind, api_key: ApiKey, version: int) -> Shape:
    """Return the shape of a message.

    Raises:
        LookupError: the version does not exist.
    """
    for changes, step in ((OLDER, 1), (NEWER, -1)):
        change = changes.get((kind, api_key), {}).get(version)
        if change is not None:
            neighbour = load(kind, change.like or api_key, version + (0 if change.like else step))
            return _changed(neighbour, change, api_key if kind == "request" else None)
    shape = _shape(declaration(kind, api_key, version), api_key if kind == "request" else None)
    own = OWN_TAGS.get((kind, api_key))
    if own is None or not shape.is_flexible:
        return shape
    field = Field(own.name, own.type, None, False, False, own.tag, own.default)
    return shape.with_tagged(field)


@cache
def knows(kind: Kind, api_key: ApiKey, name: str) -> bool:
    """Return True if any version of a message has a field of that name, at any depth."""
    versions = api_key.versions
    return any(
        name in _names(load(kind, api_key, version))
        for version in range(versions.max, versions.min - 1, -1)
    )


@cache
def _names(shape: Shape) -> frozenset[str]:
    inner = (_names(field.shape) for field in shape.fields if field.shape is not None)
    return frozenset(field.name for field in shape.fields).union(*inner)


def _shape(entity: type[Any], request: ApiKey | None) -> Shape:
    """Return the shape of a structure; `request` is the API whose requests contain it, if any."""
    described = [_describe(declared_field, request) for declared_field in declared_fields(entity)]
    plain = tuple(field for field in described if field.tag is None)
    tagged = sorted(
        (field for field in described if field.tag is not None), key=lambda it: it.tag or 0
    )
    return Shape(entity.__name__, bool(entity.__flexible__), plain, tuple(tagged), request)


def _changed(neighbour: Shape, change: VersionChange, request: ApiKey | None) -> Shape:
    """Return the shape of a version, which is as flexible as its neighbour."""
    plain = [
        known
        if known.shape is None
        else known._replace(shape=_changed(known.shape, change, request))
        for known in neighbour.plain
        if known.name not in change.lacks
    ]
    for extra in change.extra:
        if extra.structure == neighbour.name:
            names = [known.name for known in plain]
            place = len(names) if extra.before is None else names.index(extra.before)
            plain.insert(place, _field(extra))
    name = change.name or neighbour.name
    return Shape(name, neighbour.is_flexible, tuple(plain), neighbour.tagged, request)


def _field(extra: Extra) -> Field:
    default: Any = () if extra.is_array else REQUIRED
    if extra.is_nullable or extra.default is not None:
        default = extra.default
    return Field(extra.name, extra.type, None, extra.is_array, extra.is_nullable, None, default)


def request_view(api_key: ApiKey, name: str) -> type[Any]:
    """Return the class in `requests` of a structure of an API's requests."""
    views = vars(requests)
    view: type[Any] = views.get(api_key.title + name) or views.get(name, object)
    return view


def _describe(declared: Declared, request: ApiKey | None) -> Field:
    kafka_type: str = declared.metadata.get("kafka_type", "")
    inner, is_array, is_nullable = _take_apart(declared.type)
    shape = None if kafka_type else _shape(inner, request)
    return Field(
        name=declared.name + "_ms" if kafka_type in _MILLISECONDS else declared.name,
        type=_PLAIN.get(kafka_type, kafka_type),
        shape=shape,
        is_array=is_array,
        is_nullable=is_nullable and kafka_type not in _PLAIN,
        tag=declared.metadata.get("tag"),
        default=_default(declared, shape, is_nullable=is_nullable),
    )


def _take_apart(annotation: Any) -> tuple[Any, bool, bool]:
    """Return the inner type, whether it is an array, and whether null is allowed."""
    is_nullable = get_origin(annotation) in (UnionType, Union)
    if is_nullable:
        (annotation,) = (argument for argument in get_args(annotation) if argument is not NoneType)
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], True, is_nullable
    return annotation, False, is_nullable


def _default(declared: Declared, shape: Shape | None, *, is_nullable: bool) -> Any:
    value = declared.default
    kafka_type = declared.metadata.get("kafka_type", "")
    if value is MISSING:
        if is_nullable:
            return None
        # A response without these fields means: not throttled, no error.
        return 0 if kafka_type == "error_code" or declared.name == "throttle_time" else REQUIRED
    if kafka_type == "datetime_i64":
        return -1
    if shape is not None and value != () and value is not None:
        return shape.tuple_type(*(field.default for field in shape.fields))
    return value
