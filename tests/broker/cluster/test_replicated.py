"""Three brokers under a scripted controller: what was acknowledged stays, and logs become equal."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from batches import batch
from joined_broker import JoinedBroker
from metrics_page import scrape
from patience import eventually
from raw_connection import produce_fields
from running_broker import NOW_MS
from scripted_broker import HangUp
from scripted_controller import ScriptedController

from horolog.errors import ErrorCode, StorageFailed
from horolog.schemas.metadata import PartitionRecord
from horolog.wire import ApiKey

IDS = (1, 2, 3)
QUICK = {"replica.fetch.wait.max.ms": "50", "replica.fetch.backoff.ms": "20"}
ALL = -1


class Three:
    """Brokers 1 to 3; each may be killed and started again."""

    def __init__(self, path: Path, **settings: str) -> None:
        self.path = path
        self.quorum = ScriptedController()
        self.brokers: dict[int, JoinedBroker] = {}
        self._settings = QUICK | {name.replace("_", "."): its for name, its in settings.items()}
        self._stack = ExitStack()
        self._stack.enter_context(self.quorum)
        for id_ in IDS:
            self.start(id_)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self._stack.close()

    def start(self, id_: int) -> JoinedBroker:
        broker = JoinedBroker(self.path / str(id_), self.quorum, id_, self._settings)
        self.brokers[id_] = broker
        return broker

    def kill(self, id_: int) -> None:
        """As kill -9 does, after which the session ends."""
        self.brokers.pop(id_).kill()
        self.quorum.expire(id_)

    def state(self, name: str = "t", index: int = 0) -> PartitionRecord:
        return self.quorum.image.topics[name].partitions[index]

    def leader(self, name: str = "t", index: int = 0) -> JoinedBroker:
        """The leader, once its log leads."""
        found: list[JoinedBroker] = []

        def leads() -> bool:
            broker = self.brokers.get(self.state(name, index).leader)
            if broker is None:
                return False
            partition = broker.call(lambda: broker.broker.partitions.find(name, index))
            found[:] = [broker]
            return partition is not None and not partition.log.is_following

        assert eventually(leads)
        return found[0]

    def produce(self, count: int = 1, name: str = "t", acks: int = ALL) -> int:
        """Have batches of two records acknowledged; the end of the log after them."""
        for _ in range(count):
            answers: list[Any] = []

            def acknowledged(answers: list[Any] = answers) -> bool:
                fields = produce_fields(name, {0: batch(NOW_MS, NOW_MS)}, acks=acks)
                fields["timeout_ms"] = 30_000
                (topic,) = self.leader(name).ask(ApiKey.PRODUCE, 9, **fields).responses
                answers[:] = topic.partition_responses
                return not answers[0].error_code

            assert eventually(acknowledged), answers
        return int(answers[0].base_offset) + 2

    def error(self, name: str = "t", timeout_ms: int = 300) -> int:
        """The error of a produce request that is sent once."""
        fields = produce_fields(name, {0: batch(NOW_MS, NOW_MS)}, acks=ALL)
        fields["timeout_ms"] = timeout_ms
        (topic,) = self.leader(name).ask(ApiKey.PRODUCE, 9, **fields).responses
        return int(topic.partition_responses[0].error_code)

    def log_bytes(self, id_: int, name: str = "t", index: int = 0) -> bytes:
        segments = sorted((self.path / str(id_) / f"{name}-{index}").glob("*.log"))
        return b"".join(segment.read_bytes() for segment in segments)

    def are_equal(self, *ids: int, end: int, name: str = "t") -> bool:
        """Whether the logs come to be the same, in sync and committed to the end."""

        def ends(id_: int) -> tuple[int, int]:
            broker = self.brokers[id_]
            partition = broker.call(lambda: broker.broker.partitions.find(name, 0))
            if partition is None:
                return -1, -1
            return partition.log.log_end_offset, partition.log.high_watermark

        assert eventually(lambda: set(self.state(name).isr) == set(ids)), self.state(name)
        assert eventually(lambda: all(ends(id_) == (end, end) for id_ in ids)), [
            ends(id_) for id_ in ids
        ]
        first, *others = [self.log_bytes(id_, name) for id_ in ids]
        return all(other == first for other in others)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    with closing(Three(tmp_path)) as cluster:
        yield cluster


def create(three: Three, *assignments: tuple[int, ...], **settings: str) -> UUID:
    return three.quorum.create_topic("t", [list(ids) for ids in assignments], **settings)


def test_what_is_acknowledged_is_on_all_in_sync_replicas(three: Three) -> None:
    create(three, (1, 2, 3))
    end = three.produce(3)
    assert three.are_equal(1, 2, 3, end=end)


def test_acknowledged_records_outlive_their_leader(three: Three) -> None:
    create(three, (1, 2, 3), min_insync_replicas="2")
    three.produce(3)
    three.kill(1)
    assert three.leader().node_id in (2, 3)
    end = three.produce(2)
    three.start(1)
    assert three.are_equal(1, 2, 3, end=end)
    assert end == 10


def test_each_broker_leads_in_turn(three: Three) -> None:
    create(three, (1, 2, 3), min_insync_replicas="2")
    end = 0
    for _ in range(3):
        end = three.produce(2)
        leader = three.state().leader
        three.kill(leader)
        three.leader()
        end = three.produce(1)
        three.start(leader)
        assert three.are_equal(1, 2, 3, end=end)
    assert end == 18


def test_a_tail_that_was_never_acknowledged_is_cut(three: Three) -> None:
    create(three, (1, 2, 3), min_insync_replicas="2")
    end = three.produce(1)
    assert three.are_equal(1, 2, 3, end=end)
    for id_ in (2, 3):
        three.brokers[id_].run(three.brokers[id_].node.followers.close())
    broker = three.brokers[1]
    broker.produce("t", batch(NOW_MS, NOW_MS), acks=1)
    assert broker.log("t").log_end_offset == 4
    three.quorum.kept_fenced.add(1)
    three.quorum.fence(1)
    assert three.leader().node_id == 2
    assert three.brokers[2].log("t").log_end_offset == 2
    three.quorum.kept_fenced.clear()
    end = three.produce(1)
    assert three.are_equal(1, 2, 3, end=end)


def test_acks_of_all_need_the_minimum_of_replicas(three: Three) -> None:
    create(three, (1, 2, 3), min_insync_replicas="3")
    three.produce(1)
    three.kill(3)
    assert eventually(lambda: three.error() == ErrorCode.not_enough_replicas)
    three.start(3)
    end = three.produce(1)
    assert three.are_equal(1, 2, 3, end=end)


def test_a_fenced_replica_catches_up_and_joins_again(three: Three) -> None:
    create(three, (1, 2, 3))
    three.produce(1)
    three.quorum.kept_fenced.add(3)
    three.quorum.fence(3)
    assert eventually(lambda: 3 not in three.state().isr)
    end = three.produce(2)
    assert 3 not in three.state().isr
    three.quorum.kept_fenced.clear()
    assert three.are_equal(1, 2, 3, end=end)


def test_a_slow_replica_is_taken_out_by_its_leader(tmp_path: Path) -> None:
    with closing(Three(tmp_path, replica_lag_time_max_ms="300")) as three:
        create(three, (1, 2, 3))
        three.produce(1)
        follower = three.brokers[3]
        follower.run(follower.node.followers.close())
        end = three.produce(1)
        assert eventually(lambda: three.state().isr == (1, 2))
        assert three.state().leader_epoch == 0
        assert three.brokers[1].log("t").high_watermark == end


# --- controllers ----------------------------------------------------------------------------


def test_a_replica_joins_although_answers_are_lost(three: Three) -> None:
    lost = iter([True, True, True])
    three.quorum.answers[ApiKey.ALTER_PARTITION] = lambda request, usual: (
        usual() and HangUp() if next(lost, False) else None
    )
    create(three, (1, 2, 3))
    three.kill(3)
    end = three.produce(1)
    three.start(3)
    assert three.are_equal(1, 2, 3, end=end)


@pytest.mark.parametrize(
    "lie",
    [
        {"error_code": 77, "topics": []},
        {"error_code": 31, "topics": []},
        {"topics": []},
        b"",
        b"\xff" * 100,
    ],
    ids=["stale epoch", "no right", "nothing", "empty", "garbage"],
)
def test_a_lie_about_in_sync_replicas_does_no_harm(
    three: Three, lie: "Mapping[str, Any] | bytes"
) -> None:
    lies = iter([lie, lie])
    create(three, (1, 2, 3))
    three.kill(3)
    end = three.produce(1)
    three.quorum.answers[ApiKey.ALTER_PARTITION] = lambda request, usual: next(lies, None)
    three.start(3)
    assert three.are_equal(1, 2, 3, end=end)


def test_another_active_controller_takes_over(tmp_path: Path) -> None:
    with closing(Three(tmp_path)) as three:
        create(three, (1, 2, 3))
        three.produce(1)
        three.quorum.hang_up()
        three.kill(2)
        end = three.produce(2)
        three.start(2)
        assert three.are_equal(1, 2, 3, end=end)


# --- directories, topics, places -------------------------------------------------------------


def test_a_wiped_directory_comes_back_as_an_empty_replica(three: Three) -> None:
    create(three, (1, 2, 3), min_insync_replicas="2")
    end = three.produce(3)
    three.kill(1)
    assert three.leader().node_id == 2
    shutil.rmtree(tmp := three.path / "1")
    assert not tmp.exists()
    broker = three.start(1)
    assert three.are_equal(1, 2, 3, end=end)
    place = three.state().replicas.index(1)
    assert eventually(lambda: three.state().directories[place] == broker.node.directory_id)


@pytest.mark.parametrize("is_directory", [True, False])
def test_a_replica_that_cannot_be_opened_refuses_the_start(
    three: Three, is_directory: bool
) -> None:
    """Elected for it, the broker would leave the partition without a leader."""
    create(three, (1, 2, 3), min_insync_replicas="2")
    three.produce(3)
    three.kill(1)
    path = three.path / "1" / "t-0"
    if is_directory:
        (path / "partition.metadata").write_text("version: 0\ntopic_id: what\n")
    else:
        shutil.rmtree(path)
        path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(StorageFailed, match=r"cannot be opened: t-0 .*move these directories"):
            three.start(1)
        three.quorum.expire(1)
        assert three.leader().node_id == 2
    path.rename(three.path / "moved")
    end = three.produce(1)
    three.start(1)
    assert three.are_equal(1, 2, 3, end=end)


def test_a_topic_made_again_while_a_broker_was_down_is_another_one(three: Three) -> None:
    create(three, (2, 3, 1))
    three.produce(3)
    three.kill(1)
    three.leader().client.delete_topics(["t"])
    topic_id = create(three, (2, 3, 1))
    end = three.produce(1)
    assert end == 2
    three.start(1)
    assert three.are_equal(1, 2, 3, end=end)
    assert three.brokers[1].log("t").topic_id == topic_id
    assert any((three.path / "1").glob("t-0.*-stray"))


def test_a_partition_moves_to_other_brokers(three: Three) -> None:
    create(three, (1,))
    three.produce(3)
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [2, 3]}]}]
    three.brokers[3].ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=10_000, topics=topics)
    assert eventually(lambda: set(three.state().replicas) == {2, 3})
    end = three.produce(1)
    assert three.are_equal(2, 3, end=end)
    assert end == 8
    assert eventually(lambda: not (three.path / "1" / "t-0").exists())


def test_controlled_shutdown_moves_leaders_and_keeps_what_was_acknowledged(three: Three) -> None:
    create(three, (1, 2, 3), min_insync_replicas="2")
    three.produce(2)
    three.brokers.pop(1).stop()
    three.quorum.expire(1)
    assert three.leader().node_id in (2, 3)
    end = three.produce(1)
    three.start(1)
    assert three.are_equal(1, 2, 3, end=end)


def test_deleted_records_go_from_all_replicas(three: Three) -> None:
    create(three, (1, 2, 3))
    end = three.produce(3)
    partitions = [{"partition_index": 0, "offset": 4}]
    answer = three.leader().ask(
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": "t", "partitions": partitions}],
        timeout_ms=30_000,
    )
    assert answer.topics[0].partitions[0].low_watermark == 4
    assert eventually(
        lambda: all(broker.log("t").log_start_offset == 4 for broker in three.brokers.values())
    )
    assert three.are_equal(1, 2, 3, end=end)


def test_an_unclean_leader_cuts_the_others_to_its_log(three: Three) -> None:
    create(three, (1, 2))
    end = three.produce(1)
    assert three.are_equal(1, 2, end=end)
    three.kill(2)
    three.produce(2)
    three.kill(1)
    three.start(2)
    assert three.state().leader == -1
    topics = [{"topic": "t", "partitions": [0]}]
    three.brokers[3].ask(
        ApiKey.ELECT_LEADERS, 2, election_type=1, topic_partitions=topics, timeout_ms=10_000
    )
    assert three.leader().node_id == 2
    assert three.state().recovery_state == 1
    assert three.produce(1) == 4
    three.start(1)
    assert three.are_equal(1, 2, end=4)
    assert three.state().recovery_state == 0


# --- metrics ---------------------------------------------------------------------------------


def test_only_the_leader_says_up_to_when_a_partition_is_complete(tmp_path: Path) -> None:
    """What its followers will be given is the leader's to decide."""
    bound = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "1000"}
    with closing(Three(tmp_path, horolog_metrics_port="0")) as three:
        create(three, (1, 2, 3), **bound)
        three.leader()

        def told_by(id_: int) -> bool:
            metrics = scrape(three.brokers[id_], "?partitions=true")
            return bool(metrics.of("horolog_topic_complete_until_milliseconds"))

        assert eventually(lambda: told_by(1))
        for id_ in (2, 3):
            broker = three.brokers[id_]
            assert eventually(lambda it=broker: it.call(lambda: "t" in it.broker.topics))
            assert not told_by(id_)


