"""Checks of a segment's seal, append times and aborted transactions."""

from collections.abc import Iterator
from operator import itemgetter

from horolog.record.batch import BatchHeader
from horolog.record.markers import Marker
from horolog.storage import names
from horolog.storage.companion.seal import parsed_seal
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.abort import ENTRY, can_be
from horolog.storage.scan.entries import ComparedIndex, reindex
from horolog.storage.scan.findings import Finding, SegmentFacts, fault, note
from horolog.storage.segments.reader import SegmentReader

_MAX_PRODUCERS = 100_000  # with a transaction in a segment; further ones are not checked


def check_append_times(reader: SegmentReader, facts: SegmentFacts) -> Iterator[Finding]:
    """Check the append times of a segment, and count the records that have none."""
    times = reader.append_times
    if not reader.companion.exists or not facts.is_sound:
        return
    mend = (
        f"horolog log reindex {facts.path} takes what is damaged out of it; append times there are "
        "then unknown"
    )
    wrong = times.damage()
    if wrong is not None:
        yield fault(times.path, wrong, mend)
        return
    if not times.has_any:
        return
    stretches = times.stretches(facts.base_offset, facts.next_offset, seen=True)
    ends = [*(stretch.offset for stretch in stretches[1:]), facts.next_offset]
    counted = list(zip(stretches, ends, strict=True))
    unknown = sum(end - part.offset for part, end in counted if part.ms is None)
    seen = sum(end - part.offset for part, end in counted if part.is_seen)
    if unknown:
        what = f"It does not say when {unknown} offsets were appended: not by horolog, or not known"
        yield note(times.path, what)
    if seen:
        what = f"It says of {seen} offsets when a follower saw them, not when they were appended"
        yield note(times.path, what)


def check_seal(reader: SegmentReader, facts: SegmentFacts) -> Iterator[Finding]:
    """Check that the seal is of this log and agrees with it."""
    files, path = reader.log.files, reader.companion.path
    content = reader.companion.seal()
    if not any(content):
        return
    mend = reindex(facts.path)
    seal = parsed_seal(content)
    if seal is None:
        yield fault(path, "The seal is damaged, and is ignored", mend)
        return
    try:
        is_of_log = seal.last.end == facts.size and seal.last.is_in(reader.log)
    except FileMissing:
        return
    if not is_of_log:
        yield note(path, "The segment was changed since it was sealed: the seal is ignored")
        return
    facts.leaves_out = seal.leaves_out or not facts.size
    if facts.is_sound and (seal.next_offset, seal.largest) != (facts.next_offset, facts.largest):
        yield fault(
            path,
            f"It says that the segment ends before offset {seal.next_offset} and has "
            f"{_time(seal.largest)}; the log ends before {facts.next_offset} and has "
            f"{_time(facts.largest)}",
            mend,
        )
    for suffix, known in (
        (names.OFFSET_INDEX, seal.offset_index),
        (names.TIME_INDEX, seal.time_index),
    ):
        index = reader.path_of(suffix)
        if files.exists(index) and not known.is_of(files, index):
            yield note(
                index, "It was changed since it was sealed, and is checked at every use", mend
            )
    aborted = reader.path_of(names.TXN_INDEX)
    if not seal.aborted.is_of(files, aborted):
        what = "It is missing, or was changed since the segment was finished"
        # Kafka's recovery rewrites it; one that names every abort marker hides nothing.
        is_whole = facts.is_sound and not any(
            aborted_at is not None for aborted_at in facts.ended.values()
        )
        yield note(aborted, what, mend) if is_whole else fault(aborted, what, mend)


def _time(largest: tuple[int, int] | None) -> str:
    if largest is None:
        return "no timestamp"
    return f"its largest timestamp {largest[0]} up to offset {largest[1]}"


