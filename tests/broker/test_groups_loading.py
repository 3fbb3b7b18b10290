"""Groups are loaded while the broker serves: what is not loaded yet is in progress, not absent."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from faulty_calls import failing
from overrides import override
from running_broker import RunningBroker, a_broker

from horolog.broker import StateTopic
from horolog.buffers import Buffer
from horolog.errors import ErrorCode, StorageFailed
from horolog.groups import Committer
from horolog.schemas.offsets import partition_for
from horolog.wire import ApiKey

ALONE = Committer("", None, -1)
IN_PROGRESS = ErrorCode.coordinator_load_in_progress
COMMIT = {"generation_id_or_member_epoch": -1, "member_id": ""}


def commit_once(broker: RunningBroker) -> None:
    for group in ("g", "h"):
        assert partition_for(group, 2) == "gh".index(group) ^ 1
        assert commit(broker, group, 5) == 0


broker = a_broker("t", now_ms=None, offsets_topic_num_partitions="2", prepare=commit_once)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Partitions that cannot be loaded until they are taken out of this."""
    partitions: set[int] = set()
    held = StorageFailed("held")
    failing(monkeypatch, StateTopic, "load", held, when=lambda _, index, __: index in partitions)
    return partitions


def commit(broker: RunningBroker, group: str, offset: int) -> int:
    partition = {"partition_index": 0, "committed_offset": offset}
    topics = [{"name": "t", "partitions": [partition]}]
    answer = broker.ask(ApiKey.OFFSET_COMMIT, 8, group_id=group, topics=topics, **COMMIT)
    return int(answer.topics[0].partitions[0].error_code)


def fetched(broker: RunningBroker, group: str, version: int = 8) -> tuple[int, int | None]:
    """The error of a group, and its committed offset."""
    topics = [{"name": "t", "partition_indexes": [0]}]
    if version < 8:
        answer = broker.ask(ApiKey.OFFSET_FETCH, version, group_id=group, topics=topics)
    else:
        groups = [{"group_id": group, "topics": topics}]
        (answer,) = broker.ask(ApiKey.OFFSET_FETCH, version, groups=groups).groups
    error = int(getattr(answer, "error_code", 0))
    if error:
        assert not answer.topics
        return error, None
    (partition,) = answer.topics[0].partitions
    return int(partition.error_code), partition.committed_offset


def settled(broker: RunningBroker) -> None:
    """Wait until all is loaded."""

    async def wait() -> None:
        while broker.service.broker.groups.is_loading:
            await asyncio.sleep(0.01)

    broker.run(wait())


@pytest.mark.parametrize("crash", [False, True])
def test_a_group_that_is_not_loaded_is_in_progress_and_its_neighbours_are_served(
    broker: RunningBroker, held: set[int], crash: bool
) -> None:
    held.add(partition_for("g", 2))
    broker.restart(crash=crash)
    assert fetched(broker, "h") == (0, 5)
    assert commit(broker, "h", 6) == 0
    assert commit(broker, "g", 6) == IN_PROGRESS
    for version in (1, 2, 5, 7, 8, 9):
        assert fetched(broker, "g", version)[0] == IN_PROGRESS, version
    described = broker.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g", "h"]).groups
    assert [each.error_code for each in described] == [IN_PROGRESS, 0]
    listed = broker.ask(ApiKey.LIST_GROUPS, 4)
    assert (listed.error_code, [each.group_id for each in listed.groups]) == (IN_PROGRESS, ["h"])
    deleted = broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"]).results
    assert [each.error_code for each in deleted] == [IN_PROGRESS]
    assert join(broker, "g") == leave(broker, "g") == offset_delete(broker, "g") == IN_PROGRESS
    assert heartbeat(broker, "g") == 0  # as Kafka: the next one tells
    held.clear()
    settled(broker)
    assert fetched(broker, "g") == (0, 5)
    assert commit(broker, "g", 7) == 0
    listed = broker.ask(ApiKey.LIST_GROUPS, 4)
    assert (listed.error_code, {each.group_id for each in listed.groups}) == (0, {"g", "h"})


def join(broker: RunningBroker, group: str) -> int:
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return int(broker.ask(ApiKey.JOIN_GROUP, 5, **fields).error_code)


def leave(broker: RunningBroker, group: str) -> int:
    members = [{"member_id": "m"}]
    answer = broker.ask(ApiKey.LEAVE_GROUP, 4, group_id=group, members=members)
    return int(answer.error_code)


def heartbeat(broker: RunningBroker, group: str) -> int:
    fields = {"group_id": group, "generation_id": 1, "member_id": "m"}
    return int(broker.ask(ApiKey.HEARTBEAT, 4, **fields).error_code)


def offset_delete(broker: RunningBroker, group: str) -> int:
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    return int(broker.ask(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=topics).error_code)


def test_offsets_of_a_topic_that_is_deleted_while_they_are_loaded_do_not_come_back(
    broker: RunningBroker, held: set[int]
) -> None:
    held.add(partition_for("g", 2))
    broker.restart()
    broker.client.delete_topics(["t"])
    broker.create_topic("t")
    held.clear()
    settled(broker)
    assert fetched(broker, "g") == fetched(broker, "h") == (0, -1)


def test_commits_that_are_superseded_are_passed_where_the_history_is_long(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in range(300):
        assert commit(broker, "h", offset) == 0
    taken: list[int] = []
    load = StateTopic.load

    async def counting(self: StateTopic, index: int, take: Callable[[Buffer], None]) -> None:
        def count(batch: Buffer) -> None:
            taken.append(index)
            take(batch)

        await load(self, index, count)

    monkeypatch.setattr(StateTopic, "load", counting)
    broker.restart()
    settled(broker)
    assert len(taken) > 300
    taken.clear()
    override(monkeypatch, "horolog.broker", REPLAY_WORTH_KERNELS=0)
    broker.restart(crash=True)
    settled(broker)
    assert fetched(broker, "h") == (0, 299)
    assert fetched(broker, "g") == (0, 5)
    assert len(taken) < 10


def test_groups_that_are_not_loaded_do_not_expire(broker: RunningBroker, held: set[int]) -> None:
    held.add(partition_for("g", 2))
    broker.restart()
    assert broker.run(broker.service.broker.groups.expire(-(1 << 62))) == 1
    held.clear()
    settled(broker)
    assert (fetched(broker, "g"), fetched(broker, "h")) == ((0, 5), (0, -1))


def test_a_clean_stop_while_groups_are_loaded_loses_nothing(
    broker: RunningBroker, held: set[int]
) -> None:
    held.update((0, 1))
    broker.restart()
    assert fetched(broker, "g")[0] == IN_PROGRESS
    broker.restart()
    held.clear()
    settled(broker)
    assert fetched(broker, "g") == fetched(broker, "h") == (0, 5)
