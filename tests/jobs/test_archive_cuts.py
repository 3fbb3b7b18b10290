"""Archives are cut at append times as the logs that they were made of, or refuse it."""

import json
import random
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from archive_reading import records_of
from arrivals import Arrivals, cut_at
from crc32c import crc32c
from examples import some_of
from in_process_spark import InProcessSpark
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.clock import ManualClock
from horolog.jobs import archive, check_archive, merge_archive, restore
from horolog.jobs.archives.archiving import Archived
from horolog.jobs.archives.manifest import require_manifest
from horolog.jobs.archives.planning import Planner
from horolog.jobs.archives.store import ArchiveStore
from horolog.record import LogRecord, build_batch
from horolog.sources import CutEntry

GOLDEN = Path(__file__).parents[1] / "golden"


broker = a_broker("a", "b", partitions=2, of_topics={"segment_bytes": "2000"})


def archived(source: Any, tmp_path: Path, **more: Any) -> Archived:
    where = {"state": tmp_path / "state", "archive": tmp_path / "archive"}
    return archive(InProcessSpark(), source=source, topics_pattern="[ab]", **where, **more)


def reasons(entries: tuple[CutEntry, ...]) -> set[str]:
    return {(entry.why or "exact").partition(":")[0] for entry in entries}


@pytest.mark.parametrize("seed", range(4))
def test_an_archive_is_cut_as_its_source(
    broker: RunningBroker, clock: ManualClock, seed: int, tmp_path: Path
) -> None:
    arrivals, chance = Arrivals(broker, clock, seed), random.Random(seed)
    times: list[int] = []
    for _ in range(4):
        arrivals.live(25)
        broker.run(broker.broker.partitions.keep_stamp_clock())
        times.append(max(arrivals.now_ms, clock.now_ms()))
        as_of = chance.choice([None, times[-1]])
        done = archived(broker.address, tmp_path, as_of=as_of)
        assert all("an archive only grows" in why for why in done.refused.values())
    clock.step("9s")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    as_of = max(arrivals.now_ms, clock.now_ms())
    done = archived(broker.address, tmp_path, as_of=as_of)
    assert all("an archive only grows" in why for why in done.refused.values())
    arrivals.finish()
    exact = 0
    for at_ms in [as_of, *times, *arrivals.asked()]:
        there, here = cut_at(broker.address, at_ms), cut_at(tmp_path / "archive", at_ms)
        assert here.cluster_id == there.cluster_id
        if reasons(here.partitions) == {"exact"}:
            assert here.partitions == there.partitions
            exact += 1
        else:
            assert "future" in reasons(here.partitions)
            assert at_ms != as_of or not done.is_ok
    assert exact > 5
    assert check_archive(InProcessSpark(), archive=tmp_path / "archive").is_ok
    assert merge_archive(InProcessSpark(), archive=tmp_path / "archive").is_ok
    assert restore(
        InProcessSpark(), archive=tmp_path / "archive", target=tmp_path / "r", state=tmp_path / "s"
    ).is_ok


