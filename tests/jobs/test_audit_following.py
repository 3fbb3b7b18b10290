"""`horolog spark audit --follow` and `horolog.jobs.follow_audit`: windows of a live topic."""

import json
import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
from batches import fill
from command_runner import run_command
from patience import PATIENCE_S, eventually
from running_broker import BrokerProcess, MakeBroker

from horolog import jobs
from horolog.cli import app
from horolog.errors import Misconfigured
from horolog.jobs.questions.audit import COUNTS
from horolog.jobs.questions.following import AuditWindow

pytestmark = pytest.mark.spark

NOW_MS = 1_715_000_000_000
ANY = {"message_timestamp_after_max_ms": str((1 << 63) - 1), "retention_ms": "-1"}


def sums(rows: Any) -> dict[tuple[str, int], dict[str, int]]:
    found: dict[tuple[str, int], dict[str, int]] = {}
    for row in rows.collect():
        one = found.setdefault((row.topic, row.partition), dict.fromkeys(COUNTS, 0))
        for name in COUNTS:
            one[name] += row[name]
        one["late"] = max(one.get("late", 0), row["late_max_ms"] or 0)
    return found


def added(windows: list[AuditWindow]) -> dict[tuple[str, int], dict[str, int]]:
    found: dict[tuple[str, int], dict[str, int]] = {}
    for window in windows:
        for key, its in sums(window.rows).items():
            one = found.setdefault(key, dict.fromkeys(its, 0))
            for name, value in its.items():
                one[name] = max(one[name], value) if name == "late" else one[name] + value
    return found


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


