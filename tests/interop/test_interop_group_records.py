"""Records of `__consumer_offsets`: what Kafka's coordinator wrote, and what Kafka's tool reads."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest
from bench.sides import horolog
from confluent_kafka import Consumer
from moving import tool
from patience import eventually
from raw_connection import RawConnection
from tools.golden.scenarios import QUIET
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, Kafka, run_tool

from horolog.client import Client, CommittedOffset
from horolog.groups import (
    ConsumerRecords,
    GroupChange,
    GroupReplay,
    GroupRow,
    OffsetRow,
    records_of,
)
from horolog.history import AskGroupHistory
from horolog.metadata import read_group_history
from horolog.record import LogRecord, build_batch, read_records
from horolog.schemas.group_records import (
    CurrentValue,
    GroupRecordKey,
    GroupRecordValue,
    MemberMetadataValue,
    PartitionMetadataKey,
    PatternKey,
    read_value,
    value_bytes,
)
from horolog.schemas.offsets import (
    CommittedValue,
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    committed_bytes,
    group_bytes,
    key_bytes,
    partition_for,
    read_committed,
    read_group,
    read_key,
)
from horolog.storage import Files, RecordFile
from horolog.wire import ApiKey

GROUPS = ["plain", "gr\u00fcn", "\U0001f600", "polygenelubricants"]
PARTITIONS = 50


@pytest.mark.parametrize("peer", [NEWEST, LAST_WITH_OLD_FORMATS])
def test_what_kafkas_coordinator_writes_is_read(peer: str, tmp_path: Path) -> None:
    kafka = Kafka(tmp_path, peer=peer, settings={"offsets.topic.num.partitions": str(PARTITIONS)})
    with kafka:
        with Client(kafka.bootstrap) as client:
            topic_id = client.create_topics({"t": 1})["t"]
            for number, group in enumerate(GROUPS):
                committed = CommittedOffset(number, f"note {group}", leader_epoch=0)
                client.offset_commit(group, {("t", 0): committed})
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "members", **QUIET})
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(1)
        consumer.close()
    offsets: dict[str, CommittedValue] = {}
    groups: list[GroupValue] = []
    for log in sorted(kafka.log_dir.glob("__consumer_offsets-*/*.log")):
        partition = int(log.parent.name.rpartition("-")[2])
        file = RecordFile(Files(read_only=True), str(log))
        for record in (record for batch in file.read() for record in read_records(batch)):
            assert record.key is not None
            key = read_key(record.key)
            assert key is not None
            assert partition_for(key.group, PARTITIONS) == partition
            assert key_bytes(key) == record.key
            if isinstance(key, OffsetKey) and record.value is not None:
                offsets[key.group] = read_committed(record.value)
            elif record.value is not None:
                groups.append(read_group(record.value))
                assert group_bytes(groups[-1]) == record.value
    for number, group in enumerate(GROUPS):
        found = offsets[group]
        assert found[:3] == (number, 0, f"note {group}")
        assert found.commit_ms > 0
        # Where the client's version of the request has topic ids; 3.9 writes none.
        assert found.topic_id in (None, topic_id)
    replay = GroupReplay()
    for log in sorted(kafka.log_dir.glob("__consumer_offsets-*/*.log")):
        for batch in RecordFile(Files(read_only=True), str(log)).read():
            replay.take(batch)
    group_rows, offset_rows, *_ = replay.stored(lambda _: topic_id)
    assert replay.unreadable == 0
    assert {row.group_id: row.committed for row in offset_rows} == {
        group: number for number, group in enumerate(GROUPS)
    }
    assert {row.group_id for row in group_rows} <= {*GROUPS, "members"}
    joined = next(each for each in groups if each.members)
    assert (joined.protocol_type, joined.generation) == ("consumer", 1)
    assert joined.members[0].client_id == "rdkafka"
    assert joined.members[0].assignment


def test_kafkas_dump_tool_reads_what_is_written_here(tmp_path: Path) -> None:
    member = MemberValue("m-1", "static", "client", "/127.0.0.1", 300, 100, b"", b"")
    values: list[tuple[bytes, bytes | None]] = [
        (key_bytes(OffsetKey("g", "t", 3)), committed_bytes(CommittedValue(5, 8, "note", 77))),
        (
            key_bytes(OffsetKey("g", "t", 4)),
            committed_bytes(CommittedValue(6, 8, "", 78, topic_id=UUID(int=9))),
        ),
        (key_bytes(OffsetKey("g", "t", 5)), committed_bytes(CommittedValue(7, -1, "", 79, 99))),
        (key_bytes(OffsetKey("g", "t", 3)), None),
        (key_bytes(GroupKey("g")), group_bytes(GroupValue("consumer", 2, None, None, 80))),
        (
            key_bytes(GroupKey("h")),
            group_bytes(GroupValue("other", 2, "range", "m-1", 81, (member,))),
        ),
    ]
    log = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(build_batch([LogRecord(1_000, key, value) for key, value in values]))
    done = run_tool("dump", "--offsets-decoder", "--files", str(log))
    rows = [line for line in done.stdout.decode().splitlines() if line.startswith("| offset")]
    said = [
        (json.loads(key), value if value == "<DELETE>" else json.loads(value))
        for key, value in (row.partition(" key: ")[2].split(" payload: ") for row in rows)
    ]
    assert [key["type"] for key, _ in said] == ["1"] * 4 + ["2"] * 2
    assert said[0][0]["data"] == {"group": "g", "topic": "t", "partition": 3}
    data: list[Any] = [value if isinstance(value, str) else value["data"] for _, value in said]
    assert (data[0]["offset"], data[0]["leaderEpoch"], data[0]["metadata"]) == (5, 8, "note")
    assert data[0]["commitTimestamp"] == 77
    assert data[1]["topicId"] == "AAAAAAAAAAAAAAAAAAAACQ"
    assert (data[2]["offset"], data[2]["expireTimestamp"]) == (7, 99)
    assert data[3] == "<DELETE>"
    assert (data[4]["generation"], data[4]["members"]) == (2, [])
    assert data[5]["members"][0]["groupInstanceId"] == "static"


def consumer_of(bootstrap: str, group: str, protocol: str = "consumer", **more: str) -> Consumer:
    """A consumer of the topics that begin with a t."""
    settings = {name.replace("_", "."): value for name, value in more.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            **QUIET,
            **settings,
        }
    )
    consumer.subscribe(["^t.*"] if "group_instance_id" in more else ["t", "not-there"])
    return consumer


def balanced(*consumers: Consumer) -> bool:
    """True once each consumer has a partition, and all of them the three of the topic."""
    for consumer in consumers:
        consumer.poll(0.1)
    counts = [len(consumer.assignment()) for consumer in consumers]
    return all(counts) and sum(counts) == 3


def consumer_group_records(log: Path) -> list[tuple[GroupRecordKey, GroupRecordValue | None]]:
    """The records of consumer groups; they are written here with the same bytes."""
    found: list[tuple[GroupRecordKey, GroupRecordValue | None]] = []
    for batch in RecordFile(Files(read_only=True), str(log)).read():
        for record in read_records(batch):
            key = read_key(record.key or b"")
            assert key is not None
            assert key_bytes(key) == record.key
            if not isinstance(key, OffsetKey | GroupKey):
                value = None if record.value is None else read_value(key, record.value)
                assert record.value == (None if value is None else value_bytes(key, value))
                found.append((key, value))
    return found


@pytest.mark.timeout(1800)
def test_records_of_kafkas_consumer_groups_have_the_same_bytes_here(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path, settings={"offsets.topic.num.partitions": "1"})
    with kafka:
        with Client(kafka.bootstrap) as client:
            client.create_topics({"t": 3})
        made = partial(consumer_of, kafka.bootstrap)
        first = made("stays", group_remote_assignor="range", client_rack="r1")
        assert eventually(lambda: balanced(first))
        static = made("stays", group_instance_id="i")
        assert eventually(lambda: balanced(first, static))
        alone = made("down")
        assert eventually(lambda: balanced(alone))
        classic = made("down", "classic")
        assert eventually(lambda: balanced(alone, classic))
        alone.close()  # the group becomes a classic one
        assert eventually(lambda: balanced(classic))
        old = made("up", "classic", partition_assignment_strategy="cooperative-sticky")
        assert eventually(lambda: balanced(old))
        new = made("up")  # the group becomes one of the new protocol
        assert eventually(lambda: balanced(old, new))
        gone = made("gone")
        assert eventually(lambda: balanced(gone))
        gone.close()
        tool(kafka.bootstrap, "groups", "--delete", "--group", "gone")
        static.close()  # its partitions stay its own
        kafka.kill()
    (log,) = kafka.log_dir.glob("__consumer_offsets-0/*.log")
    found = consumer_group_records(log)
    kinds = {(type(key), value is None) for key, value in found}
    of_all = set(get_args(GroupRecordKey))
    assert kinds >= {(kind, False) for kind in of_all - {PartitionMetadataKey}}
    assert kinds >= {(kind, True) for kind in of_all - {PatternKey}}
    currents = [value for _, value in found if isinstance(value, CurrentValue)]
    assert {value.state for value in currents} == {0, 1, 2}
    assert currents[-1].epoch == -2
    members = [value for _, value in found if isinstance(value, MemberMetadataValue)]
    assert {value.classic is None for value in members} == {True, False}
    assert {(value.rack_id, value.instance_id) for value in members} >= {("r1", None), (None, "i")}

    replay = GroupReplay()
    for batch in RecordFile(Files(read_only=True), str(log)).read():
        replay.take(batch)
    stored = replay.stored(lambda _: None)
    assert (replay.unreadable, stored.owed) == (0, {})
    assert {*stored.consumer} == {"stays", "up"}
    assert [row.group_id for row in stored.groups] == ["down"]
    told = read_group_history(kafka.log_dir, "stays", AskGroupHistory(), tmp_path / "none")
    assert not told.logs[0].damage
    had = {(event.member, event.topic) for event in told.events if event.aspect == "assigned"}
    assert len({member for member, topic in had if topic == "t"}) == 2
    last = read_group_history(kafka.log_dir, "stays", AskGroupHistory(told.events[-1].time))
    ranges = [event.partitions for event in last.events if event.partitions is not None]
    assert sorted(part for text in ranges for part in text.split(", ")) in (
        ["0", "1-2"],
        ["0-1", "2"],
        ["0", "1", "2"],
    )
    check_dumped(tmp_path, [*chain.from_iterable(stored.consumer.values())])


def check_dumped(directory: Path, records: ConsumerRecords) -> None:
    """Kafka's tool prints the same of our records as the records have."""
    log = directory / "ours" / "__consumer_offsets-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    tombstones = [(key, None) for key, _ in records]
    log.write_bytes(build_batch(records_of(GroupChange(records=[*records, *tombstones]), 1000)))
    done = run_tool("dump", "--offsets-decoder", "--files", str(log))
    rows = [row for row in done.stdout.decode().splitlines() if row.startswith("| offset")]
    said = [row.partition(" key: ")[2].split(" payload: ") for row in rows]
    assert [value for _, value in said[len(records) :]] == ["<DELETE>"] * len(records)
    for (key, value), (key_text, value_text) in zip(records, said, strict=False):
        assert fields(json.loads(key_text)["data"]) == plain(key)
        printed = fields(json.loads(value_text)["data"])
        assert printed == plain(value)[: len(printed)], "but for a tagged field that is 0"


