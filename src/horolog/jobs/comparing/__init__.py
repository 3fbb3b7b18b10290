"""Job `compare`: finds the first differences between the records of two topics or directories.

walking    a stretch of a partition in a task: by bytes where they are equal, else by columns
latest     the latest record of each key, for topics that are compacted
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from pyspark.sql import SparkSession

from horolog.client import ResourceType
from horolog.errors import HorologError, Misconfigured
from horolog.jobs.comparing.walking import (
    COMMITTED,
    FIELDS,
    ComparedBatch,
    ComparedStretch,
    Difference,
    Side,
    uncompared,
    walk,
)
from horolog.jobs.mirroring.ledger import Ledger
from horolog.jobs.mirroring.offset_map import Point
from horolog.jobs.mirroring.reading import stretches_of
from horolog.jobs.mirroring.topics import Renaming
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.mirror import Compare
from horolog.jobs.parameters.option import names
from horolog.jobs.parameters.shared import Names
from horolog.jobs.selection import Selection, as_of
from horolog.jobs.spread import UnitProgress, spread
from horolog.jobs.state import DocumentsOnly
from horolog.results import Outcome
from horolog.sources.broker_log import BrokerLog
from horolog.sources.cut_files import AsOf, CutEntry
from horolog.sources.cuts import entries_as_of, inexact
from horolog.sources.file_log import FileLog
from horolog.sources.plan import Stretch
from horolog.storage.names import TopicPartition

__all__ = ["Compared", "Difference", "compare"]

_POLICY: Final = "cleanup.policy"
_OFFSETS_OF_UNIT: Final = 1_000_000

Pair = tuple[TopicPartition, TopicPartition]
"""A partition of the source, and the one of the target with its records."""
Span = tuple[int, int]
"""Offsets from the first number to before the second."""


@dataclass(frozen=True, slots=True)
class Compared(Outcome):
    """Result of a comparison."""

    records: int
    """Number of equal records, up to the first difference of each stretch."""
    same_bytes: int
    """Number of equal records in batches with equal bytes."""
    partitions: int
    differences: tuple[Difference, ...]
    """The first one of each partition that has any."""
    notes: tuple[str, ...] = ()
    """Possible reasons of differences, with advice."""

    @property
    def is_equal(self) -> bool:
        """True if no difference was found."""
        return not self.differences

    @property
    def is_ok(self) -> bool:
        """True if no difference was found."""
        return self.is_equal

    def lines(self) -> Iterator[str]:
        """Yield the differences, the notes and the verdict."""
        yield from (f"different: {difference}" for difference in self.differences)
        yield from (f"note: {note}." for note in self.notes)
        verdict = "equal" if self.is_equal else "equal up to there"
        yield (
            f"{self.records} records of {self.partitions} partitions are {verdict}, "
            f"{self.same_bytes} of them byte for byte."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "equal": self.is_equal,
            "records": self.records,
            "same_bytes": self.same_bytes,
            "partitions": self.partitions,
            "differences": [asdict(difference) for difference in self.differences],
            "notes": list(self.notes),
        }


@on_spark(Compare)
def compare(spark: SparkSession, job: Compare) -> Compared:
    """Compare topics record by record: committed records, in the order of each partition.

    Offsets have to be the same, unless a mirror's state maps them: then what it has mirrored is
    compared, and no other record may be between.

    Where records differ and one side is compacted, a note says so: which records are left depends
    on when a log was compacted. `latest` compares what every compaction keeps.

    Raises:
        Misconfigured: arguments that cannot be, or a mirror's state of topics that were created
            again since.
        RequestRefused, NoAnswer: a cluster refuses, or does not answer.
    """
    selection = Selection.asked(job)
    other = Selection.of(job.target, None, ".*", job.from_, job.to, job.target_settings)
    if job.mirror_state is not None and job.ignore_offsets:
        raise Misconfigured("give a mirror's state, or ignore offsets")
    if job.latest and job.ignore_offsets:
        raise Misconfigured("the latest record of each key is found by offsets: do not ignore them")
    # Relative times are those of one moment.
    other = replace(other, from_ms=selection.from_ms, to_ms=selection.to_ms)
    with ExitStack() as stack:
        ledger = None
        if job.mirror_state is not None:
            ledger = stack.enter_context(closing(Ledger(DocumentsOnly(job.mirror_state))))
            if job.from_ is not None or job.to is not None:
                raise Misconfigured("a mirror's state has the times that it mirrors")
            first_ms, last_ms = ledger.range_ms or (None, None)
            selection = replace(selection, from_ms=first_ms, to_ms=last_ms)
        if job.latest and not selection.times.is_everything:
            raise Misconfigured(
                "the latest record of each key is that of a whole log: leave out from and to, and "
                "a mirror's state that has them"
            )
        cut = as_of(job.as_of, selection.read_options(**COMMITTED))
        if cut is not None and (job.latest or job.ignore_offsets):
            raise Misconfigured(
                "as of a time logs are compared by offsets, record by record: leave out latest and "
                "ignore-offsets"
            )
        is_cut = cut is not None
        logs = selection.log(is_cut, **COMMITTED), other.log(**COMMITTED)
        for log in logs:
            stack.enter_context(log)
        planner = _Planner(
            selections=(selection, other),
            logs=logs,
            columns=_columns_of(job.fields),
            ledger=ledger,
            renaming=Renaming.parse(job.rename),
            ignores_offsets=job.ignore_offsets,
            as_of=cut,
        )
        if job.latest:
            from horolog.jobs.comparing.latest import compare_latest  # noqa: PLC0415 - pyspark's

            pairs, outcomes, partitions = planner.pairs()
            if pairs:
                outcomes += compare_latest(spark, *planner.whole(pairs), pairs, names(job.fields))
            return _summed(outcomes, partitions)
        units, outcomes, partitions = planner.plan()
        progress = UnitProgress[ComparedStretch](job.on_progress, lambda unit: unit.offsets)
        for wave in spread(spark, units, walk, progress=progress):
            for outcome in wave:
                walked = outcome.result
                if walked is None:
                    walked = uncompared(outcome.unit.partition, outcome.error or "the task failed")
                outcomes.append(walked)
        notes = tuple(planner.notes(outcomes))
    return _summed(outcomes, partitions, notes)


def _summed(
    outcomes: Sequence[ComparedBatch], partitions: int, notes: tuple[str, ...] = ()
) -> Compared:
    first: dict[TopicPartition, Difference] = {}
    for outcome in outcomes:
        if outcome.difference is not None:
            first.setdefault(outcome.partition, outcome.difference)
    return Compared(
        sum(outcome.records for outcome in outcomes),
        sum(outcome.same_bytes for outcome in outcomes),
        partitions,
        tuple(difference for _, difference in sorted(first.items())),
        notes,
    )


def _columns_of(fields: Names) -> tuple[str, ...]:
    chosen = names(fields)
    for name in chosen:
        if name not in FIELDS:
            raise Misconfigured(f"field {name}: there are {', '.join(FIELDS)}")
    if not chosen:
        raise Misconfigured(f"fields: give some of {', '.join(FIELDS)}")
    return tuple(FIELDS[name] for name in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """Cuts the partitions of both sides into stretches that belong together."""

    selections: tuple[Selection, Selection]
    logs: tuple[BrokerLog | FileLog, BrokerLog | FileLog]
    columns: tuple[str, ...]
    ledger: Ledger | None
    renaming: Renaming
    ignores_offsets: bool
    as_of: AsOf | None

    def pairs(
        self,
    ) -> tuple[list[Pair], list[ComparedBatch], int]:
        """Return pairs of partitions, outcomes of those without a pair, and the number of all."""
        one, two = self.logs
        partitions = sorted(one.partitions())
        there = set(two.partitions())
        if self.ledger is not None:
            self.ledger.check_topics(one.topic_ids, two.topic_ids)
        pairs, unpaired = [], []
        for partition in partitions:
            name = TopicPartition(self._target_name(partition.topic), partition.partition)
            if name in there:
                pairs.append((partition, name))
            else:
                missing = Difference(*partition, None, None, "partition", "there", "missing")
                unpaired.append(ComparedBatch(partition, difference=missing))
        named = {name.topic for _, name in pairs}
        matched = {name for _, name in pairs}
        for name in sorted(there - matched):
            if name.topic in named:
                extra = Difference(*name, None, None, "partition", "missing", "there")
                unpaired.append(ComparedBatch(name, difference=extra))
        return pairs, unpaired, len(partitions)

    def whole(self, pairs: Sequence[Pair]) -> tuple[Selection, Selection]:
        """Return the selections that read whole partitions: all offsets, or what a mirror moved."""
        ours, theirs = self._bounds(pairs)
        if self.ledger is not None:
            for one, two in pairs:
                place = self.ledger.place(one)
                first = self.ledger.offsets(one).first()
                if place is None or first is None:  # nothing is mirrored
                    ours[one], theirs[two] = (ours[one][0],) * 2, (theirs[two][0],) * 2
                else:
                    ours[one] = max(first[0], ours[one][0]), place.offset
                    theirs[two] = max(first[1], theirs[two][0]), place.target_offset
        one_side, two_side = self.selections
        return one_side.within(ours), two_side.within(theirs)

    def _bounds(self, pairs: Sequence[Pair]) -> Iterator[dict[TopicPartition, Span]]:
        """Yield the start and the end of each partition, for either log."""
        ours, theirs = [one for one, _ in pairs], [two for _, two in pairs]
        for log, partitions in zip(self.logs, (ours, theirs), strict=True):
            starts, ends = log.earliest(partitions), log.latest(partitions)
            yield {partition: (starts[partition], ends[partition]) for partition in partitions}

    def notes(self, outcomes: Sequence[ComparedBatch]) -> Iterator[str]:
        """Yield a note for each compacted partition: a difference there need not be an error."""
        doubted = {
            batch.partition
            for batch in outcomes
            if batch.difference is not None and batch.difference.field not in ("error", "partition")
        }
        for partition in sorted(doubted):
            name = TopicPartition(self._target_name(partition.topic), partition.partition)
            sides = ((0, partition, "source"), (1, name, "target"))
            compacted = [side for which, its, side in sides if self._is_compacted(which, its)]
            if compacted:
                yield (
                    f"{partition} is compacted, or has lost records, in the log of the "
                    f"{' and of the '.join(compacted)}: which records compaction leaves "
                    "depends on when it ran. Compare the latest record of each key (--latest)"
                )

    def _is_compacted(self, side: int, partition: TopicPartition) -> bool:
        log = self.logs[side]
        if isinstance(log, FileLog):
            return log.is_compacted(partition)
        resource = ResourceType.TOPIC, partition.topic
        with self.selections[side].client() as client:
            entries = client.describe_configs([resource], names=[_POLICY])[resource]
        policy = entries[_POLICY].value if _POLICY in entries else None
        return "compact" in (policy or "")

    def plan(self) -> tuple[list[ComparedStretch], list[ComparedBatch], int]:
        """Return the stretches, outcomes of partitions that are not read, and the number of all."""
        pairs, outcomes, partitions = self.pairs()
        units: list[ComparedStretch] = []
        cut = self._cut_ends([one for one, _ in pairs])  # before the ends, which are behind it
        ours, theirs = self._bounds(pairs)
        for partition, name in pairs:
            try:
                end = self._cut_end(cut.get(partition), partition, ours[partition])
                units += self._stretches(partition, name, ours[partition], theirs[name], end)
            except HorologError as error:
                outcomes.append(uncompared(partition, str(error)))
        return units, outcomes, partitions

    def _cut_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, CutEntry]:
        """Return where the source is cut as of a time; nothing without one.

        Raises:
            Misconfigured: the cut is of another cluster, or a topic was created again since.
        """
        if self.as_of is None:
            return {}
        return entries_as_of(self.logs[0], self.as_of, partitions)

    def _cut_end(
        self, entry: CutEntry | None, partition: TopicPartition, at_source: Span
    ) -> int | None:
        """Return the offset of the source at which a comparison ends; None for the end of the log.

        Raises:
            Misconfigured: the source cannot be cut there, or was not mirrored up to there.
        """
        if entry is None or self.as_of is None:
            return None
        end = entry.committed_offset
        if entry.why is not None:
            raise Misconfigured(inexact(self.as_of, partition, entry.why))
        if end > at_source[1]:
            raise Misconfigured(
                f"the cut is at offset {end} of {partition}, which ends at {at_source[1]}: it is "
                "of another log, or records were lost since"
            )
        place = None if self.ledger is None else self.ledger.place(partition)
        if self.ledger is not None and (place is None or place.offset < end):
            raise Misconfigured(
                f"{partition} was mirrored up to offset {0 if place is None else place.offset}, "
                f"and the cut is at {end}: mirror it up to there first (--until)"
            )
        return end

    def _target_name(self, topic: str) -> str:
        if self.ledger is not None:
            state = self.ledger.topics.get(topic)
            if state is None:
                raise Misconfigured(f"the mirror's state knows no topic {topic}")
            return state.target
        return self.renaming(topic)

    def _stretches(
        self,
        partition: TopicPartition,
        name: TopicPartition,
        at_source: Span,
        at_target: Span,
        end: int | None,
    ) -> Iterator[ComparedStretch]:
        for ours, theirs, points in self._cuts(partition, at_source, at_target, end):
            yield ComparedStretch(
                partition=partition,
                source=self._side(0, partition, ours, at_source),
                target=self._side(1, name, theirs, at_target),
                columns=self.columns,
                points=np.array(points, np.int64).reshape(-1, 2),
                ignores_offsets=self.ignores_offsets,
            )

    def _cuts(
        self, partition: TopicPartition, at_source: Span, at_target: Span, cut_end: int | None
    ) -> Iterator[tuple[Span, Span, tuple[Point, ...]]]:
        """Yield stretches: their bounds at the source and at the target, and the points between.

        Args:
            cut_end: offset of the source at which they end; None for the ends of the logs.
        """
        if self.ignores_offsets:
            yield at_source, at_target, ()
            return
        if self.ledger is None:
            start, end = min(at_source[0], at_target[0]), max(at_source[1], at_target[1])
            end = end if cut_end is None else cut_end
            for cut in range(start, end, _OFFSETS_OF_UNIT):
                span = cut, min(cut + _OFFSETS_OF_UNIT, end)
                yield span, span, ()
            return
        place = self.ledger.place(partition)
        offsets = self.ledger.offsets(partition)
        first = offsets.first()
        if place is None or first is None:
            return
        end = place.offset if cut_end is None else cut_end
        for cut in range(min(first[0], end), end, _OFFSETS_OF_UNIT):
            upto = min(cut + _OFFSETS_OF_UNIT, end)
            to_start = offsets.translate(cut, place.target_offset)
            to_end = offsets.translate(upto, place.target_offset)
            assert to_start is not None
            assert to_end is not None
            yield (cut, upto), (to_start, to_end), offsets.between(cut, upto)

    def _side(self, number: int, partition: TopicPartition, asked: Span, has: Span) -> Side:
        selection = self.selections[number]
        options = selection.read_options(**COMMITTED)
        begin, stop = max(asked[0], has[0]), min(asked[1], has[1])
        stretches: tuple[Stretch, ...] = ()
        if begin < stop:
            stretches = stretches_of(self.logs[number], selection, options, partition, begin, stop)
        return Side(
            stretches=stretches,
            start=begin,
            end=max(begin, stop),
            options=options,
            times=selection.times,
        )
