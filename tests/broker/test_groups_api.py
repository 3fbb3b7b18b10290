"""Groups and offsets on the wire: what each version says, and what is refused."""

import gc
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from overrides import override
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker, a_broker
from stepped_loop import SteppedLoop

from golden import copy_directory
from horolog.client import CommittedOffset
from horolog.clock import DAY_MS, ManualClock
from horolog.groups import OffsetRow, PendingRow
from horolog.metadata import check_store
from horolog.wire import ApiKey

broker = a_broker("t", partitions=3)


def join_fields(group: str = "g", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": int(1000 * PATIENCE_S),
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"}],
        **more,
    }


def member(connection: RawConnection, group: str = "g", **more: Any) -> Any:
    """Join alone, and take the assignment."""
    joined = connection.ask(ApiKey.JOIN_GROUP, 5, **join_fields(group, **more))
    if joined.error_code == 79:
        fields = join_fields(group, **more) | {"member_id": joined.member_id}
        joined = connection.ask(ApiKey.JOIN_GROUP, 5, **fields)
    assert joined.error_code == 0
    synced = connection.ask(
        ApiKey.SYNC_GROUP,
        3,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[{"member_id": joined.member_id, "assignment": b"all"}],
    )
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"all")
    return joined


def commit(
    connection: RawConnection,
    offsets: dict[int, int],
    *,
    group: str = "g",
    member_id: str = "",
    generation: int = -1,
    version: int = 8,
    topic: str = "t",
    **more: Any,
) -> list[int]:
    partitions = [
        {"partition_index": p, "committed_offset": o, "committed_metadata": f"note {p}", **more}
        for p, o in offsets.items()
    ]
    answer = connection.ask(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[{"name": topic, "partitions": partitions}],
    )
    return [partition.error_code for partition in answer.topics[0].partitions]


def test_no_offset_expires_while_its_group_rebalances(
    make_broker: MakeBroker, clock: ManualClock
) -> None:
    """KAFKA-13636: the topics that the next generation subscribes to are not known yet."""
    broker = make_broker(clock=clock, offsets_retention_minutes="10")
    for topic in ("t", "u"):
        broker.create_topic(topic)
    committed = {("u", 0): CommittedOffset(4)}
    with broker.connect() as connection:
        first = member(connection)
        fields = {"group_id": "g", "member_id": first.member_id, "generation_id": 1}
        offsets = [{"partition_index": 0, "committed_offset": 4}]
        answer = connection.ask(
            ApiKey.OFFSET_COMMIT,
            7,
            group_id="g",
            member_id=first.member_id,
            generation_id_or_member_epoch=first.generation_id,
            topics=[{"name": "u", "partitions": offsets}],
        )
        assert answer.topics[0].partitions[0].error_code == 0
        again = join_fields(member_id=first.member_id)
        joined = connection.ask(ApiKey.JOIN_GROUP, 5, **again)
        assert joined.error_code == 0
        clock.advance("20m")
        broker.run(broker.service.background_tasks.expire_offsets())
        assert broker.client.offset_fetch("g").keys() == committed.keys()
        synced = {"assignments": [{"member_id": first.member_id, "assignment": b"all"}]}
        fields["generation_id"] = joined.generation_id
        assert connection.ask(ApiKey.SYNC_GROUP, 3, **fields, **synced).error_code == 0
        broker.run(broker.service.background_tasks.expire_offsets())
        assert not broker.client.offset_fetch("g"), "it is stable, and not subscribed to u"


def fetched(
    connection: RawConnection, *partitions: int, group: str = "g", version: int = 7
) -> dict[int, int]:
    topics = [{"name": "t", "partition_indexes": list(partitions)}] if partitions else None
    answer = connection.ask(ApiKey.OFFSET_FETCH, version, group_id=group, topics=topics)
    return {p.partition_index: p.committed_offset for t in answer.topics for p in t.partitions}


