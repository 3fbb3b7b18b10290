"""Patterns of transactional ids, matched in bounded time whatever the pattern (KIP-1152).

Kafka's brokers use RE2, which has no backtracking. Python's has: a client could keep the broker
busy with one request. So only its parser is used. Each element maps the positions that a match may
have reached to those that it may reach next; what RE2 lacks, references back and assertions, is
refused.
"""

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final

from horolog.errors import ErrorCode, RequestRefused

_MOST_CHARACTERS: Final = 1_000
_MOST_REPEATS: Final = 1_000  # of nested ones multiplied, as in RE2
_PARSER: Final = import_module("re._parser")
_CLASSES: Final = {
    "CATEGORY_DIGIT": re.compile(r"\d", re.ASCII),
    "CATEGORY_NOT_DIGIT": re.compile(r"\D", re.ASCII),
    "CATEGORY_SPACE": re.compile(r"\s", re.ASCII),
    "CATEGORY_NOT_SPACE": re.compile(r"\S", re.ASCII),
    "CATEGORY_WORD": re.compile(r"\w", re.ASCII),
    "CATEGORY_NOT_WORD": re.compile(r"\W", re.ASCII),
}

_Positions = set[int]


def id_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a whole text matches the pattern.

    Raises:
        RequestRefused: INVALID_REGULAR_EXPRESSION.
    """
    if len(pattern) > _MOST_CHARACTERS:
        raise _invalid(f"it has more than {_MOST_CHARACTERS} characters")
    try:
        found = _PARSER.parse(pattern)
        if found.state.flags & ~re.UNICODE:
            raise _invalid("flags are not supported")
        parsed = list(found)
        _check(parsed, 1)
    except (re.error, OverflowError, RecursionError) as error:
        raise _invalid(str(error)) from error
    return lambda text: len(text) in _reached(parsed, text, {0})


def _check(items: Iterable[Any], repeats: int) -> None:
    for operation, argument in items:
        match str(operation):
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "AT":
                pass
            case "BRANCH":
                for branch in argument[1]:
                    _check(branch, repeats)
            case "SUBPATTERN":
                _, added, removed, inner = argument
                if added or removed:
                    raise _invalid("flags are not supported")
                _check(inner, repeats)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = argument
                times = least if most is _PARSER.MAXREPEAT else most
                repeats_inside = repeats * max(1, int(times))
                if repeats_inside > _MOST_REPEATS:
                    raise _invalid(f"it repeats more than {_MOST_REPEATS} times")
                _check(inner, repeats_inside)
            case other:
                raise _invalid(f"{other} is not supported")


def _reached(items: Iterable[Any], text: str, positions: _Positions) -> _Positions:
    for operation, argument in items:
        if not positions:
            break
        positions = _step(str(operation), argument, text, positions)
    return positions


def _step(operation: str, argument: Any, text: str, positions: _Positions) -> _Positions:
    if operation == "BRANCH":
        return set().union(*(_reached(branch, text, positions) for branch in argument[1]))
    if operation == "SUBPATTERN":
        return _reached(argument[3], text, positions)
    if operation in ("MAX_REPEAT", "MIN_REPEAT"):
        return _repeated(argument, text, positions)
    if operation == "AT":
        if str(argument) in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return positions & {0}
        if str(argument) in ("AT_END", "AT_END_STRING"):
            return positions & {len(text)}
        return {at for at in positions if _is_boundary(text, at) == ("NON" not in str(argument))}
    return {at + 1 for at in positions if at < len(text) and _is_one(operation, argument, text[at])}


def _repeated(argument: Any, text: str, positions: _Positions) -> _Positions:
    least, most, inner = argument
    for _ in range(least):
        positions = _reached(inner, text, positions)
    found, new = set(positions), positions
    for _ in range(min(int(most), len(text) + 1 + least) - least):
        new = _reached(inner, text, new) - found
        if not new:
            break
        found |= new
    return found


def _is_one(operation: str, argument: Any, character: str) -> bool:
    if operation == "LITERAL":
        return ord(character) == int(argument)
    if operation == "NOT_LITERAL":
        return ord(character) != int(argument)
    if operation == "ANY":
        return character != "\n"
    negated = False
    for kind, value in argument:
        match str(kind):
            case "NEGATE":
                negated = True
            case "LITERAL" if ord(character) == value:
                return not negated
            case "RANGE" if value[0] <= ord(character) <= value[1]:
                return not negated
            case "CATEGORY" if _CLASSES[str(value)].match(character):
                return not negated
    return negated


def _is_boundary(text: str, at: int) -> bool:
    is_word = _CLASSES["CATEGORY_WORD"].match
    before = at > 0 and is_word(text[at - 1]) is not None
    return before != (at < len(text) and is_word(text[at]) is not None)


def _invalid(why: str) -> RequestRefused:
    return RequestRefused(
        ErrorCode.invalid_regular_expression, f"the pattern of transactional ids: {why}"
    )
