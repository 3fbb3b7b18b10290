"""Every reader gives the same records of random histories: those that were sent and are left.

The readers: a fetch, Spark from a broker and from files, `scan`, `consume`, a stream with limits,
an archive and what is restored of it, a mirror. The files: beside the running broker, copied
(as a kill leaves them), stopped, and without the files that can be derived.
"""

import json
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from archive_reading import records_of
from command_runner import run_command
from examples import some_of
from histories import History, Question, Row
from in_process_spark import InProcessSpark
from log_reading import Read, schema_of
from mirror_lab import rows_of
from running_broker import RunningBroker, a_broker
from streaming_query import Query, all_of

from horolog.errors import HorologError
from horolog.jobs import archive, mirror, restore
from horolog.record.batch import iter_headers
from horolog.record.timestamps import RecordClock
from horolog.sources import columns, scan

broker = a_broker(log_cleaner_backoff_ms="100000000", log_retention_ms="-1")
SEEDS = some_of(range(40), every=20)
STEPS, QUESTIONS = 60, 12
NAMES = columns.default_columns("includeTimestampMs", "includeHeaders", "includeAppendTime")
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot", ".batches")
CHECKED_FROM = 21
"""Where in a batch that begins which its checksum covers."""
NO_SPARK: Any = InProcessSpark()

Where = RunningBroker | Path


# The readers.


def by_spark(where: Where, asked: Question, rng: random.Random, **more: Any) -> list[Row]:
    """A read with format "horolog", split at random."""
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
        for row in Read(*paths, schema=schema_of(NAMES), **options).rows()
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
    level = {"kafka.isolation.level": "read_committed"} if committed else {}
    limit = {"maxOffsetsPerTrigger": rng.choice((1, 5, 23, 1000))}
    query = Query(where, subscribe=topic, startingOffsets="earliest", **level, **limit)
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
    """The question as a reader with one clock is asked it."""
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

    def seen(rows: Iterable[Row]) -> list[Row]:
        return list(rows) if knows_append_times else [row._replace(append_ms=0) for row in rows]

    for topic in "tc":
        for committed in (False, True):
            expected = places(history.expected(Question(topic, committed)))
            assert by_stream(where, topic, rng, committed=committed) == expected
    for _ in range(QUESTIONS):
        asked = history.question()
        if not knows_append_times:
            asked = asked._replace(from_append_ms=None, to_append_ms=None)
        assert seen(by_spark(where, asked, rng)) == seen(history.expected(asked)), asked
        asked = narrowed(asked)
        assert seen(by_scan(where, asked, rng)) == seen(history.expected(asked)), asked
        asked = asked._replace(read_committed=False, starts=(), ends=())
        assert by_consume(where, asked) == places(history.expected(asked)), asked


def payloads(rows: Iterable[Row]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(row.timestamp_ms, row.key, row.value) for row in rows]


@pytest.fixture
def history(request: pytest.FixtureRequest, broker: RunningBroker) -> History:
    made = History(broker, random.Random(request.param))
    made.steps(STEPS)
    return made


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_readers_of_a_broker_and_of_its_files_give_what_was_sent(
    history: History, tmp_path: Path
) -> None:
    broker, rng = history.broker, history.rng
    for topic in "tc":
        for committed in (False, True):
            expected = history.expected(Question(topic, committed))
            for partition in range(3):
                fetched = rows_of(broker.address, topic, partition, committed=committed)
                assert [(row.offset, row.key, row.value) for row in fetched] == [
                    (row.offset, row.key, row.value)
                    for row in expected
                    if row.partition == partition
                ]
    check(history, broker, rng)
    check(history, broker.log_dir, rng)
    killed = shutil.copytree(broker.log_dir, tmp_path / "killed")
    check(history, killed, rng, knows_append_times=False)
    broker.stop()
    check(history, broker.log_dir, rng)
    bare = shutil.copytree(broker.log_dir, tmp_path / "bare")
    for path in [*bare.glob("[tc]-*/*")]:
        if path.suffix in DERIVED and rng.random() < 0.5:
            path.unlink()
    check(history, bare, rng)


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_archives_restored_logs_and_mirrors_hold_what_was_committed(
    history: History, tmp_path: Path
) -> None:
    broker, rng = history.broker, history.rng
    expected = {topic: history.expected(Question(topic, read_committed=True)) for topic in "tc"}
    source = rng.choice((broker.address, broker.log_dir))
    state = {"topics": "t,c", "state": tmp_path / "archiving"}
    done = archive(NO_SPARK, source=source, archive=tmp_path / "archive", **state)
    assert done.refused == {}
    archived = records_of(tmp_path / "archive")
    for topic in "tc":
        found = [
            (row["partition"], row["offset"], row["timestampMs"], row["key"], row["value"])
            for row in archived
            if row["topic"] == topic
        ]
        assert found == [
            (row.partition, row.offset, row.timestamp_ms, row.key, row.value)
            for row in expected[topic]
        ]
    target = tmp_path / "restored"
    state = {"archive": tmp_path / "archive", "state": tmp_path / "restoring"}
    assert restore(NO_SPARK, target=target, **state).refused == {}
    mirror(
        NO_SPARK,
        source=str(rng.choice((broker.address, broker.log_dir))),
        target=str(tmp_path / "mirrored"),
        topics="t,c",
        state=tmp_path / "mirroring",
        batch_bytes=0,
    )
    for topic in "tc":
        assert by_spark(target, Question(topic), rng) == expected[topic]
        mirrored = by_spark(tmp_path / "mirrored", Question(topic, read_committed=True), rng)
        assert payloads(mirrored) == payloads(expected[topic])


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_readers_of_damaged_files_refuse_or_leave_out_but_never_make_up(
    history: History, tmp_path: Path
) -> None:
    rng = history.rng
    history.broker.stop()
    for number in range(QUESTIONS):
        damaged = shutil.copytree(history.broker.log_dir, tmp_path / f"damaged-{number}")
        logs = [path for path in damaged.glob("[tc]-*/*.log") if path.stat().st_size]
        if not logs:
            return
        done = damage(rng.choice(logs), rng)
        asked = history.question()
        for read in (by_spark, by_scan):
            asked_of = asked if read is by_spark else narrowed(asked)
            expected = history.expected(asked_of)
            try:
                found = read(damaged, asked_of, rng)
            except HorologError:
                pass
            else:
                assert found == expected, (done, asked_of)
        try:
            found = by_spark(damaged, asked, rng, failOnDataLoss=False)
        except HorologError:
            continue
        assert set(found) <= set(history.expected(asked)), (done, asked)


def damage(path: Path, rng: random.Random) -> str:
    """Change something of a batch that its checksum covers; what was done."""
    data = bytearray(path.read_bytes())
    start, header = rng.choice([*iter_headers(data)])
    at = rng.randrange(start + CHECKED_FROM, start + header.size)
    if rng.random() < 0.7:
        data[at] ^= 1 << rng.randrange(8)
    else:
        data[at : start + header.size] = b"\x55" * (start + header.size - at)
    path.write_bytes(data)
    return f"byte {at} of {len(data)} in {path}, in the batch at {header.base_offset}"
