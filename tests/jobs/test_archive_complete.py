"""Archives of a range of time that can get no record any more."""

from pathlib import Path
from typing import Any

import pytest
from archive_reading import records_of
from in_process_spark import InProcessSpark
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.clock import MINUTE_MS, ManualClock
from horolog.errors import Misconfigured
from horolog.jobs import archive
from horolog.record import LogRecord, build_batch
from horolog.sources import NotComplete

broker = a_broker("a", partitions=2, of_topics={"message_timestamp_before_max_ms": str(MINUTE_MS)})


def archived(broker: RunningBroker, tmp_path: Path, **more: Any) -> list[bytes]:
    where = {"state": tmp_path / "state", "archive": tmp_path / "archive"}
    chosen = {"topics": ["a"], "complete": True, "complete_timeout_ms": 10} | where | more
    archive(InProcessSpark(), source=broker.address, **chosen)
    return sorted(row["value"] for row in records_of(tmp_path / "archive"))


def test_an_archive_waits_until_its_range_is_complete(
    broker: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    rows = [LogRecord(NOW_MS - 1, None, b"in"), LogRecord(NOW_MS, None, b"after")]
    broker.append("a", build_batch(rows))
    with pytest.raises(NotComplete):
        archived(broker, tmp_path, to=NOW_MS)
    assert not (tmp_path / "archive").exists()
    clock.step("1m")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    assert archived(broker, tmp_path, to=NOW_MS) == [b"in"]


def test_what_cannot_be_complete_is_refused_by_name(broker: RunningBroker, tmp_path: Path) -> None:
    broker.create_topic("free")
    with pytest.raises(Misconfigured, match="ends before"):
        archived(broker, tmp_path)
    with pytest.raises(Misconfigured, match=r"message\.timestamp\.before\.max\.ms of free"):
        archived(broker, tmp_path, topics=["a", "free"], to=NOW_MS)
    with pytest.raises(Misconfigured, match="as of"):
        archived(broker, tmp_path, to=NOW_MS, as_of=NOW_MS)
