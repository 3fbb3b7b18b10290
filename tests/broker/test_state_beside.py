"""Horolog's own state beside another product's logs, and the files that it was in before."""

import shutil
from pathlib import Path

import pytest
from faulty_calls import failing
from patience import eventually
from running_broker import MakeBroker, RunningBroker
from transactional import Producer

from golden import copy_directory
from horolog.broker import Partition
from horolog.client import CommittedOffset
from horolog.errors import Misconfigured, StorageFailed
from horolog.metadata import state_dir_beside
from horolog.record import iter_headers

TOPICS = {
    "horolog-metadata.log": "__cluster_metadata",
    "horolog-groups.log": "__consumer_offsets",
    "horolog-transactions.log": "__transaction_state",
}


@pytest.fixture
def kafkas(tmp_path: Path) -> Path:
    return copy_directory("clean", tmp_path / "kafka")


def contents(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def as_earlier_versions_left_it(log_dir: Path) -> None:
    """Put the batches of the state directory into files in the log directory."""
    state_dir = state_dir_beside(log_dir)
    for name, topic in TOPICS.items():
        found, offset = bytearray(), 0
        for log in sorted(state_dir.glob(f"{topic}-*/*.log")):
            data = log.read_bytes()
            for position, header in iter_headers(data):
                batch = data[position : position + header.size]
                found += offset.to_bytes(8, "big") + batch[8:]
                offset += header.last_offset_delta + 1
        (log_dir / name).write_bytes(found)
    (state_dir / "horolog-reserve").rename(log_dir / "horolog-reserve")
    shutil.rmtree(state_dir)


def committed(broker: RunningBroker, group: str) -> int | None:
    found = broker.broker.groups.offsets.get(group, "made", 0)
    return None if found is None else found.committed


def end(broker: RunningBroker, producer: Producer, *, commit: bool = True) -> None:
    broker.run(broker.broker.transactions.settle())
    assert producer.end(commit=commit) == 0
    broker.run(broker.broker.transactions.settle())


def used(make_broker: MakeBroker, log_dir: Path) -> tuple[RunningBroker, Producer]:
    """A broker with a topic, offsets of a group and an open transaction."""
    broker = make_broker(log_dir=log_dir, node_id="1")
    broker.create_topic("made", retention_ms="-1")
    broker.client.offset_commit("g", {("made", 0): CommittedOffset(3)})
    producer = Producer(broker)
    assert producer.send("made") == 0
    assert producer.commit_offset("g", "made", 77) == 0
    return broker, producer


@pytest.mark.parametrize("crash", [False, True])
def test_nothing_of_it_is_in_the_log_directory(
    make_broker: MakeBroker, kafkas: Path, crash: bool
) -> None:
    internal = [*kafkas.glob("__*")]
    before = [contents(path) for path in internal]
    broker, producer = used(make_broker, kafkas)
    broker.restart(crash=crash)
    assert committed(broker, "g") == 3
    assert broker.broker.topics.named("made").overrides == {"retention.ms": "-1"}
    end(broker, producer)
    assert committed(broker, "g") == 77
    broker.stop()
    assert [contents(path) for path in internal] == before
    assert not [*kafkas.glob("horolog-*.log")]
    assert {each.name for each in state_dir_beside(kafkas).glob("__*-0")} == {
        f"{topic}-0" for topic in TOPICS.values()
    }


@pytest.mark.parametrize("commit", [False, True])
def test_files_of_earlier_versions_are_taken_over_once(
    make_broker: MakeBroker, kafkas: Path, commit: bool
) -> None:
    broker, producer = used(make_broker, kafkas)
    broker.kill()
    as_earlier_versions_left_it(kafkas)
    for _ in range(2):
        broker.start()
        assert {each.name for each in kafkas.glob("horolog-*")} <= {"horolog-checkpoint-ids"}
        assert committed(broker, "g") == 3
        assert broker.broker.topics.named("made").overrides == {"retention.ms": "-1"}
        assert broker.log("made").last_stable_offset == 0
        broker.kill()
    broker.start()
    end(broker, producer, commit=commit)
    assert committed(broker, "g") == (77 if commit else 3)
    broker.restart(crash=True)
    assert committed(broker, "g") == (77 if commit else 3)


def test_a_start_that_cannot_take_over_all_files_leaves_them_to_the_next(
    make_broker: MakeBroker, kafkas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, producer = used(make_broker, kafkas)
    broker.kill()
    as_earlier_versions_left_it(kafkas)
    with monkeypatch.context() as full:
        failing(full, Partition, "flush", StorageFailed("the disk is full"))
        with pytest.raises(StorageFailed, match="the disk is full"):
            broker.start()
    assert len([*kafkas.glob("horolog-*.log")]) == 3
    broker.start()
    end(broker, producer)
    assert committed(broker, "g") == 77


def test_what_a_shadow_follows_of_coordinators_is_there(
    make_broker: MakeBroker, kafkas: Path, tmp_path: Path
) -> None:
    source, producer = used(make_broker, tmp_path / "source")
    end(source, producer)
    shadow = make_broker(log_dir=kafkas, node_id="1", horolog_follow=source.address)
    for crash in (True, False):
        eventually(
            lambda: (
                [*state_dir_beside(kafkas).glob("__followed_consumer_offsets-*/*.log")]
                and [*state_dir_beside(kafkas).glob("__transaction_state-*/*.log")]
                and committed(shadow, "g") == 77
            )
        )
        assert not [*kafkas.glob("__followed_*")]
        shadow.restart(crash=crash)
    assert committed(shadow, "g") == 77


def test_a_copy_without_it_is_adopted(make_broker: MakeBroker, kafkas: Path) -> None:
    broker, _ = used(make_broker, kafkas)
    broker.stop()
    shutil.copytree(kafkas, kafkas.with_name("copy"))
    copy = make_broker(log_dir=kafkas.with_name("copy"), node_id="1")
    assert copy.broker.topics.named("made").adopted
    assert committed(copy, "g") is None
    assert copy.count("made") == 1


def test_the_state_of_another_cluster_is_refused(make_broker: MakeBroker, kafkas: Path) -> None:
    broker, _ = used(make_broker, kafkas)
    broker.stop()
    with pytest.raises(Misconfigured, match="is the state directory of a log directory"):
        make_broker(log_dir=state_dir_beside(kafkas))
    meta = state_dir_beside(kafkas) / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=another"))
    before = contents(kafkas)
    with pytest.raises(Misconfigured, match=r"in cluster another.*horolog\.state\.dir"):
        broker.start()
    assert contents(kafkas) == before


def test_a_log_directory_that_has_its_name_is_no_state_directory(
    make_broker: MakeBroker, kafkas: Path, tmp_path: Path
) -> None:
    broker = make_broker(log_dir=kafkas, node_id="1", horolog_take_over="true")
    broker.client.offset_commit("g", {("several", 0): CommittedOffset(3)})
    broker.stop()
    backup = state_dir_beside(kafkas)
    shutil.copytree(kafkas, backup)
    before = contents(backup)
    broker.start()
    broker.stop()
    assert contents(backup) == before
    shutil.rmtree(kafkas)
    copy_directory("clean", kafkas)
    with pytest.raises(Misconfigured, match="has the log directory of a broker"):
        make_broker(log_dir=kafkas, node_id="1")


def test_two_log_directories_do_not_share_it(
    make_broker: MakeBroker, kafkas: Path, tmp_path: Path
) -> None:
    state = str(tmp_path / "state")
    make_broker(log_dir=kafkas, node_id="1", horolog_state_dir=state)
    copy = copy_directory("clean", tmp_path / "copy")
    with pytest.raises(Misconfigured, match=r"Failed to acquire lock on file \.lock in .*state"):
        make_broker(log_dir=copy, node_id="1", horolog_state_dir=state)