def fields(value: Any) -> Any:
    """Lists of fields instead of objects."""
    if isinstance(value, dict):
        value = [*value.values()]
    return [fields(each) for each in value] if isinstance(value, list) else value


def plain(value: object) -> Any:
    """Lists of fields instead of tuples, and texts instead of ids and bytes."""
    if isinstance(value, UUID):
        return urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return [plain(each) for each in value] if isinstance(value, tuple) else value


LONG_MS = 1_800_000
"""A session that outlasts the start of a broker."""
JOINING = {
    "group_id": "moving",
    "session_timeout_ms": LONG_MS,
    "rebalance_timeout_ms": LONG_MS,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"}],
}
ASSIGNED = b"\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
"""Partition 0 of t, in a consumer's assignment."""


def joined(bootstrap: str) -> tuple[str, int]:
    """The id and the generation of a member that has its assignment."""
    with RawConnection(bootstrap, timeout_s=600) as connection:
        assert eventually(
            lambda: (
                connection.ask(ApiKey.FIND_COORDINATOR, 2, key="moving", key_type=0).error_code == 0
            )
        )
        found: list[Any] = []
        assert eventually(
            lambda: (
                found.append(connection.ask(ApiKey.JOIN_GROUP, 3, **JOINING))
                or found[-1].error_code == 0
            )
        )
        member = found[-1]
        synced = connection.ask(
            ApiKey.SYNC_GROUP,
            3,
            group_id="moving",
            generation_id=member.generation_id,
            member_id=member.member_id,
            assignments=[{"member_id": member.member_id, "assignment": ASSIGNED}],
        )
        assert (synced.error_code, bytes(synced.assignment)) == (0, ASSIGNED)
    return member.member_id, member.generation_id


