"""`horolog groups list` and `groups describe`."""

from typing import Any

import confluent_kafka
import pytest
from command_runner import Ran, run_command
from kafka_clients import Confluent, Sent
from patience import eventually
from running_broker import RunningBroker, a_broker
from scripted_broker import ScriptedBroker

from horolog.client import Client, CommittedOffset
from horolog.wire import ApiKey

broker = a_broker("t", "u", partitions=2, now_ms=None)


def run(broker: RunningBroker, *args: str) -> Ran:
    return run_command("groups", *args, HOROLOG_BOOTSTRAP=broker.address)


def test_groups_are_listed_with_their_states(broker: RunningBroker) -> None:
    assert run(broker, "list").lines == ["no groups"]
    for group in ("b", "a\x1b[2J"):
        broker.client.offset_commit(group, {("t", 0): CommittedOffset(0)})
    listed = run(broker, "list")
    assert listed.code == 0
    assert [line.split()[:3] for line in listed.lines[2:]] == [
        ["a\\x1b[2J", "Empty", "classic"],
        ["b", "Empty", "classic"],
    ]
    assert [(each["group"], each["state"]) for each in run(broker, "list", "--json").json] == [
        ("a\x1b[2J", "Empty"),
        ("b", "Empty"),
    ]


def test_a_group_is_described_with_members_offsets_and_lag(broker: RunningBroker) -> None:
    for topic in ("t", "u"):
        Confluent().produce(broker.address, topic, [Sent(None, b"v")] * 3, partition=1)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "client.id": "the-client",
            "group.instance.id": "one",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["t", "u"])
        eventually(lambda: consumer.poll(0.1) is not None)
        described = run(broker, "describe", "g")
        (plain,) = [run(broker, "describe", "g", "--json").json]
    finally:
        consumer.close()
    assert described.code == 0
    assert described.lines[0].startswith("g: Stable, consumer, range, coordinator 1 at 127.0.0.1:")
    (member,) = [line for line in described.lines if "the-client" in line]
    assert member.endswith("t-0, t-1, u-0, u-1")
    assert (plain["state"], plain["protocol"], plain["assignor"]) == ("Stable", "consumer", "range")
    (found,) = plain["members"]
    assert (found["client_id"], found["instance_id"]) == ("the-client", "one")
    assert found["assigned"][0] == {"topic": "t", "partition": 0}

    broker.client.offset_commit("e", {("t", 1): CommittedOffset(1)})
    rows = [line.split() for line in run(broker, "describe", "e").lines if line.startswith("e ")]
    assert rows[0][:6] == ["e", "t", "1", "1", "3", "2"]
    (offsets,) = run(broker, "describe", "e", "--json").json["offsets"]
    assert (offsets["committed"], offsets["offsets_behind"]) == (1, 2)


def test_a_group_that_does_not_exist_ends_with_1(broker: RunningBroker) -> None:
    for args in (("describe", "nosuch"), ("describe", "nosuch", "--json")):
        described = run(broker, *args)
        assert (described.code, described.out) == (1, "")
        assert "there is no group nosuch; horolog groups list" in described.err


@pytest.mark.parametrize(
    ("assignment", "assigned"),
    [
        (b"", ()),
        (b"\0\1\0\0\0\1\0\1t\0\0\0\2\0\0\0\1\0\0\0\0\xff\xff\xff\xff", (("t", 0), ("t", 1))),
        (b"\0\1\0\0\0\0", ()),
        (b"\0\1\xff\xff\xff\xff", None),
        (b"\0\1\x7f\xff\xff\xff", None),
        (b"\0\1\0\0\0\1\0\1t\x7f\xff\xff\xff", None),
        (b"\0\1\0\0\0\1\xff\xff\0\0\0\0", None),
        (b"\0\1\0\0\0\1\0\1\xff\0\0\0\0", None),
        (b"no assignment of a consumer", None),
    ],
)
def test_an_assignment_is_read_with_care(
    assignment: bytes, assigned: tuple[tuple[str, int], ...] | None
) -> None:
    def described(_: object) -> dict[str, object]:
        member = {"member_id": "m", "client_id": "c", "client_host": "/h"}
        member |= {"member_metadata": b"", "member_assignment": assignment}
        group = {"group_id": "g", "group_state": "Stable", "protocol_type": "consumer"}
        return {
            "groups": [{**group, "protocol_data": "range", "error_code": 0, "members": [member]}]
        }

    def coordinator(_: object) -> dict[str, object]:
        where = {"node_id": 1, "host": script.host, "port": script.port}
        return {"coordinators": [{"key": "g", **where, "error_code": 0, "error_message": None}]}

    answers = {ApiKey.FIND_COORDINATOR: coordinator, ApiKey.DESCRIBE_GROUPS: described}
    with ScriptedBroker(answers) as script, Client(script.bootstrap) as client:
        (member,) = client.groups.describe(["g"])["g"].members
    assert member.assigned == assigned


@pytest.mark.parametrize("state", ["Stable", "Empty"])
def test_a_group_of_another_type_has_the_state_of_the_list(state: str) -> None:
    dead = {"group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": []}

    def described(request: Any) -> dict[str, object]:
        return {"groups": [{"group_id": it, **dead, "error_code": 0} for it in request.groups]}

    def coordinator(request: Any) -> dict[str, object]:
        where = {"node_id": 1, "host": script.host, "port": script.port, "error_code": 0}
        keys = request.coordinator_keys
        return {"coordinators": [{"key": key, **where, "error_message": None} for key in keys]}

    listed = {"group_id": "g", "protocol_type": "consumer", "group_state": state}
    answers = {
        ApiKey.FIND_COORDINATOR: coordinator,
        ApiKey.DESCRIBE_GROUPS: described,
        ApiKey.LIST_GROUPS: {"error_code": 0, "groups": [{**listed, "group_type": "consumer"}]},
    }
    with ScriptedBroker(answers) as script, Client(script.bootstrap) as client:
        found = client.groups.describe(["g", "none"])
    assert (found["g"].state, found["g"].type, found["g"].exists) == (state, "consumer", True)
    assert (found["none"].state, found["none"].exists) == ("Dead", False)


@pytest.mark.parametrize("args", ["groups describe", "lag", "topics describe", "offsets"])
def test_a_name_beyond_the_protocol_is_a_sentence(broker: RunningBroker, args: str) -> None:
    refused = run_command(*args.split(), "x" * 40_000, HOROLOG_BOOTSTRAP=broker.address)
    assert refused.code == 1
    assert "a string of 40000 bytes" in refused.err
    assert len(refused.err) < 500
