"""A mirror from broker to broker, or from files to a broker; its tasks run in this process."""

import os
import random
from collections.abc import Mapping
from pathlib import Path
from shutil import copy, copytree
from typing import Any, TypeVar

import pytest
from batches import generated_record
from examples import some_pairs
from faulty_calls import late_markers
from mirror_lab import (
    NO_SPARK,
    T0_MS,
    Killed,
    MirrorLab,
    produce,
    records,
    rows_of,
    stamped,
    values,
    write_log,
)
from running_broker import MakeBroker

from horolog.client import Client, CommittedOffset, ResourceType, Topics
from horolog.clock import SystemClock
from horolog.errors import ErrorCode, Misconfigured
from horolog.jobs.comparing import compare
from horolog.jobs.mirroring import Control
from horolog.jobs.mirroring.ledger import Ledger
from horolog.jobs.mirroring.moving import Target
from horolog.jobs.state import JobState
from horolog.record import Codec, LogRecord, build_batch, convert_all
from horolog.wire import ApiKey

T = TypeVar("T")
ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
AT_COMMIT = ["before it", "after it", None]


def without_internal(topics: Mapping[str, T]) -> dict[str, T]:
    return {name: topic for name, topic in topics.items() if not name.startswith("__")}


def test_records_of_all_kinds_are_the_same_at_the_target(lab: MirrorLab) -> None:
    unlimited = str((1 << 63) - 1)
    lab.source.create_topic("t", 3, retention_ms="-1", message_timestamp_after_max_ms=unlimited)
    rng = random.Random(7)
    for codec in Codec:
        for partition in range(3):
            rows = [generated_record(rng) for _ in range(30)]
            rows += [LogRecord(-5_000, None, b"before 1970"), LogRecord(-1, b"key", None)]
            lab.produce("t", partition, rows, codec=codec)
    done = lab.run()
    assert not done.errors
    assert done.records == 3 * 32 * len(Codec)
    assert (done.lag, done.lag_ms) == (0, 0)
    for partition in range(3):
        assert lab.rows("t", partition) == lab.source_rows("t", partition)
    batches = [
        [(header.codec, *header[6:9]) for header in broker.headers("t") if not header.is_control]
        for broker in (lab.source, lab.target)
    ]
    assert batches[0] == batches[1], "batches are passed on as they are compressed"


def test_topics_are_made_with_partitions_and_settings_and_renamed(lab: MirrorLab) -> None:
    lab.source.create_topic(
        "a.clicks",
        2,
        retention_ms="-1",
        segment_bytes="1048576",
        unclean_leader_election_enable="true",
    )
    lab.source.create_topic("views", 1, retention_ms="-1")
    for topic in ("a.clicks", "views"):
        lab.produce(topic, 0, records(0, 3))
    done = lab.run(
        topics="a.clicks,views",
        rename=r"a\.(?P<name>.*)=west.\g<name>",
        topic_settings={"max.message.bytes": "2000000", "segment.bytes": ""},
    )
    assert not done.errors
    topics = lab.target.client.metadata().topics
    partitions = {name: len(each.partitions) for name, each in topics.items()}
    assert without_internal(partitions) == {"west.clicks": 2, "views": 1}
    resource = (ResourceType.TOPIC, "west.clicks")
    entries = lab.target.client.describe_configs([resource])[resource]
    own = {name: each.value for name, each in entries.items() if each.source == 1}
    assert own == {"retention.ms": "-1", "max.message.bytes": "2000000"}
    assert lab.values("west.clicks") == values(lab.source.address, "a.clicks")


