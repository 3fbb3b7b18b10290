"""Mirrors up to a cut, and comparisons as of a time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from arrivals import Producer, cut_at
from mirror_lab import NO_SPARK, MirrorLab, values
from running_broker import NOW_MS, MakeBroker, RunningBroker
from storelogs import snapshot_of

from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.jobs.comparing import Compared, compare
from horolog.jobs.mirroring.cluster import ClusterDestination
from horolog.record import LogRecord, build_batch
from horolog.storage import TopicPartition

Add = Callable[[bytes], None]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_broker: MakeBroker, clock: ManualClock
) -> MirrorLab:
    lab = MirrorLab(tmp_path, monkeypatch, make_broker)
    lab.source = make_broker(clock=clock)
    lab.source.create_topic("a", 1, retention_ms="-1")
    return lab


@pytest.fixture
def add(lab: MirrorLab, clock: ManualClock) -> Add:
    """Append a record, a second after the one before it."""

    def append(value: bytes) -> None:
        lab.source.append("a", build_batch([LogRecord(NOW_MS, None, value)]))
        pass_a_second(lab.source, clock)

    return append


def pass_a_second(broker: RunningBroker, clock: ManualClock) -> None:
    clock.step("1s")
    broker.run(broker.broker.partitions.keep_stamp_clock())


def compared(lab: MirrorLab, target: object, **more: Any) -> Compared:
    source = lab.source.address
    return compare(NO_SPARK, source=source, target=str(target), topics="a", **more)


def test_a_mirror_ends_at_a_cut_and_continues_to_a_later_one(
    lab: MirrorLab, add: Add, tmp_path: Path
) -> None:
    for value in (b"0", b"1", b"2", b"3"):
        add(value)
    file = tmp_path / "cut.json"
    file.write_bytes(cut_at(lab.source.address, NOW_MS + 2000).to_bytes())
    for _ in range(2):
        done = lab.run(topics="a", until=str(file))
        assert (done.errors, done.lag, lab.values("a")) == ((), 0, [b"0", b"1"])
    done = lab.run(topics="a", until=NOW_MS + 3000, once=False)
    assert (done.errors, done.lag, lab.values("a")) == ((), 0, [b"0", b"1", b"2"])
    earlier = lab.run(topics="a", until=str(file))
    assert "a mirror only grows" in earlier.errors[0]
    assert lab.values("a") == [b"0", b"1", b"2"]


def test_the_option_of_reads_is_that_of_the_jobs(lab: MirrorLab, add: Add) -> None:
    for value in (b"0", b"1", b"2"):
        add(value)
    settings = {"asOf": str(NOW_MS + 2000)}
    assert not lab.run(topics="a", settings=settings).errors
    assert lab.values("a") == [b"0", b"1"]
    done = compared(lab, lab.target.address, mirror_state=lab.state, settings=settings)
    assert (done.is_equal, done.records) == (True, 2)


def test_a_mirror_that_was_killed_ends_at_its_cut(lab: MirrorLab, add: Add) -> None:
    for value in (b"0", b"1", b"2", b"3"):
        add(value)
    lab.killed_before_the_end(topics="a", until=NOW_MS + 3000, after=1)
    assert not lab.run(topics="a", until=NOW_MS + 3000).errors
    assert lab.values("a") == [b"0", b"1", b"2"]


def test_a_cluster_gets_whole_transactions_and_a_directory_all_that_was_appended(
    lab: MirrorLab, add: Add, clock: ManualClock, tmp_path: Path
) -> None:
    add(b"0")
    producer = Producer(lab.source, "t")
    producer.write(TopicPartition("a", 0))
    pass_a_second(lab.source, clock)
    add(b"2")
    at_ms = clock.now_ms()
    producer.end(commit=True)
    add(b"3")
    assert not lab.run(topics="a", until=at_ms).errors
    assert lab.values("a") == [b"0"]
    directory = tmp_path / "copy"
    done = lab.run(
        target=directory, topics="a", until=at_ms, state=tmp_path / "s", batch_bytes=None
    )
    assert (done.errors, done.partitions[0].offset) == ((), 3)


@pytest.mark.parametrize("of", ["another cluster", "a topic that is gone", "the future"])
def test_a_mirror_refuses_a_cut_of_something_else(
    lab: MirrorLab, add: Add, make_broker: MakeBroker, of: str
) -> None:
    add(b"0")
    cut = cut_at(lab.source.address, NOW_MS + (1 if of != "the future" else 3_600_000))
    if of == "another cluster":
        lab.source = make_broker()
        lab.source.create_topic("a", 1)
    elif of == "a topic that is gone":
        lab.source.client.delete_topics(["a"])
        lab.source.create_topic("a", 1)
    if of == "the future":
        assert "future" in lab.run(topics="a", until=cut).errors[0]
        assert lab.target.count("a") == 0
    else:
        with pytest.raises(Misconfigured, match=r"another cluster|re-created"):
            lab.run(topics="a", until=cut)


def test_a_dry_run_says_how_far_the_cut_is(lab: MirrorLab, add: Add) -> None:
    for value in (b"0", b"1", b"2"):
        add(value)
    assert lab.run(topics="a", until=NOW_MS + 2000, dry_run=True, state=None).lag == 2


def test_logs_are_compared_as_of_a_time_by_offsets_or_by_the_map_of_a_mirror(
    lab: MirrorLab, add: Add, tmp_path: Path
) -> None:
    add(b"0")
    add(b"1")
    snapshot_of(lab.source.log_dir, tmp_path / "copy")
    lab.run(topics="a", until=NOW_MS + 2000)
    add(b"2")
    for target, more in (
        (tmp_path / "copy", {}),
        (lab.target.address, {"mirror_state": lab.state}),
    ):
        then = compared(lab, target, as_of=NOW_MS + 2000, **more)
        assert (then.is_equal, then.records) == (True, 2)
        at_first = compared(lab, target, as_of=NOW_MS + 1000, **more)
        assert (at_first.is_equal, at_first.records) == (True, 1)
        later = compared(lab, target, as_of=NOW_MS + 3000, **more)
        assert not later.is_equal
    assert "mirror it up to there first" in str(later.differences[0])
    future = compared(lab, tmp_path / "copy", as_of=NOW_MS + 3_600_000)
    assert "future" in str(future.differences[0])
    with pytest.raises(Misconfigured, match="by offsets"):
        compared(lab, tmp_path / "copy", as_of=NOW_MS, ignore_offsets=True)


def test_a_target_that_differs_before_a_cut_is_found(lab: MirrorLab, add: Add) -> None:
    add(b"0")
    add(b"1")
    lab.target.create_topic("a", 1)
    lab.target.append("a", build_batch([LogRecord(NOW_MS, None, b"0")]))
    assert not compared(lab, lab.target.address, as_of=NOW_MS + 2000).is_equal
    assert compared(lab, lab.target.address, as_of=NOW_MS + 1000).is_equal
    assert values(lab.target.address, "a") == [b"0"]


def test_a_partition_that_was_added_since_a_cut_is_not_mirrored(lab: MirrorLab, add: Add) -> None:
    add(b"0")
    cut = cut_at(lab.source.address, NOW_MS + 1000)
    lab.source.client.create_partitions({"a": 2})
    lab.source.append("a", build_batch([LogRecord(NOW_MS, None, b"new")]), 1)
    lab.source.delete_records("a", 1, 1)
    lab.source.append("a", build_batch([LogRecord(NOW_MS, None, b"new")]), 1)
    for _ in range(2):
        assert not lab.run(topics="a", until=cut).errors
        assert (lab.values("a"), lab.values("a", 1)) == ([b"0"], [])


def test_a_mirror_that_is_done_needs_no_records_in_front_of_the_cut(
    lab: MirrorLab, add: Add
) -> None:
    for value in (b"0", b"1", b"2"):
        add(value)
    assert not lab.run(topics="a", until=NOW_MS + 2000).errors
    lab.source.delete_records("a", 1)
    assert not lab.run(topics="a", until=NOW_MS + 2000).errors


def test_compaction_behind_a_mirror_is_told(
    lab: MirrorLab, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (b"0", b"1", b"2"):
        add(value)
    original = ClusterDestination.move

    def move(self: ClusterDestination, spark: Any, units: Any) -> Any:
        yield from original(self, spark, units)
        log = lab.source.log("a", 0)
        monkeypatch.setattr(type(log), "compacted_to", 3)

    monkeypatch.setattr(ClusterDestination, "move", move)
    assert "compacted" in lab.run(topics="a", until=NOW_MS + 2000).errors[0]
