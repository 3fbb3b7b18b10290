"""Strict reading of JSON from files and peers, as documents or as typed values."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from itertools import repeat
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

__all__ = ["Natural", "from_json", "read_as"]

Natural: TypeAlias = Annotated[int, range(1 << 63)]
"""An integer of 64 bits that is not negative."""

_MOST_DIGITS: Final = 100  # far beyond 64 bits, and short enough for an error message
_LARGEST: Final = 1.7976931348623157e308  # of a double
_INT64: Final = range(-(1 << 63), 1 << 63)

T = TypeVar("T")


def from_json(text: str | bytes, *, distinct: bool = False) -> Any:
    """Parse a document whose numbers are finite.

    Args:
        distinct: refuse an object that has a member twice, which parsers read differently.

    Raises:
        ValueError: it is no JSON (`Infinity` and `NaN` are none), is nested too deeply, or has a
            number beyond a double, or of more than 100 digits.
    """
    pairs = _distinct if distinct else None
    try:
        return json.loads(
            text,
            parse_int=_int,
            parse_float=_float,
            parse_constant=_refuse,
            object_pairs_hook=pairs,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("it has a member twice")
    return members


def _int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"it has a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not -_LARGEST <= number <= _LARGEST:
        raise ValueError(f"it has the number {text:.40}, which is too large")
    return number


def _refuse(text: str) -> Any:
    raise ValueError(f"it has {text}, which is no JSON")


def read_as(kind: type[T], document: Any, *, may_have_more: bool = False) -> T:
    """Convert a document to a type: an object by its members, an array by their order.

    Members are integers of 64 bits, or of the range that `Annotated` gives, strings, booleans,
    members of a `StrEnum`, named tuples, dataclasses, arrays (`tuple[X, ...]`, `list[X]`,
    `frozenset[X]`), objects (`Mapping[str, X]`, `dict[str, X]`, with `int` for members that are
    numbers), or one of several of these (`X | None`). One with a default may be missing; an object
    may have others only if `may_have_more`.

    Raises:
        ValueError: it is of another form.
    """
    return cast(T, _read(kind, document, may_have_more))


def _read(kind: Any, value: Any, may_have_more: bool) -> Any:
    origin, inner, its = get_origin(kind), get_args(kind), type(value)
    if kind is int:
        if its is int and value in _INT64:  # a boolean is not meant
            return value
    elif kind is Any or (kind in (str, bool, NoneType) and its is kind):
        return value
    elif origin is Annotated:
        (allowed,) = kind.__metadata__
        if its is int and value in allowed:
            return value
    elif origin in (Union, UnionType):
        for each in inner:
            with suppress(ValueError):
                return _read(each, value, may_have_more)
    elif origin is tuple and its is list:
        kinds = repeat(inner[0], len(value)) if inner[-1] is ... else inner
        with suppress(ValueError):
            pairs = zip(kinds, value, strict=True)
            return tuple(_read(each, item, may_have_more) for each, item in pairs)
    elif origin in (list, frozenset) and its is list:
        return origin(_read(inner[0], item, may_have_more) for item in value)
    elif origin in (Mapping, dict) and its is dict:
        named = _read_name if inner[0] is int else str
        return {named(name): _read(inner[1], item, may_have_more) for name, item in value.items()}
    elif isinstance(kind, type) and issubclass(kind, StrEnum) and its is str:
        return kind(value)
    elif (hasattr(kind, "_fields") or is_dataclass(kind)) and its in (dict, list):
        return _made(kind, value, may_have_more)
    raise ValueError(f"it has {value!r:.60}, which is no {kind}")


def _read_name(name: str) -> int:
    with suppress(ValueError):
        number = int(name)
        if str(number) == name and number in _INT64:
            return number
    raise ValueError(f"it has a member {name!r:.60}, which is no number")


def _made(kind: Any, value: Any, may_have_more: bool) -> Any:
    hints, required = _members(kind)
    if type(value) is list:
        if len(value) > len(hints):
            raise ValueError(f"it has {len(value)} values in the place of {len(hints)}")
        value = dict(zip(hints, value, strict=False))
    if missing := required - value.keys():
        raise ValueError(f"it has no {min(missing)}")
    if not may_have_more and (unknown := value.keys() - hints.keys()):
        raise ValueError(f"it cannot have {min(unknown)!r:.60}")
    given = hints.keys() & value.keys()
    return kind(**{name: _read(hints[name], value[name], may_have_more) for name in given})


@cache
def _members(kind: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the types of a class's members by name, and the names without a default."""
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        without = {
            field.name
            for field in fields(kind)
            if field.default is MISSING and field.default_factory is MISSING
        }
        return hints, without
    return hints, hints.keys() - kind._field_defaults.keys()
