"""Topics read as Arrow: offsets that are not there, ends, ranges of time."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import combinations, product
from pathlib import Path
from typing import Any

import crc32c
import pytest
from command_runner import run_command
from compacting import COMPACT, clean, put
from examples import some_pairs
from log_reading import Read, bytes_read_by
from partition_files import PartitionFiles, flip
from patience import eventually
from running_broker import MakeBroker, RunningBroker
from s3_server import S3Server
from scripted_broker import ScriptedBroker
from storelogs import NOW, new_log, partition_dir
from transactional import init, write

from horolog.client import LATEST, Client, NoAnswer
from horolog.clock import ManualClock
from horolog.errors import CorruptBatch, Misconfigured, RequestRefused
from horolog.record import LogRecord, RecordClock, build_batch, iter_headers, parse_header
from horolog.sources import DataLost, scan
from horolog.storage import block_map, block_writer
from horolog.wire import ApiKey, FetchedPartition, FetchedTopic, encode_fetch_response


def log_of(*batches: bytes, end: int, high_watermark: int | None = None) -> Mapping[ApiKey, Any]:
    """A broker's answers: one batch for each fetch, the first that ends after the offset."""

    def offsets(request: Any) -> dict[str, Any]:
        target = request.topics[0].partitions[0].timestamp
        it = {
            "partition_index": 5,
            "error_code": 0,
            "timestamp": -1,
            "offset": end if target == LATEST else 0,
            "leader_epoch": 3,
        }
        return {"topics": [{"name": "clicks", "partitions": [it]}]}

    def fetch(request: Any) -> bytes:
        offset = request.topics[0].partitions[0].fetch_offset
        records = next((b for b in batches if _last_offset(b) >= offset), b"")
        partition = FetchedPartition(
            5, high_watermark=end if high_watermark is None else high_watermark, records=records
        )
        return b"".join(encode_fetch_response(12, [FetchedTopic("clicks", None, [partition])]))

    return {ApiKey.LIST_OFFSETS: offsets, ApiKey.FETCH: fetch}


def _last_offset(batch: bytes) -> int:
    return parse_header(batch).last_offset


def batch(offset: int, *times: int) -> bytes:
    return build_batch([LogRecord(time, None, b"%d" % time) for time in times], base_offset=offset)


def test_gaps_that_compaction_left_are_skipped() -> None:
    log = log_of(batch(7, 10, 11), batch(400, 12), end=401)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        table = scan(client, "clicks").read_all()
        assert len(broker.asked(ApiKey.FETCH)) == 2
    assert table["offset"].to_pylist() == [7, 8, 400]
    assert table["partition"].to_pylist() == [5, 5, 5]


def test_the_next_fetch_is_sent_before_a_table_is_given_and_the_client_is_free() -> None:
    log = log_of(batch(0, 10), batch(1, 20), batch(2, 30), end=3)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        tables = iter(scan(client, "clicks"))
        assert next(tables)["offset"].to_pylist() == [0]
        assert eventually(lambda: len(broker.asked(ApiKey.FETCH)) == 2)
        assert client.list_offsets({("clicks", 5): LATEST})["clicks", 5].offset == 3
        assert [table["timestamp_ms"].to_pylist() for table in tables] == [[20], [30]]
        assert len(broker.asked(ApiKey.FETCH)) == 3


def test_records_before_damage_are_given_before_it_is_named() -> None:
    torn = bytearray(batch(1, 20))
    torn[8:12] = bytes(4)  # its length
    log = log_of(batch(0, 10) + torn, end=2)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        tables = iter(scan(client, "clicks"))
        assert next(tables)["timestamp_ms"].to_pylist() == [10]
        with pytest.raises(CorruptBatch):
            next(tables)


def test_only_the_offsets_and_times_asked_for_are_given() -> None:
    log = log_of(batch(0, 10, 50, 20), batch(3, 30, 15), end=5)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        late = scan(client, "clicks", from_ms=15, to_ms=31).read_all()
        some = scan(client, "clicks", starting_offsets={5: 2}, ending_offsets={5: 4}).read_all()
    assert late["timestamp_ms"].to_pylist() == [20, 30, 15]
    assert some["offset"].to_pylist() == [2, 3]


