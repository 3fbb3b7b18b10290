"""Consumer groups on the wire: refusals and their order, hostile members, kills, full disks."""

import time
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest
import rights_matrix as matrix
from faulty_calls import full_disk
from patience import eventually
from raw_connection import RawConnection
from running_broker import BrokerProcess, RunningBroker, a_broker, a_broker_process

from horolog.clock import ManualClock
from horolog.wire import AclOperation, AclPermission, AclResource, ApiKey

SETTINGS = {
    "group_consumer_assignment_interval_ms": "0",
    "group_consumer_min_session_timeout_ms": "1",
    "group_consumer_max_session_timeout_ms": "3600000",
    "group_consumer_session_timeout_ms": "3600000",
    "group_consumer_max_size": "4",
    "group_min_session_timeout_ms": "1",
    "horolog_busy_poll_us": "0",
}
NEW: dict[str, Any] = {"topic_partitions": [], "rebalance_timeout_ms": 600_000}

broker = a_broker("t", partitions=4, now_ms=None, **SETTINGS)
process = a_broker_process("t", partitions=4, **SETTINGS)


def beat(
    connection: RawConnection, member: str, epoch: int, *, version: int = 1, **said: Any
) -> Any:
    asked = {
        "group_id": "g",
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout_ms": -1,
        **said,
    }
    return connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **asked)


def join(connection: RawConnection, member: str, **said: Any) -> Any:
    return beat(connection, member, 0, **{"subscribed_topic_names": ["t"], **NEW, **said})


def has(answer: Any) -> list[int] | None:
    """The partitions of the one topic."""
    assert not answer.error_code, answer
    if answer.assignment is None:
        return None
    return sorted(it for of in answer.assignment.topic_partitions for it in of.partitions)


def owned(connection: RawConnection, *partitions: int) -> list[dict[str, Any]]:
    asked = {"topics": [{"name": "t"}]}
    (topic,) = connection.ask(ApiKey.METADATA, 12, **asked).topics
    return [{"topic_id": topic.topic_id, "partitions": list(partitions)}]


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawConnection]:
    with broker.connect() as connection:
        yield connection


FORMS: list[tuple[dict[str, Any], int, str | None]] = [
    ({"group_id": ""}, 42, "GroupId can't be empty."),
    ({"group_id": " "}, 42, "GroupId can't be empty."),
    ({"member_id": ""}, 42, "MemberId can't be empty."),
    ({"instance_id": " "}, 42, "InstanceId can't be empty."),
    ({"rack_id": ""}, 42, "RackId can't be empty."),
    ({"rebalance_timeout_ms": -1}, 42, "RebalanceTimeoutMs must be provided in first request."),
    ({"topic_partitions": None}, 42, "TopicPartitions must be empty when (re-)joining."),
    (
        {"topic_partitions": [{"topic_id": UUID(int=1), "partitions": [0]}]},
        42,
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        {"subscribed_topic_names": None},
        42,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    ({"member_epoch": -2}, 42, "InstanceId can't be null."),
    ({"member_epoch": -3}, 42, "MemberEpoch is invalid."),
    (
        {"server_assignor": "sticky"},
        112,
        "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
    ),
    ({"server_assignor": ""}, 112, None),
    ({"server_assignor": "", "group_id": ""}, 42, None),
    ({"server_assignor": "x", "member_epoch": 5}, 112, None),  # before the group is looked at
    ({"member_epoch": 5}, 69, "Consumer group g not found."),
    ({"member_epoch": -1}, 69, "Group g not found."),
    ({"member_epoch": -2, "instance_id": "i"}, 69, "Group g not found."),
    ({"subscribed_topic_regex": "t["}, 128, None),
    ({"subscribed_topic_regex": "(?!x)"}, 128, None),
]


@pytest.mark.parametrize(("said", "error", "message"), FORMS)
def test_a_refused_first_heartbeat_makes_no_group(
    client: RawConnection, said: dict[str, Any], error: int, message: str | None
) -> None:
    """§2, first part: the form of a request."""
    asked = {"member_id": "a", "member_epoch": 0, **said}
    answer = join(client, asked.pop("member_id"), **asked)
    assert answer.error_code == error
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 0, 0)
    assert answer.assignment is None
    assert message is None or answer.error_message == message
    assert not client.ask(ApiKey.LIST_GROUPS, 5).groups


