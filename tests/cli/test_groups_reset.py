"""`horolog groups reset`: a group continues exactly at a cut."""

import json
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from arrivals import PARTITIONS, Arrivals, Producer
from command_runner import Ran, run_command
from patience import PATIENCE_S, eventually
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.client import Client, CommittedOffset
from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch
from horolog.storage import TopicPartition

broker = a_broker("clicks", "orders", partitions=2)

SECOND = 1_000
T = NOW_MS + 2 * SECOND


def append(broker: RunningBroker, topic: str, partition: int, value: str) -> None:
    broker.append(topic, build_batch([LogRecord(NOW_MS, None, value.encode())]), partition)


def keep_clock(broker: RunningBroker) -> None:
    broker.run(broker.broker.partitions.keep_stamp_clock())


@pytest.fixture
def filled(broker: RunningBroker, clock: ManualClock) -> RunningBroker:
    """A record of each partition each second; g has read all of clicks."""
    for second in range(4):
        for topic in ("clicks", "orders"):
            for partition in range(2):
                append(broker, topic, partition, f"{topic}-{partition} {second} s")
        clock.step("1s")
    keep_clock(broker)
    broker.client.offset_commit("g", {("clicks", number): CommittedOffset(4) for number in (0, 1)})
    return broker


def reset(broker: RunningBroker, *args: object) -> Ran:
    return run_command("groups", "reset", *args, HOROLOG_BOOTSTRAP=broker.address)


def cut_of(broker: RunningBroker, path: Path, *args: object) -> Path:
    run_command("cut", "--at", T, "-o", path, *args, HOROLOG_BOOTSTRAP=broker.address)
    return path


def committed(broker: RunningBroker, group: str = "g") -> dict[str, int]:
    with Client(broker.address) as client:  # its port may be another one by now
        found = client.offset_fetch(group)
    return {
        f"{topic}-{number}": its.offset for (topic, number), its in found.items() if its is not None
    }


def read_by(broker: RunningBroker, count: int, topics: list[str], **settings: Any) -> list[str]:
    """The next values that a consumer of g gets, which then leaves the group."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            **settings,
        }
    )
    try:
        consumer.subscribe(topics)
        messages = consumer.consume(count, timeout=PATIENCE_S)
        messages += consumer.consume(1, timeout=0.2)
    finally:
        consumer.close()
    assert [message.error() for message in messages] == [None] * len(messages)
    return sorted(message.value().decode() for message in messages)


def test_a_consumer_reads_exactly_what_came_from_the_time_on(
    filled: RunningBroker, tmp_path: Path
) -> None:
    expected = [f"clicks-{number} {second} s" for number in (0, 1) for second in (2, 3)]
    for where in (["--as-of", f"{T}ms"], ["--to", cut_of(filled, tmp_path / "cut.json")]):
        filled.client.offset_commit("g", {("clicks", 0): CommittedOffset(4)})
        ran = reset(filled, "g", *where)
        assert (ran.code, ran.err) == (0, "")
        assert ran.lines[0] == "g reset to 2023-11-14T22:13:22.000Z"
        assert ran.lines[2].split() == ["topic", "partition", "before", "after"]
        assert ran.lines[4].split() == ["clicks", "0", "4", "2"]
        assert committed(filled) == {"clicks-0": 2, "clicks-1": 2}
        assert read_by(filled, 4, ["clicks"]) == expected


@pytest.mark.parametrize(
    ("chosen", "partitions"),
    [
        (["--topics", "orders"], {"orders-0", "orders-1"}),
        (["--topics-pattern", ".*s"], {"clicks-0", "clicks-1", "orders-0", "orders-1"}),
    ],
)
def test_topics_are_chosen_and_a_group_may_be_new(
    filled: RunningBroker, chosen: list[str], partitions: set[str]
) -> None:
    ran = reset(filled, "new", "--as-of", T, *chosen, "--json")
    assert ran.code == 0
    assert ran.json["is_set"] is True
    assert {its["before"] for its in ran.json["partitions"]} == {None}
    assert committed(filled, "new") == dict.fromkeys(partitions, 2)
    assert committed(filled) == {"clicks-0": 4, "clicks-1": 4}


def test_a_dry_run_sets_nothing(filled: RunningBroker) -> None:
    ran = reset(filled, "g", "--as-of", T, "--dry-run")
    assert ran.code == 0
    assert ran.lines[0] == "g would be reset to 2023-11-14T22:13:22.000Z"
    assert ran.lines[4].split() == ["clicks", "0", "4", "2"]
    assert committed(filled) == {"clicks-0": 4, "clicks-1": 4}


@pytest.mark.parametrize("args", [[], ["--dry-run"]])
def test_a_group_with_members_is_refused_as_kafka_refuses_it(
    filled: RunningBroker, args: list[str]
) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": filled.address, "group.id": "g", "client.id": "the-client"}
    )
    try:
        consumer.subscribe(["clicks"])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment())
        ran = reset(filled, "g", "--as-of", T, *args)
    finally:
        consumer.close()
    assert ran.code == 1
    assert ran.lines[0].startswith("g cannot be reset to")
    assert ran.err == (
        "group g is Stable with members the-client: stop them first, because offsets are set of "
        "groups without members only (NON_EMPTY_GROUP)\n"
    )
    assert committed(filled) == {"clicks-0": 4, "clicks-1": 4}


@pytest.fixture
def with_transactions(broker: RunningBroker, clock: ManualClock) -> RunningBroker:
    """A transaction with a record before T and one behind it, and records of nobody's between."""
    late = Producer(broker, "late")
    late.write(TopicPartition("clicks", 0), LogRecord(NOW_MS, None, b"in transaction 0"))
    append(broker, "clicks", 0, "before")
    append(broker, "clicks", 1, "before")
    clock.step("2s")
    append(broker, "clicks", 0, "behind")
    late.write(TopicPartition("clicks", 1), LogRecord(NOW_MS, None, b"in transaction 1"))
    late.end(commit=True)
    clock.step("1s")
    keep_clock(broker)
    return broker


