"""`horolog spark latency` and `horolog.jobs.latency`."""

import random
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import fill
from command_runner import run_command
from patience import PATIENCE_S
from running_broker import MakeBroker, RunningBroker, a_broker

from horolog import jobs
from horolog.clock import ManualClock
from horolog.errors import Misconfigured

pytestmark = pytest.mark.spark

NOW_MS = 1_715_000_400_000 // 3_600_000 * 3_600_000
HOUR_MS = 3_600_000
ANY = {"message_timestamp_after_max_ms": str((1 << 63) - 1), "retention_ms": "-1"}


broker = a_broker(now_ms=NOW_MS)


def test_latencies_are_counted_as_plain_python_counts_them(
    spark: Any, broker: RunningBroker, clock: ManualClock
) -> None:
    rng = random.Random(5)
    broker.create_topic("created", partitions=3, **ANY)
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime", retention_ms="-1")
    spans: dict[tuple[str, int], list[int]] = {}
    for _ in range(60):
        at = clock.now_ms()
        some = [
            rng.choice([rng.randrange(200), -rng.randrange(1_000), rng.randrange(10**8)])
            for _ in range(20)
        ]
        topic = rng.choice(["created", "stamped"])
        times = [at - span for span in some]
        fill(broker.client, topic, times, rng.randrange(3) if topic == "created" else 0)
        spans.setdefault((topic, (at - NOW_MS) // HOUR_MS), []).extend(some)
        clock.advance("5m")
    for source, settings in (
        (broker.address, {"maxRecordsPerPartition": "130"}), (str(broker.log_dir), {})
    ):  # fmt: skip
        frame = jobs.latency(spark, source=source, topics="created,stamped", settings=settings)
        rows = frame.where("not is_total").orderBy("topic", "hour").collect()
        assert len(rows) == len(spans)
        for row, (_, its) in zip(rows, sorted(spans.items()), strict=True):
            assert (row.measured, row.records, row.not_appended) == (len(its), len(its), 0)
            assert (row.min_ms, row.max_ms) == (min(its), max(its))
            assert row.negative == sum(each < 0 for each in its)
            for share, name in ((50, "p50_ms"), (90, "p90_ms"), (99, "p99_ms")):
                exact = np.percentile(its, share)
                assert row[name] == pytest.approx(exact, rel=0.01, abs=1)
        whole = {row.topic: row.measured for row in frame.where("is_total").collect()}
        assert sum(whole.values()) == 1_200


def test_small_latencies_are_exact_and_odd_times_are_left_out(
    spark: Any, broker: RunningBroker
) -> None:
    broker.create_topic("t", **ANY)
    odd = [-1, -1, NOW_MS // 1000, NOW_MS * 1_000]
    fill(broker.client, "t", [*(NOW_MS - each for each in range(101)), *odd], size=1_000)
    row = jobs.latency(spark, source=broker.address, topics="t").where("is_total").first()
    assert (row.records, row.measured, row.untimed, row.in_other_unit) == (105, 101, 2, 2)
    assert (row.min_ms, row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms) == (0, 50, 90, 99, 100)


def without_append_times(broker: RunningBroker, to: Path) -> Path:
    """A copy of the topic's log as Apache Kafka writes it."""
    copy = to / "copy" / "t-0"
    copy.mkdir(parents=True)
    for log in (broker.log_dir / "t-0").glob("*.log"):
        shutil.copy(log, copy)
    return copy.parent


def test_where_one_time_is_kept_it_says_why_it_cannot_tell(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("t", **ANY)
    fill(broker.client, "t", [NOW_MS - 7])
    broker.stop()
    source = without_append_times(broker, tmp_path)
    blind = run_command("spark", "latency", "--source", source, "--json")
    assert blind.code == 1
    assert "the log keeps one time of each record, the create time" in blind.err
    assert "--live 60s" in blind.err
    (topic,) = blind.json["topics"]
    assert (topic["records"], topic["measured"], topic["p50_ms"]) == (1, 0, None)


def test_of_log_append_time_topics_without_append_times_beside_the_bytes_suffice(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("t", message_timestamp_type="LogAppendTime", retention_ms="-1")
    fill(broker.client, "t", [NOW_MS - 40, NOW_MS + 3])
    broker.stop()
    source = without_append_times(broker, tmp_path)
    row = jobs.latency(spark, source=source).where("is_total").first()
    assert (row.measured, row.negative, row.min_ms, row.max_ms) == (2, 1, -3, 40)


def test_live_measures_what_is_appended_meanwhile_and_is_marked(
    spark: Any, make_broker: MakeBroker
) -> None:
    broker = make_broker()
    broker.create_topic("t", partitions=3)
    ended = threading.Event()

    def append() -> None:
        number = 0
        while not ended.wait(0.05):
            fill(broker.client, "t", [int(time.time() * 1000) - 5_000], number % 3)  # noqa: TID251
            number += 1

    fill(broker.client, "t", [5])  # before: not measured
    appending = threading.Thread(target=append)
    appending.start()
    try:
        ran = run_command(
            "spark",
            "latency",
            "--source",
            broker.address,
            "--topics",
            "t",
            "--live",
            "2s",
            "--json",
        )
    finally:
        ended.set()
        appending.join(PATIENCE_S)
    assert ran.code == 0, ran.err
    (topic,) = ran.json["topics"]
    assert topic["measure"] == "clock of the reader - create time"
    assert topic["measured"] > 3
    assert 5_000 <= topic["min_ms"] < 5_000 + 1_000 * PATIENCE_S
    assert topic["max_ms"] < NOW_MS


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"live_ms": 0}, "above zero"),
        ({"live_ms": 5, "from_": 3}, "leave out from and to"),
        ({"live_ms": 5, "source": "./log", "topics": None}, "needs a broker"),
    ],
)
def test_live_of_what_is_not_live_is_refused(
    spark: Any, more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Misconfigured, match=sentence):
        jobs.latency(spark, **{"source": "127.0.0.1:1", "topics": "t", **more})


def test_pictures_are_drawn_and_refused_without_matplotlib(
    spark: Any, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", **ANY)
    fill(broker.client, "t", [NOW_MS - 40, NOW_MS + 3])
    command = ("spark", "latency", "--source", broker.address, "--topics", "t", "--pictures")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        refused = run_command(*command, tmp_path / "none")
        assert refused.code == 2
        assert "pip install 'horolog[demo]'" in refused.err
        assert not (tmp_path / "none").exists()
    pytest.importorskip("matplotlib")
    drawn = run_command(*command, tmp_path / "pictures")
    assert drawn.code == 0, drawn.err
    picture = tmp_path / "pictures" / "latency-t.png"
    assert f"drawn: {picture}" in drawn.out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_empty_topic_has_no_records(spark: Any, broker: RunningBroker) -> None:
    broker.create_topic("t")
    ran = run_command("spark", "latency", "--source", broker.address, "--topics", "t")
    assert (ran.code, ran.out) == (0, "no records\n")


def test_the_hop_of_a_mirror_is_measured_by_its_offsets(
    spark: Any, broker: RunningBroker, clock: ManualClock, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker.create_topic("t", partitions=2, **ANY)
    there_ms = NOW_MS + 5 * HOUR_MS
    target = make_broker(clock=ManualClock(there_ms))
    rng, spans = random.Random(3), []
    for number in range(40):
        times = [clock.now_ms() - rng.randrange(5000) for _ in range(10)]
        fill(broker.client, "t", times, number % 2)
        spans += [there_ms - clock.now_ms()] * 10
        clock.advance("1m")
    state = tmp_path / "state"
    moved = {"source": broker.address, "target": target.address, "topics": "t"}
    jobs.mirror(spark, **moved, once=True, state=state)
    fill(broker.client, "t", [clock.now_ms()] * 7, 0)
    asked = {"source": broker.address, "topics": "t", "mirror_state": state}
    found = jobs.latency(spark, **asked, target=target.address).where("is_total").collect()
    hop, own = sorted(found, key=lambda row: row["measure"], reverse=True)
    assert own["measure"] == "append time - create time"
    assert hop["measure"] == "append time at the target - append time at the source"
    assert (own["records"], own["measured"]) == (407, 407)
    assert (hop["records"], hop["measured"], hop["not_appended"]) == (407, 400, 7)
    assert (hop["min_ms"], hop["max_ms"]) == (min(spans), max(spans))
    middle = sorted(spans)[len(spans) // 2]
    assert abs(hop["p50_ms"] - middle) <= middle / 50

    command = ("spark", "latency", "--source", broker.address, "--topics", "t")
    shown = run_command(*command, "--mirror-state", str(state), "--target", target.address)
    assert shown.code == 0, shown.err
    assert "append time at the target" in shown.out
    with pytest.raises(Misconfigured, match="give --target"):
        jobs.latency(spark, **asked)
