"""Timers, commits and administration of consumer groups, by Apache Kafka and by horolog alike."""

import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from bench.sides import horolog
from heartbeat_twins import Twin
from patience import PATIENCE_S
from step_twins import StepTwins
from tools.peers.kafka import Kafka

from horolog.wire import ApiKey

INTERVAL_S, SESSION_S = 1.5, 3.0
SETTINGS = {
    "group.consumer.assignment.interval.ms": str(int(1000 * INTERVAL_S)),
    "group.consumer.min.session.timeout.ms": "1",
    "group.consumer.session.timeout.ms": str(int(1000 * SESSION_S)),
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.assignors": "range,uniform",
    "group.consumer.migration.policy": "disabled",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
JOIN: dict[str, Any] = {"owned": {}, "rebalance_timeout_ms": 600_000}


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: Any) -> Iterator[tuple[str, str]]:
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    with (
        horolog(SETTINGS, directory=ours) as side,
        Kafka(theirs, settings=SETTINGS) as kafka,
    ):
        yield side.bootstrap, kafka.bootstrap


def another_interval() -> None:
    time.sleep(INTERVAL_S + 0.2)


def interval_between_assignments(twins: StepTwins) -> None:
    twins.begin(x=4)
    beat, written = twins.beat, twins.written
    beat("a", 0, topics=["x"], **JOIN)
    written()
    answer = beat("b", 0, topics=["x"], **JOIN)
    assert answer[2:5] == (2, 500, {})
    assert [it[0] for batch in written() for it in batch] == ["Member", "GroupEpoch", "Current"]
    twins.look()
    beat("a", 2)
    beat("b", 2)
    another_interval()
    assert written() == []  # no timer: a heartbeat finds it
    twins.look()
    beat("b", 2)
    written()
    beat("a", 2)
    beat("a", 2, owned={"x": [0, 1]})
    beat("b", 3)
    beat("a", 3, topics=[])
    beat("a", 3, owned={})
    beat("b", -1)
    beat("a", -1)
    beat("c", 0, topics=["x"], **JOIN)
    written()


def static_member_within_the_interval(twins: StepTwins) -> None:
    twins.begin(x=2, y=2)
    twins.beat("a", 0, topics=["x"], instance_id="i", **JOIN)
    twins.beat("a", -2, instance_id="i")
    twins.beat("b", 0, topics=["y"], instance_id="i", **JOIN)
    twins.written()
    twins.look()
    twins.beat("b", 2, owned={})
    another_interval()
    twins.beat("b", 2, owned={})
    twins.written()
    twins.look()


def unsubscribing_within_the_interval(twins: StepTwins) -> None:
    twins.begin(x=2, y=2)
    beat, written = twins.beat, twins.written
    beat("a", 0, topics=["x", "y"], **JOIN)
    beat("a", 2, topics=["x"])
    twins.look()
    beat("a", 2, topics=["x"], owned={"x": [0, 1], "y": [0, 1]})
    beat("a", 2, owned={"x": [0, 1]})
    beat("a", 2, topics=[])
    beat("a", 2, owned={})
    written()
    beat("a", 2, subscribed_topic_regex=f"{twins.prefix}.*")
    written(until="Pattern")
    beat("a", 2)
    another_interval()
    beat("a", 2)
    beat("a", 5, owned={})
    written()
    twins.look()


