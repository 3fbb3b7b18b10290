"""Patterns of topics to which members of consumer groups are subscribed (KIP-848).

Their syntax is RE2's. Apache Kafka's brokers use its Java port, which finds the same topics. The
two differ in what they accept: the port has no escape for a byte, and refuses two groups of one
name; it takes escapes of letters that are not ASCII, and patterns of any size.
"""

import logging
from collections.abc import Collection, Iterable
from time import monotonic
from typing import Final

from horolog.errors import ErrorCode, RequestRefused
from horolog.patterns import NamePattern, name_pattern

_LOG = logging.getLogger(__name__)

RESOLVING_SECONDS: Final = 5.0
"""How long the patterns of one group may be resolved; the last one may take seconds more."""

MOST_RESOLVED: Final = 1 << 20
"""Most topics of all patterns of one group, without patterns that find the same topics."""


def check_pattern(expression: str, names: Iterable[str]) -> None:
    """Refuse a pattern that a member sends, if it cannot be resolved.

    Args:
        expression: regular expression.
        names: all topics.

    Raises:
        RequestRefused: INVALID_REGULAR_EXPRESSION with the reason.
    """
    try:
        _refuse_slow(name_pattern(expression), names)
    except ValueError as error:
        raise RequestRefused(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{expression:.80}` is not a valid regular expression: {error}.",
        ) from None


def resolve(patterns: Iterable[str], names: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the topics that each pattern finds. For a worker thread.

    Args:
        patterns: patterns of one group, those that have waited longest first.
        names: all topics.

    Returns:
        The topics by pattern. A pattern that takes too long, or finds too many, is not in it: the
        caller leaves it as it was. The reason is logged.
    """
    shared: dict[frozenset[str], frozenset[str]] = {}
    resolved: dict[str, frozenset[str]] = {}
    until, room = monotonic() + RESOLVING_SECONDS, MOST_RESOLVED
    for expression in patterns:
        try:
            pattern = NamePattern(expression)
            _refuse_slow(pattern, names)
            if monotonic() >= until:
                raise ValueError(f"its group's patterns take more than {RESOLVING_SECONDS:g} s")
            topics = frozenset(name for name in names if pattern.matches(name))
            if topics not in shared and len(topics) > room:
                raise ValueError(f"its group's patterns find more than {MOST_RESOLVED} topics")
        except ValueError as error:
            _LOG.warning("topics of the pattern %.80r stay as they were: %s", expression, error)
            continue
        if topics not in shared:
            room -= len(topics)
        resolved[expression] = shared.setdefault(topics, topics)
    return resolved


def _refuse_slow(pattern: NamePattern, names: Iterable[str]) -> None:
    if pattern.is_slow_for(names):
        raise ValueError("it takes too long to match all topics: use fewer or smaller repetitions")
