"""Cuts at a time: equal to a list of arrivals, and no transaction is cut in two."""

from pathlib import Path

import pytest
from arrivals import Arrivals
from running_broker import NOW_MS, MakeBroker, RunningBroker
from storelogs import snapshot_of

from horolog.clock import ManualClock
from horolog.sources import BrokerLog, Cut, FileLog, LogPath, Pattern, ReadOptions, cut_of


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def broker(make_broker: MakeBroker, clock: ManualClock) -> RunningBroker:
    broker = make_broker(clock=clock)
    for topic in ("a", "b"):
        broker.create_topic(topic, 2, segment_bytes="2000")
    return broker


def from_broker(broker: RunningBroker, at_ms: int) -> Cut:
    options = ReadOptions(brokers=broker.client.config, subscription=Pattern("[ab]"))
    with BrokerLog(options) as log:
        return cut_of(log, at_ms, log.partitions(), NOW_MS)


def from_files(path: Path, at_ms: int) -> Cut:
    options = ReadOptions(paths=(LogPath.parse(str(path)),), subscription=Pattern("[ab]"))
    with FileLog(options, is_cut=True) as log:
        return cut_of(log, at_ms, log.partitions(), NOW_MS)


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_is_that_of_a_list_of_arrivals(
    broker: RunningBroker, clock: ManualClock, seed: int, tmp_path: Path
) -> None:
    arrivals = Arrivals(broker, clock, seed)
    arrivals.live(80)
    arrivals.finish()
    broker.run(broker.broker.partitions.keep_stamp_clock())
    snapshot_of(broker.log_dir, tmp_path / "copy")
    for at_ms in arrivals.asked():
        cut = from_broker(broker, at_ms)
        arrivals.check(cut)
        assert from_files(tmp_path / "copy", at_ms).partitions == cut.partitions
        assert Cut.from_bytes(cut.to_bytes(), "cut.json") == cut
