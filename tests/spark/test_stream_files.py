"""Streams of log directories that brokers append to and delete from; without Spark or Java."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from faulty_calls import noted_calls
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from running_broker import RunningBroker, a_broker
from streaming_query import (
    EARLIEST,
    NINE_MS,
    Query,
    Row,
    all_of,
    append,
    new_topic,
    rows,
)

from horolog.client import Client
from horolog.clock import ManualClock
from horolog.errors import CorruptBatch, Misconfigured
from horolog.record import LogRecord, build_batch
from horolog.sources import DataLost, growing_files

pytestmark = pytest.mark.usefixtures("eager_streams")


broker = a_broker(now_ms=NINE_MS, scope="module")


def test_a_live_log_directory_is_read_as_it_grows(broker: RunningBroker, client: Client) -> None:
    topic = new_topic(broker, partitions=2)
    append(client, topic, 0, 5)
    query = Query(broker.log_dir, subscribe=topic, **EARLIEST)
    assert query.next() == rows(0, range(5), topic)
    assert query.next() is None
    append(client, topic, 0, 5)
    append(client, topic, 1, 2)
    assert query.next() == rows(0, range(5, 10), topic) + rows(1, range(2), topic)
    query = query.again()
    assert query.next() is None
    append(client, topic, 1, 1)
    assert query.next() == rows(1, range(2, 3), topic)


def test_what_comes_to_match_a_pattern_is_read_from_then_on(broker: RunningBroker) -> None:
    topic = new_topic(broker, partitions=1)
    append(broker.client, topic, 0, 5)
    query = Query(broker.log_dir / f"{topic}-*", subscribe=topic, **EARLIEST)
    assert query.next() == rows(0, range(5), topic)
    broker.client.create_partitions({topic: 2})
    append(broker.client, topic, 1, 3)
    append(broker.client, topic, 0, 1)
    assert query.next() == rows(0, range(5, 6), topic) + rows(1, range(3), topic)
    assert query.next() is None
    assert query.again().next() is None


STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 9)),
    st.tuples(st.just("read")),
    st.tuples(st.just("restart")),
)


@examples(1)
@given(st.lists(STEP, max_size=20), st.none() | st.integers(1, 7))
def test_each_record_is_read_once_while_segments_roll(
    broker: RunningBroker, client: Client, steps: list[Any], most: int | None
) -> None:
    topic = new_topic(broker, partitions=2, segment_bytes="300")
    limit = {} if most is None else {"maxOffsetsPerTrigger": most}
    query = Query(broker.log_dir, subscribe=topic, **EARLIEST, **limit)
    held = [0, 0]
    found: list[Row] = []
    for step in steps:
        match step:
            case "append", partition, count:
                append(client, topic, partition, count)
                held[partition] += count
            case ("read",):
                found += query.next() or []
            case _:
                query = query.again()
    found += all_of(query)
    assert sorted(found) == rows(0, range(held[0]), topic) + rows(1, range(held[1]), topic)


@pytest.mark.parametrize("base_offset", [None, 3, 5, 900])
def test_a_batch_is_read_once_it_is_whole(tmp_path: Path, base_offset: int | None) -> None:
    """Whatever its records hold: a batch of any log, say."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    log = directory / f"{0:020d}.log"
    whole = build_batch([LogRecord(NINE_MS, b"k", b"v")] * 3)
    value = b"v"
    if base_offset is not None:
        value = build_batch([LogRecord(NINE_MS, b"k", b"v")], base_offset=base_offset)
    more = build_batch([LogRecord(NINE_MS, b"k", value)] * 3, base_offset=3)
    log.write_bytes(whole + more[:-1])
    query = Query(tmp_path, **EARLIEST)
    assert query.next() == rows(0, range(3))
    assert query.next() is None
    log.write_bytes(whole + more)
    assert query.next() == rows(0, range(3, 6))


