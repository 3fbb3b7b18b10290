"""Scan of one segment: its `.log`, its indexes and its companion.

The log is judged first (walk.py), and the other files are compared with it. After damage, reading
continues at the next whole batch that the offset index names.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.batch import MAGIC, UNKNOWN_COUNT, BatchHeader
from horolog.record.compression import Codec
from horolog.record.markers import Marker, read_marker
from horolog.record.scan import RecordFacts, scan_batch
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP
from horolog.storage import names
from horolog.storage.batches.reader import EVERYTHING, MAX_HELD_BYTES, BatchReader
from horolog.storage.companion.block_map import row_with
from horolog.storage.companion.seal import seal_of_log
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.scan.blocks import BlockEntries
from horolog.storage.scan.companions import AbortedEntries, check_append_times, check_seal
from horolog.storage.scan.entries import OffsetEntries, TimeEntries
from horolog.storage.scan.findings import (
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
from horolog.storage.scan.walk import Walked, WrongChecksum, walk
from horolog.storage.segments.reader import SegmentReader

_MAX_FINDINGS = 100
_MAX_EPOCHS = 10_000
_STEP_BYTES = 4 << 20


MAX_UNCOMPRESSED_BYTES = 1 << 30


def header_fault(header: BatchHeader) -> str | None:
    """Return the reason why no batch can have this header; None if one can."""
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
    """Scan the records of a batch with a valid header and checksum.

    Return their fault or their facts.

    `batch` is None if it is too long to be in memory. The largest timestamp must be that of the
    records. Kafka writes -1 if all are from before 1970; compaction keeps the time of a batch that
    it emptied.
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
    """State of the partition, as far as it matters for the check of one segment."""

    is_active: bool
    """True for the last segment of a partition."""
    is_live: bool
    """True if a broker has the segment open."""
    is_closed_cleanly: bool
    """True if the log was closed cleanly and the next start relies on it."""
    is_recovered: bool
    """True if a start of a broker checks the segment and cuts it at damage."""
    later: tuple[tuple[int, int], ...]
    """Base offset and size of each segment that follows it."""

    @property
    def is_finished(self) -> bool:
        """True if no broker appends to the segment's indexes."""
        return not self.is_active or (self.is_closed_cleanly and not self.is_live)

    def mend(self, bytes_behind: int, offset: int, *, is_cut: bool = True) -> str:
        """Return the advice for damage at an offset, `bytes_behind` before the segment's end.

        `is_cut`: a start that checks the segment cuts it at the damage.
        """
        restore = "restore this segment from a replica or a backup"
        if self.is_live:
            return f"{restore} once the broker that is at work here has been stopped"
        if not (self.is_recovered and is_cut):
            return f"{restore}: no start of a broker checks or repairs it"
        later_bytes = sum(size for _, size in self.later)
        return (
            f"starting a broker cuts the log here: {bytes_behind + later_bytes} bytes, all "
            f"from offset {offset} on, are set aside and not served; {restore} before, if there is "
            "one"
        )