REFUSED: list[tuple[str, int, dict[str, Any], int]] = [
    ("e", 3, {}, 81),  # before 25, whatever the epoch
    ("e", 0, {**NEW, "subscribed_topic_names": ["t"]}, 81),
    ("e", -1, {}, 25),
    ("e", 3, {"instance_id": "i"}, 82),
    ("d", 3, {"instance_id": "zz"}, 25),
    ("d", 0, {**NEW, "subscribed_topic_names": ["t"], "instance_id": "i"}, 111),
    ("a", 0, {**NEW, "subscribed_topic_names": ["t"], "instance_id": "i"}, 111),
    ("e", -2, {"instance_id": "i"}, 82),
    ("a", 99, {}, 110),
    ("a", 1, {}, 110),
    ("a", 2, {"subscribed_topic_regex": "t["}, 128),
    ("a", 99, {"subscribed_topic_regex": "t["}, 110),
]


@pytest.mark.parametrize(("member", "epoch", "said", "error"), REFUSED)
def test_a_refused_member_changes_nothing(
    client: RawConnection, member: str, epoch: int, said: dict[str, Any], error: int
) -> None:
    """§2, second part: members and epochs, in a full group."""
    join(client, "a", instance_id="i")
    for each in "bcd":
        assert not join(client, each).error_code
    before = described(client)
    answer = beat(client, member, epoch, **said)
    assert answer.error_code == error
    assert described(client) == before


def described(client: RawConnection) -> Any:
    asked = {"group_ids": ["g"], "include_authorized_operations": False}
    (group,) = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups
    return group


# --- hostile --------------------------------------------------------------------------------


def test_ids_that_no_record_can_have_are_refused(client: RawConnection) -> None:
    long = "x" * 32_767
    for said in ({"group_id": long}, {"instance_id": long}, {"rack_id": long}, {}):
        member = "a" if said else long
        assert join(client, member, **said).error_code in (0, 42, 10, -1), said
    assert not join(client, "b").error_code


@pytest.mark.parametrize("entries", [60_000, 1])
def test_a_heartbeat_with_very_many_partitions_is_answered_soon(
    client: RawConnection, entries: int
) -> None:
    """§1.6: of one topic, named again and again, or of one that has as many."""
    join(client, "a")
    (mine,) = owned(client)
    each = range(0 if entries > 1 else 240_000)
    many = [{**mine, "partitions": [it, *each]} for it in range(entries)]
    asked = {"group_id": "g", "member_id": "a", "member_epoch": 2, "topic_partitions": many}
    client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, rebalance_timeout_ms=-1, **asked)
    client.socket.settimeout(5)
    _, answer = client.receive()
    assert not answer.error_code


def test_ten_thousand_topics_that_are_not_there(client: RawConnection) -> None:
    """§1.8: they are kept, and shown."""
    names = ["t", "a/b", "", *(f"none-{number}" for number in range(10_000))]
    assert has(join(client, "a", subscribed_topic_names=[*names, "t"])) == [0, 1, 2, 3]
    (member,) = described(client).members
    assert sorted(member.subscribed_topic_names) == sorted(names)
    assert has(beat(client, "a", 2)) is None


# --- groups that change over ------------------------------------------------------------------


def classic_join(connection: RawConnection, member: str = "", **said: Any) -> Any:
    asked = {
        "group_id": "g",
        "member_id": member,
        "session_timeout_ms": 600_000,
        "rebalance_timeout_ms": 600_000,
        "protocol_type": "consumer",
        "protocols": [
            {"name": "range", "metadata": b"\0\1\0\0\0\1\0\1t" + b"\xff" * 4 + b"\0" * 4}
        ],
        **said,
    }
    answer = connection.ask(ApiKey.JOIN_GROUP, 5, **asked)
    if answer.error_code == 79:
        answer = connection.ask(ApiKey.JOIN_GROUP, 5, **asked | {"member_id": answer.member_id})
    return answer


