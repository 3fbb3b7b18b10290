"""Recovers the segments of one partition: what is a whole batch stays, the rest is set aside.

Invariant: after `open`, the segments are in offset order, no two share an offset, and each ends
with a batch that is whole, as far as that was not sure before.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, CorruptIndex, StorageFailed
from horolog.record.batch import HEADER_SIZE
from horolog.storage import names
from horolog.storage.batches.log_file import SegmentEnd
from horolog.storage.batches.reader import EVERYTHING
from horolog.storage.batches.whole import is_torn_tail
from horolog.storage.companion.seal import read_seal
from horolog.storage.directory.checkpoint_ids import Checkpointed
from horolog.storage.directory.checkpoints import EpochStart
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.logs.append_time_floor import AppendTimes
from horolog.storage.names import TopicPartition
from horolog.storage.producers.replay import aborted_by_segment, rebuild_aborted
from horolog.storage.removal import leftovers
from horolog.storage.removal.set_aside import keep_segment, keep_stretch
from horolog.storage.scan.walk import walk
from horolog.storage.segments.segment import Segment


class LoadPlan(NamedTuple):
    """Settings and checkpoints with which a partition's directory is opened."""

    config: TopicConfig
    now_ms: int
    is_clean: bool
    checkpointed: Checkpointed = Checkpointed()
    topic_id: UUID | None = None
    """Id of a topic that is known; written where the directory has none."""
    is_adopted: bool = False
    follows: bool = False
    """The log takes the batches of a source: its leader owns the epochs, and what recovery cuts off
    comes again. The high watermark is that of the checkpoint."""
    max_batch_uncompressed_bytes: int = 1 << 30
    known_epoch: int = -1
    """The leader epoch that the metadata have; -1 if it is not known."""
    succeeds_another: bool = False
    """Another broker led the partition last."""
    whole_up_to: tuple[int, int] = (0, 0)
    """A segment's base offset and a byte of it: a log that is damaged before is left as it is."""
    is_ended: Callable[[], bool] = lambda: False
    """Returns True if the opening is to end, before the next segment."""


@dataclass(slots=True)
class Recovery:
    """Findings and actions of opening a partition; `notes` are sentences for the log."""

    partition: TopicPartition
    checked_bytes: int = 0
    removed_bytes: int = 0
    """Cut off the log, or set aside."""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """Sentences like the notes about which the operator has to do something."""

    @property
    def has_findings(self) -> bool:
        """True if anything differs from what a clean stop leaves."""
        return bool(self.notes or self.warnings)


