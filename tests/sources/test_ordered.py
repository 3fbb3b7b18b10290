"""Records in the order of their times: over partitions, inside them, and within a memory."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from running_broker import MakeBroker, RunningBroker

from horolog.client import Client, Link, RecordClock
from horolog.client.introduction import Abilities
from horolog.clock import ManualClock
from horolog.errors import Misconfigured, RequestRefused, StorageFailed
from horolog.record import LogRecord, build_batch
from horolog.sources import (
    DataLost,
    OrderedRecords,
    ReadOptions,
    RecordLog,
    TableBuffer,
    WithoutTime,
    scan,
)
from horolog.storage import SegmentReader
from horolog.testing import Broker

T0_MS = 1_772_323_200_000
MINUTE = 60_000


def rows(source: Any, topic: str, **how: Any) -> list[dict[str, Any]]:
    columns = ("offset", "timestamp_ms", "append_ms")
    return scan(source, topic, columns=columns, **how).read_all().to_pylist()


def printed(source: Any, topic: str, *arguments: str) -> list[tuple[int, int]]:
    """The places of the records that `horolog consume` prints."""
    if isinstance(source, Path):
        ran = run_command("consume", source, *arguments)
    else:
        ran = run_command("consume", topic, "-b", source.config.bootstrap_servers, *arguments)
    assert ran.code == 0, ran.err
    return [tuple(map(int, line.split("\t")[1].split("@"))) for line in ran.lines]


def expected(
    every: Sequence[dict[str, Any]], column: str, *, last: bool = True
) -> list[dict[str, Any]]:
    timed = [row for row in every if row[column] not in (None, -1)]
    timed.sort(key=lambda row: (row[column], row["partition"], row["offset"]))
    untimed = [row for row in every if row[column] in (None, -1)]
    return timed + untimed if last else untimed + timed


@given(
    batches=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.lists(st.one_of(st.just(-1), st.integers(-9, 60)), min_size=1, max_size=6),
        ),
        max_size=40,
    ),
    rolls=st.sets(st.integers(0, 40)),
)
@examples(2)
def test_an_order_is_that_of_a_sort_of_everything(
    batches: list[tuple[int, list[int]]], rolls: set[int], override_blocks: None
) -> None:
    clock = ManualClock(T0_MS)
    with Broker(clock=clock) as broker:
        broker.create_topic("t", partitions=3, settings={"segment.bytes": 400})
        with Client(broker.bootstrap_servers) as client:
            for number, (partition, minutes) in enumerate(batches):
                times = [-1 if it == -1 else T0_MS + it * MINUTE for it in minutes]
                records = [LogRecord(ms, None, b"%d" % number) for ms in times]
                client.produce("t", partition, build_batch(records))
                clock.advance("1m" if number in rolls else "1s")
            every = rows(client, "t")
            for source in (client, broker.log_dir):
                for order, column in (
                    ("create-time", "timestamp_ms"),
                    ("append_time", "append_ms"),
                ):
                    found = rows(source, "t", order=order)
                    assert found == expected(every, column)
                first = rows(source, "t", order="create_time", without_time="first")
                assert first == expected(every, "timestamp_ms", last=False)
                for order, column in (
                    ("create-time", "timestamp_ms"),
                    ("append-time", "append_ms"),
                ):
                    found = printed(source, "t", "--order", order)
                    assert found == [
                        (row["partition"], row["offset"]) for row in expected(every, column)
                    ]
                ranged = rows(source, "t", order="create_time", from_ms=T0_MS + 5 * MINUTE)
                timed = [row for row in every if row["timestamp_ms"] >= T0_MS + 5 * MINUTE]
                assert ranged == expected(timed, "timestamp_ms")


@pytest.fixture(scope="module")
def override_blocks() -> Any:
    """Blocks of a few batches, so that small logs have many."""
    with pytest.MonkeyPatch.context() as patch:
        override(patch, "horolog.storage", BLOCK_BYTES=300)
        override(patch, "horolog.sources.ordered", GROUP_BYTES=400, RELEASE_BYTES=500)
        override(patch, "horolog.sources.tables", _TABLE_BYTES=300)
        yield


@pytest.fixture
def late(make_broker: MakeBroker) -> RunningBroker:
    """Two partitions of 30 blocks; in the second each record is half an hour older."""
    clock = ManualClock(T0_MS)
    broker = make_broker(clock=clock)
    broker.create_topic("late", 2)
    for number in range(30):
        for partition in range(2):
            ms = clock.now_ms() - partition * 30 * MINUTE
            value = bytes(300_000)
            broker.append("late", build_batch([LogRecord(ms, None, value)]), partition)
        if number == 15:
            broker.append("late", build_batch([LogRecord(T0_MS - 60 * MINUTE, None, b"")]), 0)
        clock.advance("1m")
    broker.restart()
    return broker


@pytest.mark.parametrize("is_path", [False, True])
def test_memory_is_what_overlaps(
    is_path: bool, late: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    release = TableBuffer.release

    def noted(buffer: Any, before_ms: int | None) -> Any:
        held.append(buffer.size)
        yield from release(buffer, before_ms)

    monkeypatch.setattr(TableBuffer, "release", noted)
    source = late.log_dir if is_path else late.address
    table = scan(source, "late", order="create_time", order_memory=16 << 20).read_all()
    assert table["partition"].to_pylist() == [0, *[1] * 30, *[0] * 30]
    assert max(held) < 12 << 20


@pytest.fixture
def like_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that announce nothing of horolog's, as Apache Kafka's."""
    connect = Link.__init__

    def plain(link: Link, connection: Any, abilities: Any) -> None:
        its = Abilities(abilities.address, abilities.versions, {}, abilities.levels)
        connect(link, connection, its)

    monkeypatch.setattr(Link, "__init__", plain)


