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

from horolog.config import TopicConfig
from horolog.errors import HorologError, StorageFailed
from horolog.storage import names
from horolog.storage.cleaning.choosing import Cleanable
from horolog.storage.cleaning.rules import Rules, last_of_producers, legacy_horizon
from horolog.storage.logs.log import Log
from horolog.storage.logs.replacing import size_of_logs, write_cleaned
from horolog.storage.removal.leftovers import base_offsets
from horolog.storage.segments.segment import Segment

if TYPE_CHECKING:
    from horolog.storage.cleaning.key_map import KeyMap
    from horolog.storage.cleaning.passes import CleaningGroup, CleaningPass

T = TypeVar("T")

Exclusively = Callable[[Callable[[], T]], T]
"""Makes a call that no write to the log runs beside, and returns what it returned."""


class CleaningProgress(NamedTuple):
    """Work of a run since its last report, counted against its rate."""

    read_bytes: int = 0
    written_bytes: int = 0


@dataclass(slots=True)
class CleaningRun:
    """Progress of a run over a log."""

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
    """Size of the segments that were replaced."""
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    ended_ms: int | None = None
    is_whole: bool = False
    """Whether it has come to its end: no segment was taken away meanwhile."""


class Cleaning:
    """One cleaning run over a log, made step by step by `steps`."""

    def __init__(
        self,
        log: Log,
        chosen: Cleanable,
        key_map: "KeyMap",
        *,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """Prepare a run over the part of the log that `log.cleanable` returned.

        Args:
            log: to be cleaned; no other run is at it.
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

    def steps(self, exclusively: "Exclusively[bool]") -> Generator[CleaningProgress, None, None]:
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
    ) -> Iterator[CleaningProgress]:
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
            yield CleaningProgress(size)
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
            segments[:] = [segment for segment in segments if segment not in group.segments]
        run.is_whole = exclusively(self._note)

    def _rules(self, segments: Sequence[Segment]) -> Rules:
        log, chosen = self._log, self._chosen
        clean = [segment for segment in segments if segment.base_offset < chosen.first_dirty]
        end_offset = log.log_end_offset
        delete_retention_ms = self._config.delete_retention_ms
        return Rules(
            now_ms=self.run.started_ms,
            delete_retention_ms=delete_retention_ms,
            end_offset=chosen.end,
            legacy_horizon_ms=legacy_horizon(clean, delete_retention_ms),
            producers=last_of_producers(log.producers),
            aborted=log.look().aborted_transactions(segments[0].base_offset, end_offset),
        )

    def _write(
        self, cleaning: "CleaningPass", group: "CleaningGroup"
    ) -> Iterator[CleaningProgress]:
        run = self.run
        for piece in write_cleaned(self._files, self._work, cleaning, group, self._config):
            run.read_bytes += piece.read_bytes
            run.records_before += piece.read_records
            run.records_after += piece.kept_records
            yield CleaningProgress(piece.read_bytes, piece.kept_bytes)
        yield CleaningProgress()

    def _put(self, group: "CleaningGroup") -> bool:
        log, run = self._log, self.run
        found = {id(segment): segment for segment in log.segments}
        old = [found[id(segment)] for segment in group.segments if id(segment) in found]
        if len(old) < len(group.segments) or log.truncations != self._truncations:
            return False
        names_of_logs = base_offsets(self._files.names_in(self._work), names.LOG)
        size = size_of_logs(self._files, self._work)
        due_ms = self._monotonic_ms() + self._config.file_delete_delay_ms
        if not log.put_cleaned(old, self._work, due_ms, run.end_offset):
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
