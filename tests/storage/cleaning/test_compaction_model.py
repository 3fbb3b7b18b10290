"""Random lives of a compacted log against a model of what compaction promises.

The latest value of each key is there, no tombstone goes early, none stays for ever, whatever is
appended, cleaned, killed and restarted in between; and lookups by time find what is left.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from compacting import COMPACT, check_lookups, clean, put
from faultyfiles import FaultyFiles, Killed
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from storelogs import NOW, TOPIC_ID, open_dir, records_in

from horolog.record.builder import Record
from horolog.storage.log_dir.log_dir import TopicPartition

PARTITION = TopicPartition("events", 3)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
RETENTION_MS = COMPACT.delete_retention_ms


class CompactedLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.now = NOW
        self.appended: list[Record] = []
        self.point = 0  # up to which a run that has ended has cleaned
        self.begun: dict[int, int] = {}  # tombstones: when a run first can have kept them
        self.kept: dict[int, int] = {}  # and when one surely has
        self.open()
        self.log = self.log_dir.create(*PARTITION, TOPIC_ID, COMPACT, NOW)

    def open(self) -> None:
        self.files = FaultyFiles(None, for_ops=1 << 30)
        self.log_dir = open_dir(self.path, COMPACT, now=self.now, files=self.files)

    def teardown(self) -> None:
        self.log_dir.close()
        shutil.rmtree(self.path)

    @rule(key=KEYS, is_tombstone=st.booleans(), count=st.integers(1, 4))
    def append(self, key: bytes, is_tombstone: bool, count: int) -> None:
        value = None if is_tombstone else b"v" * 60
        for _ in range(count):
            put(self.log, key, at=self.now, now=self.now, value=value)
            self.appended.append(Record(self.now, key, value, offset=len(self.appended)))

    @rule()
    def roll(self) -> None:
        if self.log.segments[-1].size:
            self.log.roll(self.now)

    @rule(ms=st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS, 3 * RETENTION_MS]))
    def pass_time(self, ms: int) -> None:
        self.now += ms

    def tombstones(self) -> list[int]:
        end = self.log.segments[-1].base_offset
        return [e.offset or 0 for e in self.appended[:end] if e.value is None]

    @rule()
    def run(self) -> None:
        end = self.log.segments[-1].base_offset
        found = self.tombstones()
        if clean(self.log, self.now) is None:
            return
        self.point = end
        there = {each.offset for each in records_in(self.log)}
        for offset in found:
            self.begun.setdefault(offset, self.now)
            assert offset not in there or self.now < self.kept.setdefault(offset, self.now) + (
                RETENTION_MS
            ), "a tombstone stays for ever"

    @precondition(lambda self: self.appended)
    @rule(step=st.integers(0, 80))
    def run_that_is_killed(self, step: int) -> None:
        for offset in self.tombstones():
            self.begun.setdefault(offset, self.now)
        self.files.fail_after(step, Killed())
        with suppress(Killed):
            clean(self.log, self.now)
        self.restart(is_clean=False)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        self.files.heal()
        self.log_dir.close(clean=is_clean)
        self.open()
        self.log = self.log_dir.logs[PARTITION]
        assert self.log.log_end_offset == len(self.appended)

    @invariant()
    def the_latest_of_each_key_is_there(self) -> None:
        found = records_in(self.log)
        check_lookups(self.log, found)
        there = {each.offset: (each.key, each.value, each.timestamp) for each in found}
        latest = {each.key: each for each in self.appended}
        latest_cleaned = {each.key: each.offset for each in self.appended[: self.point]}
        for each in self.appended:
            offset = each.offset or 0
            if offset in there:
                assert there[offset] == (each.key, each.value, each.timestamp)
                if offset < self.point:
                    assert latest_cleaned[each.key] == offset, "an older record is left"
            elif latest[each.key] is each:
                assert each.value is None, "the latest value is gone"
                assert self.now >= self.begun[offset] + RETENTION_MS, "a tombstone went early"


TestCompactedLog = pytest.mark.filterwarnings("ignore")(CompactedLog.TestCase)
TestCompactedLog.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