def check_goes_on(bootstrap: str, member_id: str, generation: int) -> None:
    """The group is as it was: for the tools, for its member, and for a member of before."""

    def beat(connection: RawConnection, generation: int) -> int:
        beat = {"group_id": "moving", "generation_id": generation, "member_id": member_id}
        return int(connection.ask(ApiKey.HEARTBEAT, 3, **beat).error_code)

    with RawConnection(bootstrap, timeout_s=600) as connection:

        def described() -> Any:
            (group,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["moving"]).groups
            return group

        assert eventually(lambda: described().error_code == 0)  # until it is loaded
        assert beat(connection, generation) == 0
        assert beat(connection, generation - 1) == 22
        group = described()
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id) == (member_id, "test")
        assert member.client_host == "/127.0.0.1"
        assert bytes(member.member_assignment) == ASSIGNED
    said = tool(bootstrap, "groups", "--describe", "--group", "moving", "--members")
    assert member_id in said, said


def dumped_groups(log_dir: Path) -> list[Any]:
    """The values of classic groups, as Kafka's dump tool prints them."""
    found = []
    for log in sorted(log_dir.glob("__consumer_offsets-*/*.log")):
        if log.stat().st_size:
            done = run_tool("dump", "--offsets-decoder", "--files", str(log))
            for line in done.stdout.decode().splitlines():
                key, _, value = line.partition(" key: ")[2].partition(" payload: ")
                if key and json.loads(key)["type"] == "2" and value != "<DELETE>":
                    found.append(json.loads(value)["data"])
    return found


