"""A leader of horolog answers replicas, coordinators and clients as a leader of Apache Kafka does.

The other replica is a broker that this test registers with the controller and never runs.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from controller_asker import ControllerAsker
from leader_dialogue import Dialogue
from led_partitions import BROKER_EPOCHS, EPOCH, HERE, LedPartitions
from patience import eventually
from raw_connection import RawConnection
from running_broker import RunningBroker
from tools.peers.kafka import BEFORE_NEWEST, CLUSTER_ID, NEWEST, Kafka

from horolog.wire import ApiKey

REPLICA = 9
SETTINGS = {
    "broker.session.timeout.ms": "600000",
    "replica.lag.time.max.ms": "600000",
    "metadata.max.idle.interval.ms": "500",
}


class KafkaLeader:
    """An Apache Kafka that leads `t`, whose other replica is registered and does not run."""

    def __init__(self, kafka: Kafka) -> None:
        self.address, self.node_id, self.replica = kafka.bootstrap, 1, REPLICA
        self._controller = ControllerAsker(kafka.controller, CLUSTER_ID)
        self._controller.join(REPLICA)
        self.replica_epoch = self._controller.epochs[REPLICA]
        created = self._controller.create("t", [[REPLICA, 1], [REPLICA, 1]])
        assert not created.error_code, created
        topic_id = created.topic_id
        assert isinstance(topic_id, UUID)
        self.topic_id = topic_id
        # Its leader epoch is above 0, as it becomes the leader when the other one is fenced.
        self._controller.heartbeat(REPLICA, want_fence=True)
        eventually(lambda: [found[0] for found in self._partitions()] == [1, 1])
        self._controller.heartbeat(REPLICA)
        self.epoch = self._partitions()[0][1]
        eventually(self._is_leading)

    def _partitions(self) -> list[tuple[int, int, set[int]]]:
        with RawConnection(self.address) as connection:
            (topic,) = connection.ask(ApiKey.METADATA, 12, topics=[{"name": "t"}]).topics
        found = sorted(topic.partitions, key=lambda each: each.partition_index)
        return [(each.leader_id, each.leader_epoch, set(each.isr_nodes)) for each in found]

    def _is_leading(self) -> bool:
        with Dialogue(self) as dialogue:
            return dialogue.look(-1)[0] == 0 and dialogue.look(-1, index=1)[0] == 0

    def close(self) -> None:
        """Close the connection to the controller."""
        self._controller.connection.socket.close()

    def sync(self) -> None:
        """Wait until the controller has let the other replica into the ISR."""
        eventually(lambda: self._partitions()[0][2] == {1, REPLICA})
        time.sleep(0.5)  # the leader's own answer may be behind the metadata that it gives

    def need_two(self) -> None:
        """Alter the topic's setting."""
        change = {"name": "min.insync.replicas", "config_operation": 0, "value": "2"}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
        with RawConnection(self.address) as connection:
            connection.ask(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
            )
        time.sleep(0.5)  # until the broker has applied it


class HorologLeader:
    """A broker in this process whose partitions lead for replicas."""

    def __init__(self, broker: RunningBroker) -> None:
        self._led = LedPartitions(broker, replicas=(1, 2), isr=(1,), lag_max_ms=600_000)
        self.address, self.node_id, self.epoch = broker.address, HERE, EPOCH
        self.topic_id, self.replica = self._led.topic_id, 2
        self.replica_epoch = BROKER_EPOCHS[2]
        self._broker = broker

    def sync(self) -> None:
        """Let the other replica be in the ISR."""
        self._led.change(isr=(1, 2))

    def need_two(self) -> None:
        """Alter the setting of the leaders."""

        def alter() -> None:
            for index in (0, 1):
                leading = self._led.partition(index).leading
                assert leading is not None
                leading.on_min_isr(2)

        self._broker.call(alter)


@pytest.mark.parametrize("peer", [NEWEST, BEFORE_NEWEST])
def test_a_leader_answers_as_that_of_apache_kafka(peer: str, tmp_path: Path) -> None:
    with Kafka(tmp_path / "kafka", peer=peer, settings=SETTINGS) as kafka:
        with closing(KafkaLeader(kafka)) as leader, Dialogue(leader) as dialogue:
            theirs = dialogue.held()
        kafka.kill()  # a stop would wait until the other broker has applied it
    with RunningBroker(tmp_path / "horolog") as broker:
        broker.create_topic("t", 2, retention_ms="-1")
        with Dialogue(HorologLeader(broker)) as dialogue:
            ours = dialogue.held()
    different = _different(theirs, ours)
    assert not different, "\n".join(different)


def _different(theirs: Mapping[str, object], ours: Mapping[str, object]) -> list[str]:
    return [
        f"{what}: {theirs[what]} and here {ours[what]}"
        for what in theirs
        if theirs[what] != ours[what]
    ]
