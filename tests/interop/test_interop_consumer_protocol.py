"""Groups that the broker assigns (KIP-848), with each client that has them.

INTEROP_KAFKA=1 runs the same against Apache Kafka too, which proves the tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from committed import send_numbers
from members_said import (
    LOST,
    READ,
    SpeakingMember,
    await_shared_out,
    times_read,
)
from patience import eventually
from peer_members import QUICK, Members
from peer_process import compiled
from running_broker import BrokerProcess
from tools.peers.kafka import Kafka

from horolog.client import Client

SOURCE = Path(__file__).parent / "clients" / "java" / "ConsumerGroups.java"
PARTITIONS = 6
PLACES = [("t", number) for number in range(PARTITIONS)]

BROKERS = ["horolog", "Apache Kafka"] if os.environ.get("INTEROP_KAFKA") else ["horolog"]


@pytest.fixture(params=BROKERS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "horolog":
            found = stack.enter_context(BrokerProcess(tmp_path / "broker", QUICK)).address
        else:
            found = stack.enter_context(Kafka(tmp_path / "kafka", settings=QUICK)).bootstrap
        with Client(found) as client:
            client.create_topics({"t": PARTITIONS})
        yield found


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("consumer-groups"))


@pytest.fixture
def members(address: str, classes: Path, tmp_path: Path) -> Iterator[Members]:
    with Members(address, classes, tmp_path) as made:
        yield made


def read_again(members: Members) -> dict[Any, int]:
    """The records that were read more than once."""
    return {place: count for place, count in members.read().items() if count > 1}


# --- members of each client -------------------------------------------------------------


def test_members_of_each_client_share_a_group(address: str, members: Members) -> None:
    send_numbers(address, "t", range(600), PARTITIONS)
    first = members.new_java()
    await_shared_out([first], PLACES)
    six = [
        first,
        members.new_java("re2:^t$"),
        members.new_java("java:t", group_instance_id="j"),
        members.librdkafka("^t$", group_instance_id="l"),
        members.librdkafka(group_remote_assignor="range"),
        members.go(),
    ]
    await_shared_out(six, PLACES)
    send_numbers(address, "t", range(600, 1200), PARTITIONS)
    members.await_read(1200)
    with members.admin() as admin:
        described = admin.await_answer("describe g", "Stable")
    assert "[j epoch" in described
    assert "[l epoch" in described
    for closed in (six[1], six[3], six[5]):
        closed.close()
    await_shared_out([six[0], six[2], six[4]], PLACES)
    send_numbers(address, "t", range(1200, 1800), PARTITIONS)
    members.await_read(1800)
    assert read_again(members) == {}
    assert not [line for each in six for line in each.all_said() if line.what == LOST]


@pytest.mark.parametrize("kind", ["java", "librdkafka"])
def test_a_static_member_returns_to_its_partitions(
    address: str, members: Members, kind: str
) -> None:
    make = members.new_java if kind == "java" else members.librdkafka
    one, other = make(group_instance_id="one"), make(group_instance_id="other")
    await_shared_out([one, other], PLACES)
    had = one.has()
    changes = [line for line in other.all_said() if line.what != READ]
    one.close()
    again = make(group_instance_id="one")
    assert eventually(lambda: again.has() == had), again.said
    send_numbers(address, "t", range(60), PARTITIONS)
    members.await_read(60)
    assert [line for line in other.all_said() if line.what != READ] == changes


def test_a_java_member_seeks_pauses_and_resumes(address: str, members: Members) -> None:
    member = members.new_java()
    await_shared_out([member], PLACES)
    send_numbers(address, "t", range(60), PARTITIONS)
    members.await_read(60)
    member.tell("t 2 4")
    twice = {(("t", 2), offset): 2 for offset in range(4, 10)}
    assert eventually(lambda: read_again(members) == twice)
    member.tell("pause")
    other = members.librdkafka()
    await_shared_out([member, other], PLACES)
    kept = member.has()
    send_numbers(address, "t", range(60, 120), PARTITIONS)
    of_other = 10 * len(other.has())
    assert eventually(lambda: sum(times_read(other.all_said()).values()) == of_other)
    assert not [at for at, offset in times_read(member.all_said()) if offset >= 10 and at in kept]
    member.tell("resume")
    members.await_read(120)


# --- migration --------------------------------------------------------------------------

COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


class Flow:
    """A group whose members are replaced one by one while records are sent to it."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.sent = 0

    def send(self) -> None:
        numbers = range(self.sent, self.sent + 60)
        send_numbers(self._members.address, "t", numbers, PARTITIONS)
        self.sent += len(numbers)

    def replace(
        self, living: list[SpeakingMember], makers: Iterable[Callable[[], SpeakingMember]]
    ) -> None:
        for make in makers:
            living.append(make())
            self.send()
            living.pop(0).close()
            await_shared_out(living, PLACES)
            self.send()
            self._members.await_read(self.sent)


def test_groups_migrate_under_load_up_and_down(members: Members) -> None:
    """On the way up no record is read twice.

    On the way down the group goes on in a generation that its classic members do not know yet:
    a commit before they join again is refused, at Apache Kafka too.
    """
    flow = Flow(members)
    classic = [
        partial(members.python, "confluent-kafka", partition_assignment_strategy="range"),
        partial(members.java, partition_assignment_strategy=RANGE),
        partial(members.go, flow=1),
    ]
    living = [make() for make in classic]
    await_shared_out(living, PLACES)
    with members.admin() as admin:
        admin.await_answer("describe g", "Classic Stable")
        flow.replace(living, [members.librdkafka, members.new_java, members.go])
        assert "Consumer" in admin.await_answer("describe g", "Stable")
        assert read_again(members) == {}
        flow.replace(living, classic)
        assert "Classic" in admin.await_answer("describe g", "Stable")


@pytest.mark.parametrize("kind", ["aiokafka", "kafka-python", "Java", "librdkafka"])
def test_a_classic_member_lives_in_a_group_that_the_broker_assigns(
    members: Members, kind: str
) -> None:
    flow = Flow(members)
    makers: dict[str, Callable[[], SpeakingMember]] = {
        "Java": partial(members.java, partition_assignment_strategy=COOPERATIVE),
        "librdkafka": partial(
            members.python, "confluent-kafka", partition_assignment_strategy="cooperative-sticky"
        ),
    }
    make = makers.get(kind, partial(members.python, kind))
    living = [members.librdkafka()]
    await_shared_out(living, PLACES)
    living.append(make())
    await_shared_out(living, PLACES)
    flow.send()
    members.await_read(flow.sent)
    flow.replace(living, [members.new_java])
