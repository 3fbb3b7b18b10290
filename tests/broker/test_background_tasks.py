"""Background tasks under a clock that tests turn, and the event loop while the disk is slow."""

import asyncio
import gc
import struct
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_calls import failing
from overrides import override
from partition_files import PartitionFiles
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.clock import DAY_MS, ManualClock
from horolog.errors import StorageFailed
from horolog.record import LogRecord, build_batch
from horolog.record.scan import load_kernels
from horolog.storage import Files, Log, LogDir
from horolog.wire import MAX_FIELDS, ApiKey, uvarint

broker = a_broker()


def produce(connection: RawConnection, topic: str, *times: int, size: int = 10) -> Any:
    records = build_batch([LogRecord(time, None, bytes(size)) for time in times])
    answer = connection.ask(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: records}))
    return answer.responses[0].partition_responses[0]


def test_a_week_of_retention_passes_in_no_time(broker: RunningBroker, clock: ManualClock) -> None:
    broker.create_topic("t")
    with broker.connect() as connection:
        produce(connection, "t", NOW_MS)
        tasks = broker.service.background_tasks
        clock.advance(7 * DAY_MS)
        assert broker.run(tasks.run_retention()) == []
        clock.advance(1)
        ((name, deleted),) = broker.run(tasks.run_retention())
        assert (name, deleted.base_offset) == ("t-0", 0)
        assert "retention.ms" in deleted.reason
        answer = connection.ask(ApiKey.FETCH, 12, **fetch_fields("t", {0: 0}))
        assert answer.responses[0].partitions[0].error_code == 1
        answer = connection.ask(ApiKey.FETCH, 12, **fetch_fields("t", {0: 1}))
        assert answer.responses[0].partitions[0].error_code == 0
    leftovers = [*(broker.log_dir / "t-0").glob("*.deleted")]
    assert leftovers
    clock.advance(60_000)
    broker.run(tasks.tidy())
    assert not any(path.exists() for path in leftovers)


def test_a_deleted_topics_files_go_after_their_delay(broker: RunningBroker) -> None:
    broker.create_topic("t")
    broker.ask(ApiKey.DELETE_TOPICS, 4, topic_names=["t"])
    broker.run(broker.service.background_tasks.tidy())
    assert [*broker.log_dir.glob("t-*-delete")] != []
    broker.clock.advance(60_000)
    broker.run(broker.service.background_tasks.tidy())
    assert [*broker.log_dir.glob("t-*")] == []


def test_deleted_files_wait_for_time_to_pass_and_not_for_the_wall_clock(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("gone")
    broker.create_topic("kept", retention_ms="1000")
    with broker.connect() as connection:
        produce(connection, "kept", NOW_MS)
        clock.advance(1001)
        broker.run(broker.service.background_tasks.run_retention())
        connection.ask(ApiKey.DELETE_TOPICS, 4, topic_names=["gone"])

    def waiting() -> int:
        broker.run(broker.service.background_tasks.tidy())
        segments = [*(broker.log_dir / "kept-0").glob("*.log.deleted")]
        return len(segments) + len([*broker.log_dir.glob("gone-*-delete")])

    clock.step("100d")
    assert waiting() == 2, "a clock that is set forward shortens no delay"
    clock.step("-200d")
    clock.advance(59_999)
    assert waiting() == 2
    clock.advance(1)
    assert waiting() == 0, "a clock that is set back lengthens none"


def test_nothing_of_a_deleted_topic_stays_in_memory(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", message_timestamp_after_max_ms=str(2**63 - 1))
    tasks = broker.service.background_tasks
    with broker.connect() as connection:
        produce(connection, "t", NOW_MS + DAY_MS)  # a warning, once a minute
        clock.advance(9 * DAY_MS)
        assert len(broker.run(tasks.run_retention())) == 1  # files that wait for their removal
        with monkeypatch.context() as patched:
            failing(patched, Log, "apply_retention", StorageFailed("no"))
            assert broker.run(tasks.run_retention()) == []  # a failure that is logged once
        partition = weakref.ref(broker.broker.led("t", 0))
        connection.ask(ApiKey.DELETE_TOPICS, 4, topic_names=["t"])
    clock.advance(60_000)
    broker.run(tasks.tidy())

    def is_gone() -> bool:
        gc.collect()
        return partition() is None

    assert eventually(is_gone)


def test_segments_are_flushed_when_flush_ms_are_over(broker: RunningBroker) -> None:
    tasks = broker.service.background_tasks
    now_ms = 0
    tasks.monotonic_ms = lambda: now_ms
    broker.create_topic("t", flush_ms="5000")
    with broker.connect() as connection:
        broker.run(tasks.flush())
        produce(connection, "t", NOW_MS)
        now_ms = 4999
        broker.clock.advance(
            DAY_MS
        )  # a power cut does not wait for a broker.clock that was set back
        broker.run(tasks.flush())
        assert broker.log("t").recovery_point == 0
        now_ms = 5000
        broker.clock.advance(-2 * DAY_MS)
        broker.run(tasks.flush())
        assert broker.log("t").recovery_point == 1


def test_a_checkpoint_saves_the_next_start_from_work(broker: RunningBroker) -> None:
    broker.create_topic("t", flush_messages="1")
    with broker.connect() as connection:
        produce(connection, "t", NOW_MS)
    broker.run(broker.service.background_tasks.checkpoint())
    text = (broker.log_dir / "recovery-point-offset-checkpoint").read_text()
    assert "t 0 1" in text


def test_producers_that_fell_silent_are_forgotten(broker: RunningBroker) -> None:
    broker.create_topic("t")
    records = build_batch(
        [LogRecord(-1, None, b"")], producer_id=5, producer_epoch=0, base_sequence=0
    )
    broker.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: records}))
    broker.clock.advance(DAY_MS - 1)
    assert broker.run(broker.service.background_tasks.expire_producers()) == 0
    broker.clock.advance(1)
    assert broker.run(broker.service.background_tasks.expire_producers()) == 1