def test_offsets_are_kept_over_restarts(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        assert commit(connection, {0: 45, 2: 7}) == [0, 0]
        assert commit(connection, {0: 46}) == [0]
    broker.restart()
    with broker.connect() as connection:
        assert fetched(connection, 0, 1, 2) == {0: 46, 1: -1, 2: 7}
        assert fetched(connection) == {0: 46, 2: 7}
        assert fetched(connection, 0, group="other") == {0: -1}


def test_metadata_and_epoch_come_back(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        commit(connection, {1: 45}, committed_leader_epoch=3)
        groups = [{"group_id": "g", "topics": None}, {"group_id": "other", "topics": None}]
        answer = connection.ask(ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=True)
    first, second = answer.groups
    partition = first.topics[0].partitions[0]
    assert (partition.committed_offset, partition.committed_leader_epoch) == (45, 3)
    assert partition.metadata == "note 1"
    assert (second.error_code, list(second.topics)) == (0, [])


@pytest.mark.parametrize("generation", [-1, 5])
def test_metadata_is_measured_as_by_kafka_and_after_the_member(
    broker: RunningBroker, generation: int
) -> None:
    notes = {"\u00e4" * 4096: 0, "\u00e4" * 4097: 12}
    notes |= {"\U0001f600" * 2048: 0, "\U0001f600" * 2049: 12}
    refused = 0 if generation < 0 else 22  # a group that is not there has no generation
    with broker.connect() as connection:
        for note, code in notes.items():
            sent = {"committed_metadata": note, "generation": generation}
            assert commit(connection, {0: 5, 9: 5}, **sent) == [refused or code, 3]


def test_topics_by_id(broker: RunningBroker) -> None:
    topic_id = broker.broker.topics.named("t").topic_id
    with broker.connect() as connection:
        for id_, code in ((topic_id, 0), (UUID(int=9), 100)):
            partitions = [{"partition_index": 0, "committed_offset": 45}]
            answer = connection.ask(
                ApiKey.OFFSET_COMMIT,
                10,
                group_id="g",
                topics=[{"topic_id": id_, "partitions": partitions}],
            )
            assert answer.topics[0].partitions[0].error_code == code
            topics = [{"topic_id": id_, "partition_indexes": [0]}]
            groups = [{"group_id": "g", "topics": topics}]
            answer = connection.ask(ApiKey.OFFSET_FETCH, 10, groups=groups, require_stable=True)
            assert answer.groups[0].topics[0].partitions[0].error_code == code


def test_commits_that_cannot_be_are_refused(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        assert commit(connection, {9: 45, 0: 1}) == [3, 0]
        assert commit(connection, {0: 45}, topic="none") == [3]
        assert commit(connection, {0: 45}, committed_metadata="x" * 5000) == [12]
        assert commit(connection, {0: 45}, group="new", generation=3) == [22]
        assert commit(connection, {0: 45}, group="new", generation=3, version=9) == [69]
        joined = member(connection)
        assert commit(connection, {0: 45}) == [25]
        of_it = {"member_id": joined.member_id, "generation": joined.generation_id}
        assert commit(connection, {0: 45}, **{**of_it, "generation": 99}) == [22]
        assert commit(connection, {0: 45}, **{**of_it, "member_id": "other"}) == [25]
        assert commit(connection, {0: 45}, **of_it) == [0]


def test_a_member_without_heartbeats_is_removed_in_the_loops_time_not_the_clocks(
    make_broker: MakeBroker,
) -> None:
    clock = ManualClock()
    broker = make_broker(clock=clock, new_loop=SteppedLoop)
    with broker.connect() as connection:
        joined = member(connection, session_timeout_ms=100_000)
        beat = {
            "group_id": "g",
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
        }
        clock.advance(DAY_MS)
        for _ in range(3):  # together longer than a session
            broker.loop.advance(60)
            assert connection.ask(ApiKey.HEARTBEAT, 3, **beat).error_code == 0
        broker.loop.advance(100)
        assert connection.ask(ApiKey.HEARTBEAT, 3, **beat).error_code == 25
        (group,) = connection.ask(ApiKey.LIST_GROUPS, 4, states_filter=["Empty"]).groups
        assert group.group_id == "g"


def beat(connection: RawConnection, joined: Any, generation: int | None = None) -> int:
    """The error code of a member's heartbeat."""
    answer = connection.ask(
        ApiKey.HEARTBEAT,
        3,
        group_id="g",
        generation_id=joined.generation_id if generation is None else generation,
        member_id=joined.member_id,
    )
    return int(answer.error_code)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_members_go_on_in_their_generation_after_a_restart(
    crash: bool, beside: bool, tmp_path: Path
) -> None:
    """Also where groups are in a directory of ours, beside another's logs."""
    if beside:
        copy_directory("clean", tmp_path / "data")
    with RunningBroker(tmp_path / "data", {}, ManualClock(), SteppedLoop) as broker:
        broker.create_topic("t")
        check_restarts(broker, crash=crash)
        assert (tmp_path / "data.horolog").exists() is beside


def check_restarts(broker: RunningBroker, *, crash: bool) -> None:
    with broker.connect() as connection:
        joined = member(connection, session_timeout_ms=100_000)
        before = connection.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"]).groups
    broker.restart(crash=crash)
    with broker.connect() as connection:
        found = connection.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"]).groups
        assert found == before
        (group,) = found
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        (one,) = group.members
        assert (one.member_id, one.client_id) == (joined.member_id, "test")
        assert bytes(one.member_assignment) == b"all"
        assert beat(connection, joined) == 0
        by_member = {"member_id": joined.member_id, "generation": joined.generation_id}
        assert commit(connection, {0: 5}, **by_member) == [0]
        former = by_member | {"generation": joined.generation_id - 1}
        assert commit(connection, {0: 6}, **former) == [22]
        assert beat(connection, joined, joined.generation_id - 1) == 22
        broker.loop.advance(200)
        assert beat(connection, joined) == 25
        (group,) = connection.ask(ApiKey.LIST_GROUPS, 4, states_filter=["Empty"]).groups
    broker.restart(crash=crash)
    with broker.connect() as connection:
        (group,) = connection.ask(ApiKey.LIST_GROUPS, 4, states_filter=["Empty"]).groups
        assert group.group_id == "g"
        again = member(connection)
        assert again.generation_id == joined.generation_id + 2
        assert fetched(connection, 0) == {0: 5}


def test_a_generation_that_a_record_cannot_hold_fails_and_the_broker_goes_on(
    broker: RunningBroker,
) -> None:
    """As in Kafka: the rebalance fails, for all that wait for it."""
    large = join_fields(session_timeout_ms=1_800_000)
    large["protocols"] = [{"name": "range", "metadata": bytes(9 << 20)}]
    with broker.connect() as connection:
        joined = connection.ask(ApiKey.JOIN_GROUP, 2, **large)
        assert joined.error_code == 0
        synced = connection.ask(
            ApiKey.SYNC_GROUP,
            1,
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
        )
        assert synced.error_code == -1
        assert beat(connection, joined) == 27
        again = join_fields(member_id=joined.member_id, session_timeout_ms=1_800_000)
        assert connection.ask(ApiKey.JOIN_GROUP, 2, **again).generation_id == 2


def members_of(broker: RunningBroker, group: str) -> int:
    (described,) = broker.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group]).groups
    return len(described.members)


@pytest.mark.slow
def test_the_first_members_wait_for_others_as_long_as_configured(make_broker: MakeBroker) -> None:
    broker = make_broker(new_loop=SteppedLoop, group_initial_rebalance_delay_ms="50000")
    joining = join_fields(rebalance_timeout_ms=300_000, session_timeout_ms=300_000)
    with broker.connect() as first, broker.connect() as second:
        for connection in (first, second):
            connection.send(ApiKey.JOIN_GROUP, 2, **joining)
        assert eventually(lambda: members_of(broker, "g") == 2)
        broker.loop.advance(30)
        assert first.is_silent(0.1)
        broker.loop.advance(20)
        assert first.is_silent(0.1)  # one came meanwhile: as long once more
        broker.loop.advance(50)
        answers = [connection.receive()[1] for connection in (first, second)]
    assert {answer.generation_id for answer in answers} == {1}
    assert sum(len(answer.members) for answer in answers) == 2


def test_groups_are_listed_and_described(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        joined = member(connection)
        commit(connection, {0: 1}, group="simple")
        groups = connection.ask(ApiKey.LIST_GROUPS, 5).groups
        assert {(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in groups} == {
            ("g", "consumer", "Stable", "classic"),
            ("simple", "", "Empty", "classic"),
        }
        stable = connection.ask(ApiKey.LIST_GROUPS, 5, states_filter=["stable"]).groups
        assert [group.group_id for group in stable] == ["g"]
        assert not connection.ask(ApiKey.LIST_GROUPS, 5, types_filter=["consumer"]).groups
        (described,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"]).groups
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        (one,) = described.members
        assert (one.member_id, one.client_id) == (joined.member_id, "test")
        assert bytes(one.member_assignment) == b"all"
        (dead,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["none"]).groups
        assert (dead.error_code, dead.group_state) == (0, "Dead")
        (missing,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["none"]).groups
        assert missing.error_code == 69


def test_only_an_empty_group_can_be_deleted(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        joined = member(connection)
        of_it = {"member_id": joined.member_id, "generation": joined.generation_id}
        commit(connection, {0: 45}, **of_it)

        def delete() -> list[int]:
            answer = connection.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "none"])
            return [result.error_code for result in answer.results]

        assert delete() == [68, 69]
        left = connection.ask(
            ApiKey.LEAVE_GROUP, 4, group_id="g", members=[{"member_id": joined.member_id}]
        )
        assert [one.error_code for one in left.members] == [0]
        assert delete() == [0, 69]
        assert fetched(connection, 0) == {0: -1}
    broker.restart()
    assert not broker.ask(ApiKey.LIST_GROUPS, 4).groups


def test_a_group_can_be_deleted_whose_only_member_has_not_used_its_id(
    broker: RunningBroker,
) -> None:
    with broker.connect() as connection:
        asked = connection.ask(ApiKey.JOIN_GROUP, 5, **join_fields())
        assert asked.error_code == 79
        (deleted,) = connection.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"]).results
        assert deleted.error_code == 0
        again = join_fields() | {"member_id": asked.member_id}
        assert connection.ask(ApiKey.JOIN_GROUP, 5, **again).error_code == 25
        assert member(connection).generation_id == 1


def test_a_group_that_is_named_several_times_is_answered_each_time(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an offset; but there is an end to what a small request may ask for."""
    override(monkeypatch, "horolog.broker.handlers.offsets", MOST_AGAIN=100)
    with broker.connect() as connection:
        commit(connection, {0: 45, 1: 7})
        commit(connection, {0: 3}, group="other")

        def ask(*asked: tuple[str, list[int] | None]) -> list[tuple[str, int, list[int]]]:
            groups = [
                {
                    "group_id": group,
                    "topics": indexes and [{"name": "t", "partition_indexes": indexes}] * 2,
                }
                for group, indexes in asked
            ]
            answer = connection.ask(ApiKey.OFFSET_FETCH, 8, groups=groups)
            return [
                (
                    group.group_id,
                    group.error_code,
                    [p.committed_offset for t in group.topics for p in t.partitions],
                )
                for group in answer.groups
            ]

        some = [45, 45, -1, 45, 45, -1]
        assert ask(("g", None), ("g", [0, 0, 2]), ("other", None), ("g", None)) == [
            ("g", 0, [45, 7]),
            ("g", 0, some),
            ("other", 0, [3]),
            ("g", 0, [45, 7]),
        ]
        often = ask(*[("g", None)] * (2 + 100 // 2), ("other", None), ("g", [0]))
        assert often[:-3] == [("g", 0, [45, 7])] * (1 + 100 // 2)
        assert often[-3:] == [("g", 42, []), ("other", 0, [3]), ("g", 0, [45, 45])]


def test_so_much_metadata_is_given_again_to_who_names_a_partition_often(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker.handlers.offsets", MOST_AGAIN_BYTES=1_000)
    with broker.connect() as connection:
        commit(connection, {0: 45, 1: 7}, committed_metadata="m" * 300)
        commit(connection, {0: 3}, group="plain")
        topics = [{"name": "t", "partition_indexes": [0, 1] + [0] * 5}]
        groups = [{"group_id": each, "topics": topics} for each in ("plain", "g")]
        plain, given = connection.ask(ApiKey.OFFSET_FETCH, 8, groups=groups).groups
        (of_one,) = connection.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics).topics
    assert [p.committed_offset for p in plain.topics[0].partitions] == [3, -1] + [3] * 5
    for found in (given.topics[0], of_one):
        assert [(p.committed_offset, p.error_code, len(p.metadata)) for p in found.partitions] == [
            *((45, 0, 300), (7, 0, 300)),
            *[(45, 0, 300)] * 3,
            *[(-1, 42, 0)] * 2,
        ]


def test_a_group_that_is_to_be_deleted_several_times_is_so_once(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        commit(connection, {0: 45})
        named = ["g", "none", "g", "none"]
        answer = connection.ask(ApiKey.DELETE_GROUPS, 2, groups_names=named)
        assert [(r.group_id, r.error_code) for r in answer.results] == [("g", 0), ("none", 69)]


def test_deletion_says_why_a_group_stays(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        member(connection)
        commit(connection, {0: 45}, group="simple")
        groups = ["g", "none", "simple"]
        answer = connection.ask(ApiKey.DELETE_GROUPS, 3, groups_names=groups)
    assert [(r.group_id, r.error_code, r.error_message) for r in answer.results] == [
        ("g", 68, "the group 'g' is not empty"),
        ("none", 69, "The group id none does not exist."),
        ("simple", 0, None),
    ]


def test_a_group_is_described_each_time_it_is_named(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But there is an end to what a small request may ask for."""
    with broker.connect() as connection:
        joined = member(connection)
        commit(connection, {0: 45}, group="simple")

        def ask(*groups: str) -> list[tuple[str, int, str, list[str], int]]:
            answer = connection.ask(
                ApiKey.DESCRIBE_GROUPS,
                6,
                groups=list(groups),
                include_authorized_operations=True,
            )
            return [
                (
                    *(group.group_id, group.error_code, group.group_state),
                    [each.member_id for each in group.members],
                    group.authorized_operations,
                )
                for group in answer.groups
            ]

        stable = ("g", 0, "Stable", [joined.member_id], 0b1101_0100_1000)
        empty = ("simple", 0, "Empty", [], stable[-1])
        none = ("none", 69, "Dead", [], -(1 << 31))
        assert ask("g", "none", "g", "simple", "none") == [stable, none, stable, empty, none]
        assert ask(*["g"] * 1_500) == [stable] * 1_500
        override(monkeypatch, "horolog.broker.handlers.group_tools", MOST_AGAIN_BYTES=1_000)
        often = ask(*["g"] * 10, "simple", "none", "simple")
        assert often[:3] == [stable] * 3
        assert often[9:] == [("g", 42, "", [], none[4]), empty, none, empty]


def test_a_group_rebalances_if_one_leaves_that_has_not_used_its_member_id(
    broker: RunningBroker,
) -> None:
    """As in Apache Kafka, also among those that are not members."""
    with broker.connect() as connection:
        joined = member(connection)

        def leave(*members: str) -> list[int]:
            named = [{"member_id": each} for each in members]
            left = connection.ask(ApiKey.LEAVE_GROUP, 4, group_id="g", members=named)
            return [each.error_code for each in left.members]

        assert leave("unknown") == [25]
        assert beat(connection, joined) == 0
        unused = connection.ask(ApiKey.JOIN_GROUP, 5, **join_fields())
        assert unused.error_code == 79
        assert leave("unknown", unused.member_id) == [25, 0]
        assert beat(connection, joined) == 27
        assert member(connection, member_id=joined.member_id).generation_id == 2
        assert leave(unused.member_id) == [25]


def test_offsets_of_topics_that_are_read_are_not_deleted(broker: RunningBroker) -> None:
    broker.create_topic("old")
    with broker.connect() as connection:
        commit(connection, {0: 5}, topic="old")
        joined = member(connection)
        of_it = {"member_id": joined.member_id, "generation": joined.generation_id}
        commit(connection, {0: 45}, **of_it)
        answer = connection.ask(
            ApiKey.OFFSET_DELETE,
            0,
            group_id="g",
            topics=[
                {"name": name, "partitions": [{"partition_index": 0}, {"partition_index": 9}]}
                for name in ("t", "old")
            ],
        )
        codes = {
            topic.name: [partition.error_code for partition in topic.partitions]
            for topic in answer.topics
        }
        assert codes == {"t": [86, 3], "old": [0, 3]}
        assert fetched(connection, 0) == {0: 45}


def test_unused_offsets_expire_by_the_clock(broker: RunningBroker) -> None:
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    with broker.connect() as connection:
        commit(connection, {0: 1}, group="simple")
        joined = member(connection)
        of_it = {"member_id": joined.member_id, "generation": joined.generation_id}
        commit(connection, {0: 45}, **of_it)
        clock.advance(7 * DAY_MS)
        assert broker.run(broker.service.background_tasks.expire_offsets()) == 1
        assert fetched(connection, 0, group="simple") == {0: -1}
        assert fetched(connection, 0) == {0: 45}, "the group is being used"
        connection.ask(ApiKey.LEAVE_GROUP, 1, group_id="g", member_id=joined.member_id)
        clock.advance(7 * DAY_MS - 1)
        assert broker.run(broker.service.background_tasks.expire_offsets()) == 0
        broker.restart()
        clock.advance(1)
        assert broker.run(broker.service.background_tasks.expire_offsets()) == 1
    with broker.connect() as connection:
        assert fetched(connection, 0) == {0: -1}
        assert not connection.ask(ApiKey.LIST_GROUPS, 4).groups


@pytest.mark.parametrize(("key_type", "code"), [(0, 0), (1, 0), (2, 42), (3, 42)])
def test_groups_and_transactional_ids_have_a_coordinator_here(
    broker: RunningBroker, key_type: int, code: int
) -> None:
    answer = broker.ask(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=key_type)
    assert answer.error_code == code
    assert (answer.port == broker.port) is (code == 0)


def test_producer_ids_are_never_given_twice(broker: RunningBroker) -> None:
    given = []
    for _ in range(3):
        with broker.connect() as connection:
            for _ in range(4):
                answer = connection.ask(ApiKey.INIT_PRODUCER_ID, 4)
                assert (answer.error_code, answer.producer_epoch) == (0, 0)
                given.append(answer.producer_id)
        broker.restart()
    assert len(set(given)) == 12


def test_nothing_waits_for_an_answer_after_a_refusal(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with broker.connect() as connection:
        joined = member(connection)
        stale = {"generation_id": joined.generation_id + 1, "member_id": joined.member_id}
        for _ in range(3):
            answer = connection.ask(ApiKey.SYNC_GROUP, 3, group_id="g", **stale)
            assert answer.error_code == 22
    broker.stop()
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_commit_that_outlives_the_clock_is_kept_and_fails_no_other(broker: RunningBroker) -> None:
    topics = [
        {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": (1 << 63) - 1}]}
    ]
    fields = {"topics": topics}
    forever = {"retention_time_ms": (1 << 63) - 1}
    with ExitStack() as stack:
        connections = [stack.enter_context(broker.connect()) for _ in range(20)]
        for number, connection in enumerate(connections):
            more = forever if number % 4 == 0 else {}
            connection.send(ApiKey.OFFSET_COMMIT, 4, group_id=f"g{number}", **fields, **more)
        for connection in connections:
            _, answer = connection.receive()
            assert answer.topics[0].partitions[0].error_code == 0
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    clock.advance(1000 * DAY_MS)
    assert broker.run(broker.service.background_tasks.expire_offsets()) == 15
    broker.restart()
    with broker.connect() as connection:
        assert fetched(connection, 0, group="g4") == {0: (1 << 63) - 1}


@pytest.mark.parametrize(
    ("offset", "epoch", "metadata", "code"),
    [
        ((1 << 63) - 1, (1 << 31) - 1, "", 0),
        (-(1 << 63), -(1 << 31), "a\0b", 0),
        (0, 0, "\U0010ffff" * 2048, 0),
        (0, 0, "x" * 4097, 12),
        (0, 0, "\U0010ffff" * 2049, 12),
    ],
)
def test_whatever_fits_the_protocol_is_kept_as_it_was_sent(
    broker: RunningBroker, offset: int, epoch: int, metadata: str, code: int
) -> None:
    with broker.connect() as connection:
        errors = commit(
            connection, {1: offset}, committed_leader_epoch=epoch, committed_metadata=metadata
        )
        assert errors == [code]
    broker.restart()
    answer = broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=None)
    kept = [
        (p.committed_offset, p.committed_leader_epoch, p.metadata)
        for topic in answer.topics
        for p in topic.partitions
    ]
    assert kept == ([] if code else [(offset, epoch, metadata)])
    broker.stop()
    assert list(check_store(broker.log_dir, is_clean=True)) == []


def test_offsets_of_a_deleted_topic_do_not_come_back(broker: RunningBroker) -> None:
    """Commits that are in flight when the topic goes are refused, or go with it."""
    with broker.connect() as connection, broker.connect() as other:
        for number in range(20):
            commit(connection, {0: number})
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 9}]}]
            other.send(ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=topics)
            connection.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
            broker.create_topic("t", partitions=3)
            _, answer = other.receive()
            assert answer.topics[0].partitions[0].error_code in (0, 3)
            # A commit may also have come for the new topic.
            if answer.topics[0].partitions[0].error_code == 3:
                assert fetched(connection, 0) == {0: -1}
    before = broker.call(lambda: broker.broker.groups.offsets.of_group("g"))
    broker.restart()
    assert broker.call(lambda: broker.broker.groups.offsets.of_group("g")) == before


def test_a_group_of_the_longest_name_is_not_found_either(broker: RunningBroker) -> None:
    for group in ("g" * 32_767, "forged\n2030-01-01 ERROR"):
        (missing,) = broker.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=[group]).groups
        assert (missing.error_code, missing.group_id) == (69, group)
        assert missing.error_message.startswith(f"Group {group[:6]}")
        assert missing.error_message.isprintable()


