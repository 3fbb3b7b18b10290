"""What the Java admin and Kafka's own tools say of a consumer group: the same at both brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bench.sides import horolog
from committed import send_numbers
from members_said import await_shared_out
from peer_members import QUICK, Members
from peer_process import compiled
from tools.peers.kafka import Kafka, run_tool

from horolog.client import Client

pytestmark = pytest.mark.timeout(1800)
SOURCE = Path(__file__).parent / "clients" / "java" / "ConsumerGroups.java"
SETTINGS = {**QUICK, "offsets.topic.num.partitions": "1"}
PLACES = [("t", number) for number in range(6)]
_ID = re.compile(r"(?<!\S)[\w+/-]{22}(==)?(?!\S)")  # of a member: 16 bytes in base64

LIVING = (
    "describe g",
    "describe none",
    "list * *",
    "list stable,empty consumer",
    "list Assigning,Reconciling *",
    "list * classic",
    "list dead *",
    "offsets g",
    "offsets none",
    "delete g",
    "alter g t 0 1",
    "forget g t 0",
    "forget g u 0",
    "remove g nobody",
)
"""Asked while the group has members."""
EMPTY = (
    "describe g",
    "list empty *",
    "alter g t 0 7",
    "alter g t 9 7",
    "forget g t 1",
    "offsets g",
    "delete none",
    "delete g",
    "delete g",
    "describe g",
    "list * *",
)
"""Asked once it has none."""
TOOLS_LIVING = (
    ("groups", "--list"),
    ("groups", "--list", "--state"),
    ("groups", "--list", "--type"),
    ("groups", "--list", "--state", "stable", "--type", "consumer"),
    ("groups", "--describe", "--group", "g"),
    ("groups", "--describe", "--group", "g", "--verbose"),
    ("groups", "--describe", "--group", "g", "--members"),
    ("groups", "--describe", "--group", "g", "--members", "--verbose"),
    ("groups", "--describe", "--group", "g", "--state"),
    ("groups", "--describe", "--group", "g", "--state", "--verbose"),
    ("groups", "--describe", "--all-groups"),
    ("groups", "--delete", "--group", "g"),
    ("groups", "--delete-offsets", "--group", "g", "--topic", "t"),
    ("groups", "--reset-offsets", "--group", "g", "--all-topics", "--to-earliest", "--execute"),
    ("all-groups", "--list"),
    ("all-groups", "--list", "--group-type", "consumer"),
)
TOOLS_EMPTY = (
    ("groups", "--describe", "--group", "g", "--members"),
    ("groups", "--describe", "--group", "g", "--state"),
    (
        "groups",
        "--reset-offsets",
        "--group",
        "g",
        "--topic",
        "t:0,1",
        "--to-offset",
        "3",
        "--execute",
    ),
    ("groups", "--delete-offsets", "--group", "g", "--topic", "t:5"),
    ("groups", "--describe", "--group", "g"),
    ("groups", "--delete", "--group", "g"),
    ("groups", "--list"),
    ("groups", "--describe", "--group", "g"),
)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("consumer-groups"))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: Any) -> Iterator[dict[str, tuple[str, Path]]]:
    """Address and log directory of each."""
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    with horolog(SETTINGS, ours) as side, Kafka(theirs, settings=SETTINGS) as kafka:
        yield {
            "horolog": (side.bootstrap, ours / "data"),
            "Kafka": (kafka.bootstrap, kafka.log_dir),
        }


@pytest.fixture
def groups(
    brokers: dict[str, tuple[str, Path]], classes: Path, tmp_path: Path
) -> Iterator[dict[str, Members]]:
    """The same group at both, whose members have read all."""
    with ExitStack() as stack:
        made = {}
        for name, (address, _) in brokers.items():
            with Client(address) as client:
                if "t" not in client.metadata().topics:
                    client.create_topics({"t": 6, "u": 1})
                    send_numbers(address, "t", range(60), 6)
            (tmp_path / name).mkdir()
            group = made[name] = stack.enter_context(Members(address, classes, tmp_path / name))
            group.librdkafka(group_instance_id="one", client_id="first")
            await_shared_out(group.all, PLACES)
            group.await_read(60)
            group.new_java("re2:t|v", group_instance_id="two", client_id="second")
            await_shared_out(group.all, PLACES)
        yield made


def without_ids(text: str) -> list[str]:
    """Lines in order, without what each broker or member chooses for itself."""
    text = re.sub(r"127\.0\.0\.1:\d+\s+\(\d+\)", "NODE", text)
    lines = [" ".join(_ID.sub("ID", line).split()) for line in text.splitlines()]
    return sorted(line for line in lines if line and not line.startswith("NOTE: Picked up"))


def test_the_java_admin_is_answered_as_by_kafka(groups: dict[str, Members]) -> None:
    told: dict[str, list[tuple[str, str]]] = {}
    for name, group in groups.items():
        with group.admin() as admin:
            admin.await_answer("describe g", "Stable")
            found = [(line, admin.answer(line)) for line in LIVING]
            for member in group.all:
                member.close()
            assert admin.answer("remove g") == "removed"  # the static ones, which may return
            found += [(line, admin.answer(line)) for line in EMPTY]
        told[name] = found
    assert told["horolog"] == told["Kafka"]


def test_kafkas_tools_say_the_same_of_both(groups: dict[str, Members]) -> None:
    told: dict[str, list[Any]] = {}
    for name, group in groups.items():
        with group.admin() as admin:
            admin.await_answer("describe g", "Stable")
            found = [(arguments, run(group.address, *arguments)) for arguments in TOOLS_LIVING]
            for member in group.all:
                member.close()
            admin.answer("remove g")
            found += [(arguments, run(group.address, *arguments)) for arguments in TOOLS_EMPTY]
        told[name] = found
    for ours, theirs in zip(told["horolog"], told["Kafka"], strict=True):
        assert ours == theirs


def run(address: str, *arguments: str) -> tuple[int, list[str]]:
    done = run_tool(arguments[0], "--bootstrap-server", address, *arguments[1:], check=False)
    return done.returncode, without_ids((done.stdout + done.stderr).decode())


def test_the_dump_tool_reads_the_same_records_of_both(
    groups: dict[str, Members], brokers: dict[str, tuple[str, Path]]
) -> None:
    """The last record of each key, in the files of brokers that run."""
    dumped = {name: last_records(log_dir) for name, (_, log_dir) in brokers.items()}
    assert dumped["horolog"] == dumped["Kafka"]
    assert {key[0] for key in dumped["horolog"]} >= {"1", "3", "5", "6", "7", "8", "16"}


def last_records(log_dir: Path) -> dict[tuple[str, ...], Any]:
    """By type and names of the key; topics, members and times under names that both have."""
    (log,) = log_dir.glob("__consumer_offsets-0/*.log")
    done = run_tool("dump", "--offsets-decoder", "--files", str(log))
    pairs = [
        line.partition(" key: ")[2].split(" payload: ")
        for line in done.stdout.decode().splitlines()
        if " payload: " in line
    ]
    rows = [
        (json.loads(key), None if value == "<DELETE>" else json.loads(value))
        for key, value in pairs
    ]
    members = {
        key["data"]["memberId"]: value["data"]["instanceId"]
        for key, value in rows
        if key["type"] == "5" and value is not None
    }
    found: dict[tuple[str, ...], Any] = {}
    for key, value in rows:
        data = {**key["data"]}
        if "memberId" in data:
            data["memberId"] = members[data["memberId"]]
        found[key["type"], *map(str, data.values())] = comparable(value)
    return found


def comparable(value: Any, name: str = "") -> Any:
    """The value without ids and times of each broker's own."""
    if isinstance(value, dict):
        return {key: comparable(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [comparable(item, name) for item in value]
    own = re.fullmatch(r"topicId|.*[tT]imestamp.*|metadataHash|version|clientHost", name)
    return "its own" if own else value