def session(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.beat("a", 0, topics=["x"], **JOIN)
    another_interval()
    twins.beat("b", 0, topics=["x"], **JOIN)
    twins.skip()
    time.sleep(SESSION_S - 1)
    twins.beat("b", 3)
    twins.beat("a", 2)
    twins.written(until="GroupEpoch")
    twins.look()
    time.sleep(SESSION_S + 0.6)
    twins.beat("b", 3)
    twins.written(only_last=True)
    twins.look()


def session_of_a_static_member_that_left(twins: StepTwins) -> None:
    """It runs on from the last heartbeat that was none of leaving."""
    twins.begin(x=2)
    twins.beat("a", 0, topics=["x"], instance_id="i", **JOIN)
    time.sleep(SESSION_S / 2)
    twins.beat("a", -2, instance_id="i")
    twins.skip()
    time.sleep(SESSION_S / 3)
    twins.look()
    time.sleep(SESSION_S / 3)
    twins.written(until="TargetEpoch")
    twins.look()


def member_that_never_revokes(twins: StepTwins) -> None:
    twins.begin(x=2)
    beat = twins.beat
    beat("a", 0, topics=["x"], owned={}, rebalance_timeout_ms=1000)
    another_interval()
    beat("b", 0, topics=["x"], **JOIN)
    beat("a", 2)
    twins.skip()
    for _ in range(3):  # neither heartbeats nor another timeout help
        time.sleep(0.25)
        beat("a", 2, rebalance_timeout_ms=60_000)
    time.sleep(0.6)
    twins.written(until="GroupEpoch")
    assert beat("a", 2)[0] == 25
    beat("b", 3)
    twins.written()


def no_time_to_revoke(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.beat("a", 0, topics=["x"], owned={}, rebalance_timeout_ms=0)
    another_interval()
    twins.beat("b", 0, topics=["x"], **JOIN)
    twins.beat("a", 2)
    time.sleep(0.5)
    twins.beat("a", 2)
    twins.written(only_last=True)
    twins.look()


def migration_that_is_disabled(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.classic_join("c", ["x"], group_instance_id="k")
    twins.sync("c", 1, {"c": {"x": [0, 1]}})
    twins.skip()
    twins.beat("a", 0, topics=["x"], **JOIN)
    twins.beat("a", 1)
    assert twins.written() == []


def classic_members_while_migration_is_disabled(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.beat("a", 0, topics=["x"], **JOIN)
    twins.skip()
    twins.classic_join("c", ["x"])
    twins.classic_join("c", ["x"], protocol_type="other")
    twins.classic_join("c", ["x"], session_timeout_ms=0)
    assert twins.written() == []
    twins.beat("a", -1)
    twins.classic_join("c", ["x"], group_instance_id="k")
    twins.written(only_last=True)


# --- offsets --------------------------------------------------------------------------------


def commits(twins: StepTwins) -> None:
    twins.begin(x=3)
    twins.beat("a", 0, topics=["x"], **JOIN)
    _commits(twins)
    twins.beat("a", -1)
    _commits(twins)


def _commits(twins: StepTwins) -> None:
    cases = product(("", "none"), (7, 8, 9, 10), ("", "a", "zz"), range(-1, 4), ([0], [0, 9]))
    for group, version, member, epoch, partitions in cases:
        asked = {
            "group_id": f"{twins.prefix}{group}",
            "member_id": member,
            "generation_id_or_member_epoch": epoch,
        }
        _commit(twins, ApiKey.OFFSET_COMMIT, version, partitions, by_id=version >= 10, **asked)


def _commit(
    twins: StepTwins,
    key: ApiKey,
    version: int,
    partitions: list[int],
    *,
    by_id: bool,
    producers: list[dict[str, Any]] | None = None,
    topic_id: UUID | None = None,
    **asked: Any,
) -> None:
    def ask(twin: Twin) -> Any:
        topic = {"topic_id": topic_id or twin.ids["x"]} if by_id else {"name": f"{twins.prefix}x"}
        topics = [{**topic, "partitions": list(map(_partition, partitions))}]
        producer = {} if producers is None else producers[twins.both.index(twin)]
        answer = twin.connection.ask(key, version, topics=topics, **asked, **producer)
        return sorted(
            (it.partition_index, int(it.error_code)) for of in answer.topics for it in of.partitions
        )

    twins.alike(f"{key.name} v{version} {asked} {topic_id} {partitions}", ask)


def _partition(index: int) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": 1, "committed_leader_epoch": -1}


def transactional_commits(twins: StepTwins) -> None:
    twins.begin(x=3)
    transactional_id = f"{twins.prefix}-tx"
    producers = [_begun(twins.prefix, transactional_id, twin) for twin in twins.both]
    _transactional_commits(twins, transactional_id, producers)
    twins.beat("a", 0, topics=["x"], instance_id="i", **JOIN)
    _transactional_commits(twins, transactional_id, producers)
    twins.beat("a", -1)
    _transactional_commits(twins, transactional_id, producers)


def _transactional_commits(
    twins: StepTwins, transactional_id: str, producers: list[dict[str, Any]]
) -> None:
    cases = product((3, 5, 6), ("", "a", "zz"), (None, "i", "z"), range(-1, 4))
    for version, member, instance, epoch in cases:
        _commit(
            twins,
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            [0, 9],
            by_id=version >= 6,
            producers=producers,
            transactional_id=transactional_id,
            group_id=twins.prefix,
            member_id=member,
            generation_id=epoch,
            group_instance_id=instance,
        )


def _begun(group: str, transactional_id: str, twin: Twin) -> dict[str, Any]:
    """A producer whose transaction has offsets of the group."""
    until = time.monotonic() + PATIENCE_S
    while True:
        asked = {"key_type": 1, "coordinator_keys": [transactional_id]}
        twin.connection.ask(ApiKey.FIND_COORDINATOR, 4, **asked)
        found = twin.connection.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
        )
        if not found.error_code or time.monotonic() > until:
            break
        time.sleep(0.1)
    assert not found.error_code, found
    producer = {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
    said = {"transactional_id": transactional_id, "group_id": group}
    assert not twin.connection.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **said, **producer).error_code
    return producer


def unknown_ids(twins: StepTwins) -> None:
    twins.begin(x=1)
    twins.beat("a", 0, topics=["x"], **JOIN)
    for topic_id, epoch in product((UUID(int=7), UUID(int=0)), range(-1, 4)):
        asked = {
            "group_id": twins.prefix,
            "member_id": "a",
            "generation_id_or_member_epoch": epoch,
        }
        _commit(twins, ApiKey.OFFSET_COMMIT, 10, [0], by_id=True, topic_id=topic_id, **asked)
        _fetch(twins, topic_id, epoch)


def _fetch(twins: StepTwins, topic_id: UUID, epoch: int) -> None:
    topics = [{"topic_id": topic_id, "partition_indexes": [0]}]
    group = {"group_id": twins.prefix, "member_id": "a", "member_epoch": epoch, "topics": topics}

    def ask(twin: Twin) -> Any:
        (answer,) = twin.connection.ask(ApiKey.OFFSET_FETCH, 10, groups=[group]).groups
        return answer.error_code, [
            (it.committed_offset, it.error_code) for of in answer.topics for it in of.partitions
        ]

    twins.alike(f"fetch {topic_id} e{epoch}", ask)


# --- administration -------------------------------------------------------------------------


def administration(twins: StepTwins) -> None:
    twins.begin(x=2, y=1)
    group, none, of_classics = twins.prefix, f"{twins.prefix}-none", f"{twins.prefix}-classic"
    twins.beat("a", 0, topics=["x"], **JOIN)
    twins.classic_join("c", ["x"], group_id=of_classics)
    for it in (group, none):
        _delete_offsets(twins, it)
        _delete(twins, it)
    for version, it in product((4, 5, 6), (group, none, "")):
        _describe_classic(twins, version, it)
    for asked in ([group], [of_classics], [none], [group, "", group, none, ""]):
        _describe(twins, asked)
    for version in (0, 3, 4, 5):
        _list(twins, version)
    for filters in (
        {"types_filter": ["CONSUMER"]},
        {"types_filter": ["consumer", "x"]},
        {"states_filter": ["stable"]},
        {"states_filter": ["assigning"]},
        {"types_filter": ["classic"], "states_filter": ["stable"]},
    ):
        _list(twins, 5, **filters)
    twins.beat("a", -1)
    _list(twins, 5)
    _delete_offsets(twins, group)
    _describe(twins, [group])


def _delete_offsets(twins: StepTwins, group: str) -> None:
    asked = [
        {
            "name": f"{twins.prefix}{name}",
            "partitions": [{"partition_index": it} for it in partitions],
        }
        for name, partitions in {"x": [0, 9], "y": [0], "nope": [0]}.items()
    ]

    def ask(twin: Twin) -> Any:
        answer = twin.connection.ask(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=asked)
        return answer.error_code, sorted(
            (of.name, it.partition_index, it.error_code)
            for of in answer.topics
            for it in of.partitions
        )

    twins.alike(f"delete offsets of {group}", ask)


def _delete(twins: StepTwins, group: str) -> None:
    def ask(twin: Twin) -> Any:
        (answer,) = twin.connection.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[group]).results
        return answer.group_id, int(answer.error_code)

    twins.alike(f"delete {group}", ask)


def _describe_classic(twins: StepTwins, version: int, group: str) -> None:
    def ask(twin: Twin) -> Any:
        (it,) = twin.connection.ask(ApiKey.DESCRIBE_GROUPS, version, groups=[group]).groups
        said = getattr(it, "error_message", None)
        return it.error_code, said, it.group_state, it.protocol_type, len(it.members)

    twins.alike(f"describe v{version} {group}", ask)


def _describe(twins: StepTwins, groups: list[str]) -> None:
    def ask(twin: Twin) -> Any:
        asked = {"group_ids": groups, "include_authorized_operations": True}
        return [
            (
                *(it.error_code, it.error_message, it.group_id, it.group_state, it.group_epoch),
                *(it.assignment_epoch, it.assignor_name, len(it.members)),
                it.authorized_operations,
            )
            for it in twin.connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups
        ]

    twins.alike(f"describe {groups}", ask)


def _list(twins: StepTwins, version: int, **filters: list[str]) -> None:
    def ask(twin: Twin) -> Any:
        return sorted(
            (
                *(it.group_id, it.protocol_type),
                *(getattr(it, "group_state", None), getattr(it, "group_type", None)),
            )
            for it in twin.connection.ask(ApiKey.LIST_GROUPS, version, **filters).groups
            if it.group_id.startswith(twins.prefix)
        )

    twins.alike(f"list v{version} {filters}", ask)


@pytest.mark.parametrize(
    "steps",
    [
        interval_between_assignments,
        static_member_within_the_interval,
        unsubscribing_within_the_interval,
        session,
        session_of_a_static_member_that_left,
        member_that_never_revokes,
        no_time_to_revoke,
        migration_that_is_disabled,
        classic_members_while_migration_is_disabled,
        commits,
        transactional_commits,
        unknown_ids,
        administration,
    ],
)
def test_groups_are_answered_as_by_kafka(
    addresses: tuple[str, str], steps: Callable[[StepTwins], None]
) -> None:
    twins = StepTwins(*addresses, f"{steps.__name__}-")
    try:
        steps(twins)
    finally:
        twins.close()