@pytest.mark.parametrize("last", ["as it was", "being written"])
def test_damage_before_whole_batches_ends_a_stream_unless_data_may_be_lost(
    tmp_path: Path, last: str
) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    batches = [
        build_batch([LogRecord(NINE_MS, b"k", b"v")] * 2, base_offset=offset)
        for offset in (0, 2, 4)
    ]
    log = directory / f"{0:020d}.log"
    log.write_bytes(batches[0])
    strict, lenient = Query(tmp_path, **EARLIEST), Query(tmp_path, **EARLIEST, failOnDataLoss=False)
    assert strict.next() == lenient.next() == rows(0, range(2))
    damaged = batches[1][:-1] + bytes([batches[1][-1] ^ 1])
    log.write_bytes(batches[0] + damaged[:-1])
    assert strict.next() is None  # its end may still come
    torn = build_batch([LogRecord(NINE_MS, b"k", b"v")], base_offset=6)
    log.write_bytes(batches[0] + damaged + batches[2] + (torn[:-1] if last != "as it was" else b""))
    with pytest.raises(CorruptBatch, match=f"{log} cannot be read to its end.*offset 2"):
        strict.next()
    assert not lenient.next()
    log.write_bytes(b"".join([*batches, torn]))
    assert lenient.next() == rows(0, range(6, 7))


def test_a_segment_that_rolls_while_it_is_listed_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    first, second = directory / f"{0:020d}.log", directory / f"{5:020d}.log"
    first.write_bytes(build_batch([LogRecord(NINE_MS, b"k", b"v")] * 3))
    query = Query(tmp_path, **EARLIEST)
    assert query.next() == rows(0, range(3))
    plain = os.scandir

    def roll() -> None:
        with first.open("ab") as file:
            file.write(build_batch([LogRecord(NINE_MS, b"k", b"v")] * 2, base_offset=3))
        second.write_bytes(build_batch([LogRecord(NINE_MS, b"k", b"v")], base_offset=5))

    @contextmanager
    def scandir(path: str) -> Iterator[Iterator[Any]]:
        def entries() -> Iterator[Any]:
            if path != str(directory):
                with plain(path) as found:
                    yield from found
                return
            with plain(path) as found:
                yield from found
            if not second.exists():  # the first one was listed, and only now the second is there
                roll()
                with plain(path) as found:
                    yield from (entry for entry in found if entry.name == second.name)

        yield entries()

    monkeypatch.setattr(os, "scandir", scandir)
    assert all_of(query) == rows(0, range(3, 6))


def test_a_file_that_vanishes_while_it_is_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(20):
        directory = tmp_path / f"orders-{partition}"
        directory.mkdir()
        log = directory / f"{0:020d}.log"
        log.write_bytes(build_batch([LogRecord(NINE_MS, b"k", b"v")]))
    plain = os.scandir

    class Vanished:
        name, path = "a.tmp", str(tmp_path / "a.tmp")

        def is_dir(self, **_: Any) -> bool:
            return False

        def is_file(self, **_: Any) -> bool:
            return True

        def stat(self, **_: Any) -> Any:
            raise FileNotFoundError(self.path)

    @contextmanager
    def scandir(path: str) -> Iterator[Iterator[Any]]:
        with plain(path) as found:
            yield iter([Vanished(), *found])

    monkeypatch.setattr(os, "scandir", scandir)
    assert len(Query(tmp_path, **EARLIEST).next() or []) == 20


@pytest.mark.parametrize("of_files", [False, True])
def test_retention_that_overtakes_a_slow_query_is_lost_data(
    broker: RunningBroker, client: Client, of_files: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(broker, segment_bytes="300", retention_ms="3600000")
    for _ in range(10):
        append(client, topic, 0, 3, broker.clock.now_ms())
    source = broker.log_dir if of_files else broker
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 5, **EARLIEST}
    strict = Query(source, **options)
    lenient = Query(source, **options, failOnDataLoss="false")
    assert strict.next() == lenient.next() == rows(0, range(5), topic)
    broker.clock.advance("2h")
    append(client, topic, 0, 3, broker.clock.now_ms())
    broker.run(broker.broker.background_tasks.expire())
    start = broker.log(topic).log_start_offset
    assert start > 5
    with pytest.raises(DataLost, match=f"{topic}-0"):
        all_of(strict)
    assert all_of(lenient) == rows(0, range(start, 33), topic)
    assert "as failOnDataLoss is false" in caplog.text
    append(client, topic, 0, 1)
    assert lenient.next() == rows(0, range(33, 34), topic)