def test_what_a_replica_fetches_is_not_counted_as_produced(tmp_path: Path) -> None:
    def counted(id_: int, name: str) -> float:
        metrics = f"kafka_server_brokertopicmetrics_{name}_total"
        return scrape(three.brokers[id_]).value(metrics)

    with closing(Three(tmp_path, horolog_metrics_port="0")) as three:
        create(three, (1, 2, 3), min_insync_replicas="2")
        end = three.produce(3)
        assert three.are_equal(1, 2, 3, end=end)
        size = len(three.log_bytes(1))
        assert counted(1, "messagesin") == end
        assert counted(1, "bytesin") == size
        assert counted(1, "replicationbytesin") == 0
        assert counted(1, "replicationbytesout") == 2 * size
        for id_ in (2, 3):
            assert counted(id_, "messagesin") == counted(id_, "bytesin") == 0
            assert counted(id_, "replicationbytesin") == size
        latency = "horolog_create_to_append_latency_milliseconds_count"
        assert not scrape(three.brokers[2]).of(latency)

        # The next leader counts what it appends from then on.
        three.kill(1)
        leader, follower = (2, 3) if three.leader().node_id == 2 else (3, 2)
        three.produce(1)
        three.start(1)
        assert three.are_equal(1, 2, 3, end=end + 2)
        added = len(three.log_bytes(1)) - size
        assert (counted(leader, "messagesin"), counted(leader, "bytesin")) == (2, added)
        assert counted(leader, "replicationbytesin") == size
        assert counted(follower, "replicationbytesin") == size + added
        assert counted(1, "replicationbytesin") == added

        # Counters of all topics do not go back with a deleted one.
        three.brokers[leader].client.delete_topics(["t"])
        assert eventually(lambda: not (three.path / str(follower) / "t-0").exists())
        assert counted(follower, "replicationbytesin") == size + added
        assert counted(leader, "messagesin") == 2
