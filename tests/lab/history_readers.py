"""Readers of a log, and random questions to all of them: each gives what `History` expects.

A read with format "horolog" split at random, `scan`, `consume`, and a stream with a limit; of a
broker, or of files.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from command_runner import run_command
from histories import History, Question, Row
from log_reading import Read, schema_of
from running_broker import RunningBroker
from spark_filters import OF_APPENDS, attribute_of, satisfies
from streaming_query import Query, all_of

from horolog.errors import HorologError
from horolog.record import RecordClock, iter_headers
from horolog.sources import columns, scan

QUESTIONS = 12
NAMES = columns.default_columns("includeTimestampMs", "includeHeaders", "includeAppendTime")

CHECKED_FROM = 21
"""Where in a batch that begins which its checksum covers."""

Where = RunningBroker | Path


# The readers.


def by_spark(where: Where, asked: Question, rng: random.Random, **more: Any) -> list[Row]:
    """A read with format "horolog", split at random, and the filters that it leaves to Spark."""
    options: dict[str, Any] = {"subscribe": asked.topic, **more}
    options |= dict.fromkeys(("includeTimestampMs", "includeHeaders", "includeAppendTime"), True)
    if asked.read_committed:
        options["kafka.isolation.level"] = "read_committed"
    for name, ms in (
        ("fromTimestamp", asked.from_ms),
        ("toTimestamp", asked.to_ms),
        ("fromAppendTime", asked.from_append_ms),
        ("toAppendTime", asked.to_append_ms),
    ):
        if ms is not None:
            options[name] = ms
    for name, bounds in (("startingOffsets", asked.starts), ("endingOffsets", asked.ends)):
        if bounds:
            options[name] = json.dumps({asked.topic: {str(at): to for at, to in bounds}})
    if rng.random() < 0.5:
        options["maxRecordsPerPartition"] = rng.choice((1, 3, 7, 50))
    if rng.random() < 0.3:
        options["minPartitions"] = rng.choice((2, 5, 20))
    paths = [where] if isinstance(where, Path) else []
    if isinstance(where, RunningBroker):
        options["kafka.bootstrap.servers"] = where.address
    read = Read(*paths, schema=schema_of(NAMES), **options)
    rows = read.rows(*asked.filters)
    return in_order(
        Row(
            row["partition"],
            row["offset"],
            row["timestampMs"],
            row["timestampType"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            row["appendTimeMs"],
        )
        for row in rows
        if all(satisfies(row, condition) for condition in read.left)
    )


def by_scan(where: Where, asked: Question, rng: random.Random, **more: Any) -> list[Row]:
    """A scan within the range of one clock."""
    is_append = (asked.from_append_ms, asked.to_append_ms) != (None, None)
    table = scan(
        where if isinstance(where, Path) else where.client,
        asked.topic,
        from_ms=asked.from_append_ms if is_append else asked.from_ms,
        to_ms=asked.to_append_ms if is_append else asked.to_ms,
        clock=RecordClock.APPEND if is_append else RecordClock.CREATE,
        starting_offsets=dict(asked.starts),
        ending_offsets=dict(asked.ends),
        columns=(
            *("offset", "timestamp_ms", "timestamp_type", "key", "value", "headers"),
            "append_ms",
        ),
        read_committed=asked.read_committed,
        **more,
    ).read_all()
    return in_order(
        Row(
            row["partition"],
            row["offset"],
            row["timestamp_ms"],
            row["timestamp_type"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
            row["append_ms"],
        )
        for row in table.to_pylist()
    )


def by_consume(where: Where, asked: Question) -> list[tuple[int, int]]:
    """The command, within the range of one clock: partitions and offsets."""
    is_append = (asked.from_append_ms, asked.to_append_ms) != (None, None)
    first, end = asked.from_ms, asked.to_ms
    if is_append:
        first, end = asked.from_append_ms, asked.to_append_ms
    if first is not None and end is not None and first >= end:
        return []  # the command refuses an empty range
    options = ["--format", "json", *(["--clock", "append"] if is_append else [])]
    options += [] if first is None else [f"--from-time={as_typed(first)}"]
    options += [] if end is None else [f"--to-time={as_typed(end)}"]
    found = []
    for partition in range(3):
        place = (
            [where / f"{asked.topic}-{partition}"]
            if isinstance(where, Path)
            else [asked.topic, "-p", partition, "-b", where.address]
        )
        done = run_command("consume", *place, *options)
        assert done.code == 0, done.err
        found += [(partition, json.loads(line)["offset"]) for line in done.lines]
    return sorted(found)


def as_typed(ms: int) -> str:
    """A time for the command, which takes "-5000ms" to be five seconds ago."""
    return str(ms) if ms < 0 else f"{ms}ms"


def by_stream(where: Where, topic: str, rng: random.Random, *, committed: bool) -> list[Any]:
    """A stream from the beginning in limited micro-batches: partitions and offsets."""
    options: dict[str, Any] = {"maxOffsetsPerTrigger": rng.choice((1, 5, 23, 1000))}
    if committed:
        options["kafka.isolation.level"] = "read_committed"
    query = Query(where, subscribe=topic, startingOffsets="earliest", **options)
    found = [(partition, offset) for _, partition, offset in all_of(query)]
    query.reader.stop()
    assert len(found) == len(set(found))
    return sorted(found)


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def places(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return [(row.partition, row.offset) for row in rows]


# What they must give.


def narrowed(asked: Question) -> Question:
    """The question as a reader with one clock and without filters is asked it."""
    asked = asked._replace(filters=())
    if (asked.from_append_ms, asked.to_append_ms) != (None, None):
        return asked._replace(from_ms=None, to_ms=None)
    return asked


def check(
    history: History, where: Where, rng: random.Random, *, knows_append_times: bool = True
) -> None:
    """Ask random questions of all readers of a log.

    A copy of a directory that is being appended to lacks the last append times
    (`docs/append-times.md`).
    """
    seen = _seen(knows_append_times=knows_append_times)

    for topic in "tc":
        for committed in (False, True):
            expected = places(history.expected(Question(topic, committed)))
            found = by_stream(where, topic, rng, committed=committed)
            assert found == expected, (topic, committed, set(found) ^ set(expected))
    for _ in range(QUESTIONS):
        asked = _question(history, knows_append_times=knows_append_times)
        assert seen(by_spark(where, asked, rng)) == seen(history.expected(asked)), asked
        asked = narrowed(asked)
        assert seen(by_scan(where, asked, rng)) == seen(history.expected(asked)), asked
        asked = asked._replace(read_committed=False, starts=(), ends=())
        assert by_consume(where, asked) == places(history.expected(asked)), asked


def payloads(rows: Iterable[Row]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(row.partition, row.timestamp_ms, row.key, row.value) for row in rows]


def contents(rows: Iterable[Row]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(row.partition, row.offset, row.key, row.value) for row in rows]


def _seen(*, knows_append_times: bool) -> Callable[[Iterable[Row]], list[Row]]:
    """Rows as they are compared."""
    if knows_append_times:
        return list
    return lambda rows: [row._replace(append_ms=0) for row in rows]


def _question(history: History, *, knows_append_times: bool) -> Question:
    asked = history.question()
    if knows_append_times:
        return asked
    return without_append_times(asked)


def without_append_times(asked: Question) -> Question:
    """The same of the clock that producers have."""
    of_others = [each for each in asked.filters if attribute_of(each) not in OF_APPENDS]
    return asked._replace(from_append_ms=None, to_append_ms=None, filters=tuple(of_others))


# Damaged files.


class Damage(NamedTuple):
    """What was done to a file of a log."""

    done: str
    topic: str
    partition: int
    is_end_cut: bool
    """The log ends earlier, which a reader of files cannot tell from a write that was torn."""


def check_damaged(
    history: History, log_dir: Path, scratch: Path, *, knows_append_times: bool = True
) -> None:
    """Ask random questions of damaged copies: each answer is the list, or a refusal.

    With `failOnDataLoss=false` rows may be missing; a row too many never comes.
    """
    rng = history.rng
    for number in range(QUESTIONS):
        damaged = shutil.copytree(log_dir, scratch / f"damaged-{number}")
        logs = [path for path in damaged.glob("[tc]-[0-9]/*.log") if path.stat().st_size]
        if not logs:
            return
        damage = damage_one(rng.choice(logs), rng)
        # Where a log was cut, entries of append times do not prove the last ones.
        are_known = knows_append_times and not damage.is_end_cut
        seen = _seen(knows_append_times=are_known)
        asked = _question(history, knows_append_times=are_known)
        for read in (by_spark, by_scan):
            asked_of = asked if read is by_spark else narrowed(asked)
            try:
                found = read(damaged, asked_of, rng)
            except HorologError:
                continue
            expected = history.expected(asked_of)
            if damage.is_end_cut and asked.topic == damage.topic:
                expected = _cut_as(found, expected, damage.partition)
            different = set(seen(found)) ^ set(seen(expected))
            assert not different, (damage.done, asked_of, read, different)
        try:
            found = by_spark(damaged, asked, rng, failOnDataLoss=False)
        except HorologError:
            continue
        # An open transaction may begin in what is lost: then what follows is given.
        all_of_it = history.expected(asked, stable=False)
        assert set(seen(found)) <= set(seen(all_of_it)), (damage.done, asked)
        shutil.rmtree(damaged)


def damage_one(path: Path, rng: random.Random) -> Damage:
    """Change something of a batch that its checksum covers, or cut the file within a batch."""
    data = bytearray(path.read_bytes())
    start, header = rng.choice([*iter_headers(data)])
    at = rng.randrange(start + CHECKED_FROM, start + header.size)
    how = rng.choice(("flip", "flip", "fill", "cut"))
    if how == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif how == "fill":
        data[at : start + header.size] = b"\x55" * (start + header.size - at)
    else:
        at = rng.randrange(start + 1, start + header.size)
        del data[at:]
    path.write_bytes(data)
    topic, _, partition = path.parent.name.rpartition("-")
    done = f"{how} byte {at} in {path}, in the batch at {header.base_offset}"
    is_end = path == max(path.parent.glob("*.log"))
    return Damage(done, topic, int(partition), how == "cut" and is_end)


def _cut_as(found: Iterable[Row], expected: Iterable[Row], partition: int) -> list[Row]:
    """What is expected where a partition ends as early as it was found to."""
    last = max((row.offset for row in found if row.partition == partition), default=-1)
    return [row for row in expected if row.partition != partition or row.offset <= last]