def test_windows_add_up_to_an_audit_of_all_that_was_appended(
    spark: Any, make_broker: MakeBroker, stop: threading.Event
) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    broker = make_broker()
    broker.create_topic("t.one", partitions=2, **ANY)

    def times() -> list[int]:
        jitter = rng.choice([1, 5_000])
        odd = (-1, -7, NOW_MS // 1_000, NOW_MS * 1_000, NOW_MS + 86_400_000)
        return [
            rng.choice(odd) if rng.random() < 0.1 else NOW_MS + rng.randrange(jitter)
            for _ in range(rng.randrange(1, 40))
        ]

    client = broker.client
    windows = jobs.follow_audit(
        spark, source=broker.address, topics_pattern="t\\..*", every_ms=1, stop=stop
    )
    seen = [next(windows)]
    assert (seen[0].records, sums(seen[0].rows)) == (0, {})
    for step in range(3):
        if step == 1:
            client.create_partitions({"t.one": 3})
            broker.create_topic("t.two", **ANY)
        # The largest time stays that of the first window, and what is late is late by that.
        known = ([NOW_MS + 86_400_000], [NOW_MS], [NOW_MS + 1, -7])[step]
        fill(client, "t.one", known)
        for topic, count in (("t.one", 2 + (step > 0)), ("t.two", int(step > 0))):
            for partition in range(count):
                fill(client, topic, times(), partition)
        if step == 2:
            stop.set()
        seen.append(next(windows))
    assert list(windows) == []
    whole = sums(jobs.audit(spark, source=broker.address, topics_pattern="t\\..*"))
    assert added(seen) == whole, f"seed {seed}"
    assert [each.from_ms for each in seen[1:]] == [each.to_ms for each in seen[:-1]]


def test_what_was_appended_before_is_left_out_and_a_new_topic_of_the_name_begins_anew(
    spark: Any, make_broker: MakeBroker
) -> None:
    broker = make_broker()
    broker.create_topic("t", **ANY)
    client = broker.client
    fill(client, "t", [NOW_MS + 50] * 5)
    windows = jobs.follow_audit(spark, source=broker.address, topics="t", every_ms=1)
    fill(client, "t", [NOW_MS + 9, NOW_MS + 7])
    first = next(windows)
    assert sums(first.rows)["t", 0]["out_of_order"] == 1  # not after what was there before
    client.delete_topics(["t"])
    assert next(windows).records == 0
    broker.create_topic("t", **ANY)
    fill(client, "t", [NOW_MS])
    again = next(windows)
    assert (again.records, sums(again.rows)["t", 0]["out_of_order"]) == (1, 0)
    fill(client, "t", [NOW_MS - 3])
    (late,) = next(windows).rows.collect()
    assert (late.out_of_order, late.late_max_ms) == (1, 3)


def test_a_broker_that_was_killed_is_asked_again_and_nothing_is_left_out(
    spark: Any, broker_process: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    broker_process.client.create_topics({"t": 1}, configs={"retention.ms": "-1"})
    windows = jobs.follow_audit(
        spark,
        source=broker_process.address,
        topics="t",
        every_ms=1,
        settings={"kafka.default.api.timeout.ms": "500", "kafka.request.timeout.ms": "500"},
    )
    fill(broker_process.client, "t", [NOW_MS])
    broker_process.kill()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(next(windows).records), daemon=True)
    thread.start()
    assert eventually(lambda: "trying again" in caplog.text)
    broker_process.start_again()
    thread.join(PATIENCE_S)
    assert found == [1]


def test_misuse_is_refused(spark: Any, make_broker: MakeBroker, tmp_path: Any) -> None:
    with pytest.raises(Misconfigured, match="needs HOST:PORT"):
        jobs.follow_audit(spark, source=tmp_path)
    with pytest.raises(Misconfigured, match="above zero"):
        jobs.follow_audit(spark, source="127.0.0.1:1", topics="t", every_ms=0)
    with pytest.raises(Misconfigured, match="below zero"):
        jobs.follow_audit(spark, source="127.0.0.1:1", topics="t", after_max_ms=-1)
    ran = run_command(
        "spark", "audit", "--source", "127.0.0.1:1", "--topics", "t", "--follow", "--from", "-1h"
    )
    assert (ran.code, "leave out --from" in ran.err) == (2, True)


def test_it_ends_after_the_time_that_is_given(spark: Any, make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.create_topic("t", **ANY)
    ran = run_command(
        "spark", "audit", "--source", broker.address, "--topics", "t", "--follow", "--for", "1s",
        "--every", "900s",
    )  # fmt: skip
    window, total = ran.out.splitlines()
    assert (ran.code, total) == (0, "1 window, no records")
    assert window.endswith("Z  no records")  # an idle window, too, shows that it is alive


class Heard(StringIO):
    """A standard output that tells of each line."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        super().__init__()
        self._on_line = on_line

    def write(self, text: str) -> int:
        count = super().write(text)
        self._on_line(text)
        return count


def test_a_signal_ends_it_with_what_was_appended_until_then(
    spark: Any, make_broker: MakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = make_broker()
    broker.create_topic("t", **ANY)
    # After the first window, and after one that has records.
    appended = [[NOW_MS, NOW_MS - 5, NOW_MS // 1_000], [NOW_MS - 2]]

    def on_line(line: str) -> None:
        if len(appended) == 2 or (appended and json.loads(line)["topics"]):
            fill(broker.client, "t", appended.pop(0))
            if not appended:
                os.kill(os.getpid(), signal.SIGTERM)

    command = f"spark audit --source {broker.address} --topics t --follow --every 100ms --json"
    with redirect_stdout(Heard(on_line)) as out, pytest.raises(SystemExit) as ended:
        app(command.split())
    assert ended.value.code == 1
    last = json.loads(out.getvalue().splitlines()[-1])
    (topic,) = last["topics"]
    assert (topic["records"], topic["in_seconds"], topic["out_of_order"]) == (4, 1, 2)
    assert (topic["late_max_ms"], topic["compared_with"]) == (5, "append time")
    err = capsys.readouterr().err
    assert ("Ending after what is under way" in err, "Traceback" in err) == (True, False)