def test_topic_and_time_with_a_zone_can_be_asked_for() -> None:
    log = log_of(batch(0, 10, -1), end=2)
    with ScriptedBroker(log) as broker, Client(broker.bootstrap) as client:
        table = scan(client, "clicks", columns=("timestamp", "topic", "value")).read_all()
        topics = scan(client, "clicks", columns=("topic",)).read_all()
        with pytest.raises(ValueError, match="No such columns"):
            scan(client, "clicks", columns=("topic", "offsets"))
    assert table.schema.names == ["partition", "timestamp", "topic", "value"]
    assert table["timestamp"].to_pylist() == [datetime(1970, 1, 1, 0, 0, 0, 10_000, UTC), None]
    assert topics.to_pylist() == [{"partition": 5, "topic": "clicks"}] * 2


def test_a_broker_that_never_returns_what_it_promised_is_an_error() -> None:
    log = log_of(batch(0, 10), end=9, high_watermark=1)
    with (
        ScriptedBroker(log) as broker,
        Client(broker.bootstrap, timeout_ms=300) as client,
        pytest.raises(NoAnswer, match=r"clicks-5 gave nothing from offset 1 on .* goes up to 9"),
    ):
        scan(client, "clicks", max_wait_ms=20, fail_on_data_loss=False).read_all()


def test_offsets_at_the_end_that_compaction_left_empty_are_no_loss() -> None:
    with ScriptedBroker(log_of(batch(0, 10), end=9)) as broker, Client(broker.bootstrap) as client:
        assert scan(client, "clicks", max_wait_ms=20).read_all()["offset"].to_pylist() == [0]


def test_a_record_without_a_time_is_in_no_range_of_times() -> None:
    with ScriptedBroker(log_of(batch(0, -1, 5), end=2)) as broker, Client(broker.bootstrap) as it:
        assert scan(it, "clicks", from_ms=-9).read_all()["timestamp_ms"].to_pylist() == [5]
        assert scan(it, "clicks", to_ms=9).read_all()["timestamp_ms"].to_pylist() == [5]
        assert scan(it, "clicks").read_all()["timestamp_ms"].to_pylist() == [-1, 5]


# Of a broker of ours, and of its files.

MINUTE = 60_000


@pytest.fixture
def clicks(make_broker: MakeBroker) -> RunningBroker:
    """Two partitions, an old record in each minute of the first, rolled once."""
    clock = ManualClock()
    broker = make_broker(clock=clock)
    broker.create_topic("clicks", 2, message_timestamp_after_max_ms=str(1 << 62))
    broker.create_topic("other", 1)
    for number in range(10):
        now = clock.now_ms()
        for partition in (0, 1):
            records = [LogRecord(now, b"k", b"%d" % number), LogRecord(-1, None, None)]
            records.append(LogRecord(now - 30 * MINUTE * (1 - partition), b"k", b"late"))
            broker.client.produce("clicks", partition, build_batch(records))
        if number == 4:
            broker.call(lambda: broker.log("clicks").roll(clock.now_ms()))
        clock.advance("1m")
    broker.client.produce("other", 0, build_batch([LogRecord(clock.now_ms(), None, b"")]))
    return broker


@pytest.mark.parametrize(
    ("limits", "clock"),
    some_pairs([(None, None), (3, 6), (None, 4), (8, None), (-30, -27)], RecordClock),
)
def test_a_path_gives_what_its_broker_gives(
    clicks: RunningBroker, clock: RecordClock, limits: tuple[int | None, int | None]
) -> None:
    start = clicks.clock.now_ms() - 10 * MINUTE
    from_ms, to_ms = (None if each is None else start + each * MINUTE for each in limits)
    columns = ("offset", "topic", "timestamp", "key", "value", "append_ms", "create_ms")
    how: dict[str, Any] = {"from_ms": from_ms, "to_ms": to_ms, "clock": clock, "columns": columns}
    expected = scan(clicks.client, "clicks", **how).read_all()
    rows = scan(clicks.client, "clicks", columns=columns).read_all().to_pylist()
    name = "append_ms" if clock is RecordClock.APPEND else "create_ms"
    kept = [row for row in rows if limits == (None, None) or row[name] != -1]
    kept = [row for row in kept if from_ms is None or row[name] >= from_ms]
    assert expected.to_pylist() == [row for row in kept if to_ms is None or row[name] < to_ms]
    directory = clicks.log_dir
    for source in (clicks.address, directory, f"file:{directory}", clicks.log_dir / "clicks-*"):
        assert scan(source, "clicks", **how).read_all() == expected
    with S3Server() as s3:
        s3.upload(directory, "logs/kafka")
        in_store = scan("s3a://logs/kafka", "clicks", settings=s3.options(), **how)
        assert in_store.read_all() == expected


