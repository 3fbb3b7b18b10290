"""Archives as of a time: what was appended before it, of every topic."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archive_reading import manifest_of, records_of
from arrivals import Producer, cut_at
from in_process_spark import InProcessSpark
from running_broker import NOW_MS, MakeBroker, RunningBroker

from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.jobs import archive
from horolog.jobs.archives import archiving
from horolog.record import LogRecord, build_batch
from horolog.storage import TopicPartition

SECOND_MS = 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def broker(make_broker: MakeBroker, clock: ManualClock) -> RunningBroker:
    broker = make_broker(clock=clock)
    broker.create_topic("a", 2)
    broker.create_topic("b", 1)
    return broker


def archived(broker: RunningBroker, tmp_path: Path, **more: Any) -> archiving.Archived:
    where = {"state": tmp_path / "state", "archive": tmp_path / "archive"}
    chosen = {"topics_pattern": "[ab]"} | where | more
    return archive(InProcessSpark(), source=broker.address, **chosen)


def values(tmp_path: Path) -> list[bytes]:
    return sorted(row["value"] for row in records_of(tmp_path / "archive"))


@pytest.fixture
def add(broker: RunningBroker, clock: ManualClock) -> Callable[..., None]:
    def append(value: bytes, topic: str = "a", partition: int = 0) -> None:
        broker.append(topic, build_batch([LogRecord(7, None, value)]), partition)
        clock.step("1s")
        broker.run(broker.broker.partitions.keep_stamp_clock())

    return append


def test_an_archive_as_of_a_time_has_what_was_appended_before_it(
    broker: RunningBroker, add: Callable[..., None], tmp_path: Path
) -> None:
    add(b"0")
    add(b"1", "b")
    add(b"2", "a", 1)
    add(b"3")
    done = archived(broker, tmp_path, as_of=NOW_MS + 2 * SECOND_MS)
    assert (done.is_ok, values(tmp_path)) == (True, [b"0", b"1"])
    assert done.as_of_ms == dict.fromkeys("ab", NOW_MS + 2 * SECOND_MS)
    later = archived(broker, tmp_path, as_of=NOW_MS + 4 * SECOND_MS)
    assert (later.is_ok, values(tmp_path)) == (True, [b"0", b"1", b"2", b"3"])
    topic = manifest_of(tmp_path / "archive").topics["a"]
    assert topic.as_of_ms == NOW_MS + 4 * SECOND_MS


def test_the_option_of_reads_is_that_of_the_job(
    broker: RunningBroker, add: Callable[..., None], tmp_path: Path
) -> None:
    add(b"0")
    add(b"1")
    settings = {"asOf": str(NOW_MS + SECOND_MS)}
    done = archived(broker, tmp_path, settings=settings)
    assert (done.is_ok, values(tmp_path)) == (True, [b"0"])
    with pytest.raises(Misconfigured, match="latestAsOf"):
        archived(broker, tmp_path, settings={"latestAsOf": "1"})
    with pytest.raises(Misconfigured, match="cannot be complete, too"):
        archived(broker, tmp_path, settings=settings, to=NOW_MS, complete=True)


def test_an_archive_takes_a_file_of_a_cut(
    broker: RunningBroker, add: Callable[..., None], tmp_path: Path
) -> None:
    add(b"0")
    add(b"1", "b")
    file = tmp_path / "cut.json"
    file.write_bytes(cut_at(broker.address, NOW_MS + SECOND_MS).to_bytes())
    done = archived(broker, tmp_path, as_of=str(file))
    assert (done.is_ok, values(tmp_path)) == (True, [b"0"])


def test_an_archive_does_not_shrink(
    broker: RunningBroker, add: Callable[..., None], tmp_path: Path
) -> None:
    add(b"0")
    add(b"1", "b")
    archived(broker, tmp_path, as_of=NOW_MS + 2 * SECOND_MS)
    again = archived(broker, tmp_path, as_of=NOW_MS + SECOND_MS)
    assert set(again.refused) == {"b-0"}
    assert "an archive only grows" in again.refused["b-0"]
    assert again.as_of_ms["b"] == NOW_MS + 2 * SECOND_MS
    assert values(tmp_path) == [b"0", b"1"]


def test_a_time_in_the_future_is_refused_for_each_partition(
    broker: RunningBroker, add: Callable[..., None], tmp_path: Path
) -> None:
    add(b"0")
    done = archived(broker, tmp_path, as_of=NOW_MS + 60 * SECOND_MS)
    assert set(done.refused) == {"a-0", "a-1", "b-0"}
    assert all("future" in why for why in done.refused.values())
    assert set(done.as_of_ms.values()) == {None}


def test_an_open_transaction_ends_an_archive_in_all_its_partitions(
    broker: RunningBroker, add: Callable[..., None], clock: ManualClock, tmp_path: Path
) -> None:
    add(b"0")
    producer = Producer(broker, "t")
    producer.write(TopicPartition("a", 0))
    producer.write(TopicPartition("b", 0))
    add(b"3")
    marked_ms = clock.now_ms()
    producer.end(commit=True)
    add(b"4", "b")
    done = archived(broker, tmp_path, as_of=marked_ms)
    assert (done.is_ok, values(tmp_path)) == (True, [b"0"])
    assert archived(broker, tmp_path, as_of=clock.now_ms()).is_ok
    assert values(tmp_path) == [b"0", b"3", b"4", b"v", b"v"]


def test_a_cut_of_a_re_created_topic_is_refused(
    broker: RunningBroker, add: Callable[..., None], tmp_path: Path
) -> None:
    add(b"0")
    made = cut_at(broker.address, NOW_MS + SECOND_MS)
    broker.client.delete_topics(["a"])
    broker.create_topic("a", 2)
    with pytest.raises(Misconfigured, match="re-created"):
        archived(broker, tmp_path, as_of=made)


def test_compaction_while_an_archive_is_made_leaves_it_incomplete(
    broker: RunningBroker,
    add: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add(b"0")
    add(b"1", "b")

    def compact(place: int) -> None:
        monkeypatch.setattr(type(broker.log("a", 0)), "compacted_to", 2)

    where = {"state": tmp_path / "state", "archive": tmp_path / "archive"}
    done = archive(
        InProcessSpark(compact),
        source=broker.address,
        topics="a",
        as_of=NOW_MS + SECOND_MS,
        **where,
    )
    assert set(done.refused) == {"a-0"}
    assert "were compacted while it was archived" in done.refused["a-0"]
    assert done.as_of_ms == {"a": None}


def test_a_topic_that_is_re_created_while_it_is_archived_is_refused(
    broker: RunningBroker, add: Callable[..., None], tmp_path: Path
) -> None:
    add(b"0")

    def replace(place: int) -> None:
        broker.client.delete_topics(["a"])
        broker.create_topic("a", 2)
        add(b"of another")

    where = {"state": tmp_path / "state", "archive": tmp_path / "archive"}
    session = InProcessSpark(replace)
    done = archive(session, source=broker.address, topics="a", as_of=NOW_MS + SECOND_MS, **where)
    assert "created again" in done.refused["a-0"]
    assert done.as_of_ms == {"a": None}


@pytest.mark.parametrize("as_of", [-(1 << 63), (1 << 63) - 1])
def test_times_at_the_edges_of_64_bits(
    broker: RunningBroker, add: Callable[..., None], tmp_path: Path, as_of: int
) -> None:
    add(b"0")
    done = archived(broker, tmp_path, as_of=as_of)
    assert (done.is_ok, values(tmp_path)) == (as_of < 0, [])
    assert "\n".join(map(str, done.lines()))
    if done.is_ok:
        first, last = (cut_at(tmp_path / "archive", ms) for ms in (as_of, (1 << 63) - 1))
        assert (first.partitions[0].offset, first.partitions[0].exact) == (0, True)
        assert "future" in (last.partitions[0].why or "")
