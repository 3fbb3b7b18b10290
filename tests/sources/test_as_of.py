"""Topics as of a time: rows equal to a list of arrivals, from brokers and from files."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrivals import PARTITIONS, Producer
from command_runner import run_command
from history import SETTINGS, TOPICS, History
from running_broker import NOW_MS, MakeBroker, RunningBroker
from storelogs import snapshot_of

from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.polars import scan_horolog
from horolog.record import LogRecord, build_batch
from horolog.sources import (
    BrokerLog,
    Cut,
    DataLost,
    Pattern,
    ReadOptions,
    cut_of,
    latest,
    scan,
    sql,
)
from horolog.storage import TopicPartition


def rows(table: Any) -> list[tuple[int, int, bytes | None]]:
    if isinstance(table, pa.RecordBatchReader):
        table = table.read_all()
    return list(
        zip(
            *(table.column(name).to_pylist() for name in ("partition", "offset", "value")),
            strict=True,
        )
    )


def cut_at(broker: RunningBroker, at_ms: int) -> Cut:
    options = ReadOptions(brokers=broker.client.config, subscription=Pattern("[ab]"))
    with BrokerLog(options) as log:
        return cut_of(log, at_ms, log.partitions(), NOW_MS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def broker(make_broker: MakeBroker, clock: ManualClock) -> RunningBroker:
    broker = make_broker(clock=clock, log_cleaner_backoff_ms="100000000")
    for topic in TOPICS:
        broker.create_topic(topic, 2, **SETTINGS)
    return broker


def settle(broker: RunningBroker) -> None:
    broker.run(broker.broker.partitions.keep_stamp_clock())


@pytest.fixture
def copies(broker: RunningBroker, tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Makes copies of the log directory, each in the place of the one before."""

    def copy() -> Path:
        settle(broker)
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return snapshot_of(broker.log_dir, tmp_path / "copy")

    return copy


