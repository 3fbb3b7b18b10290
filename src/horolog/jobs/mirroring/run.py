"""The rounds of a mirror, on the driver: what is new at the source, and who moves it."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyspark.sql import SparkSession

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.jobs.mirroring.batches import Rule
from horolog.jobs.mirroring.groups import CarriedGroup, carry_over, wanted_groups
from horolog.jobs.mirroring.ledger import Ledger, Place, TopicState
from horolog.jobs.mirroring.moving import Moved, may_pass
from horolog.jobs.mirroring.reading import Range, ranges_of
from horolog.jobs.mirroring.report import Control, Mirrored, MirroredPartition
from horolog.jobs.mirroring.topics import (
    Renaming,
    SourceTopic,
    TargetTopic,
    check_names,
    describe,
    source_topics,
    topic_ids,
)
from horolog.jobs.selection import Selection
from horolog.metadata.topics import check_name
from horolog.spark.broker_log import BrokerLog
from horolog.spark.file_log import FileLog
from horolog.spark.options import ReadOptions
from horolog.storage.names import TopicPartition

_IDLE_MS = 1_000
_GROUPS_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What is to be mirrored next of a partition."""

    partition: TopicPartition
    target_topic: str
    place: Place
    end: int
    ranges: tuple[Range, ...]
    options: ReadOptions
    rule: Rule
    target_compacts: bool


class Destination(Protocol):
    """Where it goes: a cluster, or a log directory."""

    note: str
    """What the summary says of offsets."""
    reading: Mapping[str, str]
    """Options of the source: which records are read."""

    def check(self, selection: Selection, renaming: Renaming) -> None:
        """Refuse a source that it cannot be mirrored from."""

    def prepare(self, source: SourceTopic, name: str) -> TargetTopic:
        """Make a topic ready, and say what it is."""

    def ids(self, names: Collection[str]) -> Mapping[str, str | None]:
        """The ids of the topics that exist."""

    def excluded(self, targets: Collection[str]) -> Collection[str]:
        """Topics of the source that this mirror writes itself."""

    def first_place(self, partition: TopicPartition, target: str, start: int) -> Place:
        """Where a partition begins."""

    def move(self, spark: SparkSession, units: Sequence[Stretch]) -> Iterator[list[Moved]]:
        """Do the work in waves."""

    def finish(self, spark: SparkSession) -> Sequence[str]:
        """Leave the target as it is to be found; sentences of what failed."""


@dataclass(slots=True)
class _Known:
    """A topic that is mirrored in this run."""

    target: TargetTopic
    rule: Rule


