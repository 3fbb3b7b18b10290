"""Build the response that reports one error for everything that a request names.

The response mirrors the request, as Kafka's `AbstractRequest.getErrorResponse` does: the topics,
partitions, groups and other elements of the request appear in the response, each with the error.
A response has its elements in the order of the request's first array.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.wire.api import ApiKey
from horolog.wire.schema import REQUIRED, Field, Shape, load

__all__ = ["AskedTopic", "error_response", "names_partitions", "names_topics", "topics_named"]

_ERROR_FIELDS: Final = ("error_code", "partition_error_code")
_IDENTITIES: Final = frozenset(
    {
        "group_id",
        "group_instance_id",
        "index",
        "member_id",
        "name",
        "partition",
        "partition_index",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
        "topic_name",
        "transactional_id",
        "user",
    }
)
"""Fields of a response that say which element of the request it is about."""
_OTHER_NAMES: Final = {"partition_index": "partition", "user": "name"}
"""Their names in requests that call them otherwise."""
_TOPIC_ARRAYS: Final = (
    "topics",
    "topic_data",
    "topic_names",
    "topic_partitions",
    "v3_and_below_topics",
)
_PARTITION_ARRAYS: Final = ("partitions", "partition_data", "partition_indexes")
_NUMBERS: Final = ("int8", "int16", "int32", "int64")
_EMPTY: Final = {"bool": False, "string": "", "bytes": b"", "records": b"", "float64": 0.0}

# These arrays of a response describe what the broker has, not what the request names.
_NOT_MIRRORED: Final = frozenset({ApiKey.DESCRIBE_LOG_DIRS})
# An error beside the partitions would make a client ignore them: it is for errors of sessions.
_ONLY_INSIDE: Final = frozenset({ApiKey.FETCH})


class AskedTopic(NamedTuple):
    """A topic in a request; `partitions` is None where the request names none of them."""

    topic: str | UUID | None
    partitions: Sequence[int] | None


def error_response(
    api_key: ApiKey, version: int, request: Any, error_code: int, message: str
) -> dict[str, Any]:
    """Return the response to a decoded request, with one error for everything in it.

    Args:
        message: the text of the fields `error_message`, in versions that have them.
    """
    shape = load("response", api_key, version)
    mirrored = None if api_key in _NOT_MIRRORED else request
    response = _Mirror(shape, error_code, message).structure(shape, mirrored)
    if api_key in _ONLY_INSIDE and response.get("responses"):
        response.pop("error_code", None)
    return response


class _Mirror:
    """Fills the structures of one response."""

    def __init__(self, whole: Shape, error_code: int, message: str) -> None:
        self._whole = whole
        self._error_code = error_code
        self._message = message

    def structure(self, shape: Shape, source: Any) -> dict[str, Any]:
        """Fill a structure of a response from the element of the request that it is about."""
        elements = _first_array(source)
        values: dict[str, Any] = {}
        for field in shape.fields:
            if field.name == "throttle_time_ms":
                continue
            if field.name in _ERROR_FIELDS:
                values[field.name] = self._error_code
            elif field.name == "error_message":
                values[field.name] = self._message
            elif field.is_array and field.shape is not None and _reports_errors(field.shape):
                inner = field.shape
                values[field.name] = [self.structure(inner, element) for element in elements]
                elements = ()
            elif field.tag is None:
                said = None if shape is self._whole else _said(shape, field, source)
                values[field.name] = _nothing(field) if said is None else said
        return values


def _said(shape: Shape, field: Field, source: Any) -> str | int | UUID | None:
    """Return the value by which the request names the element, if this field is about that."""
    if isinstance(source, (str, int)):
        return source if field is _key_of(shape) else None
    if field.name not in _IDENTITIES:
        return None
    said = getattr(source, field.name, None)
    if said is None:
        said = getattr(source, _OTHER_NAMES.get(field.name, ""), None)
    return said if isinstance(said, (str, int, UUID)) else None


def _nothing(field: Field) -> Any:
    """Return a value that says nothing; -1 for numbers without a default, as in Kafka."""
    if field.default is not REQUIRED:
        return field.default
    if field.is_array:
        return []
    if field.is_nullable and field.type != "records":
        return None
    if field.shape is not None:
        return {inner.name: _nothing(inner) for inner in field.shape.plain}
    return -1 if field.type in _NUMBERS else _EMPTY.get(field.type, 0)


def _key_of(shape: Shape) -> Field | None:
    """Return the field that names an element whose request names it by a plain value."""
    for field in shape.plain:
        if field.name in _ERROR_FIELDS or field.shape is not None or field.is_array:
            continue
        if field.type in ("int32", "string") and not field.is_nullable:
            return field
    return next((field for field in shape.plain if field.name == "name"), None)


def _reports_errors(shape: Shape) -> bool:
    return any(
        field.name in _ERROR_FIELDS or (field.shape is not None and _reports_errors(field.shape))
        for field in shape.fields
    )


def _first_array(source: Any) -> Sequence[Any]:
    """Return the first array of a structure of a request; empty without any."""
    if not isinstance(source, tuple):
        return ()
    for value in source:
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return value
    return ()


def names_topics(api_key: ApiKey) -> bool:
    """True if requests of this API name topics."""
    return _topic_field(load("request", api_key, api_key.versions.max)) is not None


def names_partitions(api_key: ApiKey) -> bool:
    """True if requests of this API name partitions."""
    field = _topic_field(load("request", api_key, api_key.versions.max))
    if field is None or field.shape is None:
        return False
    return any(inner.name in _PARTITION_ARRAYS for inner in field.shape.fields)


def _topic_field(shape: Shape) -> Field | None:
    for field in shape.fields:
        if field.is_array and field.name in _TOPIC_ARRAYS:
            return field
        inner = None if field.shape is None else _topic_field(field.shape)
        if inner is not None:
            return inner
    return None


def topics_named(request: Any) -> Iterator[AskedTopic | None]:
    """Yield the topics that a decoded request names, by name or id; None for "all topics"."""
    for name in getattr(request, "_fields", ()):
        value = getattr(request, name)
        if name in _TOPIC_ARRAYS:
            if value is None:
                yield None
            for element in value or ():
                yield _named(element)
        elif isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            for element in value:
                yield from topics_named(element)


def _named(element: Any) -> AskedTopic:
    if isinstance(element, str):
        return AskedTopic(element, None)
    ways = (getattr(element, name, None) for name in ("name", "topic", "topic_name", "topic_id"))
    topic = next((way for way in ways if way), None)
    for array in _PARTITION_ARRAYS:
        partitions = getattr(element, array, None)
        if partitions is not None:
            return AskedTopic(topic, [_index(partition) for partition in partitions])
    return AskedTopic(topic, None)


def _index(partition: Any) -> int:
    if isinstance(partition, int):
        return partition
    ways = (getattr(partition, name, None) for name in ("partition_index", "partition", "index"))
    return next((way for way in ways if isinstance(way, int)), -1)
