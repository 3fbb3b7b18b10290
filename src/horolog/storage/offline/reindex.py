"""Rebuilds the indexes of segments from their batches, without a broker.

The files are those that Apache Kafka's recovery would write. A batch is indexed if more than
`index.interval.bytes` are before it. The time index contains growing times, and the largest time at
the end. No `.log` is changed. Each file is written next to the old one, read again and compared
with all batch headers. Then it replaces the old one at once, so that a kill leaves one of both.
Owner and mode are kept. Processes at one segment take turns.

A damaged segment is left unchanged, since its indexes could only cover the batches before the
damage. A torn end of the last segment is no obstacle, because any start cuts it off.

A damaged `append-time-checkpoint` is removed with the last segment. The next start takes the last
append time from the log.
"""

import os
from dataclasses import dataclass, field
from functools import partial

from horolog.errors import CorruptFile, StorageFailed
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_append_time
from horolog.storage.files import Files
from horolog.storage.index.abort import write_aborted
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.offline.work import OfflineWork
from horolog.storage.producers.replay import find_aborted
from horolog.storage.removal.leftovers import base_offsets
from horolog.storage.scan.companions import TransactionsAcross
from horolog.storage.scan.entries import OffsetEntries, TimeEntries, misfits
from horolog.storage.scan.findings import SegmentFacts, Steps, gathered
from horolog.storage.scan.segment import SegmentScan, Situation
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.verify import Finding, Severity
from horolog.storage.verify.partition import situation_of
from horolog.storage.verify.surroundings import surroundings_of

_INDEX_SUFFIXES = (
    names.OFFSET_INDEX,
    names.TIME_INDEX,
    names.COMPANION,
    names.TXN_INDEX,
)
_LONGEST_COMPANION = 1 << 31
_UNFINISHED = (
    "a compaction has ended but for the renaming of its .swap files: a start of a broker, or "
    "`horolog log compact`, finishes it or sets it aside"
)


@dataclass(slots=True)
class Reindexed:
    """Outcome of reindexing one segment."""

    path: str
    wrong: list[str] = field(default_factory=list)
    """Faults of the segment's indexes."""
    written: list[str] = field(default_factory=list)
    """Files that were replaced, or would be in a dry run."""
    removed: list[str] = field(default_factory=list)
    """Damaged files that were removed, or would be in a dry run. A start makes them again."""
    refused: str | None = None
    """Reason why the indexes were left unchanged."""


