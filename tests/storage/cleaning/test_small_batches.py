"""Small batches become the same many at a time, one by one, and by turns, whatever they are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from batches import marker
from compacting import COMPACT, clean
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from old_messages import build_messages
from overrides import override
from storelogs import NOW, new_follower, pull, records_in

from horolog.record import (
    DELETE_HORIZON_BIT,
    AppendTimeStretch,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    cleaning,
    cleaning_kernels,
    parse_header,
    read_marker,
    with_records,
)
from horolog.storage import AbortedTxn, CleanedTransactions, Log, SmallParts, names, parts_of

SECRET = np.array([1, 2], np.uint64)
PLAIN, IDEMPOTENT, TRANSACTIONAL = range(-2, 0), range(2), range(2, 5)
COMMIT, ABORT, UNKNOWN_MARKER, EMPTY_MARKER = 1, 0, 7, 8


class Sent(NamedTuple):
    """A batch, or messages of v1, of a producer; negative ones have none."""

    producer: int
    keys: list[bytes | None]
    value: bytes | None
    gap: int
    """Offsets before it that are missing."""
    waits_ms: int
    """Before it is appended; negative after append times were reset."""
    form: str


class End(NamedTuple):
    """A control batch."""

    producer: int
    kind: int


class Cleaned(NamedTuple):
    """A run of the cleaner, so much later."""

    after_ms: int


def sent(producers: range) -> st.SearchStrategy[Sent]:
    return st.builds(
        Sent,
        st.sampled_from(producers),
        st.lists(st.sampled_from([b"a", b"b", b"c", b"d", None]), min_size=1, max_size=2),
        st.sampled_from([None, b"v", b"v" * 60]),
        st.sampled_from([0, 0, 0, 3]),
        st.sampled_from([0, 0, 1, 70, 70, -5]),
        st.sampled_from(["v2", "v2", "v2", "stamped", "headers", "lz4", "large", "v1", "v0"]),
    )


ENDS = st.builds(
    End,
    st.sampled_from([*TRANSACTIONAL, 0]),
    st.sampled_from([COMMIT, COMMIT, ABORT, ABORT, UNKNOWN_MARKER, EMPTY_MARKER]),
)
HISTORIES = st.lists(
    st.one_of(
        sent(PLAIN),
        sent(IDEMPOTENT),
        *(sent(TRANSACTIONAL) for _ in range(3)),
        *(ENDS for _ in range(3)),
        st.builds(Cleaned, st.sampled_from([0, 500, 3000])),
        st.just("roll"),
    ),
    min_size=10,
    max_size=80,
)


class History:
    """Fills a log step by step."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.offset, self.ms, self.now = 0, NOW, NOW
        self.sequences = dict.fromkeys(range(5), 0)
        self.runs: list[Any] = []

    def add(self, step: object) -> None:
        match step:
            case Sent():
                self.send(step)
            case End(producer, kind):
                self.append(end_of(self.offset, producer, kind), 1)
            case Cleaned(after_ms):
                self.now += after_ms
                run = clean(self.log, self.now)
                self.runs.append(run and (run.keys, run.records_before, run.records_after))
            case _:
                self.log.roll(NOW)

    def send(self, sent: Sent) -> None:
        self.offset += sent.gap
        self.ms += sent.waits_ms
        value = b"v" * 3000 if sent.form == "large" else sent.value
        headers = (("h", b"x"),) if sent.form == "headers" else ()
        records = [
            LogRecord(NOW + self.offset + at, key, value, headers)
            for at, key in enumerate(sent.keys)
        ]
        if sent.form in ("v0", "v1"):
            messages = build_messages(records, int(sent.form[1]), base_offset=self.offset)
            self.append(messages, len(records))
            return
        more: dict[str, Any] = {}
        if sent.producer >= 0:
            more = {"producer_id": sent.producer, "producer_epoch": 0}
            more["base_sequence"] = self.sequences[sent.producer]
            more["is_transactional"] = sent.producer in TRANSACTIONAL
            self.sequences[sent.producer] += len(records)
        if sent.form == "stamped":
            more |= {"timestamp_type": TimestampType.LOG_APPEND_TIME, "max_timestamp": self.ms}
        codec = Codec.LZ4 if sent.form == "lz4" else Codec.NONE
        self.append(
            build_batch(records, base_offset=self.offset, codec=codec, **more), len(records)
        )

    def append(self, batch: bytes, count: int) -> None:
        kind = self.ms // 100 % 4  # for a while unknown, or seen
        time = AppendTimeStretch(self.offset, None if kind == 1 else self.ms, kind == 2)
        pull(self.log, batch, append_times=[time])
        self.offset += count

    def finish(self) -> None:
        """End what is open, so that all of it may be cleaned."""
        for producer in TRANSACTIONAL:
            self.append(end_of(self.offset, producer, producer % 2), 1)
        for after_ms in (10, 500, 2000):
            self.log.roll(NOW)
            self.append(build_batch([LogRecord(NOW, b"z", b"v")], base_offset=self.offset), 1)
            self.log.roll(NOW)
            self.append(build_batch([LogRecord(NOW, b"a", b"v")], base_offset=self.offset), 1)
            self.add(Cleaned(after_ms))

    def left(self) -> list[object]:
        log = self.log
        files = [
            Path(each.path_of(suffix)).read_bytes()
            for each in log.segments[:-1]
            for suffix in FILES
            if each.size and Path(each.path_of(suffix)).exists()
        ]
        records = records_in(log)
        times = [log.append_times(each.offset or 0, (each.offset or 0) + 1) for each in records]
        aborted = log.look().aborted_transactions(0, log.log_end_offset)
        return [self.runs, records, times, aborted, files]


