"""Random lives of a compacted log with transactions against a model of what its readers are given.

Transactions of several producers are open at a time, beside plain records; what is committed is
given at its offset, and the latest of each key stays; of what is aborted nothing is given, and
nothing behind the first open one, whatever is rolled, cleaned, cut off, killed and restarted in
between. Lookups by time agree with a walk over what is left, markers included.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from compacting import COMPACT, check_lookups, clean, put
from faultyfiles import FaultyFiles, Killed
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from storelogs import NOW, TOPIC_ID, open_dir, records_in

from horolog.record.batch import iter_headers
from horolog.record.builder import Record, build_batch, read_records
from horolog.record.markers import TransactionEnd
from horolog.record.transactions import AbortedTransaction, AbortedTransactions
from horolog.storage import Log, prepare
from horolog.storage.log_dir.log_dir import TopicPartition

PARTITION = TopicPartition("events", 3)
KEYS = st.sampled_from([b"a", b"b", b"c"])
PRODUCERS = st.sampled_from([1 << 52, (1 << 52) + 1, (1 << 52) + 2])
VALUE = b"v" * 60


class Entry(NamedTuple):
    """What was appended at an offset: a record of a producer (None: a plain one), or a marker."""

    key: bytes
    producer: int | None
    is_commit: bool | None = None
    """Of a marker."""


class TransactionalLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.now = NOW
        self.entries: list[Entry] = []
        self.cleaned_to = 0  # the log end when it was last cleaned, perhaps in part
        self.open()
        self.log = self.log_dir.create(*PARTITION, TOPIC_ID, COMPACT, NOW)

    def open(self) -> None:
        self.files = FaultyFiles(None, for_ops=1 << 30)
        self.log_dir = open_dir(self.path, COMPACT, now=self.now, files=self.files)

    def teardown(self) -> None:
        self.log_dir.close()
        shutil.rmtree(self.path)

    # --- the model ------------------------------------------------------------------------

    def outcomes(self) -> dict[int, bool | None]:
        """By offset of a record: whether it is committed; None while its transaction is open."""
        found: dict[int, bool | None] = {}
        begun: dict[int, list[int]] = {}
        for offset, entry in enumerate(self.entries):
            if entry.producer is None:
                found[offset] = True
            elif entry.is_commit is None:
                found[offset] = None
                begun.setdefault(entry.producer, []).append(offset)
            else:
                for each in begun.pop(entry.producer, []):
                    found[each] = entry.is_commit
        return found

    def stable(self) -> int:
        opened = [
            offset for offset, is_committed in self.outcomes().items() if is_committed is None
        ]
        return min(opened, default=len(self.entries))

    def is_open(self, producer: int) -> bool:
        last = [entry for entry in self.entries if entry.producer == producer][-1:]
        return any(entry.is_commit is None for entry in last)

    # --- what happens -----------------------------------------------------------------------

    @rule(key=KEYS, count=st.integers(1, 4))
    def append(self, key: bytes, count: int) -> None:
        for _ in range(count):
            put(self.log, key, at=self.now, now=self.now, value=VALUE)
            self.entries.append(Entry(key, None))

    @rule(producer=PRODUCERS, key=KEYS, count=st.integers(1, 3))
    def append_in_transaction(self, producer: int, key: bytes, count: int) -> None:
        for _ in range(count):
            sent = [each for each in self.entries if each[1:] == (producer, None)]
            put_in_transaction(self.log, key, producer, len(sent), self.now)
            self.entries.append(Entry(key, producer))

    @rule(producer=PRODUCERS, is_commit=st.booleans())
    def end(self, producer: int, is_commit: bool) -> None:
        if self.is_open(producer):
            self.log.end_transaction(TransactionEnd(producer, 0, 0, is_commit), self.now)
            self.entries.append(Entry(b"", producer, is_commit))

    @rule()
    def roll(self) -> None:
        if self.log.segments[-1].size:
            self.log.roll(self.now)

    @rule(ms=st.sampled_from([1, COMPACT.delete_retention_ms, 3 * COMPACT.delete_retention_ms]))
    def pass_time(self, ms: int) -> None:
        self.now += ms

    @rule()
    def run(self) -> None:
        stable = self.stable()
        before = [each for each in records_in(self.log) if (each.offset or 0) >= stable]
        if clean(self.log, self.now) is None:
            return
        after = [each for each in records_in(self.log) if (each.offset or 0) >= stable]
        assert before == after, "what is not stable was cleaned"
        self.cleaned_to = len(self.entries)

    @precondition(lambda self: self.entries)
    @rule(step=st.integers(0, 80))
    def run_that_is_killed(self, step: int) -> None:
        self.cleaned_to = len(self.entries)
        self.files.fail_after(step, Killed())
        with suppress(Killed):
            clean(self.log, self.now)
        self.restart(is_clean=False)

    @precondition(lambda self: len(self.entries) > self.cleaned_to)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Cut off a part of what came since it was cleaned, markers perhaps."""
        offset = self.cleaned_to + int(share * (len(self.entries) - self.cleaned_to))
        self.log.truncate_to(offset, self.now)
        del self.entries[offset:]

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        self.files.heal()
        self.log_dir.close(clean=is_clean)
        self.open()
        self.log = self.log_dir.logs[PARTITION]

    # --- what must be true ------------------------------------------------------------------

    @invariant()
    def committed_readers_are_given_what_counts(self) -> None:
        outcomes, stable = self.outcomes(), self.stable()
        assert self.log.log_end_offset == len(self.entries)
        assert self.log.last_stable_offset == stable
        given = read_committed(self.log)
        for offset, key in given.items():
            assert outcomes[offset] is True, f"{offset} is given, and does not count"
            assert self.entries[offset].key == key
        counts = [at for at, is_committed in outcomes.items() if is_committed and at < stable]
        latest = {self.entries[offset].key: offset for offset in counts}
        due = {*latest.values(), *(offset for offset in counts if offset >= self.cleaned_to)}
        assert due <= given.keys(), f"{due - given.keys()} are gone"

    @invariant()
    def lookups_agree_with_a_walk(self) -> None:
        check_lookups(self.log)


def put_in_transaction(log: Log, key: bytes, producer: int, sequence: int, now: int) -> None:
    sent = build_batch(
        [Record(now, key, VALUE)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    admission = log.producers.admit(producer, is_strict=False)
    log.append(prepare(sent, log.config, now, partition=str(log), admission=admission), now)


def read_committed(log: Log) -> dict[int, bytes | None]:
    """The keys of the records that a consumer of committed ones is given, by their offsets."""
    found: dict[int, bytes | None] = {}
    offset, stable = log.log_start_offset, log.last_stable_offset
    aborted = (AbortedTransaction(*each[:3]) for each in log.aborted_transactions(0, stable))
    drop = AbortedTransactions(aborted).drop
    while offset < stable:
        data = bytes(log.read(offset, 1 << 20).read())
        for position, header in iter_headers(data):
            batch = data[position : position + header.size]
            if header.base_offset < stable and not header.is_control and not drop(header):
                found |= {record.offset or 0: record.key for record in read_records(batch)}
            offset = header.next_offset
    return found


TestTransactionalLog = pytest.mark.filterwarnings("ignore")(TransactionalLog.TestCase)
TestTransactionalLog.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
