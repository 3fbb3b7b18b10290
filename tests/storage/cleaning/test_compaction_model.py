"""Random lives of a compacted log against a model of what compaction promises.

The latest value of each key is there, no tombstone goes early, none stays for ever, whatever is
appended, cleaned, killed and restarted in between (`cleaned_lives`).
"""

from __future__ import annotations

import pytest
from cleaned_lives import STEPS, CleanedLife
from compacting import COMPACT, put
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from storelogs import records_in

from horolog.record import LogRecord

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
RETENTION_MS = COMPACT.delete_retention_ms


class CompactedLog(CleanedLife):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[LogRecord] = []
        self.point = 0  # up to which a run that has ended has cleaned
        self.begun: dict[int, int] = {}  # tombstones: when a run first can have kept them
        self.kept: dict[int, int] = {}  # and when one surely has

    @rule(key=KEYS, is_tombstone=st.booleans(), count=st.integers(1, 4))
    def append(self, key: bytes, is_tombstone: bool, count: int) -> None:
        value = None if is_tombstone else b"v" * 60
        for _ in range(count):
            put(self.log, key, at=self.now, now=self.clock, value=value)
            self.appended()
            time = self.time_of(self.now)
            self.records.append(LogRecord(time, key, value, offset=len(self.records)))

    def tombstones(self) -> list[int]:
        end = self.log.segments[-1].base_offset
        return [e.offset or 0 for e in self.records[:end] if e.value is None]

    @rule()
    def run(self) -> None:
        end = self.log.segments[-1].base_offset
        found = self.tombstones()
        if self.cleaned() is None:
            return
        self.point = end
        there = {each.offset for each in records_in(self.log)}
        for offset in found:
            self.begun.setdefault(offset, self.now)
            assert offset not in there or self.now < self.kept.setdefault(offset, self.now) + (
                RETENTION_MS
            ), "a tombstone stays for ever"

    @precondition(lambda self: self.records)
    @rule(step=STEPS)
    def run_that_is_killed(self, step: int) -> None:
        for offset in self.tombstones():
            self.begun.setdefault(offset, self.now)
        self.killed_while_cleaned(step)

    @invariant()
    def the_latest_of_each_key_is_there(self) -> None:
        found = records_in(self.log)
        there = {each.offset: (each.key, each.value, each.timestamp) for each in found}
        latest = {each.key: each for each in self.records}
        latest_cleaned = {each.key: each.offset for each in self.records[: self.point]}
        for each in self.records:
            offset = each.offset or 0
            if offset in there:
                assert there[offset] == (each.key, each.value, each.timestamp)
                if offset < self.point:
                    assert latest_cleaned[each.key] == offset, "an older record is left"
            elif latest[each.key] is each:
                assert each.value is None, "the latest value is gone"
                assert self.now >= self.begun[offset] + RETENTION_MS, "a tombstone went early"


TestCompactedLog = pytest.mark.filterwarnings("ignore")(CompactedLog.TestCase)
TestCompactedLog.settings = settings(stateful_step_count=20)
