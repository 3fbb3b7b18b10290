"""One segment: its `.log` from the first byte to the last, and its companion files.

The log is checked first, the indexes are compared with it. After damage, reading continues
at the next whole batch that the offset index names.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.batch import MAGIC, UNKNOWN_COUNT, BatchHeader
from horolog.record.compression import Codec
from horolog.record.markers import Marker, read_marker
from horolog.record.old_format.plain import PlainMessages, largest_of
from horolog.record.scan import RecordFacts, scan_batch
from horolog.record.time_stats import UNREADABLE
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP
from horolog.storage import names
from horolog.storage.batches.log_file import TimeEntry
from horolog.storage.batches.reader import EVERYTHING, MAX_HELD_BYTES, BatchReader
from horolog.storage.companion.block_map import row_with
from horolog.storage.companion.block_messages import rows_of
from horolog.storage.companion.folding import block_of
from horolog.storage.companion.seal import read_seal
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.builder import is_later
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.verify.blocks import BlockEntries
from horolog.storage.verify.companions import AbortedEntries, check_append_times, check_seal
from horolog.storage.verify.entries import IndexFile, OffsetEntries, TimeEntries, reindex
from horolog.storage.verify.findings import (
    Checked,
    EpochRun,
    Finding,
    Findings,
    SegmentFacts,
    Steps,
    damage,
    fault,
    note,
)

_MAX_FINDINGS = 100
_MAX_EPOCHS = 10_000
_STEP_BYTES = 4 << 20


MAX_UNCOMPRESSED_BYTES = 1 << 30


def header_fault(header: BatchHeader) -> str | None:
    """What is impossible in a header, whatever the records are."""
    count, last = header.records_count, header.last_offset_delta
    if not 0 <= count <= last + 1 and not (header.magic != MAGIC and count == UNKNOWN_COUNT):
        return f"it claims {count} records within the {last + 1} offsets it covers"
    if header.base_offset < 0:
        return f"its base offset is {header.base_offset}"
    if header.leader_epoch < -1:
        return f"its leader epoch is {header.leader_epoch}"
    codec = header.codec_number
    if codec > (Codec.ZSTD if header.magic == MAGIC else Codec.LZ4):
        return f"there is no compression codec {codec}"
    return None


def records_fault(header: BatchHeader, batch: Buffer | None) -> str | RecordFacts:
    """What is wrong with the records of a batch whose header and checksum are good, or their facts.

    `batch` is None where it is too long to be in memory. The largest timestamp must be the
    records' own. Kafka writes -1 over records that are all from before 1970; compaction keeps
    it for a batch that it has emptied.
    """
    if batch is None:
        return f"its {header.size} bytes are too many for its records to be looked at"
    try:
        facts = scan_batch(batch, header, max_bytes=MAX_UNCOMPRESSED_BYTES, create_times=True)
    except (CorruptBatch, RequestRefused) as error:
        return str(error)
    if not facts.growing_offsets or facts.last_offset_delta > header.last_offset_delta:
        return "the offsets of its records do not grow within those it covers"
    largest = facts.max_timestamp
    claimed = header.max_timestamp
    if header.timestamp_type is LOG_APPEND_TIME or facts.count == 0:
        return facts
    if claimed == (NO_TIMESTAMP if largest is None else largest):
        return facts
    if claimed == NO_TIMESTAMP and largest is not None and largest < 0:
        return facts
    return f"its header says {claimed} for the largest timestamp and its records {largest}"


class Situation(NamedTuple):
    """What must be known about the partition to check a segment."""

    is_active: bool
    """It is the last of its partition."""
    is_live: bool
    """A broker has it open."""
    is_closed_cleanly: bool
    """The log was closed cleanly, and the next start relies on that."""
    is_recovered: bool
    """A broker that starts checks this segment, and cuts it where it is damaged."""
    later_bytes: int
    """Bytes in the segments that follow it."""
    limit: int | None = None
    """Base offset of the next segment that is not empty; None if there is none."""

    @property
    def is_finished(self) -> bool:
        """No broker appends to its indexes as they are."""
        return not self.is_active or (self.is_closed_cleanly and not self.is_live)

    def reaches_next(self, last_offset: int) -> bool:
        """Whether a batch that ends with this offset overlaps the next segment."""
        return self.limit is not None and last_offset >= self.limit

    def mend(self, bytes_behind: int, offset: int, *, is_cut: bool = True) -> str:
        """How to repair damage at an offset, `bytes_behind` before the segment's end.

        `is_cut`: a start that checks the segment cuts it there.
        """
        restore = "restore this segment from a replica or a backup"
        if self.is_live:
            return f"{restore} once the broker that is at work here has been stopped"
        if not (self.is_recovered and is_cut):
            return f"{restore}: no start of a broker checks or repairs it"
        return (
            f"starting a broker cuts the log here: {bytes_behind + self.later_bytes} bytes, all "
            f"from offset {offset} on, are set aside and not served; {restore} before, if there is "
            "one"
        )


def check_segment(
    files: Files, path: str, base_offset: int, situation: Situation
) -> Steps[SegmentFacts | None]:
    """Check one segment; returns its `SegmentFacts`, None if it is gone."""
    walk = SegmentWalk(files, path, base_offset, situation)
    return (yield from walk.run())


class SegmentWalk:
    """One pass over one segment."""

    def __init__(self, files: Files, path: str, base_offset: int, situation: Situation) -> None:
        self.facts = SegmentFacts(path=path, base_offset=base_offset, next_offset=base_offset)
        self._reader: SegmentReader
        self._files = files
        self._situation = situation
        self._stem = path.removesuffix(names.LOG)
        self._reported = 0
        self._count = 0  # records of the latest batch
        self._follows_damage = False
        # The indexes first: an entry of a live one then is never beyond the log's end.
        offsets = IndexFile(
            files, self._stem + names.OFFSET_INDEX, OffsetEntries.LAYOUT, reindex(path)
        )
        times = IndexFile(files, self._stem + names.TIME_INDEX, TimeEntries.LAYOUT, reindex(path))
        self._offsets = OffsetEntries(offsets, base_offset)
        self._times = TimeEntries(times, base_offset)
        self._aborted = AbortedEntries(files, self._stem + names.TXN_INDEX, self.facts)
        self._marker: Marker | None = None  # of the latest batch
        self._blocks = BlockEntries(files, base_offset, path)
        self._scanned: RecordFacts | None = None  # of the latest batch

    def run(self) -> Steps[SegmentFacts | None]:
        """Read the log, then check its companion files."""
        facts = self.facts
        try:
            reader = self._reader = SegmentReader.at(self._files, facts.path, facts.base_offset)
            log, facts.size = reader.batches(EVERYTHING), reader.size
            log.in_any_order = True  # it is judged here
        except FileMissing:
            if self._situation.is_live:
                yield note(facts.path, "The broker that is at work here has taken it away")
            else:
                yield damage(facts.path, "The segment is gone")
            return None
        start: int | None = 0
        while start is not None:
            start = yield from self._walk_from(log, start)
        if self._reported > _MAX_FINDINGS:
            more = self._reported - _MAX_FINDINGS
            yield damage(facts.path, f"{more} further batches are damaged")
        if facts.missing_offsets:
            yield note(
                facts.path,
                f"{facts.missing_offsets} offsets are in no batch, as compaction leaves it",
            )
        yield from self._judge_indexes()
        yield from check_seal(reader, facts)
        yield from check_append_times(reader, facts)
        yield from self._aborted.faults(judge=facts.is_sound)
        live = self._situation.is_live and self._situation.is_active
        yield from self._blocks.faults(size=facts.size, is_live=live)
        yield Checked(segments=1)
        return facts

    def _walk_from(self, log: BatchReader, start: int) -> Steps[int | None]:
        """Walk up to the end or to damage; where to continue after it, None to stop."""
        facts, position = self.facts, start
        size = batches = records = 0
        try:
            for position, first, listed in log.stretches(start, check_crcs=True):
                if listed is not None and self._meet_messages(log, position, listed):
                    batches += len(listed.positions)
                    records += len(listed.positions)
                    size += listed.end
                    position = facts.whole_bytes = position + listed.end
                else:
                    singly: Iterable[tuple[int, BatchHeader]] = ((position, first),)
                    if listed is not None:
                        singly = log.headers(position, position + listed.end)
                    for at, header in singly:
                        yield from self._meet_batch(log, at, header)
                        batches += 1
                        records += self._count
                        size += header.size
                        position = facts.whole_bytes = at + header.size
                if size >= _STEP_BYTES:
                    yield Checked(size, batches, records)
                    size = batches = records = 0
            yield Checked(size, batches, records)
        except CorruptBatch as error:
            yield Checked(size, batches, records)
            return (yield from self._explain(log, position, error))
        return None

    def _meet_batch(
        self, log: BatchReader, position: int, header: BatchHeader
    ) -> Iterator[Finding]:
        batch = log.batch(position, header) if header.size <= MAX_HELD_BYTES else None
        finding = self._judge(log, position, header, batch)
        if finding is not None:
            self.facts.is_sound = False
            yield from self._some(finding)
        self._marker = None
        if finding is None and header.is_control and batch is not None:
            with suppress(CorruptBatch):  # none, then
                self._marker = read_marker(batch)
        self._meet(position, header, is_good=finding is None)
        if position >= self._blocks.next_position:
            self._blocks.meet(row_with(position, header, batch, self._scanned, None))

    def _meet_messages(self, log: BatchReader, position: int, listed: PlainMessages) -> bool:
        """Note plain messages whose checksums are right; False, and nothing, if any has a fault."""
        facts, positions, offsets = self.facts, listed.positions, listed.offsets
        if (
            header_fault(listed.header) is not None
            or offsets[0] < facts.next_offset
            or offsets[-1] - facts.base_offset > names.MAX_RELATIVE_OFFSET
            or self._situation.reaches_next(offsets[-1])
        ):
            return False
        data = log.start_of(position, listed.end)
        edges = self._blocks.edges(position, position + listed.end)
        rows = list(rows_of(data, position, listed, None, offsets[0], edges))
        if any(block_of(row).times.flags & UNREADABLE for row in rows):
            return False
        self._count = 1
        first, count = 0, len(positions)
        while first < count:
            indexed = min(
                bisect_left(positions, self._offsets.next_position - position, first),
                bisect_left(offsets, self._times.next_offset, first),
                bisect_left(offsets, self._aborted.next_offset, first),
            )
            if indexed > first:
                self._note(listed, first, indexed)
            if indexed < count:
                at = position + positions[indexed]
                self._meet(at, listed.header_of(indexed), is_good=True)
            first = indexed + 1
        for row in rows:
            self._blocks.meet(row)
        return True

    def _note(self, listed: PlainMessages, first: int, end: int) -> None:
        """Note messages that no entry of an index is about."""
        facts, offsets, times = self.facts, listed.offsets, listed.times[first:end]
        largest = largest_of(times)
        if is_later(largest, facts.largest):
            facts.largest = TimeEntry(largest, offsets[first + times.index(largest)])
        self._note_offsets(listed.header.leader_epoch, offsets[first], offsets[end - 1])
        facts.missing_offsets += offsets[end - 1] - offsets[first] + 1 - (end - first)

    def _judge(
        self, log: BatchReader, position: int, header: BatchHeader, batch: Buffer | None
    ) -> Finding | None:
        """What is wrong with a batch; how many records it has is noted."""
        facts, is_cut = self.facts, True
        self._count, self._scanned = max(0, header.records_count), None
        if not _has_its_checksum(log, position, header):
            end = position + header.size
            if end == facts.size and self._situation.is_live and self._situation.is_active:
                return note(
                    facts.path,
                    "The last batch was being written while it was read; look again later",
                    position=position,
                )
            what = "The checksum of the batch does not match its bytes"
        elif header.base_offset < facts.next_offset:
            what = (
                f"The batch begins with offset {header.base_offset}, and {facts.next_offset} or "
                "more must follow"
            )
        elif self._situation.reaches_next(header.last_offset):
            what = (
                f"The batch ends with offset {header.last_offset}, and the next segment begins "
                f"with {self._situation.limit}"
            )
        elif header.last_offset - facts.base_offset > names.MAX_RELATIVE_OFFSET:
            what = (
                f"The batch ends with offset {header.last_offset}, too far from the segment's "
                f"{facts.base_offset} for an index"
            )
        elif isinstance(wrong := header_fault(header) or records_fault(header, batch), str):
            what, is_cut = f"The batch is not what it claims to be: {wrong}", False
        else:
            self._count, self._scanned = wrong.count, wrong
            return None
        return damage(
            facts.path,
            what,
            self._situation.mend(facts.size - position, facts.next_offset, is_cut=is_cut),
            position=position,
            offset=header.base_offset,
        )

    def _some(self, finding: Finding) -> Iterator[Finding]:
        """Yield the first of many findings; the rest are counted."""
        self._reported += 1
        if self._reported <= _MAX_FINDINGS:
            yield finding

    def _meet(self, position: int, header: BatchHeader, *, is_good: bool) -> None:
        """Note a batch, and compare the indexes with it."""
        facts = self.facts
        last_offset = header.base_offset + header.last_offset_delta
        if position >= self._offsets.next_position:
            self._offsets.meet(position, header, judge=is_good)
        if not is_good:
            self._follows_damage = True
            return
        if last_offset >= self._times.next_offset:
            largest = None if facts.largest is None else facts.largest.timestamp
            self._times.meet(header, largest, judge=facts.is_sound)
        if header.is_transactional or last_offset >= self._aborted.next_offset:
            self._aborted.meet(header, self._marker, judge=facts.is_sound)
        if is_later(header.max_timestamp, facts.largest):
            facts.largest = TimeEntry(header.max_timestamp, last_offset)
        self._note_offsets(header.leader_epoch, header.base_offset, last_offset)
        facts.missing_offsets += header.last_offset_delta + 1 - self._count
        facts.has_delete_horizon |= header.has_delete_horizon

    def _note_offsets(self, epoch: int, first_offset: int, last_offset: int) -> None:
        facts = self.facts
        if facts.first_offset is None:
            facts.first_offset = first_offset
        elif not self._follows_damage:
            facts.missing_offsets += first_offset - facts.next_offset
        self._follows_damage = False
        facts.next_offset = last_offset + 1
        if facts.epochs and facts.epochs[-1].epoch == epoch:
            facts.epochs[-1] = facts.epochs[-1]._replace(last_offset=last_offset)
        elif len(facts.epochs) < _MAX_EPOCHS:
            facts.epochs.append(EpochRun(epoch, first_offset, last_offset))

    # Where no batch begins.

    def _explain(self, log: BatchReader, position: int, error: CorruptBatch) -> Steps[int | None]:
        """Report what is where a batch should begin; where to continue after it, None to stop."""
        facts, situation, rest = self.facts, self._situation, self.facts.size - position
        was_sound, facts.is_sound = facts.is_sound, False
        mend = situation.mend(rest, facts.next_offset)
        place = {"position": position, "offset": facts.next_offset}
        if log.is_zeros(position):
            facts.is_sound = was_sound
            what = f"{rest} bytes of zeros are at its end"
            if situation.is_active:
                yield note(facts.path, f"{what}, as preallocation or a power loss leave them")
            else:
                shorten = f"truncate -s {position} {facts.path}"
                if situation.is_recovered and not self._is_sealed_at(position):
                    shorten += f" while no broker runs; otherwise {mend}"
                yield fault(
                    facts.path, f"{what}, and the segment is finished", shorten, **place
                )
            return None
        following = next(self._whole_batches_behind(log, position), None)
        if following is not None:
            start, offset = following
            self._follows_damage = True
            yield from self._some(
                damage(
                    facts.path,
                    f"No batch begins here: {error.reason}; {start - position} bytes up to offset "
                    f"{offset} cannot be read, the next whole batch begins at byte {start}",
                    mend,
                    **place,
                )
            )
            return start
        if situation.is_live and situation.is_active:
            yield note(
                facts.path,
                f"{rest} bytes at the end are no whole batch: a broker is writing here, and the "
                "end may move",
                None,
                **place,
            )
            return None
        yield damage(
            facts.path,
            f"No whole batch begins here: {error.reason}; {rest} bytes, from offset "
            f"{facts.next_offset} on, cannot be read",
            mend,
            **place,
        )
        return None

    def _is_sealed_at(self, size: int) -> bool:
        """Whether the seal says that the log ends here, so that a start removes what follows."""
        seal = read_seal(self._reader.companion)
        return seal is not None and seal.last.end == size and seal.last.is_in(self._reader.log)

    def _whole_batches_behind(self, log: BatchReader, position: int) -> Iterator[tuple[int, int]]:
        """Position and base offset of whole batches that the offset index names."""
        for place, offset in self._offsets.skip_to(position):
            try:
                _, header = next(log.headers(place))
                log.check(place, header)
            except (CorruptBatch, StopIteration):
                continue
            is_known = header.last_offset == offset and header.base_offset >= self.facts.next_offset
            if is_known and header_fault(header) is None:
                yield place, header.base_offset

    # The indexes, after all batches.

    def _judge_indexes(self) -> Findings:
        facts, situation = self.facts, self._situation
        judged = facts.is_sound
        self._offsets.finish(facts.whole_bytes, judge=judged)
        self._times.finish(judge=judged)
        for entries in (self._offsets, self._times):
            yield from entries.file.faults(may_have_room=not situation.is_finished)
        if self._offsets.groups:
            yield note(
                self._offsets.file.path,
                f"{self._offsets.groups} entries name the end of several batches that were "
                "appended at once, as a follower writes them",
            )
        last = self._times.last_timestamp
        largest = NO_TIMESTAMP if facts.largest is None else max(-1, facts.largest.timestamp)
        if judged and self._times.file.exists and situation.is_finished and last < largest:
            yield self._times.file.fault(
                f"Its last entry says {'nothing' if last == NO_TIMESTAMP else last}, and the "
                f"largest timestamp of the segment is {largest}: retention would use that"
            )


def _has_its_checksum(log: BatchReader, position: int, header: BatchHeader) -> bool:
    try:
        log.check(position, header)
    except CorruptBatch:
        return False
    return True