def test_a_directory_and_its_archive_are_cut_alike(
    broker: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    arrivals = Arrivals(broker, clock, 7)
    arrivals.live(60)
    clock.step("9s")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    broker.stop()
    as_of = max(arrivals.now_ms, clock.now_ms())
    assert archived(broker.log_dir, tmp_path, as_of=as_of).is_ok
    arrivals.finish()
    for at_ms in [as_of, *arrivals.asked()]:
        there, here = cut_at(broker.log_dir, at_ms), cut_at(tmp_path / "archive", at_ms)
        if reasons(here.partitions) == {"exact"}:
            assert here.partitions == there.partitions
        else:
            assert (reasons(here.partitions) - {"exact"}, at_ms < as_of) == ({"future"}, True)


def test_a_restored_log_is_cut_as_its_source(
    broker: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    arrivals = Arrivals(broker, clock, 3, aborts=False)
    arrivals.live(60)
    for producer in arrivals.producers:
        if producer.open is not None:
            arrivals.transactions.append(producer.end(commit=True))
    clock.step("9s")
    for topic, number in arrivals.times:
        broker.append(topic, build_batch([LogRecord(3, None, b"v")]), number)
    broker.run(broker.broker.partitions.keep_stamp_clock())
    as_of = max(arrivals.now_ms, clock.now_ms())
    assert archived(broker.address, tmp_path).is_ok
    target = tmp_path / "restored"
    assert restore(
        InProcessSpark(), archive=tmp_path / "archive", target=target, state=tmp_path / "r"
    ).is_ok
    for at_ms in [as_of, *arrivals.asked()]:
        there, here = cut_at(broker.address, at_ms), cut_at(target, at_ms)
        ours = [entry[2:] for entry in map(astuple, here.partitions)]
        assert ours == [entry[2:] for entry in map(astuple, there.partitions)]


def test_a_cut_across_a_reset_is_refused_by_an_archive_too(
    broker: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    batch = build_batch([LogRecord(3, None, b"v")])
    broker.append("a", batch)
    clock.step("1h")
    broker.append("a", batch)
    clock.step("-1h")
    broker.client.topics.reset_append_times("a")
    clock.step("2h")
    broker.append("a", batch)  # its time does not show that there was a reset
    assert archived(broker.address, tmp_path).is_ok
    at_ms = NOW_MS + 1_800_000
    for source in (broker.address, tmp_path / "archive"):
        (entry, *_) = cut_at(source, at_ms).partitions
        assert (entry.offset, (entry.why or "")[:5]) == (1, "reset")


def test_an_archive_of_a_range_of_time_is_not_cut(broker: RunningBroker, tmp_path: Path) -> None:
    broker.append("a", build_batch([LogRecord(3, None, b"v")]))
    assert archived(broker.address, tmp_path, from_=2).is_ok
    entries = cut_at(tmp_path / "archive", NOW_MS).partitions
    assert {entry.why for entry in entries} == {"only a range of time of it is archived"}


def test_a_manifest_of_version_2_is_read_and_has_no_append_times(
    broker: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    broker.append("a", build_batch([LogRecord(3, None, b"v")]))
    assert archived(broker.address, tmp_path).is_ok
    as_version_2(tmp_path / "archive")
    (entry, *_) = cut_at(tmp_path / "archive", NOW_MS).partitions
    assert "does not know its append times" in (entry.why or "")
    clock.step("1s")
    broker.append("a", build_batch([LogRecord(3, None, b"v")]))
    assert archived(broker.address, tmp_path).is_ok
    (entry, *_) = cut_at(tmp_path / "archive", NOW_MS + 1).partitions
    assert (entry.offset, entry.why and entry.why[:7]) == (1, "unknown")
    clock.step("1s")
    broker.append("a", build_batch([LogRecord(3, None, b"v")]))
    assert archived(broker.address, tmp_path).is_ok
    for _ in range(2):
        (entry, *_) = cut_at(tmp_path / "archive", NOW_MS + 1001).partitions
        assert (entry.offset, entry.why) == (2, None)
        assert merge_archive(InProcessSpark(), archive=tmp_path / "archive").is_ok
    assert restore(
        InProcessSpark(), archive=tmp_path / "archive", target=tmp_path / "r", state=tmp_path / "s"
    ).is_ok


def as_version_2(path: Path) -> None:
    """Make an archive that an earlier horolog could have written."""
    store = ArchiveStore(str(path))
    manifest = require_manifest(store)
    document = {"version": 2, **asdict(manifest)}
    for topic in document["topics"].values():
        del topic["cluster_id"]
        for partition in topic["partitions"].values():
            del partition["cut"], partition["times"]
            for range_ in partition["ranges"]:
                del range_["left_out"]
            for file in partition["batches"]:
                facts = pq.ParquetFile(path / file["path"]).read().drop_columns("append_ms")
                pq.write_table(facts, path / file["path"])
    text = json.dumps(document, separators=(",", ":")).encode()
    content = b"%08x %s\n" % (crc32c(text), text)
    (path / f"manifest/{manifest.number:020d}.json").write_bytes(content)


@pytest.mark.parametrize("as_of", [None, NOW_MS + 1500])
def test_an_archive_whose_run_was_killed_is_cut_after_the_next_one(
    broker: RunningBroker,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    as_of: int | None,
) -> None:
    broker.append("a", build_batch([LogRecord(3, None, b"v")]))
    clock.step("1s")
    broker.append("a", build_batch([LogRecord(3, None, b"v")]))
    clock.step("1s")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    with monkeypatch.context() as patched:
        patched.setattr(Planner, "look_back", kill)
        with pytest.raises(KeyboardInterrupt):
            archived(broker.address, tmp_path)
    (entry, *_) = cut_at(tmp_path / "archive", NOW_MS + 1).partitions
    assert "has to be run again" in (entry.why or "")
    archived(broker.address, tmp_path, as_of=as_of)
    (entry, *_) = cut_at(tmp_path / "archive", NOW_MS + 1).partitions
    assert (entry.offset, entry.why) == (1, None)


def kill(*arguments: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("seed", some_of(range(24), 8))
def test_an_archive_of_a_log_that_loses_records_and_is_reset_is_cut_exactly_or_not(
    broker: RunningBroker, clock: ManualClock, seed: int, tmp_path: Path
) -> None:
    arrivals, chance = Arrivals(broker, clock, seed), random.Random(seed)
    for _ in range(5):
        arrivals.live(15)
        key = chance.choice([*arrivals.times])
        match chance.randrange(3):
            case 0:
                end = broker.log(*key).last_stable_offset
                broker.delete_records(key.topic, chance.randrange(end + 1), key.partition)
            case 1:
                clock.step("-20s")
                broker.client.topics.reset_append_times(key.topic)
            case _:
                archived(broker.address, tmp_path, accept_gaps=True)
    clock.step("60s")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    archived(broker.address, tmp_path, accept_gaps=True, as_of=clock.now_ms())
    for at_ms in [clock.now_ms(), *arrivals.asked()]:
        there, here = cut_at(broker.address, at_ms), cut_at(tmp_path / "archive", at_ms)
        for entry, other in zip(here.partitions, there.partitions, strict=True):
            if entry.exact and other.exact:
                assert entry.offset == other.offset
        if reasons(here.partitions) == reasons(there.partitions) == {"exact"}:
            assert here.partitions == there.partitions


@pytest.mark.parametrize("directory", ["clean", "old-formats"])
def test_an_archive_of_another_brokers_directory_is_cut_as_that(
    directory: str, tmp_path: Path
) -> None:
    log_dir = GOLDEN / directory
    where = {"state": tmp_path / "state", "archive": tmp_path / "archive"}
    assert archive(InProcessSpark(), source=log_dir, **where).is_ok
    stamps = {
        row["appendTimeMs"]
        for row in records_of(tmp_path / "archive")
        if row["appendTimeMs"] is not None
    }
    exact = 0
    for at_ms in [0, *sorted(stamps)[:20]]:
        there, here = cut_at(log_dir, at_ms, ".*"), cut_at(tmp_path / "archive", at_ms, ".*")
        others = there.by_partition()
        for key, entry in here.by_partition().items():
            assert not entry.exact or entry == others[key]
            exact += entry.exact and entry.offset > 0
    assert exact > 0


def test_cuts_that_compaction_has_passed_are_refused_and_a_restore_says_so(
    broker: RunningBroker, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        broker.append("a", build_batch([LogRecord(3, b"k", b"v")]))
        clock.step("1s")
    monkeypatch.setattr(type(broker.log("a", 0)), "compacted_to", 2)
    assert archived(broker.address, tmp_path).is_ok
    for source in (broker.address, tmp_path / "archive"):
        passed, later = (cut_at(source, NOW_MS + ms).partitions[0] for ms in (1, 1001))
        assert (passed.offset, reasons((passed,))) == (1, {"compacted"})
        assert (later.offset, later.exact) == (2, True)
    done = restore(
        InProcessSpark(), archive=tmp_path / "archive", target=tmp_path / "r", state=tmp_path / "s"
    )
    assert any("cut the archive" in note for note in done.notes)
