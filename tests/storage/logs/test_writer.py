"""Batches of another log, appended as they are: what a follower, a copy or a restore does."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from batches import marker
from faultyfiles import FaultyFiles
from hypothesis import given
from hypothesis import strategies as st
from old_messages import build_messages
from storelogs import DAY, NOW, UnsyncedFiles, batch

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, StorageFailed
from horolog.record import (
    AppendTimeStretch,
    Codec,
    LogRecord,
    TimeRange,
    iter_headers,
    parse_header,
)
from horolog.storage import (
    EVERYTHING,
    AbortedTxn,
    AppendTimes,
    EpochStart,
    Files,
    IndexBuilder,
    LeaderEpochs,
    LogWriter,
    Producers,
    SegmentReader,
    as_they_are,
    new_segment,
    prepare,
)

Seen = tuple[int, int, bool]

BASE = 40
YEAR = 365 * DAY
ONE_SEGMENT = TopicConfig(index_interval_bytes=0)
TWO_BATCHES = TopicConfig(index_interval_bytes=0, segment_bytes=220)


class Copy:
    """A partition's directory that is extended by batches of another log."""

    def __init__(self, path: Path, config: TopicConfig = ONE_SEGMENT) -> None:
        self.files = UnsyncedFiles()
        self.path, self.config = path, config
        self.floor = AppendTimes.read(self.files, str(path))
        self.epochs = LeaderEpochs(self.files, str(path / "leader-epoch-checkpoint"))
        active = new_segment(self.files, str(path), BASE, config, NOW)
        self.producers = Producers()
        self.writer = LogWriter(
            self.files,
            str(path),
            active,
            append_times=self.floor,
            epochs=self.epochs,
            producers=self.producers,
        )
        self.sent = b""

    def extend(self, data: bytes, times: Sequence[tuple[int, int | None] | Seen] = ()) -> None:
        stretches = [AppendTimeStretch(*each) for each in times]
        self.writer.append(as_they_are(data, BASE, stretches), self.config)
        self.sent += data

    @property
    def bases(self) -> list[int]:
        return sorted(int(log.stem) for log in self.path.glob("*.log"))

    def finished(self) -> list[SegmentReader]:
        """Its segments, as another process finds them."""
        self.writer.finish()
        readers = []
        for base in self.bases:
            stem = f"{self.path}/{base:020d}"
            size = Path(stem + ".log").stat().st_size
            reader = SegmentReader(Files(read_only=True), stem, base, size)
            reader.end = reader.whole_end()
            readers.append(reader)
        assert b"".join(Path(r.path_of(".log")).read_bytes() for r in readers) == self.sent
        return readers

    def times(self, offsets: Sequence[int]) -> list[int | None]:
        """The append time of each of these offsets, as another process finds it."""
        return [None if is_seen else ms for ms, is_seen in self.times_or_seen(offsets)]

    def times_or_seen(self, offsets: Sequence[int]) -> list[tuple[int | None, bool]]:
        """The same, and where a follower saw them; whether that is so."""
        readers = self.finished()
        found = []
        for at in offsets:
            times = next(r for r in reversed(readers) if r.base_offset <= at).append_times
            (stretch,) = times.stretches(at, at + 1, seen=True)
            assert times.at(at) == (None if stretch.is_seen else stretch.ms)
            found.append((stretch.ms, stretch.is_seen))
        return found


def v2(offset: int, epoch: int = 3, *times: int) -> bytes:
    return batch(*(times or (NOW,)), base_offset=offset, leader_epoch=epoch)


