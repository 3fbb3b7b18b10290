"""Answers to questions that DescribeConfigs is asked by name (docs/wire.md)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from horolog.config import DescribedSetting, Kind, Source
from horolog.wire.packing import MAX_STRING_BYTES

MOST_LIST_BYTES: Final = MAX_STRING_BYTES - 1024
"""Of the list in an answer, which is one string of the protocol; the rest is for other members."""

T = TypeVar("T")


def as_many_as_fit(items: Iterator[tuple[T, Any]]) -> tuple[list[Any], T | None]:
    """The JSON of the first items, as much as fits one answer, and where the next item begins.

    Args:
        items: where each begins, and its JSON; none is taken beyond the first that does not fit.
    """
    taken: list[Any] = []
    left = MOST_LIST_BYTES
    for begin, item in items:
        left -= len(_json(item)) + 1
        if left < 0:
            return taken, begin
        taken.append(item)
    return taken, None


def answer_to(name: str, answer: Mapping[str, Any]) -> DescribedSetting:
    """A read-only entry with a JSON object as its value."""
    return DescribedSetting(
        name,
        _json(answer),
        Source.DEFAULT,
        read_only=True,
        sensitive=False,
        synonyms=(),
        kind=Kind.STRING,
        documentation="The answer to a question about times (docs/wire.md).",
    )


def _json(value: object) -> str:
    """In ASCII, so that characters are bytes."""
    return json.dumps(value, separators=(",", ":"))