def test_a_broker_without_block_maps_is_ordered_within_a_memory(
    late: RunningBroker, monkeypatch: pytest.MonkeyPatch, like_kafka: None
) -> None:
    test_memory_is_what_overlaps(False, late, monkeypatch)
    late.append("late", build_batch([LogRecord(-1, None, b""), LogRecord(T0_MS, None, b"")]))
    every = scan(late.address, "late", columns=("offset", "timestamp_ms")).read_all().to_pylist()
    places = [(row["partition"], row["offset"]) for row in expected(every, "timestamp_ms")]
    assert printed(late.client, "late", "--order", "create-time") == places


def test_an_order_says_how_far_it_has_looked(late: RunningBroker, like_kafka: None) -> None:
    looked: list[int] = []
    with RecordLog(ReadOptions.of_topic(late.client.config, "late"), runs_ahead=False) as log:
        ordered = OrderedRecords(
            log,
            RecordClock.CREATE,
            memory=64 << 20,
            without_time=WithoutTime.LAST,
            on_damage=lambda partition, error: None,
            on_looked=looked.append,
        )
        first = next(ordered.read(log.plan(log.partitions).stretches))
    assert first[1].offset == 16
    assert looked == sorted(looked)
    assert (len(looked) > 2, looked[-1]) == (True, 61)