def test_many_groups_partitions_and_members_are_answered_as_few_are(broker: RunningBroker) -> None:
    broker.create_topic("many", partitions=1_200)
    with broker.connect() as connection:
        offsets = {index: index for index in range(1_200)}
        assert set(commit(connection, offsets, topic="many")) == {0}
        for topics in (None, [{"name": "many", "partition_indexes": list(range(1_200))}]):
            answer = connection.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics)
            (topic,) = answer.topics
            found = {p.partition_index: p.committed_offset for p in topic.partitions}
            assert found == offsets
        for number in range(1_100):
            commit(connection, {0: 1}, group=f"{number}")
        listed = connection.ask(ApiKey.LIST_GROUPS, 4, states_filter=["empty"])
        assert len(listed.groups) == 1_101
        described = connection.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[f"{n}" for n in range(300)])
        assert {group.group_state for group in described.groups} == {"Empty"}
        named = [f"{n}" for n in range(1_200)]
        found = connection.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=named)
        assert [c.key for c in found.coordinators if c.port == broker.port] == named
        partitions = [{"partition_index": n} for n in range(1_200)]
        topics = [{"name": "many", "partitions": partitions}]
        dropped = connection.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        assert {p.error_code for p in dropped.topics[0].partitions} == {0}
        assert fetched(connection) == {}
        gone = [{"member_id": f"{n}"} for n in range(1_200)]
        left = connection.ask(ApiKey.LEAVE_GROUP, 3, group_id="1", members=gone)
        assert [member.error_code for member in left.members] == [25] * 1_200


