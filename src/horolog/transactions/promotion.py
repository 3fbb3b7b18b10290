"""Decisions about the end of a source's transactions at a promotion.

What is decided is completed, and all else that is open is aborted. A marker in any partition is a
decision, and so is a state in `__transaction_state`, as for a coordinator that loads.

In the second flow (KIP-890) each transaction has an epoch of its own, and its marker and the states
after it have the next one. In the first flow a producer keeps its epoch, and the times of states
and markers tell its transactions apart.

The producer of an aborted transaction is fenced. An epoch here continues above all that came of its
producer, because `__transaction_state` may have come later than the partitions.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from horolog.schemas.transactions import SECOND_FLOW, TransactionStatus
from horolog.storage.names import CONSUMER_OFFSETS, FOLLOWED_OFFSETS, TopicPartition
from horolog.storage.producers.states import NEVER_GIVEN, NO_END, LastEnd
from horolog.transactions import decisions
from horolog.transactions.replay import TransactionReplay
from horolog.transactions.values import LAST_EPOCH, NONE, CoordinatedTransaction, ProducerIdentity

MOST_NOTES: Final = 1_000
"""Transactions that are named for each partition; the others are counted."""

_LONGEST_ID: Final = 100

_COMPLETE: Final = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
_COMMITS: Final = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT)


class PartitionHere(NamedTuple):
    """State of a followed partition: its end, open transactions and last markers."""

    end_offset: int
    opened: Mapping[int, int]
    """Producer ids with an open transaction, each with the epoch of its records."""
    ends: Mapping[int, LastEnd]
    """The last marker by producer id, or `NO_END`, as far as it is known."""
    confirmed_ms: int = -1
    """Time of the last answer of its leader that it had no more records; -1 if never."""


class Ends(NamedTuple):
    """Result of the decisions: states to write, transactions to commit, and notes."""

    changed: dict[str, CoordinatedTransaction]
    """States to be written before a partition leads."""
    committed: dict[TopicPartition, frozenset[int]]
    """Producer ids whose open transactions are committed; the others are aborted."""
    notes: dict[TopicPartition, list[str]]
    """Sentences about transactions that are not what they were at the source."""


class FollowedStates(TransactionReplay):
    """States of the source's transactional ids, and their decisions about the partitions."""

    def __init__(self, partitions: Mapping[TopicPartition, PartitionHere]) -> None:
        """Start without states.

        Args:
            partitions: the followed ones, with the source's `__consumer_offsets` by its name here.
        """
        super().__init__()
        self.decided: dict[tuple[TopicPartition, int], bool] = {}
        """True for each open transaction, by partition and producer id, that is committed."""
        self.lacking: dict[str, set[TopicPartition]] = {}
        """Partitions that may lack records of a committed transaction, by transactional id."""
        self._partitions = partitions
        self._opened: dict[ProducerIdentity, list[TopicPartition]] = {}
        for key, here in partitions.items():
            for opened in here.opened.items():
                self._opened.setdefault(ProducerIdentity(*opened), []).append(key)
        self._arrived_ms = 0

    def begin(self, arrived_ms: int) -> None:
        """Start the batches of another partition; the last of them arrived at `arrived_ms`."""
        self._arrived_ms = arrived_ms

    @property
    def highest_id(self) -> int:
        """Highest producer id that a broker can have given; -1 if none."""
        ids = (id_ for state in self.states.values() for id_ in (state.producer.id, state.next_id))
        return max((id_ for id_ in ids if id_ < NEVER_GIVEN), default=-1)

    def note(
        self, transactional_id: str, after: CoordinatedTransaction | None, written_ms: int = NONE
    ) -> None:
        """Apply a state, and decide open transactions of partitions by it."""
        before = self.states.get(transactional_id)
        if after is not None and not after.is_open:
            # Kafka takes this time before it writes the markers, and writes the record after them.
            after = after._replace(updated_ms=max(after.updated_ms, written_ms))
        super().note(transactional_id, after, written_ms)
        if after is None:
            self.lacking.pop(transactional_id, None)
        elif after.is_preparing:
            self._note_prepared(transactional_id, after, _epoch_of_records(before, after))
        elif after.status in _COMPLETE and after.client_version >= SECOND_FLOW:
            # Known by the epoch alone, where compaction has removed the decision.
            writer = _writer_of(after)
            for key in self._opened.get(writer, ()):
                self._decide(transactional_id, key, writer.id, after)

    def _note_prepared(self, id_: str, after: CoordinatedTransaction, epoch: int) -> None:
        producer, is_second = after.producer, after.client_version >= SECOND_FLOW
        for key in partitions_of(after, self._partitions):
            here = self._partitions[key]
            end = here.ends.get(producer.id, NO_END)
            if end.epoch > epoch or (
                end.epoch == epoch and not is_second and end.timestamp >= after.updated_ms
            ):
                continue  # its marker came
            # Where the last marker is not known, the epoch has to tell it from those before.
            is_certain = is_second or epoch < producer.epoch or producer.id in here.ends
            if here.opened.get(producer.id) == epoch and is_certain:
                self._decide(id_, key, producer.id, after)
            elif after.status in _COMMITS and here.confirmed_ms <= self._arrived_ms:
                self.lacking.setdefault(id_, set()).add(key)

    def _decide(
        self, id_: str, key: TopicPartition, producer_id: int, state: CoordinatedTransaction
    ) -> None:
        """Decide an open transaction of a partition by a state, unless an earlier state has."""
        is_commit = state.status in _COMMITS
        self.decided.setdefault((key, producer_id), is_commit)
        if is_commit and self._partitions[key].confirmed_ms <= self._arrived_ms:
            self.lacking.setdefault(id_, set()).add(key)


