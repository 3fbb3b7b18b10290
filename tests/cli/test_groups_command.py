"""`horolog groups list` and `groups describe`."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest
from command_runner import Ran, run_command
from kafka_clients import Confluent, Sent
from patience import eventually
from running_broker import RunningBroker, a_broker
from scripted_broker import Answers, ScriptedBroker

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


def scripted(described: Callable[[Any], dict[str, object]], type_: str) -> ScriptedBroker:
    """A broker with the group g, of a type that is not classic, and none other."""
    dead = {"group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": []}

    def classic(request: Any) -> dict[str, object]:
        return {"groups": [{"group_id": it, **dead, "error_code": 0} for it in request.groups]}

    def coordinator(request: Any) -> dict[str, object]:
        where = {"node_id": 1, "host": script.host, "port": script.port, "error_code": 0}
        keys = request.coordinator_keys
        return {"coordinators": [{"key": key, **where, "error_message": None} for key in keys]}

    listed = {"group_id": "g", "protocol_type": type_, "group_state": "Stable"}
    answers: dict[ApiKey, Answers] = {
        ApiKey.FIND_COORDINATOR: coordinator,
        ApiKey.DESCRIBE_GROUPS: classic,
        ApiKey.CONSUMER_GROUP_DESCRIBE: described,
        ApiKey.LIST_GROUPS: {"error_code": 0, "groups": [{**listed, "group_type": type_}]},
    }
    script = ScriptedBroker(answers)
    return script


def consumer_group(error_code: int = 0) -> dict[str, object]:
    def partitions(*numbers: int) -> dict[str, object]:
        topic = {"topic_id": UUID(int=5), "topic_name": "t", "partitions": numbers}
        return {"topic_partitions": [topic]}

    member = {
        "member_id": "m",
        "instance_id": "i",
        "rack_id": None,
        "member_epoch": 3,
        "client_id": "c",
        "client_host": "/h",
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": "",
        "assignment": partitions(1, 0),
        "target_assignment": partitions(0),
        "member_type": 1,
    }
    group = {
        "error_code": error_code,
        "error_message": None,
        "group_id": "g",
        "group_state": "" if error_code else "Reconciling",
        "group_epoch": 4,
        "assignment_epoch": 4,
        "assignor_name": "uniform",
        "members": [] if error_code else [member],
        "authorized_operations": -(1 << 31),
    }
    return {"groups": [group]}


def test_members_of_a_consumer_group_have_epochs_and_targets() -> None:
    script = scripted(lambda _: consumer_group(), "consumer")
    with script, Client(script.bootstrap) as client:
        found = client.groups.describe(["g", "none"])
    assert (found["g"].state, found["g"].type, found["g"].assignor) == (
        ("Reconciling", "consumer", "uniform")
    )
    assert found["g"].exists
    (member,) = found["g"].members or ()
    assert member == ("m", "c", "/h", "i", (("t", 0), ("t", 1)), 3, (("t", 0),))
    assert (found["none"].state, found["none"].exists) == ("Dead", False)


@pytest.mark.parametrize(
    ("type_", "error_code"), [("consumer", 29), ("consumer", 69), ("share", 0)]
)
def test_members_that_are_not_named_are_unknown(type_: str, error_code: int) -> None:
    script = scripted(lambda _: consumer_group(error_code), type_)
    with script, Client(script.bootstrap) as client:
        found = client.groups.describe(["g"])["g"]
    assert (found.state, found.type, found.members) == ("Stable", type_, None)


def test_a_consumer_group_is_described_like_a_classic_one(broker: RunningBroker) -> None:
    consumers = [
        confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "assigned",
                "group.protocol": "consumer",
                "client.id": name,
            }
        )
        for name in ("first", "second")
    ]
    try:
        for consumer in consumers:
            consumer.subscribe(["t"])

        def is_shared() -> bool:
            for consumer in consumers:
                consumer.poll(0.1)
            return all(len(consumer.assignment()) == 1 for consumer in consumers)

        assert eventually(is_shared)
        described = run(broker, "describe", "assigned")
        plain = run(broker, "describe", "assigned", "--json").json
        refused = run(broker, "reset", "assigned", "--as-of", "-1h", "--topics", "t")
    finally:
        for consumer in consumers:
            consumer.close()
    assert described.code == 0
    assert described.lines[0].startswith("assigned: ")
    rows = [line for line in described.lines if "first" in line or "second" in line]
    assert len(rows) == 2
    assert plain["type"] == "consumer"
    assert sorted(it["assigned"][0]["partition"] for it in plain["members"]) == [0, 1]
    assert all(it["epoch"] >= 2 for it in plain["members"])
    assert refused.code == 1
    assert "with members first, second: stop them first" in refused.err
    listed = run(broker, "list").lines
    assert any(line.split()[:3] == ["assigned", "Empty", "consumer"] for line in listed)


@pytest.mark.parametrize("args", ["groups describe", "lag", "topics describe", "offsets"])
def test_a_name_beyond_the_protocol_is_a_sentence(broker: RunningBroker, args: str) -> None:
    refused = run_command(*args.split(), "x" * 40_000, HOROLOG_BOOTSTRAP=broker.address)
    assert refused.code == 1
    assert "a string of 40000 bytes" in refused.err
    assert len(refused.err) < 500
