"""What knows groups knows those that the broker assigns (KIP-848), with members of librdkafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from command_runner import Ran, run_command
from metrics_page import scrape
from mirror_lab import MirrorLab
from patience import eventually
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker, a_broker
from short_pauses import SHORT_PAUSES
from streaming_query import Query

from horolog.client import CommittedOffset
from horolog.record import LogRecord, build_batch
from horolog.testing import Broker
from horolog.wire import RETENTION_UNREAD, ApiKey, AskUnread

broker = a_broker(
    "t", partitions=2, now_ms=None, horolog_metrics_port="0", of_topics={"retention_ms": "3600000"}
)


@contextmanager
def consumer(address: str, group: str = "g", **config: Any) -> Iterator[confluent_kafka.Consumer]:
    """A member of a group of the consumer protocol, subscribed to t."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    member = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **named,
        }
    )
    try:
        member.subscribe(["t"])
        yield member
    finally:
        member.close()


def append(broker: Any, *values: bytes, partition: int = 0) -> None:
    records = [LogRecord(broker.clock.now_ms(), None, value) for value in values]
    broker.append("t", build_batch(records), partition)


def read(member: confluent_kafka.Consumer, count: int) -> list[tuple[int, int]]:
    """Read that many records and commit behind them; partitions and offsets."""
    found: list[tuple[int, int]] = []

    def is_read() -> bool:
        message = member.poll(0.1)
        if message is not None and message.error() is None:
            found.append((message.partition(), message.offset()))
            member.commit(message, asynchronous=False)
        return len(found) == count

    assert eventually(is_read), found
    return sorted(found)


def committed(broker: RunningBroker) -> int | None:
    """What the group has committed of the first partition."""
    found = broker.client.offset_fetch("g").get(("t", 0))
    return None if found is None else found.offset


def shared(*members: confluent_kafka.Consumer) -> bool:
    """Poll members; whether each has a partition."""
    for member in members:
        member.poll(0.1)
    return all(len(member.assignment()) == 1 for member in members)


def used(broker: RunningBroker) -> RunningBroker:
    """The broker with a group without members, which has read one of three records."""
    append(broker, b"a", b"b", b"c")
    with consumer(broker.address) as member:
        assert read(member, 3)
        offsets = [confluent_kafka.TopicPartition("t", 0, 1)]
        member.commit(offsets=offsets, asynchronous=False)
    return broker


def run(broker: RunningBroker, *args: object) -> Ran:
    return run_command(*args, HOROLOG_BOOTSTRAP=broker.address)


def test_the_lag_of_a_group_and_what_it_loses_unread_are_told(broker: RunningBroker) -> None:
    used(broker)
    lag = run(broker, "lag", "g")
    assert lag.code == 0
    row = next(line.split() for line in lag.lines if line.startswith("g "))
    assert row[:6] == ["g", "t", "0", "1", "3", "2"]
    lost = [line for line in lag.lines if line.startswith("retention deletes 2 records of t-0")]
    assert len(lost) == 1
    described = run(broker, "groups", "describe", "g")
    assert described.lines[0].startswith("g: Empty, consumer, uniform")
    assert lost[0] in described.lines
    unread = broker.client.ask(RETENTION_UNREAD, "t", AskUnread(0))
    assert unread is not None
    assert [(it.group, it.records) for it in unread.unread] == [("g", 2)]
    assert run(broker, "health").code == 0


def test_a_report_has_the_group(broker: RunningBroker, tmp_path: Path) -> None:
    used(broker)
    assert run(broker, "report", "t", "--output", tmp_path / "page.html").code == 0
    assert '"group":"g","topic":"t","partition":0,"committed":1' in (
        (tmp_path / "page.html").read_text()
    )


def test_a_group_is_reset_once_its_members_have_left(broker: RunningBroker) -> None:
    used(broker)
    with consumer(broker.address) as member:
        assert read(member, 2) == [(0, 1), (0, 2)]
        refused = run(broker, "groups", "reset", "g", "--as-of", "-1h")
        assert refused.code == 1
        assert "stop them first" in refused.err
    assert run(broker, "groups", "reset", "g", "--as-of", "-1h").code == 0
    with consumer(broker.address) as member:
        assert read(member, 3) == [(0, 0), (0, 1), (0, 2)]


