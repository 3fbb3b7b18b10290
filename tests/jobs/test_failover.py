"""`horolog spark failover` between two brokers."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from command_runner import Ran, run_command
from kafka_clients import kafka, subscribe_knowing
from overrides import override
from patience import eventually
from running_broker import MakeBroker

from horolog import jobs
from horolog.client import Client, CommittedOffset
from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.record import LogRecord, build_batch
from horolog.sources import scan
from horolog.wire import ApiKey

NOW_MS = 1_715_000_000_000
ANY = {"message_timestamp_after_max_ms": str((1 << 63) - 1), "retention_ms": "-1"}


class Cluster:
    """A broker, its clock, and a client."""

    def __init__(self, make_broker: MakeBroker) -> None:
        self.clock = ManualClock(NOW_MS)
        self.broker = make_broker(clock=self.clock)
        self.address = self.broker.address
        self.client = Client(self.address)

    def append(self, at_ms: int, created_ms: int, value: bytes, partition: int = 0) -> None:
        if at_ms > self.clock.now_ms():
            self.clock.advance(at_ms - self.clock.now_ms())
        batch = build_batch([LogRecord(created_ms, None, value)])
        self.client.produce("t", partition, batch)

    def commit(self, group: str, offsets: dict[int, int]) -> None:
        self.client.offset_commit(
            group, {("t", number): CommittedOffset(at) for number, at in offsets.items()}
        )

    def committed(self, group: str) -> dict[int, int]:
        return {
            number: at.offset
            for (_, number), at in self.client.offset_fetch(group).items()
            if at is not None
        }

    def values(self, partition: int) -> list[bytes]:
        table = scan(self.client, "t").read_all()
        rows = [row for row in table.to_pylist() if row["partition"] == partition]
        return [row["value"] for row in sorted(rows, key=lambda row: row["offset"])]


@pytest.fixture
def east(make_broker: MakeBroker) -> Iterator[Cluster]:
    cluster = Cluster(make_broker)
    yield cluster
    cluster.client.close()


@pytest.fixture
def west(make_broker: MakeBroker) -> Iterator[Cluster]:
    cluster = Cluster(make_broker)
    yield cluster
    cluster.client.close()


def step(name: str, *arguments: object) -> Ran:
    return run_command("spark", "failover", name, *arguments)


def test_the_record_of_kip_33_that_arrives_in_another_order_is_not_missed(
    in_process_spark: Any, east: Cluster, west: Cluster, tmp_path: Path
) -> None:
    """KIP-33, use case 3: m1 is created before m2; cluster 2 gets m2 first, cluster 1 gets m1."""
    cluster_1, cluster_2 = west, east
    for each in (cluster_1, cluster_2):
        each.broker.create_topic("t", **ANY)
        each.append(NOW_MS + 5_000, NOW_MS, b"m0")  # that slow a record may be
    ct2 = NOW_MS + 60_000
    ct1 = ct2 - 2_000
    cluster_2.append(ct2 + 10, ct2, b"m2")
    cluster_2.commit("shop", {0: 2})
    recorded = step(
        "record", "--source", cluster_2.address, "--groups", "shop", "--state", tmp_path / "s",
        "--json",
    )  # fmt: skip
    assert recorded.code == 0, recorded.err
    assert recorded.json["topics"][0]["latency_ms"] == 5_000
    cluster_2.append(ct2 + 3_000, ct1, b"m1")
    cluster_1.append(ct1 + 10, ct1, b"m1")
    cluster_1.append(ct2 + 10, ct2, b"m2")
    by_time = cluster_1.client.list_offsets({("t", 0): ct2})["t", 0]
    assert by_time is not None
    assert cluster_1.values(0)[by_time.offset :] == [b"m2"], "a search for CT2 misses m1"

    cluster_2.broker.stop()
    options = ("--target", cluster_1.address, "--state", tmp_path / "s")
    plan = step("plan", *options, "--margin", "0s", "--json")
    assert plan.code == 0, plan.err
    (start,) = plan.json["starts"]
    assert start["offsets"] == {"0": 1}
    # m1 was not in cluster 2 when it was recorded: it may count as read.
    assert (start["to_read"], start["duplicates"]) == (2, 2)
    shown = step("plan", *options, "--margin", "0s")
    assert "shop, t: 2 records to read, of which at most 2 had been read" in shown.out
    assert "No record is lost that takes no longer" in shown.out
    dry = step("apply", *options, "--dry-run")
    assert (dry.code, "would commit" in dry.out) == (0, True)
    assert cluster_1.committed("shop") == {}
    applied = step("apply", *options)
    assert applied.code == 0, applied.err
    assert cluster_1.committed("shop") == {0: 1}
    assert cluster_1.values(0)[1:] == [b"m1", b"m2"]


@pytest.mark.parametrize(
    ("type_", "session"),
    [
        ("CreateTime", "in_process_spark"),
        pytest.param("LogAppendTime", "spark", marks=pytest.mark.spark),
    ],
)
def test_of_two_histories_no_unread_record_is_skipped(
    request: pytest.FixtureRequest,
    east: Cluster,
    west: Cluster,
    tmp_path: Path,
    type_: str,
    session: str,
) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    east.broker.create_topic("t", partitions=2, **ANY)
    west.broker.create_topic("t", partitions=3, message_timestamp_type=type_, **ANY)
    sent = [(NOW_MS + 100 * number, NOW_MS + 100 * number, b"%d" % number) for number in range(120)]
    arrivals: dict[str, Sequence[tuple[int, int, bytes]]] = {
        name: sorted((at + rng.randrange(2_000), created, value) for at, created, value in sent)
        for name in ("east", "west")
    }
    at_ms = NOW_MS + rng.randrange(3_000, 12_000)
    in_east: dict[int, list[bytes]] = {0: [], 1: []}
    for at, created, value in arrivals["east"]:
        if at <= at_ms:
            partition = rng.randrange(2)
            east.append(at, created, value, partition)
            in_east[partition].append(value)
    # An older record shows how slow one may be.
    east.append(at_ms, at_ms - 2_000, b"slow", 0)
    in_east[0].append(b"slow")
    groups = {
        group: {number: rng.randrange(len(its) + 1) for number, its in in_east.items()}
        for group in ("one", "two", "three")
    }
    for group, offsets in groups.items():
        east.commit(group, offsets)
    steps = jobs.failover(request.getfixturevalue(session), state=tmp_path / "s")
    steps.record(source=east.address, groups=list(groups))
    for at, created, value in arrivals["west"]:
        west.append(at, created, value, rng.randrange(3))
    plan = steps.plan(target=west.address, margin_ms=0)
    assert plan.is_proven, plan
    assert all(each.error is None for each in steps.apply(target=west.address))
    for group, offsets in groups.items():
        read = {value for number, its in in_east.items() for value in its[: offsets[number]]}
        starts = west.committed(group)
        got = {value for number in range(3) for value in west.values(number)[starts[number] :]}
        assert {value for _, _, value in sent} - read <= got, f"seed {seed}, {group}"


def fill(*clusters: Cluster) -> None:
    """Five records in each cluster."""
    for cluster in clusters:
        cluster.broker.create_topic("t", **ANY)
        for number in range(5):
            cluster.append(NOW_MS, NOW_MS + number, b"v")


def test_groups_with_members_are_refused_and_others_are_committed_once(
    in_process_spark: Any, east: Cluster, west: Cluster, tmp_path: Path
) -> None:
    fill(east, west)
    groups = ["busy", "idle", "assigned"]
    for group in groups:
        east.commit(group, {0: 5})
    steps = jobs.failover(in_process_spark, state=tmp_path / "s")
    steps.record(source=east.address, groups=groups)
    steps.plan(target=west.address)
    west.clock.follow()  # members wait for each other
    consumer = kafka.KafkaConsumer(bootstrap_servers=west.address, group_id="busy")
    settings = {"bootstrap.servers": west.address, "group.id": "assigned"}
    by_broker = confluent_kafka.Consumer({**settings, "group.protocol": "consumer"})
    try:
        by_broker.subscribe(["t"])
        assert eventually(lambda: by_broker.poll(0.1) is not None or bool(by_broker.assignment()))
        subscribe_knowing(consumer, "t")
        assert eventually(lambda: bool(consumer.poll(100) or consumer.assignment()))
        options = ("--target", west.address, "--state", tmp_path / "s")
        applied = step("apply", *options, "--json")
        assert applied.code == 1
        results = {each["group"]: each["result"] for each in applied.json["groups"]}
        for group in ("busy", "assigned"):
            assert "the group has members at the survivor (it is Stable)" in results[group]
        assert results["idle"] == "committed"
    finally:
        consumer.close(autocommit=False)
        by_broker.close()
    west.commit("idle", {0: 3})  # it has read on
    again = {
        each["group"]: each["result"] for each in step("apply", *options, "--json").json["groups"]
    }
    assert again == {"assigned": "committed", "busy": "committed", "idle": "applied before"}
    assert west.committed("idle") == {0: 3}
    only = step("apply", *options, "--overwrite", "--groups", "busy", "--json")
    assert [each["group"] for each in only.json["groups"]] == ["busy"]
    assert west.committed("idle") == {0: 3}
    assert step("apply", *options, "--overwrite").code == 0
    assert west.committed("idle") == {0: 0}
    other = step("apply", *options, "--groups", "nobody")
    assert (other.code, "group nobody is not in the plan" in other.err) == (2, True)


def test_what_was_applied_and_is_gone_since_is_not_taken_for_committed(
    in_process_spark: Any, east: Cluster, west: Cluster, tmp_path: Path
) -> None:
    fill(east, west)
    east.commit("g", {0: 5})
    steps = jobs.failover(in_process_spark, state=tmp_path / "s")
    steps.record(source=east.address, groups=["g"])
    steps.plan(target=west.address)
    for _ in range(2):
        assert [each.error for each in steps.apply(target=west.address)] == [None]
    west.client.delete_topics(["t"])
    (gone,) = steps.apply(target=west.address)
    assert "an earlier run committed the group, and it has no offset of t-0 now" in str(gone.error)
    west.broker.create_topic("t", **ANY)
    for dry_run in (True, False):
        with pytest.raises(Misconfigured, match="t was deleted and created again since the plan"):
            steps.apply(target=west.address, overwrite=True, dry_run=dry_run)


def test_offsets_that_a_group_has_committed_at_the_survivor_are_kept(
    in_process_spark: Any, east: Cluster, west: Cluster, tmp_path: Path
) -> None:
    fill(east, west)
    for group in ("moved", "new"):
        east.commit(group, {0: 5})
    west.commit("moved", {0: 2})
    steps = jobs.failover(in_process_spark, state=tmp_path / "s")
    steps.record(source=east.address, groups_pattern="mo.*|new|none")
    steps.plan(target=west.address, groups_pattern=".*")
    for dry_run in (True, False):
        moved, new = steps.apply(target=west.address, dry_run=dry_run)
        assert "has committed other offsets at the survivor (t-0: 2" in str(moved.error)
        assert (new.group, new.error, new.offsets) == ("new", None, 1)
        assert west.committed("moved") == {0: 2}
        assert west.committed("new") == ({} if dry_run else {0: 0})
    moved, _ = steps.apply(target=west.address, overwrite=True)
    assert (moved.error, moved.before) == (None, 1)
    assert west.committed("moved") == {0: 0}


def test_a_plan_that_is_not_proven_is_committed_on_demand_only(
    in_process_spark: Any, east: Cluster, west: Cluster, tmp_path: Path
) -> None:
    for each in (east, west):
        each.broker.create_topic("t", **ANY)
        for created in (NOW_MS, -1):
            each.append(NOW_MS, created, b"v")
    east.commit("g", {0: 2})
    steps = jobs.failover(in_process_spark, state=tmp_path / "s")
    steps.record(source=east.address, groups=["g"])
    assert not steps.plan(target=west.address).is_proven
    refused = step("apply", "--target", west.address, "--state", tmp_path / "s")
    assert refused.code == 1
    assert "records could be missing, t: 1 records had no time" in refused.out
    assert west.committed("g") == {}
    taken = step("apply", "--target", west.address, "--state", tmp_path / "s", "--accept-unproven")
    assert taken.code == 0, taken.out
    assert west.committed("g") == {0: 0}


def test_a_recording_reads_what_is_new_and_a_topic_created_again_from_its_start(
    in_process_spark: Any, east: Cluster, tmp_path: Path
) -> None:
    east.broker.create_topic("t", **ANY)
    for number in range(10):
        east.append(NOW_MS + number, NOW_MS, b"v")
    for group, at in (("still", 2), ("moving", 6)):
        east.commit(group, {0: at})
    steps = jobs.failover(in_process_spark, state=tmp_path / "s")

    def record() -> tuple[int, int | None, dict[str, int]]:
        found = steps.record(source=east.address, groups_pattern="still|moving")
        unread = {group: its["t"].unread for group, its in found.groups.items()}
        return found.records_read["t"], found.bounds["t"].latency_ms, unread

    assert record() == (10, 9, {"still": 8, "moving": 4})
    assert record() == (0, 9, {"still": 8, "moving": 4})
    for number in range(10, 13):
        east.append(NOW_MS + number, NOW_MS, b"v")
    assert record() == (3, 12, {"still": 11, "moving": 7})
    east.commit("moving", {0: 11})
    assert record() == (2, 12, {"still": 11, "moving": 2})
    # Within what was read at first, and within what was read last.
    east.commit("still", {0: 8})
    east.commit("moving", {0: 12})
    assert record() == (2 + 1, 12, {"still": 5, "moving": 1})
    east.client.delete_topics(["t"])
    east.broker.create_topic("t", **ANY)
    for number in range(20):
        east.append(NOW_MS + 20 + number, NOW_MS + 20, b"v")
    for group, at in (("still", 2), ("moving", 11)):
        east.commit(group, {0: at})
    assert record() == (20, 19, {"still": 18, "moving": 9})


def delete_all(cluster: Cluster, partition: int) -> None:
    """As retention does: what was appended is gone, and the log start is the log end."""
    cut = {"name": "t", "partitions": [{"partition_index": partition, "offset": -1}]}
    cluster.broker.ask(ApiKey.DELETE_RECORDS, 2, topics=[cut])


def test_where_no_record_tells_it_the_broker_says_how_long_records_took(
    in_process_spark: Any, east: Cluster, west: Cluster, tmp_path: Path
) -> None:
    """KIP-33: the broker's latency (use case 5) is the largest of the cluster (use case 3)."""
    for each in (east, west):
        each.broker.create_topic("t", partitions=2, **ANY)
    east.append(NOW_MS, NOW_MS - 45_000, b"slow", 0)
    delete_all(east, 0)
    east.commit("g", {0: 1})
    record = ("record", "--source", east.address, "--groups", "g", "--state", tmp_path / "s")
    found = step(*record, "--json")
    assert found.code == 0, found.err
    (topic,) = found.json["topics"]
    # 45 s is in the class from 10 s to before a minute.
    assert (topic["read_now"], topic["latency_ms"], topic["measured_by"]) == (0, 59_999, "broker")
    assert topic["broker_counts"] is True
    assert "59,999 ms is by the broker's classes of latencies" in step(*record).out

    options = ("--target", west.address, "--state", tmp_path / "s", "--margin", "1s")
    plan = step("plan", *options, "--json")
    assert (plan.code, plan.json["proven"]) == (0, True)
    (start,) = plan.json["starts"]
    assert (start["bound_ms"], start["bound_by"]) == (60_999, "broker")
    assert start["from_ms"]["0"] == start["recorded_at_ms"] - 60_999
    assert "60,999 ms, margin included (by the broker's classes" in step("plan", *options).out
    given = step("plan", *options, "--bound", "2m", "--json").json["starts"][0]
    assert (given["bound_ms"], given["bound_by"]) == (121_000, "user")


