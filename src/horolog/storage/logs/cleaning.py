"""Cleans a log that compacts: what is left of some segments takes their place, under its readers.

A run (`Cleaning`) reads the log beside appends, in a thread of its own. What becomes of a group of
segments is written into `cleaning/` in the partition's directory; when that is finished and synced,
one step that no write runs beside has it take the group's place:

    1  the new files get their names with `.swap`: a start after a kill continues from here
    2  the old ones get names of deleted files; readers that have them read on
    3  the new ones get their names
    4  readers see the new segments
    5  the old ones are removed `file.delete.delay.ms` later

Invariant: a kill at any point leaves the old segments or the new ones. What the disk refuses half-
way is ended before the next thing that changes segments. A run ends, and leaves what it has not
replaced, once a segment of the next group has gone by retention, or the log was truncated: records
behind others of their keys, for which those would go, may be gone themselves.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from horolog.config import LONG_MAX, TopicConfig
from horolog.errors import HorologError, StorageFailed
from horolog.storage import names
from horolog.storage.cleaning.choosing import Cleanable, cleanable, first_dirty, first_time
from horolog.storage.cleaning.rules import Rules, last_of_producers, legacy_horizon
from horolog.storage.logs.following import FollowingLog
from horolog.storage.logs.readable import LogParts
from horolog.storage.logs.replacing import begin_replacement, size_of_logs, take_back, write_cleaned
from horolog.storage.removal.leftovers import base_offsets, finish_replacement
from horolog.storage.removal.replacement import Replacement
from horolog.storage.segments.segment import Segment

if TYPE_CHECKING:
    from horolog.storage.cleaning.key_map import KeyMap
    from horolog.storage.cleaning.passes import CleaningGroup, CleaningPass

T = TypeVar("T")

Exclusively = Callable[[Callable[[], T]], T]
"""Makes a call that no write to the log runs beside, and returns what it returned."""


@dataclass(slots=True)
class _Swap:
    """What is left to do of putting new segments in the place of old ones."""

    old: Sequence[Segment]
    new: Sequence[Segment]
    due_ms: int
    replacement: Replacement | None = None
    """None until the new ones count: then it is taken back."""


class CleaningLog(FollowingLog):
    """See the module."""

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self._swap: _Swap | None = None

    def cleanable(self, now_ms: int) -> Cleanable | None:
        """What of it may be cleaned; None of a log that is never cleaned. Any thread may ask.

        Raises:
            StorageFailed: the disk refused.
            CorruptBatch: the log is damaged where its times have to be read from it.
        """
        config = self.config
        if not config.compacts or self.retention_exempt:
            return None
        stable_end = min(self.last_stable_offset, self.high_watermark)
        return cleanable(
            self.segments,
            config,
            self.cleaner_point,
            self.log_start_offset,
            stable_end,
            now_ms,
            self.append_time_resets,
        )

    def must_roll_to_clean(self, now_ms: int) -> bool:
        """Whether records have been in the active segment for `max.compaction.lag.ms`.

        They are not cleaned there. (Kafka rolls it with the next append alone.)
        """
        config, active = self.config, self.segments[-1]
        lag_ms = config.max_compaction_lag_ms
        if not config.compacts or self.retention_exempt or lag_ms == LONG_MAX or not active.size:
            return False
        return now_ms - first_time(active, config) > lag_ms

    def segments_to_clean(self, chosen: Cleanable) -> list[Segment]:
        """The segments of what was chosen, once nothing is half-way any more.

        None where the log has changed since: it was cleaned, truncated, or is another one.
        """
        with self._exclusively():
            point = first_dirty(self.cleaner_point, self.log_start_offset, self.log_end_offset)
            stable_end = min(self.last_stable_offset, self.high_watermark)
            if point != chosen.first_dirty or chosen.end > stable_end or self.retention_exempt:
                return []
            if all(each.base_offset != chosen.end for each in self.segments):
                return []
            return [each for each in self.segments[:-1] if each.base_offset < chosen.end]

    def put_cleaned(self, old: Sequence[Segment], work: str, due_ms: int) -> bool:
        """Put the segments of a directory in the place of old ones; False if these are not there.

        Args:
            old: segments of this log that follow each other.
            work: holds finished, synced segments alone, with what is to stay of the old ones.
            due_ms: from when on, by the monotonic clock, the old ones' files may be removed.

        Raises:
            StorageFailed: the disk refused. The old ones are in the log, or the new ones will be
                before anything else changes its segments.
        """
        with self._exclusively(), self._flusher.truncating():
            present = {id(each) for each in self.segments[:-1]}
            may_clean = self.config.compacts and not self.retention_exempt
            if not may_clean or not all(id(each) in present for each in old):
                return False
            self._is_settled = False
            swap = self._swap = _Swap(old, self._coming(work), due_ms)
            bases = [each.base_offset for each in old]
            swap.replacement = begin_replacement(self.files, self.directory, work, bases)
            self._finish_swap()
            return True

    def cleaned_to(self, offset: int) -> None:
        """Note up to where it was cleaned."""
        with self._exclusively():
            if offset <= self.log_end_offset:
                self.cleaner_point = offset

    def _coming(self, work: str) -> list[Segment]:
        """The segments of a directory as they will be in this log."""
        files, config = self.files, self.config
        present = files.names_in(work)
        return [
            Segment(
                files,
                self.directory,
                base,
                config,
                size=files.size(f"{work}/{names.segment_file(base, names.LOG)}"),
                has_aborted=names.segment_file(base, names.TXN_INDEX) in present,
            )
            for base in base_offsets(present, names.LOG)
        ]

    def _finish_pending(self) -> None:
        super()._finish_pending()
        if self._swap is not None:
            with self._flusher.truncating():
                self._finish_swap()

    def _finish_swap(self) -> None:
        """Do what is left of it; each step may be repeated."""
        swap = self._swap
        assert swap is not None
        if swap.replacement is None:
            take_back(self.files, self.directory)
            self._swap = None
            return
        for segment in swap.old:
            self.removed_files.remove_replaced_later(segment, swap.due_ms)
        finish_replacement(self.files, self.directory, swap.replacement)
        at = self.segments.index(swap.old[0])
        self.segments = (*self.segments[:at], *swap.new, *self.segments[at + len(swap.old) :])
        self._index_checks.want_maps()  # their block maps are made like those of other brokers'
        self._swap = None


class Progress(NamedTuple):
    """What a run has done since it last said so, to be counted against its rate."""

    read_bytes: int = 0
    written_bytes: int = 0


@dataclass(slots=True)
class CleaningRun:
    """What a run over a log has done, so far."""

    started_ms: int
    from_offset: int
    """Where the dirty part began."""
    end_offset: int
    """Up to where the log is clean now; during the run, up to where it is to be cleaned."""
    keys: int = 0
    """In the map."""
    map_share: float = 0.0
    """How full the map became."""
    read_bytes: int = 0
    bytes_before: int = 0
    """Of the segments that were replaced."""
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    ended_ms: int | None = None
    is_whole: bool = False
    """Whether it has come to its end: no segment was taken away meanwhile."""


class Cleaning:
    """One run over a log; `steps` does it."""

    def __init__(
        self,
        log: CleaningLog,
        chosen: Cleanable,
        key_map: "KeyMap",
        *,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """Of what `log.cleanable` has found.

        Args:
            log: to be cleaned; no other run is at it.
            chosen: what of it.
            key_map: an empty one.
            now_ms: the clock.
            monotonic_ms: one that never goes back.
        """
        self._log = log
        self._files = log.files
        self._key_map = key_map
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._chosen = chosen
        self._config: TopicConfig = log.config
        self._work = f"{log.directory}/{names.CLEANING}"
        self._truncations = log.truncations
        self.run = CleaningRun(now_ms(), chosen.first_dirty, chosen.end)

    def steps(self, exclusively: "Exclusively[bool]") -> Generator[Progress, None, None]:
        """Clean the log, piece by piece; yields after each, and may be closed there.

        Args:
            exclusively: makes calls on the log that no write runs beside.

        Raises:
            CorruptBatch, CorruptIndex: the log is damaged.
            RequestRefused: a batch decompresses to too much.
            StorageFailed: the disk refused.
        """
        log, run, segments = self._log, self.run, list[Segment]()
        try:
            yield from self._steps(segments, exclusively)
        except HorologError:
            # What was read may be gone: by a truncation, say, or with its topic.
            if set(segments) <= set(log.segments):
                raise
        finally:
            run.ended_ms = self._now_ms()
            if self._files.exists(self._work):
                self._files.remove_tree(self._work)

    def _steps(
        self, segments: list[Segment], exclusively: "Exclusively[bool]"
    ) -> Iterator[Progress]:
        log, run, chosen = self._log, self.run, self._chosen
        rules: list[Rules] = []

        def begin() -> bool:
            self._truncations = log.truncations
            found = log.segments_to_clean(chosen)
            if found:
                segments.extend(found)
                rules.append(self._rules(found))
            return bool(found)

        if not exclusively(begin):
            return
        from horolog.storage.cleaning.passes import (  # noqa: PLC0415 - numpy, once it is needed
            CleaningPass,
        )

        cleaning = CleaningPass(segments, self._key_map, rules[0])
        for size in cleaning.fill(chosen.first_dirty):
            run.read_bytes += size
            yield Progress(size)
        run.end_offset = cleaning.end_offset
        run.keys = len(self._key_map)
        run.map_share = run.keys / self._key_map.capacity
        if run.end_offset <= chosen.first_dirty:
            raise StorageFailed(
                f"{log} cannot be cleaned: the keys of not even one record fit into "
                "log.cleaner.dedupe.buffer.size"
            )
        for group in cleaning.groups(self._config):
            yield from self._write(cleaning, group)
            if not exclusively(partial(self._put, group)):
                return
            segments[:] = [each for each in segments if each not in group.segments]
        run.is_whole = exclusively(self._note)

    def _rules(self, segments: Sequence[Segment]) -> Rules:
        log, chosen = self._log, self._chosen
        clean = [each for each in segments if each.base_offset < chosen.first_dirty]
        end_offset = log.log_end_offset
        delete_retention_ms = self._config.delete_retention_ms
        return Rules(
            now_ms=self.run.started_ms,
            delete_retention_ms=delete_retention_ms,
            end_offset=chosen.end,
            legacy_horizon_ms=legacy_horizon(clean, delete_retention_ms),
            producers=last_of_producers(log.producers),
            aborted=log.aborted_transactions(segments[0].base_offset, end_offset),
        )

    def _write(self, cleaning: "CleaningPass", group: "CleaningGroup") -> Iterator[Progress]:
        run = self.run
        for piece in write_cleaned(self._files, self._work, cleaning, group, self._config):
            run.read_bytes += piece.read_bytes
            run.records_before += piece.read_records
            run.records_after += piece.kept_records
            yield Progress(piece.read_bytes, piece.kept_bytes)
        yield Progress()

    def _put(self, group: "CleaningGroup") -> bool:
        log, run = self._log, self.run
        found = {id(each): each for each in log.segments}
        old = [found[id(each)] for each in group.segments if id(each) in found]
        if len(old) < len(group.segments) or log.truncations != self._truncations:
            return False
        names_of_logs = base_offsets(self._files.names_in(self._work), names.LOG)
        size = size_of_logs(self._files, self._work)
        due_ms = self._monotonic_ms() + self._config.file_delete_delay_ms
        if not log.put_cleaned(old, self._work, due_ms):
            return False
        run.bytes_before += group.size
        run.bytes_after += size
        run.segments_before += len(old)
        run.segments_after += len(names_of_logs)
        return True

    def _note(self) -> bool:
        if self._log.truncations != self._truncations:
            return False
        self._log.cleaned_to(self.run.end_offset)
        return True