def test_a_group_that_becomes_classic_does_not_wait_for_members_that_are_gone(
    client: RawConnection,
) -> None:
    join(client, "a")
    soon = {"session_timeout_ms": 400, "rebalance_timeout_ms": 1000}
    assert not classic_join(client, **soon).error_code
    assert not beat(client, "a", -1).error_code
    client.socket.settimeout(10)
    joined = classic_join(client, **soon)
    assert (joined.error_code, len(joined.members)) == (0, 1)
    assert joined.leader == joined.member_id


# --- kills and full disks -------------------------------------------------------------------


def test_a_revocation_goes_on_after_a_kill(process: BrokerProcess) -> None:
    """§15.1: nobody joins again."""
    with process.connect() as client:
        assert has(join(client, "a")) == [0, 1, 2, 3]
        assert has(join(client, "b")) == []
        assert has(beat(client, "a", 2)) == [0, 1]
        mine = owned(client, 0, 1)
        before = described(client)
    process.kill()
    process.start_again()
    with process.connect() as client:
        eventually(lambda: not beat(client, "b", 3).error_code)
        assert described(client) == before
        assert has(beat(client, "b", 3)) is None
        answer = beat(client, "a", 2, topic_partitions=mine)
        assert (answer.member_epoch, answer.assignment) == (3, None)
        assert has(beat(client, "b", 3)) == [2, 3]


def test_nothing_of_a_group_changes_while_the_disk_is_full(broker: RunningBroker) -> None:
    with broker.connect() as client:
        assert has(join(client, "a")) == [0, 1, 2, 3]
        before = described(client)
        with pytest.MonkeyPatch.context() as full:
            full_disk(full)
            assert join(client, "b").error_code
            assert beat(client, "a", -1).error_code
            assert described(client) == before
            assert not beat(client, "a", 2).error_code
        assert has(join(client, "b")) == []


def test_a_migration_goes_on_after_a_kill(process: BrokerProcess) -> None:
    """§11.3 and §15.1: a classic member is one of a consumer group, and then of a classic one."""
    with process.connect() as client:
        member = classic_join(client).member_id
        assert sync(client, member, 1, give=range(4)) == 0
        assert has(join(client, "a")) == []
        before = described(client)
    process.kill()
    process.start_again()
    with process.connect() as client:
        eventually(lambda: beat_classic(client, member, 1) == 27)
        assert described(client) == before
        assert not beat(client, "a", -1).error_code
    process.kill()
    process.start_again()
    with process.connect() as client:
        joined = classic_join(client, member)
        assert (joined.error_code, joined.leader) == (0, member)
        assert sync(client, member, joined.generation_id, give=range(4)) == 0
        assert beat_classic(client, member, joined.generation_id) == 0
        (group,) = client.ask(ApiKey.LIST_GROUPS, 5).groups
        assert (group.group_type, group.group_state) == ("classic", "Stable")


def beat_classic(connection: RawConnection, member: str, generation: int) -> int:
    asked = {"group_id": "g", "member_id": member, "generation_id": generation}
    return int(connection.ask(ApiKey.HEARTBEAT, 3, **asked).error_code)


