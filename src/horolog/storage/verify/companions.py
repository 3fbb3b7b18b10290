"""Companion files of a segment but for its indexes: seal, append times, aborted transactions."""

from collections.abc import Iterator

from horolog.record.batch import BatchHeader
from horolog.storage import names
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.abort import ENTRY, can_be
from horolog.storage.index.seal import file_crc, matches_aborted, parsed_seal
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.verify.entries import IndexFile, reindex
from horolog.storage.verify.findings import Finding, SegmentFacts, fault, note

_NEVER = 1 << 63
_RECOVERED = "a broker rebuilds it from the log's markers when it starts"


def check_append_times(reader: SegmentReader, facts: SegmentFacts) -> Iterator[Finding]:
    """Whether the file of append times is intact, and for how many records it has none."""
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
    ends = [*(each.offset for each in stretches[1:]), facts.next_offset]
    counted = list(zip(stretches, ends, strict=True))
    unknown = sum(end - each.offset for each, end in counted if each.ms is None)
    seen = sum(end - each.offset for each, end in counted if each.is_seen)
    if unknown:
        what = f"It does not say when {unknown} offsets were appended: not by horolog, or not known"
        yield note(times.path, what)
    if seen:
        what = f"It says of {seen} offsets when a follower saw them, not when they were appended"
        yield note(times.path, what)


def check_seal(reader: SegmentReader, facts: SegmentFacts) -> Iterator[Finding]:
    """Whether the segment's seal is of this log, and matches it if it is."""
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
    facts.was_emptied = not facts.size
    if facts.is_sound and (seal.next_offset, seal.largest) != (facts.next_offset, facts.largest):
        yield fault(
            path,
            f"It says that the segment ends before offset {seal.next_offset} and has "
            f"{_time(seal.largest)}; the log ends before {facts.next_offset} and has "
            f"{_time(facts.largest)}",
            mend,
        )
    for suffix, size, crc in (
        (names.OFFSET_INDEX, seal.offset_index_size, seal.offset_index_crc),
        (names.TIME_INDEX, seal.time_index_size, seal.time_index_crc),
    ):
        index = reader.path_of(suffix)
        if files.exists(index) and (files.size(index), file_crc(files, index)) != (size, crc):
            yield note(
                index, "It was changed since it was sealed, and is checked at every use", mend
            )
    aborted = reader.path_of(names.TXN_INDEX)
    if not matches_aborted(files, aborted, seal, exists=files.exists(aborted)):
        yield fault(
            aborted, "It is missing, or was changed since the segment was finished", _RECOVERED
        )


def _time(largest: tuple[int, int] | None) -> str:
    if largest is None:
        return "no timestamp"
    return f"its largest timestamp {largest[0]} up to offset {largest[1]}"


class AbortedEntries:
    """The index of aborted transactions of a segment, compared with the log while that is read."""

    def __init__(self, files: Files, path: str) -> None:
        self.next_offset = _NEVER
        """Batches that end before it need not be passed to `meet`."""
        self._file = IndexFile(files, path, ENTRY, _RECOVERED)
        self._last_offset = -1
        self._entries = self._file.entries()
        self._number = self._producer_id = -1
        self._advance()

    def meet(self, header: BatchHeader, *, judge: bool) -> None:
        """Compare the entries up to the end of a batch with it: each ends with a marker."""
        while self.next_offset <= header.last_offset:
            is_marker = (
                header.is_control
                and header.base_offset <= self.next_offset
                and header.producer_id == self._producer_id
            )
            if judge and not is_marker:
                self._file.wrong(self._number, f"ends with offset {self.next_offset}, no marker")
            self._advance()

    def faults(self, *, judge: bool) -> Iterator[Finding]:
        """What is wrong with it, after all batches."""
        while judge and self._number >= 0:
            self._file.wrong(self._number, f"ends with {self.next_offset}, beyond the log's end")
            self._advance()
        if self._file.exists:
            yield from self._file.faults(may_have_room=False)

    def _advance(self) -> None:
        for number, version, producer_id, first, last, _ in self._entries:
            if can_be(version, first, last) and last > self._last_offset:
                self._number, self._producer_id = number, producer_id
                self.next_offset = self._last_offset = last
                return
            self._file.wrong(number, f"cannot be: version {version}, from offset {first} to {last}")
        self._number, self.next_offset = -1, _NEVER