@pytest.mark.timeout(1800)
def test_a_member_goes_on_at_the_other_broker_both_ways(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path)
    with horolog({}, tmp_path) as side:
        with Client(side.bootstrap) as client:
            client.create_topics({"t": 1})
        member_id, generation = joined(side.bootstrap)
        side.kill()
    last = dumped_groups(kafka.log_dir)[-1]
    assert (last["generation"], last["protocol"], last["leader"]) == (1, "range", member_id)
    (member,) = last["members"]
    assert (member["memberId"], member["clientId"]) == (member_id, "test")
    assert member["sessionTimeout"] == member["rebalanceTimeout"] == LONG_MS
    with kafka:
        check_goes_on(kafka.bootstrap, member_id, generation)
        kafka.kill()
    with horolog({}, tmp_path) as side:
        check_goes_on(side.bootstrap, member_id, generation)
        with RawConnection(side.bootstrap) as connection:
            again = connection.ask(ApiKey.JOIN_GROUP, 3, **JOINING, member_id=member_id)
            assert (again.error_code, again.generation_id) == (0, generation + 1)


def beaten(connection: RawConnection, group: str, epoch: int, **more: Any) -> Any:
    """The answer to a heartbeat of the member m of a consumer group."""
    quiet = dict.fromkeys(
        ("instance_id", "rack_id", "subscribed_topic_names", "subscribed_topic_regex")
    )
    quiet |= dict.fromkeys(("server_assignor", "topic_partitions"))
    return connection.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        **quiet | {"rebalance_timeout_ms": -1, **more},
        group_id=group,
        member_id="m",
        member_epoch=epoch,
    )


def join_consumer_group(connection: RawConnection, group: str) -> int:
    """Join with a member that gets the partition of t; return its epoch."""
    assert eventually(
        lambda: connection.ask(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=0).error_code == 0
    )
    joining = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": LONG_MS}
    answers: list[Any] = []
    assert eventually(
        lambda: (
            answers.append(beaten(connection, group, 0, **joining, topic_partitions=[]))
            or answers[-1].error_code == 0
        )
    )
    ((topic,), epoch) = answers[-1].assignment.topic_partitions, answers[-1].member_epoch
    assert tuple(topic.partitions) == (0,)
    return int(epoch)


def check_consumer_group(bootstrap: str, group: str, epoch: int) -> None:
    """The member goes on in its epoch, without a new assignment, and is shown as it was."""
    with RawConnection(bootstrap, timeout_s=600) as connection:
        answers: list[Any] = []
        assert eventually(
            lambda: (
                answers.append(beaten(connection, group, epoch))
                or answers[-1].error_code not in (14, 15, 16)
            )
        )
        answer = answers[-1]
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, epoch, None)
        assert beaten(connection, group, epoch + 5).error_code == 110
        request = {"group_ids": [group], "include_authorized_operations": False}
        (found,) = connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **request).groups
    assert (found.error_code, found.group_state, found.group_epoch) == (0, "Stable", epoch)
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.client_host) == ("m", epoch, "/127.0.0.1")
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_name, tuple(topic.partitions)) == ("t", (0,))