def test_append_times_of_kafka_are_those_of_its_stamped_records(
    make_broker: MakeBroker, like_kafka: None
) -> None:
    clock = ManualClock(T0_MS)
    broker = make_broker(clock=clock)
    broker.create_topic("stamped", 2, message_timestamp_type="LogAppendTime")
    broker.create_topic("created", 1)
    for number in range(6):
        broker.append("stamped", build_batch([LogRecord(5, None, b"")] * 2), number % 2)
        clock.advance("1s")
    broker.append("created", build_batch([LogRecord(5, None, b"")]))
    places = [(number % 2, number // 2 * 2 + each) for number in range(6) for each in range(2)]
    assert printed(broker.client, "stamped", "--order", "append-time") == places
    table = scan(broker.address, "stamped", columns=("offset",), order="append_time").read_all()
    assert [(row["partition"], row["offset"]) for row in table.to_pylist()] == places
    ran = run_command("consume", "created", "-b", broker.address, "--order", "append-time")
    assert ran.code != 0
    assert "created-0 has create times at offset 0" in ran.err
    assert "LogAppendTime" in ran.err
    with pytest.raises(RequestRefused, match="LogAppendTime"):
        scan(broker.address, "created", order="append_time").read_all()


def test_no_block_of_a_range_is_read_twice(
    late: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    late.append("late", build_batch([LogRecord(-1, None, b"")]))
    read: list[tuple[int, int]] = []
    original = RecordLog.read

    def noted(log: RecordLog, stretch: Any) -> Any:
        read.append((stretch.partition.partition, stretch.start))
        return original(log, stretch)

    monkeypatch.setattr(RecordLog, "read", noted)
    printed(late.client, "late", "--order", "create-time", "--from-time", "0")
    assert read
    assert len(read) == len(set(read))


def test_a_disk_that_refuses_a_block_map_hides_no_partition(
    late: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = printed(late.log_dir, "late", "--order", "create-time")
    complete = SegmentReader.complete_blocks

    def refused(reader: SegmentReader) -> None:
        if "late-1" in reader.log.path:
            raise StorageFailed("no")
        complete(reader)

    monkeypatch.setattr(SegmentReader, "complete_blocks", refused)
    assert printed(late.log_dir, "late", "--order", "create-time") == whole
    table = scan(late.log_dir, "late", order="create_time").read_all()
    columns = (table[name].to_pylist() for name in ("partition", "offset"))
    assert list(zip(*columns, strict=True)) == whole


def test_what_overlaps_more_than_the_memory_is_refused(make_broker: MakeBroker) -> None:
    clock = ManualClock(T0_MS)
    broker = make_broker(clock=clock)
    broker.create_topic("far", 2)
    for _ in range(25):
        batch = build_batch([LogRecord(clock.now_ms(), None, bytes(900_000))])
        broker.append("far", batch)
        clock.advance("1m")
    last = build_batch(
        [LogRecord(T0_MS, None, bytes(900_000)), LogRecord(T0_MS + MINUTE, None, b"")]
    )
    for _ in range(25):  # each block reaches back to the beginning
        broker.append("far", last, 1)
    with pytest.raises(Misconfigured, match="--order-memory"):
        scan(broker.address, "far", order="create_time", order_memory=16 << 20).read_all()
    assert len(scan(broker.address, "far", order="create_time").read_all()) == 75


def test_one_partition_is_ordered_from_its_directory(late: RunningBroker) -> None:
    late.append("late", build_batch([LogRecord(T0_MS - 20 * MINUTE, None, b"")]), 1)
    path = late.log_dir / "late-1"
    places = printed(path, "late", "--order", "create-time")
    rows_of_path = rows(path, "late", order="create_time")
    assert places == [(row["partition"], row["offset"]) for row in rows_of_path]
    every = rows(path, "late")
    assert rows_of_path == expected(every, "timestamp_ms") != every


def test_an_unknown_order_place_or_memory_is_refused(late: RunningBroker) -> None:
    for how, said in (
        ({"order": "time"}, "create-time or append-time"),
        ({"order": "create_time", "without_time": "never"}, "never"),
        ({"order": "create_time", "order_memory": 1000}, "--order-memory"),
    ):
        with pytest.raises(Misconfigured, match=said):
            scan(late.address, "late", **how)


def test_records_without_a_time_are_refused_where_that_is_asked_for(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker()
    broker.create_topic("t", 1)
    broker.append("t", build_batch([LogRecord(5, None, b"")]))
    how = {"order": "create-time", "without_time": "refuse"}
    assert len(scan(broker.address, "t", **how).read_all()) == 1
    broker.append("t", build_batch([LogRecord(-1, None, b"")]))
    with pytest.raises(Misconfigured, match=r"partition 0, offset 1.*--without-time"):
        scan(broker.address, "t", **how).read_all()


def test_consume_follows_in_order_within_a_lateness(make_broker: MakeBroker) -> None:
    broker = make_broker(clock=ManualClock(T0_MS))
    broker.create_topic("live", 2)

    def send(partition: int, *minutes: int) -> None:
        records = [LogRecord(T0_MS + it * MINUTE, None, b"%d" % it) for it in minutes]
        broker.append("live", build_batch(records), partition)

    send(0, 5, 1, 4)
    command = [sys.executable, "-m", "horolog", "consume", "live", "-b", broker.address]
    command += ["--order", "create-time", "--follow", "--lateness", "3m", "--format", "value"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        read = process.stdout.readline
        assert read() == "1\n"  # 5 - 3 minutes: later ones are held back
        send(1, 3, 8)
        assert [read() for _ in range(2)] == ["3\n", "4\n"]
        send(0, 2)  # 5 is the earliest that was not given out
        assert read() == "2\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().split() == ["5", "8"]
        assert "1 records came too late" in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--order", "time"], "create-time or append-time"),
        (["--order", "create-time", "--follow"], "--lateness"),
        (["--lateness", "5m"], "--order"),
        (["--order", "create-time", "--lateness", "5m"], "--follow"),
        (["--order", "create-time", "--order-memory", "1MiB"], "--order-memory"),
        (["--order", "create-time", "--order-memory", "much"], "--order-memory"),
        (["--order", "create-time", "--without-time", "never"], "never"),
    ],
)
def test_orders_that_cannot_be_are_refused(
    arguments: list[str], said: str, late: RunningBroker
) -> None:
    ran = run_command("consume", "late", "-b", late.address, *arguments)
    assert ran.code == 2
    assert said in ran.err


def test_damage_of_one_partition_hides_no_other_in_an_order(late: RunningBroker) -> None:
    late.stop()
    log = late.log_dir / "late-1" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[3_000_000] ^= 1
    log.write_bytes(content)
    arguments = ["--order", "create-time", "--without-time", "refuse"]
    ran = run_command("consume", late.log_dir, *arguments, "--format", "json")
    places = [(row["partition"], row["offset"]) for row in map(json.loads, ran.lines)]
    assert ran.code == 1
    assert [offset for partition, offset in places if partition == 0] == [
        16,
        *range(16),
        *range(17, 31),
    ]
    assert [offset for partition, offset in places if partition == 1] == [*range(9)]


def test_records_that_are_deleted_before_they_are_read_are_missed(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.create_topic("t", 1)
    for _ in range(9):
        broker.append("t", build_batch([LogRecord(5, None, b"")]))
    how: dict[str, Any] = {"order": "create_time", "starting_offsets": {0: 1}}
    strict = scan(broker.address, "t", **how)
    lax = scan(broker.address, "t", fail_on_data_loss=False, **how)
    broker.delete_records("t", 4)
    with pytest.raises(DataLost):
        strict.read_all()
    assert len(lax.read_all()) == 5


def test_a_follower_holds_back_no_more_than_the_memory(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.create_topic("t", 1)
    header = ("h", bytes(900_000))
    arguments = ["--order", "create-time", "--order-memory", "16MiB"]
    for _ in range(25):
        broker.append("t", build_batch([LogRecord(T0_MS, None, b"", (header,))]))
    ran = run_command("consume", "t", "-b", broker.address, *arguments)
    assert ran.code == 2
    assert "--order-memory" in ran.err
    arguments += ["--follow", "--lateness", "1h", "--from-end"]
    command = [sys.executable, "-m", "horolog", "consume", "t", "-b", broker.address]
    with subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            broker.append("t", build_batch([LogRecord(T0_MS, None, b"", (header,))]))
            time.sleep(0.05)
        assert process.stderr is not None
        assert "--order-memory" in process.stderr.read()
    assert process.returncode == 2
