"""subscribe() with the real clients: partitions are shared out, and offsets are kept."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from kafka_clients import CLIENTS, SESSION_MS, KafkaClient, Sent, kafka
from patience import PATIENCE_S, eventually
from running_broker import MakeBroker, RunningBroker

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


@every_client
def test_a_group_goes_on_where_it_stopped_also_after_a_restart_of_the_broker(
    client: KafkaClient, broker: RunningBroker
) -> None:
    client.produce(broker.address, "t", [Sent(None, b"%d" % n) for n in range(20)])
    first = client.consume(broker.address, "t", 7, group="g")
    assert [one.offset for one in first] == list(range(7))
    broker.restart()
    second = client.consume(broker.address, "t", 6, group="g")
    assert [one.offset for one in second] == list(range(7, 13))
    other = client.consume(broker.address, "t", 1, group="h")
    assert other[0].offset == 0


class Member:
    """A confluent-kafka consumer on a thread, which knows what is assigned to it."""

    def __init__(self, address: str, group: str, topic: str, **config: Any) -> None:
        self.assigned: set[int] = set()
        self.assignments = 0
        """How often partitions were given or taken."""
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 200,
                "topic.metadata.refresh.interval.ms": 500,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        incremental = config.get("partition_assignment_strategy") == "cooperative-sticky"

        def on_assign(_: Any, partitions: list[Any]) -> None:
            self.assignments += 1
            found = {tp.partition for tp in partitions}
            self.assigned = self.assigned | found if incremental else found

        def on_revoke(_: Any, partitions: list[Any]) -> None:
            self.assignments += 1
            self.assigned -= {tp.partition for tp in partitions}

        self._consumer.subscribe(
            [topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke
        )
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def members(count: int, *given: Any, **config: Any) -> Iterator[list[Member]]:
    all_of_them = [Member(*given, **config) for _ in range(count)]
    try:
        yield all_of_them
    finally:
        for member in all_of_them:
            member.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_are_assigned_again_when_members_come_and_go(
    strategy: str, broker: RunningBroker
) -> None:
    broker.create_topic("t", partitions=6)
    given = (broker.address, "g", "t")
    with members(2, *given, partition_assignment_strategy=strategy) as two:
        assert eventually(lambda: sorted(len(m.assigned) for m in two) == [3, 3])
        with members(1, *given, partition_assignment_strategy=strategy) as third:
            three = [*two, *third]
            assert eventually(lambda: [len(m.assigned) for m in three] == [2, 2, 2])
            assert set.union(*(m.assigned for m in three)) == set(range(6))
        assert eventually(lambda: sum(len(m.assigned) for m in two) == 6)


def test_the_group_is_seen_and_can_be_deleted_when_it_is_empty(broker: RunningBroker) -> None:
    broker.create_topic("t", partitions=2)
    CLIENTS[0].produce(broker.address, "t", [Sent(None, b"v")])
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        with members(1, broker.address, "g", "t") as (member,):
            assert eventually(lambda: len(member.assigned) == 2)
            groups = admin.describe_groups(["g"])
            assert groups["g"]["group_state"] == "Stable"
            assert len(groups["g"]["members"]) == 1
        assert eventually(lambda: admin.describe_groups(["g"])["g"]["group_state"] == "Empty")
        CLIENTS[1].consume(broker.address, "t", 1, group="g")
        offsets = admin.list_group_offsets(["g"])
        assert offsets
        admin.delete_groups(["g"])
        assert not [group for group in admin.list_groups() if group["group_id"] == "g"]
    finally:
        admin.close()


def test_a_static_member_comes_back_without_a_rebalance(broker: RunningBroker) -> None:
    broker.create_topic("t", partitions=4)
    given = (broker.address, "g", "t")
    with members(1, *given, group_instance_id="a") as (a,):
        with members(1, *given, group_instance_id="b") as (b,):
            assert eventually(lambda: len(a.assigned) == len(b.assigned) == 2)
            of_b = set(b.assigned)
        generation = broker.call(lambda: broker.broker.groups.all()[0].generation)
        with members(1, *given, group_instance_id="b") as (b,):
            assert eventually(lambda: b.assigned == of_b)
        assert broker.call(lambda: broker.broker.groups.all()[0].generation) == generation


@pytest.mark.parametrize("crash", [False, True])
def test_members_keep_their_partitions_over_a_restart_of_the_broker(
    crash: bool, broker: RunningBroker
) -> None:
    broker.create_topic("t", partitions=4)

    def committed() -> int:
        rows = broker.call(lambda: broker.broker.groups.offsets.of_group("g"))
        return sum(row.committed for row in rows.values())

    config = {"auto_commit_interval_ms": 100, "auto_offset_reset": "earliest"}
    with members(2, broker.address, "g", "t", **config) as two:
        assert eventually(lambda: sorted(len(m.assigned) for m in two) == [2, 2])
        before = [(m.assignments, set(m.assigned)) for m in two]
        broker.restart(crash=crash)
        CLIENTS[0].produce(broker.address, "t", [Sent(None, b"%d" % each) for each in range(40)])
        # Their commits count: they are members of the generation that the broker is in.
        assert eventually(lambda: committed() == 40)
        assert [(m.assignments, set(m.assigned)) for m in two] == before


def test_first_commits_are_kept_while_expiry_runs_and_other_groups_are_deleted(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(offsets_retention_check_interval_ms="10")
    broker.create_topic("t")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.address})

    def commit(group: str, offset: int) -> Any:
        at = confluent_kafka.TopicPartition("t", 0, offset)
        request = confluent_kafka.ConsumerGroupTopicPartitions(group, [at])
        (done,) = admin.alter_consumer_group_offsets([request]).values()
        return done

    commits, deletions = {}, []
    for number in range(200):
        commits[f"kept-{number}"] = commit(f"kept-{number}", number)
        commit(f"gone-{number}", 1).result(PATIENCE_S)
        commits[f"gone-{number}"] = commit(f"gone-{number}", number)
        deletions += admin.delete_consumer_groups([f"gone-{number}"]).values()
    for deleted in deletions:
        deleted.exception(PATIENCE_S)  # refused where the commit came first and last
    for done in commits.values():
        done.result(PATIENCE_S)

    def committed() -> dict[str, int]:
        offsets = broker.broker.groups.offsets
        rows = [offsets.get(group, "t", 0) for group in commits]
        return {row.group_id: row.committed for row in rows if row is not None}

    before = broker.call(committed)
    kept = {group: offset for group, offset in before.items() if group.startswith("kept-")}
    assert kept == {f"kept-{number}": number for number in range(200)}
    broker.restart()
    assert eventually(lambda: not broker.broker.groups.is_loading)
    assert broker.call(committed) == before