def test_a_target_that_takes_a_while_to_know_its_new_topics_is_waited_for(
    lab: MirrorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.source.create_topic("t", 2, retention_ms="-1")
    lab.produce("t", 0, records(0, 3))
    asked = 0
    metadata = Topics.metadata

    def late(client: Client, topics: Any = None, **more: Any) -> Any:
        nonlocal asked
        found = metadata(client, topics, **more)
        if client.config.bootstrap_servers == lab.target.address and "t" in found.topics:
            asked += 1
            if asked in (1, 2, 3):
                known = found.topics["t"]
                unknown = ErrorCode.unknown_topic_or_partition
                some = {0: known.partitions[0]} if asked == 3 else {}
                error = ErrorCode.none if asked == 3 else unknown
                topic = known._replace(partitions=some, error=error)
                return found._replace(topics={"t": topic})
        return found

    monkeypatch.setattr(Topics, "metadata", late)
    for expected in (3, 0):
        done = lab.run()
        assert (done.records, done.errors) == (expected, ())
    assert asked > 3


def test_a_later_run_mirrors_what_is_new_only(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 10))
    assert lab.run().records == 10
    assert lab.run().records == 0
    lab.produce("t", 0, records(10, 5))
    done = lab.run()
    assert (done.records, done.partitions[0].records) == (5, 15)
    assert lab.rows("t") == lab.source_rows("t")


def test_a_path_may_be_written_in_another_way_by_the_next_run(
    lab: MirrorLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "log" / "t-0", [build_batch(records(0, 5))])
    assert lab.run(tmp_path / "log").records == 5
    monkeypatch.chdir(tmp_path)
    for path in ("log", "./log/", "log/t-0/.."):
        assert lab.run(path).records == 0
    with pytest.raises(Misconfigured, match="a run with another source"):
        lab.run(topics="log/t-0")


@pytest.mark.parametrize(("after", "at_commit"), some_pairs([0, 1, 4, 9, 1 << 60], AT_COMMIT))
def test_a_killed_run_is_gone_on_with_without_loss_or_doubling(
    lab: MirrorLab, after: int, at_commit: str | None
) -> None:
    lab.source.create_topic("t", 2, retention_ms="-1")
    lab.target.create_topic("t", 2, retention_ms="-1")
    for number in range(10):
        lab.produce("t", number % 2, records(10 * number, 10))
    lab.killed_before_the_end(after=after, at_commit=at_commit)
    produce(lab.target.address, "t", 0, [LogRecord(T0_MS, None, b"of others")])
    done = lab.run()
    assert not done.errors
    assert sum(partition.records for partition in done.partitions) == 100
    for partition in range(2):
        mirrored = [row for row in lab.rows("t", partition) if row.key is not None]
        assert mirrored == lab.source_rows("t", partition)
    asked = {"source": lab.source.address, "target": lab.target.address, "topics": "t"}
    compared = compare(NO_SPARK, mirror_state=lab.state, **asked)
    for difference in compared.differences:  # the map is right up to the record of others
        assert (difference.partition, difference.source) == (0, "missing")