def ends_of(
    known: FollowedStates,
    partitions: Mapping[TopicPartition, PartitionHere],
    promoted: Collection[str],
    now_ms: int,
    *,
    is_led: bool = False,
) -> Ends:
    """Decide on all transactions of the source.

    Args:
        known: the states, in the order of their log.
        promoted: the topics among them that are promoted.
        now_ms: wall-clock time, for what is written.
        is_led: whether the coordinator here has written the last of `known`. What it has open in
            topics that are led already goes on.
    """
    return _Ending(known, partitions, promoted, now_ms, is_led).run()


@dataclass(slots=True)
class _Ending:
    _known: FollowedStates
    _partitions: Mapping[TopicPartition, PartitionHere]
    _promoted: Container[str]
    _now_ms: int
    _is_led: bool
    _keys: dict[int, list[TopicPartition]] = field(default_factory=dict)
    """The partitions that have something of a producer id."""
    _notes: dict[TopicPartition, list[str]] = field(default_factory=dict)
    _unnamed: Counter[TopicPartition] = field(default_factory=Counter)

    def run(self) -> Ends:
        for key, here in self._partitions.items():
            for producer_id in here.opened.keys() | here.ends.keys():
                self._keys.setdefault(producer_id, []).append(key)
        owners = {state.producer.id: id_ for id_, state in self._known.states.items()}
        markers = {
            id_: self._marker_of(state)
            for id_, state in self._known.states.items()
            if state.status is TransactionStatus.ONGOING
        }
        self._decide_by_markers(owners, markers)
        changed: dict[str, CoordinatedTransaction] = {}
        for id_, state in self._known.states.items():
            for key in sorted(self._known.lacking.get(id_, ())):
                self._note(key, id_, "committed at the source", "may not have arrived")
            self._note_late(id_, state)
            after = self._above(self._after(id_, state, markers.get(id_)))
            if after is not state:
                changed[id_] = after
        self._note_undecided(owners)
        for key, count in self._unnamed.items():
            self._notes[key].append(f"and {count} other transactions are not as at the source")
        committed: dict[TopicPartition, set[int]] = {}
        for (key, producer_id), is_commit in self._known.decided.items():
            if is_commit:
                committed.setdefault(key, set()).add(producer_id)
        frozen = {key: frozenset(ids) for key, ids in committed.items()}
        return Ends(changed, frozen, self._notes)

    # --- what is decided by markers ---------------------------------------------------

    def _marker_of(self, state: CoordinatedTransaction) -> LastEnd | None:
        """Return the marker of a transaction that is open by its last state here."""
        producer, is_second = state.producer, state.client_version >= SECOND_FLOW
        ends = []
        for key in self._keys.get(producer.id, ()):
            here = self._partitions[key]
            end = here.ends.get(producer.id, NO_END)
            if end.epoch == producer.epoch + 1:
                if is_second or not end.is_commit:  # or it was fenced in the first flow
                    ends.append(end)
            elif (
                not is_second
                and end.epoch == producer.epoch
                and end.timestamp > state.started_ms
                and producer.id not in here.opened
            ):
                ends.append(end)
        return min(ends, key=lambda end: (not end.is_commit, end.timestamp), default=None)

    def _decide_by_markers(
        self, owners: Mapping[int, str], markers: Mapping[str, LastEnd | None]
    ) -> None:
        """Decide open transactions of a partition by the markers of others."""
        decided = self._known.decided
        for key, here in self._partitions.items():
            for producer_id, epoch in here.opened.items():
                id_ = owners.get(producer_id)
                state = None if id_ is None else self._known.states[id_]
                is_its = (
                    state is not None
                    and state.status is TransactionStatus.ONGOING
                    and epoch == state.producer.epoch
                    and key in partitions_of(state, self._partitions)
                )
                if id_ is not None and is_its:
                    marker = markers[id_]
                    outcome = None if marker is None else marker.is_commit
                elif (key, producer_id) in decided:
                    continue
                else:
                    outcome = self._by_markers(key, producer_id, epoch, state)
                if outcome is None:
                    continue
                decided[key, producer_id] = outcome
                if outcome:
                    name = _name(id_, producer_id)
                    self._note(key, name, "committed at the source", "may not have arrived")

    def _by_markers(
        self,
        key: TopicPartition,
        producer_id: int,
        epoch: int,
        state: CoordinatedTransaction | None,
    ) -> bool | None:
        """Return the outcome of an open transaction by markers alone; None if unknown."""
        keys = self._keys[producer_id]
        ends = [self._partitions[partition].ends.get(producer_id, NO_END) for partition in keys]
        outcomes = {end.is_commit for end in ends if end.epoch == epoch + 1}
        # The flow of a producer is known from its first transaction on.
        is_first = state is not None and state.client_version < SECOND_FLOW
        if outcomes and (
            not is_first or (state is not None and state.status is TransactionStatus.EMPTY)
        ):
            return outcomes == {True}
        if state is None or not is_first or state.is_open or epoch < state.producer.epoch:
            return None
        if state.status is TransactionStatus.EMPTY and epoch > state.producer.epoch:
            return None  # it may be of the second flow
        since_ms = state.updated_ms if epoch == state.producer.epoch else NONE
        own = self._partitions[key].ends.get(producer_id, NO_END)
        if own.epoch > epoch or (own.epoch == epoch and own.timestamp > since_ms):
            return None  # the marker of another partition may be of the same transaction as its own
        later = [end for end in ends if end.epoch == epoch and end.timestamp > since_ms]
        return all(end.is_commit for end in later) if later else None

    # --- states -----------------------------------------------------------------------

    def _after(
        self, id_: str, state: CoordinatedTransaction, marker: LastEnd | None
    ) -> CoordinatedTransaction:
        """Return the state of an id after its open transaction is decided."""
        keys = [*partitions_of(state, self._partitions)]
        id_of_producer, epoch = state.producer
        if state.status is TransactionStatus.PREPARE_COMMIT:
            for key in keys:
                here = self._partitions[key]
                is_known = id_of_producer in here.ends  # then it is decided by that marker
                if here.opened.get(id_of_producer) == epoch and not is_known:
                    self._known.decided.setdefault((key, id_of_producer), True)
        if state.status is not TransactionStatus.ONGOING:
            return state
        if self._is_led and not any(key.topic in self._promoted for key in keys):
            return state
        version = state.client_version
        if marker is not None:
            after = decisions.prepared(state, version, self._now_ms, commit=marker.is_commit)
            return after._replace(updated_ms=marker.timestamp)
        for key in keys:
            self._known.decided.setdefault((key, id_of_producer), False)
            self._note(key, id_, "open at the source, and aborted here", "may be missing")
        return decisions.prepared(state, version, self._now_ms, commit=False, fences=True)

    def _above(self, after: CoordinatedTransaction) -> CoordinatedTransaction:
        """Return a state whose epoch is above all epochs of its producer in partitions.

        With a lower epoch its markers, and the records of its next producer, would be fenced. The
        epoch is two above, so that an EndTxn of the source's producer is not taken for a retry.
        """
        id_, epoch = after.producer
        highest = NONE
        for key in self._keys.get(id_, ()):
            here = self._partitions[key]
            end, opened = here.ends.get(id_, NO_END), here.opened.get(id_, NONE)
            if end.epoch > epoch:
                highest = max(highest, end.epoch)
            if opened >= epoch and (key, id_) not in self._known.decided:
                highest = max(highest, opened)
        if highest == NONE:
            return after
        producer = ProducerIdentity(id_, min(highest + 2, LAST_EPOCH))
        return after._replace(producer=producer, last_epoch=NONE)

    # --- what is to be said -----------------------------------------------------------

    def _note_late(self, id_: str, state: CoordinatedTransaction) -> None:
        """Note a transaction that ended after its last state that arrived here.

        Which partitions it had is not known, so any of them may lack records of it.
        """
        for key in self._keys.get(state.producer.id, ()):
            end = self._partitions[key].ends.get(state.producer.id, NO_END)
            if _is_after(end, state, key):
                what = "ended at the source after its last state that came"
                self._note(key, id_, what, "and in other partitions may not have arrived")

    def _note_undecided(self, owners: Mapping[int, str]) -> None:
        for key, here in self._partitions.items():
            for producer_id in here.opened:
                if (key, producer_id) not in self._known.decided:
                    name = _name(owners.get(producer_id), producer_id)
                    what = (
                        "aborted, as no end and no state of it came, and may be committed at the "
                        "source"
                    )
                    self._note(key, name, what, "and in other partitions may not have arrived")

    def _note(self, key: TopicPartition, name: str, what: str, records: str) -> None:
        if key.topic not in self._promoted:
            return
        notes = self._notes.setdefault(key, [])
        if len(notes) >= MOST_NOTES:
            self._unnamed[key] += 1
            return
        end_offset = self._partitions[key].end_offset
        notes.append(
            f"a transaction of {name[:_LONGEST_ID]!r} was {what}: records of it from offset "
            f"{end_offset} on {records}"
        )