def test_an_open_transaction_needs_to_be_told_how_the_group_reads(
    with_transactions: RunningBroker, tmp_path: Path
) -> None:
    broker, cut = with_transactions, cut_of(with_transactions, tmp_path / "cut.json")
    options = ("g", "--to", cut, "--topics", "clicks")
    refused = reset(broker, *options, "--json")
    assert refused.code == 1
    assert committed(broker) == {}
    sentences = [its["refused"] for its in refused.json["partitions"]]
    assert sentences[0].endswith("open: 0 with --read-committed, 2 with --read-uncommitted")
    assert [its["after"] for its in refused.json["partitions"]] == [None, 1]

    assert reset(broker, *options, "--read-uncommitted").code == 0
    assert committed(broker) == {"clicks-0": 2, "clicks-1": 1}
    reads = read_by(broker, 2, ["clicks"], **{"isolation.level": "read_uncommitted"})
    assert reads == ["behind", "in transaction 1"]

    assert reset(broker, *options, "--read-committed").code == 0
    assert committed(broker) == {"clicks-0": 0, "clicks-1": 1}
    reads = read_by(broker, 4, ["clicks"], **{"isolation.level": "read_committed"})
    assert reads == ["before", "behind", "in transaction 0", "in transaction 1"]


def altered(cut: Path, **members: Any) -> Path:
    """Write members to the entry of clicks-1, by hand."""
    content = json.loads(cut.read_text())
    content["partitions"][1] |= members
    cut.write_text(json.dumps(content))
    return cut


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"offset": 5, "committed_offset": 5}, "the log ends at 4"),
        ({"offset": (1 << 63) - 1, "committed_offset": (1 << 63) - 1}, "the log ends at 4"),
        ({"exact": False, "why": "reset: of append times"}, "reset: of append times"),
        ({"offset": 0, "committed_offset": 0}, "the log begins at 1"),
    ],
)
def test_a_cut_that_does_not_fit_the_log_sets_nothing_and_names_the_partition(
    filled: RunningBroker, tmp_path: Path, members: dict[str, Any], said: str
) -> None:
    cut = altered(cut_of(filled, tmp_path / "cut.json"), **members)
    filled.delete_records("clicks", 1, partition=1)
    ran = reset(filled, "g", "--to", cut)
    assert ran.code == 1
    assert ran.lines[2].endswith("refused because")
    assert ran.lines[4].split() == ["clicks", "0", "4", "2", "-"]
    assert ran.lines[5].split(maxsplit=4)[:4] == ["clicks", "1", "4", "-"]
    assert said in ran.lines[5]
    assert committed(filled) == {"clicks-0": 4, "clicks-1": 4}


def test_records_in_front_of_the_cut_may_be_compacted(
    filled: RunningBroker, tmp_path: Path
) -> None:
    cut = altered(cut_of(filled, tmp_path / "cut.json"), exact=False, why="compacted: some are")
    assert reset(filled, "g", "--to", cut).code == 0
    assert committed(filled) == {"clicks-0": 2, "clicks-1": 2}


def test_cuts_of_another_cluster_topic_or_none_are_refused(
    filled: RunningBroker, tmp_path: Path
) -> None:
    cut = cut_of(filled, tmp_path / "cut.json", "--topics", "clicks")
    assert "the cut has no orders-0" in reset(filled, "g", "--to", cut, "--topics", "orders").err
    other = tmp_path / "other.json"
    other.write_text(cut.read_text().replace('"cluster_id": "', '"cluster_id": "x'))
    assert "of another cluster" in reset(filled, "g", "--to", other).err
    filled.client.delete_topics(["clicks"])
    filled.create_topic("clicks", 2)
    refused = reset(filled, "g", "--to", cut, "--topics", "clicks")
    assert (refused.code, refused.out) == (2, "")
    assert "clicks was re-created since the cut" in refused.err