FILES = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.COMPANION, names.TXN_INDEX)


def end_of(offset: int, producer: int, kind: int) -> bytes:
    if kind != EMPTY_MARKER:
        return marker(offset, producer, kind=kind)
    header = parse_header(marker(offset, producer, kind=COMMIT))
    return cleaning.emptied(header)


@examples(1)
@given(HISTORIES, st.sampled_from([0, 150, 600]))
def test_a_history_is_cleaned_alike_many_at_a_time_and_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, steps: list[object], interval_bytes: int
) -> None:
    """Also by turns: where a short batch is next, many are read; where a longer one is, one is."""
    cleaning.load_kernels()
    found = []
    for most in (cleaning_kernels.SMALL_BYTES, 75, 0):
        with pytest.MonkeyPatch.context() as patch:
            override(patch, "horolog.record", SMALL_BYTES=most)
            config = replace(COMPACT, segment_bytes=2500, index_interval_bytes=interval_bytes)
            with new_follower(tmp_path_factory.mktemp("log"), config) as log:
                history = History(log)
                for step in steps:
                    history.add(step)
                history.finish()
                found.append(history.left())
    for part, expected, *others in zip(
        ("runs", "records", "append times", "aborted", "files"), found[2], *found[:2], strict=True
    ):
        assert all(other == expected for other in others), part


class Model:
    """Which batches may go, in sets, as the rules of KIP-98 and KIP-534 say it."""

    def __init__(self, aborted: list[AbortedTxn]) -> None:
        self.ahead = sorted(aborted, key=lambda entry: entry.first_offset)
        self.opened: dict[int, AbortedTxn] = {}
        self.seen: set[int] = set()
        self.committed: set[int] = set()
        self.kept: list[AbortedTxn] = []

    def meet(self, batch: bytes) -> bool:
        header = parse_header(batch)
        producer = header.producer_id
        while self.ahead and self.ahead[0].first_offset <= header.last_offset:
            entry = self.ahead.pop(0)
            self.opened[entry.producer_id] = entry
            self.seen.discard(entry.producer_id)
        if not header.is_control:
            if not header.is_transactional:
                return False
            if producer in self.opened:
                self.seen.add(producer)
                return True
            self.committed.add(producer)
            return False
        found = read_marker(batch)
        if found is None:
            return header.records_count == 0
        if not found.is_abort:
            was = producer in self.committed
            self.committed.discard(producer)
            return not was
        entry_or_none = self.opened.pop(producer, None)
        if entry_or_none is None or producer not in self.seen:
            return True
        self.seen.discard(producer)
        self.kept.append(entry_or_none)
        return False


BATCHES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, (1 << 62) + 1]),
        st.sampled_from(
            ["records", "records", "plain", COMMIT, ABORT, UNKNOWN_MARKER, EMPTY_MARKER]
        ),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=40,
)
ABORTED = st.lists(
    st.builds(
        lambda producer, first, size: AbortedTxn(producer, first, first + size, first),
        st.sampled_from([0, 1, 2, 3, (1 << 62) + 1]),
        st.integers(0, 80),
        st.integers(1, 9),
    ),
    max_size=8,
    unique_by=lambda entry: entry.first_offset,
)


