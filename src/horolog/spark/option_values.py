"""One option's text, read as the type it must have; each error names the option and the value.

`given` holds all options by lower-case name.
"""

import re
from collections.abc import Mapping
from typing import Any

from horolog.clock import SystemClock, duration_ms, moment_ms
from horolog.errors import Misconfigured
from horolog.json_text import from_json

INT64_MAX = (1 << 63) - 1

_RELATIVE = re.compile(r"[+-].*[a-z]")


def flag(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    """The words true and false, in any case."""
    value = given.get(option.lower(), str(default)).strip().lower()
    if value not in ("true", "false"):
        raise Misconfigured(f"Option '{option}' is '{value}'; it is true or false")
    return value == "true"


def one_of(given: Mapping[str, str], option: str, default: str, *allowed: str) -> str:
    """One of the words `allowed`, in any case."""
    value = given.get(option.lower(), default).strip()
    for word in allowed:
        if word.lower() == value.lower():
            return word
    raise Misconfigured(f"Option '{option}' is '{value}'; it is one of {', '.join(allowed)}")


def positive(given: Mapping[str, str], option: str) -> int | None:
    """A whole number above zero, or None when it was not given."""
    return integer(given, option, 1, least=1) if option.lower() in given else None


def integer(
    given: Mapping[str, str], option: str, default: int, *, least: int, most: int = INT64_MAX
) -> int:
    """A whole number from `least` to `most`; `default` when it was not given."""
    text = given.get(option.lower())
    if text is None:
        return default
    try:
        value = int(text.strip())
    except ValueError:
        raise Misconfigured(f"Option '{option}' is '{text}'; it is one whole number") from None
    if not least <= value <= most:
        bounds = f"at least {least}" if most == INT64_MAX else f"from {least} to {most}"
        raise Misconfigured(f"Option '{option}' is {value}; it is {bounds}")
    return value


def duration(given: Mapping[str, str], option: str, default: str) -> int:
    """Milliseconds, not below zero: a text as 15m or 10s."""
    text = given.get(option.lower(), default).strip()
    try:
        found = duration_ms(text)
    except ValueError as error:
        raise Misconfigured(f"Option '{option}': {error}") from None
    if found < 0:
        raise Misconfigured(f"Option '{option}' is {text}; it is not below zero")
    return found


def is_relative(given: Mapping[str, str], option: str) -> bool:
    """Whether a moment counts from now, as -15m."""
    return _RELATIVE.fullmatch(given[option.lower()].strip()) is not None


def moment(given: Mapping[str, str], option: str) -> int:
    """A bound in milliseconds: a number, ISO-8601 with a zone, or relative to now as in -15m."""
    text = given[option.lower()].strip()
    try:
        if is_relative(given, option):
            return SystemClock().now_ms() + duration_ms(text)
        return moment_ms(text, rounds_up=True)
    except ValueError as error:
        raise Misconfigured(f"Option '{option}': {error}") from None


def parsed(text: str, option: str, example: str) -> Any:
    """JSON; `example` shows in the error what was expected."""
    try:
        return from_json(text)
    except ValueError:
        got = f"{text:.200}"
        raise Misconfigured(f"Option '{option}': expected e.g. {example}, got {got}") from None
