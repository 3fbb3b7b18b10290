"""`horolog spark audit` and `horolog.jobs.audit`, compared with what plain Python counts."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from batches import fill
from command_runner import run_command
from running_broker import MakeBroker, RunningBroker, a_broker

from horolog import jobs
from horolog.client import Client
from horolog.clock import ManualClock
from horolog.errors import Misconfigured, RecordsRejected
from horolog.jobs.questions.audit import COUNTS, STEPS_MS
from horolog.record import OTHER_UNITS
from horolog.record.looks_like import looks_like

pytestmark = pytest.mark.spark


NOW_MS = 1_715_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ANY = {"message_timestamp_after_max_ms": str((1 << 63) - 1), "retention_ms": "-1"}


broker = a_broker(now_ms=NOW_MS)


def expected(times: Sequence[int], appended_ms: int, before: int, after: int) -> dict[str, int]:
    """What an audit counts of one partition, record by record."""
    found = dict.fromkeys((*COUNTS, "late_max_ms"), 0)
    largest = None
    for time in times:
        found["records"] += 1
        if time == -1:
            found["untimed"] += 1
            continue
        found["before_1970"] += time < 0
        found["future"] += time - appended_ms > after
        found["past"] += appended_ms - time > before
        sentence = looks_like(time)
        if sentence is not None:
            for unit in OTHER_UNITS:
                found[f"in_{unit}"] += f"like {unit} (" in sentence
            continue
        if largest is not None and time < largest:
            found["out_of_order"] += 1
            found["late_max_ms"] = max(found["late_max_ms"], min(largest - time, (1 << 63) - 1))
        largest = time if largest is None else max(time, largest)
    return found


def by_partition(frame: Any) -> dict[tuple[str, int], dict[str, int]]:
    found: dict[tuple[str, int], dict[str, int]] = {}
    for row in frame.collect():
        one = found.setdefault(
            (row.topic, row.partition), dict.fromkeys((*COUNTS, "late_max_ms"), 0)
        )
        for name in COUNTS:
            one[name] += row[name]
        one["late_max_ms"] = max(one["late_max_ms"], row["late_max_ms"] or 0)
    return found


def history(rng: random.Random) -> list[int]:
    """Times as logs have them: mostly in order, with some of everything that is wrong."""
    count = rng.choice([0, 1, 30, 400, 1_500])
    jitter, wild = rng.choice([0, 50, 5 * HOUR_MS]), rng.choice([0, 0.02, 0.3])
    start = NOW_MS - count * 1_000
    times = [start + 1_000 * n - rng.randrange(jitter + 1) for n in range(count)]
    odd = (
        -1, 0, -2, -DAY_MS, NOW_MS // 1_000, NOW_MS * 1_000, NOW_MS * 1_000_000, NOW_MS + DAY_MS,
        NOW_MS - 300 * DAY_MS, (1 << 63) - 1, -(1 << 63), NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1,
    )  # fmt: skip
    return [rng.choice(odd) if rng.random() < wild else time for time in times]


def test_an_audit_counts_what_plain_python_counts(
    spark: Any, broker: RunningBroker, clock: ManualClock
) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    histories = {("t", number): history(rng) for number in range(12)}
    # A record far ahead at the end of one task's share falls amid the sums of the next.
    steps = [NOW_MS - DAY_MS + n for n in range(299)]
    histories["t", 12] = [
        *steps,
        NOW_MS - DAY_MS + 1_200,
        *(t + 299 for t in steps),
        *(NOW_MS - DAY_MS + n for n in range(598, 2_000)),
    ]
    histories["t", 13] = [NOW_MS, *(NOW_MS - DAY_MS + n for n in range(1_000))]
    broker.create_topic("t", partitions=14, **ANY)
    for (topic, partition), times in histories.items():
        fill(broker.client, topic, times, partition)
    totals = {
        key: expected(times, NOW_MS, before=7 * DAY_MS, after=HOUR_MS)
        for key, times in histories.items()
        if times
    }
    clock.advance("20d")
    cut = {"maxRecordsPerPartition": "300"}
    for source, settings in (
        (broker.address, {}), (broker.address, cut), (str(broker.log_dir), cut)
    ):  # fmt: skip
        frame = jobs.audit(
            spark, source=source, topics="t", settings=settings, before_max_ms=7 * DAY_MS
        )
        assert by_partition(frame) == totals, f"seed {seed}, {source}, {settings}"


def test_bounds_reject_in_an_audit_what_they_reject_in_a_broker(
    spark: Any, broker: RunningBroker
) -> None:
    before, after = 2 * DAY_MS, 90_000
    broker.create_topic("free", **ANY)
    broker.create_topic(
        "bound",
        message_timestamp_before_max_ms=str(before),
        message_timestamp_after_max_ms=str(after),
        retention_ms="-1",
    )
    near = [NOW_MS + edge + step for edge in (-before, after, 0) for step in (-1, 0, 1)]
    times = [*near, -1, -5, 0, NOW_MS // 1000, NOW_MS * 1000, NOW_MS * 1_000_000]
    rejected = 0
    fill(broker.client, "free", times)
    for time in times:
        try:
            fill(broker.client, "bound", [time])
        except RecordsRejected:
            rejected += 1
    (row,) = jobs.audit(
        spark, source=broker.address, topics="free", before_max_ms=before, after_max_ms=after
    ).collect()
    assert row.future + row.past == rejected == 7
    assert (row.compared_with, row.producer, row.untimed) == ("append time", None, 1)
    assert (row.min_ms, row.max_ms) == (-5, NOW_MS * 1_000_000)


def test_producers_and_hours_are_told_apart(
    spark: Any, broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("t", **ANY)
    for hour in range(2):
        for producer in (7, 9):
            late = NOW_MS + hour * HOUR_MS - (8 * DAY_MS if producer == 9 else 0)
            fill(
                broker.client,
                "t",
                [late],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=hour,
            )
        clock.advance("1h")
    rows = jobs.audit(spark, source=broker.address, topics="t").collect()
    found = {(row.producer, row.hour.hour): list(row.behind) for row in rows}
    first = rows[0].hour.hour if rows[0].hour < rows[-1].hour else rows[-1].hour.hour
    assert {producer for producer, _ in found} == {7, 9}
    assert len(found) == 4, first
    for (producer, _), behind in found.items():
        assert behind == ([1, 1, 1, 1, 0, 0] if producer == 9 else [0] * len(STEPS_MS))


def test_of_log_append_time_topics_the_create_times_in_the_bytes_are_judged(
    spark: Any, broker: RunningBroker
) -> None:
    broker.create_topic("t", message_timestamp_type="LogAppendTime", retention_ms="-1")
    fill(broker.client, "t", [NOW_MS - 5, NOW_MS + 2 * HOUR_MS, NOW_MS // 1000, NOW_MS - 7])
    (row,) = jobs.audit(spark, source=broker.address, topics="t").collect()
    assert (row.future, row.in_seconds, row.out_of_order) == (1, 1, 1)
    assert (row.late_max_ms, row.compared_with) == (2 * HOUR_MS + 7, "append time")


def test_without_append_times_times_are_compared_with_now_and_it_says_so(
    spark: Any, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(clock=ManualClock(NOW_MS))
    broker.create_topic("t", **ANY)
    fill(broker.client, "t", [NOW_MS, 1 << 45])
    broker.stop()
    copy = tmp_path / "copy" / "t-0"
    copy.mkdir(parents=True)
    for log in (broker.log_dir / "t-0").glob("*.log"):
        shutil.copy(log, copy)
    (hours) = jobs.audit(spark, source=copy.parent, before_max_ms=DAY_MS).collect()
    assert {row.compared_with for row in hours} == {"now"}
    assert sum(row.future for row in hours) == 1
    assert sum(row.past for row in hours) == 1
    said = run_command("spark", "audit", "--source", copy.parent)
    assert said.code == 1
    assert "times are compared with now" in said.out


def test_a_range_of_time_leaves_out_what_lies_outside(spark: Any, broker: RunningBroker) -> None:
    broker.create_topic("t", **ANY)
    fill(broker.client, "t", [NOW_MS, -1, NOW_MS - 10, NOW_MS + DAY_MS, NOW_MS - 20])
    (row,) = jobs.audit(
        spark, source=broker.address, topics="t", from_=NOW_MS - 15, to=NOW_MS + 1
    ).collect()
    assert (row.records, row.untimed, row.out_of_order, row.late_max_ms) == (2, 0, 1, 10)


def test_the_command_prints_a_summary_and_suggests_a_bound_with_its_evidence(
    spark: Any, broker: RunningBroker
) -> None:
    broker.create_topic("t", **ANY)
    fill(broker.client, "t", range(NOW_MS - 4_000, NOW_MS))
    for producer in (1, 2, 3):
        with Client(broker.address, client_id=f"sensor-{producer}") as client:
            idempotent = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
            fill(client, "t", [NOW_MS * 1_000, NOW_MS + 2 * DAY_MS], **idempotent)
    arguments = ("spark", "audit", "--source", broker.address, "--topics", "t")
    shown = run_command(*arguments)
    assert shown.code == 1, shown.err
    assert (
        "t: message.timestamp.after.max.ms=3600000 (1h) would have refused 6 records of 3 "
        "producers, of 4,006 (3 in microseconds)"
    ) in shown.out
    assert "client id" in shown.out
    assert "sensor-2" in shown.out
    found = run_command(*arguments, "--json").json
    (topic,) = found["topics"]
    assert (topic["records"], topic["future"], topic["in_microseconds"]) == (4_006, 6, 3)
    assert [row["producer"] for row in found["producers"]["rows"]] == [3, 1, 2] or [
        row["producer"] for row in found["producers"]["rows"]
    ] == [1, 2, 3]
    for row in found["producers"]["rows"]:
        assert row["client_id"] == f"sensor-{row['producer']}"
    assert [each["value_ms"] for each in found["evidence"] if each["suggested"]] == [HOUR_MS]
    fine = run_command(*arguments, "--after-max", "900000w")
    assert fine.code == 1, "a wrong unit is wrong whatever the bound"


def test_a_log_without_faults_ends_with_0_and_an_empty_one_too(
    spark: Any, broker: RunningBroker
) -> None:
    broker.create_topic("fine")
    broker.create_topic("empty")
    fill(broker.client, "fine", [NOW_MS])
    fine = run_command("spark", "audit", "--source", broker.address, "--topics", "fine")
    assert (fine.code, "No bound is suggested." in fine.out) == (0, True)
    empty = run_command("spark", "audit", "--source", broker.address, "--topics", "empty")
    assert (empty.code, empty.out) == (0, "no records\n")


def test_misuse_ends_with_2_and_damage_with_1_and_a_sentence(
    spark: Any, make_broker: MakeBroker, tmp_path: Path
) -> None:
    missing = run_command("spark", "audit", "--source", tmp_path / "none")
    assert (missing.code, "There is no path" in missing.err) == (2, True)
    unnamed = run_command("spark", "audit", "--source", "127.0.0.1:1")
    assert (unnamed.code, "give the topics of the broker" in unnamed.err) == (2, True)
    with pytest.raises(Misconfigured, match="not below zero"):
        jobs.audit(spark, source=tmp_path, before_max_ms=-1)
    broker = make_broker()
    broker.create_topic("t", segment_bytes="1000", **ANY)
    fill(broker.client, "t", [NOW_MS] * 100, size=10)
    broker.stop()
    first, *_ = sorted((broker.log_dir / "t-0").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[70] ^= 1
    first.write_bytes(content)
    damaged = run_command("spark", "audit", "--source", broker.log_dir)
    assert damaged.code == 1
    assert "cannot be read to its end" in damaged.err
    assert "Traceback" not in damaged.err
