"""A mirror into a log directory: the same offsets and bytes, adopted by a broker."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from batches import generated_record
from mirror_lab import (
    T0_MS,
    MirrorLab,
    log_bytes,
    produce,
    records,
    rows_of,
    stamped,
    values,
    write_log,
)
from running_broker import MakeBroker, RunningBroker, a_broker
from transactional import end, init, write

from horolog.client import Client
from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.record import AppendTimeStretch, Codec, LogRecord, build_batch, convert_all
from horolog.sources import scan
from horolog.storage import Finding, LogDir, Severity, Verification

source = a_broker(now_ms=T0_MS + 1_000_000)


@pytest.fixture
def clock(source: RunningBroker) -> ManualClock:
    return source.clock


def append_times(address: str, topic: str, partition: int, offsets: int) -> list[int | None]:
    """Of each record."""
    with Client(address) as client:
        found: list[int | None] = []
        while len(found) < offsets:
            fetched = client.fetch(topic, partition, len(found), with_append_times=True)
            starts = [*(each.offset for each in fetched.append_times[1:]), offsets]
            for each, end in zip(fetched.append_times, starts, strict=True):
                found += [each.ms] * (end - len(found))
        return found


def faults(directory: Path) -> list[Finding]:
    return [
        each
        for each in Verification.of(directory).steps()
        if isinstance(each, Finding) and each.severity is not Severity.NOTE
    ]


def filled(source: "RunningBroker", clock: ManualClock, **settings: str) -> None:
    unlimited = str((1 << 63) - 1)
    source.create_topic(
        "t", 2, retention_ms="-1", message_timestamp_after_max_ms=unlimited, **settings
    )
    rng = random.Random(5)
    for number in range(24):
        rows = [generated_record(rng) for _ in range(rng.choice((1, 5)))]
        produce(source.address, "t", number % 2, rows, codec=rng.choice(tuple(Codec)))
        if number % 3 == 0:
            clock.advance(f"{rng.randrange(1, 5_000)}ms")


def test_a_broker_adopts_the_directory_and_serves_the_same_times_included(
    lab: MirrorLab,
    tmp_path: Path,
    source: "RunningBroker",
    clock: ManualClock,
    make_broker: MakeBroker,
) -> None:
    filled(source, clock, segment_bytes="60000")
    done = lab.run(source.address, tmp_path / "copy")
    assert not done.errors
    assert (done.lag, len(done.partitions)) == (0, 2)
    rows = {number: rows_of(source.address, "t", number) for number in range(2)}
    for number in range(2):
        copied = tmp_path / "copy" / f"t-{number}"
        assert log_bytes(copied) == log_bytes(source.log_dir / f"t-{number}")
        assert len(list(copied.glob("*.log"))) > 1, "segments end where the topic says"
        metadata = (copied / "partition.metadata").read_text()
        assert metadata == (source.log_dir / f"t-{number}" / "partition.metadata").read_text()
    assert faults(tmp_path / "copy") == []
    copy = make_broker(log_dir=tmp_path / "copy", clock=clock)
    for number in range(2):
        assert rows_of(copy.address, "t", number) == rows[number]
        count = len(rows[number])
        times = append_times(copy.address, "t", number, count)
        assert times == append_times(source.address, "t", number, count)
        assert None not in times


def test_when_a_follower_saw_records_is_mirrored_as_such(
    lab: MirrorLab, tmp_path: Path, source: "RunningBroker", make_broker: MakeBroker
) -> None:
    source.create_topic("t", retention_ms="-1")
    times = [
        AppendTimeStretch(0, T0_MS + 5, is_seen=True),
        AppendTimeStretch(1, T0_MS + 6),
        AppendTimeStretch(2, None),
        AppendTimeStretch(3, T0_MS + 7, is_seen=True),
    ]
    rows = [build_batch([LogRecord(T0_MS, b"k", b"v")], base_offset=offset) for offset in range(5)]
    source.restart_followed("t", b"".join(rows), times)
    done = lab.run(source.address, tmp_path / "copy")
    assert not done.errors
    copy = make_broker(log_dir=tmp_path / "copy")
    found = copy.client.fetch("t", 0, 0, with_append_times=True, with_seen_times=True)
    assert found.append_times == times


@pytest.mark.parametrize("after", [0, 1, 5, 11, 1 << 60])
def test_a_killed_run_goes_on_to_the_same_bytes_and_times(
    lab: MirrorLab,
    tmp_path: Path,
    source: "RunningBroker",
    clock: ManualClock,
    make_broker: MakeBroker,
    after: int,
) -> None:
    filled(source, clock, segment_bytes="60000")
    for each in (after, 2):
        lab.killed_before_the_end(source.address, tmp_path / "copy", after=each)
    produce(source.address, "t", 0, records(0, 3))
    done = lab.run(source.address, tmp_path / "copy")
    assert not done.errors
    for number in range(2):
        expected = log_bytes(source.log_dir / f"t-{number}")
        assert log_bytes(tmp_path / "copy" / f"t-{number}") == expected
    assert faults(tmp_path / "copy") == []
    counts = [len(rows_of(source.address, "t", number)) for number in range(2)]
    assert [each.records for each in done.partitions] == counts
    copy = make_broker(log_dir=tmp_path / "copy", clock=clock)
    for number, count in enumerate(counts):
        times = append_times(copy.address, "t", number, count)
        assert times == append_times(source.address, "t", number, count)


def test_a_torn_tail_and_garbage_behind_what_is_known_are_written_again(
    lab: MirrorLab, tmp_path: Path, source: "RunningBroker", clock: ManualClock
) -> None:
    filled(source, clock)
    lab.run(source.address, tmp_path / "copy")
    produce(source.address, "t", 0, records(0, 3))
    lab.killed_before_the_end(source.address, tmp_path / "copy", after=0)
    (log,) = (tmp_path / "copy" / "t-0").glob("*.log")
    with log.open("ab") as file:
        file.write(build_batch(records(0, 3), base_offset=1_000)[:-1])
    produce(source.address, "t", 0, records(0, 3))
    assert not lab.run(source.address, tmp_path / "copy").errors
    assert log_bytes(tmp_path / "copy" / "t-0") == log_bytes(source.log_dir / "t-0")
    assert faults(tmp_path / "copy") == []


def test_two_attempts_at_once_write_one_log(
    lab: MirrorLab, tmp_path: Path, source: "RunningBroker", clock: ManualClock
) -> None:
    filled(source, clock)
    assert not lab.run_twice_at_once(source.address, tmp_path / "copy").errors
    for number in range(2):
        expected = log_bytes(source.log_dir / f"t-{number}")
        assert log_bytes(tmp_path / "copy" / f"t-{number}") == expected


@pytest.mark.parametrize("kind", ["transactions", "gaps", "v0", "v1", "stamped"])
def test_files_of_any_kind_keep_their_bytes(
    lab: MirrorLab, tmp_path: Path, make_broker: MakeBroker, kind: str
) -> None:
    batches = [
        build_batch(records(0, 4), leader_epoch=3),
        build_batch(records(4, 4), base_offset=4 if kind == "transactions" else 9, leader_epoch=5),
    ]
    if kind == "stamped":
        batches = [stamped(records(0, 4), T0_MS + 9), stamped(records(4, 4), T0_MS + 17, 4)]
    if kind in ("v0", "v1"):
        data = b"".join(batches)
        batches = [bytes(each.data) for each in convert_all(data, int(kind[1]), least_offset=0)]
    if kind == "transactions":
        batches += [
            build_batch(
                records(20, 3),
                base_offset=8,
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
                leader_epoch=5,
            ),
            build_batch(
                [LogRecord(T0_MS, b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00")],
                base_offset=11,
                producer_id=7,
                producer_epoch=0,
                is_transactional=True,
                is_control=True,
                leader_epoch=5,
            ),
            build_batch(records(30, 1), base_offset=12, leader_epoch=5),
        ]
    write_log(tmp_path / "log" / "t-0", batches)
    assert not lab.run(tmp_path / "log", tmp_path / "copy").errors
    assert log_bytes(tmp_path / "copy" / "t-0") == b"".join(batches)
    if kind in ("transactions", "gaps"):
        epochs = (tmp_path / "copy" / "t-0" / "leader-epoch-checkpoint").read_text().splitlines()
        assert epochs[2:] == ["3 0", "5 4" if kind == "transactions" else "5 9"]
    assert faults(tmp_path / "copy") == []
    copy = make_broker(log_dir=tmp_path / "copy")
    expected = [b"%d" % number for number in range(8)]
    if kind == "transactions":
        expected.append(b"30")
    assert values(copy.address, "t") == expected


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("is_served", [True, False])
@pytest.mark.parametrize("has_more", [True, False])
def test_a_transaction_that_the_log_start_passed_holds_up_a_copy_from_what_is_left_of_it(
    lab: MirrorLab,
    tmp_path: Path,
    source: "RunningBroker",
    make_broker: MakeBroker,
    is_committed: bool,
    is_served: bool,
    has_more: bool,
) -> None:
    copy = tmp_path / "copy"
    source.create_topic("t", 1, retention_ms="-1")
    producer = init(source)
    assert write(source, producer, version=12) == 0
    produce(source.address, "t", 0, records(1, 3))
    source.delete_records("t", 2)  # behind the transaction's first batch, within another
    source.run(source.broker.partitions.run(LogDir.checkpoint_starts))
    produce(source.address, "t", 0, records(4, 2))
    if has_more:
        assert write(source, producer, version=12, sequence=1) == 0
    produce(source.address, "t", 0, records(7, 2))

    def mirror_it() -> None:
        where = source.address if is_served else source.log_dir
        assert not lab.run(where, copy).errors
        assert not lab.run(where, state=tmp_path / "state-of-cluster").errors

    def committed(directory: Path) -> list[bytes | None]:
        table = scan(directory, "t", read_committed=True).read_all()
        return [row["value"] for row in table.to_pylist()]

    def served(name: str) -> list[bytes | None]:
        shutil.copytree(copy, tmp_path / name)
        return values(make_broker(log_dir=tmp_path / name).address, "t")

    mirror_it()
    before, behind = [b"2", b"3", b"4", b"5"], [b"7", b"8"]
    assert committed(source.log_dir) == lab.values("t") == []
    # Its first batch is in no copy: what is there of others is committed, and in order.
    assert committed(copy) == (before if has_more else before + behind)
    assert served("open") == before + behind  # what is open counts as aborted once it is adopted
    assert end(source, producer, commit=is_committed) == 0
    mirror_it()
    expected = [*before, *([b"v"] if has_more and is_committed else []), *behind]
    assert committed(source.log_dir) == lab.values("t") == expected
    assert committed(copy) == served("ended") == expected
    assert faults(copy) == []


def test_partitions_without_records_are_there_and_get_those_that_come(
    lab: MirrorLab, tmp_path: Path, source: "RunningBroker", make_broker: MakeBroker
) -> None:
    source.create_topic("t", 3, retention_ms="-1")
    produce(source.address, "t", 1, records(0, 3))
    for _ in range(2):
        assert not lab.run(source.address, tmp_path / "copy").errors
    copy = make_broker(log_dir=tmp_path / "copy")
    assert len(copy.client.metadata(["t"]).topics["t"].partitions) == 3
    copy.stop()
    produce(source.address, "t", 2, records(3, 3))
    (tmp_path / "again").mkdir()
    done = lab.run(source.address, tmp_path / "again", state=tmp_path / "state-2")
    assert not done.errors
    produce(source.address, "t", 0, records(6, 3))
    assert not lab.run(source.address, tmp_path / "again", state=tmp_path / "state-2").errors
    assert faults(tmp_path / "again") == []
    copy = make_broker(log_dir=tmp_path / "again")
    for number in range(3):
        assert rows_of(copy.address, "t", number) == rows_of(source.address, "t", number)


def test_records_that_were_deleted_within_a_batch_stay_hidden(
    lab: MirrorLab, tmp_path: Path, source: "RunningBroker", make_broker: MakeBroker
) -> None:
    source.create_topic("t", 1, retention_ms="-1")
    produce(source.address, "t", 0, records(0, 10))
    produce(source.address, "t", 0, records(10, 10))
    source.delete_records("t", 4)
    assert not lab.run(source.address, tmp_path / "copy", rename="t=u").errors
    copy = make_broker(log_dir=tmp_path / "copy")
    assert rows_of(copy.address, "u") == rows_of(source.address, "t")
    assert rows_of(copy.address, "u")[0].offset == 4


def test_a_directory_that_a_broker_has_written_to_since_is_left_to_it(
    lab: MirrorLab, tmp_path: Path, source: "RunningBroker", make_broker: MakeBroker
) -> None:
    source.create_topic("t", 2, retention_ms="-1")
    for partition in range(2):
        produce(source.address, "t", partition, records(0, 3))
    lab.run(source.address, tmp_path / "copy")
    copy = make_broker(log_dir=tmp_path / "copy")
    assert len(values(copy.address, "t")) == 3
    copy.stop()
    assert not lab.run(source.address, tmp_path / "copy").errors, "it has only read"
    copy = make_broker(log_dir=tmp_path / "copy")
    produce(copy.address, "t", 1, records(50, 3))
    copy.stop()
    produce(source.address, "t", 1, records(3, 3))
    (error,) = lab.run(source.address, tmp_path / "copy").errors
    assert "t-1 is not as the mirror left it" in error


@pytest.mark.parametrize("lost", ["copy", "copy/t-1", "copy/t-1/*.log"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_directory_that_lost_what_was_mirrored_is_refused(
    lab: MirrorLab, tmp_path: Path, source: "RunningBroker", lost: str, killed: bool
) -> None:
    source.create_topic("t", 3, retention_ms="-1")
    for partition in range(2):
        produce(source.address, "t", partition, records(0, 3))
    assert not lab.run(source.address, tmp_path / "copy").errors
    if killed:
        produce(source.address, "t", 1, records(3, 3))
        lab.killed_before_the_end(source.address, tmp_path / "copy")
    for path in tmp_path.glob(lost):
        path.unlink() if path.is_file() else shutil.rmtree(path)
    if not killed:
        error = lab.run(source.address, tmp_path / "copy", dry_run=True).errors[0]
        assert "is not as the mirror left it" in error
    errors = lab.run(source.address, tmp_path / "copy").errors
    assert errors
    assert all("t-0" in error or "t-1" in error for error in errors)


def test_a_directory_in_use_or_of_others_is_refused(
    lab: MirrorLab, tmp_path: Path, source: "RunningBroker", make_broker: MakeBroker
) -> None:
    source.create_topic("t", 1, retention_ms="-1")
    produce(source.address, "t", 0, records(0, 3))
    other = make_broker(log_dir=tmp_path / "other")
    asked: dict[str, Any] = {"state": tmp_path / "state-2"}
    with pytest.raises(Misconfigured, match="a broker is at work"):
        lab.run(source.address, tmp_path / "other", **asked)
    other.create_topic("t", 1)
    other.stop()
    done = lab.run(source.address, tmp_path / "other", **asked)
    assert "is there already, and not of this mirror" in done.errors[0]
    for path in (tmp_path / "other" / "t-0").glob("*.log"):
        path.rename(f"{path}.swap")  # as a compaction leaves it that was killed
    done = lab.run(source.address, tmp_path / "other", **asked)
    assert "is there already, and not of this mirror" in done.errors[0]
    with pytest.raises(Misconfigured, match="leave out from and to"):
        lab.run(source.address, tmp_path / "copy", from_=5)
    with pytest.raises(Misconfigured, match="keeps no groups"):
        lab.run(source.address, tmp_path / "copy", groups="g", state=tmp_path / "state-3")
    with pytest.raises(Misconfigured, match="is on a disk"):
        lab.run(source.address, "s3://bucket/log", state=tmp_path / "state-4")