@pytest.mark.parametrize("clock", RecordClock)
def test_a_range_of_time_has_all_records_before_an_end_inside_a_batch(
    clicks: RunningBroker, clock: RecordClock
) -> None:
    times = {"from_ms": 0, "to_ms": clicks.clock.now_ms() + MINUTE, "clock": clock}
    name = "append_ms" if clock is RecordClock.APPEND else "create_ms"
    rows = scan(clicks.client, "clicks", partitions=[0], columns=("offset", name)).read_all()
    timed = [row["offset"] for row in rows.to_pylist() if row[name] != -1]
    for source in (clicks.address, clicks.log_dir):
        for start, end in ((0, 1), (1, 2), (0, 14), (4, 8), (13, 17), (16, 29), (0, 30)):
            limits = {"starting_offsets": {0: start}, "ending_offsets": {0: end}}
            found = scan(source, "clicks", partitions=[0], **limits, **times).read_all()
            expected = [offset for offset in timed if start <= offset < end]
            assert found["offset"].to_pylist() == expected


def test_polars_and_duckdb_read_a_directory(clicks: RunningBroker) -> None:
    # Only here, so that to collect tests takes none of these imports.
    duckdb, polars = map(importlib.import_module, ("duckdb", "polars"))
    clicks.stop()
    frame = polars.from_arrow(scan(clicks.log_dir, "clicks").read_all())
    assert isinstance(frame, polars.DataFrame)
    assert frame.height == 60
    timed = scan(clicks.log_dir, "clicks", from_ms=0)
    with duckdb.connect() as database:
        counts = database.register("timed", timed).sql(
            "select partition, count(*) from timed group by 1 order by 1"
        )
        assert counts.fetchall() == [(0, 20), (1, 20)]


def test_of_a_range_only_what_may_hold_it_is_fetched(clicks: RunningBroker) -> None:
    directory = clicks.log_dir / "clicks-0"
    big = build_batch([LogRecord(clicks.clock.now_ms(), None, bytes(200_000))])
    for _ in range(20):
        clicks.client.produce("clicks", 0, big)
    clicks.restart()
    to_ms = clicks.clock.now_ms() - MINUTE
    read = bytes_read_by(lambda: scan(directory, "clicks", to_ms=to_ms).read_all())
    assert read < 1_000_000


def test_partitions_and_offsets_of_a_path_are_chosen(clicks: RunningBroker) -> None:
    only = scan(clicks.log_dir, "clicks", partitions=[1], starting_offsets={1: 27})
    assert only.read_all()["offset"].to_pylist() == [27, 28, 29]
    with pytest.raises(RequestRefused, match="clicks has no partition 7"):
        scan(clicks.log_dir, "clicks", partitions=[1, 7])
    with pytest.raises(RequestRefused, match="clicks-1 has no offset 31: it has 0 up to 30"):
        scan(clicks.log_dir, "clicks", starting_offsets={1: 31})
    for source in (clicks.log_dir, clicks.address):
        with pytest.raises(Misconfigured, match="There is no topic nothing"):
            scan(source, "nothing")
    with pytest.raises(Misconfigured, match="There is no path"):
        scan(clicks.log_dir / "nowhere", "clicks")


