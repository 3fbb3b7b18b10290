"""A topic that is deleted and created again has its own records only, whenever a kill comes."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from examples import stride
from faultyfiles import FaultyFiles, Killed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import BrokerProcess
from storelogs import NOW, append, open_dir, records_in

from horolog.config import TopicConfig
from horolog.record import LogRecord, build_batch, iter_headers, read_records
from horolog.storage import Files, LogDir, TopicPartition
from horolog.wire import ApiKey

KEY = TopicPartition("t", 0)

# -- a broker's process ---------------------------------------------------------------------


def create(connection: RawConnection) -> None:
    topic = {"name": "t", "configs": [{"name": "segment.bytes", "value": "1048576"}]}
    answer = connection.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic])
    assert answer.topics[0].error_code == 0, answer


def delete(connection: RawConnection) -> int:
    answer = connection.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
    return int(answer.responses[0].error_code)


def delete_records(connection: RawConnection, offset: int) -> int:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]
    answer = connection.ask(ApiKey.DELETE_RECORDS, 2, topics=topics)
    assert answer.topics[0].partitions[0].error_code == 0
    return int(answer.topics[0].partitions[0].low_watermark)


def produce(connection: RawConnection, incarnation: int, first: int, count: int) -> None:
    values = [b"%d:%d" % (incarnation, first + n) for n in range(count)]
    batch = build_batch([LogRecord(-1, None, value) for value in values])
    answer = connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch}))
    outcome = answer.responses[0].partition_responses[0]
    assert (outcome.error_code, outcome.base_offset) == (0, first), outcome


def fetched(connection: RawConnection, offset: int) -> Any:
    answer = connection.ask(ApiKey.FETCH, 12, **fetch_fields("t", {0: offset}))
    return answer.responses[0].partitions[0]


def values_in(connection: RawConnection) -> tuple[int, dict[int, bytes]]:
    """The log start offset, and the values by offset."""
    at_zero = fetched(connection, 0)
    start = at_zero.log_start_offset if at_zero.error_code == 0 else None
    if start is None:
        assert at_zero.error_code == 1, at_zero  # OFFSET_OUT_OF_RANGE
        asked = {"partition_index": 0, "timestamp": -2}
        answer = connection.ask(
            ApiKey.LIST_OFFSETS, 6, topics=[{"name": "t", "partitions": [asked]}]
        )
        start = answer.topics[0].partitions[0].offset
    data = bytes(fetched(connection, start).records or b"")
    found = {}
    for position, header in iter_headers(data):
        for record in read_records(data[position : position + header.size]):
            if (record.offset or 0) >= start:
                found[record.offset or 0] = record.value or b""
    return start, found


def test_a_topic_created_again_keeps_its_records_after_kills(
    broker_process: BrokerProcess,
) -> None:
    """The log start of the deleted one is not its own, whether before or beyond its end."""
    incarnation = 0
    for count in (10, 700):
        incarnation += 1
        with broker_process.connect() as connection:
            create(connection)
            produce(connection, incarnation, 0, 700)
            assert delete_records(connection, 500) == 500
            assert delete(connection) == 0
            incarnation += 1
            create(connection)
            produce(connection, incarnation, 0, count)
        for _ in range(2):
            broker_process.kill()
            broker_process.start_again()
            with broker_process.connect() as connection:
                start, found = values_in(connection)
                assert start == 0
                assert found == {n: b"%d:%d" % (incarnation, n) for n in range(count)}
        with broker_process.connect() as connection:
            assert delete(connection) == 0
        lines = (broker_process.log_dir / "log-start-offset-checkpoint").read_text()
        assert lines == "0\n0\n"


@dataclass
class Client:
    """Creates, fills, shortens and deletes a topic until the broker is gone."""

    address: str
    incarnation: int = 0
    phase: str = "deleted"
    acknowledged: int = 0
    asked_start: int = 0
    acknowledged_start: int = 0

    def run(self, random_: random.Random) -> None:
        with suppress(OSError, EOFError), RawConnection(self.address) as connection:
            while True:
                self.incarnation += 1
                self.acknowledged = self.asked_start = self.acknowledged_start = 0
                self.phase = "creating"
                create(connection)
                self.phase = "serving"
                for _ in range(random_.randrange(1, 8)):
                    produce(connection, self.incarnation, self.acknowledged, 30)
                    self.acknowledged += 30
                self.asked_start = random_.randrange(self.acknowledged + 1)
                delete_records(connection, self.asked_start)
                self.acknowledged_start = self.asked_start
                for _ in range(random_.randrange(4)):
                    produce(connection, self.incarnation, self.acknowledged, 30)
                    self.acknowledged += 30
                self.phase = "deleting"
                assert delete(connection) == 0
                self.phase = "deleted"

    def check(self, connection: RawConnection) -> None:
        asked = connection.ask(ApiKey.METADATA, 12, topics=None)
        if "t" not in {topic.name for topic in asked.topics}:
            assert self.phase != "serving", "a topic that was acknowledged is gone"
            return
        assert self.phase != "deleted", "a deleted topic is back"
        start, found = values_in(connection)
        assert list(found) == list(range(start, start + len(found)))
        assert found == {n: b"%d:%d" % (self.incarnation, n) for n in found}
        assert start + len(found) >= self.acknowledged
        assert start in (self.acknowledged_start, self.asked_start)


@pytest.mark.parametrize("seed", [1])
def test_kills_at_any_moment_mix_no_two_topics_of_one_name(
    broker_process: BrokerProcess, seed: int
) -> None:
    random_ = random.Random(seed)
    client = Client(broker_process.address)
    for _ in range(6):
        worker = threading.Thread(target=client.run, args=(random_,))
        worker.start()
        worker.join(random_.random() / 2)
        broker_process.kill()
        worker.join()
        broker_process.start_again()
        with broker_process.connect() as connection:
            client.check(connection)
            delete(connection)
            client.phase = "deleted"


# -- a kill between any two operations on the disk ------------------------------------------


@dataclass
class Life:
    """One log directory: what was acknowledged, and of which topic."""

    path: Path
    config: TopicConfig = field(
        default_factory=lambda: TopicConfig(segment_bytes=400, index_interval_bytes=0)
    )
    topic_id: UUID | None = None
    acknowledged: int = 0
    starts: tuple[int, ...] = (0,)
    log_dir: LogDir | None = None
    next_id: int = 1

    def open(self, files: Files | None = None) -> None:
        self.log_dir = open_dir(self.path, self.config, topic_id=self.topic_id, files=files)

    @property
    def opened(self) -> LogDir:
        assert self.log_dir is not None
        return self.log_dir

    def create(self) -> None:
        assert self.topic_id is None
        topic_id, self.next_id = UUID(int=self.next_id), self.next_id + 1
        self.acknowledged, self.starts = 0, (0,)
        self.opened.create(*KEY, topic_id, self.config, NOW)
        self.topic_id = topic_id

    def append(self, count: int) -> None:
        log = self.opened.logs[KEY]
        for _ in range(count):
            done = append(log, NOW + self.acknowledged)
            assert done.base_offset == self.acknowledged
            self.acknowledged += 1
            if done.rolled:
                log.flush_rolled()

    def delete_records(self, offset: int) -> None:
        self.starts = (self.starts[-1], offset)
        self.opened.logs[KEY].delete_records(offset)
        self.opened.checkpoint_starts()
        self.starts = (offset,)

    def delete(self) -> None:
        self.topic_id = None  # the row says so first
        self.opened.delete([KEY], 0)

    def kill(self) -> None:
        log_dir, self.log_dir = self.log_dir, None
        if log_dir is not None:
            log_dir.close(clean=False)

    def check(self) -> None:
        """What a start finds, after it has finished a deletion as the broker does."""
        log = self.opened.logs.get(KEY)
        if self.topic_id is None:
            if log is not None:
                self.opened.delete([KEY], 0)
            return
        assert log is not None, "a topic that was acknowledged is gone"
        assert log.topic_id == self.topic_id
        assert log.log_start_offset in (*self.starts, *(s.base_offset for s in log.segments))
        assert log.log_start_offset >= self.starts[0]
        found = [(record.offset, record.timestamp) for record in records_in(log)]
        assert found == [(n, NOW + n) for n in range(log.log_start_offset, log.log_end_offset)]
        assert log.log_end_offset in (self.acknowledged, self.acknowledged + 1)
        self.acknowledged = log.log_end_offset


def lives(life: Life) -> Iterator[None]:
    """Topics of one name come and go."""
    for count, start in ((12, 10), (3, 0), (12, 11), (20, 4)):
        life.create()
        life.append(count)
        life.opened.checkpoint()
        if start:
            life.delete_records(start)
        life.opened.logs[KEY].apply_retention(NOW, 0)
        life.append(2)
        life.opened.checkpoint()
        yield
        life.delete()


def test_a_kill_at_any_step_of_deletion_and_creation_loses_nothing(tmp_path: Path) -> None:
    step, killed = 0, True
    while killed:
        life = Life(tmp_path / str(step))
        life.open()
        life.kill()
        try:
            life.open(FaultyFiles(step, Killed()))
            for _ in lives(life):
                pass
            killed = False
        except Killed:
            pass
        life.kill()
        for _ in range(2):
            life.open()
            life.check()
            if life.topic_id is None:
                life.create()
            life.append(7)
            life.kill()
        step += stride(23)
    assert step > 200


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 12)),
        st.tuples(st.just("delete_records"), st.integers(0, 30)),
        st.tuples(st.sampled_from(["checkpoint", "retain", "again", "kill", "stop"]), st.just(0)),
    ),
    max_size=25,
)


@given(operations=operations)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_to_topics_of_one_name_each_has_its_own_records(
    tmp_path: Path, operations: list[tuple[str, int]]
) -> None:
    life = Life(tmp_path / os.urandom(8).hex())
    life.open()
    life.create()
    for what, number in operations:
        match what:
            case "append":
                life.append(number)
            case "delete_records" if number <= life.acknowledged and number >= life.starts[-1]:
                life.delete_records(number)
            case "checkpoint":
                life.opened.checkpoint()
            case "retain":
                life.opened.logs[KEY].apply_retention(NOW, 0)
            case "again":
                life.delete()
                life.create()
            case "kill" | "stop":
                if what == "stop":
                    life.opened.close()
                life.kill()
                life.open()
                life.check()
    life.kill()
    life.open()
    life.check()
    life.kill()