@given(BATCHES, ABORTED, st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
@example([(0, "records", 1), (0, ABORT, 1)], [AbortedTxn(0, 0, 1, 0)], set(), set())
def test_what_may_go_is_known_of_many_batches_as_of_each(
    made: list[tuple[int, Any, int]], aborted: list[AbortedTxn], cuts: set[int], singles: set[int]
) -> None:
    """In pieces, some of which come one by one; entries may begin or end anywhere, or never."""
    cleaning.load_kernels()
    batches, offset = [], 0
    for producer, kind, count in made:
        records = [LogRecord(NOW, b"k", b"v")] * count
        more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        if kind in ("records", "plain"):
            is_part = kind == "records"
            batches.append(
                build_batch(records, base_offset=offset, is_transactional=is_part, **more)
            )
        else:
            batches.append(end_of(offset, producer, kind))
        offset += count
    model, asked = Model(aborted), CleanedTransactions(aborted)
    expected = [model.meet(batch) for batch in batches]
    found: list[bool] = []
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(batches)), len(batches)]
    for start, end in itertools.pairwise(edges):
        if start in singles:
            found += [asked.meet(parse_header(batch), batch) for batch in batches[start:end]]
            continue
        (part,) = parts_of(b"".join(batches[start:end]), 0, SECRET, all_kinds=True)
        assert isinstance(part, SmallParts)
        found += asked.meet_small(part.small).astype(bool).tolist()
    assert found == expected
    assert asked.kept == model.kept


def test_producers_without_an_open_transaction_take_no_memory() -> None:
    cleaning.load_kernels()
    asked, batches = CleanedTransactions([]), []
    for producer in range(500):
        batches.append(
            build_batch(
                [LogRecord(NOW, b"k", b"v")],
                base_offset=2 * producer,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )
        batches.append(marker(2 * producer + 1, producer, kind=COMMIT))
    (part,) = parts_of(b"".join(batches), 0, SECRET, all_kinds=True)
    assert isinstance(part, SmallParts)
    assert not asked.meet_small(part.small).any()
    assert not asked._known


@pytest.mark.parametrize("horizon", [False, True])
def test_small_batches_of_all_kinds_are_read_together(horizon: bool) -> None:
    """With their attributes, times and producers."""
    cleaning.load_kernels()
    more = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    made = [
        build_batch([LogRecord(NOW, b"k", None)], base_offset=0),
        build_batch([LogRecord(NOW + 5, b"k", b"v")], base_offset=1, is_transactional=True, **more),
        marker(2, 7, kind=ABORT),
        end_of(3, 7, EMPTY_MARKER),
        build_batch([], base_offset=4, **more),
    ]
    if horizon:
        header = parse_header(made[0])
        changed = header._replace(attributes=header.attributes | DELETE_HORIZON_BIT)
        made[0] = with_records(changed, made[0][61:])
    data = b"".join(made)
    small = cleaning.read_small_batches(data, 0, SECRET, all_kinds=True)
    assert small is not None
    headers = [parse_header(batch) for batch in made]
    assert small.starts.tolist()[-1] == len(data)
    assert small.attributes.tolist() == [header.attributes for header in headers]
    assert small.base_timestamps.tolist() == [header.base_timestamp for header in headers]
    assert small.producer_ids.tolist() == [header.producer_id for header in headers]
    assert small.next_offsets.tolist() == [header.next_offset for header in headers]
    assert small.counts_of(np.ones(3)).tolist() == [1, 1, 1, 0, 0]
    plain = cleaning.read_small_batches(data, 0, SECRET)
    assert (plain is None) if horizon else (plain is not None and len(plain.kinds) == 1)


def test_a_marker_with_headers_is_left_to_be_read_alone() -> None:
    """They may be malformed, and then it is damage."""
    cleaning.load_kernels()
    batch = build_batch(
        [LogRecord(NOW, b"\0\0\0\1", bytes(6), (("h", b"v"),))],
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    assert cleaning.read_small_batches(batch, 0, SECRET, all_kinds=True) is None
