"""Answers to questions that DescribeConfigs is asked by name (docs/wire.md)."""

import json
from collections.abc import Mapping
from typing import Any

from horolog.config import DescribedSetting, Kind, Source


def answer_to(name: str, answer: Mapping[str, Any]) -> DescribedSetting:
    """A read-only entry with a JSON object as its value."""
    return DescribedSetting(
        name,
        json.dumps(answer, separators=(",", ":")),
        Source.DEFAULT,
        read_only=True,
        sensitive=False,
        synonyms=(),
        kind=Kind.STRING,
        documentation="The answer to a question about times (docs/wire.md).",
    )