class SegmentScan:
    """One pass over a segment."""

    def __init__(
        self,
        files: Files,
        path: str,
        base_offset: int,
        situation: Situation,
        interval_bytes: int = 4096,
    ) -> None:
        self.facts = SegmentFacts(path=path, base_offset=base_offset, next_offset=base_offset)
        self.index = IndexBuilder(base_offset, interval_bytes)
        """The entries of the indexes, by the batches before the first damage."""
        self._reader: SegmentReader
        self._files = files
        self._situation = situation
        self._stem = path.removesuffix(names.LOG)
        self._reported = 0
        self._follows_damage = False
        # The indexes first: an entry of a live one then is never beyond the log's end.
        self._offsets = OffsetEntries(files, self._stem + names.OFFSET_INDEX, path, base_offset)
        self._times = TimeEntries(files, self._stem + names.TIME_INDEX, path, base_offset)
        self._aborted = AbortedEntries(files, self._stem + names.TXN_INDEX, self.facts)
        self._blocks = BlockEntries(files, base_offset, path)

    def run(self) -> Steps[SegmentFacts | None]:
        """Scan the log, then check the other files. Returns None if the segment is gone."""
        facts = self.facts
        try:
            reader = self._reader = SegmentReader.at(self._files, facts.path, facts.base_offset)
            log, facts.size = reader.batches(EVERYTHING), reader.size
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
        self.index.finish()
        facts.largest = self.index.largest
        yield from self._judge_indexes()
        yield from check_seal(reader, facts)
        yield from check_append_times(reader, facts)
        yield from self._aborted.all_faults(judge=facts.is_sound)
        live = self._situation.is_live and self._situation.is_active
        yield from self._blocks.faults(size=facts.size, is_live=live)
        yield Checked(segments=1)
        return facts

    def _walk_from(self, log: BatchReader, start: int) -> Steps[int | None]:
        """Walk to the end or to damage. Returns the position to continue at; None to stop."""
        facts, position = self.facts, start
        size = batches = records = 0
        try:
            for batch in walk(log, start, facts.next_offset, self._limit()):
                position = batch.position
                for one in batch.singly(log):
                    counted, finding = self._meet_batch(log, one)
                    if finding is not None:
                        yield from self._limited(finding)
                    batches += 1
                    records += counted
                size += batch.end - position
                position = facts.whole_bytes = batch.end
                if size >= _STEP_BYTES:
                    yield Checked(size, batches, records)
                    size = batches = records = 0
            yield Checked(size, batches, records)
        except CorruptBatch as error:
            yield Checked(size, batches, records)
            return (yield from self._report_missing_batch(log, position, error))
        return None

    def _limit(self) -> int | None:
        """Return the base offset of the next segment that a start keeps; None without one."""
        for base_offset, size in self._situation.later:
            # A start, on a disk, leaves out an empty segment that the one before reaches beyond.
            is_local = self._files.is_local
            if size or (is_local and self._reader.walked_end().next_offset <= base_offset):
                return base_offset
        return None

    def _meet_batch(self, log: BatchReader, one: Walked) -> tuple[int, Finding | None]:
        """Judge a batch, and compare the indexes with it. Returns its number of records."""
        position, header = one.position, one.header
        batch = log.batch(position, header) if header.size <= MAX_HELD_BYTES else None
        finding, records = self._judge(one, batch)
        count = max(0, header.records_count) if records is None else records.count
        self.facts.is_sound &= finding is None
        if finding is None:
            self._compare_indexes(position, header, batch)
            self._add_to_facts(header, count)
            if self.facts.is_sound:
                self.index.add(position, header)
        else:
            self._follows_damage = True
            if position >= self._offsets.next_position:
                self._offsets.meet(position, header, None, judge=False)
        if position >= self._blocks.next_position:
            self._blocks.meet(row_with(position, header, batch, records, None))
        return count, finding

    def _judge(
        self, one: Walked, batch: Buffer | None
    ) -> tuple[Finding | None, RecordFacts | None]:
        """Return the finding about a batch, or the facts of its records."""
        facts, position, header = self.facts, one.position, one.header
        if isinstance(one.fault, WrongChecksum):
            end = position + header.size
            if end == facts.size and self._situation.is_live and self._situation.is_active:
                what = "The last batch was being written while it was read; look again later"
                return note(facts.path, what, position=position), None
            what = "The checksum of the batch does not match its bytes"
        elif one.fault is not None:
            what = one.fault.reason[0].upper() + one.fault.reason[1:]
        else:
            wrong = header_fault(header) or records_fault(header, batch)
            if not isinstance(wrong, str):
                return None, wrong
            what = f"The batch is not what it claims to be: {wrong}"
        mend = self._situation.mend(
            facts.size - position, facts.next_offset, is_cut=one.fault is not None
        )
        place = {"position": position, "offset": header.base_offset}
        return damage(facts.path, what, mend, **place), None

    def _limited(self, finding: Finding) -> Iterator[Finding]:
        """Yield a finding, unless too many of its kind were yielded. Later ones are counted."""
        self._reported += 1
        if self._reported <= _MAX_FINDINGS:
            yield finding

    def _compare_indexes(self, position: int, header: BatchHeader, batch: Buffer | None) -> None:
        """Compare the indexes with the next batch of the log."""
        is_sound, last_offset = self.facts.is_sound, header.last_offset
        largest = None if self.index.largest is None else self.index.largest.timestamp
        if position >= self._offsets.next_position:
            self._offsets.meet(position, header, largest, judge=True)
        if last_offset >= self._times.next_offset:
            self._times.meet(position, header, largest, judge=is_sound)
        if header.is_transactional or last_offset >= self._aborted.next_offset:
            marker: Marker | None = None
            if header.is_control and batch is not None:
                with suppress(CorruptBatch):  # none, then
                    marker = read_marker(batch)
            self._aborted.meet(header, marker, judge=is_sound)

    def _add_to_facts(self, header: BatchHeader, records: int) -> None:
        """Add a whole batch to the facts."""
        facts, first, last = self.facts, header.base_offset, header.last_offset
        facts.has_delete_horizon |= header.has_delete_horizon
        facts.missing_offsets += last - first + 1 - records
        if facts.first_offset is None:
            facts.first_offset = first
        elif not self._follows_damage:
            facts.missing_offsets += first - facts.next_offset
        self._follows_damage = False
        facts.next_offset = last + 1
        if facts.epochs and facts.epochs[-1].epoch == header.leader_epoch:
            facts.epochs[-1] = facts.epochs[-1]._replace(last_offset=last)
        elif len(facts.epochs) < _MAX_EPOCHS:
            facts.epochs.append(EpochRun(header.leader_epoch, first, last))

    # Where no batch begins.

    def _report_missing_batch(
        self, log: BatchReader, position: int, error: CorruptBatch
    ) -> Steps[int | None]:
        """Report the bytes where no batch begins.

        Returns the position to continue at; None to stop.
        """
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
                # A start removes the zeros where the seal says that the log ends here.
                is_sealed = seal_of_log(self._reader.companion, position) is not None
                if situation.is_recovered and not is_sealed:
                    shorten += f" while no broker runs; otherwise {mend}"
                yield fault(facts.path, f"{what}, and the segment is finished", shorten, **place)
            return None
        following = next(self._whole_batches_behind(log, position), None)
        if following is not None:
            start, offset = following
            self._follows_damage = True
            yield from self._limited(
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

    def _whole_batches_behind(self, log: BatchReader, position: int) -> Iterator[tuple[int, int]]:
        """Yield position and base offset of later whole batches that the offset index names."""
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
        for index in (self._offsets, self._times):
            if facts.is_sound:
                index.finish(facts.whole_bytes)
            yield from index.faults(may_have_room=not situation.is_finished)
        if self._offsets.groups:
            yield note(
                self._offsets.path,
                f"{self._offsets.groups} entries name the end of several batches that were "
                "appended at once, as a follower writes them",
            )
        last = self._times.last_timestamp
        largest = NO_TIMESTAMP if facts.largest is None else max(-1, facts.largest.timestamp)
        if facts.is_sound and self._times.exists and situation.is_finished and last < largest:
            yield self._times.fault(
                f"Its last entry says {'nothing' if last == NO_TIMESTAMP else last}, and the "
                f"largest timestamp of the segment is {largest}: retention would use that"
            )
