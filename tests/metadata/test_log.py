"""The metadata log in both of its forms: what was acknowledged is there at the next start."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from faultyfiles import FaultyFiles, Killed

from horolog.errors import StorageFailed
from horolog.metadata.image import TOPIC
from horolog.metadata.log import MetadataLog
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION, NEWEST_LEVEL, Record
from horolog.storage.files import Files

NOW = 1_700_000_000_000
DIRECTORY = UUID(int=99)
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(params=["kafka", "one-file"])
def in_one_file(request: pytest.FixtureRequest) -> bool:
    return str(request.param) == "one-file"


def opened(path: Path, in_one_file: bool, files: Files | None = None) -> MetadataLog:
    path.mkdir(exist_ok=True)
    return MetadataLog.open(files or Files(), str(path), node_id=1, in_one_file=in_one_file)


def topic(number: int, partitions: int = 1) -> list[Record]:
    topic_id = UUID(int=1000 + number)
    return [
        m.Topic(f"topic-{number}", topic_id),
        *(
            m.Partition(each, topic_id, (1,), (1,), (), (), 1, 0, 0, 0, (DIRECTORY,))
            for each in range(partitions)
        ),
        m.Config(TOPIC, f"topic-{number}", "retention.ms", str(number)),
    ]


def begun(log: MetadataLog) -> MetadataLog:
    log.append([m.FeatureLevel(METADATA_VERSION, NEWEST_LEVEL)], NOW)
    return log


def state(log: MetadataLog) -> list[bytes]:
    return list(log.image.records())


def test_a_directory_without_a_log_is_only_read_until_the_first_append(
    tmp_path: Path, in_one_file: bool
) -> None:
    log = opened(tmp_path, in_one_file)
    assert (log.damage, state(log), list(tmp_path.iterdir())) == ((), [], [])
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_records_are_in_the_image_of_this_and_of_the_next_start(
    tmp_path: Path, in_one_file: bool
) -> None:
    log = begun(opened(tmp_path, in_one_file))
    for number in range(5):
        expected = log.next_offset
        assert log.append(topic(number, 2), NOW + number) == expected
    log.append([m.RemoveTopic(UUID(int=1003))], NOW + 9)
    before = state(log)
    log.close()
    again = opened(tmp_path, in_one_file)
    assert (again.damage, state(again)) == ((), before)
    assert sorted(again.image.topics) == ["topic-0", "topic-1", "topic-2", "topic-4"]
    assert again.leader_epoch == log.leader_epoch + 1
    expected = again.next_offset
    assert again.append(topic(7), NOW + 10) == expected


def test_each_start_that_appends_leads_in_an_epoch_of_its_own(
    tmp_path: Path, in_one_file: bool
) -> None:
    for epoch in (1, 2, 3):
        opened(tmp_path, in_one_file).close()
        log = opened(tmp_path, in_one_file)
        assert log.leader_epoch == epoch
        log.append([m.FeatureLevel(METADATA_VERSION, NEWEST_LEVEL)], NOW)
        log.append(topic(epoch), NOW)
        assert log.leader_epoch == epoch


def test_a_snapshot_holds_the_image_and_the_log_goes_on_behind_it(
    tmp_path: Path, in_one_file: bool
) -> None:
    log = begun(opened(tmp_path, in_one_file))
    for number in range(50):
        log.append(topic(number), NOW)
    log.snapshot(NOW)
    expected = log.next_offset
    assert log.append(topic(50), NOW) == expected
    before = state(log)
    log.close()
    again = opened(tmp_path, in_one_file)
    assert (again.damage, state(again)) == ((), before)
    again.append(topic(51), NOW)
    again.snapshot(NOW)
    again.snapshot(NOW)
    assert state(opened(tmp_path, in_one_file)) == state(again)


def test_records_that_cannot_be_encoded_change_nothing(tmp_path: Path, in_one_file: bool) -> None:
    log = begun(opened(tmp_path, in_one_file))
    before = state(log)
    with pytest.raises(ValueError, match="cannot be encoded"):
        log.append([*topic(1), m.FeatureLevel("some", 1 << 20)], NOW)
    assert state(log) == before == state(opened(tmp_path, in_one_file))


def test_an_append_that_the_disk_refuses_changes_nothing(tmp_path: Path, in_one_file: bool) -> None:
    files = FaultyFiles(None)
    log = begun(opened(tmp_path, in_one_file, files))
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
        assert state(opened(tmp_path, in_one_file)) == before, step
    log.append(topic(2), NOW)
    assert state(opened(tmp_path, in_one_file)) == state(log)


def test_a_kill_at_any_step_loses_nothing_that_was_acknowledged(
    tmp_path: Path, in_one_file: bool
) -> None:
    def live(path: Path, files: Files, tell: Callable[[list[bytes]], None]) -> None:
        log = opened(path, in_one_file, files)
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
        log = opened(path, in_one_file, files)
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
        log = opened(path, in_one_file)
        assert log.damage == (), step
        assert state(log) in states[len(told) - 1 : len(told) + 1], step
        log.append(topic(9), NOW)
        log.snapshot(NOW)
        log.append(topic(8), NOW)
        again = opened(path, in_one_file)
        assert (again.damage, state(again)) == ((), state(log)), step
