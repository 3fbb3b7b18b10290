"""Random lives of a log that compacts: what all models of it do and ask, whatever is appended.

A model appends through `appended`, and has its own invariants. Here are the clocks, rolls, kills
and restarts, and the append times: each record keeps the one that it got, and lookups by either
clock find what a walk over the records does, before the log is cleaned, at each step of that, and
after.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from compacting import COMPACT, check_lookups, clean
from faultyfiles import FaultyFiles, Killed
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storelogs import NOW, TOPIC_ID, open_dir, records_in

from horolog.config import TopicConfig
from horolog.record import TimestampType
from horolog.storage import CleaningRun, Log, LogDir, TopicPartition

PARTITION = TopicPartition("events", 3)
RETENTION_MS = COMPACT.delete_retention_ms
STEPS = st.integers(0, 80)
_CLOCKS = st.sampled_from(list(TimestampType)[:2])


class CleanedLife(RuleBasedStateMachine):
    """See the module."""

    log: Log
    log_dir: LogDir
    config: TopicConfig

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.now = NOW
        self.behind = 0  # how far the clock of appends is behind
        self.append_times: list[int] = []  # by offset

    @initialize(timestamp_type=_CLOCKS)
    def begin(self, timestamp_type: TimestampType) -> None:
        self.config = replace(COMPACT, message_timestamp_type=timestamp_type)
        self.open()
        self.log = self.log_dir.create(*PARTITION, TOPIC_ID, self.config, NOW)

    def open(self) -> None:
        self.files = FaultyFiles(None, for_ops=1 << 30)
        self.log_dir = open_dir(self.path, self.config, now=self.now, files=self.files)

    def teardown(self) -> None:
        self.log_dir.close()
        shutil.rmtree(self.path)

    # --- appends, and their times -----------------------------------------------------------

    @property
    def clock(self) -> int:
        """What the clock says to appends."""
        return self.now - self.behind

    def time_of(self, created: int) -> int:
        """The timestamp of the record that was just appended, which a producer gave a time."""
        if self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            return self.append_times[-1]
        return created

    def appended(self) -> None:
        """Note that a batch of one record was."""
        first, floor = 0, self.clock
        for reset in self.log.floor.resets[-1:]:
            first, floor = reset.offset, max(floor, reset.new_ms)
        self.append_times.append(max([floor, *self.append_times[first:]]))

    @rule(ms=st.sampled_from([0, 0, 300, 5000]))
    def step_back(self, ms: int) -> None:
        """The clock of appends goes back, or right again."""
        self.behind = ms

    @rule()
    def reset_append_time(self) -> None:
        self.log.reset_append_time(self.clock)

    # --- what else happens ------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        if self.log.segments[-1].size:
            self.log.roll(self.now)

    @rule(
        ms=st.sampled_from([1, 999, COMPACT.delete_retention_ms, 3 * COMPACT.delete_retention_ms])
    )
    def pass_time(self, ms: int) -> None:
        self.now += ms

    def cleaned(self) -> CleaningRun | None:
        """Clean it, and look times up at each step."""
        return clean(self.log, self.now, while_cleaning=self.lookups_agree_with_a_walk)

    def killed_while_cleaned(self, step: int) -> None:
        """Clean it, up to some operation of the file system, and start again."""
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
        assert self.log.log_end_offset == len(self.append_times)

    # --- what must be true ------------------------------------------------------------------

    @invariant()
    def lookups_agree_with_a_walk(self) -> None:
        found = records_in(self.log)
        check_lookups(self.log, found)
        times = [(each.offset or 0, self.append_times[each.offset or 0]) for each in found]
        for offset, ms in times:
            assert [each.ms for each in self.log.append_times(offset, offset + 1)] == [ms]
        for ms in {at + step for _, at in times for step in (0, 1)}:
            first = next(((offset, at) for offset, at in times if at >= ms), None)
            hit = self.log.find_by_append_time(ms)
            assert (hit and (hit.offset, hit.ms)) == first, ms
