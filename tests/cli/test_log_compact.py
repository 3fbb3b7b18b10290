"""`horolog log compact`, as a user sees it."""

from pathlib import Path

import pytest
from command_runner import Run
from running_broker import MakeBroker

from horolog.record import LogRecord, build_batch


@pytest.fixture
def log_dir(make_broker: MakeBroker) -> Path:
    """A closed directory with a topic of two keys, in several segments."""
    broker = make_broker()
    broker.create_topic("events", segment_bytes="500")
    for at in range(20):
        broker.append("events", build_batch([LogRecord(at, b"%d" % (at % 2), bytes(100))]), 0)
    broker.stop()
    return broker.log_dir


def test_a_log_is_compacted_and_a_dry_run_says_so_before(offline: Run, log_dir: Path) -> None:
    would = offline("log", "compact", log_dir, "--dry-run")
    assert would.code == 0
    assert "2 of 18 records would be left before offset 18" in would.out
    done = offline("log", "compact", log_dir, "--json").json
    assert done["ok"]
    (partition,) = [each for each in done["partitions"] if each["path"].endswith("events-0")]
    assert (partition["records_before"], partition["records_after"]) == (18, 2)
    assert offline("log", "verify", log_dir).code == 0
    again = offline("log", "compact", log_dir / "events-0")
    assert again.code == 0
    assert again.lines[-1] == "1 partitions, 0 not compacted to their end"


def test_a_segment_alone_is_refused(offline: Run, log_dir: Path) -> None:
    refused = offline("log", "compact", log_dir / "events-0" / f"{0:020}.log")
    assert refused.code != 0