def truncate(broker: RunningBroker, topic: str, number: int, end: int) -> None:
    """Cut a log, as an election does that loses records."""

    async def cut() -> None:
        change = broker.broker.led(topic, number).change
        await change(lambda log: log.truncate_to(end, NOW_MS))

    broker.run(cut())
    assert broker.log(topic, number).log_end_offset == end


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_those_of_a_list_of_arrivals(
    seed: int, broker: RunningBroker, clock: ManualClock, copies: Callable[[], Path]
) -> None:
    history = History(broker, clock, random.Random(seed))
    history.live(60)
    if seed == 1:
        broker.restart(crash=True)
    if seed == 2:
        for key in PARTITIONS:
            broker.delete_records(key.topic, broker.log(*key).log_end_offset // 4, key.partition)
        broker.restart()
    if seed == 4:
        for key, its in history.arrivals.items():
            end = max(arrival.offset for arrival in its if arrival.is_marker) + 1
            truncate(broker, *key, end)
            del its[end:]
    path, exact = copies(), 0
    for at_ms in history.moments(8):
        cut = cut_at(broker, at_ms)
        if not all(its.exact for its in cut.partitions):
            continue
        exact += 1
        for topic in TOPICS:
            expected = history.known(topic, cut)
            committed = history.known(topic, cut, committed=True)
            for source in (broker.address, path):
                assert rows(scan(source, topic, as_of=at_ms)) == expected
                assert rows(scan(source, topic, as_of=cut)) == expected
                assert rows(scan(source, topic, as_of=cut, read_committed=True)) == committed
                assert (
                    rows(scan_horolog(source, topic, as_of=at_ms).collect().to_arrow()) == expected
                )
                query = f"""from as_of('{topic}', {at_ms}) order by partition, "offset" """
                assert rows(sql(query, source)) == expected
    assert exact > 3


def test_create_times_order_and_offsets_join_with_a_time(
    broker: RunningBroker, clock: ManualClock
) -> None:
    history = History(broker, clock, random.Random(7))
    history.live(80)
    at_ms = sorted(history.moments(1000))[-2]
    cut = cut_at(broker, at_ms)
    first, end = NOW_MS + 5, NOW_MS + 12
    known = {
        (key.partition, its.offset): its
        for key in PARTITIONS
        if key.topic == "a"
        for its in history.arrivals[key]
        if its.ms < at_ms and not its.is_marker
    }
    expected = [
        (place, its.created_ms) for place, its in known.items() if first <= its.created_ms < end
    ]
    expected.sort(key=lambda item: (item[1], item[0]))
    assert expected
    found = scan(
        broker.address, "a", from_ms=first, to_ms=end, as_of=cut, order="create_time"
    ).read_all()
    assert [its[:2] for its in rows(found)] == [place for place, _ in expected]
    starts, ends = {0: 3, 1: 1}, {0: 1 << 40, 1: 4}
    found = scan(
        broker.address, "a", as_of=at_ms, starting_offsets=starts, ending_offsets=ends
    ).read_all()
    assert [its[:2] for its in rows(found)] == [
        (number, offset) for number, offset in known if starts[number] <= offset < ends[number]
    ]


def test_a_cut_file_is_taken_wherever_a_time_is(
    broker: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    history = History(broker, clock, random.Random(3))
    history.live(30)
    cut = cut_at(broker, history.moments(1)[0])
    path = tmp_path / "cut.json"
    path.write_bytes(cut.to_bytes())
    expected = history.known("a", cut)
    assert rows(scan(broker.address, "a", as_of=path)) == expected
    assert rows(scan(broker.address, "a", as_of=str(path))) == expected
    assert rows(scan_horolog(broker.address, "a", as_of=path).collect().to_arrow()) == expected
    query = f"""select * from as_of('a', '{path}') order by partition, "offset" """
    assert rows(sql(query, broker.address)) == expected


@pytest.mark.parametrize(
    ("as_of", "said"),
    [
        (1 << 63, "milliseconds"),
        (True, "milliseconds"),
        (1.5, "milliseconds"),
        ("2026-11-20", "zone"),
        ("soon", "not a time"),
        ("none/cut.json", "cannot be read"),
        (NOW_MS + 86_400_000, "future"),
        ((1 << 63) - 1, "future"),
    ],
)
def test_a_time_that_cannot_be_is_refused_in_a_sentence(
    as_of: Any, said: str, broker: RunningBroker
) -> None:
    with pytest.raises(Misconfigured, match=said) as refused:
        scan(broker.address, "a", as_of=as_of).read_all()
    assert "\n" not in str(refused.value)
    with pytest.raises(Misconfigured, match=said):
        scan_horolog(broker.address, "a", as_of=as_of).collect()


def test_nothing_was_known_before_all_records(broker: RunningBroker) -> None:
    broker.append("a", build_batch([LogRecord(5, b"k", b"v")]))
    for at_ms in (-(1 << 63), -1, 0):
        assert rows(scan(broker.address, "a", as_of=at_ms)) == []


def clean(broker: RunningBroker) -> None:
    broker.run(broker.broker.cleaner.clean_all())


@pytest.fixture
def compacted(broker: RunningBroker, clock: ManualClock) -> int:
    """A topic whose key was written a hundred times; returns the time of the middle."""
    broker.create_topic("table", cleanup_policy="compact", **SETTINGS)
    for number in range(100):
        broker.append("table", build_batch([LogRecord(5, b"k", b"%d" % number)]))
        clock.advance("1s")
    settle(broker)
    return NOW_MS + 50_000


def test_a_cut_that_compaction_has_passed_is_refused(
    broker: RunningBroker, compacted: int, copies: Callable[[], Path], tmp_path: Path
) -> None:
    options = ReadOptions(brokers=broker.client.config, subscription=Pattern("table"))
    with BrokerLog(options) as log:
        cut = cut_of(log, compacted, log.partitions(), NOW_MS)
    assert len(rows(scan(broker.address, "table", as_of=cut))) == 50
    clean(broker)
    broker.run(broker.broker.partitions.keep_stamp_clock())
    broker.restart()
    for source in (broker.address, copies()):
        for given in (compacted, cut):
            with pytest.raises(Misconfigured, match="compacted"):
                scan(source, "table", as_of=given)
            with pytest.raises(Misconfigured, match="compacted"):
                scan_horolog(source, "table", as_of=given).collect()
    (tmp_path / "cut.json").write_bytes(cut.to_bytes())
    for text in (f"{compacted}", f"{tmp_path}/cut.json"):
        with pytest.raises(Misconfigured, match="compacted"):
            sql(f"select count(*) from as_of('table', '{text}')", broker.address)
    late = NOW_MS + 98_000
    assert rows(scan(broker.address, "table", as_of=late))[-1] == (0, 97, b"97")


def test_a_cut_is_refused_where_compaction_was_killed_before_it_noted_its_end(
    broker: RunningBroker, compacted: int
) -> None:
    clean(broker)
    broker.stop()
    (broker.log_dir / "cleaner-offset-checkpoint").unlink()
    with pytest.raises(Misconfigured, match="compacted"):
        scan(broker.log_dir, "table", as_of=compacted)
    broker.start()
    with pytest.raises(Misconfigured, match="compacted"):
        scan(broker.address, "table", as_of=compacted)


def test_a_cut_in_front_of_a_transaction_is_refused_once_compaction_has_passed_it(
    broker: RunningBroker, clock: ManualClock, copies: Callable[[], Path]
) -> None:
    broker.create_topic("table", cleanup_policy="compact", **SETTINGS)
    key, producer = TopicPartition("table", 0), Producer(broker, "p")
    broker.append("table", build_batch([LogRecord(5, b"k", b"first")]))
    producer.write(key, LogRecord(5, b"x", b"open"))
    broker.append("table", build_batch([LogRecord(5, b"k", b"second")]))
    clock.advance("1s")
    producer.end(commit=True)
    settle(broker)
    at_ms = NOW_MS + 1
    for source in (broker.address, copies()):
        found = scan(source, "table", as_of=at_ms, read_committed=True)
        assert rows(found) == [(0, 0, b"first")]
    broker.roll("table")
    clean(broker)
    broker.restart()
    for source in (broker.address, copies()):
        with pytest.raises(Misconfigured, match="compacted"):
            scan(source, "table", as_of=at_ms, read_committed=True)


def test_a_cut_file_is_refused_once_the_log_is_shorter(
    broker: RunningBroker, clock: ManualClock
) -> None:
    batch = build_batch([LogRecord(5, b"k", b"v")])
    for _ in range(4):
        broker.append("a", batch)
        clock.advance("1s")
    settle(broker)
    cut = cut_at(broker, NOW_MS + 2_500)
    truncate(broker, "a", 0, 2)
    with pytest.raises(Misconfigured, match="records were lost since"):
        scan(broker.address, "a", as_of=cut)
    assert rows(scan(broker.address, "a", as_of=NOW_MS + 2_500)) == [(0, 0, b"v"), (0, 1, b"v")]


def test_compaction_during_a_read_ends_it(broker: RunningBroker, compacted: int) -> None:
    reader = scan(broker.address, "table", as_of=compacted)
    clean(broker)
    with pytest.raises(Misconfigured, match="compacted"):
        reader.read_all()


@pytest.mark.parametrize("is_created_again", [True, False])
def test_a_topic_that_is_deleted_during_a_read_ends_it(
    broker: RunningBroker, clock: ManualClock, is_created_again: bool
) -> None:
    def fill() -> None:
        broker.create_topic("again")
        for _ in range(10):
            broker.append("again", build_batch([LogRecord(5, b"k", b"v")]))
        clock.advance("1s")
        settle(broker)

    fill()
    readers = [read(broker.address, "again", as_of=NOW_MS + 500) for read in (scan, latest)]
    broker.client.delete_topics(["again"])
    if is_created_again:
        fill()
    said = "again was deleted or re-created" if is_created_again else "again.* does not exist"
    for reader in readers:
        with pytest.raises((Misconfigured, DataLost), match=said):
            reader.read_all()


def test_a_cut_file_whose_records_are_all_deleted_is_refused(
    broker: RunningBroker, clock: ManualClock
) -> None:
    batch = build_batch([LogRecord(5, b"k", b"v")])
    broker.append("a", batch)
    clock.advance("1s")
    for partition in (0, 1):
        broker.append("a", batch, partition)
    cut = cut_at(broker, NOW_MS + 1)
    broker.delete_records("a", 1, 1)
    assert rows(scan(broker.address, "a", as_of=cut)) == [(0, 0, b"v")]
    broker.delete_records("a", 2, 0)
    with pytest.raises(Misconfigured, match=r"a-0 cannot be read as of .* deleted"):
        scan(broker.address, "a", as_of=cut)


# --- SQL ----------------------------------------------------------------------------------


@pytest.fixture
def clicks(broker: RunningBroker, clock: ManualClock) -> RunningBroker:
    """A record each minute, in two topics; one has a dot in its name."""
    for topic in ("clicks", "my.topic"):
        broker.create_topic(topic)
    clock.set("2026-03-01T00:00Z")
    for number in range(10):
        for topic in ("clicks", "my.topic"):
            broker.append(topic, build_batch([LogRecord(clock.now_ms(), b"%d" % number, b"v")]))
        clock.advance("1m")
    settle(broker)
    return broker


@pytest.mark.parametrize(
    ("query", "counts"),
    [
        ("select count(*) from as_of('clicks', '2026-03-01T00:03Z')", [3]),
        ("select count(*) from AS_OF('clicks', '2026-03-01 01:03')", [3]),
        ("select count(clicks.key) from as_of('clicks', '2026-03-01T00:03Z')", [3]),
        ("select count(a.k) from as_of('clicks', '2026-03-01T00:03Z') a(t, u, p, o, k)", [3]),
        ("select count(*) from as_of('my.topic', '2026-03-01T00:02:00.001Z')", [3]),
        (
            (
                "select count(*) from as_of('clicks', '2026-03-01T00:07Z') now"
                " anti join as_of('clicks', '2026-03-01T00:03Z') before on now.key = before.key"
            ),
            [4],
        ),
        (
            (
                "select count(*) from as_of('clicks', '2026-03-01T00:07Z') c"
                " join as_of('my.topic', '2026-03-01T00:02Z') m using (key) join clicks using (key)"
            ),
            [2],
        ),
        (
            (
                "with t as (from as_of('clicks', '2026-03-01T00:05Z')) select count(*) from t"
                " where timestamp >= '2026-03-01T00:02Z'"
            ),
            [3],
        ),
        (
            (
                "select (select count(*) from as_of('clicks', '2026-03-01T00:01Z')),"
                " (select count(*) from as_of('clicks', 1772323260000)), count(*) from clicks"
            ),
            [1, 1, 10],
        ),
    ],
)
def test_queries_read_topics_as_of_several_times(
    query: str, counts: list[int], clicks: RunningBroker, copies: Callable[[], Path]
) -> None:
    for source in (clicks.address, copies()):
        found = sql(query, source, timezone="Europe/Berlin")
        assert [column.to_pylist() for column in found.columns] == [[count] for count in counts]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select * from as_of('clicks')", "a topic and a time"),
        ("select * from as_of('clicks', '2026-03-01T00:05Z', 3)", "a topic and a time"),
        ("select * from as_of('clicks', at := '2026-03-01T00:05Z')", "a topic and a time"),
        ("select * from as_of('clicks', null)", "a topic and a time"),
        ("select * from as_of('clicks', 1.5)", "a topic and a time"),
        ("select * from clicks c, as_of('clicks', c.timestamp)", "a topic and a time"),
        ("select * from as_of('none', '2026-03-01T00:05Z')", "none"),
        ("select * from as_of('', '2026-03-01T00:05Z')", "topic"),
        ("select * from as_of('clicks', 'soon')", "not a time"),
        ("select * from as_of('clicks', '99999999999999999999')", "64 bits"),
        ("select * from as_of('clicks', '2999-01-01')", "future"),
        ("select * from as_of('clicks', '2026-03-29 02:30')", "does not exist"),
        ("select * from as_of('clicks', 'none.json')", "none.json"),
    ],
)
def test_as_of_is_refused_in_a_sentence(query: str, said: str, clicks: RunningBroker) -> None:
    with pytest.raises(Misconfigured, match=said) as refused:
        sql(query, clicks.address, timezone="Europe/Berlin")
    assert "\n" not in str(refused.value)


def test_the_command_reads_times_in_its_zone(clicks: RunningBroker) -> None:
    query = "select count(*) n from as_of('clicks', '2026-03-01 01:03')"
    arguments = ["sql", query, "-b", clicks.address, "--format", "json"]
    assert json.loads(run_command(*arguments, "--tz", "Europe/Berlin").out) == {"n": 3}
    assert "future" not in run_command(*arguments, "--tz", "+02:00").err
