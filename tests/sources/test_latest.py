"""Topics as tables: the last record of each key, now and as of a time."""

import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrivals import Producer
from history import SETTINGS, TOPICS, History
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from patience import eventually
from running_broker import NOW_MS, MakeBroker, RunningBroker
from storelogs import snapshot_of

from horolog.client import CUT
from horolog.clock import ManualClock
from horolog.errors import Damaged, Misconfigured, RequestRefused
from horolog.record import LogRecord, build_batch
from horolog.sources import (
    BrokerLog,
    BrokerStretch,
    Cut,
    DataLost,
    LastOffsets,
    Pattern,
    ReadOptions,
    cut_of,
    latest,
    parts_with,
    scan,
)
from horolog.storage import TopicPartition

KEYED = SETTINGS | {"cleanup_policy": "compact", "segment_bytes": "500"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def broker(make_broker: MakeBroker, clock: ManualClock) -> RunningBroker:
    return make_broker(clock=clock, log_cleaner_backoff_ms="100000000")


def settle(broker: RunningBroker) -> None:
    broker.run(broker.broker.partitions.keep_stamp_clock())


def clean(broker: RunningBroker) -> list[str]:
    return broker.run(broker.broker.cleaner.clean_all())


def cut_at(broker: RunningBroker, at_ms: int) -> Cut:
    options = ReadOptions(brokers=broker.client.config, subscription=Pattern("[ab]"))
    with BrokerLog(options) as log:
        return cut_of(log, at_ms, log.partitions(), NOW_MS)


def rows(reader: pa.RecordBatchReader) -> list[tuple[int, int, bytes]]:
    table = reader.read_all()
    columns = (table.column(name).to_pylist() for name in ("partition", "offset", "value"))
    return list(zip(*columns, strict=True))


@pytest.fixture
def copies(broker: RunningBroker, tmp_path: Path) -> Callable[[], Path]:
    """Makes copies of the log directory, each in the place of the one before."""

    def copy() -> Path:
        settle(broker)
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return snapshot_of(broker.log_dir, tmp_path / "copy")

    return copy


@pytest.mark.parametrize("seed", range(4))
def test_a_table_is_that_of_a_list_of_arrivals(
    seed: int, broker: RunningBroker, clock: ManualClock, copies: Callable[[], Path]
) -> None:
    for topic in TOPICS:
        broker.create_topic(topic, 2, **(KEYED if seed % 2 else SETTINGS))
    history = History(broker, clock, random.Random(seed))
    history.live(50)
    if seed == 2:
        broker.restart(crash=True)
        eventually(lambda: not broker.broker.transactions.is_loading)
    assert bool(clean(broker)) is bool(seed % 2)
    history.live(40)
    if seed == 1:
        broker.restart()
        clean(broker)  # as the start does, too
    exact = 0
    path = copies()
    for at_ms in [*history.moments(8), max(history.moments(1000))]:
        cut = cut_at(broker, at_ms)
        for topic in TOPICS:
            for source in (broker.address, path):
                if all(its.exact for its in cut.partitions if its.topic == topic):
                    exact += 1
                    assert rows(latest(source, topic, as_of=cut)) == history.table(topic, cut)
                else:
                    with pytest.raises(Misconfigured, match="compacted"):
                        latest(source, topic, as_of=cut)
    assert exact


def test_a_table_of_now_ends_at_the_first_open_transaction(
    broker: RunningBroker, copies: Callable[[], Path]
) -> None:
    broker.create_topic("t", 2, **KEYED)
    key, producer = TopicPartition("t", 0), Producer(broker, "p")
    for value in (b"1", b"2"):
        broker.append("t", build_batch([LogRecord(5, b"k", value), LogRecord(5, b"l", value)]))
    broker.append("t", build_batch([LogRecord(5, b"l", None), LogRecord(5, b"k", b"")]), 1)
    producer.write(key, LogRecord(5, b"k", b"aborted"))
    producer.end(commit=False)
    producer.write(key, LogRecord(5, b"l", None))
    broker.append("t", build_batch([LogRecord(5, b"k", b"behind")]))
    before = [(0, 2, b"2"), (0, 3, b"2"), (1, 1, b"")]
    for source in (broker.address, copies()):
        assert rows(latest(source, "t")) == before
        assert rows(latest(source, "t", partitions=[1])) == before[2:]
        assert latest(source, "t", columns=["topic"]).read_all().to_pylist() == [
            {"partition": number, "topic": "t"} for number, _, _ in before
        ]
    producer.end(commit=True)
    for source in (broker.address, copies()):
        assert rows(latest(source, "t")) == [(0, 7, b"behind"), (1, 1, b"")]


def test_an_empty_topic_is_an_empty_table(broker: RunningBroker) -> None:
    broker.create_topic("t", 2)
    assert rows(latest(broker.address, "t")) == []
    assert rows(latest(broker.log_dir, "t")) == []


def test_records_without_a_key_are_left_out_with_a_warning(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t")
    records = [LogRecord(5, None, b"1"), LogRecord(5, b"", b"2"), LogRecord(5, None, None)]
    broker.append("t", build_batch(records))
    assert rows(latest(broker.address, "t")) == [(0, 1, b"2")]
    assert "t-0 has records without a key, which are in no table: 2" in caplog.text


def test_keys_that_need_more_memory_than_allowed_are_refused(broker: RunningBroker) -> None:
    broker.create_topic("t")
    for first in range(0, 60_000, 2_000):
        records = [LogRecord(5, b"%050d" % (first + at), b"v") for at in range(2_000)]
        broker.append("t", build_batch(records))
    said = r"t-0 has [\d,]+ keys in the first [\d]+% .* memory of 8.4 MB allows: (\d+)MiB would do"
    with pytest.raises(Misconfigured, match=said) as refused:
        latest(broker.address, "t", memory=8 << 20).read_all()
    found = re.search(said, str(refused.value))
    assert found is not None
    enough = int(found[1]) << 20
    before = pa.total_allocated_bytes()
    reader, most = latest(broker.address, "t", memory=enough), 0
    count = 0
    for table in reader:
        count += len(table)
        most = max(most, pa.total_allocated_bytes() - before)
    assert count == 60_000
    assert most < 48 << 20


def test_compaction_behind_the_end_fails_a_table_of_now(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("t", **KEYED)

    def write(values: range) -> None:
        for value in values:
            broker.append("t", build_batch([LogRecord(5, b"k%d" % (value % 3), b"%d" % value)]))

    write(range(20))
    for source in (broker.address, broker.log_dir):
        reader = latest(source, "t")
        write(range(20, 60))
        clean(broker)
        settle(broker)
        with pytest.raises(DataLost, match="compacted while it was read"):
            reader.read_all()


def test_a_topic_that_is_re_created_fails_a_table_of_now(broker: RunningBroker) -> None:
    def make(value: bytes) -> None:
        broker.create_topic("t")
        broker.append("t", build_batch([LogRecord(5, b"k", value), LogRecord(5, b"l", value)]))

    make(b"old")
    reader = latest(broker.address, "t")
    broker.client.delete_topics(["t"])
    make(b"new")
    with pytest.raises(Misconfigured, match="re-created while it was read"):
        reader.read_all()


def test_damage_fails_a_table(broker: RunningBroker) -> None:
    broker.create_topic("t")
    for value in range(10):
        broker.append("t", build_batch([LogRecord(5, b"%d" % value, bytes(100))]))
    broker.stop()
    log = broker.log_dir / "t-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[700] ^= 1
    log.write_bytes(content)
    with pytest.raises(Damaged):
        latest(broker.log_dir, "t").read_all()


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"as_of": 1 << 63}, "milliseconds"),
        ({"as_of": NOW_MS + 86_400_000}, "future"),
        ({"as_of": "none.json"}, "cannot be read"),
    ],
)
def test_a_table_that_cannot_be_is_refused(
    given_: dict[str, Any], said: str, broker: RunningBroker
) -> None:
    broker.create_topic("t")
    with pytest.raises(Misconfigured, match=said):
        latest(broker.address, "t", **given_)


GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("name", ["clean", "old-formats"])
def test_tables_of_kafkas_directories_are_those_of_their_records(name: str) -> None:
    path = GOLDEN / name
    topics = {its.name.rpartition("-")[0] for its in path.iterdir() if its.is_dir()}
    for topic in sorted(topics):
        records = scan(path, topic, read_committed=True).read_all().to_pylist()
        last = {(its["partition"], its["key"]): its for its in records if its["key"] is not None}
        expected = [its for its in last.values() if its["value"] is not None]
        expected.sort(key=lambda its: (its["partition"], its["offset"]))
        assert latest(path, topic).read_all().to_pylist() == expected


def test_a_table_of_now_is_that_of_a_broker_that_cannot_be_cut(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")
    broker.append("t", build_batch([LogRecord(5, b"k", b"v")]))
    override(monkeypatch, "horolog.sources.broker_log", CUT=replace(CUT, name="not.announced"))
    assert rows(latest(broker.address, "t")) == [(0, 0, b"v")]
    with pytest.raises(RequestRefused, match="keeps no append times"):
        latest(broker.address, "t", as_of=NOW_MS)


@given(
    st.lists(st.integers(0, 100_000), unique=True).map(sorted),
    st.lists(st.integers(0, 100_000), unique=True, max_size=4).map(sorted),
)
def test_parts_have_all_last_records(offsets: list[int], seams: list[int]) -> None:
    partition, last = TopicPartition("t", 0), LastOffsets(np.array(offsets, np.int64), 0)
    edges = [0, *seams, 100_001]
    stretches = [BrokerStretch(partition, start, end) for start, end in pairwise(edges)]
    parts = list(parts_with(stretches, last))
    assert [at for at in offsets if any(its.start <= at < its.end for its in parts)] == offsets
    assert all(its.start in offsets and its.end - 1 in offsets for its in parts)
    assert all(one.end <= two.start for one, two in pairwise(parts))
    asked = np.arange(0, 100_001, 7)
    assert last.among(asked).tolist() == [at in set(offsets) for at in asked.tolist()]
