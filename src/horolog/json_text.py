"""JSON that a file or a peer gives, of which nothing may be wrong but what a caller checks."""

import json
from typing import Any, Final

__all__ = ["from_json"]

_MOST_DIGITS: Final = 100  # far beyond 64 bits, and short enough for an error message
_LARGEST: Final = 1.7976931348623157e308  # of a double


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
