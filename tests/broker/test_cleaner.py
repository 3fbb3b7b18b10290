"""The broker's cleaner: the dirtiest first, one bad partition, stops, and what is shown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_runner import run_command
from faulty_calls import failing
from patience import eventually
from running_broker import NOW_MS, RunningBroker, a_broker
from storelogs import records_in

from horolog.broker import RETRY_MS, Cleaner, ThreadPace
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.record import LogRecord, build_batch, iter_headers
from horolog.wire import HEALTH, WITH_APPEND_TIMES

COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": "1000",
    "min_cleanable_dirty_ratio": "0.01",
}
broker = a_broker("t", partitions=3, of_topics=COMPACT, log_cleaner_backoff_ms="100000000")


def fill(broker: RunningBroker, partition: int, count: int = 30, keys: int = 3) -> None:
    for at in range(count):
        key = b"%d" % (at % keys)
        broker.append("t", build_batch([LogRecord(NOW_MS, key, bytes(100))]), partition)


def cleaner_of(broker: RunningBroker) -> Cleaner:
    return broker.broker.cleaner


def clean(broker: RunningBroker) -> list[str]:
    return broker.run(cleaner_of(broker).clean_all())


def offsets(broker: RunningBroker, partition: int) -> list[int]:
    return [record.offset or 0 for record in records_in(broker.log("t", partition))]


def test_every_partition_that_is_due_is_cleaned_the_dirtiest_first(broker: RunningBroker) -> None:
    fill(broker, 0)
    assert clean(broker) == ["t-0"]
    fill(broker, 0, 8)
    fill(broker, 1)
    assert clean(broker) == ["t-1", "t-0"]
    assert clean(broker) == []
    for partition in (0, 1):
        end = broker.log("t", partition).segments[-1].base_offset
        assert sum(each < end for each in offsets(broker, partition)) == 3


def test_records_without_a_key_are_refused_in_kafkas_words(broker: RunningBroker) -> None:
    keyless = build_batch([LogRecord(NOW_MS, b"k", b"v"), LogRecord(NOW_MS, None, b"v")])
    with pytest.raises(RequestRefused) as refused:
        broker.client.produce("t", 0, keyless)
    assert refused.value.code is ErrorCode.invalid_record
    assert "Compacted topic cannot accept message without key in topic partition t-0." in str(
        refused.value
    )
    assert broker.log("t", 0).log_end_offset == 0


def test_a_partition_that_cannot_be_cleaned_is_named_and_left_out(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(3):
        fill(broker, partition)
    log = broker.log("t", 1)
    path = Path(log.segments[0].log.path)
    data = bytearray(path.read_bytes())
    data[300] ^= 0xFF
    path.write_bytes(data)
    assert sorted(clean(broker)) == ["t-0", "t-1", "t-2"]
    assert clean(broker) == []
    assert "t-1 cannot be cleaned, and is left out until a restart" in caplog.text
    (wrong,) = [
        each
        for health in broker.client.ask.each_broker(HEALTH).values()
        for each in (health.wrong if health else ())
        if each.kind == "uncleanable"
    ]
    assert wrong.subject == "t-1"
    assert offsets(broker, 0) != list(range(30))
    assert len(log.segments) > 5, "it is as it was"
    assert not (path.parent / "cleaning").exists()


def test_what_the_disk_refused_is_tried_again_later(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 0)
    cleaner, now_ms = cleaner_of(broker), 5
    cleaner.monotonic_ms = lambda: now_ms
    files = broker.log("t", 0).files
    with monkeypatch.context() as patched:
        failing(patched, files, "make_directory", StorageFailed("no room"))
        assert clean(broker) == ["t-0"]
    assert clean(broker) == []
    now_ms += RETRY_MS
    assert clean(broker) == ["t-0"]
    assert list(cleaner.uncleanable()) == []


def test_memory_that_one_run_lacks_or_a_bug_does_not_keep_others_from_being_cleaned(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(3):
        fill(broker, partition, 30 - partition)
    cleaner, now_ms = cleaner_of(broker), 5
    cleaner.monotonic_ms = lambda: now_ms
    files = broker.log("t", 0).files
    make_directory = files.make_directory
    with monkeypatch.context() as patched:

        def refuse(path: str) -> None:
            if "/t-0/" in path:
                raise MemoryError
            if "/t-1/" in path:
                raise IndexError("out of range")
            make_directory(path)

        patched.setattr(files, "make_directory", refuse)
        assert sorted(clean(broker)) == ["t-0", "t-1", "t-2"]
    assert clean(broker) == []
    assert {each.name: why for each, why in cleaner.uncleanable()} == {
        "t-0": "MemoryError",
        "t-1": "IndexError out of range",
    }
    assert offsets(broker, 0) == list(range(30))
    assert offsets(broker, 2) != list(range(28))
    assert "t-1 cannot be cleaned, and is left out and tried again in ten minutes" in caplog.text
    now_ms += RETRY_MS
    assert sorted(clean(broker)) == ["t-0", "t-1"]


class Held:
    """A run that is held at its first piece."""

    def __init__(self, broker: RunningBroker) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        pace = cleaner_of(broker).pace
        wait = pace.wait

        def hold(size: int, rate: object, stop: threading.Event) -> None:
            self.reached.set()
            while not (self.go_on.is_set() or stop.is_set()):
                self.go_on.wait(0.01)
            wait(size, rate, stop)

        pace.wait = hold
        cleaning = cleaner_of(broker).clean_dirtiest()
        self.done = asyncio.run_coroutine_threadsafe(cleaning, broker.loop)
        assert self.reached.wait(60)


def test_a_topic_that_is_deleted_and_made_again_meanwhile_is_another(
    broker: RunningBroker,
) -> None:
    fill(broker, 0)
    held = Held(broker)
    broker.client.delete_topics(["t"])
    broker.client.create_topics({"t": 1}, configs={"cleanup.policy": "compact"})
    held.done.result(60)
    directory = Path(broker.log("t", 0).directory)
    assert not (directory / "cleaning").exists()
    assert broker.log("t", 0).cleaner_point is None
    checkpoint = directory.parent / "cleaner-offset-checkpoint"
    assert not checkpoint.exists() or checkpoint.read_text() == "0\n0\n"
    assert broker.append("t", build_batch([LogRecord(NOW_MS, b"k", b"v")]), 0) == 0


def test_a_broker_that_stops_does_not_wait_for_a_run(broker: RunningBroker) -> None:
    fill(broker, 0)
    Held(broker)
    broker.stop()
    assert not (broker.log_dir / "t-0" / "cleaning").exists()
    broker.restart()
    assert eventually(lambda: len(offsets(broker, 0)) < 30), "it looks when it starts"


def test_appends_and_reads_go_on_beside_a_run(broker: RunningBroker) -> None:
    fill(broker, 0)
    held = Held(broker)
    fill(broker, 0, 10)
    assert len(offsets(broker, 0)) == 40
    held.go_on.set()
    held.done.result(60)
    assert offsets(broker, 0)[-10:] == list(range(30, 40))


def read_by_small_fetches(broker: RunningBroker, end_offset: int, **more: int) -> list[int]:
    """The offsets of the records that a consumer gets, each time of one batch or few."""
    offset, found = 0, []
    while offset < end_offset:
        answer = broker.fetch("t", offset, partition_max_bytes=200, **more)
        batches = [header for _, header in iter_headers(answer.records)]
        assert batches, f"a consumer stays at {offset}"
        is_end = batches[-1].next_offset == end_offset
        assert is_end or any(header.records_count for header in batches)
        offset = batches[-1].next_offset
        found += [header.base_offset for header in batches if header.records_count]
    return found


def test_consumers_are_not_answered_with_batches_that_compaction_has_emptied(
    broker: RunningBroker,
) -> None:
    for producer in range(40):  # the last batch of each stays
        more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        broker.append("t", build_batch([LogRecord(NOW_MS, b"0", bytes(100))], **more), 0)
    clean(broker)
    log = broker.log("t", 0)
    emptied = [h for each in log.segments for _, h in each.headers(0, each.size)]
    assert sum(not header.records_count for header in emptied) > 3
    active = range(log.segments[-1].base_offset, 40)
    first = active.start - 1, *active
    assert read_by_small_fetches(broker, 40) == list(first)
    seen = broker.fetch("t", 0, partition_max_bytes=200, isolation_level=WITH_APPEND_TIMES)
    (first, *_) = (header for _, header in iter_headers(seen.records))
    assert (first.base_offset, first.records_count) == (0, 0), "a follower has every batch"


def test_a_consumer_gets_to_the_end_of_a_log_of_emptied_batches(broker: RunningBroker) -> None:
    fill(broker, 0, 39, keys=1)
    broker.append("t", build_batch([LogRecord(NOW_MS, b"0", None)]), 0)
    log = broker.log("t", 0)
    for _ in range(2):
        broker.append("t", build_batch([LogRecord(NOW_MS, b"1", bytes(900))]), 0)
        clean(broker)
        broker.clock.advance("2d")
    assert read_by_small_fetches(broker, 42) == [40, 41]
    assert log.look().behind_empty_batches(0, 40) == 40, "as where an open transaction follows"
    (header,) = (header for _, header in iter_headers(log.look().gap(0, 40).read()))
    assert (header.base_offset, header.next_offset, header.records_count) == (0, 40, 0)


def test_the_cleaner_point_outlives_a_kill(broker: RunningBroker) -> None:
    fill(broker, 0)
    clean(broker)
    point = broker.log("t", 0).cleaner_point
    assert point
    broker.restart(crash=True)
    assert broker.log("t", 0).cleaner_point == point
    assert clean(broker) == []


def test_a_kill_within_the_first_run_leaves_no_gap_that_looks_like_damage(
    broker: RunningBroker,
) -> None:
    fill(broker, 0)
    held = Held(broker)
    points = (broker.log_dir / "cleaner-offset-checkpoint").read_text()
    assert "t 0 0" in points.splitlines()
    held.go_on.set()
    held.done.result(60)


def test_the_last_run_is_shown(broker: RunningBroker) -> None:
    fill(broker, 1)
    clean(broker)
    shown = run_command("topics", "describe", "t", HOROLOG_BOOTSTRAP=broker.address)
    assert "compaction:" in shown.out
    found = run_command("topics", "describe", "t", "--json", HOROLOG_BOOTSTRAP=broker.address).json
    never, once, _ = found["compaction"]
    assert never["last_run"] is None
    run = once["last_run"]
    assert run["records_after"] == 3 < run["records_before"]
    assert once["first_dirty"] == run["end_offset"] == broker.log("t", 1).cleaner_point


# The rate.


def test_threads_wait_until_their_bytes_fit_the_rate() -> None:
    now = 100.0

    class Stop(threading.Event):
        waited = 0.0

        def wait(self, timeout: float | None = None) -> bool:
            nonlocal now
            now += timeout or 0
            self.waited += timeout or 0
            return self.is_set()

    pace, stop = ThreadPace(lambda: now), Stop()
    pace.wait(1000, lambda: 100.0, stop)
    assert stop.waited == pytest.approx(10.0)
    pace.wait(1000, lambda: 1e300, stop)
    assert stop.waited == pytest.approx(10.0)
    rates: Iterator[float] = iter([1.0, 1.0])
    pace.wait(1000, lambda: next(rates, 1e9), stop)
    assert stop.waited < 11, "a rate that is raised counts at once"
    stop.set()
    pace.wait(1 << 60, lambda: 1.0, stop)
