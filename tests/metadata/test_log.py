"""The metadata log in both of its forms: what was acknowledged is there at the next start."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from examples import examples
from faultyfiles import FaultyFiles, ForgetfulFiles, Killed
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch, StorageFailed
from horolog.metadata import TOPIC, MetadataLog, snapshots_in
from horolog.record import LogRecord, build_batch, parse_header
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION, NEWEST_LEVEL, Record
from horolog.storage import Files, RecordFile

NOW = 1_700_000_000_000
DIRECTORY = UUID(int=99)
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def opened(path: Path, files: Files | None = None) -> MetadataLog:
    path.mkdir(exist_ok=True)
    return MetadataLog.open(files or Files(), str(path), node_id=1)


def topic(number: int, partitions: int = 1) -> list[Record]:
    topic_id = UUID(int=1000 + number)
    return [
        m.TopicRecord(f"topic-{number}", topic_id),
        *(
            m.PartitionRecord(each, topic_id, (1,), (1,), (), (), 1, 0, 0, 0, (DIRECTORY,))
            for each in range(partitions)
        ),
        m.Config(TOPIC, f"topic-{number}", "retention.ms", str(number)),
    ]


def begun(log: MetadataLog) -> MetadataLog:
    log.append([m.FeatureLevel(METADATA_VERSION, NEWEST_LEVEL)], NOW)
    return log


def state(log: MetadataLog) -> list[bytes]:
    return list(log.image.records())


def test_a_directory_without_a_log_is_only_read_until_the_first_append(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert (log.damage, state(log), list(tmp_path.iterdir())) == ((), [], [])
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_records_are_in_the_image_of_this_and_of_the_next_start(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    for number in range(5):
        expected = log.next_offset
        assert log.append(topic(number, 2), NOW + number) == expected
    log.append([m.RemoveTopic(UUID(int=1003))], NOW + 9)
    before = state(log)
    log.close()
    again = opened(tmp_path)
    assert (again.damage, state(again)) == ((), before)
    assert sorted(again.image.topics) == ["topic-0", "topic-1", "topic-2", "topic-4"]
    assert again.leader_epoch == log.leader_epoch + 1
    expected = again.next_offset
    assert again.append(topic(7), NOW + 10) == expected


def test_each_start_that_appends_leads_in_an_epoch_of_its_own(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        opened(tmp_path).close()
        log = opened(tmp_path)
        assert log.leader_epoch == epoch
        log.append([m.FeatureLevel(METADATA_VERSION, NEWEST_LEVEL)], NOW)
        log.append(topic(epoch), NOW)
        assert log.leader_epoch == epoch


def test_a_snapshot_holds_the_image_and_the_log_goes_on_behind_it(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    for number in range(50):
        log.append(topic(number), NOW)
    log.snapshot(NOW)
    expected = log.next_offset
    assert log.append(topic(50), NOW) == expected
    before = state(log)
    log.close()
    again = opened(tmp_path)
    assert (again.damage, state(again)) == ((), before)
    again.append(topic(51), NOW)
    again.snapshot(NOW)
    again.snapshot(NOW)
    assert state(opened(tmp_path)) == state(again)


def test_records_that_cannot_be_encoded_change_nothing(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    before = state(log)
    with pytest.raises(ValueError, match="cannot be encoded"):
        log.append([*topic(1), m.FeatureLevel("some", 1 << 20)], NOW)
    assert state(log) == before == state(opened(tmp_path))


@pytest.mark.parametrize(
    "records",
    [
        [m.RemoveTopic(UUID(int=1000)), m.RemoveTopic(UUID(int=1000))],
        [*topic(1), *topic(1)[:1], m.TopicRecord("topic-1", UUID(int=5))],
        [m.PartitionRecord(0, UUID(int=5), (), (), (), (), 1)],
        [m.BrokerChange(4, 4)],
    ],
)
def test_records_about_what_is_not_there_change_nothing(
    tmp_path: Path, records: list[Record]
) -> None:
    log = begun(opened(tmp_path))
    log.append(topic(0), NOW)
    before = state(log)
    with pytest.raises(CorruptBatch):
        log.append(records, NOW)
    assert state(log) == before == state(opened(tmp_path))


def test_a_topic_is_removed_and_made_again_in_one_batch(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    log.append(topic(0, 3), NOW)
    topic_id = UUID(int=7)
    partition = m.PartitionRecord(0, topic_id, (1,), (1,), (), (), 1, 0, 0, 0, (DIRECTORY,))
    log.append([m.RemoveTopic(UUID(int=1000)), m.TopicRecord("topic-0", topic_id), partition], NOW)
    assert log.image.topics["topic-0"].partitions == {0: partition}
    assert state(log) == state(opened(tmp_path))


def test_an_append_that_the_disk_refuses_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(None)
    log = begun(opened(tmp_path, files))
    before = state(log)
    start = files.count
    log.append(topic(0), NOW)
    steps = files.count - start
    log.append([m.RemoveTopic(UUID(int=1000))], NOW)
    for step in range(steps):
        files.fail_after(step, NO_SPACE)
        with pytest.raises(StorageFailed):
            log.append(topic(1), NOW + step)
        files.heal()
        assert state(log) == before
        assert state(opened(tmp_path)) == before, step
    log.append(topic(2), NOW)
    assert state(opened(tmp_path)) == state(log)


def test_a_kill_at_any_step_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    def live(path: Path, files: Files, tell: Callable[[list[bytes]], None]) -> None:
        log = opened(path, files)
        for records in (
            [m.FeatureLevel(METADATA_VERSION, NEWEST_LEVEL)],
            topic(1),
            topic(2),
        ):
            log.append(records, NOW)
            tell(state(log))
        log.snapshot(NOW)
        log.append([m.RemoveTopic(UUID(int=1001))], NOW)
        tell(state(log))
        log.close()
        log = opened(path, files)
        log.append(topic(3), NOW)
        tell(state(log))
        log.snapshot(NOW)
        log.append(topic(4), NOW)
        tell(state(log))
        log.close()

    counting = FaultyFiles(None)
    states: list[list[bytes]] = [[]]
    live(tmp_path / "whole", counting, states.append)
    for step in range(counting.count):
        path = tmp_path / str(step)
        told: list[list[bytes]] = [[]]
        with pytest.raises(Killed):
            live(path, FaultyFiles(step, Killed()), told.append)
        log = opened(path)
        assert log.damage == (), step
        assert state(log) in states[len(told) - 1 : len(told) + 1], step
        log.append(topic(9), NOW)
        log.snapshot(NOW)
        log.append(topic(8), NOW)
        again = opened(path)
        assert (again.damage, state(again)) == ((), state(log)), step


# What only Kafka's form has.


def kafkas(path: Path) -> Path:
    return path / "__cluster_metadata-0"


def batches_of(path: Path) -> list[bytes]:
    return [bytes(batch) for batch in RecordFile(Files(), str(path)).read()]


def with_batch(path: Path, records: list[Record], *, epoch: int = 1) -> None:
    """Append what a controller of Kafka's might have."""
    log = RecordFile(Files(), str(kafkas(path) / f"{0:020}.log"))
    for _ in log.read():
        pass
    values = [LogRecord(NOW, None, m.encode(record)) for record in records]
    with open(log.path, "ab") as file:
        file.write(build_batch(values, leader_epoch=epoch, base_offset=log.next_offset))


