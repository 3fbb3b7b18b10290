"""The page of a report: one HTML file that needs nothing else."""

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final, NamedTuple

from horolog.record.time_stats import LATENCY_BOUNDS, latency_class
from horolog.report.picture import Picture
from horolog.results import plain

_MARK: Final = "@@DATA@@"
_QUANTILES: Final = (50, 90, 99)
_LATE_SHARE: Final = 0.99
"""Records of a later class than this share of all reaches into are drawn as late ones."""


class Horizon(NamedTuple):
    """Time before which records are due for deletion by `retention.ms`."""

    ms: int
    clock: str
    """Clock of the time: `create` or `append`."""


class PartitionPart(NamedTuple):
    """A partition on the page."""

    name: str
    note: str
    """On its settings."""
    horizon: Horizon | None
    segments: Sequence[dict[str, Any]]


class TopicPart(NamedTuple):
    """A topic on the page."""

    name: str
    picture: Picture
    partitions: Sequence[PartitionPart]
    groups: Sequence[dict[str, Any]] | None = None
    """None where no broker was asked."""
    refused: Sequence[dict[str, Any]] | None = None
    notes: Sequence[str] = ()


def page(title: str, source: str, now_ms: int, topics: Sequence[TopicPart]) -> str:
    """Return the HTML text of the page."""
    data = {
        "title": title,
        "source": source,
        "now_ms": now_ms,
        "topics": [_topic(topic) for topic in topics],
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for unsafe in "<>&\u2028\u2029":  # text of records and groups ends no script
        text = text.replace(unsafe, f"\\u{ord(unsafe):04x}")
    template = resources.files("horolog.report").joinpath("page.html").read_text("utf-8")
    return template.replace(_MARK, text)


def _topic(part: TopicPart) -> dict[str, Any]:
    latencies = part.picture.latencies
    bounds = (None, *LATENCY_BOUNDS)
    classes = [
        {"from_ms": bound, "records": count} for bound, count in zip(bounds, latencies, strict=True)
    ]
    while len(classes) > 1 and not classes[-1]["records"]:
        classes.pop()
    quantiles = {
        f"p{per_cent}": latency_class(latencies, per_cent / 100) for per_cent in _QUANTILES
    }
    late = latency_class(latencies, _LATE_SHARE)
    return {
        "name": part.name,
        "picture": part.picture.as_json(),
        "late_ms": late and late.below_ms,
        "latency": {**plain(quantiles), "classes": classes},
        "partitions": plain(part.partitions),
        "groups": part.groups,
        "refused": part.refused,
        "notes": part.notes,
    }