class AbortedEntries(ComparedIndex):
    """Index of aborted transactions of a segment, compared with the log."""

    LAYOUT = ENTRY
    _last = 0, 0, 0, -1, 0

    def __init__(self, files: Files, path: str, facts: SegmentFacts) -> None:
        super().__init__(files, path, facts.path)
        self._facts = facts
        self._lacking: list[tuple[int, int, int]] = []
        self._last_end: dict[int, int] = {}  # offsets of latest markers, by producer id

    @property
    def next_offset(self) -> int:
        """Offset of the next entry's marker.

        Earlier batches without a transaction need no `meet`.
        """
        return self._entry[3]

    def meet(self, header: BatchHeader, marker: Marker | None, *, judge: bool) -> None:
        """Compare the next batch of the log with the entries up to its end.

        An entry ends with a marker.

        Args:
            marker: in it, if it is one.
            judge: whether all batches before it were read.
        """
        is_named = False
        while self.next_offset <= header.last_offset:
            why = self._contradiction(header, marker)
            if judge and why is not None:
                self._note_wrong(self._number, why)
            is_named |= header.producer_id == self._entry[1]
            self._advance()
        if header.is_transactional and judge:
            if not header.is_control:
                if header.records_count:  # one that compaction emptied has none to hide
                    self._begin(header)
            elif marker is not None:
                self._end(header, is_lacking=marker.is_abort and not is_named)

    def _contradiction(self, header: BatchHeader, marker: Marker | None) -> str | None:
        """Return the contradiction between the entry and the batch at its end; None without one."""
        producer_id, (_, its_id, first, *_) = header.producer_id, self._entry
        if not header.is_control or self.next_offset < header.base_offset or producer_id != its_id:
            return f"ends with offset {self.next_offset}, no marker"
        if marker is not None and not marker.is_abort:
            return f"ends with offset {self.next_offset}, which commits: its records are hidden"
        if first > self._facts.open_from.get(producer_id, first):
            begins = self._facts.open_from[producer_id]
            return f"begins with offset {first}, and its transaction with {begins}"
        if first < self._last_end.get(producer_id, 0):
            return f"begins with offset {first}, before an earlier transaction of it ended"
        return None

    def _begin(self, header: BatchHeader) -> None:
        open_from = self._facts.open_from
        if len(open_from) < _MAX_PRODUCERS:
            open_from.setdefault(header.producer_id, header.base_offset)

    def _end(self, header: BatchHeader, *, is_lacking: bool) -> None:
        producer_id, facts = header.producer_id, self._facts
        first = facts.open_from.pop(producer_id, None)
        if first is not None and is_lacking:
            self._lacking.append((producer_id, first, header.last_offset))
        if producer_id in self._last_end or len(self._last_end) < _MAX_PRODUCERS:
            ends_earlier = first is None and is_lacking
            facts.ended.setdefault(producer_id, header.last_offset if ends_earlier else None)
            self._last_end[producer_id] = header.last_offset

    def all_faults(self, *, judge: bool) -> Iterator[Finding]:
        """Yield all findings, after the last batch."""
        while judge and self._number >= 0:
            what = f"ends with {self.next_offset}, beyond the log's end"
            self._note_wrong(self._number, what)
            self._advance()
        findings = list(self.faults(may_have_room=False)) if self.exists else []
        if not findings and judge and self._lacking:
            findings = [_lacking(self.path, self._facts.path, self._lacking)]
        yield from findings

    def _out_of_order(self, entry: tuple[int, ...]) -> str | None:
        version, _, first, last, _ = entry
        if can_be(version, first, last) and last > self._last[3]:
            return None
        return f"cannot be: version {version}, from offset {first} to {last}"


class TransactionsAcross:
    """Transactions that begin in one segment and end in a later one. Segments come in order."""

    def __init__(self) -> None:
        self._open_from: dict[int, int] = {}

    def lacking(self, facts: SegmentFacts) -> Iterator[Finding]:
        """Yield a fault if the next segment's index lacks a transaction that was aborted there."""
        if not facts.is_sound:
            self._open_from.clear()  # how those ended may be in what cannot be read
            return
        missing = []
        for producer_id, aborted_at in facts.ended.items():
            first = self._open_from.pop(producer_id, None)
            if first is not None and aborted_at is not None:
                missing.append((producer_id, first, aborted_at))
        if missing:
            path = facts.path.removesuffix(names.LOG) + names.TXN_INDEX
            yield _lacking(path, facts.path, missing)
        for producer_id, first in facts.open_from.items():
            if len(self._open_from) < _MAX_PRODUCERS:
                self._open_from.setdefault(producer_id, first)


def _lacking(path: str, log_path: str, missing: list[tuple[int, int, int]]) -> Finding:
    """Return the fault of an index in which these transactions (id, first, end) are missing."""
    producer_id, first, end = min(missing, key=itemgetter(2))
    more = f"; {len(missing) - 1} more are missing" if len(missing) > 1 else ""
    return fault(
        path,
        f"It does not name the transaction of producer {producer_id} that offset {end} aborts"
        f"{more}: a broker serves its records, from offset {first} on, as committed",
        reindex(log_path),
    )