class Run:
    """One run of a mirror."""

    def __init__(
        self,
        spark: SparkSession,
        selection: Selection,
        destination: Destination,
        ledger: Ledger,
        renaming: Renaming,
        control: Control,
    ) -> None:
        self._spark = spark
        self._selection = selection
        self._to = destination
        self._ledger = ledger
        self._renaming = renaming
        self._control = control
        self._options = selection.read_options(**destination.reading)
        self._known: dict[str, _Known] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._limits: dict[TopicPartition, int] | None = None
        self._stopped: dict[TopicPartition, str] = {}
        self._failed_topics: dict[str, str] = {}
        self._passing: dict[TopicPartition, str] = {}
        self._notes: dict[str, None] = {}
        self._carried: dict[str, CarriedGroup] = {}
        self._failures: list[str] = []
        self._group_failure: str | None = None
        self._records = self._bytes = 0
        self._stack = ExitStack()
        self._source = (
            self._stack.enter_context(selection.client("horolog-mirror"))
            if selection.source.is_broker
            else None
        )
        self._broker_log = (
            self._stack.enter_context(BrokerLog(self._options))
            if selection.source.is_broker
            else None
        )

    def close(self) -> None:
        """Close the connections of the driver."""
        self._stack.close()

    # Rounds.

    def once(self) -> None:
        """Mirror up to the ends that the logs have now."""
        while self._round(is_once=True) and not self._control.should_stop():
            pass

    def go_on(self, groups: "GroupsCarried | None") -> None:
        """Mirror what there is and what comes, until the caller ends it."""
        groups_at = 0.0
        while not self._control.should_stop():
            has_moved = self._round(is_once=False)
            if groups is not None and time.monotonic() - groups_at >= _GROUPS_EVERY_S:
                self.carry(groups)
                groups_at = time.monotonic()
            self._control.on_progress(self.report())
            if not has_moved:
                self._wait()

    def finish(self) -> None:
        """Leave the target as it is to be found."""
        self._failures += self._to.finish(self._spark)

    def look(self) -> None:
        """What a dry run sees: topics are checked, and nothing is moved."""
        with self._log() as log:
            partitions = self._partitions(log, may_miss=False)
            self._learn(partitions)
            self._look_at_ends(log, partitions)

    def carry(self, groups: "GroupsCarried") -> None:
        """Carry the offsets of groups over."""
        targets = {name: known.target.name for name, known in self._known.items()}
        assert self._source is not None
        self._group_failure = None
        try:
            for group in wanted_groups(self._source, groups.names, groups.pattern):
                with groups.target() as target:
                    self._carried[group] = carry_over(
                        group, self._source, target, self._ledger, targets
                    )
        except HorologError as error:
            self._group_failure = f"offsets of groups: {error}"

    def report(self, *, is_dry_run: bool = False) -> Mirrored:
        """What this run did up to now."""
        now_ms = SystemClock().now_ms()
        partitions = []
        for partition, end in sorted(self._ends.items()):
            known = self._known.get(partition.topic)
            place = self._ledger.place(partition)
            if known is None or place is None:
                continue
            lag_ms: int | None = 0
            if place.offset < end:
                lag_ms = None if place.last_ms is None else max(0, now_ms - place.last_ms)
            partitions.append(
                MirroredPartition(
                    *partition,
                    known.target.name,
                    place.records,
                    place.offset,
                    end,
                    lag_ms,
                    self._stopped.get(partition) or self._passing.get(partition),
                )
            )
        errors = [*self._failed_topics.values(), *self._failures]
        if self._group_failure is not None:
            errors.append(self._group_failure)
        errors += [
            describe(RequestRefused(ErrorCode.none, text), [str(partition)])
            for partition, text in sorted({**self._passing, **self._stopped}.items())
        ]
        return Mirrored(
            self._records,
            self._bytes,
            tuple(partitions),
            tuple(each for _, each in sorted(self._carried.items())),
            (*self._notes, self._to.note),
            tuple(dict.fromkeys(errors)),
            is_dry_run,
        )

    def _round(self, *, is_once: bool) -> bool:
        """Mirror what there is; whether there may be more at once."""
        is_first = not self._ends
        try:
            with self._log() as log:
                found = self._partitions(log, may_miss=not is_first)
                if is_once and self._limits is not None:
                    found = [each for each in found if each in self._limits]
                self._learn(found)
                partitions = [each for each in found if self._is_open(each)]
                self._look_at_ends(log, partitions)
                if is_once and self._limits is None:
                    self._limits = dict(self._ends)
                units = self._units(log, partitions)
        except (HorologError, OSError) as error:
            if is_first or is_once or not may_pass(error):
                raise
            self._notes[f"{self._selection.source}: {error}"] = None
            return False
        if not units:
            return False
        before = {each.partition: each.place.offset for each in units}
        self._ledger.begin({each.partition: each.place for each in units})
        has_moved = False
        for wave in self._to.move(self._spark, units):
            self._take(wave)
            has_moved |= any(
                each.error is None and each.place.offset > before[each.partition] for each in wave
            )
            self._control.on_progress(self.report())
            if self._control.should_stop():
                break
        return has_moved

    def _take(self, wave: Sequence[Moved]) -> None:
        for each in wave:
            self._records += each.records
            self._bytes += each.bytes
            self._passing.pop(each.partition, None)
            if each.error is not None:
                found = self._passing if each.may_pass else self._stopped
                found[each.partition] = each.error
        self._ledger.end(
            {
                # After an error more may have been sent than was acknowledged.
                each.partition: replace(each.place, is_sent=each.error is not None)
                for each in wave
            },
            {each.partition: each.points for each in wave},
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
        """The source as it is now; the connections to a broker are kept."""
        if self._broker_log is not None:
            return nullcontext(self._broker_log)
        return FileLog(self._options, may_miss=bool(self._ends))

    # Topics.

    def _partitions(self, log: BrokerLog | FileLog, *, may_miss: bool) -> list[TopicPartition]:
        if isinstance(log, BrokerLog):
            found = log.partitions(may_miss=may_miss)
        else:
            found = log.partitions()
        names = {partition.topic for partition in found}
        for name in names:
            check_name(name)
        targets = {name: self._renaming(name) for name in names}
        own = self._to.excluded(targets.values()) if self._selection.topics_pattern else ()
        targets = {name: target for name, target in targets.items() if name not in own}
        check_names(targets)
        return sorted(partition for partition in found if partition.topic in targets)

    def _learn(self, partitions: Sequence[TopicPartition]) -> None:
        """Make new topics ready, and stop those that are others now."""
        counts: dict[str, int] = {}
        for topic, number in partitions:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        names = counts.keys() - self._failed_topics.keys()
        ids = {} if self._source is None else topic_ids(self._source, names | self._known.keys())
        at_target = self._to.ids([known.target.name for known in self._known.values()])
        for name, known in self._known.items():
            if name not in self._failed_topics:
                self._check_ids(name, known, ids, at_target)
        new = [
            name
            for name in sorted(names)
            if name not in self._known or self._known[name].target.partitions < counts[name]
        ]
        if self._source is not None:
            described = source_topics(self._source, new)
        else:
            described = {name: SourceTopic(name, counts[name]) for name in new}
        for found in described.values():
            if found.name not in self._failed_topics:
                self._prepare(found)

    def _prepare(self, source: SourceTopic) -> None:
        target_name = self._renaming(source.name)
        try:
            check_name(target_name)
            target = self._to.prepare(source, target_name)
        except HorologError as error:
            if may_pass(error):
                raise
            self._failed_topics[source.name] = describe(error, [source.name, target_name])
            return
        self._notes.update(dict.fromkeys(target.notes))
        target_id = target.topic_id
        state = self._ledger.topics.get(source.name)
        if state is None:
            state = TopicState(target.name, source.topic_id, target_id)
            self._ledger.topics[source.name] = state
        self._known[source.name] = known = _Known(target, self._rule(target))
        self._check_ids(
            source.name, known, {source.name: source.topic_id}, {target.name: target_id}
        )

    def _rule(self, target: TargetTopic) -> Rule:
        times = self._options.times.interval_ms
        limited = self._selection.from_ms is not None, self._selection.to_ms is not None
        return Rule(
            times.first if limited[0] else None,
            times.last + 1 if limited[1] else None,
            target.stamps,
        )

    def _check_ids(
        self,
        name: str,
        known: _Known,
        at_source: Mapping[str, str | None],
        at_target: Mapping[str, str | None],
    ) -> None:
        state = self._ledger.topics[name]
        target = known.target.name
        if self._source is not None and name not in at_source:
            self._failed_topics[name] = f"{name} of the source was deleted"
        elif self._source is not None and at_source[name] != state.source_id:
            self._failed_topics[name] = (
                f"{name} of the source was deleted and created again: its offsets mean other "
                "records now. Mirror it into another topic, with another --state"
            )
        elif target not in at_target or at_target[target] != state.target_id:
            self._failed_topics[name] = (
                f"{target} of the target was deleted or created again since the mirror wrote to "
                "it. Mirror with another --state"
            )

    def _is_open(self, partition: TopicPartition) -> bool:
        return (
            partition.topic in self._known
            and partition.topic not in self._failed_topics
            and partition not in self._stopped
        )

    # Units.

    def _look_at_ends(self, log: BrokerLog | FileLog, partitions: Sequence[TopicPartition]) -> None:
        partitions = [each for each in partitions if self._is_open(each)]
        bounds = self._bounds(log, partitions)
        is_new = False
        for partition, (start, end) in bounds.items():
            self._ends[partition] = end
            known = self._known[partition.topic]
            place = self._ledger.place(partition)
            if place is None:
                place = self._to.first_place(partition, known.target.name, start)
                self._ledger.topics[partition.topic].places[partition.partition] = place
                is_new = True
            if end < place.offset:
                self._stopped[partition] = (
                    f"{partition} of the source ends at offset {end} and was mirrored up to "
                    f"{place.offset}: it was truncated, and its offsets may mean other records now"
                )
            elif isinstance(log, FileLog) and (
                place.offset >= end and (at := log.damaged_at(partition)) is not None
            ):
                self._stopped[partition] = (
                    f"{partition} of the source: the batch at offset {at} is damaged, and what "
                    "follows cannot be read"
                )
            elif start > place.offset and self._options.fail_on_data_loss:
                self._stopped[partition] = (
                    f"{partition} of the source begins at offset {start} and was mirrored up to "
                    f"{place.offset}: the records between are gone. Give --skip-lost to go on "
                    "without them"
                )

        if is_new:
            self._ledger.save()  # an empty topic is known, too

    def _bounds(
        self, log: BrokerLog | FileLog, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Start and end of each log; a partition that has no leader now is left out."""
        try:
            earliest, latest = log.earliest(partitions), log.latest(partitions)
            return {each: (earliest[each], latest[each]) for each in partitions}
        except RequestRefused as error:
            if not error.code.retriable:
                raise
        found = {}
        for partition in partitions:
            try:
                start, end = log.earliest([partition]), log.latest([partition])
                found[partition] = start[partition], end[partition]
            except RequestRefused as error:
                if not error.code.retriable:
                    raise
                self._passing[partition] = str(error)
        return found

    def _units(
        self, log: BrokerLog | FileLog, partitions: Sequence[TopicPartition]
    ) -> list[Stretch]:
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
            known = self._known[partition.topic]
            try:
                ranges = ranges_of(
                    log,
                    self._selection,
                    self._options,
                    partition,
                    place.offset,
                    end,
                    is_first=place.records == 0 and not place.is_sent,
                )
            except HorologError as error:
                if may_pass(error):
                    raise
                self._stopped[partition] = describe(error, [str(partition)])
                continue
            units.append(
                Stretch(
                    partition=partition,
                    target_topic=known.target.name,
                    place=place,
                    end=end,
                    ranges=ranges,
                    options=self._options,
                    rule=known.rule,
                    target_compacts=known.target.compacts,
                )
            )
        return units


@dataclass(frozen=True, slots=True)
class GroupsCarried:
    """Which groups' offsets are carried over, and to where."""

    names: tuple[str, ...]
    pattern: str | None
    target: Callable[[], Client] = field(repr=False)