def test_what_the_broker_says_counts_for_partitions_of_which_no_record_tells_it(
    in_process_spark: Any, east: Cluster, tmp_path: Path
) -> None:
    east.broker.create_topic("t", partitions=3, **ANY)
    east.append(NOW_MS, NOW_MS - 70_000, b"v", 0)
    east.append(NOW_MS, NOW_MS - 45_000, b"v", 1)
    delete_all(east, 1)
    east.commit("g", {0: 1})
    steps = jobs.failover(in_process_spark, state=tmp_path / "s")
    bound = steps.record(source=east.address, groups=["g"]).bounds["t"]
    assert (bound.latency_ms, bound.latency_by) == (70_000, "append time")
    east.append(NOW_MS, NOW_MS - 80_000, b"v", 2)
    east.append(NOW_MS, NOW_MS - 31 * 86_400_000, b"no latency bounds it", 2)
    delete_all(east, 2)
    bound = steps.record(source=east.address, groups=["g"]).bounds["t"]
    assert (bound.latency_ms, bound.latency_by, bound.odd) == (599_999, "broker", 1)


def test_a_broker_that_counts_no_latencies_is_said_to_be_one(
    in_process_spark: Any, east: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", FEATURES={})
    east.broker.create_topic("t", **ANY)
    east.append(NOW_MS, NOW_MS - 45_000, b"v")
    east.commit("g", {0: 1})
    record = ("record", "--source", east.address, "--groups", "g", "--state", tmp_path / "s")
    found = step(*record, "--live", "0s", "--json")
    (topic,) = found.json["topics"]
    assert (topic["latency_ms"], topic["measured_by"]) == (None, None)
    assert topic["broker_counts"] is False
    shown = step(*record, "--live", "0s").out
    assert "t: the broker counts no latencies, as Apache Kafka's do not; how long records" in shown


def test_unread_records_without_a_time_are_read_from_the_earliest(
    in_process_spark: Any, east: Cluster, west: Cluster, tmp_path: Path
) -> None:
    for each in (east, west):
        each.broker.create_topic("t", **ANY)
        for created in (NOW_MS - 10**9, NOW_MS, -1):
            each.append(NOW_MS, created, b"v")
    east.commit("g", {0: 2})
    steps = jobs.failover(in_process_spark, state=tmp_path / "s")
    steps.record(source=east.address, groups=["g"])
    (start,) = steps.plan(target=west.address, bound_ms=10).starts
    assert (start.offsets, start.from_ms) == ({0: 0}, {0: None})
    (start,) = steps.plan(
        target=west.address, bound_ms=10, margin_ms=0, ignore_odd_times=True
    ).starts
    assert start.offsets == {0: 1}
    west.client.create_partitions({"t": 2})
    with pytest.raises(Misconfigured, match="leave out same-partitions"):
        steps.plan(target=west.address, same_partitions=True)
    assert set(steps.plan(target=west.address).starts[0].offsets) == {0, 1}


def test_what_makes_no_sense_is_refused(
    in_process_spark: Any, east: Cluster, west: Cluster, tmp_path: Path
) -> None:
    state = ("--state", tmp_path / "s")
    none = step("plan", "--target", west.address, *state)
    assert (none.code, "holds no recording" in none.err) == (2, True)
    unplanned = step("apply", "--target", west.address, *state)
    assert (unplanned.code, "holds no plan" in unplanned.err) == (2, True)
    for each in (east, west):
        each.broker.create_topic("t", **ANY)
    never = step("record", "--source", east.address, "--groups", "g", *state)
    assert (never.code, "have committed no offset" in never.err) == (2, True)
    east.append(NOW_MS, NOW_MS, b"v")
    for each in (east, west):
        each.commit("g", {0: 0})
    assert step("record", "--source", east.address, "--groups", "g", *state).code == 0
    other = step("record", "--source", west.address, "--groups", "g", *state)
    assert (other.code, "give another --state" in other.err) == (2, True)
    itself = step("plan", "--target", east.address, *state)
    assert (itself.code, "not a survivor of it" in itself.err) == (2, True)
    with pytest.raises(Misconfigured, match="was never recorded"):
        jobs.failover(in_process_spark, state=tmp_path / "s").plan(
            target=west.address, groups=["h"]
        )
    west.client.delete_topics(["t"])
    gone = step("plan", "--target", west.address, *state)
    assert (gone.code, "the survivor has no such topic" in gone.out) == (1, True)