def partitions_of(
    state: CoordinatedTransaction, partitions: Container[TopicPartition]
) -> Iterator[TopicPartition]:
    """Yield the partitions of a transaction that are among some, by their names here."""
    for topic, index in sorted(state.partitions):
        key = TopicPartition(FOLLOWED_OFFSETS if topic == CONSUMER_OFFSETS else topic, index)
        if key in partitions:
            yield key


def _name(transactional_id: str | None, producer_id: int) -> str:
    return f"producer id {producer_id}" if transactional_id is None else transactional_id


def _epoch_of_records(
    before: CoordinatedTransaction | None, decided: CoordinatedTransaction
) -> int:
    """Return the epoch of the records of a transaction that is decided.

    The decision raises it in the second flow, and so does a fence, or a promotion (`_above`): then
    it is known from the state before.
    """
    if before is not None and before.status is TransactionStatus.ONGOING:
        of_before = before.producer.id, before.started_ms
        if of_before == (decided.producer.id, decided.started_ms):
            return before.producer.epoch
    return decided.producer.epoch - (decided.client_version >= SECOND_FLOW)


def _writer_of(completed: CoordinatedTransaction) -> ProducerIdentity:
    """Return the producer of a completed transaction of the second flow, with its records' epoch.

    Its markers had the next epoch. After the last epoch the id has changed, too.
    """
    producer = completed.producer
    if producer.epoch == 0:
        return ProducerIdentity(completed.previous_id, LAST_EPOCH - 1)
    return ProducerIdentity(producer.id, producer.epoch - 1)


def _is_after(end: LastEnd, state: CoordinatedTransaction, key: TopicPartition) -> bool:
    """Return True if a marker was written after a state that does not include it."""
    if end.epoch != state.producer.epoch or state.client_version >= SECOND_FLOW:
        return end.epoch > state.producer.epoch
    if state.is_preparing and key in partitions_of(state, (key,)):
        return False  # it is its own, as far as can be known
    since_ms = state.started_ms if state.status is TransactionStatus.ONGOING else state.updated_ms
    return end.timestamp > since_ms
