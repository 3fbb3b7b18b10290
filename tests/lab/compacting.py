"""Logs that compact: records by key, a run of the cleaner at once, and what must be left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from storelogs import NOW, records_in

from horolog.config import LONG_MAX, TopicConfig
from horolog.record import Codec, LogRecord, build_batch
from horolog.storage import (
    Appended,
    Cleaning,
    CleaningRun,
    Finding,
    KeyMap,
    Log,
    Severity,
    Verification,
    prepare,
)

COMPACT = TopicConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=500,
    index_interval_bytes=0,
    message_timestamp_after_max_ms=LONG_MAX,
    delete_retention_ms=1000,
)


def put(
    log: Log,
    *keys: bytes,
    at: int = NOW,
    now: int = NOW,
    value: bytes | None = b"v" * 20,
    codec: Codec = Codec.NONE,
    **more: Any,
) -> Appended:
    """Append a batch with a record for each key, a millisecond apart."""
    records = [LogRecord(at + place, key, value) for place, key in enumerate(keys)]
    sent = build_batch(records, codec=codec, **more)
    return log.append(prepare(sent, log.config, now, partition=str(log)), now)


def clean(
    log: Log,
    now: int = NOW,
    *,
    monotonic: int = 0,
    key_map: KeyMap | None = None,
    while_cleaning: Callable[[], None] = lambda: None,
) -> CleaningRun | None:
    """Clean it now, whatever its dirty ratio; None if nothing may be cleaned.

    `while_cleaning` is called after each piece.
    """
    chosen = log.cleanable(now)
    if chosen is None or not chosen.dirty_bytes:
        return None
    cleaning = Cleaning(
        log,
        chosen,
        KeyMap(1 << 16) if key_map is None else key_map,
        now_ms=lambda: now,
        monotonic_ms=lambda: monotonic,
    )
    for _ in cleaning.steps(lambda call: call()):
        while_cleaning()
    return cleaning.run


def latest(records: Sequence[LogRecord], end: int) -> list[LogRecord]:
    """What compaction leaves of records up to an offset, tombstones included, and what follows."""
    last = {record.key: record.offset for record in records if (record.offset or 0) < end}
    return [each for each in records if (each.offset or 0) >= end or last[each.key] == each.offset]


def check_lookups(log: Log, records: Sequence[LogRecord] | None = None) -> None:
    """Whether every lookup by both clocks finds what a walk over the records does."""
    found = records_in(log) if records is None else list(records)
    assert records_in(log) == found
    for ms in {record.timestamp + step for record in found for step in (0, 1)}:
        first = next((record.offset for record in found if record.timestamp >= ms), None)
        hit = log.find_by_timestamp(ms)
        assert (hit and hit.offset) == first, ms
    largest = log.find_max_timestamp()
    assert (largest and largest.timestamp) == max((r.timestamp for r in found), default=None)


def faults(path: Path) -> list[Finding]:
    """What `horolog log verify` says but of files that were set aside, or wait to be removed."""
    return [
        step
        for step in Verification.of(path).steps()
        if isinstance(step, Finding) and step.severity is not Severity.NOTE
    ]
