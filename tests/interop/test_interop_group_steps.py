"""One consumer group step by step, by Apache Kafka and by horolog: the same answers and records.

And at random, while members of both protocols come and go: groups that change over and back.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from bench.sides import horolog
from heartbeat_twins import Twin
from migration_twins import SETTINGS, MigrationTwins
from step_twins import StepTwins
from tools.peers.kafka import Kafka

from horolog.wire import ApiKey

EPISODES, STEPS = 40, 50
JOIN: dict[str, Any] = {"owned": {}, "rebalance_timeout_ms": 600_000}
ALL = {"x": [0, 1, 2, 3]}


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: Any) -> Iterator[tuple[str, str]]:
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    with (
        horolog(SETTINGS, directory=ours) as side,
        Kafka(theirs, settings=SETTINGS) as kafka,
    ):
        yield side.bootstrap, kafka.bootstrap


def joins_and_leaves(twins: StepTwins) -> None:
    twins.begin(x=4)
    beat, written = twins.beat, twins.written
    beat("a", 0, topics=["x"], **JOIN)
    ((*_, current),) = written()
    assert current[:3] == ("Current", "a", (2, 0, 0, [("x", [(it, 2) for it in range(4)])], []))
    beat("b", 0, topics=["x"], **JOIN)
    assert [it[0] for batch in written() for it in batch] == [
        *("Member", "GroupEpoch", "Target", "Target", "TargetEpoch", "Current")
    ]
    beat("a", 2)
    written()
    beat("a", 2, owned={"x": [0, 1]})
    written()
    for _ in range(2):
        beat("b", 3)
        written()
    beat("a", 3, rack_id="r")
    assert [it[0] for (it,) in written()] == ["Member"]
    beat("a", 3, server_assignor="range")
    beat("b", 3, server_assignor="uniform")
    beat("b", 3, server_assignor="range")
    beat("b", 3, rebalance_timeout_ms=5000)
    written()
    beat("b", -1)
    beat("a", 3)
    beat("a", -1)
    beat("a", 0, topics=[], **JOIN)
    beat("a", -1)
    written()


def static_members(twins: StepTwins) -> None:
    twins.begin(x=4, y=2)
    beat, written = twins.beat, twins.written
    beat("a", 0, topics=["x"], instance_id="i", **JOIN)
    beat("b", 0, topics=["x"], instance_id="j", **JOIN)
    written()
    for _ in range(2):
        beat("a", -2, instance_id="i")
        written()
    twins.look()
    beat("a", 2)
    beat("c", 0, topics=["x"], instance_id="i", **JOIN)
    written()
    beat("c", 3, owned={"x": [0, 1]})
    beat("a", -1, instance_id="i")
    beat("c", -2, instance_id="i")
    beat("d", 0, topics=["y"], instance_id="i", **JOIN)
    written()
    twins.look()
    beat("d", 0, topics=["y"], instance_id="i", **JOIN)
    beat("b", 3)
    beat("b", -1)
    written()


def patterns(twins: StepTwins) -> None:
    twins.begin(x=4)
    beat, written = twins.beat, twins.written
    regex = f"{twins.prefix}.*"
    beat("a", 0, topics=[], subscribed_topic_regex=regex, **JOIN)
    written(until="Pattern")
    beat("a", 1)
    beat("b", 0, subscribed_topic_regex=regex, **JOIN)
    beat("b", 3, subscribed_topic_regex="t[")
    beat("b", 3, subscribed_topic_regex="")
    beat("b", 4, topics=["x"])
    written()
    twins.look()
    beat("a", -1)
    written()


def unsubscribing(twins: StepTwins) -> None:
    twins.begin(x=4, y=2)
    beat, written = twins.beat, twins.written
    beat("a", 0, topics=["x", "y"], **JOIN)
    beat("a", 2, topics=["x"])
    beat("a", 2, owned=ALL)
    beat("b", 0, topics=["x", "y"], **JOIN)
    beat("a", 3, topics=[])
    beat("a", 3, owned={})
    beat("b", 4)
    written()
    # It has nothing and is to have nothing, but what it had it has no longer.
    beat("a", 5, subscribed_topic_regex="zz.*")
    written(until="Pattern")
    beat("a", 5)
    beat("a", 5, subscribed_topic_regex="")
    written()
    twins.look()


def changed_topics(twins: StepTwins) -> None:
    twins.begin(x=2, y=1)
    beat, written = twins.beat, twins.written
    beat("a", 0, topics=["x", "y", "z"], **JOIN)
    twins.create("z", 1)
    twins.settle()
    beat("a", 2)
    written()
    twins.widen("x")
    twins.settle()
    beat("a", 3)
    written()
    twins.delete("y")
    twins.settle()
    beat("a", 4)
    beat("a", 4, owned={"x": [0, 1, 2], "z": [0]})
    written()
    twins.delete("x")
    twins.create("x", 1)
    twins.settle()
    beat("a", 5)
    beat("a", 5, owned={})
    beat("a", 6, topics=["x"])
    beat("a", 6, topics=[])
    beat("a", -1)
    written()


def full_group(twins: StepTwins) -> None:
    twins.begin(x=3)
    beat = twins.beat
    for member in "abcdef":
        beat(member, 0, topics=["x"], instance_id=f"i{member}", **JOIN)
    beat("g", 0, topics=["x"], **JOIN)
    for epoch, instance_id in [(3, None), (-1, None), (-2, "ia"), (3, "ia"), (3, "zz")]:
        beat("g", epoch, instance_id=instance_id)
    beat("g", 0, topics=["x"], instance_id="ia", **JOIN)
    beat("a", 0, topics=["x"], **JOIN)
    twins.classic_join("c", ["x"])
    twins.classic_join("c", ["x"], group_instance_id="ia")
    beat("b", -2, instance_id="ib")
    beat("g", 0, topics=["x"], instance_id="ib", **JOIN)
    twins.written(only_last=True)


def deletion(twins: StepTwins) -> None:
    twins.begin(x=2)

    def delete(twin: Twin) -> Any:
        asked = {"groups_names": [twins.prefix]}
        return [
            int(it.error_code)
            for it in twin.connection.ask(ApiKey.DELETE_GROUPS, 2, **asked).results
        ]

    twins.beat("a", 0, topics=["x"], **JOIN)
    twins.alike("delete", delete)
    twins.beat("a", -1)
    twins.written()
    twins.alike("delete", delete)
    assert [it[0] for batch in twins.written() for it in batch] == [
        *("TargetEpoch", "PartitionMetadata", "GroupEpoch")
    ]
    twins.alike("delete", delete)


def empty_group_of_either_type(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.beat("a", 0, topics=["x"], **JOIN)
    twins.beat("a", -1)
    twins.written()

    def commit(twin: Twin) -> Any:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
        topics = [{"name": f"{twins.prefix}x", "partitions": [partition]}]
        (topic,) = twin.connection.ask(
            ApiKey.OFFSET_COMMIT, 9, group_id=twins.prefix, topics=topics
        ).topics
        return [it.error_code for it in topic.partitions]

    twins.alike("commit", commit)
    twins.classic_join("c", ["x"])
    twins.written(only_last=True)
    twins.sync("c", 1, {"c": {"x": [0, 1]}})
    twins.classic_leave("c")
    twins.skip()
    twins.beat("a", 0, topics=["x"], **JOIN)
    twins.written()
    twins.beat("a", -1)
    twins.classic_beat("c", 1)


def leaving_by_id(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.beat("a", 0, topics=["x"], **JOIN)
    for member in ("b", "d"):
        twins.beat(member, 0, topics=["x"], instance_id=f"i{member}", **JOIN)
    twins.classic_leave("a", "a")
    twins.classic_leave("q", "b", group_instance_id="ib")
    twins.classic_leave("", group_instance_id="ib")
    twins.classic_leave("")
    twins.classic_leave()
    twins.classic_leave("d", group_instance_id="zz")
    for _ in range(2):
        twins.classic_leave("d")
    twins.written(only_last=True)


# --- groups that change over ----------------------------------------------------------------


def classic(twins: StepTwins, assigned: dict[str, list[int]], **said: Any) -> None:
    """A classic group of one member."""
    twins.classic_join("c", list(assigned) or ["x"], **said)
    twins.sync("c", 1, {"c": assigned})
    twins.skip()


def up_and_down(twins: StepTwins) -> None:
    twins.begin(x=4)
    join, sync, beat, written = twins.classic_join, twins.sync, twins.beat, twins.written
    beat_classic = twins.classic_beat
    classic(twins, ALL, group_instance_id="c")
    beat("a", 0, topics=["x"], **JOIN)
    assert [it[0] for batch in written() for it in batch] == [
        *("Group", "Member", "GroupEpoch", "Target", "TargetEpoch", "Current"),
        *("Member", "GroupEpoch", "Target", "Target", "TargetEpoch", "Current"),
    ]
    twins.look()
    beat_classic("c", 1)
    sync("c", 1)
    written()
    for owned in (ALL, {"x": [0, 1]}):
        join("c", ["x"], owned=owned, generation=1, group_instance_id="c")
        sync("c", 1)
        sync("c", 2)
        beat_classic("c", 1)
        beat_classic("c", 2)
        written()
    beat("a", 2)
    beat_classic("a", 2)
    sync("a", 2)
    said = {"group_instance_id": "d"}
    join("d", ["x"], protocols=["range", "roundrobin"], **said)
    join("e", ["x"], protocols=["cooperative-sticky"])
    sync("d", 3)
    beat_classic("c", 2)
    for owned in ({"x": [0, 1]}, {"x": [0]}):
        join("c", ["x"], owned=owned, generation=2, group_instance_id="c")
        sync("c", 2)
        sync("c", 3)
    beat("a", 2)
    written()
    beat("a", -1)
    written(only_last=True)
    for epoch in range(1, 6):
        beat_classic("c", epoch)
        beat_classic("d", epoch)
    beat("a", 2)


def before_it_had_synced(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.classic_join("c", ["x"], group_instance_id="k")
    twins.skip()
    twins.beat("a", 0, topics=["x"], **JOIN)
    twins.written(only_last=True)
    twins.look()
    twins.sync("c", 1, {"c": {"x": [0, 1]}})
    twins.classic_beat("c", 1)
    twins.classic_join("c", ["x"], generation=1, group_instance_id="k")
    twins.sync("c", 2)
    twins.written()


def odd_assignments(twins: StepTwins) -> None:
    """Of a topic that is not there, and of a partition that is not."""
    twins.begin(x=2)
    classic(twins, {"x": [0, 1, 7], "nope": [0]}, group_instance_id="k")
    twins.beat("a", 0, topics=["x"], **JOIN)
    twins.look()
    twins.classic_beat("c", 1)
    twins.classic_join("c", ["x"], generation=1, owned={"x": [0, 1, 7]}, group_instance_id="k")
    twins.sync("c", 1)
    twins.written()


def stays_classic(twins: StepTwins) -> None:
    """As another member is refused."""
    twins.skip()
    twins.beat("a", 0, topics=["x"], **JOIN)
    twins.classic_beat("c", 1)
    assert twins.written() == []


def group_of_another_type(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.classic_join("c", ["x"], protocol_type="other")
    twins.sync("c", 1, {"c": {"x": [0]}}, protocol_type="other")
    stays_classic(twins)


def subscription_that_is_none(twins: StepTwins) -> None:
    twins.begin(x=2)
    classic(twins, {"x": [0]}, raw=b"\0")
    stays_classic(twins)


def assignment_that_is_none(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.classic_join("c", ["x"])
    twins.sync("c", 1, raw=b"\0")
    stays_classic(twins)


def assignment_with_user_data(twins: StepTwins) -> None:
    twins.begin(x=2)
    twins.classic_join("c", ["x"])
    twins.sync("c", 1, raw=twins.assignment({"x": [0]})[:-4] + b"\0\0\0\1u")
    stays_classic(twins)


def refused_joins(twins: StepTwins) -> None:
    twins.begin(x=2)
    join, sync, beat_classic = twins.classic_join, twins.sync, twins.classic_beat
    twins.beat("a", 0, topics=["x"], **JOIN)
    for said in (
        {"protocol_type": "other"},
        {"protocol_type": ""},
        {"protocols": []},
        {"raw": b"\0"},
        {"raw": b""},
        {"member_id": "a"},
        {"member_id": "zz"},
        {"session_timeout_ms": 0},
        {"session_timeout_ms": 2**31 - 1},
        {"group_instance_id": "i", "member_id": "zz"},
        {},
    ):
        join("c", ["x"], **said)
    join("d", ["x"], protocols=["roundrobin"])
    sync("c", 3, protocol_name="range")
    sync("c", 3, protocol_type="other")
    sync("c", 3, protocol_name="roundrobin")
    sync("c", 3, group_instance_id="no")
    sync("c", 2)
    sync("c", 4)
    beat_classic("c", 3, group_instance_id="no")
    for member, epoch in [("c", 2), ("c", 4), ("a", 2), ("nobody", 2)]:
        beat_classic(member, epoch)
    twins.look()
    twins.written(only_last=True)


def static_members_of_both(twins: StepTwins) -> None:
    twins.begin(x=4)
    join, beat, written = twins.classic_join, twins.beat, twins.written
    classic(twins, ALL, group_instance_id="k")
    beat("a", 0, topics=["x"], instance_id="k", **JOIN)
    written()
    twins.look()
    join("d", ["x"], group_instance_id="z")
    beat("b", 0, topics=["x"], instance_id="z", **JOIN)
    written()
    twins.look()
    join("d", ["x"], group_instance_id="z", member_id="")
    written()
    # The last of the other protocol is replaced: nothing has to be assigned anew.
    join("e", ["x"], group_instance_id="k")
    written(only_last=True)
    for label in ("d", "e"):
        for epoch in (2, 3, 4):
            twins.classic_beat(label, epoch)
            twins.sync(label, epoch)


def static_member_with_another_subscription(twins: StepTwins) -> None:
    """It takes the place of the last of the other protocol, and all have to join again."""
    twins.begin(x=2, y=2)
    twins.beat("a", 0, topics=["x"], instance_id="i", **JOIN)
    twins.classic_join("c", ["x"], group_instance_id="k")
    twins.sync("c", 3)
    twins.written()
    twins.classic_join("d", ["x", "y"], group_instance_id="i")
    twins.written(only_last=True)
    for label in ("c", "d"):
        for epoch in (0, 3, 4):
            twins.classic_beat(label, epoch)
            twins.sync(label, epoch)


def protocol_of_all(twins: StepTwins) -> None:
    twins.begin(x=3)
    twins.beat("a", 0, topics=["x"], **JOIN)
    for label, protocols in {
        "c": ["one", "two", "three"],
        "d": ["zero", "two", "three"],
        "e": ["three", "two"],
    }.items():
        twins.classic_join(label, ["x"], protocols=protocols, group_instance_id=label)
    twins.written()
    twins.beat("a", -1)
    twins.written()


@pytest.mark.parametrize(
    "steps",
    [
        joins_and_leaves,
        static_members,
        patterns,
        unsubscribing,
        changed_topics,
        full_group,
        deletion,
        empty_group_of_either_type,
        leaving_by_id,
        up_and_down,
        before_it_had_synced,
        odd_assignments,
        group_of_another_type,
        subscription_that_is_none,
        assignment_that_is_none,
        assignment_with_user_data,
        refused_joins,
        static_members_of_both,
        static_member_with_another_subscription,
        protocol_of_all,
    ],
)
def test_each_step_is_answered_and_recorded_as_by_kafka(
    addresses: tuple[str, str], steps: Callable[[StepTwins], None]
) -> None:
    twins = StepTwins(*addresses, f"{steps.__name__}-")
    try:
        steps(twins)
    finally:
        twins.close()


@pytest.mark.parametrize("seed", range(EPISODES))
def test_members_of_both_protocols_get_the_answers_and_records_of_kafka(
    addresses: tuple[str, str], seed: int
) -> None:
    twins = MigrationTwins(*addresses, f"migration-{seed}-", Random(seed))
    try:
        twins.run(STEPS)
    finally:
        twins.close()