def test_a_run_killed_again_and_again_ends_with_each_record_once(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    for number in range(12):
        lab.produce("t", 0, records(5 * number, 5))
        if number % 2:
            lab.may_be_killed(after=number % 5, at_commit=AT_COMMIT[number % 3])
    assert not lab.run().errors
    assert lab.rows("t") == lab.source_rows("t")


def test_two_attempts_at_once_write_each_record_once(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    for number in range(100):
        lab.produce("t", 0, records(5 * number, 5))
    lab.run_twice_at_once()  # one may end the transaction of the other
    assert not lab.run().errors
    assert lab.rows("t") == lab.source_rows("t")


@pytest.mark.parametrize("least", [10, 20])
def test_records_that_the_target_deleted_are_not_mirrored_again(lab: MirrorLab, least: int) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    for number in range(2):
        lab.produce("t", 0, records(10 * number, 10))
    lab.killed_before_the_end()
    lab.target.delete_records("t", least)
    lab.produce("t", 0, records(20, 10))
    assert not lab.run().errors
    assert lab.values("t") == [b"%d" % number for number in range(least, 30)]


@pytest.mark.parametrize("at_commit", AT_COMMIT)
def test_a_source_that_was_compacted_after_a_kill_is_mirrored_as_it_is_then(
    lab: MirrorLab, tmp_path: Path, at_commit: str | None
) -> None:
    batches = [build_batch(records(5 * at, 5), base_offset=5 * at) for at in range(6)]
    write_log(tmp_path / "log" / "t-0", batches[:3])
    lab.killed_before_the_end(tmp_path / "log", at_commit=at_commit)
    write_log(tmp_path / "log" / "t-0", [*batches[:1], *batches[2:]])
    assert not lab.run(tmp_path / "log").errors
    is_there = at_commit != "before it"
    expected = [number for number in range(30) if is_there or not 5 <= number < 10]
    assert lab.values("t") == [b"%d" % number for number in expected]


def test_a_place_that_the_target_forgot_is_written_there_again(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 5))
    lab.run()
    (listed,) = lab.target.client.groups.list()
    lab.target.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[listed.group])
    lab.produce("t", 0, records(5, 5))
    assert not lab.run().errors
    lab.produce("t", 0, records(10, 5))
    lab.killed_before_the_end()
    lab.target.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[listed.group])
    lab.produce("t", 0, records(15, 5))
    (error,) = lab.run().errors
    assert "t-0 of the target has no place of the mirror any more" in error
    assert len(lab.values("t")) == 15, "nothing is guessed"


def test_an_earlier_copy_of_the_state_is_refused(lab: MirrorLab, tmp_path: Path) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 5))
    lab.run()
    copytree(lab.state, tmp_path / "earlier")
    for number in (1, 2):
        lab.produce("t", 0, records(5 * number, 5))
        (error,) = lab.run(state=tmp_path / "earlier").errors if number == 2 else [""]
        assert not lab.run().errors
    assert "was mirrored up to offset 10 of the source, and up to 5 by --state" in error
    assert len(lab.values("t")) == 15


