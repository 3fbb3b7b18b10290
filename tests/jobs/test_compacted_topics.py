"""Jobs on topics that are compacted while they run: what compaction removes is not lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archive_reading import records_of
from command_runner import run_command
from in_process_spark import InProcessSpark
from mirror_lab import NO_SPARK, T0_MS, MirrorLab, rows_of
from running_broker import MakeBroker, RunningBroker
from storelogs import records_in

from horolog import jobs
from horolog.errors import Misconfigured
from horolog.jobs.comparing import Compared, compare
from horolog.record import LogRecord, build_batch

COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": "1048576",
    "min_cleanable_dirty_ratio": "0.01",
    "retention_ms": "-1",
    "delete_retention_ms": "0",
}
Put = Callable[[RunningBroker, range], None]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_broker: MakeBroker) -> MirrorLab:
    """Two brokers that compact only when a test says so."""
    return MirrorLab(tmp_path, monkeypatch, lambda: make_broker(log_cleaner_backoff_ms="100000000"))


def put(broker: RunningBroker, numbers: range, *, keys: int = 3) -> None:
    """Records of few keys, one in ten a tombstone, in a segment of their own."""
    for number in numbers:
        key = b"k%d" % (number % keys)
        value = None if number % 10 == 9 else b"%d" % number
        broker.append("t", build_batch([LogRecord(T0_MS + number, key, value)]))
    broker.call(lambda: broker.log("t").roll(broker.clock.now_ms()))


def compact(broker: RunningBroker) -> int:
    """Compact it; how many records are left below the active segment."""
    assert broker.run(broker.broker.cleaner.clean_all()) == ["t-0"]
    return len(records_in(broker.log("t")))


def test_an_archive_goes_on_behind_what_was_compacted(lab: MirrorLab, tmp_path: Path) -> None:
    broker = lab.source
    broker.create_topic("t", **COMPACT)
    where: dict[str, Any] = {"archive": tmp_path / "archive", "topics": "t"}

    def archived() -> Any:
        return jobs.archive(
            InProcessSpark(), source=broker.address, state=tmp_path / "state", **where
        )

    put(broker, range(20))
    assert archived().records == 20
    put(broker, range(20, 40))
    left = compact(broker)
    assert left < 8
    expected = [each.offset for each in rows_of(broker.address, "t") if (each.offset or 0) >= 20]
    done = archived()
    assert not done.refused
    assert done.records == len(expected)
    found = [row["offset"] for row in records_of(tmp_path / "archive")]
    assert found == [*range(20), *expected]
    # All that is left behind the archive's end may go as well.
    put(broker, range(40, 60))
    put(broker, range(60, 80))
    compact(broker)
    assert not archived().refused
    assert not jobs.check_archive(InProcessSpark(), archive=tmp_path / "archive").problems


@pytest.mark.parametrize("to_files", [False, True])
def test_a_mirror_goes_on_behind_what_was_compacted(
    lab: MirrorLab, tmp_path: Path, to_files: bool
) -> None:
    broker = lab.source
    broker.create_topic("t", **COMPACT)
    target = tmp_path / "copy" if to_files else None
    put(broker, range(20))
    assert lab.run(target=target).records == 20
    put(broker, range(20, 40))
    compact(broker)
    expected = [each for each in rows_of(broker.address, "t") if (each.offset or 0) >= 20]
    done = lab.run(target=target)
    assert not done.errors
    assert done.records == len(expected)
    assert (done.lag, lab.run(target=target).records) == (0, 0)


@pytest.mark.spark
def test_an_audit_of_a_compacted_topic_counts_what_is_left(lab: MirrorLab) -> None:
    broker = lab.source
    broker.create_topic("t", **COMPACT)
    put(broker, range(40))
    put(broker, range(40, 42))
    left = compact(broker)
    done = run_command("spark", "audit", "--source", broker.address, "--topics", "t", "--json")
    for word in ("lost", "gone", "missing"):
        assert word not in done.err
    assert f'"records": {left}' in done.out


def compared(lab: MirrorLab, target: object = None, **more: Any) -> Compared:
    there = lab.target.address if target is None else str(target)
    spark = more.pop("spark", NO_SPARK)
    return compare(spark, source=lab.source.address, target=there, topics="t", **more)


def test_a_difference_of_compacted_logs_says_how_to_compare_them(lab: MirrorLab) -> None:
    for broker in (lab.source, lab.target):
        broker.create_topic("t", **COMPACT)
        put(broker, range(40))
        put(broker, range(40, 42))
    assert compared(lab).is_equal, "record by record, as long as they are equal"
    compact(lab.source)
    found = compared(lab)
    assert [each.field for each in found.differences] == ["record"]
    (note,) = found.notes
    assert note.startswith("t-0 is compacted, or has lost records, in the log of the source and")
    assert "Compare the latest record of each key (--latest)" in note
    assert found.to_json()["notes"] == [note]
    compact(lab.target)
    assert compared(lab).is_equal
    assert not compared(lab).notes


def test_arguments_that_have_no_latest_record_are_refused(lab: MirrorLab) -> None:
    for wrong in ({"from_": T0_MS}, {"ignore_offsets": True}):
        with pytest.raises(Misconfigured, match="latest record of each key"):
            compared(lab, latest=True, **wrong)


@pytest.mark.spark
def test_logs_that_were_compacted_at_other_times_have_the_same_latest_records(
    lab: MirrorLab, tmp_path: Path, spark: Any
) -> None:
    lab.source.create_topic("t", **COMPACT)
    put(lab.source, range(40))
    lab.run()
    lab.run(target=tmp_path / "files", state=tmp_path / "state2")
    put(lab.source, range(40, 60))
    lab.run()
    lab.run(target=tmp_path / "files", state=tmp_path / "state2")
    compact(lab.source)
    for target, more in (
        (None, {}),
        (None, {"mirror_state": lab.state}),
        (tmp_path / "files", {}),
    ):
        found = compared(lab, target, spark=spark, latest=True, **more)
        assert found.is_equal, found.differences
        assert found.records == 2, "the third key was deleted"
    # A key that the mirror has not yet, a changed value, and a key that was deleted meanwhile.
    lab.source.append("t", build_batch([LogRecord(T0_MS, b"new", b"v")]))
    (difference,) = compared(lab, spark=spark, latest=True).differences
    assert (difference.offset, difference.target_offset, difference.field) == (60, None, "record")
    assert "b'new'" in difference.source
    found = compared(lab, spark=spark, latest=True, mirror_state=lab.state)
    assert found.is_equal, "what was mirrored, and not what came since"
    lab.run()
    lab.target.append("t", build_batch([LogRecord(T0_MS, b"new", b"other")]))
    (difference,) = compared(lab, spark=spark, latest=True).differences
    assert difference.field == "value of key b'new'"
    assert (difference.source, difference.target) == ("b'v'", "b'other'")
    for broker in (lab.source, lab.target):
        broker.append("t", build_batch([LogRecord(T0_MS, b"new", None)]))
    assert compared(lab, spark=spark, latest=True).is_equal
