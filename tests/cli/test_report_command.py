"""`horolog report`: a page that says what is true, and cannot be broken by what it shows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_runner import Run, run_command
from running_broker import ANY_TIME, NOW_MS, RunningBroker, a_broker

from horolog.client import CommittedOffset
from horolog.clock import DAY_MS, ManualClock
from horolog.record import LogRecord, build_batch

GROUP = "</script><script>alert(1)</script>&\u2028"
broker = a_broker(
    "t", partitions=2, of_topics={**ANY_TIME, "segment_bytes": "2000", "retention_ms": str(DAY_MS)}
)


def data_of(page: Path) -> Any:
    text = page.read_text()
    assert "http" not in re.sub(r'"source":"[^"]*"', "", text), "it needs no network"
    (found,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text)
    return json.loads(found)


@pytest.fixture
def filled(broker: RunningBroker, clock: ManualClock) -> RunningBroker:
    for number in range(30):
        now_ms = clock.now_ms()
        times = [now_ms, now_ms - 5_000, now_ms + DAY_MS if number == 20 else now_ms - 50]
        broker.append("t", build_batch([LogRecord(each, None, bytes(50)) for each in times]))
        clock.advance("1m")
    offsets = {("t", 0): CommittedOffset(30)}
    broker.client.offset_commit(GROUP, offsets)
    return broker


def test_a_topic_has_its_picture_segments_groups_and_latencies(
    filled: RunningBroker, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    done = run_command("report", "t", "-o", page, HOROLOG_BOOTSTRAP=filled.address)
    assert done.code == 0, done.err
    (topic,) = data_of(page)["topics"]
    assert (topic["name"], topic["picture"]["records"], topic["picture"]["future"]) == ("t", 90, 1)
    (early,) = topic["picture"]["early"]
    assert (early["offset"], early["away_ms"]) == (62, -DAY_MS)
    assert topic["picture"]["out_of_order"] == 30 + 1
    zero, one = topic["partitions"]
    assert len(zero["segments"]) > 3
    assert one["segments"][0]["size"] == 0
    assert zero["horizon"]["clock"] == "create"
    (group,) = topic["groups"]
    assert (group["group"], group["offsets_behind"]) == (GROUP, 60)
    assert sum(each["records"] for each in topic["latency"]["classes"]) == 90
    assert page.read_text().count("<script") == 2


def test_what_was_refused_is_on_the_page(filled: RunningBroker, tmp_path: Path) -> None:
    filled.alter("t", message_timestamp_after_max_ms="1000")
    refused = filled.produce("t", build_batch([LogRecord(NOW_MS * 1000, None, b"v")]))
    assert refused.error_code == 32
    page = tmp_path / "report.html"
    run_command("report", "-o", page, HOROLOG_BOOTSTRAP=filled.address)
    (topic,) = data_of(page)["topics"]
    assert topic["refused"] == [{"reason": "future", "unit": "microseconds", "records": 1}]


def test_a_directory_needs_no_broker(filled: RunningBroker, tmp_path: Path) -> None:
    filled.stop()
    page = tmp_path / "report.html"
    done = run_command("report", filled.log_dir, "-o", page)
    assert done.code == 0, done.err
    (topic,) = data_of(page)["topics"]
    assert topic["picture"]["records"] == 90
    assert topic["groups"] is topic["refused"] is None


def test_a_log_of_another_broker_has_no_append_times(
    offline: Run, golden: Path, tmp_path: Path
) -> None:
    log_dir = next(each.parent.parent for each in golden.rglob("*.log"))
    page = tmp_path / "report.html"
    assert offline("report", log_dir, "-o", page).code == 0
    assert any(topic["picture"]["unplaced"] for topic in data_of(page)["topics"])


def test_where_it_goes_is_checked_before_anything_is_read(offline: Run, tmp_path: Path) -> None:
    for output in (tmp_path, tmp_path / "none" / "report.html"):
        refused = offline("report", "t", "-b", "127.0.0.1:1", "-o", output)
        assert refused.code == 2
        assert str(tmp_path) in refused.err