def test_a_partition_that_was_added_since_is_read_from_its_beginning(
    filled: RunningBroker, tmp_path: Path
) -> None:
    cut = cut_of(filled, tmp_path / "cut.json")
    filled.client.create_partitions({"clicks": 3})
    append(filled, "clicks", 2, "new")
    assert reset(filled, "g", "--to", cut).code == 0
    assert committed(filled) == {"clicks-0": 2, "clicks-1": 2, "clicks-2": 0}
    content = json.loads(cut.read_text())
    content["partitions"] = [its for its in content["partitions"] if its["partition"] == 0]
    cut.write_text(json.dumps(content))
    refused = reset(filled, "g", "--to", cut)
    assert refused.code == 1
    assert "the cut has not the partition" in refused.lines[5]
    at = {"HOROLOG_BOOTSTRAP": filled.address}
    refused = run_command("consume", "clicks", "--as-of", cut, **at)
    assert (refused.code, refused.out) == (2, "")
    assert "clicks-1 cannot be read as of" in refused.err


def test_an_offline_partition_is_named_and_nothing_is_set(
    filled: RunningBroker, tmp_path: Path
) -> None:
    cut = cut_of(filled, tmp_path / "cut.json")
    filled.stop()
    for path in (filled.log_dir / "clicks-1").glob("*.log"):
        path.unlink()
        path.mkdir()
    filled.start()
    keep_clock(filled)
    for where in (["--to", cut], ["--as-of", T]):
        ran = reset(filled, "g", *where)
        assert ran.code == 1
        assert ran.lines[5].endswith("it has no leader")
    assert committed(filled)["clicks-0"] == 4


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["g"], "give --to CUT.json or --as-of TIME"),
        (["g", "--to", "cut.json", "--as-of", "-1h"], "give --to CUT.json or --as-of TIME"),
        (["g", "--to", "none.json"], "none.json cannot be read"),
        (["g", "--as-of", "yesterday"], "is not a time"),
        (["", "--as-of", "-1h"], "name of the group is empty"),
        (["none", "--as-of", "-1h"], "none has committed no offset: give --topics"),
        (["g", "--as-of", "-1h", "--topics", "none"], "There is no topic none"),
        (["g", "--as-of", "-1h", "--topics-pattern", "none"], "matches none"),
    ],
)
def test_a_misused_command_ends_with_2(broker: RunningBroker, args: list[str], said: str) -> None:
    ran = reset(broker, *args)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_time_in_the_future_sets_nothing(filled: RunningBroker) -> None:
    ran = reset(filled, "g", "--as-of", "+1h")
    assert ran.code == 1
    assert "future: " in ran.out
    assert committed(filled) == {"clicks-0": 4, "clicks-1": 4}


def printed(broker: RunningBroker, *args: object) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of the records of both topics that consume prints."""
    found = []
    for topic in ("a", "b"):
        ran = run_command(
            "consume", topic, *args, "--format", "json", HOROLOG_BOOTSTRAP=broker.address
        )
        assert ran.code == 0, ran.err
        records = map(json.loads, ran.lines)
        found += [(topic, record["partition"], record["offset"]) for record in records]
    return sorted(found)


def read_from_committed(
    broker: RunningBroker, isolation: str, count: int
) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of what a consumer of g gets of both topics."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(*partition) for partition in PARTITIONS])
        messages = consumer.consume(count, timeout=PATIENCE_S) if count else []
        messages += consumer.consume(1, timeout=0.2)
    finally:
        consumer.close()
    assert [message.error() for message in messages] == [None] * len(messages)
    return sorted((its.topic(), its.partition(), its.offset()) for its in messages)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_read_as_of_a_time_and_the_group_behind_it_have_every_record_once(
    make_broker: MakeBroker, tmp_path: Path, seed: int, isolation: str
) -> None:
    clock = ManualClock(NOW_MS)
    broker = make_broker(clock=clock)
    for topic in ("a", "b"):
        broker.create_topic(topic, 2)
    arrivals = Arrivals(broker, clock, seed)
    arrivals.live(60)
    for producer in arrivals.producers:
        if producer.open is not None:
            producer.end(commit=True)
    keep_clock(broker)
    reads = ["--read-committed"] if isolation == "read_committed" else []
    everything = printed(broker, *reads)
    for at_ms in arrivals.asked()[:4]:
        cut = tmp_path / f"{at_ms}.json"
        at = {"HOROLOG_BOOTSTRAP": broker.address}
        assert run_command("cut", "--at", f"{at_ms}ms", "-o", cut, **at).code == 0
        known = printed(broker, "--as-of", cut, *reads)
        option = f"--{isolation.replace('_', '-')}"
        assert reset(broker, "g", "--to", cut, "--topics", "a,b", option).code == 0
        behind = read_from_committed(broker, isolation, len(everything) - len(known))
        assert sorted([*known, *behind]) == everything