class SegmentRecovery:
    """Opens and recovers the segments of one directory; notes go to the report."""

    def __init__(
        self,
        files: Files,
        directory: str,
        plan: LoadPlan,
        report: Recovery,
        append_times: AppendTimes,
        recovery_point: int | None,
    ) -> None:
        """Prepare to recover a directory without leftovers.

        Args:
            append_times: of the partition; learn what recovery finds in batches.
            recovery_point: all records before this offset are sure; None if that is unknown.
        """
        self.segments: list[Segment] = []
        """In offset order; empty until `open`."""
        self.epochs: list[EpochStart] = []
        """The leader epochs of the batches that were walked."""
        self.is_foreign = False
        """Whether it was not horolog that last closed the log."""
        self._files = files
        self._directory = directory
        self._plan = plan
        self._report = report
        self._append_times = append_times
        self._recovery_point = recovery_point
        self._unproved: set[int] = set()  # base offsets of segments that no broker of ours finished
        self._with_markers: set[int] = set()  # base offsets, as far as segments were recovered
        self._changed_aborted: set[int] = set()  # of segments whose `.txnindex` has no fitting seal

    def open(self, present: set[str]) -> None:
        """Open the segments whose files are `present`, and recover those after the recovery point.

        Raises:
            StorageFailed: the disk refused, or a file has a name that no segment can have.
            CorruptBatch: one is damaged before `whole_up_to` of the plan; none is cut.
        """
        self._find_segments(present)
        self._drop_empty_segments()
        if not self.segments:
            return
        first = len(self.segments) - 1 if self._plan.is_clean else self._first_unsure()
        self._compare_with_seals(present, first)
        if self._plan.is_clean:
            self._open_active()
        else:
            self._recover_from(first)

    def set_aside_all(self, why: str) -> None:
        """Take all segments out of the log, with a warning that says why.

        Raises:
            StorageFailed: the disk refused.
        """
        self._set_aside(self.segments, why)
        self.segments = []

    def _find_segments(self, present: set[str]) -> None:
        for base_offset in leftovers.base_offsets(present, names.LOG):
            if base_offset > names.MAX_BASE_OFFSET:
                raise StorageFailed(
                    f"{self._directory}/{names.segment_file(base_offset, names.LOG)} begins at an "
                    f"offset beyond {names.MAX_BASE_OFFSET}, the largest that a segment can have"
                )
            path = f"{self._directory}/{names.segment_file(base_offset, names.LOG)}"
            segment = Segment(
                self._files,
                self._directory,
                base_offset,
                self._plan.config,
                size=self._files.size(path),
                has_aborted=names.segment_file(base_offset, names.TXN_INDEX) in present,
            )
            self.segments.append(segment)

    def _drop_empty_segments(self) -> None:
        """Leave out segments without a batch where the one before reaches beyond their offset.

        A roll that the disk refuses half-way can leave one, and the log continues in the segment
        before it: taken for a part of the log, it would hide those records.
        """
        kept: list[Segment] = []
        before: Segment | None = None  # the last that is not empty
        for segment in self.segments:
            is_empty = not segment.size
            if segment.size and self._plan.config.preallocate:
                is_empty = not any(self._files.read_at(segment.log.open(), HEADER_SIZE, 0))
            if not is_empty:
                before = segment
            elif before is not None and before.walked_end().next_offset > segment.base_offset:
                self._report.notes.append(f"Left out {segment.log.path}: there is no batch in it")
                if not self._plan.is_adopted:
                    self._remove(segment)
                continue
            kept.append(segment)
        self.segments = kept

    def _remove(self, segment: Segment) -> None:
        segment.abandon()
        for suffix in names.SEGMENT_SUFFIXES:
            self._files.remove(segment.path_of(suffix))

    def _open_active(self) -> None:
        active = self.segments[-1]
        seal = active.indexes.seal_facts(active.size)
        if seal is not None:
            active.end = SegmentEnd(active.size, seal.next_offset)
            return
        self.is_foreign = True
        try:
            facts = active.indexes.scan(active.size)
        except CorruptBatch as error:
            self._report.notes.append(f"It was marked clean, but is damaged: {error}")
            self._recover_from(len(self.segments) - 1)
            return
        self._take_over(active, facts)

    def _first_unsure(self) -> int:
        """Return the index of the segment with the recovery point, from which on recovery walks.

        A backup comes without a recovery point; there only its end can be torn, and a damaged
        bit in its middle is no reason to cut off the rest.
        """
        last = len(self.segments) - 1
        point = self._recovery_point
        if point is None:
            return last if self._plan.is_adopted else 0
        bases = [segment.base_offset for segment in self.segments]
        return max(0, bisect_right(bases, point) - 1)

    def _compare_with_seals(self, present: set[str], unsure: int) -> None:
        """Report files that differ from the seals of their finished segments.

        That is an index of aborted transactions that is missing or another, and a finished log of
        another length. Zeros behind its own last bytes are no batches. What follows one that is
        shorter is still read, as after the gaps that Kafka's compaction leaves, unless the segment
        is `unsure`: the disk never had to have more of it, and what it lacks may have been cut off
        in the middle of a batch.
        """
        for index, segment in enumerate(self.segments):
            if names.segment_file(segment.base_offset, names.COMPANION) not in present:
                continue
            seal = read_seal(segment.companion)
            if seal is None:
                continue
            # The disk is not asked where neither has an index of aborted transactions.
            if segment.has_aborted or seal.aborted.size:
                is_same = seal.aborted.is_of(self._files, segment.path_of(names.TXN_INDEX))
                is_of_log = seal.last.end == segment.size and seal.last.is_in(segment.log)
                if is_of_log and not is_same:
                    self._changed_aborted.add(segment.base_offset)
            size = seal.last.end
            if index + 1 == len(self.segments) or size == segment.size:
                continue
            if size > segment.size:
                self._report.warnings.append(
                    f"{segment.log.path} has {segment.size} bytes, and had {size} when it "
                    f"was finished: unless another broker has compacted it, records before offset "
                    f"{seal.next_offset} are lost, and reads skip them. Restore it from a backup"
                )
                if index < unsure:
                    self._recover(index, ends_log=False)
            elif seal.last.is_in(segment.log) and segment.batches().is_zeros(size):
                self._report.notes.append(
                    f"Left out the zeros from byte {size} of {segment.log.path} on"
                )
                if not self._plan.is_adopted:
                    self._files.truncate(segment.log.open(), size)
                segment.end = SegmentEnd(size, seal.next_offset)

    def _recover_from(self, first: int) -> None:
        for index in range(first, len(self.segments)):
            if self._plan.is_ended():
                raise StorageFailed("the opening of the log was ended")
            if self._recover(index):
                break
        if self._drop_empty_end() and len(self.segments) <= first:
            self._recover_from(len(self.segments) - 1)

    def _recover(self, index: int, *, ends_log: bool = True) -> bool:
        """Cut a damaged segment, and with `ends_log` the log; True if it was damaged."""
        segment = self.segments[index]
        before = segment.size
        later = self.segments[index + 1 : index + 2]
        limit = later[0].base_offset if later else None
        facts, damage = _walk_checked(segment, self._plan.config, limit)
        self._report.checked_bytes += before
        if damage is not None:
            if (segment.base_offset, facts.end) < self._plan.whole_up_to:
                raise damage
            if ends_log:
                # The last first: a kill in between leaves the damage to be found again.
                self._set_aside(self.segments[index + 1 :], "it follows the damage")
                del self.segments[index + 1 :]
            kept = segment.companion_before_cut()  # while the last batch that it covers is there
            self._cut(segment, facts, damage)
        self._take_over(segment, facts)
        segment.forget_aborted_from(facts.next_offset)  # also of markers that the disk never had
        if damage is not None:
            segment.cut_companion(kept)
        if facts.has_markers:
            self._with_markers.add(segment.base_offset)
        return damage is not None

    def _drop_empty_end(self) -> bool:
        """End a log that was cut where its records end, and not behind a gap; whether it did not.

        A Kafka's compaction leaves such gaps, too: the end of an adopted log stays.
        """
        found = False
        while (
            self._report.removed_bytes
            and not self._plan.is_adopted
            and len(self.segments) > 1
            and not (last := self.segments[-1]).size
            and self.segments[-2].walked_end().next_offset < last.base_offset
        ):
            self._report.notes.append(f"Left out {last.log.path}: there is no batch in it")
            self._remove(self.segments.pop())
            found = True
        return found

    def _take_over(self, segment: Segment, facts: IndexBuilder) -> None:
        segment.adopt(facts)
        self._append_times.found(facts.last_append_time, facts.next_offset)
        self.epochs += facts.epochs

    def _cut(self, segment: Segment, facts: IndexBuilder, damage: CorruptBatch) -> None:
        lost = segment.size - facts.end
        self._report.removed_bytes += lost
        file = segment.log.open()
        cut = f"Cut {lost} bytes off {segment.log.path}: {damage}"
        plan, end = self._plan, segment.size
        is_torn = is_torn_tail(self._files, file, facts.end, segment.size)
        if not is_torn or plan.is_adopted:
            times = segment.append_times.kept_from(facts.next_offset)
            kept = keep_stretch(self._files, file, facts.end, end, plan.now_ms, times)
            cut = f"{cut}. They are set aside in {kept}"
        if is_torn:
            self._report.notes.append(cut)
        else:
            self._report.warnings.append(f"{cut}; {names.SEE_VERIFY}")
        self._files.truncate(file, facts.end)

    def _set_aside(self, segments: Sequence[Segment], why: str) -> None:
        """Take whole segments out of the log."""
        for segment in reversed(segments):
            times = segment.append_times.kept_from(segment.base_offset)
            segment.abandon()
            if not segment.size:
                self._remove(segment)
                continue
            self._report.removed_bytes += segment.size
            base_offset, now_ms = segment.base_offset, self._plan.now_ms
            kept = keep_segment(self._files, self._directory, base_offset, now_ms, times)
            self._report.warnings.append(
                f"Took {segment.log.path} of {segment.size} bytes out of the log: {why}. It is set "
                f"aside in {kept}; {names.SEE_VERIFY}"
            )

    def learn_from_last_batches(self) -> None:
        """Derive epochs and append times of a foreign log from its last batches."""
        for segment in reversed(self.segments):
            if segment.size:
                try:
                    facts = segment.indexes.scan(segment.size)
                except CorruptBatch:
                    return
                self.epochs = facts.epochs
                self._append_times.found(facts.last_append_time, facts.next_offset)
                return

    def mend_missing_indexes(self, present: set[str]) -> None:
        """Rebuild from its log each index that a finished segment lacks.

        A copy without the offset index may lack the index of aborted transactions, too, which
        most segments never have: it is then rebuilt as well, as Kafka does.
        """
        for segment in self.segments[:-1]:
            needed = [
                names.segment_file(segment.base_offset, suffix)
                for suffix in (names.OFFSET_INDEX, names.TIME_INDEX)
            ]
            missing = [name for name in needed if name not in present]
            if missing and segment.size:
                self._report.notes.append(f"Rebuilt from {segment.log.path}: {', '.join(missing)}")
                try:
                    segment.indexes.check(segment.size)
                except CorruptBatch as error:
                    self._report.notes.append(f"{segment.log.path} is damaged: {error}")
                if segment.indexes.has_markers and needed[0] in missing:
                    self._with_markers.add(segment.base_offset)

    def rebuild_aborted(
        self, snapshots: list[int], replayed: Mapping[int, Sequence[AbortedTxn]]
    ) -> None:
        """Rebuild indexes of aborted transactions: damaged, missing, or of recovered segments.

        What is missing or another is noticed by the segment's seal. Without one, what is missing is
        where the segment was replayed, as in a copy that has no snapshots of producers either.

        Args:
            snapshots: offsets of the snapshots of producers.
        """
        for index, segment in enumerate(self.segments):
            base, path = segment.base_offset, segment.path_of(names.TXN_INDEX)
            is_unsure = base in self._with_markers
            is_missing = bool(replayed.get(base)) and not segment.has_aborted
            if (is_missing or base in self._changed_aborted) and not is_unsure:
                how = "is not as it was finished" if segment.has_aborted else "is missing"
                self._report.notes.append(f"Rebuilt from the log: {path} {how}")
                is_unsure = True
            try:
                segment.aborted()
            except CorruptIndex as error:
                self._report.notes.append(f"Rebuilt from the log: {error}")
                is_unsure = True
            if is_unsure and base in replayed:
                segment.write_aborted(replayed[base])
            elif is_unsure:
                rebuild_aborted(self._files, self._directory, self.segments, index, snapshots)
        if self._unproved:
            self._prove_aborted(snapshots)

    def note_unproved(self, present: set[str]) -> None:
        """Report segments of an adopted log whose `.txnindex` no seal proves.

        Kafka serves aborted records as committed where that file is lost. An adopted log remains as
        it is, since Kafka may go on with it.
        """
        if self._plan.is_adopted:
            return
        self._unproved = {
            segment.base_offset
            for segment in (self.segments if self.is_foreign else self.segments[:-1])
            if segment.size
            and names.segment_file(segment.base_offset, names.COMPANION) not in present
            and read_seal(segment.companion) is None
        }

    def _prove_aborted(self, snapshots: list[int]) -> None:
        """Compare the indexes of aborted transactions with the log, and seal them."""
        by_segment = aborted_by_segment(self._files, self._directory, self.segments, snapshots)
        for segment, found in by_segment:
            if segment.base_offset not in self._unproved:
                continue
            ends = {entry.last_offset for entry in found}
            if not ends <= {entry.last_offset for entry in segment.aborted()}:
                path = segment.path_of(names.TXN_INDEX)
                self._report.notes.append(f"Rebuilt from the log: {path} lacks what was aborted")
                segment.write_aborted(found)
            if segment is self.segments[-1]:
                continue  # sealed when it is finished
            try:
                segment.indexes.check(segment.size)
            except CorruptBatch as error:
                self._report.notes.append(f"{segment.log.path} is damaged: {error}")


def _walk_checked(
    segment: Segment, config: TopicConfig, limit: int | None
) -> tuple[IndexBuilder, CorruptBatch | None]:
    """Return the facts of all batches before the first damaged one, and its error.

    `limit` is the base offset of the next segment, None if there is none.
    """
    facts = IndexBuilder(segment.base_offset, config.index_interval_bytes)
    damage: CorruptBatch | None = None
    try:
        log = segment.log.batches(segment.size, EVERYTHING)
        for position, header, messages, damage in walk(log, limit=limit):
            if damage is not None:
                break
            facts.take(position, header, messages)
    except CorruptBatch as error:
        damage = error
    facts.finish()
    return facts, damage