def test_retention_behind_a_stream_loses_nothing(broker: RunningBroker, client: Client) -> None:
    topic = new_topic(broker, segment_bytes="300", retention_ms="3600000")
    query = Query(broker.log_dir, subscribe=topic, **EARLIEST)
    expected = 0
    for _ in range(4):
        append(client, topic, 0, 7, broker.clock.now_ms())
        assert query.next() == rows(0, range(expected, expected + 7), topic)
        expected += 7
        broker.clock.advance("2h")
        broker.run(broker.broker.background_tasks.expire())
    assert query.next() is None


def test_a_topic_deleted_and_created_again_is_lost_data(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    append(broker.client, topic, 0, 5)
    strict = Query(broker.log_dir, subscribe=topic, **EARLIEST)
    lenient = Query(broker.log_dir, subscribe=topic, failOnDataLoss="false", **EARLIEST)
    strict.next()
    lenient.next()
    broker.client.delete_topics([topic])
    with pytest.raises(DataLost, match=f"{topic}-0 does not exist any more"):
        strict.next()
    assert lenient.next() is None
    broker.create_topic(topic)
    append(broker.client, topic, 0, 2)
    assert lenient.next() == rows(0, range(2), topic)


def test_files_are_filtered_and_backfilled_as_a_broker_is(broker: RunningBroker) -> None:
    topic = new_topic(broker, segment_bytes="300")
    for at in (1, 7, 3, 9, 2):
        append(broker.client, topic, 0, 2, NINE_MS + at)
    query = Query(broker.log_dir, subscribe=topic, backfillFromTimestamp=NINE_MS + 7)
    assert query.plan()
    append(broker.client, topic, 0, 2, NINE_MS)
    query = query.again()
    assert query.run() == rows(0, range(2, 4), topic) + rows(0, range(6, 8), topic)
    assert query.next() == rows(0, range(10, 12), topic)


def test_a_stream_of_files_ends_by_the_drivers_clock(
    broker: RunningBroker,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic(broker)
    now = ManualClock(NINE_MS)
    override(monkeypatch, "horolog.spark.read", SystemClock=lambda: now)
    query = Query(broker.log_dir, subscribe=topic, stopAtTimestamp=NINE_MS + 5, **EARLIEST)
    append(client, topic, 0, 2)
    assert query.next() == rows(0, range(2), topic)
    now.advance(5)
    assert query.next() == []
    append(client, topic, 0, 2)
    assert query.next() is None
    assert json.loads(query.log[-1])["ends"] == {topic: {"0": 2}}
    assert "compared with the clock of this driver" in caplog.text


def test_an_idle_stream_opens_no_file(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker)
    append(client, topic, 0, 2)
    query = Query(broker.log_dir, subscribe=topic, **EARLIEST)
    query.next()
    query.next()
    opened = noted_calls(monkeypatch, growing_files, "FileLog")
    for _ in range(5):
        assert query.next() is None
    assert opened == []
    append(client, topic, 0, 2)
    assert query.next() == rows(0, range(2, 4), topic)
    assert len(opened) == 1


def test_what_no_stream_of_files_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="There is no Kafka log at"):
        Query(tmp_path, subscribe=None).next()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(b"")
    with pytest.raises(Misconfigured, match="There is no topic clicks"):
        Query(tmp_path, subscribe="clicks").next()
    available = Query(tmp_path, subscribe="clicks")
    available.reader.prepareForTriggerAvailableNow()
    with pytest.raises(Misconfigured, match="There is no topic clicks"):
        available.next()
    with pytest.raises(Misconfigured, match="files have no consumer groups"):
        Query(tmp_path, commitOffsetsToGroup="g").next()
