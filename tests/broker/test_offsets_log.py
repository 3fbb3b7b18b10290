"""Groups and committed offsets in `__consumer_offsets`: made, written together, loaded, carried."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from uuid import UUID

import pytest
from faulty_calls import failing
from running_broker import MakeBroker, RunningBroker, a_broker

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups import Committer, GroupChange, GroupReplay, GroupRow, OffsetRow, records_of
from horolog.record import LogRecord, build_batch, parse_header, read_records
from horolog.schemas.group_records import (
    AssignedTopic,
    CurrentKey,
    CurrentValue,
    GroupEpochKey,
    GroupEpochValue,
    MemberKey,
    PartitionMetadataKey,
)
from horolog.schemas.offsets import key_bytes, partition_for
from horolog.storage import CONSUMER_OFFSETS, GROUPS_FILE

ALONE = Committer("", None, -1)


broker = a_broker("t", now_ms=None, offsets_topic_num_partitions="3")


def row(broker: RunningBroker, group: str, committed: int, metadata: str = "") -> OffsetRow:
    topic = broker.service.broker.topics.find("t")
    now_ms = broker.service.broker.clock.now_ms()
    return OffsetRow(group, "t", 0, committed, -1, metadata, now_ms, None, topic.topic_id)


def commit(broker: RunningBroker, group: str, committed: int, metadata: str = "") -> None:
    rows = [row(broker, group, committed, metadata)]
    broker.run(broker.service.broker.groups.commit(group, ALONE, lambda: rows))


def committed(broker: RunningBroker, group: str) -> int | None:
    found = broker.service.broker.groups.offsets.get(group, "t", 0)
    return None if found is None else found.committed


def batches(broker: RunningBroker, group: str) -> list[bytes]:
    taken: list[bytes] = []
    index = partition_for(group, 3)
    topic = broker.service.broker.offsets_topic
    broker.run(topic.load(index, lambda batch: taken.append(bytes(batch))))
    return taken


def directories(broker: RunningBroker) -> list[Path]:
    return [*broker.log_dir.glob(f"{CONSUMER_OFFSETS}-*")]


def test_a_broker_without_groups_has_no_topic_of_them(broker: RunningBroker) -> None:
    assert not directories(broker)
    commit(broker, "g", 5)
    assert len(directories(broker)) == 3
    assert not (broker.log_dir / GROUPS_FILE).exists()


@pytest.mark.parametrize("crash", [False, True])
def test_what_was_committed_counts_after_a_restart(broker: RunningBroker, crash: bool) -> None:
    for group in ("g", "h", "ï𝄞"):
        for offset in range(3):
            commit(broker, group, offset)
    broker.restart(crash=crash)
    assert [committed(broker, group) for group in ("g", "h", "ï𝄞")] == [2, 2, 2]
    replay = GroupReplay()
    for batch in batches(broker, "g"):
        replay.take(batch)
    offsets = replay.stored(lambda name: offsets_topic_id(broker)).offsets
    assert {each.group_id: each.committed for each in offsets}["g"] == 2


def offsets_topic_id(broker: RunningBroker) -> object:
    return broker.service.broker.topics.find("t").topic_id


def test_what_is_committed_while_a_large_commit_is_written_shares_batches(
    broker: RunningBroker,
) -> None:
    commit(broker, "g0", 0)
    groups = [f"g{n}" for n in range(50)]
    before = {g: len(batches(broker, g)) for g in groups}

    async def together() -> None:
        commits = broker.service.broker.groups.commit
        large = commits("large", ALONE, lambda: [row(broker, "large", 7)] * 300)
        await asyncio.gather(large, *(commit_of(group, commits) for group in groups))

    def commit_of(group: str, commits: Callable[..., Awaitable[None]]) -> Awaitable[None]:
        rows = [row(broker, group, 7)]
        return commits(group, ALONE, lambda: rows)

    broker.run(together())
    assert [committed(broker, group) for group in ("large", *groups)] == [7] * 51
    assert all(len(batches(broker, g)) - before[g] <= 2 for g in groups)


def test_a_small_commit_is_in_the_log_before_anything_else_is_begun(broker: RunningBroker) -> None:
    commit(broker, "g", 0)
    before = len(batches(broker, "g"))

    async def begin() -> int:
        commits = broker.service.broker.groups.commit
        with pytest.raises(StopIteration):
            commits("g", ALONE, lambda: [row(broker, "g", 7)]).send(None)
        return committed(broker, "g") or 0

    assert broker.run(begin()) == 7
    assert len(batches(broker, "g")) == before + 1


def test_a_deleted_group_leaves_tombstones_and_does_not_come_back(broker: RunningBroker) -> None:
    commit(broker, "g", 5)
    broker.run(broker.service.broker.groups.delete("g"))
    broker.restart(crash=True)
    assert committed(broker, "g") is None
    assert broker.service.broker.groups.describe("g") is None


def test_offsets_of_a_topic_that_is_made_again_are_gone(broker: RunningBroker) -> None:
    commit(broker, "g", 5)
    broker.client.delete_topics(["t"])
    broker.create_topic("t")
    broker.restart(crash=True)
    assert committed(broker, "g") is None


def test_a_commit_that_no_batch_can_hold_fails_alone(make_broker: MakeBroker) -> None:
    broker = make_broker(offsets_topic_num_partitions="1", offsets_topic_segment_bytes="1000")
    broker.create_topic("t")
    commit(broker, "g", 5)
    with pytest.raises(Exception, match="bytes"):
        commit(broker, "h", 6, "x" * 2000)
    commit(broker, "g", 7)
    broker.restart()
    assert (committed(broker, "g"), committed(broker, "h")) == (7, None)


def test_a_file_of_groups_is_carried_once_the_directory_is_ours(broker: RunningBroker) -> None:
    commit(broker, "g", 5)
    commit(broker, "h", 9)
    older, newer = row(broker, "g", 1), row(broker, "h", 10)
    broker.stop()
    path = broker.log_dir / GROUPS_FILE
    change = GroupChange(
        groups=[GroupRow("only", "consumer", 80)],
        offsets=[
            older._replace(commit_ms=older.commit_ms - 10_000),
            newer._replace(commit_ms=newer.commit_ms + 10_000),
            newer._replace(group_id="i", committed=3),
        ],
        records=joined("modern", 2).records,
    )
    path.write_bytes(build_batch(records_of(change, 1)))
    for _ in range(2):
        broker.start()
        assert [committed(broker, group) for group in "ghi"] == [5, 10, 3]
        assert broker.service.broker.groups.describe("only") is not None
        assert consumers(broker, "modern")["modern"] == change.records
        assert not path.exists()
        broker.kill()


def test_a_file_of_groups_that_the_topic_is_ahead_of_goes_and_brings_nothing_back(
    broker: RunningBroker,
) -> None:
    commit(broker, "g", 5)
    known = row(broker, "g", 1)
    broker.stop()
    path = broker.log_dir / GROUPS_FILE
    change = GroupChange(
        groups=[GroupRow("g", "", None)],
        offsets=[known._replace(commit_ms=known.commit_ms - 10_000)],
    )
    path.write_bytes(build_batch(records_of(change, 1)))
    broker.start()
    assert committed(broker, "g") == 5
    assert not path.exists()
    broker.run(broker.service.broker.groups.delete("g"))
    broker.restart(crash=True)
    assert committed(broker, "g") is None


def test_a_batch_is_one_of_kafkas_kind(broker: RunningBroker) -> None:
    commit(broker, "g", 5)
    (*_, last) = batches(broker, "g")
    header = parse_header(last)
    assert (header.magic, header.producer_id, header.is_control) == (2, -1, False)


def test_what_cannot_be_written_for_want_of_memory_leaves_no_commit_waiting(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(broker, "g", 5)
    with monkeypatch.context() as patched:
        failing(patched, broker.service.broker.offsets_topic, "append", MemoryError())
        with pytest.raises(MemoryError):
            commit(broker, "g", 6)
    assert committed(broker, "g") == 5
    commit(broker, "g", 7)
    assert committed(broker, "g") == 7


def joined(group: str, members: int, partitions: int = 1) -> GroupChange:
    """Records of members that join a consumer group."""
    assigned = (AssignedTopic(UUID(int=9), tuple(range(partitions)), (1,) * partitions),)
    current = CurrentValue(1, 0, 0, assigned)
    records = [(CurrentKey(group, f"m{number}"), current) for number in range(members)]
    return GroupChange(records=[(GroupEpochKey(group), GroupEpochValue(2)), *records])


def write(broker: RunningBroker, *changes: GroupChange) -> list[Exception | None]:
    async def writing() -> list[Exception | None]:
        outcomes = broker.service.broker.offsets_log.write_groups(changes)
        return outcomes if isinstance(outcomes, list) else await outcomes

    return broker.run(writing())


def consumers(broker: RunningBroker, group: str) -> Mapping[str, object]:
    replay = GroupReplay()
    for batch in batches(broker, group):
        replay.take(batch)
    return replay.stored(lambda _: None).consumer


@pytest.mark.parametrize("members", [1, 500])
def test_records_of_a_consumer_group_are_in_one_batch_and_come_back(
    broker: RunningBroker, members: int
) -> None:
    commit(broker, "c", 0)
    before = len(batches(broker, "c"))
    change = joined("c", members)
    assert write(broker, change) == [None]
    assert len(batches(broker, "c")) == before + 1
    broker.restart(crash=True)
    assert consumers(broker, "c") == {"c": change.records}


def test_records_of_a_consumer_group_that_no_batch_can_hold_are_refused(
    broker: RunningBroker,
) -> None:
    commit(broker, "c", 0)
    refused, done = write(broker, joined("c", 110, 10_000), joined("c", 1))
    assert isinstance(refused, RequestRefused)
    assert (refused.code, done) == (ErrorCode.message_too_large, None)
    assert consumers(broker, "c") == {"c": joined("c", 1).records}


def test_a_drop_of_very_many_records_is_in_several_batches(broker: RunningBroker) -> None:
    commit(broker, "c", 0)
    members = "m" * 30_000
    keys = [CurrentKey("c", f"{members}{number}") for number in range(300)]
    drop = GroupChange(records=[*((key, None) for key in keys), (GroupEpochKey("c"), None)])
    assert write(broker, joined("c", 1), drop) == [None, None]
    *_, last = ([*read_records(batch)] for batch in batches(broker, "c"))
    assert last[-1].key == key_bytes(GroupEpochKey("c"))
    assert 1 < len(last) < len(keys)


def test_records_of_a_group_that_is_of_another_type_since_are_dropped(
    broker: RunningBroker,
) -> None:
    commit(broker, "c", 0)
    classic = GroupChange([GroupRow("c", "consumer", 5, 7)])
    assert write(broker, joined("c", 3), classic) == [None, None]
    broker.restart(crash=True)
    group = broker.service.broker.groups.describe("c")
    assert group is not None
    assert group.protocol_type == "consumer"
    broker.restart()  # which waits for what is being written
    replay = GroupReplay()
    for batch in batches(broker, "c"):
        replay.take(batch)
    assert replay.count == 2  # the group and its offset
    assert replay.stored(lambda _: None).owed == {}


def test_records_that_cannot_be_read_are_counted_in_the_log_of_the_broker(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    commit(broker, "c", 0)
    odd = GroupChange(records=[(PartitionMetadataKey("c"), b"")])
    bad = build_batch([LogRecord(1, key_bytes(MemberKey("c", "m")), b"\0\7")])
    topic = broker.service.broker.offsets_topic
    index = partition_for("c", 3)

    async def append() -> None:
        topic.append(index, topic.prepared(index, bad))

    broker.run(append())
    assert write(broker, odd) == [None]
    broker.restart(crash=True)
    assert committed(broker, "c") == 0
    assert "1 records cannot be read and are left out" in caplog.text
    assert "has version 7" in caplog.text