def test_readers_of_committed_records_see_none_of_a_killed_run(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    for number in range(6):
        lab.produce("t", 0, records(5 * number, 5))
    lab.killed_before_the_end(after=4)
    assert lab.values("t") == []
    assert not lab.run().errors
    assert lab.rows("t") == lab.source_rows("t")
    assert len(rows_of(lab.target.address, "t", committed=False)) > 30


def test_a_run_ends_once_readers_of_committed_records_see_all(
    lab: MirrorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator answers a commit before it writes the markers."""
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 5))
    late_markers(monkeypatch)
    assert not lab.run().errors
    assert lab.rows("t") == lab.source_rows("t")


def test_a_target_that_was_truncated_stops_the_partition(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 2, retention_ms="-1")
    for partition in range(2):
        for number in range(2):
            lab.produce("t", partition, records(5 * number, 5))
    lab.run()
    lab.target.stop()
    log, *later = sorted((lab.target.log_dir / "t-0").glob("*.log"))
    for path in later:
        path.unlink()
    os.truncate(log, log.stat().st_size // 2)
    lab.target.restart()
    for partition in range(2):
        lab.produce("t", partition, records(10, 5))
    done = lab.run()
    assert len(done.errors) == 1
    assert "t-0 of the target ends at offset 5" in done.errors[0]
    assert len(lab.values("t", 1)) == 15


def test_a_topic_made_again_at_either_side_stops_it(lab: MirrorLab) -> None:
    for topic in ("a", "b", "c"):
        lab.source.create_topic(topic, 1, retention_ms="-1")
        lab.produce(topic, 0, records(0, 3))
    lab.run(topics="a,b,c")
    lab.source.client.delete_topics(["a"])
    lab.source.create_topic("a", 1, retention_ms="-1")
    lab.target.client.delete_topics(["b"])
    for topic in ("a", "b", "c"):
        lab.produce(topic, 0, records(3, 3))
    done = lab.run(topics="a,b,c")
    assert len(done.errors) == 2
    assert "a of the source was deleted and created again" in done.errors[0]
    assert "b of the target was deleted or created again" in done.errors[1]
    assert "b" not in lab.target.client.metadata().topics, "it is not created either"
    assert len(lab.values("a")) == 3
    assert len(lab.values("c")) == 6


def test_records_that_the_source_has_lost_stop_a_partition_or_are_skipped(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 4))
    lab.run()
    lab.produce("t", 0, records(4, 4))
    lab.produce("t", 0, records(8, 4))
    lab.source.delete_records("t", 8)
    done = lab.run()
    assert "begins at offset 8 and was mirrored up to 4" in done.errors[0]
    assert not lab.run(skip_lost=True).errors
    expected = [b"%d" % number for number in (0, 1, 2, 3, 8, 9, 10, 11)]
    assert lab.values("t") == expected


def test_a_log_that_begins_within_a_batch_is_mirrored_from_there(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 10))
    lab.produce("t", 0, records(10, 10))
    lab.source.delete_records("t", 4)
    lab.killed_before_the_end(after=1)
    assert not lab.run().errors
    assert lab.values("t") == [b"%d" % number for number in range(4, 20)]


def test_a_range_of_time_is_exact_and_leaves_out_records_without_a_time(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    rng = random.Random(3)
    rows = []
    for _ in range(20):
        batch = [
            LogRecord(rng.choice((-1, rng.randrange(-500, 1500))), b"k", rng.randbytes(4))
            for _ in range(10)
        ]
        rows += batch
        lab.produce("t", 0, batch, codec=rng.choice(tuple(Codec)))
    lab.killed_before_the_end(from_=-100, to=700, after=3)
    assert not lab.run(from_=-100, to=700).errors
    expected = [row for row in rows if -100 <= row.timestamp < 700 and row.timestamp != -1]
    assert lab.rows("t") == expected


def test_create_times_are_only_replaced_where_that_is_asked_for(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.source.create_topic("u", 1, retention_ms="-1", message_timestamp_type="LogAppendTime")
    lab.target.create_topic("t", 1, message_timestamp_type="LogAppendTime")
    for topic in ("t", "u"):
        lab.produce(topic, 0, records(0, 3))
    done = lab.run(topics="t,u")
    assert len(done.errors) == 1
    assert "--replace-create-times" in done.errors[0]
    assert not lab.run(topics="t,u", replace_create_times=True).errors
    for topic in ("t", "u"):
        assert lab.values(topic) == [b"0", b"1", b"2"]
        times = {row.timestamp for row in lab.rows(topic)}
        assert min(times) > T0_MS + 1_000_000, "the target stamps its append time"


def test_append_times_of_the_source_become_create_times_where_the_target_keeps_those(
    lab: MirrorLab, tmp_path: Path
) -> None:
    write_log(tmp_path / "log" / "t-0", [stamped(records(0, 5), T0_MS + 77)])
    assert not lab.run(tmp_path / "log").errors
    assert [row.timestamp for row in lab.rows("t")] == [T0_MS + 77] * 5


def test_transactions_are_mirrored_as_far_as_they_are_committed(
    lab: MirrorLab, tmp_path: Path
) -> None:
    def part(start: int, producer: int, offset: int) -> bytes:
        return build_batch(
            records(start, 3),
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )

    def marker(kind: bytes, producer: int, offset: int) -> bytes:
        return build_batch(
            [LogRecord(T0_MS, kind, b"\x00\x00\x00\x00\x00\x00")],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )

    log = [part(0, 1, 0), part(10, 2, 3), marker(COMMIT, 1, 6), marker(ABORT, 2, 7)]
    log += [build_batch(records(20, 3), base_offset=8), part(30, 1, 11)]
    write_log(tmp_path / "log" / "t-0", log)
    done = lab.run(tmp_path / "log")
    assert not done.errors
    assert lab.values("t") == [b"0", b"1", b"2", b"20", b"21", b"22"]
    assert done.partitions[0].offset == 11, "an open transaction is waited for"


@pytest.mark.parametrize(("limit", "value"), [("max_bytes", 500), ("max_points", 3)])
def test_work_is_written_down_piece_by_piece(
    lab: MirrorLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    batches = [build_batch(records(5 * at, 5), base_offset=6 * at) for at in range(40)]
    write_log(tmp_path / "log" / "t-0", batches)
    made = Target.__init__

    def limited(self: Target, **given: Any) -> None:
        made(self, **given, **{limit: value})

    monkeypatch.setattr(Target, "__init__", limited)
    seen: list[int] = []
    control = Control(on_progress=lambda done: seen.append(done.records))
    assert not lab.run(tmp_path / "log", control=control).errors
    assert lab.values("t") == [b"%d" % number for number in range(200)]
    assert len(seen) >= 4
    assert seen == sorted(seen)


@pytest.mark.parametrize("kind", ["gaps", "v0", "v1"])
def test_compacted_logs_and_old_formats_are_mirrored_without_gaps(
    lab: MirrorLab, tmp_path: Path, kind: str
) -> None:
    batches = [build_batch(records(0, 4)), build_batch(records(4, 4), base_offset=9)]
    if kind != "gaps":
        data = b"".join(batches)
        magic = int(kind[1])
        batches = [bytes(each.data) for each in convert_all(data, magic, least_offset=0)]
    write_log(tmp_path / "log" / "t-0", batches)
    lab.killed_before_the_end(tmp_path / "log", after=1)
    assert not lab.run(tmp_path / "log").errors
    assert lab.values("t") == [b"%d" % number for number in range(8)]
    times = [row.timestamp for row in lab.rows("t")]
    assert times == ([-1] * 8 if kind == "v0" else list(range(T0_MS, T0_MS + 8)))


def test_a_damaged_and_an_oversized_batch_stop_their_partitions_alone(
    lab: MirrorLab, tmp_path: Path
) -> None:
    good = build_batch(records(0, 5))
    damaged = bytearray(build_batch(records(5, 5), base_offset=5))
    damaged[-1] ^= 1
    large = build_batch([LogRecord(T0_MS, b"k", bytes(5_000))], base_offset=5)
    last = build_batch(records(10, 5), base_offset=10)
    write_log(tmp_path / "log" / "t-0", [good, bytes(damaged)])
    write_log(tmp_path / "log" / "t-0", [last], 10)
    write_log(tmp_path / "log" / "t-3", [good, bytes(damaged), last])
    write_log(tmp_path / "log" / "t-1", [good, large])
    write_log(tmp_path / "log" / "t-2", [good])
    lab.target.create_topic("t", 4, max_message_bytes="3000")
    for _ in range(2):
        done = lab.run(tmp_path / "log")
        assert [each.error is None for each in done.partitions] == [
            False,
            False,
            True,
            False,
        ]
        assert "t-0" in done.errors[0]
        assert "offset 5 of the source is damaged" in done.errors[0]
        assert "exceeds the maximum configured value of 3000" in done.errors[1]
        assert "t-3" in done.errors[2]
        for partition in range(4):
            assert len(lab.values("t", partition)) == 5


def test_added_partitions_and_topics_that_appear_are_mirrored(lab: MirrorLab) -> None:
    lab.source.create_topic("clicks.a", 1, retention_ms="-1")
    lab.produce("clicks.a", 0, records(0, 3))
    asked = {"topics": None, "topics_pattern": r"clicks\..*"}
    lab.run(**asked)
    lab.source.client.create_partitions({"clicks.a": 3})
    lab.source.create_topic("clicks.b", 1, retention_ms="-1")
    lab.source.create_topic("other", 1)
    lab.produce("clicks.a", 2, records(3, 3))
    lab.produce("clicks.b", 0, records(6, 3))
    assert not lab.run(**asked).errors
    assert lab.values("clicks.a", 2) == [b"3", b"4", b"5"]
    assert lab.values("clicks.b") == [b"6", b"7", b"8"]
    assert "other" not in lab.target.client.metadata().topics


def test_groups_go_on_at_the_target_where_they_were(lab: MirrorLab, tmp_path: Path) -> None:
    lab.source.create_topic("t", 2, retention_ms="-1")
    lab.target.create_topic("west.t", 2, retention_ms="-1")
    produce(lab.target.address, "west.t", 0, records(100, 7))
    for partition in range(2):
        lab.produce("t", partition, records(0, 10))
    client = lab.source.client
    client.offset_commit("readers", {("t", 0): CommittedOffset(4, "note")})
    client.offset_commit("writers", {("t", 0): CommittedOffset(9)})
    client.offset_commit("readers-2", {("t", 1): CommittedOffset(10)})
    done = lab.run(
        rename="t=west.t",
        groups_pattern="readers.*",
        into_nonempty=True,
    )
    assert [(each.group, each.partitions) for each in done.groups] == [
        ("readers", 1),
        ("readers-2", 1),
    ]
    client = lab.target.client
    assert client.offset_fetch("readers") == {("west.t", 0): CommittedOffset(11, "note")}
    assert client.offset_fetch("readers-2") == {("west.t", 1): CommittedOffset(10)}
    client.offset_commit("readers", {("west.t", 0): CommittedOffset(15)})
    lab.run(rename="t=west.t", groups="readers")
    assert client.offset_fetch("readers") == {("west.t", 0): CommittedOffset(15)}


def test_offsets_of_partitions_without_mirrored_records_are_named(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 2, retention_ms="-1")
    lab.produce("t", 0, records(0, 10))
    offsets = {("t", 0): CommittedOffset(4), ("t", 1): CommittedOffset(0)}
    lab.source.client.offset_commit("readers", offsets)
    (group,) = lab.run(groups="readers").groups
    assert group.partitions == 1
    assert group.note is not None
    assert group.note.endswith("no record of the partition was mirrored: t-1")
    assert lab.target.client.offset_fetch("readers") == {("t", 0): CommittedOffset(4)}


def test_a_dry_run_changes_nothing_and_says_what_would_be_refused(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 2, retention_ms="-1")
    lab.source.create_topic("u", 1, retention_ms="-1")
    lab.target.create_topic("u", 1, message_timestamp_type="LogAppendTime")
    lab.produce("t", 0, records(0, 3))
    done = lab.run(
        topics="t,u",
        dry_run=True,
        state=None,
        topic_settings={"retention.ms": "soon"},
    )
    assert done.is_dry_run
    assert len(done.errors) == 2
    assert "retention.ms" in done.errors[0]
    assert "--topic-set" in done.errors[0]
    assert "LogAppendTime" in done.errors[1]
    assert not lab.state.exists()
    with (
        JobState(lab.state, "reprocess", {}) as other,
        pytest.raises(Misconfigured, match="under way"),
    ):
        lab.run(dry_run=True)
    other.path.joinpath("plan.json").write_text("{}")
    with pytest.raises(Misconfigured, match="the state of the job reprocess"):
        lab.run(dry_run=True)
    again = lab.run(dry_run=True, state=None)
    assert (again.errors, again.lag, again.records) == ((), 3, 0)
    assert set(lab.target.client.metadata().topics) == {"u"}


def test_a_target_that_holds_records_is_refused_once_the_state_is_lost(
    lab: MirrorLab, tmp_path: Path
) -> None:
    for topic in "tu":
        lab.source.create_topic(topic, 2, retention_ms="-1")
        lab.produce(topic, 1, records(0, 5))
    lab.run()
    for more in ({"dry_run": True}, {"dry_run": True, "state": None}, {}):
        lost = {"state": tmp_path / "new", **more}
        done = lab.run(topics="t,u", **lost)
        (error,) = done.errors
        assert "t of the target holds 6 offsets already" in error
        assert "--into-nonempty" in error
    assert len(lab.values("t", 1)) == len(lab.values("u", 1)) == 5
    again = lab.run(dry_run=True)
    assert (again.errors, again.lag) == ((), 0)
    lab.produce("t", 1, records(5, 1))
    assert lab.run().records == 1
    lab.run(state=tmp_path / "more", into_nonempty=True)
    assert len(lab.values("t", 1)) == 6 + 6


def test_a_run_killed_before_its_first_state_goes_on_by_the_same_command(
    lab: MirrorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 5))
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "save", lambda _: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            lab.run()
    assert lab.run().records == 5


def test_what_the_target_would_delete_and_change_is_said_before_it_is_sent(
    lab: MirrorLab, tmp_path: Path
) -> None:
    lab.source.create_topic("t", 6)
    lab.target.create_topic("t", 2)
    old, now_ms = records(0, 5), SystemClock().now_ms()
    lab.produce("t", 0, old)
    lab.produce("t", 1, records(0, 3, timestamp=now_ms))
    early: list[str] = []
    control = Control(on_progress=lambda done: early.extend([] if done.records else done.notes))
    dry = lab.run(dry_run=True)
    done = lab.run(control=control)
    for notes in ("\n".join(dry.notes), "\n".join(done.notes), "\n".join(early)):
        assert "retention will delete 5 of the 8 offsets of t at the source" in notes
        assert "retention.ms=604800000" in notes
        assert "t of the target has 2 partitions and gets 6" in notes
    lab.source.create_topic("untimed", 1)
    lab.produce("untimed", 0, records(0, 5, timestamp=-1))
    for number, more in enumerate(
        (
            {"topics": "untimed"},
            {"topic_settings": {"retention.ms": "-1"}, "rename": "t=kept"},
            {"from_": now_ms - 1000},
        )
    ):
        silent = lab.run(state=tmp_path / f"{number}", into_nonempty=True, **more)
        assert not silent.errors
        assert not any("retention" in note for note in silent.notes)


def test_what_cannot_be_is_refused_before_anything_is_done(lab: MirrorLab, tmp_path: Path) -> None:
    lab.source.create_topic("t", 1)
    lab.source.create_topic("u", 1)
    with pytest.raises(Misconfigured, match="one cluster"):
        lab.run(target=lab.source.address)
    with pytest.raises(Misconfigured, match="t and u would both be mirrored to same"):
        lab.run(topics="t,u", rename=".*=same", state=tmp_path / "a")
    for rename in ("x", "=y", "(=y", "x=", r"x=\1", r"x=\g<y>", r"x=\q", "x=\\", r"(?!x).*=y"):
        with pytest.raises(Misconfigured, match="rename"):
            lab.run(rename=rename, state=tmp_path / "b")
    with pytest.raises(Misconfigured, match="the source is a path"):
        lab.run(tmp_path, groups="g", state=tmp_path / "c")


def test_clusters_that_were_given_one_id_are_two_clusters(
    lab: MirrorLab, tmp_path: Path, make_broker: MakeBroker
) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 3))
    other = tmp_path / "other"
    other.mkdir()
    copy(lab.source.log_dir / "meta.properties", other)
    lab.target = make_broker(log_dir=other)
    ids = {each.client.metadata([]).cluster_id for each in (lab.source, lab.target)}
    assert len(ids) == 1
    assert not lab.run().errors
    assert lab.values("t") == values(lab.source.address, "t")


def test_a_cluster_is_mirrored_into_itself_under_other_names_without_end(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 3))
    asked = {"topics": None, "topics_pattern": ".*", "rename": r"(.*)=copy.\1"}
    for _ in range(3):
        assert not lab.run(target=lab.source.address, **asked).errors
    assert without_internal(lab.source.client.metadata().topics).keys() == {"t", "copy.t"}
