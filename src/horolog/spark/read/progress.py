"""Offsets of format "horolog" in a streaming query's progress.

Works with every session, Spark Connect included: the progress of a query holds the offsets of
its sources as JSON (`stream_offsets`).
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from horolog.errors import Misconfigured
from horolog.json_text import from_json
from horolog.sources.stream_offsets import StreamOffset

_LOOK_S = 0.2


def await_end(query: Any, timeout_s: float | None = None) -> bool:
    """Wait until a query has read its sources to their `stopAtTimestamp`, then stop it.

    With the trigger `availableNow` the query ends by itself. With others this stops it after the
    micro-batch that reached the end. Return False once `timeout_s` has elapsed before; True also
    for a query that was stopped or has ended otherwise.

    Raises:
        pyspark.errors.StreamingQueryException: the query failed.
    """
    give_up = None if timeout_s is None else time.monotonic() + timeout_s
    while not query.awaitTermination(_LOOK_S):
        if _has_ended(query.lastProgress):
            query.stop()
            return True
        if give_up is not None and time.monotonic() >= give_up:
            return False
    return True


def sources_of(progress: Any) -> Iterator[tuple[Mapping[str, Any], StreamOffset]]:
    """Yield the sources of this format in a progress, each with its end offset."""
    for source in progress["sources"]:
        end = source["endOffset"]
        if isinstance(end, str):
            try:
                end = from_json(end)
            except ValueError:
                continue
        if isinstance(end, dict) and "version" in end and "offsets" in end:
            try:
                yield source, StreamOffset.from_json(end)
            except Misconfigured:
                continue


def _has_ended(progress: Any) -> bool:
    ours = [] if progress is None else [offset for _, offset in sources_of(progress)]
    return bool(ours) and all(offset.is_at_its_ends for offset in ours)