def sync(connection: RawConnection, member: str, generation: int, give: Iterable[int] = ()) -> int:
    partitions = b"".join(it.to_bytes(4, "big") for it in give)
    count = (len(partitions) // 4).to_bytes(4, "big")
    assignment = b"\0\1\0\0\0\1\0\1t" + count + partitions + b"\xff" * 4
    given = [{"member_id": member, "assignment": assignment}]
    asked = {"group_id": "g", "member_id": member, "generation_id": generation}
    return int(connection.ask(ApiKey.SYNC_GROUP, 3, assignments=given, **asked).error_code)


def test_members_whose_time_is_over_go_once_the_disk_has_room(broker: RunningBroker) -> None:
    """§6.3: and meanwhile nothing is half written, and nothing runs in circles."""
    with broker.connect() as client:
        join(client, "a", rebalance_timeout_ms=50)
        join(client, "b")
        (mine,) = owned(client, 0, 1)
        with pytest.MonkeyPatch.context() as full:
            full_disk(full)
            assert beat(client, "a", 2).error_code
            assert described(client).group_epoch == 3
        assert has(beat(client, "a", 2)) == [0, 1]
        with pytest.MonkeyPatch.context() as full:
            full_disk(full)
            time.sleep(1.5)
            assert [it.member_id for it in described(client).members] == ["a", "b"]
        eventually(lambda: [it.member_id for it in described(client).members] == ["b"])
        assert beat(client, "a", 2, topic_partitions=[mine]).error_code == 25
        assert has(beat(client, "b", 3)) == [0, 1, 2, 3]


def test_a_conversion_that_cannot_be_written_leaves_the_classic_group(
    broker: RunningBroker,
) -> None:
    with broker.connect() as client:
        member = classic_join(client).member_id
        assert sync(client, member, 1, give=range(4)) == 0
        with pytest.MonkeyPatch.context() as full:
            full_disk(full)
            assert join(client, "a").error_code
            assert beat_classic(client, member, 1) == 0
        (group,) = client.ask(ApiKey.LIST_GROUPS, 5).groups
        assert (group.group_type, group.group_state) == ("classic", "Stable")
        assert has(join(client, "a")) == []
        with pytest.MonkeyPatch.context() as full:
            full_disk(full)
            assert beat(client, "a", -1).error_code
            assert beat_classic(client, member, 1) == 27
        assert described(client).group_epoch == 2
        assert not beat(client, "a", -1).error_code
        joined = classic_join(client, member)
        assert (joined.error_code, joined.generation_id) == (0, 3)


# --- memory ---------------------------------------------------------------------------------

small = a_broker(
    "t",
    now_ms=None,
    **{**SETTINGS, "horolog_group_max_bytes": "65536", "horolog_groups_max_bytes": "131072"},
)


def test_members_of_one_group_and_of_all_have_bounds(small: RunningBroker) -> None:
    names = ["t", *(f"none-{number}" for number in range(300))]
    with small.connect() as client:
        assert not join(client, "a", subscribed_topic_names=names).error_code
        assert not join(client, "b", subscribed_topic_names=names).error_code
        answer = join(client, "c", subscribed_topic_names=names)
        assert (answer.error_code, "horolog.group.max.bytes" in answer.error_message) == (81, True)
        assert not beat(client, "a", 2).error_code
        assert beat(client, "a", 2, subscribed_topic_names=names * 3 + ["x" * 30_000]).error_code
        assert not join(client, "a", group_id="h", subscribed_topic_names=names).error_code
        codes = [
            join(client, "a", group_id=f"h{number}", subscribed_topic_names=names).error_code
            for number in range(5)
        ]
        assert codes[-1] == 15
        assert not beat(client, "a", -1).error_code
        assert not beat(client, "b", -1).error_code
        client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
        assert not join(client, "z", group_id="z", subscribed_topic_names=names).error_code


# --- offsets --------------------------------------------------------------------------------

aging = a_broker("t", partitions=2, **SETTINGS)


def test_offsets_are_kept_while_a_member_subscribes_and_expire_by_their_commit(
    aging: RunningBroker,
) -> None:
    """§9.9 and §9.10: the group goes with its last offset."""
    minute_ms = 60_000

    def expire() -> int:
        return int(aging.run(aging.broker.groups.expire(minute_ms)))

    with aging.connect() as client:
        join(client, "a")
        assert commit(client, "a", 2) == 0
        assert isinstance(aging.clock, ManualClock)
        aging.clock.advance(minute_ms * 5 // 4)
        assert expire() == 0
        assert not beat(client, "a", -1).error_code
        assert [it.group_state for it in client.ask(ApiKey.LIST_GROUPS, 5).groups] == ["Empty"]
        assert expire() == 1
        assert not client.ask(ApiKey.LIST_GROUPS, 5).groups
        join(client, "a")
        assert commit(client, "a", 2) == 0
        assert not beat(client, "a", -1).error_code
        assert expire() == 0
        assert delete_offsets(client) == [0]
        expire()
        assert not client.ask(ApiKey.LIST_GROUPS, 5).groups


def commit(connection: RawConnection, member: str, epoch: int) -> int:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    (topic,) = connection.ask(
        ApiKey.OFFSET_COMMIT,
        9,
        group_id="g",
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[{"name": "t", "partitions": [partition]}],
    ).topics
    return int(topic.partitions[0].error_code)


def delete_offsets(connection: RawConnection) -> list[int]:
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    (topic,) = connection.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics).topics
    return [it.error_code for it in topic.partitions]


def test_a_deleted_group_is_gone_after_a_kill_too(process: BrokerProcess) -> None:
    """§9.7 and §10.8"""
    with process.connect() as client:
        join(client, "a")
        assert commit(client, "a", 2) == 0
        assert delete_offsets(client) == [86]
        assert [int(it.error_code) for it in delete(client)] == [68]
        assert not beat(client, "a", -1).error_code
        assert [int(it.error_code) for it in delete(client)] == [0]
        assert [int(it.error_code) for it in delete(client)] == [69]
    process.kill()
    process.start_again()
    with process.connect() as client:
        eventually(lambda: client.ask(ApiKey.LIST_GROUPS, 5).error_code == 0)
        assert not client.ask(ApiKey.LIST_GROUPS, 5).groups
        assert join(client, "a").member_epoch == 2


def delete(connection: RawConnection) -> Any:
    return connection.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"]).results


# --- rights ---------------------------------------------------------------------------------

guarded = a_broker(now_ms=None, **{**SETTINGS, **matrix.OURS})


def test_members_get_topics_that_they_may_describe(guarded: RunningBroker) -> None:
    """§8.3 and §12"""
    member, stranger = matrix.user(0), matrix.user(1)
    with (
        matrix.login(guarded.connect(), matrix.ADMIN) as admin,
        matrix.login(guarded.connect(), member) as client,
        matrix.login(guarded.connect(), stranger) as other,
    ):
        topics = [{"name": name, "num_partitions": 2} for name in ("t", "secret")]
        admin.ask(ApiKey.CREATE_TOPICS, 7, topics=topics)
        rights = [
            allowed(member, AclResource.GROUP, "g", AclOperation.READ),
            allowed(member, AclResource.TOPIC, "t", AclOperation.DESCRIBE),
        ]
        assert not any(
            it.error_code for it in admin.ask(ApiKey.CREATE_ACLS, 3, creations=rights).results
        )
        refused = join(other, "b")
        assert (refused.error_code, refused.error_message) == (30, None)
        for names in (["t", "secret"], ["t", "none"]):
            assert join(client, "a", subscribed_topic_names=names).error_code == 29
        pattern = {"subscribed_topic_names": [], "subscribed_topic_regex": ".*"}
        assert has(join(client, "a", **pattern)) == []
        eventually(lambda: beat(client, "a", 1, topic_partitions=[]).member_epoch == 2)
        (seen,) = described(client).members
        assert [it.topic_name for it in seen.assignment.topic_partitions] == ["t"]
        assert beat(other, "a", -1).error_code == 30
        # What it has found counts for all members of the pattern.
        assert has(join(admin, "b", **pattern)) == []
        assert has(beat(client, "a", 2)) == [0]
        beat(client, "a", 2, topic_partitions=[])
        assert has(beat(admin, "b", 3)) == [1]
        assert has(join(admin, "c", subscribed_topic_names=["secret"])) == [0, 1]
        assert described(client).error_code == 29
        assert described(admin).error_code == 0
        assert described(other).error_code == 30


def allowed(user: str, kind: AclResource, name: str, operation: AclOperation) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": matrix.LITERAL,
        "principal": f"User:{user}",
        "host": "*",
        "operation": operation,
        "permission_type": AclPermission.ALLOW,
    }
