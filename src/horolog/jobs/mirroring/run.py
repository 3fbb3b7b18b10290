"""Rounds of a mirror on the driver: find new records, and let tasks move them."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from itertools import groupby

from pyspark.sql import SparkSession

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.jobs.mirroring.batches import Rule
from horolog.jobs.mirroring.cluster import ClusterDestination
from horolog.jobs.mirroring.groups import CarriedGroup, carry_over
from horolog.jobs.mirroring.known_topics import Destination, KnownTopics
from horolog.jobs.mirroring.ledger import Ledger
from horolog.jobs.mirroring.moving import Moved, StretchToMirror, may_pass
from horolog.jobs.mirroring.reading import stretches_of
from horolog.jobs.mirroring.report import Control, Mirrored, MirroredPartition
from horolog.jobs.mirroring.topics import (
    Renaming,
    describe,
)
from horolog.jobs.parameters.mirror import Mirror
from horolog.jobs.parameters.option import names
from horolog.jobs.receiving import retention_note
from horolog.jobs.selection import Selection, as_of, chosen_groups
from horolog.jobs.served import served_bounds
from horolog.sources.broker_log import BrokerLog
from horolog.sources.cuts import entries_as_of, inexact
from horolog.sources.file_log import FileLog
from horolog.storage.names import TopicPartition

_IDLE_MS = 1_000
_GROUPS_EVERY_S = 5.0
_GROUPS, _ROUND, _CUT = "groups", "round", "cut"  # may fail in one round, and work in the next


class MirrorRun:
    """One run of a mirror."""

    def __init__(
        self,
        spark: SparkSession,
        job: Mirror,
        selection: Selection,
        destination: Destination,
        ledger: Ledger,
        renaming: Renaming,
    ) -> None:
        self._spark = spark
        self._job = job
        self._selection = selection
        self._to = destination
        self._ledger = ledger
        self._control = job.control or Control()
        self._options = replace(
            selection.read_options(**destination.reading),
            loss_option=None,
            loss_advice="--skip-lost continues behind it",
        )
        self._until = as_of(job.until, self._options)
        self._options = replace(self._options, as_of=None)  # tasks do not need it
        self._stops = job.once or self._until is not None
        """True for a run that ends at the present ends of the logs, or at a cut."""
        self._ends: dict[TopicPartition, int] = {}
        self._limits: dict[TopicPartition, int] | None = None
        self._stopped: dict[TopicPartition, str] = {}
        self._passing: dict[TopicPartition, str] = {}
        self._carried: dict[str, CarriedGroup] = {}
        self._failures: dict[str, str] = {}
        """Errors that concern no partition, by what failed."""
        self._records = self._bytes = 0
        self._stack = ExitStack()
        self._source: Client | None = None
        self._broker_log: BrokerLog | None = None
        if selection.source.is_broker:
            self._source = self._stack.enter_context(selection.client("horolog-mirror"))
            self._broker_log = self._stack.enter_context(BrokerLog(self._options))
        self._topics = KnownTopics(selection, self._source, destination, ledger, renaming)

    def close(self) -> None:
        """Close the connections of the driver."""
        self._stack.close()

    # Rounds.

    def run(self) -> None:
        """Mirror all rounds; a dry run only checks topics, and moves nothing."""
        if self._job.dry_run:
            with self._log() as log:
                partitions = self._partitions(log, may_miss=False)
                self._topics.learn(partitions, log.topic_ids)
                self._look_at_cut(log, partitions)
                self._look_at_ends(log, partitions)
            return
        if self._stops:
            while self._round() and not self._control.should_stop():
                pass
            self._check_cut()
        else:
            self._follow()
        self._carry_groups()
        for sentence in self._to.finish(self._spark):
            self._failures[sentence] = sentence

    def _follow(self) -> None:
        """Mirror present and new records until the caller ends the job."""
        groups_at = 0.0
        while not self._control.should_stop():
            has_moved = self._round()
            if time.monotonic() - groups_at >= _GROUPS_EVERY_S:
                self._carry_groups()
                groups_at = time.monotonic()
            self._control.on_progress(self.report())
            if not has_moved:
                self._wait()

    def _carry_groups(self) -> None:
        """Commit the offsets of the chosen groups at the target."""
        if not self._job.has_groups:
            return
        targets = self._topics.targets()
        assert self._source is not None
        assert isinstance(self._to, ClusterDestination)
        self._failures.pop(_GROUPS, None)
        try:
            names_given, pattern = names(self._job.groups), self._job.groups_pattern
            for group in chosen_groups(self._source, names_given, pattern):
                self._carried[group] = carry_over(
                    group, self._source, self._to.client, self._ledger, targets
                )
        except HorologError as error:
            self._failures[_GROUPS] = f"offsets of groups: {error}"

    def report(self) -> Mirrored:
        """Return the outcome so far, with the lag of each partition."""
        now_ms = SystemClock().now_ms()
        partitions = []
        for partition, end in sorted(self._ends.items()):
            known = self._topics.get(partition.topic)
            place = self._ledger.place(partition)
            if known is None or place is None:
                continue
            lag_ms: int | None = 0
            if place.offset < end:
                lag_ms = None if place.last_ms is None else max(0, now_ms - place.last_ms)
            partitions.append(
                MirroredPartition(
                    *partition,
                    known.name,
                    place.records,
                    place.offset,
                    end,
                    lag_ms,
                    self._stopped.get(partition) or self._passing.get(partition),
                )
            )
        errors = [*self._topics.failed.values(), *self._failures.values()]
        errors += [
            describe(RequestRefused(ErrorCode.none, text), [str(partition)])
            for partition, text in sorted({**self._passing, **self._stopped}.items())
        ]
        return Mirrored(
            self._records,
            self._bytes,
            tuple(partitions),
            tuple(carried for _, carried in sorted(self._carried.items())),
            (*self._topics.notes, self._to.note),
            tuple(dict.fromkeys(errors)),
            self._job.dry_run,
        )

    def _round(self) -> bool:
        """Mirror the records present now; True if more may follow at once."""
        is_once, is_first = self._stops, not self._ends
        try:
            with self._log() as log:
                listed = self._partitions(log, may_miss=not is_first)
                if is_once and self._limits is not None:
                    listed = [partition for partition in listed if partition in self._limits]
                self._topics.learn(listed, log.topic_ids)
                partitions = [partition for partition in listed if self._is_open(partition)]
                self._look_at_cut(log, partitions)
                self._look_at_ends(log, partitions)
                if is_once and self._limits is None:
                    self._limits = dict(self._ends)
                units = self._units(log, partitions)
        except (HorologError, OSError) as error:
            if is_first or is_once or not may_pass(error):
                raise
            self._failures[_ROUND] = str(error)
            return False
        self._failures.pop(_ROUND, None)
        if not units:
            return False
        before = {unit.partition: unit.place.offset for unit in units}
        has_moved = False
        self._control.on_progress(self.report())  # with the notes, before anything is sent
        for wave in self._to.move(self._spark, units):
            self._take(wave)
            has_moved |= any(
                moved.error is None and moved.place.offset > before[moved.partition]
                for moved in wave
            )
            self._control.on_progress(self.report())
            if self._control.should_stop():
                break
        return has_moved

    def _take(self, wave: Sequence[Moved]) -> None:
        for moved in wave:
            self._records += moved.records
            self._bytes += moved.bytes
            self._passing.pop(moved.partition, None)
            if moved.error is not None:
                errors = self._passing if moved.may_pass else self._stopped
                errors[moved.partition] = moved.error
        self._ledger.end(
            {moved.partition: moved.place for moved in wave},
            failed=[moved.partition for moved in wave if moved.error is not None],
        )

    def _wait(self) -> None:
        if self._source is None or not self._ends:
            time.sleep(_IDLE_MS / 1000)
            return
        positions = {
            partition: end for partition, end in self._ends.items() if self._is_open(partition)
        }
        try:
            with self._log() as log:
                if isinstance(log, BrokerLog) and positions:
                    log.wait_for_records(positions, _IDLE_MS)
                    return
        except HorologError:
            pass  # the next round says it
        time.sleep(_IDLE_MS / 1000)

    def _log(self) -> AbstractContextManager[BrokerLog | FileLog]:
        """Open the source; connections to a broker are reused."""
        if self._broker_log is not None:
            return nullcontext(self._broker_log)
        is_cut = self._until is not None
        return FileLog(self._options, may_miss=bool(self._ends), is_cut=is_cut)

    # Partitions.

    def _partitions(self, log: BrokerLog | FileLog, *, may_miss: bool) -> list[TopicPartition]:
        if isinstance(log, BrokerLog):
            return self._topics.without_own(log.partitions(may_miss=may_miss))
        return self._topics.without_own(log.partitions())

    def _is_open(self, partition: TopicPartition) -> bool:
        return self._topics.is_open(partition.topic) and partition not in self._stopped

    def _look_at_cut(self, log: BrokerLog | FileLog, partitions: Sequence[TopicPartition]) -> None:
        """Find where a run up to a cut ends; stop partitions that cannot be cut there.

        Raises:
            Misconfigured: the cut is of another cluster, or a topic was created again since.
        """
        if self._until is None or self._limits is not None:
            return
        partitions = [partition for partition in partitions if self._is_open(partition)]
        committed = self._options.read_committed
        cut = entries_as_of(log, self._until, partitions)
        self._limits = {
            partition: entry.committed_offset if committed else entry.offset
            for partition, entry in cut.items()
        }
        for partition, entry in cut.items():
            if entry.why is not None:
                self._stopped[partition] = inexact(self._until, partition, entry.why)

    def _check_cut(self) -> None:
        """Note if a partition is not as of the cut, because of compaction behind a round."""
        if self._until is None or self._limits is None:
            return
        try:
            with self._log() as log:
                present = set(log.partitions())
                its = [key for key in self._limits if self._is_open(key) and key in present]
                for partition, entry in entries_as_of(log, self._until, its).items():
                    if entry.why is not None:
                        self._stopped[partition] = inexact(self._until, partition, entry.why)
        except HorologError as error:
            self._failures[_CUT] = str(error)

    def _look_at_ends(self, log: BrokerLog | FileLog, partitions: Sequence[TopicPartition]) -> None:
        partitions = [partition for partition in partitions if self._is_open(partition)]
        bounds, unserved = served_bounds(log, partitions)
        self._passing |= unserved
        new = []
        for partition, (start, end) in bounds.items():
            limit = None if self._limits is None else self._limits.get(partition)
            self._ends[partition] = end if limit is None else min(limit, end)
            known = self._topics.get(partition.topic)
            assert known is not None
            place = self._ledger.place(partition)
            if place is None:
                place = self._to.first_place(partition, known.name, start)
                self._ledger.topics[partition.topic].places[partition.partition] = place
                new.append(partition)
            is_done = self._until is not None and limit == place.offset
            begun = place.offset if place.records or place.segment is not None else None
            why = None if self._until is None else _not_up_to(limit, begun, end)
            if end < place.offset:
                self._stopped[partition] = (
                    f"{partition} of the source ends at offset {end} and was mirrored up to "
                    f"{place.offset}: it was truncated, and its offsets may mean other records now"
                )
            elif why is not None:
                self._stopped[partition] = f"{partition} {why}"
            elif start > place.offset and self._options.fail_on_data_loss and not is_done:
                self._stopped[partition] = (
                    f"{partition} of the source begins at offset {start} and was mirrored up to "
                    f"{place.offset}: the records between are gone. Give --skip-lost to continue "
                    "without them"
                )

        if new:
            self._ledger.save()  # an empty topic is known, too
            for name, partitions_of_topic in groupby(new, lambda partition: partition.topic):
                self._warn_of_retention(
                    log, name, {partition: bounds[partition] for partition in partitions_of_topic}
                )

    def _warn_of_retention(
        self,
        log: BrokerLog | FileLog,
        name: str,
        bounds: Mapping[TopicPartition, tuple[int, int]],
    ) -> None:
        """Note the number of records that the target's retention would delete soon."""
        known = self._topics.get(name)
        if known is not None and known.receiving is not None:
            from_ms, now_ms = self._selection.from_ms, SystemClock().now_ms()
            note = retention_note(known.receiving, log, name, bounds, from_ms, now_ms)
            if note is not None:
                self._topics.notes[note] = None

    def _units(
        self, log: BrokerLog | FileLog, partitions: Sequence[TopicPartition]
    ) -> list[StretchToMirror]:
        units = []
        for partition in partitions:
            if not self._is_open(partition):
                continue
            place = self._ledger.place(partition)
            if place is None:
                continue  # it has no leader now
            limit = None if self._limits is None else self._limits[partition]
            end = self._ends[partition] if limit is None else min(limit, self._ends[partition])
            if place.offset >= end:
                continue
            known = self._topics.get(partition.topic)
            assert known is not None
            try:
                stretches = stretches_of(
                    log,
                    self._selection,
                    self._options,
                    partition,
                    place.offset,
                    end,
                    is_first=place.records == 0 and self._ledger.begun(partition) is None,
                )
            except HorologError as error:
                if may_pass(error):
                    raise
                self._stopped[partition] = describe(error, [str(partition)])
                continue
            units.append(
                StretchToMirror(
                    partition=partition,
                    target_topic=known.name,
                    place=place,
                    end=end,
                    stretches=stretches,
                    options=self._options,
                    rule=Rule(self._selection.times, known.stamps),
                    target_max_bytes=known.max_bytes,
                )
            )
        return units


def _not_up_to(cut: int | None, place: int | None, end: int) -> str | None:
    """Return why a partition cannot be mirrored up to a cut; None if it can be.

    Args:
        place: offset up to which it is mirrored; None if nothing is yet.
    """
    if cut is not None and cut > end:
        return f"is cut at offset {cut} and ends at {end}: the cut is of another log"
    if cut is not None and place is not None and cut < place:
        return (
            f"was mirrored up to offset {place} and is cut at {cut}: a mirror only grows. Mirror "
            "with another --state, or up to a later time"
        )
    return None
