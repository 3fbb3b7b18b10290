"""What a setting allows beyond its type. The words of the table are the rule, and explain it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from horolog.config.values import Value

Test = Callable[[Value], bool]

_NUMBER = r"-?[0-9.]+"
_AT_LEAST = re.compile(rf"at least ({_NUMBER})(?:, or ({_NUMBER}))?")
_FROM_TO = re.compile(rf"({_NUMBER}) to ({_NUMBER})(?:, or ({_NUMBER}))?")
_REPLICAS = "* or partition:broker,partition:broker,..."


@dataclass(frozen=True, slots=True)
class Rule:
    """`words` say what is allowed, and `accepts` tells whether a parsed value is."""

    words: str
    accepts: Test


def rule_of(words: str) -> Rule | None:
    """The rule that a column of the table spells; `None` where it is empty."""
    if not words:
        return None
    if words == _REPLICAS:
        return Rule(words, _is_throttled_replicas)
    if match := _AT_LEAST.fullmatch(words):
        return Rule(words, _number_between(match[1], None, special=match[2]))
    if match := _FROM_TO.fullmatch(words):
        return Rule(words, _number_between(match[1], match[2], special=match[3]))
    if words.startswith("any of "):
        return Rule(words, _each_of(words.removeprefix("any of ").split(", ")))
    if words.endswith(", in any case"):
        choices = words.removesuffix(", in any case").split(" or ")
        return Rule(words, lambda value: str(value).upper() in choices)
    choices = words.split(" or ")
    return Rule(words, lambda value: value in choices)


def _number_between(least: str, most: str | None, special: str | None) -> Test:
    low = float(least)
    high = float("inf") if most is None else float(most)
    other = None if special is None else float(special)
    return lambda value: isinstance(value, int | float) and (low <= value <= high or value == other)


def _each_of(choices: list[str]) -> Test:
    return lambda value: isinstance(value, tuple) and all(part in choices for part in value)


def _is_throttled_replicas(value: Value) -> bool:
    assert isinstance(value, tuple)
    return value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", part) for part in value)
