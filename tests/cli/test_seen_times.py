"""What commands say of records of which it is only known when a follower saw them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from batches import batch
from command_runner import Ran, Run, run_command
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.clock import DAY_MS
from horolog.record import AppendTimeStretch

SEEN = "2023-11-14T22:13:25.000Z"  # NOW_MS + 5000
KNOWN = "2023-11-14T22:13:26.000Z"


def fill(broker: RunningBroker) -> None:
    """Two records that a follower saw, one that is known, one that is unknown, one seen again."""
    data = b"".join(batch(NOW_MS, base_offset=offset) for offset in range(5))
    times = [
        AppendTimeStretch(0, NOW_MS + 5_000, is_seen=True),
        AppendTimeStretch(2, NOW_MS + 6_000),
        AppendTimeStretch(3, None),
        AppendTimeStretch(4, NOW_MS + 7_000, is_seen=True),
    ]
    broker.restart_followed("t", data, times)


broker = a_broker(
    "t",
    of_topics={"horolog_retention_by": "append-time", "retention_ms": str(DAY_MS)},
    now_ms=NOW_MS + 10 * DAY_MS,
    prepare=fill,
)


@pytest.fixture
def ask(broker: RunningBroker) -> Run:
    def run(*args: object) -> Ran:
        return run_command(*args, HOROLOG_BOOTSTRAP=broker.address)

    return run


def of_files(broker: RunningBroker) -> Path:
    broker.stop()
    return broker.log_dir / "t-0"


def test_consume_shows_them_apart(ask: Run, broker: RunningBroker) -> None:
    lines = ask("consume", "t", "--clock", "append").lines
    assert [line.split("\t")[0] for line in lines] == [
        f"seen {SEEN}",
        f"seen {SEEN}",
        KNOWN,
        "none",
        "seen 2023-11-14T22:13:27.000Z",
    ]
    rows = [
        json.loads(line)
        for line in ask("consume", "t", "--clock", "append", "--format", "json").lines
    ]
    assert [(row["append_time"], row.get("seen_time")) for row in rows] == [
        (None, NOW_MS + 5_000),
        (None, NOW_MS + 5_000),
        (NOW_MS + 6_000, None),
        (None, None),
        (None, NOW_MS + 7_000),
    ]


def test_a_lookup_says_that_they_were_seen(ask: Run) -> None:
    said = ask("offsets", "t", "--at", NOW_MS + 6_001, "--clock", "append", "--explain").out
    assert "offset 3 is the first that may have been appended at or after" in said
    said = ask("offsets", "t", "--at", NOW_MS, "--clock", "append").out
    assert "unknown" in said


def test_topics_describe_says_when_the_first_and_last_were_seen(ask: Run) -> None:
    said = ask("times", "t").out
    (line,) = [line for line in said.splitlines() if "seen by a follower" in line]
    assert line.split()[-2:] == [SEEN, "2023-11-14T22:13:27.000Z"]
    (found,) = ask("times", "t", "--json").json["partitions"]
    assert (found["seen_first_ms"], found["seen_last_ms"]) == (NOW_MS + 5_000, NOW_MS + 7_000)


@pytest.mark.parametrize("of_broker", [True, False])
def test_retention_keeps_what_it_only_knows_to_be_seen_and_says_so(
    ask: Run, broker: RunningBroker, of_broker: bool
) -> None:
    where = "t" if of_broker else of_files(broker)
    at = () if of_broker else ("--at", NOW_MS + 10 * DAY_MS)
    said = ask("retention", "explain", where, *at).out
    assert "seen by a follower 2023-11-14T22:13:27.000Z" in said
    assert "its last append time is unknown" in said
    assert "Compare --set horolog.seen.as.append.time=true" in said
    tried = ask("retention", "explain", where, *at, "--set", "horolog.seen.as.append.time=true")
    assert "when a follower saw its last record is 2023-11-14T22:13:27.000Z" in tried.out
    assert "the next check deletes 1 segment" in tried.out


def test_log_inspect_shows_them_in_a_column_of_their_own(
    offline: Run, broker: RunningBroker
) -> None:
    path = of_files(broker)
    said = offline("log", "inspect", path, "--times").out
    assert "seen by a follower from" in " ".join(said.split())
    (row,) = offline("log", "inspect", path, "--times", "--json").json
    assert row["seen_by_follower"] == [NOW_MS + 5_000, NOW_MS + 7_000]
    rows = offline("log", "inspect", path, "--records", "--json").lines
    found = [json.loads(line) for line in rows]
    assert [row.get("seen_time") for row in found[:3]] == [NOW_MS + 5_000] * 2 + [None]


def test_a_report_shows_them_in_its_segments(
    offline: Run, broker: RunningBroker, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert offline("report", of_files(broker), "-o", page).code == 0
    assert f'"seen_ms":{NOW_MS + 7_000}' in page.read_text().replace(": ", ":")
