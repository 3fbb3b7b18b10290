"""Parsing and formatting of setting values, as strict as Kafka's for each type."""

import math
import re
from enum import IntEnum

Value = bool | int | float | str | tuple[str, ...]

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_BITS = {"INT": 32, "SHORT": 16, "LONG": 64}


class SettingKind(IntEnum):
    """Type of a setting, by the numbers of a DescribeConfigs response (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


def parse(kind: SettingKind, text: str) -> Value:
    """Parse a value. A `ValueError` has a short reason, such as "not a whole number"."""
    text = text.strip()
    match kind:
        case SettingKind.BOOLEAN:
            return _parse_boolean(text)
        case SettingKind.INT | SettingKind.SHORT | SettingKind.LONG:
            return _parse_whole(kind, text)
        case SettingKind.DOUBLE:
            return _parse_double(text)
        case SettingKind.LIST:
            return tuple(part.strip() for part in text.split(",")) if text else ()
        case _:
            return text


def to_text(value: Value) -> str:
    """Format a value as Kafka does."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float() if "e" in str(value):
            mantissa, exponent = str(value).split("e")
            return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}E{int(exponent)}"
        case _:
            return str(value)


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def _parse_whole(kind: SettingKind, text: str) -> int:
    if not _WHOLE_NUMBER.fullmatch(text):
        raise ValueError("not a whole number")
    number, limit = int(text), 1 << (_BITS[kind.name] - 1)
    if not -limit <= number < limit:
        raise ValueError(f"beyond {_BITS[kind.name]} bits")
    return number


def _parse_double(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("not a number") from None
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number
