"""Archives, as they are cut at an append time.

The facts of batches say when each was appended, those of aborted transactions included. So an
archive parts where its source did, as far as its manifest vouches for append times: up to the end
of its last whole run. At or after a time that is behind all of its batches it parts only as of the
time that it was archived at (`ArchivedCut`).
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from horolog.client import AskCut, PartitionCut
from horolog.errors import CorruptFile, StorageFailed
from horolog.jobs.archives.facts import LEFT_OUT, NO_APPEND_TIME, Facts
from horolog.jobs.archives.manifest import ArchivedPartition, ArchivedTimes, Manifest
from horolog.jobs.archives.rows import read_facts
from horolog.jobs.archives.store import ArchiveStore
from horolog.offsets import Inexact, TransactionStart
from horolog.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from horolog.record.stretches import Int64Array
from horolog.sources.limits import Subscription, subscribed
from horolog.storage.directory.checkpoints import kafka_uuid
from horolog.storage.names import MAX_OFFSET, TopicPartition

_NO_PRODUCER: Final = -1
_WITHOUT_TIMES: Final = (
    "the archive does not know its append times: the source has none, or its last run was not "
    "finished, and has to be run again"
)


class ArchiveLog:
    """The topics of an archive, as of its newest manifest, to be cut at append times."""

    def __init__(
        self, store: ArchiveStore, manifest: Manifest, subscription: Subscription | None
    ) -> None:
        """Choose partitions, by default all.

        Raises:
            Misconfigured: one that is named is not in the archive.
        """
        self._store = store
        states = manifest.partitions()
        chosen: Collection[TopicPartition] = states
        if subscription is not None:
            chosen = subscribed(subscription, states, f"in the archive {store.name}")
        self._states = {key: states[key] for key in chosen}
        self._topics = {key.topic: manifest.topics[key.topic] for key in chosen}
        self._histories: dict[TopicPartition, _History] = {}
        self.topic_ids: dict[str, str] = {
            name: kafka_uuid(UUID(topic.topic_id))
            for name, topic in self._topics.items()
            if topic.topic_id is not None
        }
        """Topic ids by name, as Kafka prints them."""

    def partitions(self) -> Collection[TopicPartition]:
        """Return the archived partitions of the chosen topics."""
        return self._states.keys()

    def cluster_id(self) -> str | None:
        """Return the id of the cluster that the topics are from; None if it is not one."""
        ids = {topic.cluster_id for topic in self._topics.values()}
        return ids.pop() if len(ids) == 1 else None

    def cut(
        self, asks: Mapping[TopicPartition, AskCut]
    ) -> Mapping[TopicPartition, PartitionCut | str]:
        """Cut partitions at append times; a sentence about one that cannot be cut."""
        return {key: self._cut(key, ask) for key, ask in asks.items()}

    def _cut(self, partition: TopicPartition, ask: AskCut) -> PartitionCut | str:
        topic, state = self._topics[partition.topic], self._states[partition]
        if not topic.times.is_everything:
            return "only a range of time of it is archived"
        if state.times is None or state.times.end < state.times.start + bool(state.batches):
            return _WITHOUT_TIMES
        try:
            history = self._history(partition, state, state.times)
        except (CorruptFile, StorageFailed) as error:
            return str(error)
        offset, why = history.cut(ask.at)
        found = history.unfinished(offset, ask.behind, ask.since)
        known = state.cut
        if known is not None and ask.at == known.at_ms and known.committed_offset < offset:
            # There a transaction was open, which may not be in the archive.
            found.append(TransactionStart(_NO_PRODUCER, known.committed_offset, ask.at))
        return PartitionCut(offset, why, tuple(found), None, state.times.doubts)

    def _history(
        self, partition: TopicPartition, state: ArchivedPartition, times: ArchivedTimes
    ) -> "_History":
        """Return the history of a partition, which is read once.

        Raises:
            CorruptFile: a file is damaged.
            StorageFailed: one cannot be read.
        """
        if partition not in self._histories:
            history = _History(state, times)
            for facts in read_facts(
                self._store, state.batches, times.start, MAX_OFFSET, with_left_out=True
            ):
                history.add(facts)
            self._histories[partition] = history
        return self._histories[partition]


class _Steps(NamedTuple):
    """The first batches of an append time, behind batches of others."""

    offsets: Int64Array
    append_ms: Int64Array
    """`NO_APPEND_TIME` where it is unknown."""
    is_partial: npt.NDArray[np.bool_]
    """Marks batches that have lost records, so that their first one may have another offset."""


class _Step(NamedTuple):
    """The first batch that may have been appended at or after a time."""

    offset: int
    ms: int | None
    """None if it is unknown."""
    is_partial: bool


_NO_STEPS: Final = _Steps(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


@dataclass(slots=True)
class _Transaction:
    """Transaction of a producer, with the offset of its marker; None while it is open."""

    start: TransactionStart
    marker: int | None = None


class _History:
    """Append times and transactions of an archived partition."""

    def __init__(self, state: ArchivedPartition, times: ArchivedTimes) -> None:
        self._state, self._times = state, times
        starts = {range_.end for range_ in state.ranges if range_.is_lost}
        self._starts = sorted(starts | {max(times.start, state.start)})
        """Offsets before which records are deleted, or without append times."""
        self._parts: list[_Steps] = []
        self._steps = _NO_STEPS
        self._transactions: list[_Transaction] = []
        self._open: dict[int, _Transaction] = {}
        self._known: tuple[int, set[int]] = (0, set())
        """The last of the starts, and the producers with batches behind it."""

    def add(self, facts: Facts) -> None:
        """Take the next batches."""
        self._add_steps(facts.taken(facts["records"] != 0))
        is_of_transaction = facts["attributes"] & TRANSACTIONAL_BIT != 0
        facts = facts.taken(is_of_transaction & (facts["records"] != 0))
        assert facts.append_ms is not None
        for base, producer_id, is_control, ms in zip(
            facts["base_offset"].tolist(),
            facts["producer_id"].tolist(),
            (facts["attributes"] & CONTROL_BIT != 0).tolist(),
            facts.append_ms.tolist(),
            strict=True,
        ):
            known_ms = None if ms == NO_APPEND_TIME else ms
            self._add_to_transaction(base, producer_id, is_control, known_ms)

    def _add_steps(self, facts: Facts) -> None:
        if not len(facts):
            return
        assert facts.append_ms is not None
        offsets, last_offsets = facts["base_offset"].copy(), facts["last_offset"]
        for start in self._starts:  # may be within a batch
            place = int(np.searchsorted(last_offsets, start))
            if place < len(offsets):
                offsets[place] = max(start, offsets[place])
        records, counts = facts["records"], last_offsets - facts["base_offset"] + 1
        is_partial = (records != LEFT_OUT) & (records < counts)
        is_step = np.concatenate(([True], facts.append_ms[1:] != facts.append_ms[:-1]))
        self._parts.append(_Steps(offsets[is_step], facts.append_ms[is_step], is_partial[is_step]))

    def _add_to_transaction(
        self, base: int, producer_id: int, is_control: bool, ms: int | None
    ) -> None:
        start = self._starts[max(0, bisect_right(self._starts, base) - 1)]
        if start != self._known[0]:
            self._known = start, set()
        transaction = self._open.get(producer_id)
        is_unseen = start > 0 and producer_id not in self._known[1]
        self._known[1].add(producer_id)
        if transaction is None and (is_unseen or not is_control):
            begun = TransactionStart(producer_id, max(start, base), ms)
            if is_control:  # its records may be deleted
                begun = TransactionStart(producer_id, start, None)
            transaction = self._open[producer_id] = _Transaction(begun)
            self._transactions.append(transaction)
        if is_control and transaction is not None:
            transaction.marker = base
            del self._open[producer_id]

    def cut(self, at_ms: int) -> tuple[int, Inexact | None]:
        """Return the first offset that was appended at or after a time, and why it is not exact."""
        step, state, cut = self._find(at_ms), self._state, self._state.cut
        is_reset = self._times.doubts.is_reset(at_ms)
        if step is not None:
            return step.offset, Inexact.RESET if is_reset else self._why(step, at_ms)
        if cut is None or at_ms > cut.at_ms or (at_ms < cut.at_ms and state.end < cut.offset):
            return state.end, Inexact.FUTURE
        if is_reset:
            return cut.offset, Inexact.RESET
        is_gone = state.start == cut.offset > 0 and at_ms < cut.at_ms
        return cut.offset, Inexact.DELETED if is_gone else None

    def _why(self, step: _Step, at_ms: int) -> Inexact | None:
        """Return why a cut at a batch is not exact; None if it is."""
        times, offset = self._times, step.offset
        is_untold = offset >= times.end or offset == times.start > self._state.start
        why = times.doubts.why(at_ms, offset, None if is_untold else step.ms)
        if why is None and offset in self._starts and offset > 0:
            return Inexact.DELETED
        return Inexact.COMPACTED if why is None and step.is_partial else why

    def _find(self, at_ms: int) -> _Step | None:
        """Return the first batch that may have been appended at or after a time."""
        if self._parts:
            columns = zip(self._steps, *self._parts, strict=True)
            self._steps = _Steps(*map(np.concatenate, columns))
            self._parts = []
        offsets, append_ms, is_partial = self._steps
        is_known = append_ms != NO_APPEND_TIME
        later = np.flatnonzero(is_known & (append_ms >= at_ms))
        earlier = np.flatnonzero(is_known[: later[0]] if len(later) else is_known)
        place = int(earlier[-1]) + 1 if len(earlier) else 0
        if place == len(offsets):
            return None
        ms = int(append_ms[place]) if is_known[place] else None
        return _Step(int(offsets[place]), ms, bool(is_partial[place]))

    def unfinished(
        self, before: int, behind: int | None, since: Mapping[int, int]
    ) -> list[TransactionStart]:
        """Return, for each producer, its first transaction that had not ended at some place.

        As `storage.lookup.cuts.unfinished` does it.
        """
        others = before if behind is None else min(behind, before)
        places = {}
        for producer_id, at_ms in since.items():
            step = self._find(at_ms)
            places[producer_id] = before if step is None else min(before, step.offset)
        found: dict[int, TransactionStart] = {}
        for start, marker in ((its.start, its.marker) for its in self._transactions):
            place = places.get(start.producer_id, others)
            if start.offset < before and (marker is None or marker >= place):
                found.setdefault(start.producer_id, start)
        return [found[producer_id] for producer_id in sorted(found)]
