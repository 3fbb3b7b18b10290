"""Consumer groups in a directory that Apache Kafka and horolog serve in turns, with their members.

The members run on: whichever broker is stopped or killed, the other opens the directory, at the
same address.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from committed import send_numbers
from confluent_kafka.admin import AdminClient
from members_said import LOST, At, await_shared_out, owned_twice, tenures
from patience import PATIENCE_S, eventually
from peer_members import QUICK, Members
from peer_process import compiled
from running_broker import BrokerProcess
from tools.peers.kafka import Kafka

from horolog.client import Client, CommittedOffset
from horolog.clock import SystemClock

pytestmark = pytest.mark.timeout(1800)  # each broker is started twice
SOURCE = Path(__file__).parent / "clients" / "java" / "ConsumerGroups.java"
TOPICS = ("move-a", "move-b")
PARTITIONS = 3
GROUPS = ("new", "classic", "mixed")
EVERY = ",".join(TOPICS)
PLACES: list[At] = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
IN_TURN = 60
"""Records of each topic that are sent in each turn."""


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("consumer-groups"))


class Moved:
    """A directory of consumer groups that two brokers serve in turns, at one address."""

    def __init__(self, directory: Path, *, killed: bool) -> None:
        self._killed = killed
        self._kafka = Kafka(directory, settings=QUICK)
        self.address = self._kafka.bootstrap

    @contextmanager
    def serve(self, broker: str) -> Iterator[Client]:
        """Serve it until the block ends; a client."""
        if broker == "Kafka":
            with self._kafka:
                with Client(self.address) as client:
                    yield client
                if self._killed:
                    self._kafka.kill()
            return
        settings = {"listeners": f"PLAINTEXT://{self.address}", "horolog.take.over": "true"}
        with BrokerProcess(self._kafka.log_dir, {**QUICK, **settings}) as ours:
            yield ours.client
            if not self._killed:
                assert ours.terminate() == 0


def settled(client: Client) -> dict[str, Any]:
    """State and type of each group, and its members by id: instance, epoch and partitions."""
    found: dict[str, Any] = {}

    def are_stable() -> bool:
        for name, group in client.groups.describe(GROUPS).items():
            members = {
                it.member_id: (it.instance_id, it.epoch, sorted(it.assigned or ()))
                for it in group.members or ()
            }
            found[name] = (group.state, group.type, members)
        return all(state == "Stable" for state, _, _ in found.values())

    assert eventually(are_stable), found
    return found


def join(new: Members, classic: Members, mixed: Members) -> None:
    """Start members of both protocols: by names, by patterns, and static ones."""
    cooperative = {"partition_assignment_strategy": "cooperative-sticky"}
    new.librdkafka(EVERY)
    new.librdkafka("^move-.*", group_instance_id="static")
    new.new_java("re2:move-.*")
    classic.python("confluent-kafka", EVERY, **cooperative)
    classic.python("confluent-kafka", EVERY, group_instance_id="static", **cooperative)
    mixed.librdkafka(EVERY)
    await_shared_out(mixed.all, PLACES)
    mixed.python("confluent-kafka", EVERY, **cooperative)


def delete(address: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    (deleted,) = admin.delete_consumer_groups([group]).values()
    deleted.result(PATIENCE_S)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("first", ["horolog", "Kafka"])
def test_groups_and_their_members_go_on_at_the_other_broker(
    first: str, killed: bool, classes: Path, tmp_path: Path
) -> None:
    moved = Moved(tmp_path, killed=killed)
    other = "Kafka" if first == "horolog" else "horolog"
    before: dict[str, Any] = {}
    with ExitStack() as stack:
        groups = [
            stack.enter_context(Members(moved.address, classes, tmp_path, name)) for name in GROUPS
        ]
        for turn, broker in enumerate((first, other, first, other)):
            with moved.serve(broker) as client:
                if turn == 0:
                    client.create_topics(dict.fromkeys(TOPICS, PARTITIONS))
                    join(*groups)
                for topic in TOPICS:
                    send_numbers(moved.address, topic, range(IN_TURN), PARTITIONS)
                for group in groups:
                    group.await_read((turn + 1) * IN_TURN * len(TOPICS))
                    await_shared_out(group.all, PLACES)
                if turn:
                    assert settled(client) == before, broker
                    assert f"deleted-{turn - 1}" not in client.groups.names()
                    delete(moved.address, f"left-{turn - 1}")
                for name in (f"left-{turn}", f"deleted-{turn}"):
                    client.offset_commit(name, {(TOPICS[0], 0): CommittedOffset(turn)})
                delete(moved.address, f"deleted-{turn}")
                if turn == 1:  # at a broker that has not made the groups
                    groups[0].librdkafka(EVERY)
                    groups[2].new_java(EVERY)
                    for group in groups:
                        await_shared_out(group.all, PLACES)
                before = settled(client)
        for group in groups:
            check_owners(group)


def check_owners(group: Members) -> None:
    """No member had to join again, and no partition had two owners at a time."""
    said = [member.all_said() for member in group.all]
    assert not [line for lines in said for line in lines if line.what == LOST]
    now_ms = SystemClock().now_ms()
    lives = [(number, lines, now_ms) for number, lines in enumerate(said)]
    assert owned_twice(tenures(lives)) == []
