"""Validation of settings beyond their type, parsed from the column "allowed" of the tables."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from horolog.config.releases import is_release
from horolog.config.values import Value

Test = Callable[[Value], bool]

_NUMBER = r"-?[0-9.]+"
_RANGE = re.compile(rf"(?:at least )?({_NUMBER})(?: to ({_NUMBER}))?(?:, or ({_NUMBER}))?")
_RELEASE = "a release of Kafka from 0.8.0 to 3.9"
_START = "earliest or latest or by_duration:PnDTnHnMn.nS"
_DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.ASCII)
_REPLICAS = "* or partition:broker,partition:broker,..."


@dataclass(frozen=True, slots=True)
class ValueRule:
    """Rule for values: `words` describe it, and `accepts` checks a parsed value."""

    words: str
    accepts: Test


def rule_of(words: str) -> ValueRule | None:
    """Parse a rule; `None` if `words` is empty."""
    if not words:
        return None
    if words == _REPLICAS:
        return ValueRule(words, _is_throttled_replicas)
    if words == _START:
        return ValueRule(words, _is_start)
    if words == _RELEASE:
        return ValueRule(words, lambda value: is_release(str(value)))
    if match := _RANGE.fullmatch(words):
        return ValueRule(words, _number_between(*match.groups()))
    if words.startswith("any of "):
        parts = words.removeprefix("any of ").split(", ")
        return ValueRule(words, lambda value: isinstance(value, tuple) and {*value} <= {*parts})
    if words.endswith(", in any case"):
        choices = words.removesuffix(", in any case").split(" or ")
        return ValueRule(words, lambda value: str(value).upper() in choices)
    choices = ["" if choice == "empty" else choice for choice in words.split(" or ")]
    return ValueRule(words, lambda value: value in choices)


def _number_between(least: str, most: str | None, special: str | None) -> Test:
    low = float(least)
    high = float("inf") if most is None else float(most)
    other = None if special is None else float(special)
    return lambda value: isinstance(value, int | float) and (low <= value <= high or value == other)


def _is_start(value: Value) -> bool:
    return value in ("earliest", "latest") or _DURATION.fullmatch(str(value)) is not None


def _is_throttled_replicas(value: Value) -> bool:
    assert isinstance(value, tuple)
    return value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", part) for part in value)
