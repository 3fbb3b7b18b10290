"""JSON that a file or a peer gives, of which nothing may be wrong but what a caller checks."""

import json
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

__all__ = ["from_json", "read_as"]

_MOST_DIGITS: Final = 100  # far beyond 64 bits, and short enough for an error message
_LARGEST: Final = 1.7976931348623157e308  # of a double
_INT64: Final = range(-(1 << 63), 1 << 63)

T = TypeVar("T")


def from_json(text: str | bytes) -> Any:
    """The document; its numbers are finite.

    Raises:
        ValueError: it is no JSON (`Infinity` and `NaN` are none), is nested too deeply, or has a
            number beyond a double, or of more than 100 digits.
    """
    try:
        return json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


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
    """A document as a named tuple: an object by its members, an array by their order.

    Members are integers of 64 bits, strings, booleans, members of a `StrEnum`, named tuples, arrays
    (`tuple[X, ...]`), objects (`Mapping[str, X]`), or one of several of these (`X | None`). One
    with a default may be missing; an object may have others only if `may_have_more`.

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
    elif origin in (Union, UnionType):
        for each in inner:
            with suppress(ValueError):
                return _read(each, value, may_have_more)
    elif origin is tuple and its is list:
        kinds = repeat(inner[0], len(value)) if inner[-1] is ... else inner
        with suppress(ValueError):
            pairs = zip(kinds, value, strict=True)
            return tuple(_read(each, item, may_have_more) for each, item in pairs)
    elif origin is Mapping and its is dict:
        return {name: _read(inner[1], item, may_have_more) for name, item in value.items()}
    elif isinstance(kind, type) and issubclass(kind, StrEnum) and its is str:
        return kind(value)
    elif hasattr(kind, "_fields") and its in (dict, list):
        return _named_tuple(kind, value, may_have_more)
    raise ValueError(f"it has {value!r:.60}, which is no {kind}")


def _named_tuple(kind: Any, value: Any, may_have_more: bool) -> Any:
    hints = _hints(kind)
    if type(value) is list:
        if len(value) > len(hints):
            raise ValueError(f"it has {len(value)} values in the place of {len(hints)}")
        value = dict(zip(hints, value, strict=False))
    if missing := hints.keys() - kind._field_defaults.keys() - value.keys():
        raise ValueError(f"it has no {min(missing)}")
    if not may_have_more and (unknown := value.keys() - hints.keys()):
        raise ValueError(f"it cannot have {min(unknown)!r:.60}")
    given = hints.keys() & value.keys()
    return kind(**{name: _read(hints[name], value[name], may_have_more) for name in given})


_hints = cache(get_type_hints)
