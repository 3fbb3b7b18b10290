"""What a broker says of the times of a topic's records without reading one."""

import random
import shutil
from itertools import pairwise
from math import ceil
from pathlib import Path

from command_runner import run_command
from running_broker import ANY_TIME, NOW_MS, MakeBroker, RunningBroker, a_broker
from scripted_broker import ScriptedBroker

from golden import GOLDEN
from horolog.clock import DAY_MS, ManualClock
from horolog.record import LATENCY_BOUNDS, LogRecord, build_batch, latency_class
from horolog.wire import ApiKey

broker = a_broker("t", partitions=2, of_topics={**ANY_TIME, "segment_bytes": "20000"})


def fill(broker: RunningBroker, clock: ManualClock) -> list[tuple[int, int]]:
    """Records of many segments, created late, in the future, or never; create and append times."""
    rng = random.Random(1)
    records = []
    for _ in range(300):
        now_ms = NOW_MS + clock.advance(rng.randrange(1, 5000)) - NOW_MS
        late = [rng.choice((-1, 3, 50, 7000, 90_000, 10**9)) for _ in range(rng.randrange(1, 6))]
        times = [-1 if rng.random() < 0.1 else now_ms - each for each in late]
        broker.append("t", build_batch([LogRecord(time, None, bytes(100)) for time in times]), 1)
        records += [(time, now_ms) for time in times]
    return records


def described(broker: RunningBroker) -> list[dict]:
    command = ("times", "t", "--json")
    return run_command(*command, HOROLOG_BOOTSTRAP=broker.address).json["partitions"]


def test_every_number_is_that_of_the_records(broker: RunningBroker, clock: ManualClock) -> None:
    records = fill(broker, clock)
    created = [time for time, _ in records if time >= 0]
    latencies = [now_ms - time for time, now_ms in records if time >= 0]
    empty, found = described(broker)
    assert (empty["records"], empty["create_min_ms"], empty["latency_ms"]["p50"]) == (0, None, None)
    assert found["records"] == len(records)
    assert (found["create_min_ms"], found["create_max_ms"]) == (min(created), max(created))
    assert (found["append_first_ms"], found["append_last_ms"]) == (records[0][1], records[-1][1])
    assert found["missing"] == sum(time < 0 for time, _ in records)
    assert found["future"] == sum(each < 0 for each in latencies)
    assert found["out_of_order"] == sum(two < one for one, two in pairwise(created))
    assert found["unknown_offsets"] == 0
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        exact = sorted(latencies)[ceil(share * len(latencies)) - 1]
        said = found["latency_ms"][name]
        assert (said["from_ms"] is None) == (exact < 0)
        assert (said["from_ms"] or min(latencies)) <= exact
        assert exact < said["below_ms"]


def test_no_record_is_read(broker: RunningBroker, clock: ManualClock) -> None:
    fill(broker, clock)
    before = described(broker)
    logs = sorted((broker.log_dir / "t-1").glob("*.log"))
    assert len(logs) > 3
    for log in logs:
        content = bytearray(log.read_bytes())
        size = 61  # the headers stay
        position = 0
        while position < len(content):
            end = position + 12 + int.from_bytes(content[position + 8 : position + 12], "big")
            content[position + size : end] = bytes(end - position - size)
            position = end
        log.write_bytes(content)
    assert described(broker) == before


def test_records_before_the_log_start_are_left_out_by_blocks(broker: RunningBroker) -> None:
    records = fill(broker, broker.clock)
    start = len(records) - 10
    cut = {"name": "t", "partitions": [{"partition_index": 1, "offset": start}]}
    broker.ask(ApiKey.DELETE_RECORDS, 2, topics=[cut])
    found = described(broker)[1]
    assert 10 <= found["records"] < len(records) // 2
    timed = sum(time >= 0 for time, _ in records)
    assert sum(found["appended_latencies"]) == timed > sum(found["latencies"])
    assert found["append_last_ms"] == records[-1][1]


def test_the_screen_has_both_clocks_and_shares(broker: RunningBroker, clock: ManualClock) -> None:
    fill(broker, clock)
    shown = run_command("times", "t", HOROLOG_BOOTSTRAP=broker.address)
    assert shown.code == 0
    assert "2023-11-14" in shown.out
    assert "%)" in shown.out
    assert max(map(len, shown.lines)) <= 110


def test_what_an_adopted_log_has_no_map_of_is_said_and_mapped_by_the_next_append(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    log_dir = tmp_path / "logs"
    shutil.copytree(GOLDEN / "clean" / "client-none-0", log_dir / "t-0")
    broker = make_broker(log_dir=log_dir)
    shown = run_command("times", "t", HOROLOG_BOOTSTRAP=broker.address)
    assert "without 81 offsets" in shown.out
    assert "that of the last segment the next append" in shown.out
    broker.append("t", build_batch([LogRecord(NOW_MS, None, b"v")]))
    (found,) = described(broker)
    assert (found["records"], found["unknown_offsets"]) == (82, 0)


def test_another_broker_is_named() -> None:
    with ScriptedBroker() as kafka:
        shown = run_command("times", "t", HOROLOG_BOOTSTRAP=kafka.bootstrap)
    assert shown.code == 2
    assert "horolog spark latency" in shown.err


def test_a_share_of_latencies_is_told_by_its_class(
    broker: RunningBroker, clock: ManualClock
) -> None:
    """Of 201 records 200 are exactly a second late; a figure within a class would be made up."""
    at_once, late = clock.now_ms() - 1_000, clock.now_ms() - 20_000
    broker.append("t", build_batch([LogRecord(at_once, None, b"v")] * 200))
    broker.append("t", build_batch([LogRecord(late, None, b"v")]))
    found, _ = described(broker)
    for share in ("p50", "p90", "p99"):
        assert found["latency_ms"][share] == {"from_ms": 1_000, "below_ms": 10_000}
    shown = run_command("times", "t", HOROLOG_BOOTSTRAP=broker.address)
    assert shown.out.count("1s to 10s") == 3


def test_the_last_class_ends_with_the_latest_record_that_is_known() -> None:
    last = [0] * 11
    assert latency_class([0, *last], 0.5) is None
    assert latency_class([7, *last], 0.99) == (None, 0)
    assert latency_class([*last, 3], 0.5) == (LATENCY_BOUNDS[-1], None)
    assert latency_class([*last, 3], 0.5, 40 * DAY_MS) == (30 * DAY_MS, 40 * DAY_MS + 1)
    assert latency_class([*last, 3], 0.5, 0) == (30 * DAY_MS, 30 * DAY_MS + 1)
    assert latency_class([0, 0, 1, 0, 1, *last[5:]], 0.5) == (10, 100)
    assert latency_class([0, 0, 1, 0, 1, *last[5:]], 0.51) == (1_000, 10_000)
