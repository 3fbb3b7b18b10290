"""Random lives of a compacted log with transactions against a model of what its readers are given.

Transactions of several producers are open at a time, beside plain records; what is committed is
given at its offset, and the latest of each key stays; of what is aborted nothing is given, and
nothing behind the first open one, whatever is rolled, cleaned, cut off, killed and restarted in
between. Lookups by time agree with a walk over what is left, markers included.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from cleaned_lives import STEPS, CleanedLife
from compacting import put
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from storelogs import records_in

from horolog.record import (
    AbortedTransaction,
    AbortedTransactions,
    LogRecord,
    TransactionEnd,
    build_batch,
    iter_headers,
    read_records,
)
from horolog.storage import Log, Origin, prepare

KEYS = st.sampled_from([b"a", b"b", b"c"])
PRODUCERS = st.sampled_from([1 << 52, (1 << 52) + 1, (1 << 52) + 2])
VALUE = b"v" * 60


class Entry(NamedTuple):
    """What was appended at an offset: a record of a producer (None: a plain one), or a marker."""

    key: bytes
    producer: int | None
    is_commit: bool | None = None
    """Of a marker."""


class TransactionalLog(CleanedLife):
    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.cleaned_to = 0  # the log end when it was last cleaned, perhaps in part

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
            put(self.log, key, at=self.now, now=self.clock, value=VALUE)
            self.appended()
            self.entries.append(Entry(key, None))

    @rule(producer=PRODUCERS, key=KEYS, count=st.integers(1, 3))
    def append_in_transaction(self, producer: int, key: bytes, count: int) -> None:
        for _ in range(count):
            sent = [each for each in self.entries if each[1:] == (producer, None)]
            put_in_transaction(self.log, key, producer, len(sent), self.clock)
            self.appended()
            self.entries.append(Entry(key, producer))

    @rule(producer=PRODUCERS, is_commit=st.booleans())
    def end(self, producer: int, is_commit: bool) -> None:
        if self.is_open(producer):
            self.log.append(
                TransactionEnd(producer, 0, 0, is_commit), self.clock, Origin.COORDINATOR
            )
            self.appended()
            self.entries.append(Entry(b"", producer, is_commit))

    @rule()
    def run(self) -> None:
        stable = self.stable()
        before = [each for each in records_in(self.log) if (each.offset or 0) >= stable]
        if self.cleaned() is None:
            return
        after = [each for each in records_in(self.log) if (each.offset or 0) >= stable]
        assert before == after, "what is not stable was cleaned"
        self.cleaned_to = len(self.entries)

    @precondition(lambda self: self.entries)
    @rule(step=STEPS)
    def run_that_is_killed(self, step: int) -> None:
        self.cleaned_to = len(self.entries)
        self.killed_while_cleaned(step)

    @precondition(lambda self: len(self.entries) > self.cleaned_to)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Cut off a part of what came since it was cleaned, markers perhaps."""
        offset = self.cleaned_to + int(share * (len(self.entries) - self.cleaned_to))
        self.log.truncate_to(offset, self.now)
        del self.entries[offset:], self.append_times[offset:]

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


def put_in_transaction(log: Log, key: bytes, producer: int, sequence: int, now: int) -> None:
    sent = build_batch(
        [LogRecord(now, key, VALUE)],
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
    aborted = (AbortedTransaction(*each[:3]) for each in log.look().aborted_transactions(0, stable))
    drop = AbortedTransactions(aborted).drop
    while offset < stable:
        data = bytes(log.read(offset, 1 << 20).read())
        for position, header in iter_headers(data):
            batch = data[position : position + header.size]
            if header.base_offset < stable and not header.is_control and not drop(header, batch):
                found |= {record.offset or 0: record.key for record in read_records(batch)}
            offset = header.next_offset
    return found


TestTransactionalLog = pytest.mark.filterwarnings("ignore")(TransactionalLog.TestCase)
TestTransactionalLog.settings = settings(stateful_step_count=25)