@pytest.mark.timeout(1800)
def test_a_member_that_the_broker_assigns_goes_on_at_the_other_broker_both_ways(
    tmp_path: Path,
) -> None:
    """Each start gives members a whole session, 45 s; both brokers are killed."""
    kafka = Kafka(tmp_path)
    with kafka:
        with Client(kafka.bootstrap) as client:
            client.create_topics({"t": 1})
        with RawConnection(kafka.bootstrap, timeout_s=600) as connection:
            epoch = join_consumer_group(connection, "of-kafka")
        kafka.kill()
    with horolog({"horolog.take.over": "true"}, tmp_path) as side:
        check_consumer_group(side.bootstrap, "of-kafka", epoch)
        with RawConnection(side.bootstrap) as connection:
            ours = join_consumer_group(connection, "of-horolog")
        side.kill()
    with kafka:
        check_consumer_group(kafka.bootstrap, "of-kafka", epoch)
        check_consumer_group(kafka.bootstrap, "of-horolog", ours)
        kafka.kill()
    with horolog({}, tmp_path) as side:
        check_consumer_group(side.bootstrap, "of-horolog", ours)
        with RawConnection(side.bootstrap) as connection:
            assert beaten(connection, "of-horolog", -1).error_code == 0
            assert beaten(connection, "of-horolog", ours).error_code == 25


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("peer", [NEWEST, LAST_WITH_OLD_FORMATS])
def test_a_member_of_kafkas_group_goes_on_here_where_it_is_taken_over(
    peer: str, tmp_path: Path
) -> None:
    kafka = Kafka(tmp_path, peer=peer)
    with kafka:
        with Client(kafka.bootstrap) as client:
            client.create_topics({"t": 1})
            client.offset_commit("other", {("t", 0): CommittedOffset(0)})
        member_id, generation = joined(kafka.bootstrap)
        kafka.kill()
    with horolog({"horolog.take.over": "true"}, tmp_path) as side:
        check_goes_on(side.bootstrap, member_id, generation)


def test_a_share_group_of_kafka_continues_there_after_a_stay_here(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path, settings={"share.coordinator.state.topic.num.partitions": "1"})

    def shared() -> bytes:
        asked = ("--topic", "t", "--group", "shares", "--max-messages", "1")
        return kafka.tool("share-consumer", *asked, "--timeout-ms", "300000").stdout

    with kafka:
        with Client(kafka.bootstrap) as client:
            client.create_topics({"t": 1})
        kafka.tool(
            *("configs", "--alter", "--entity-type", "groups", "--entity-name", "shares"),
            *("--add-config", "share.auto.offset.reset=earliest"),
        )
        kafka.tool("producer", "--topic", "t", stdin=b"first\nsecond\n")
        assert shared() == b"first\n"
    for settings in ({"horolog.take.over": "true"}, {}):
        with horolog(settings, tmp_path):
            pass
    with kafka:
        assert shared() == b"second\n"


def test_kafkas_dump_tool_reads_the_file_of_groups(tmp_path: Path) -> None:
    log = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    log.parent.mkdir()
    put = GroupChange(
        groups=[GroupRow("g", "consumer", 80)],
        offsets=[OffsetRow("g", "t", 3, 5, 8, "note", 77, topic_id=UUID(int=9))],
    )
    dropped = GroupChange(dropped_groups=["g"], dropped_offsets=[("g", "t", 3)])
    batches = [
        build_batch(records_of(change, 1000), base_offset=offset)
        for change, offset in ((put, 0), (dropped, 2))
    ]
    log.write_bytes(b"".join(batches))
    done = run_tool("dump", "--offsets-decoder", "--files", str(log))
    lines = done.stdout.decode().splitlines()
    rows = [line for line in lines if line.startswith("| offset")]
    values = [row.partition(" payload: ")[2] for row in rows]
    assert [values[2], values[3]] == ["<DELETE>"] * 2
    group, offset = (json.loads(value)["data"] for value in values[:2])
    assert (group["protocolType"], group["currentStateTimestamp"]) == ("consumer", 80)
    assert (offset["offset"], offset["topicId"]) == (5, "AAAAAAAAAAAAAAAAAAAACQ")
    assert sum("isvalid: true" in line for line in lines) == 2