@dataclass(frozen=True, slots=True)
class Reindexing(OfflineWork):
    """Reindexing of one target."""

    REASON = "it rebuilds its indexes itself where one is wrong"

    interval_bytes: int
    rebuild_all: bool = False

    def steps(self) -> Steps[list[Reindexed]]:
        """Check every segment and rebuild wrong indexes. Returns the outcomes."""
        around, _ = surroundings_of(Files(read_only=True), self.target.log_dir)
        around = around._replace(is_live=False)  # the lock is ours
        done = []
        for directory in self.target.partitions:
            present = self.files.names_in(str(directory))
            if any(name.endswith(names.SWAP) for name in present):
                done.append(Reindexed(str(directory), refused=_UNFINISHED))
                continue
            bases = base_offsets(present, names.LOG)
            paths = [directory / names.segment_file(base, names.LOG) for base in bases]
            sizes = [path.lstat().st_size for path in paths]
            across = TransactionsAcross()
            for index, (base, path) in enumerate(zip(bases, paths, strict=True)):
                if self.target.segment in (None, path):
                    situation = situation_of(bases, index, sizes, directory.name, around)
                    try:
                        outcome = yield from self._one(str(path), base, situation, across)
                        if situation.is_active:
                            self._mend_append_time(str(directory), outcome)
                    except StorageFailed as error:
                        outcome = Reindexed(str(path), refused=str(error))
                    done.append(outcome)
        return done

    def _mend_append_time(self, directory: str, done: Reindexed) -> None:
        """Remove a damaged file of the last append time, which the log also contains."""
        path = os.path.join(directory, names.APPEND_TIME)
        try:
            read_append_time(self.files, path)
        except CorruptFile as error:
            done.wrong.append(str(error))
            done.removed.append(path)
            if not self.dry_run:
                self.files.remove(path)
                self.files.sync_path(directory)

    def _one(
        self, path: str, base_offset: int, situation: Situation, across: TransactionsAcross
    ) -> Steps[Reindexed]:
        files = Files(read_only=True)
        done, findings = Reindexed(path), list[Finding]()
        scan = SegmentScan(files, path, base_offset, situation, self.interval_bytes)
        facts = yield from gathered(scan.run(), findings)
        faults = [finding for finding in findings if finding.severity is not Severity.NOTE]
        wrong = [fault for fault in faults if fault.path.endswith(_INDEX_SUFFIXES)]
        wrong += across.lacking(facts) if facts is not None else ()
        done.wrong = [f"{os.path.basename(fault.path)}: {fault.what}" for fault in wrong]
        damage = next((fault for fault in faults if fault.path == path), None)
        if not done.wrong and not self.rebuild_all:
            return done
        is_cut = situation.is_active and situation.is_recovered and damage is not None
        if facts is None:
            done.refused = "it was taken away meanwhile"
        elif facts.is_sound or is_cut:
            with self.alone(path):
                self._rebuild(files, facts, scan.index, done)
        else:
            what = "" if damage is None else f" at byte {damage.position}: {damage.what}"
            done.refused = f"its log is damaged{what}"
        return done

    def _rebuild(
        self, files: Files, facts: SegmentFacts, index: IndexBuilder, done: Reindexed
    ) -> None:
        """Write the indexes that the whole batches ask for, where the files differ."""
        reader, writer = SegmentReader.at(files, facts.path, facts.base_offset), self.files
        for suffix, content, entries in (
            (names.OFFSET_INDEX, bytes(index.offset_entries), OffsetEntries),
            (names.TIME_INDEX, bytes(index.time_entries), TimeEntries),
        ):
            path = reader.path_of(suffix)
            if not _is_already(files, path, content):
                done.written.append(path)
                if not self.dry_run:
                    prove = partial(_prove, content, entries, reader, index.end)
                    writer.replace(path, content, like=reader.log.open(), before=prove)
        if facts.is_sound and any(names.TXN_INDEX in wrong for wrong in done.wrong):
            self._rebuild_aborted(facts, done)
        if self.dry_run:
            return
        self._mend_companion(facts, index, done)
        writer.sync_path(os.path.dirname(facts.path))

    def _rebuild_aborted(self, facts: SegmentFacts, done: Reindexed) -> None:
        """Write the index of aborted transactions from the log's markers."""
        directory = os.path.dirname(facts.path)
        present = self.files.names_in(directory)
        bases = base_offsets(present, names.LOG)
        segments = [
            SegmentReader.at(self.files, names.log_path(directory, base), base) for base in bases
        ]
        snapshots = base_offsets(present, names.SNAPSHOT)
        index = bases.index(facts.base_offset)
        aborted = find_aborted(self.files, directory, segments, index, snapshots)
        path = segments[index].path_of(names.TXN_INDEX)
        done.written.append(path)
        if not self.dry_run:
            write_aborted(self.files, path, aborted)

    def _mend_companion(self, facts: SegmentFacts, index: IndexBuilder, done: Reindexed) -> None:
        """Write seal and block map, and remove damaged append times.

        A log with a torn end gets neither seal nor map, since a start cuts it.
        """
        reader = SegmentReader.at(self.files, facts.path, facts.base_offset)
        path = reader.companion.path
        before = self.files.read_whole(path, _LONGEST_COMPANION)
        if before is not None and reader.append_times.damage() is not None:
            content = reader.append_times.mended()
            if content is None:
                self.files.remove(path)
            else:
                self.files.replace(path, content)
            reader = SegmentReader.at(self.files, facts.path, facts.base_offset)
        if index.end == facts.size:
            reader.indexes.seal(index)
        else:
            reader.companion.write_seal(b"")
        if any(wrong.startswith(os.path.basename(path)) for wrong in done.wrong):
            reader.blocks.put(b"")
        reader.complete_blocks()
        if self.files.read_whole(path, _LONGEST_COMPANION) != before:
            done.written.append(path)


def _prove(
    content: bytes,
    entries: type[OffsetEntries | TimeEntries],
    reader: SegmentReader,
    end: int,
    written: str,
) -> None:
    """Compare a new index file with its intended content and with the log.

    Raises:
        StorageFailed: they differ; the file has not replaced the old one.
    """
    files = Files(read_only=True)
    if not _is_already(files, written, content):
        raise StorageFailed(f"{written} does not hold what was written: see to the disk")
    index = entries(files, written, reader.log.path, reader.base_offset)
    wrong = next(iter(misfits(index, reader, end)), None)
    if wrong is not None:
        raise StorageFailed(
            f"{written} does not fit the log: {wrong.what}. That is a defect of horolog, and the "
            "old index is unchanged"
        )


def _is_already(files: Files, path: str, content: bytes) -> bool:
    # A preallocated file is long: one of another length is not read to see that it differs.
    if not files.exists(path) or files.size(path) != len(content):
        return False
    return files.read_whole(path, len(content)) == content
