"""Parsers of option values; each error names the option and the value.

`given` holds all options by lower-case name.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from horolog.clock import SystemClock, duration_ms, moment_ms
from horolog.errors import HorologError, Misconfigured
from horolog.json_text import from_json
from horolog.metadata.topics import check_name

INT64_MAX = (1 << 63) - 1

_SPARK_DURATION = re.compile(r"(?P<count>[0-9]{1,18}) *(?P<unit>us|min)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_RELATIVE = re.compile(r"[+-].*[a-z]")


def refuse_misspelt(
    given: Iterable[str], options: Iterable[str], settings: Collection[str], *, cutoff: float
) -> None:
    """Refuse a name that is nearly an option, or one of Kafka's settings without its `kafka.`.

    Others may belong to another format.

    Raises:
        Misconfigured: names the one that was meant.
    """
    known = {option.lower(): option for option in options}
    for name in given:
        if name in known or name.startswith("kafka."):
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
        meant = f"kafka.{name}" if name in settings else known[close[0]] if close else None
        if meant is not None:
            raise Misconfigured(f"Unknown option '{name}'; did you mean '{meant}'?")


def topic_name(name: str, option: str) -> str:
    """Return a topic's name after checking it.

    Raises:
        Misconfigured: they may not; says what they may.
    """
    try:
        check_name(name)
    except HorologError as error:
        raise Misconfigured(f"Option '{option}': {error}") from None
    return name


def flag(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    """Read `true` or `false`, in any case."""
    value = given.get(option.lower(), str(default)).strip().lower()
    if value not in ("true", "false"):
        raise Misconfigured(f"Option '{option}' is '{value}'; it is true or false")
    return value == "true"


def one_of(given: Mapping[str, str], option: str, default: str, *allowed: str) -> str:
    """Read one of the words `allowed`, in any case."""
    value = given.get(option.lower(), default).strip()
    for word in allowed:
        if word.lower() == value.lower():
            return word
    raise Misconfigured(f"Option '{option}' is '{value}'; it is one of {', '.join(allowed)}")


def positive(given: Mapping[str, str], option: str) -> int | None:
    """Read a whole number above zero; None if the option is not given."""
    return integer(given, option, 1, least=1) if option.lower() in given else None


def integer(
    given: Mapping[str, str], option: str, default: int, *, least: int, most: int = INT64_MAX
) -> int:
    """Read a whole number from `least` to `most`; `default` if the option is not given."""
    text = given.get(option.lower())
    if text is None:
        return default
    if _WHOLE.fullmatch(text.strip()) is None:  # `int` takes 1_000 as well
        raise Misconfigured(f"Option '{option}' is '{text}'; it is one whole number")
    value = int(text)
    if not least <= value <= most:
        bounds = f"at least {least}" if most == INT64_MAX else f"from {least} to {most}"
        raise Misconfigured(f"Option '{option}' is {value}; it is {bounds}")
    return value


def duration(given: Mapping[str, str], option: str, default: str) -> int:
    """Read a duration such as 15m or 10s, in milliseconds and not below zero.

    Those are `min` for `m` and `us`, of which milliseconds are the whole ones.
    """
    text = given.get(option.lower(), default).strip()
    in_spark_units = _SPARK_DURATION.fullmatch(text.lower())
    try:
        if in_spark_units is None:
            found = duration_ms(text)
        elif in_spark_units["unit"] == "us":
            found = int(in_spark_units["count"]) // 1000
        else:
            found = duration_ms(f"{in_spark_units['count']}m")
    except ValueError as error:
        raise Misconfigured(f"Option '{option}': {error}") from None
    if found < 0:
        raise Misconfigured(f"Option '{option}' is {text}; it is not below zero")
    return found


def is_relative(given: Mapping[str, str], option: str) -> bool:
    """Return True if a moment counts from now, as -15m does."""
    return _RELATIVE.fullmatch(given[option.lower()].strip()) is not None


def moment(given: Mapping[str, str], option: str) -> int:
    """Read a moment in milliseconds: a number, ISO-8601 with a zone, or relative as -15m."""
    text = given[option.lower()].strip()
    try:
        if is_relative(given, option):
            return SystemClock().now_ms() + duration_ms(text)
        return moment_ms(text, rounds_up=True)
    except ValueError as error:
        raise Misconfigured(f"Option '{option}': {error}") from None


def parsed(text: str, option: str, example: str) -> Any:
    """Read JSON; the error shows `example` as the expected form."""
    try:
        return from_json(text)
    except ValueError:
        got = f"{text:.200}"
        raise Misconfigured(f"Option '{option}': expected e.g. {example}, got {got}") from None