def test_bytes_offsets_and_leader_epochs_stay(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.extend(v2(41, 3) + v2(42, 3) + v2(50, 5))
    copy.extend(v2(51, 6))
    (reader,) = copy.finished()
    assert [header.base_offset for _, header in reader.headers(0, reader.size)] == [41, 42, 50, 51]
    assert copy.epochs.entries == (EpochStart(3, 41), EpochStart(5, 50), EpochStart(6, 51))


def test_indexes_are_those_of_appends_one_by_one(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.extend(v2(40) + v2(41, 3, NOW + 9) + v2(42) + v2(43, 3, NOW + 11))
    (reader,) = copy.finished()
    facts = IndexBuilder(BASE, 0).add_all(reader.batches(EVERYTHING).stretches())
    assert reader.indexes.offsets.entries.read() == bytes(facts.offset_entries)
    assert reader.indexes.times.entries.read() == bytes(facts.time_entries)
    assert reader.indexes.seal_facts(reader.size) is not None


APPENDED = st.one_of(
    st.just((None, False)),
    st.tuples(st.sampled_from([NOW, NOW + 1, NOW + 7]), st.booleans()),
)
"""When a batch was appended, or seen by a follower."""


@given(st.lists(APPENDED, min_size=1, max_size=9), st.data())
def test_append_times_are_known_or_seen_where_the_other_log_has_them_so(
    times: list[tuple[int | None, bool]], data: st.DataObject
) -> None:
    """However the batches arrive, and wherever they go back or are unknown for a while."""
    with tempfile.TemporaryDirectory() as path:
        copy = Copy(Path(path), data.draw(st.sampled_from([ONE_SEGMENT, TWO_BATCHES])))
        first = 0
        while first < len(times):
            end = data.draw(st.integers(first + 1, len(times)))
            stretches = [(BASE + at, *times[at]) for at in range(first, end)]
            copy.extend(b"".join(v2(BASE + at) for at in range(first, end)), stretches)
            first = end
        assert copy.times_or_seen(range(BASE, BASE + len(times))) == times


def test_a_batch_has_the_append_time_of_its_records_that_were_asked_for(tmp_path: Path) -> None:
    """A fetch from within a batch says when the records were appended from there on."""
    copy = Copy(tmp_path)
    copy.extend(v2(40, 3, NOW, NOW, NOW) + v2(43), [(42, NOW + 5), (43, NOW + 6)])
    assert copy.times([40, 42, 43]) == [NOW + 5, NOW + 5, NOW + 6]


def test_batches_seen_in_one_millisecond_have_one_entry_however_they_arrive(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    for offset in range(40, 44):
        copy.extend(v2(offset), [(offset, NOW, True)])
    copy.extend(v2(44), [(44, NOW)])
    copy.extend(v2(45), [(45, NOW, True)])
    (reader,) = copy.finished()
    assert reader.append_times.proof().entries == 3


def test_append_times_that_go_back_are_a_reset_and_begin_a_segment(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.extend(v2(40) + v2(41) + v2(44), [(40, NOW), (44, NOW - 5)])
    copy.extend(v2(45), [(45, NOW - 6)])
    assert copy.bases == [40, 42, 45]
    assert [(each.offset, each.old_ms, each.new_ms) for each in copy.floor.resets] == [
        (44, NOW, NOW - 5),
        (45, NOW - 5, NOW - 6),
    ]
    assert AppendTimes.read(Files(), str(tmp_path)).resets == copy.floor.resets


def test_a_time_too_far_away_for_the_file_of_a_segment_begins_another(tmp_path: Path) -> None:
    far = NOW + 900 * YEAR
    copy = Copy(tmp_path)
    copy.extend(v2(40) + v2(41), [(40, NOW), (41, far)])
    assert copy.bases == [40, 41]
    assert copy.times([40, 41]) == [NOW, far]


def test_a_segment_ends_before_it_is_too_large(tmp_path: Path) -> None:
    copy = Copy(tmp_path, TWO_BATCHES)
    copy.extend(b"".join(v2(BASE + at) for at in range(5)))
    assert copy.bases == [40, 42, 44]
    assert [len(each.indexes.offsets.entries) for each in copy.finished()] == [1, 1, 0]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_come_in_as_any_other(tmp_path: Path, magic: int, codec: Codec) -> None:
    def messages(offset: int) -> bytes:
        rows = [LogRecord(NOW + at, b"k", b"v") for at in range(3)]
        return bytes(build_messages(rows, magic, base_offset=offset, codec=codec))

    copy = Copy(tmp_path)
    copy.extend(messages(40) + messages(43) + v2(46), [(40, NOW), (43, NOW + 4), (46, NOW + 5)])
    assert copy.times(range(40, 47)) == [*[NOW] * 3, *[NOW + 4] * 3, NOW + 5]
    (reader,) = copy.finished()
    facts = IndexBuilder(BASE, 0).add_all(reader.batches(EVERYTHING).stretches())
    assert reader.indexes.offsets.entries.read() == bytes(facts.offset_entries)
    assert reader.end.next_offset == 47


def test_plain_messages_are_known_by_the_append_time_of_each(tmp_path: Path) -> None:
    rows = [LogRecord(NOW + at, b"k", b"v") for at in range(4)]
    copy = Copy(tmp_path)
    data = bytes(build_messages(rows, 1, base_offset=40))
    copy.extend(data, [(40, None), (41, NOW), (43, NOW + 2)])
    assert copy.times(range(40, 44)) == [None, NOW, NOW, NOW + 2]


def test_who_leads_after_that_appends_to_the_same_segment(tmp_path: Path) -> None:
    """The block map has what a leader counted, and leaves out what came as it was."""
    copy = Copy(tmp_path)
    writer, config = copy.writer, copy.config
    for offset, ms in ((42, NOW + 100), (45, NOW + 200)):
        copy.extend(v2(offset - 2, 3, NOW) + v2(offset - 1, 3, NOW), [(offset - 2, ms - 50)])
        writer.active.make_ready(ms)
        led = prepare(batch(ms), config, ms).numbered(offset, 7, ms)
        writer.append([led], config)
        copy.sent += b"".join(led.parts)
    (reader,) = copy.finished()

    def found(first_ms: int, last_ms: int) -> set[int]:
        spans = reader.blocks.spans(TimeRange(first_ms, last_ms), reader.size)
        headers = (h for span in spans for _, h in reader.headers(span.position, span.end))
        return {h.base_offset for h in headers if first_ms <= h.max_timestamp <= last_ms}

    assert found(NOW, NOW) == {40, 41, 43, 44}
    assert found(NOW + 100, NOW + 200) == {42, 45}
    assert reader.append_times.at(42) == NOW + 100
    assert reader.append_times.at(43) == NOW + 150


@pytest.mark.parametrize("steps", range(6))
def test_a_refused_write_leaves_nothing_of_its_batches(tmp_path: Path, steps: int) -> None:
    copy = Copy(tmp_path)
    files = FaultyFiles(None)
    copy.writer.active = new_segment(files, str(tmp_path), BASE, copy.config, NOW)
    times = [(40, NOW), (42, NOW + 1), (43, None)]
    copy.extend(v2(40) + v2(41), times)
    files.fail_after(steps, OSError(errno.ENOSPC, "No space left on device"))
    news = [v2(42), v2(43)]
    with suppress(StorageFailed):
        copy.extend(b"".join(news), times)
        news = []
    files.heal()
    if news:
        written = copy.writer.active.segment.end.next_offset - 42
        copy.sent += b"".join(news[:written])
        copy.extend(b"".join(news[written:]), times)
    assert copy.times(range(40, 44)) == [NOW, NOW, NOW + 1, None]


def part(offset: int, producer_id: int, count: int = 1) -> bytes:
    """Records of an open transaction."""
    return batch(
        *[NOW] * count,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


TRANSACTIONS = [
    part(40, 5, 2) + part(42, 6) + marker(43, 5, kind=0) + v2(44) + marker(45, 6, kind=1),
    part(46, 5) + marker(47, 5, kind=0) + part(48, 5) + marker(49, 5, kind=0),
]
OF_OFFSET = {
    header.base_offset: data[at : at + header.size]
    for data in TRANSACTIONS
    for at, header in iter_headers(data)
}
ABORTED = [AbortedTxn(5, 40, 43, 42), AbortedTxn(5, 46, 47, 48), AbortedTxn(5, 48, 49, 50)]


@pytest.mark.parametrize("config", [ONE_SEGMENT, TWO_BATCHES])
def test_a_transaction_that_is_aborted_is_in_the_index_of_its_markers_segment(
    tmp_path: Path, config: TopicConfig
) -> None:
    copy = Copy(tmp_path, config)
    for data in TRANSACTIONS:
        copy.extend(data)
    readers = copy.finished()
    assert [entry for reader in readers for entry in reader.aborted()] == ABORTED
    for reader in readers:
        within = [entry for entry in ABORTED if entry.last_offset >= reader.base_offset]
        assert reader.aborted() == [e for e in within if e.last_offset < reader.end.next_offset]
    assert copy.producers.unended() == ()


@pytest.mark.parametrize("steps", range(14))
def test_a_refused_write_leaves_no_transaction_aborted_that_is_open(
    tmp_path: Path, steps: int
) -> None:
    """Nor a marker that can be read without its entry; and the same batches may come again."""
    copy = Copy(tmp_path)
    files = FaultyFiles(None)
    copy.writer.active = new_segment(files, str(tmp_path), BASE, copy.config, NOW)
    copy.extend(TRANSACTIONS[0])
    files.fail_after(steps, OSError(errno.ENOSPC, "No space left on device"))
    with suppress(StorageFailed):
        copy.writer.append(as_they_are(TRANSACTIONS[1], 46), copy.config)
    end = copy.writer.next_offset
    shown = [entry for entry in ABORTED if entry.last_offset < end]
    assert copy.writer.active.segment.aborted() == shown
    files.heal()
    rest = [data for at, data in OF_OFFSET.items() if at >= end]
    copy.extend(b"".join(rest))
    copy.sent = b"".join(TRANSACTIONS)
    (reader,) = copy.finished()
    assert reader.aborted() == ABORTED


def test_what_a_refused_write_has_left_of_an_entry_is_cut_off(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    files = FaultyFiles(None, for_ops=2)  # the entry, and the cutting off of its marker
    copy.writer.active = new_segment(files, str(tmp_path), BASE, copy.config, NOW)
    copy.extend(TRANSACTIONS[0])
    copy.extend(OF_OFFSET[46])
    files.fail_after(2, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(StorageFailed):
        copy.writer.append(as_they_are(OF_OFFSET[47], 47), copy.config)
    files.heal()
    assert files.faults == ["write", "truncate"]
    index = tmp_path / f"{BASE:020d}.txnindex"
    assert index.stat().st_size > 34
    (reader,) = copy.finished()
    assert index.stat().st_size == 34
    assert reader.aborted() == ABORTED[:1]


def test_a_batch_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    with pytest.raises(CorruptBatch, match="offset 41 is not whole"):
        copy.extend(v2(40) + v2(41)[:-1])
    assert parse_header(v2(41)).size == len(v2(41))
