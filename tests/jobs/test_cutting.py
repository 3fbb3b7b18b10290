"""Logs opened by their places, to be cut at an append time."""

from pathlib import Path

from arrivals import cut_at
from running_broker import NOW_MS, MakeBroker
from storelogs import snapshot_of

from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch


def test_a_broker_and_its_directory_are_cut_alike(make_broker: MakeBroker, tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    broker = make_broker(clock=clock)
    for topic in "ab":
        broker.create_topic(topic)
        broker.append(topic, build_batch([LogRecord(7, None, b"v")]))
        clock.step("1s")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    snapshot_of(broker.log_dir, tmp_path / "copy")
    cuts = [cut_at(source, NOW_MS + 1000) for source in (broker.address, tmp_path / "copy")]
    assert [entry.offset for entry in cuts[0].partitions] == [1, 0]
    assert cuts[0].partitions == cuts[1].partitions