def test_background_tasks_run_by_themselves(make_broker: MakeBroker, clock: ManualClock) -> None:
    broker = make_broker(
        clock=clock, log_initial_task_delay_ms="0", log_retention_check_interval_ms="20"
    )
    broker.create_topic("t")
    with broker.connect() as connection:
        produce(connection, "t", NOW_MS)
    clock.advance(8 * DAY_MS)
    assert eventually(lambda: broker.log("t").log_start_offset > 0)


def test_a_background_task_that_fails_each_time_is_logged_once(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(
        log_initial_task_delay_ms="0", log_flush_offset_checkpoint_interval_ms="20"
    )
    broker.create_topic("t")
    tasks = broker.service.background_tasks
    broker.log_dir.rename(broker.log_dir.with_name("gone"))  # at once: checkpoints write there
    broker.run(tasks.tidy())
    with pytest.raises(StorageFailed, match="is gone"):
        broker.run(tasks.checkpoint())
    assert eventually(lambda: any(m.startswith("checkpoint: ") for m in caplog.messages))
    tried: list[None] = []
    partitions = broker.broker.partitions
    run = partitions.run

    def noted(call: Callable[[LogDir], object]) -> Awaitable[object]:
        tried.extend([None] * (call is LogDir.checkpoint))
        return run(call)

    monkeypatch.setattr(partitions, "run", noted)
    assert eventually(lambda: len(tried) > 5)
    said = [m.partition(":")[0] for m in caplog.messages if "is gone" in m]
    assert said.count("checkpoint") == 1


def test_unsealed_indexes_are_checked_after_a_lookup_used_them(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker's time index says that nothing before its only entry is later."""
    override(monkeypatch, "horolog.storage", CHECKED_INLINE_BYTES=0)
    files = PartitionFiles(tmp_path / "foreign", "t", 0, base_offset=0)
    for time_ms in (500, 900, 300):
        files.add([time_ms])
    files.roll()
    files.log.with_name(f"{0:020d}.timeindex").write_bytes(struct.pack(">qi", 300, 2))
    files.add([2000])
    files.write_indexes()
    broker = make_broker(log_dir=files.log_dir, clock=ManualClock(NOW_MS))
    log = broker.log("t")

    def offset_of(time_ms: int) -> int:
        asked = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": time_ms}]}
        answer = broker.ask(ApiKey.LIST_OFFSETS, 5, topics=[asked])
        return int(answer.topics[0].partitions[0].offset)

    assert offset_of(800) == 3, "the index is gone by"
    assert log.wants_index_check
    broker.run(broker.service.background_tasks.check_indexes())
    assert not log.wants_index_check
    assert [offset_of(time_ms) for time_ms in (100, 500, 501, 800, 900, 901)] == [0, 0, 1, 1, 1, 3]


LONGEST_GAP_S = 0.1
TRIES = 10  # a busy machine pauses everybody now and then; what blocks the loop does so each time


class Heartbeat:
    """Beats on the broker's loop every 10 ms, and remembers the longest gap.

    A thread that waits for nothing beats beside it: what holds up both is the machine.
    """

    def __init__(self, broker: RunningBroker) -> None:
        self._longest_s = self._longest_beside_s = 0.0
        self._broker = broker
        self._ended = threading.Event()
        self._beside = threading.Thread(target=self._beat_beside)

    @property
    def longest_s(self) -> float:
        """The longest gap of the loop, beyond what the machine's own gaps can add up to."""
        return self._longest_s - 3 * self._longest_beside_s

    def __enter__(self) -> "Heartbeat":
        load_kernels()  # once in a process, and with the interpreter's lock held
        self._beating = asyncio.run_coroutine_threadsafe(self._beat(), self._broker.loop)
        self._beside.start()
        return self

    def _beat_beside(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(0.01):
            now = time.monotonic()
            self._longest_beside_s = max(self._longest_beside_s, now - last)
            last = now

    async def _beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            self._longest_s = max(self._longest_s, now - last)
            last = now

    def __exit__(self, *_: object) -> None:
        self._beating.cancel()
        self._ended.set()
        self._beside.join()


def test_the_loop_goes_on_while_the_disk_holds_an_fsync(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("slow", flush_messages="1")
    broker.create_topic("other")
    begun, released = threading.Event(), threading.Event()

    def fsync(files: Files, fd: int) -> None:
        begun.set()
        released.wait(PATIENCE_S)

    gaps: list[float] = []
    with broker.connect() as slow, broker.connect() as other:
        produce(other, "other", NOW_MS)  # the first one of a partition syncs its leader epoch
        monkeypatch.setattr(Files, "os_fsync", fsync)
        while len(gaps) < TRIES and min(gaps, default=1) >= LONGEST_GAP_S:
            begun.clear()
            released.clear()
            with Heartbeat(broker) as heartbeat:
                records = build_batch([LogRecord(NOW_MS, None, b"v")])
                slow.send(ApiKey.PRODUCE, 9, **produce_fields("slow", {0: records}))
                assert begun.wait(PATIENCE_S)
                for _ in range(20):
                    assert produce(other, "other", NOW_MS).error_code == 0
                    answer = other.ask(ApiKey.FETCH, 12, **fetch_fields("other", {0: 0}))
                    assert len(answer.responses[0].partitions[0].records) > 0
                assert slow.is_silent(1)
                released.set()
                assert slow.receive()[1].responses[0].partition_responses[0].error_code == 0
            gaps.append(heartbeat.longest_s)
    assert min(gaps) < LONGEST_GAP_S, gaps


def test_the_loop_goes_on_during_retention_of_many_partitions(broker: RunningBroker) -> None:
    broker.create_topic("t", partitions=100)
    gaps: list[float] = []
    while len(gaps) < TRIES and min(gaps, default=1) >= LONGEST_GAP_S:
        records = build_batch([LogRecord(NOW_MS, None, b"v")])
        fields = produce_fields("t", dict.fromkeys(range(100), records))
        broker.ask(ApiKey.PRODUCE, 9, **fields)
        broker.clock.advance(8 * DAY_MS)
        with Heartbeat(broker) as heartbeat:
            assert len(broker.run(broker.service.background_tasks.run_retention())) == 100
        gaps.append(heartbeat.longest_s)
    assert min(gaps) < LONGEST_GAP_S, gaps


def metadata_of_unknown_topics(count: int) -> bytes:
    """A Metadata v9 request that forbids to create them."""
    names = b"".join(bytes([9]) + b"%08d" % number + b"\x00" for number in range(count))
    return uvarint(count + 1) + names + b"\x00\x00\x00\x00"


@pytest.mark.parametrize("is_honest", [True, False])
@pytest.mark.slow
def test_the_loop_goes_on_while_a_request_of_very_many_fields_is_read(
    broker: RunningBroker, is_honest: bool
) -> None:
    topics = 50_000
    key, version, body = ApiKey.METADATA, 9, metadata_of_unknown_topics(topics)
    if not is_honest:
        count = MAX_FIELDS
        body = bytes(7) + uvarint(count + 1) + b"\x01\x01\x00" * count + b"\x00"
        key = ApiKey.PRODUCE
    gaps: list[float] = []
    while len(gaps) < TRIES and min(gaps, default=1) >= LONGEST_GAP_S:
        with broker.connect() as connection, Heartbeat(broker) as heartbeat:
            connection.socket.sendall(connection.packed(key, version, body))
            if is_honest:
                (_, answer) = connection.receive()
                assert len(answer.topics) == topics
                assert {topic.error_code for topic in answer.topics} == {3}
            else:
                assert connection.is_closed()
        gaps.append(heartbeat.longest_s)
    assert min(gaps) < LONGEST_GAP_S, gaps
