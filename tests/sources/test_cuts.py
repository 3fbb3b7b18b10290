"""Cuts at a time: equal to a list of arrivals, and no transaction is cut in two."""

import json
from pathlib import Path
from typing import Any

import pytest
from arrivals import Arrivals
from running_broker import NOW_MS, RunningBroker, a_broker
from storelogs import snapshot_of

from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.sources import (
    BrokerLog,
    Cut,
    CutEntry,
    FileLog,
    LogPath,
    Pattern,
    ReadOptions,
    cut_of,
)

broker = a_broker("a", "b", partitions=2, of_topics={"segment_bytes": "2000"})


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


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"exact": False}, "a-1 has to be exact, or to say why it is not"),
        ({"exact": False, "why": ""}, "a-1 has to be exact, or to say why it is not"),
        ({"why": "reset: of append times"}, "a-1 has to be exact, or to say why it is not"),
        ({"offset": -1}, "its partition"),
        ({"offset": True}, "its partition"),
        ({"offset": 1 << 63}, "its partition"),
        ({"partition": 0}, "it has a-0 twice"),
        ({"committed_offset": 8}, "the committed offset of a-1 is behind its offset"),
        ({"more": 1}, "it cannot have 'more'"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_and_named(members: dict[str, Any], said: str) -> None:
    entries = tuple(CutEntry("a", None, number, 7, 7, True, None) for number in range(2))
    document = json.loads(Cut(None, 0, 0, entries).to_bytes())
    document["partitions"][1] |= members
    with pytest.raises(Misconfigured, match=f"cut.json is no cut: .*{said}"):
        Cut.from_bytes(json.dumps(document).encode(), "cut.json")


@pytest.mark.parametrize("version", [0, 2, True, 1.0, "1", None])
def test_a_cut_of_an_unknown_version_is_refused(version: Any) -> None:
    document = json.loads(Cut(None, 0, 0, ()).to_bytes()) | {"version": version}
    with pytest.raises(Misconfigured, match="its version is"):
        Cut.from_bytes(json.dumps(document).encode(), "cut.json")
