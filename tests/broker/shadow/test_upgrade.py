"""The steps of docs/upgrade.md, walked under load: KIP-32's phases, a canary, and its rollback."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from old_messages import build_messages
from partition_files import formats_in
from patience import eventually
from running_broker import NOW_MS, RunningBroker

from horolog.clock import ManualClock
from horolog.errors import HorologError
from horolog.record import AppendTimeStretch, LogRecord, build_batch, read_records
from horolog.storage import Finding, Log, Severity, Verification

TOPIC = "orders"


class Sent(NamedTuple):
    """A record that was acknowledged."""

    offset: int
    value: bytes
    created_ms: int
    has_time: bool
    """Its producer's format has a place for it."""


class Load:
    """Producers of all ages that write to whoever leads, and write again what is not answered."""

    def __init__(self, leader: RunningBroker, clock: ManualClock) -> None:
        self.leader = leader
        self.versions = (1,)
        """Of Produce: those of the producers that there are."""
        self.sent: list[Sent] = []
        self._clock = clock
        self._number = 0
        self._runs, self._ends = threading.Event(), threading.Event()
        self._is_idle = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Load":
        self._runs.set()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._runs.set()
        self._thread.join()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Producers write nothing meanwhile."""
        self._is_idle.clear()
        self._runs.clear()
        assert self._is_idle.wait(60)
        yield
        self._runs.set()

    def more(self, count: int = 12) -> None:
        """Wait until this many more records are acknowledged."""
        before = len(self.sent)
        assert eventually(lambda: len(self.sent) >= before + count)

    def _run(self) -> None:
        while not self._ends.is_set():
            if not self._runs.is_set():
                self._is_idle.set()
                self._runs.wait()
                continue
            version = self.versions[self._number % len(self.versions)]
            self._send(version, b"record %d" % self._number)
            self._number += 1

    def _send(self, version: int, value: bytes) -> None:
        self._clock.advance(3)
        created_ms = self._clock.now_ms() - 1
        records = [LogRecord(created_ms, b"k", value)]
        batch = build_batch(records)
        if version < 3:
            batch = bytes(build_messages(records, 0 if version < 2 else 1))
        while not self._ends.is_set():
            with suppress(HorologError, OSError, AssertionError):  # it is being restarted
                answer = self.leader.produce(TOPIC, batch, version=version)
                if answer.error_code == 0:
                    self.sent.append(Sent(answer.base_offset, value, created_ms, version > 1))
                    return
            self._ends.wait(0.01)


class Node:
    """A broker with the settings that an upgrade changes, one restart at a time."""

    def __init__(self, start: Callable[..., RunningBroker], path: Path, **settings: str) -> None:
        self._start, self.path, self._settings = start, path, settings
        self.broker = start(log_dir=path, **settings)

    def restart(self, *, protocol: str | None = None, stores: str | None = None) -> None:
        """Start again with another inter.broker.protocol.version or log.message.format.version."""
        changed = {"inter_broker_protocol_version": protocol, "log_message_format_version": stores}
        given = {name: value for name, value in changed.items() if value is not None}
        self._settings |= given
        self.broker.restart(**given)

    def begin_again(self, source: RunningBroker, **settings: str) -> None:
        """Delete all that it has, and follow."""
        self.broker.stop()
        shutil.rmtree(self.path)
        self._settings |= {"horolog_follow": source.address, **settings}
        self.broker = self._start(log_dir=self.path, **self._settings)

    @property
    def log(self) -> Log:
        return self.broker.log(TOPIC)

    @property
    def formats(self) -> set[int]:
        """Those on the disk."""
        return formats_in(Path(self.log.directory))


def caught_up(shadow: Node, source: Node) -> bool:
    """Whether all that the source has now is at the shadow, soon."""
    end = source.log.log_end_offset

    def has_all() -> bool:
        partition = shadow.broker.broker.partitions.find(TOPIC, 0)
        return partition is not None and partition.log.high_watermark >= end

    return eventually(has_all)


class Found(NamedTuple):
    """A record in a log."""

    value: bytes | None
    timestamp: int
    magic: int


def found_in(log: Log) -> dict[int, Found]:
    records = {}
    for segment in log.segments:
        for position, header in segment.headers(0, segment.size):
            batch = segment.read_batch(position, header)
            for each in read_records(batch):
                assert each.offset is not None
                records[each.offset] = Found(each.value, each.timestamp, header.magic)
    return records


def append_times_of(log: Log) -> dict[int, AppendTimeStretch]:
    end_offset = log.log_end_offset
    stretches = log.append_times(0, end_offset, seen=True)
    ends = [*(each.offset for each in stretches[1:]), end_offset]
    return {
        offset: each
        for each, end in zip(stretches, ends, strict=True)
        for offset in range(each.offset, end)
    }


def check(load: Load, *nodes: Node) -> None:
    """Each node has every acknowledged record, with the time that its format has a place for."""
    for node in nodes:
        end_offset = node.log.log_end_offset
        records = found_in(node.log)
        for sent in [*load.sent]:
            if sent.offset >= end_offset:
                continue  # it is under load
            found = records.get(sent.offset)
            assert found is not None
            assert found.value == sent.value
            has_time = sent.has_time and found.magic > 0
            assert found.timestamp == (sent.created_ms if has_time else -1)
            if has_time:
                looked_up = node.log.find_by_timestamp(sent.created_ms)
                assert looked_up is not None
                assert records[looked_up.offset].value == sent.value  # perhaps sent twice
        # A follower sees no record before it was appended, and that is after it was created.
        times = append_times_of(node.log)
        for sent in [*load.sent]:
            if sent.offset in times:
                appended = times[sent.offset]
                assert appended.ms is not None
                assert appended.ms > sent.created_ms
        known = [each.ms for each in times.values() if not each.is_seen]
        assert known == sorted(known)


def switch(load: Load, leader: Node, former: Node) -> None:
    """Have another node lead: nothing is written meanwhile, so that nothing can be cut off."""
    with load.stopped():
        assert caught_up(leader, former)
        leader.broker.client.promote([TOPIC])
        former.broker.demote(leader.broker, TOPIC)
        load.leader = leader.broker
    assert not list(Path(former.log.directory).glob("*.cut"))


def test_the_page_is_walked_under_load(make_broker: Any, tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    old = {"inter_broker_protocol_version": "0.9.0", "log_message_format_version": "0.9.0"}

    def start(**settings: Any) -> RunningBroker:
        return make_broker(clock=clock, **settings)

    a = Node(start, tmp_path / "a", node_id="1", **old)
    a.broker.create_topic(TOPIC, retention_ms="-1", segment_bytes="4000")
    b = Node(start, tmp_path / "b", node_id="2", horolog_follow=a.broker.address, **old)
    with Load(a.broker, clock) as load:
        # Everything is old.
        load.more()
        assert caught_up(b, a)
        assert a.formats == b.formats == {0}
        check(load, a, b)

        # Phase 1: the protocol of one node after the other; the disk stays as it is.
        b.restart(protocol="0.10.0")
        load.more()
        check(load, a, b)
        # New producers may come: their times have no place in v0.
        load.versions = (1, 2, 3)
        load.more()
        assert caught_up(b, a)
        assert a.formats == b.formats == {0}
        check(load, a, b)

        # Canary: B stores v1 and leads. A still speaks 0.9.0: B converts for it.
        b.restart(stores="0.10.0")
        switch(load, leader=b, former=a)
        load.more()
        assert caught_up(a, b)
        assert b.formats == {0, 1}
        assert a.formats == {0}
        check(load, a, b)

        # Rollback: A leads again, and B begins anew with what it was before.
        switch(load, leader=a, former=b)
        b.begin_again(a.broker, log_message_format_version="0.9.0")
        load.more()
        assert caught_up(b, a)
        assert a.formats == b.formats == {0}
        check(load, a, b)

        # Phase 1 ends, and phase 2: the format of one node after the other.
        a.restart(protocol="0.10.0")
        load.more()
        b.restart(stores="0.10.0")
        a.restart(stores="0.10.0")
        load.more()
        assert caught_up(b, a)
        assert a.formats == b.formats == {0, 1}
        check(load, a, b)

        # The same to v2, now that all clients are new.
        load.versions = (3,)
        for node in (b, a):
            node.restart(protocol="0.11.0")
        load.more()
        first_with_times = a.log.log_end_offset
        assert a.formats == b.formats == {0, 1}
        for node in (b, a):
            node.restart(stores="0.11.0")
        load.more()
        assert caught_up(b, a)
        switch(load, leader=b, former=a)
        load.more()
        with load.stopped():
            assert caught_up(a, b)
            check(load, a, b)
    assert a.formats == b.formats == {0, 1, 2}
    assert found_in(a.log) == found_in(b.log)
    # From the first fetch of v4 on, append times travel; before, B knows only when it saw them.
    at_a, at_b = append_times_of(a.log), append_times_of(b.log)
    assert {at: at_b[at] for at in at_b if at >= first_with_times} == {
        at: at_a[at] for at in at_a if at >= first_with_times
    }
    assert any(each.is_seen for each in at_b.values())
    assert not any(each.is_seen for at, each in at_b.items() if at >= first_with_times)
    for node in (a, b):
        node.broker.stop()
        found = [each for each in Verification.of(node.path).steps() if isinstance(each, Finding)]
        assert {each.severity for each in found} <= {Severity.NOTE}
