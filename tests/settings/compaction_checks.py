"""For every setting of compaction, of a topic or of the broker, the difference it makes."""

import functools
import itertools
from typing import Final

from patience import eventually
from setting_checks import of_broker, of_topic
from settings_lab import Lab, Trial
from storelogs import records_in

from horolog.clock import DAY_MS, HOUR_MS
from horolog.record import LogRecord, build_batch

COMPACT: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
EVER: Final = str((1 << 63) - 1)
NOT_BY_ITSELF: Final = {"log.cleaner.backoff.ms": "3600000"}
AT_ONCE: Final = {"log.cleaner.backoff.ms": "10"}
_keys = itertools.count()


def put(trial: Trial, key: bytes, value: bytes | None) -> int:
    """Produce a record; its offset."""
    offset = trial.put(build_batch([LogRecord(trial.now_ms, key, value)])).base_offset
    assert offset is not None
    return offset


def clean(trial: Trial) -> None:
    """Let the cleaner do everything that is due."""
    trial.lab.broker.run(trial.lab.broker.broker.cleaner.clean_all())


def is_there(trial: Trial, offset: int) -> bool:
    return any(record.offset == offset for record in records_in(trial.log))


def is_compacted(trial: Trial, later_ms: int = 0) -> bool:
    """Whether the first of two records of a new key goes, after their segment is finished."""
    key = b"key %d" % next(_keys)
    first = put(trial, key, b"1")
    put(trial, key, b"2")
    trial.begin_segment()
    trial.advance(later_ms)
    clean(trial)
    return not is_there(trial, first)


@of_topic(
    "min.cleanable.dirty.ratio", {"0": True, "1": False}, beside={"cleanup.policy": "compact"}
)
def whether_a_log_is_compacted_for_little(trial: Trial) -> bool:
    return is_compacted(trial)


@of_topic("min.compaction.lag.ms", {"0": True, str(HOUR_MS): False}, beside=COMPACT)
def whether_a_record_is_compacted_that_was_just_written(trial: Trial) -> bool:
    return is_compacted(trial)


@of_topic(
    "max.compaction.lag.ms",
    {EVER: False, str(HOUR_MS): True},
    beside={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"},
)
def whether_a_record_of_two_hours_ago_is_compacted_whatever_the_ratio(trial: Trial) -> bool:
    return is_compacted(trial, 2 * HOUR_MS)


@of_topic("delete.retention.ms", {"0": False, str(DAY_MS): True}, beside=COMPACT)
def whether_a_tombstone_is_there_an_hour_after_it_was_compacted(trial: Trial) -> bool:
    key = b"key %d" % next(_keys)
    offset = put(trial, key, None)
    for _ in range(2):
        trial.begin_segment()
        clean(trial)
        trial.advance(HOUR_MS)
    return is_there(trial, offset)


# Of the broker.


def is_compacted_by_itself(lab: Lab) -> bool:
    trial = lab.topic("t", {**COMPACT, "segment.bytes": "40000"})
    first = put(trial, b"key", b"x" * 30_000)
    put(trial, b"key", b"2")
    trial.begin_segment()
    return eventually(lambda: not is_there(trial, first), lab.soon_s)


@of_broker("log.cleaner.enable", {"true": True, "false": False}, beside=AT_ONCE)
def whether_anything_is_compacted(lab: Lab) -> bool:
    return is_compacted_by_itself(lab)


@of_broker("log.cleaner.threads", {"1": True, "0": False, "3": True}, beside=AT_ONCE)
def whether_there_is_a_thread_that_compacts(lab: Lab) -> bool:
    return is_compacted_by_itself(lab)


@of_broker("log.cleaner.backoff.ms", {"10": True, "3600000": False})
def whether_the_cleaner_looks_again_soon(lab: Lab) -> bool:
    return is_compacted_by_itself(lab)


@of_broker(
    "log.cleaner.io.max.bytes.per.second",
    {"1.7976931348623157E308": True, "100": False},
    beside=AT_ONCE,
)
def whether_30_kb_are_compacted_soon(lab: Lab) -> bool:
    return is_compacted_by_itself(lab)


@functools.cache
def batches_of_50_000_keys(now_ms: int) -> list[bytes]:
    """Once for all brokers that begin at this moment: it takes a second."""
    return [
        build_batch([LogRecord(now_ms, b"%d" % key, b"") for key in range(first, first + 10_000)])
        for first in range(0, 50_000, 10_000)
    ]


@of_broker("log.cleaner.dedupe.buffer.size", {"1048576": 2, "134217728": 1}, beside=NOT_BY_ITSELF)
def runs_that_50_000_keys_take(lab: Lab) -> int:
    """Of which 39,321 fit into 1 MiB."""
    trial = lab.topic("t", COMPACT)
    for batch in batches_of_50_000_keys(trial.now_ms):
        trial.put(batch)
    trial.begin_segment()
    cleaned: list[str] = lab.broker.run(lab.broker.broker.cleaner.clean_all())
    return len(cleaned)


@of_broker(
    "log.cleaner.io.buffer.load.factor",
    {"0.9": 1, "0.5": 2},
    beside={**NOT_BY_ITSELF, "log.cleaner.dedupe.buffer.size": str(3 << 19)},
)
def runs_that_50_000_keys_take_in_a_map_that_may_get_so_full(lab: Lab) -> int:
    """Of 65,536 slots."""
    runs: int = runs_that_50_000_keys_take(lab)
    return runs