def test_a_new_log_has_the_files_that_kafka_looks_for(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    log.close()
    directory = kafkas(tmp_path)
    topic_id = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert (directory / "partition.metadata").read_text() == topic_id
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"
    first, second = map(parse_header, batches_of(directory / f"{0:020}.log"))
    assert (first.is_control, first.leader_epoch, first.base_offset) == (True, 1, 0)
    assert (second.is_control, second.leader_epoch, second.base_offset) == (False, 1, 1)


def test_the_epoch_is_above_that_of_the_quorum_and_of_the_log(tmp_path: Path) -> None:
    begun(opened(tmp_path)).close()
    state_file = kafkas(tmp_path) / "quorum-state"
    state_file.write_text('{"leaderId":1,"leaderEpoch":7,"data_version":0}')
    log = opened(tmp_path)
    assert log.leader_epoch == 8
    log.append(topic(1), NOW)
    log.close()
    assert opened(tmp_path).leader_epoch == 9
    for damaged in ("{", '{"leaderEpoch":"x"}', "[" * 10_000, '{"leaderEpoch":1e99}', "\0"):
        state_file.write_text(damaged)
        log = opened(tmp_path)
        assert log.damage == ()
        assert log.leader_epoch == 9
        assert list(log.image.topics) == ["topic-1"]


@pytest.mark.parametrize("content", [bytes(12), b"0\n1\n1", b"\xff" * 40, b""])
def test_a_damaged_file_of_leader_epochs_loses_nothing_of_the_metadata(
    tmp_path: Path, content: bytes
) -> None:
    log = begun(opened(tmp_path))
    log.append(topic(1), NOW)
    log.close()
    path = kafkas(tmp_path) / "leader-epoch-checkpoint"
    path.write_bytes(content)
    log = opened(tmp_path)
    assert (log.damage, list(log.image.topics), log.leader_epoch) == ((), ["topic-1"], 2)
    log.append(topic(2), NOW)
    log.close()
    assert path.read_text().startswith("0\n2\n1 0\n2 ")


def test_records_of_a_transaction_count_once_it_has_ended(tmp_path: Path) -> None:
    begun(opened(tmp_path)).close()
    with_batch(tmp_path, [m.BeginTransaction("some"), *topic(1)])
    with_batch(tmp_path, [*topic(2), m.EndTransaction()])
    with_batch(tmp_path, [m.BeginTransaction(), *topic(3), m.AbortTransaction("no")])
    with_batch(tmp_path, [*topic(4), m.BeginTransaction(), *topic(5)])
    log = opened(tmp_path)
    assert (log.damage, list(log.image.topics)) == ((), ["topic-1", "topic-2", "topic-4"])
    # What horolog appends is no part of the transaction that has not ended.
    expected = log.next_offset
    assert log.append(topic(6), NOW) == expected
    names = ["topic-1", "topic-2", "topic-4", "topic-6"]
    assert list(log.image.topics) == names
    log.close()
    assert list(opened(tmp_path).image.topics) == names


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    log.append(topic(1), NOW)
    log.append(topic(2), NOW)
    path = path_of(tmp_path)
    size = sum(map(len, batches_of(path)))
    with path.open("r+b") as file:
        file.truncate(size - 5)
    again = opened(tmp_path)
    assert (again.damage, list(again.image.topics)) == ((), ["topic-1"])
    again.append(topic(3), NOW)
    assert list(opened(tmp_path).image.topics) == ["topic-1", "topic-3"]


def test_a_torn_tail_is_damage_where_the_last_stop_was_clean(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    log.append(topic(1), NOW)
    log.append(topic(2), NOW)
    log.close()
    path = path_of(tmp_path)
    size = sum(map(len, batches_of(path)))
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.touch()
    assert opened(tmp_path).damage == ()
    with path.open("r+b") as file:
        file.truncate(size - 5)
    (what,) = opened(tmp_path).damage
    assert "though the last stop was clean" in what
    marker.unlink()
    assert opened(tmp_path).damage == ()


def path_of(path: Path) -> Path:
    return kafkas(path) / f"{0:020}.log"


@pytest.mark.parametrize("number", range(1, 7))
def test_what_is_damaged_is_named_and_all_else_counts(tmp_path: Path, number: int) -> None:
    log = begun(opened(tmp_path))
    for each in range(5):
        log.append(topic(each), NOW)
    log.close()
    path = path_of(tmp_path)
    batches = batches_of(path)
    damaged = bytearray(b"".join(batches))
    damaged[sum(map(len, batches[:number])) + 70] ^= 1
    path.write_bytes(damaged)
    again = opened(tmp_path)
    assert again.damage
    lost = {f"topic-{number - 2}"} if number > 1 else set()
    expected = {f"topic-{each}" for each in range(5)} - lost
    assert set(again.image.topics) == expected
    again.append(topic(7), NOW)
    expected.add("topic-7")
    assert set(again.image.topics) == expected
    # It is whole from here on, and nothing of the damaged file is gone.
    whole = opened(tmp_path)
    assert (whole.damage, set(whole.image.topics)) == ((), expected)
    kept = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
    assert any(bytes(damaged[-100:]) in each for each in kept)


def test_a_kill_at_any_step_of_going_on_after_damage_loses_no_more(tmp_path: Path) -> None:
    log = begun(opened(tmp_path / "damaged"))
    for each in range(3):
        log.append(topic(each), NOW)
    log.snapshot(NOW)
    log.append(topic(3), NOW)
    log.append(topic(4), NOW)
    log.append(topic(5), NOW)
    log.close()
    path = path_of(tmp_path / "damaged")
    batches = batches_of(path)
    damaged = bytearray(b"".join(batches))
    for number in (2, 6):  # topic-0, which the snapshot has, and topic-4
        damaged[sum(map(len, batches[:number])) + 70] ^= 1
    path.write_bytes(damaged)
    expected = {f"topic-{each}" for each in range(6) if each != 4}

    def live(directory: Path, files: Files) -> None:
        log = opened(directory, files)
        assert set(log.image.topics) == expected
        log.append([m.FeatureLevel("some.feature", 1)], NOW)
        log.append(topic(7), NOW)
        log.close()

    counting = FaultyFiles(None)
    shutil.copytree(tmp_path / "damaged", tmp_path / "whole")
    live(tmp_path / "whole", counting)
    for step in range(counting.count):
        directory = tmp_path / str(step)
        shutil.copytree(tmp_path / "damaged", directory)
        with pytest.raises(Killed):
            live(directory, FaultyFiles(step, Killed()))
        log = opened(directory)
        assert set(log.image.topics) - {"topic-7"} == expected, step
        log.append(topic(8), NOW)
        again = opened(directory)
        assert again.damage == (), step
        assert set(again.image.topics) - {"topic-7"} == {*expected, "topic-8"}, step


def test_what_a_failed_sync_left_in_doubt_is_written_again(tmp_path: Path) -> None:
    files = ForgetfulFiles()
    log = begun(opened(tmp_path, files))
    log.append(topic(0), NOW)
    files.fails = True
    with pytest.raises(StorageFailed):
        log.append(topic(1), NOW)
    files.fails = False
    log.append(topic(2), NOW)
    log.append(topic(3), NOW)
    disk = path_of(tmp_path / "disk")
    disk.parent.mkdir(parents=True)
    for path in sorted(path_of(tmp_path).parent.glob("*.log")):
        (disk.parent / path.name).write_bytes(files.on_disk(str(path)))
    log = opened(tmp_path / "disk")
    assert (log.damage, list(log.image.topics)) == ((), ["topic-0", "topic-2", "topic-3"])


def test_a_damaged_snapshot_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    for each in range(4):
        log.append(topic(each), NOW)
        log.snapshot(NOW)
    log.append(topic(4), NOW)
    log.close()
    names = [f"topic-{each}" for each in range(5)]
    snapshots = sorted(kafkas(tmp_path).glob("*.checkpoint"))
    assert len(snapshots) == 4
    snapshots[3].write_bytes(snapshots[3].read_bytes()[:-10])
    damaged = bytearray(snapshots[2].read_bytes())
    damaged[100] ^= 1
    snapshots[2].write_bytes(damaged)
    again = opened(tmp_path)
    assert sorted(again.image.topics) == names
    assert len(again.damage) == 2
    assert snapshots[3].name in again.damage[0]
    again.append(topic(5), NOW)
    whole = opened(tmp_path)
    assert (whole.damage, sorted(whole.image.topics)) == ((), [*names, "topic-5"])


def test_something_else_in_the_place_of_a_segment_is_moved_out_of_the_way(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    log.append(topic(0), NOW)
    log.snapshot(NOW)
    log.append(topic(1), NOW)
    log.close()
    segment = path_of(tmp_path)
    segment.unlink()
    segment.mkdir()
    again = opened(tmp_path)
    assert list(again.image.topics) == ["topic-0"]
    assert "not a regular file" in again.damage[0]
    again.append(topic(2), NOW)
    whole = opened(tmp_path)
    assert (whole.damage, list(whole.image.topics)) == ((), ["topic-0", "topic-2"])


def test_something_else_in_the_place_of_a_snapshot_is_moved_out_of_the_way(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    log.append(topic(0), NOW)
    log.snapshot(NOW)
    log.close()
    (snapshot,) = kafkas(tmp_path).glob("*.checkpoint")
    snapshot.unlink()
    snapshot.symlink_to("/etc/passwd")
    (kafkas(tmp_path) / f"{snapshot.name}.part").write_bytes(b"interrupted")
    again = opened(tmp_path)
    assert "symbolic link" in again.damage[0]
    again.append(topic(1), NOW)
    whole = opened(tmp_path)
    assert (whole.damage, list(whole.image.topics)) == ((), ["topic-0", "topic-1"])
    assert not list(kafkas(tmp_path).glob("*.part"))
    assert snapshot.is_file()
    assert not snapshot.is_symlink()


def test_a_log_without_what_comes_behind_its_snapshot_says_so(tmp_path: Path) -> None:
    log = begun(opened(tmp_path))
    log.append(topic(0), NOW)
    log.snapshot(NOW)
    log.append(topic(1), NOW)
    log.close()
    (kafkas(tmp_path) / f"{0:020}.log").unlink()
    again = opened(tmp_path)
    assert list(again.image.topics) == ["topic-0"]
    again.append(topic(2), NOW)
    whole = opened(tmp_path)
    assert (whole.damage, list(whole.image.topics)) == ((), ["topic-0", "topic-2"])


def test_history_is_kept_for_a_year(tmp_path: Path) -> None:
    day = 86_400_000
    log = begun(opened(tmp_path))
    for number in range(60):
        log.append(topic(number), NOW + 10 * number * day)
        log.snapshot(NOW + 10 * number * day)
    log.close()
    kept = snapshots_in(each.name for each in kafkas(tmp_path).iterdir())
    assert 36 <= len(kept) <= 39
    bases = sorted(int(each.stem) for each in kafkas(tmp_path).glob("*.log"))
    assert 30 < len(bases) < 45  # a segment has seven days at most
    assert bases[0] <= kept[0].end_offset
    again = opened(tmp_path)
    assert (again.damage, len(again.image.topics)) == ((), 60)


def test_a_log_is_followed_by_a_snapshot_where_it_has_grown(tmp_path: Path) -> None:
    log = MetadataLog.open(Files(), str(tmp_path), node_id=1, snapshot_bytes=5000)
    begun(log)
    for number in range(100):
        log.append(topic(number % 10), NOW)
        log.append([m.RemoveTopic(UUID(int=1000 + number % 10))], NOW)
    log.close()
    assert 3 < len(list(kafkas(tmp_path).glob("*.checkpoint"))) < 12
    again = opened(tmp_path)
    assert (again.damage, list(again.image.topics)) == ((), [])


def test_a_large_snapshot_is_made_again_only_after_as_many_changes(tmp_path: Path) -> None:
    def reopened() -> MetadataLog:
        return MetadataLog.open(Files(), str(tmp_path), node_id=1, snapshot_bytes=1000)

    def snapshots() -> int:
        return len(list(kafkas(tmp_path).glob("*.checkpoint")))

    log = begun(reopened())
    log.append(topic(0, 300), NOW)  # some 20 kB, with a snapshot of as many behind it
    before = snapshots()
    for _ in range(20):
        log.append([m.FeatureLevel("some", 1)], NOW)
        log.close()
        log = reopened()
    assert snapshots() == before == 1


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    kafkas(tmp_path).symlink_to("/tmp")
    with pytest.raises(StorageFailed, match="not a directory"):
        opened(tmp_path)


@examples(1)
@given(st.data())
def test_any_damage_is_read_within_bounds_and_appended_behind(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    tmp_path = tmp_path_factory.mktemp("log")
    log = begun(opened(tmp_path))
    for number in range(3):
        log.append(topic(number), NOW)
        if data.draw(st.booleans()):
            log.snapshot(NOW)
    log.close()
    paths = sorted(each for each in kafkas(tmp_path).iterdir() if each.stat().st_size)
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(paths))
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, min(len(content), 2000) - 1))
        content[place] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
    log = opened(tmp_path)
    log.append([m.FeatureLevel("some.feature", 3)], NOW)
    before = set(state(log))
    again = opened(tmp_path)
    assert set(state(again)) == before
    assert again.damage == ()