def test_metrics_count_groups_members_and_rebalances_by_type(broker: RunningBroker) -> None:
    states = ("Empty", "Assigning", "Reconciling", "Stable")

    def counted() -> dict[str, float]:
        found = scrape(broker)
        by_state = {
            state: found.value("horolog_groups", type="consumer", state=state) for state in states
        }
        return {state: count for state, count in by_state.items() if count}

    def rebalances(kind: str) -> float:
        return scrape(broker).value("horolog_group_rebalances_total", type=kind)

    assert counted() == {}
    assert rebalances("consumer") == 0
    append(broker, b"a")
    with consumer(broker.address) as member:
        assert read(member, 1)
        assert counted() == {"Stable": 1}
        assert rebalances("consumer") == 1
        assert scrape(broker).value("kafka_consumergroup_members", consumergroup="g") == 1
        with consumer(broker.address) as other:
            assert eventually(lambda: shared(member, other))
            assert rebalances("consumer") == 2
    assert counted() == {"Empty": 1}
    assert rebalances("consumer") == 2, "members that leave do not count, as at Kafka"
    with consumer(broker.address, "h", **{"group.protocol": "classic"}) as member:
        assert read(member, 1)
        assert scrape(broker).value("horolog_groups", type="classic", state="Stable") == 1
        assert rebalances("classic") == 1
    assert scrape(broker).value("horolog_groups", type="classic", state="Empty") == 1


def test_offsets_of_a_group_are_carried_over_by_a_mirror(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = MirrorLab(tmp_path, monkeypatch, make_broker)
    lab.source.create_topic("t")
    used(lab.source)
    done = lab.run(groups=["g"])
    assert [(group.group, group.partitions) for group in done.groups] == [("g", 1)]
    with consumer(lab.target.address) as member:
        assert read(member, 2) == [(0, 1), (0, 2)]
    append(lab.source, b"d")
    with consumer(lab.target.address) as member:
        assert eventually(lambda: shared(member))
        with consumer(lab.source.address) as other:
            assert read(other, 3)
        (group,) = lab.run(groups=["g"]).groups
        assert "the target refuses" in (group.note or "")


def test_a_stream_of_spark_commits_to_a_group_without_members(broker: RunningBroker) -> None:
    used(broker)
    query = Query(broker, subscribe="t", startingOffsets="earliest", commitOffsetsToGroup="g")
    assert query.plan()
    query.run()
    assert committed(broker) == 3
    assert broker.client.groups.describe(["g"])["g"].type == "consumer"


def test_the_fixture_serves_members_and_lets_their_sessions_end() -> None:
    with Broker() as broker:
        broker.create_topic("t", partitions=2)
        with consumer(broker.bootstrap_servers) as member:
            assert eventually(lambda: member.poll(0.1) or len(member.assignment()) == 2)
            broker.kill()
            broker.start()
            assert eventually(lambda: member.poll(0.1) or len(member.assignment()) == 2)


class TestFollowing:
    """A group at the source, and at the shadow that takes its place."""

    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module, name, value in SHORT_PAUSES:
            monkeypatch.setattr(module, name, value)

    def test_members_of_a_lost_source_join_at_the_promoted_shadow(
        self, broker: RunningBroker, make_broker: MakeBroker
    ) -> None:
        append(broker, b"a", b"b")
        shadow = make_broker(horolog_follow=broker.address, replica_fetch_wait_max_ms="50")
        servers = f"{broker.address},{shadow.address}"
        with consumer(broker.address, bootstrap_servers=servers) as member:
            assert read(member, 2) == [(0, 0), (0, 1)]
            assert eventually(lambda: committed(shadow) == 2)
            broker.kill()
            shadow.client.promote(None)
            append(shadow, b"c")
            assert read(member, 1) == [(0, 2)]
            described = shadow.client.groups.describe(["g"])["g"]
            assert (described.type, len(described.members or ())) == ("consumer", 1)

    def test_a_member_is_told_to_join_where_its_group_was_followed(
        self, broker: RunningBroker, make_broker: MakeBroker
    ) -> None:
        broker.client.offset_commit("g", {("t", 0): CommittedOffset(0)})
        shadow = make_broker(horolog_follow=broker.address, replica_fetch_wait_max_ms="50")
        assert eventually(lambda: shadow.client.offset_fetch("g") != {})
        codes = {}
        for name, one in (("source", broker), ("shadow", shadow)):
            with RawConnection(one.address) as connection:
                codes[name] = [
                    connection.ask(
                        ApiKey.CONSUMER_GROUP_HEARTBEAT,
                        1,
                        group_id=group,
                        member_id="m",
                        member_epoch=epoch,
                        rebalance_timeout_ms=-1,
                    ).error_code
                    for group in ("g", "none")
                    for epoch in (5, -1)
                ]
        assert codes == {"source": [69, 69, 69, 69], "shadow": [25, 69, 25, 69]}