def test_damage_in_a_file_is_named_after_what_is_before_it(clicks: RunningBroker) -> None:
    clicks.stop()
    path = max((clicks.log_dir / "clicks-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    tables = iter(scan(clicks.log_dir, "clicks", partitions=[0]))
    assert next(tables)["offset"].to_pylist() == list(range(15))
    assert next(tables)["offset"].to_pylist() == list(range(15, 27))
    with pytest.raises(CorruptBatch, match=r"offset 27: .*Set fail_on_data_loss to false"):
        next(tables)
    rest = scan(clicks.log_dir, "clicks", partitions=[0], fail_on_data_loss=False).read_all()
    assert rest["offset"].to_pylist() == list(range(27))


def test_what_compaction_has_emptied_is_no_loss_and_a_file_that_was_emptied_is(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path, COMPACT) as log:
        for _ in range(24):
            put(log, b"a", value=b"v" * 60)
        clean(log)
        empty, *_, last, active = log.segments
    assert (empty.size, last.size > 0) == (0, True)
    kept = list(range(active.base_offset - 1, 24))
    assert scan(tmp_path, "events").read_all()["offset"].to_pylist() == kept
    for path in partition_dir(tmp_path).glob("*.companion"):
        path.unlink()  # which say that nothing was left
    with pytest.raises(DataLost, match="are in none of the files"):
        scan(tmp_path, "events").read_all()


@pytest.mark.parametrize("start", [1, 2, 4, 5])
def test_an_open_transaction_from_before_the_log_start_holds_committed_reads(
    make_broker: MakeBroker, start: int
) -> None:
    broker = make_broker(log_retention_ms="-1")
    broker.create_topic("t")
    assert write(broker, init(broker), version=12, count=3) == 0
    plain = build_batch([LogRecord(broker.clock.now_ms(), None, b"v")] * 2)
    broker.client.produce("t", 0, plain)
    broker.roll("t")
    broker.client.produce("t", 0, plain)
    partition = {"partition_index": 0, "offset": start}
    topics = [{"name": "t", "partitions": [partition]}]
    broker.ask(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=1000)
    for _ in range(2):
        for source in (broker.client, broker.log_dir):
            assert scan(source, "t", read_committed=True).read_all().num_rows == 0
            assert scan(source, "t").read_all()["offset"].to_pylist() == [*range(start, 7)]
        broker.call(lambda: broker.log("t").apply_retention(broker.clock.now_ms(), 0))


def test_a_lookup_by_either_clock_names_a_record_that_compaction_has_kept(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(log_retention_ms="-1", log_cleaner_enable="false")
    broker.create_topic("t", 1, cleanup_policy="compact")
    now = broker.clock.now_ms()
    for keys in ((b"A", b"B", b"C"), (b"A", b"B")):
        broker.append("t", build_batch([LogRecord(now, key, b"v") for key in keys]))
    broker.roll("t")
    broker.append("t", build_batch([LogRecord(now, b"D", b"v")]))
    clean(broker.log("t"), now)
    for clock in RecordClock:
        (found,) = broker.client.find_records({("t", 0): now}, clock).values()
        assert found is not None
        assert found.offset == 2


@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_changed_base_offset_hides_no_record_silently(tmp_path: Path, step: int) -> None:
    made = PartitionFiles(tmp_path, "t", base_offset=0)
    for _ in range(2):
        made.add([NOW, NOW])
        made.add([NOW], producer_id=7)
        made.add([NOW])
        made.end_transaction(7, commit=True)  # takes the offset of the last record, if changed
        made.add([NOW])
        made.roll()
    made.write_indexes()
    expected = [row.offset for row in made.rows]
    ranges = [(start, end) for start in (0, 3) for end in range(start + 1, 13)]
    for log in made.logs[:-1]:
        whole = log.read_bytes()
        for position, _ in iter_headers(whole):
            flip(log, position + 7, step)
            for start, end in ranges:
                with suppress(CorruptBatch, DataLost):
                    found = scan(
                        tmp_path,
                        "t",
                        starting_offsets={0: start},
                        ending_offsets={0: end},
                        columns=("offset",),
                    )
                    kept = [each for each in expected if start <= each < end]
                    assert found.read_all()["offset"].to_pylist() == kept
            log.write_bytes(whole)


def test_a_range_of_append_time_may_end_within_a_batch(make_broker: MakeBroker) -> None:
    clock = ManualClock()
    broker = make_broker(clock=clock)
    broker.create_topic("t", 1)
    now = clock.now_ms()
    for _ in range(3):
        broker.append("t", build_batch([LogRecord(now, b"k", b"v")] * 10))
        clock.advance(5)
    for source in (broker.log_dir, broker.client):
        for end in range(31):
            found = scan(
                source,
                "t",
                from_ms=now,
                to_ms=now + 10,
                clock=RecordClock.APPEND,
                ending_offsets={0: end},
                columns=("offset",),
            )
            assert found.read_all()["offset"].to_pylist() == [*range(min(end, 20))]
    options = {"subscribe": "t", "fromAppendTime": now, "maxRecordsPerPartition": 7}
    assert Read(broker.log_dir, **options).offsets() == [*range(30)]


@pytest.mark.parametrize("step", [1, 2])
def test_a_changed_base_offset_takes_no_record_out_of_a_range_of_append_time(
    make_broker: MakeBroker, step: int
) -> None:
    clock = ManualClock(NOW)
    broker = make_broker(clock=clock)
    broker.create_topic("t", 1)
    for _ in range(7):
        broker.append("t", build_batch([LogRecord(NOW, b"k", b"v")]))
        clock.advance(1)
    broker.roll("t")
    broker.append("t", build_batch([LogRecord(NOW, b"k", b"v")]))
    log = broker.log_dir / "t-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    for position, _ in [*iter_headers(whole)][:2]:
        flip(log, position + 7, step)
        for end in range(1, 9):
            with suppress(CorruptBatch, DataLost):
                found = scan(
                    broker.log_dir,
                    "t",
                    from_ms=NOW,
                    clock=RecordClock.APPEND,
                    ending_offsets={0: end},
                    columns=("offset",),
                )
                got = found.read_all()["offset"].to_pylist()
                assert got == [*range(end)]
        log.write_bytes(whole)


@pytest.mark.parametrize("clock", [RecordClock.CREATE, RecordClock.APPEND])
def test_a_changed_base_offset_takes_no_record_out_of_a_range_of_time(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, clock: RecordClock
) -> None:
    for module in (block_map, block_writer):
        monkeypatch.setattr(module, "BLOCK_BYTES", 150)  # a span of few batches
    manual = ManualClock(NOW)
    broker = make_broker(clock=manual)
    broker.create_topic("t", 1)
    for _ in range(2):
        for _ in range(6):
            now = manual.now_ms()
            broker.append(
                "t", build_batch([LogRecord(now, b"k", b"v"), LogRecord(now, b"k", b"v")])
            )
            manual.advance(1)
        broker.roll("t")
    broker.append("t", build_batch([LogRecord(manual.now_ms(), b"k", b"v")]))
    broker.stop()
    made = [NOW + offset // 2 for offset in range(25)]
    windows = [(first, first + length) for length in (1, 4) for first in range(NOW, NOW + 12, 3)]
    log = broker.log_dir / "t-0" / f"{12:020d}.log"
    whole = log.read_bytes()
    refused = 0
    for position, _ in iter_headers(whole):
        for place, bit in ((7, 1), (7, 2), (7, 8), (4, 1)):
            flip(log, position + place, bit)
            for first, end in windows:
                kept = [offset for offset, at in enumerate(made) if first <= at < end]
                try:
                    found = scan(
                        broker.log_dir,
                        "t",
                        from_ms=first,
                        to_ms=end,
                        clock=clock,
                        columns=("offset",),
                    )
                    got = found.read_all()["offset"].to_pylist()
                except (CorruptBatch, DataLost):
                    refused += 1
                else:
                    assert got == kept, (position, place, bit)
            log.write_bytes(whole)
    assert refused


def test_a_changed_base_offset_makes_no_append_time_unknown_in_silence(
    make_broker: MakeBroker,
) -> None:
    clock = ManualClock(NOW)
    broker = make_broker(clock=clock)
    broker.create_topic("t", 1)
    times = [NOW, NOW + 1, NOW + 2, NOW + 2, NOW + 2, NOW + 2]
    for now in times:
        clock.advance(now - clock.now_ms())
        broker.append("t", build_batch([LogRecord(NOW, b"k", b"v")]))
    broker.roll("t")
    broker.stop()
    log = broker.log_dir / "t-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    for position, _ in iter_headers(whole):
        flip(log, position + 7, 16)
        for (start, end), from_ms in product(combinations(range(7), 2), (None, NOW)):
            found = scan(
                broker.log_dir,
                "t",
                from_ms=from_ms,
                clock=RecordClock.APPEND,
                starting_offsets={0: start},
                ending_offsets={0: end},
                columns=("append_ms",),
            )
            with suppress(CorruptBatch, DataLost):
                assert found.read_all()["append_ms"].to_pylist() == times[start:end]
        log.write_bytes(whole)


def test_a_delete_horizon_shows_that_a_gap_between_segments_is_of_compaction(
    tmp_path: Path,
) -> None:
    made = PartitionFiles(tmp_path, "t", base_offset=0)
    made.add([NOW])
    batch = bytearray(build_batch([LogRecord(NOW, b"k", None)], base_offset=1))
    batch[22] |= 0x40
    batch[17:21] = crc32c.crc32c(batch[21:]).to_bytes(4, "big")
    made.write(bytes(batch))
    made.next_offset = 5  # Kafka's cleaner left nothing behind
    made.roll()
    made.add([NOW])
    made.write_indexes()
    table = scan(tmp_path / "t-0", "t", columns=("offset",)).read_all()
    assert table["offset"].to_pylist() == [0, 1, 5]
    done = run_command("log", "verify", tmp_path / "t-0")
    assert done.code == 0, done.out