def test_pending_offsets_are_unstable_for_those_who_ask(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        assert commit(connection, {0: 1, 1: 2}) == [0, 0]
        topic_id = broker.broker.topics.named("t").topic_id
        pending = broker.broker.groups.offsets.pending
        for partition in (1, 2):
            row = OffsetRow("g", "t", partition, 9, -1, "", 0, topic_id=topic_id)
            broker.call(partial(pending.put, PendingRow(7, row)))

        def found(*, partitions: list[int] | None, **more: Any) -> list[tuple[int, int, int]]:
            topics = None
            if partitions is not None:
                topics = [{"name": "t", "partition_indexes": partitions}]
            answer = connection.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics, **more)
            return [
                (each.partition_index, each.committed_offset, each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            ]

        stable = found(partitions=[0, 1, 2], require_stable=True)
        assert stable == [(0, 1, 0), (1, -1, 88), (2, -1, 88)]
        assert found(partitions=None, require_stable=True) == [(0, 1, 0), (1, -1, 88)]
        assert found(partitions=[0, 1, 2]) == [(0, 1, 0), (1, 2, 0), (2, -1, 0)]
        groups = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1]}]}]
        answer = connection.ask(ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=True)
        (group,) = answer.groups
        assert (group.error_code, group.topics[0].partitions[0].error_code) == (0, 88)
