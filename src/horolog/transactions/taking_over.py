"""What a promotion makes of the source's transactions, from what has come here of them.

`__transaction_state` and the partitions are followed each for itself. A partition is *confirmed*
for a state if its leader, asked after that state came, had no more than what is here: records of a
transaction are acknowledged before its outcome is written, and so all of them are here.

- The outcome is known from the state, or from a marker in one of the partitions. A marker may have
  been read: it is never turned. The partitions that lack theirs get the same.
- A commit that is known from its state alone, with a partition that is not confirmed, is aborted in
  all partitions, as no reader has seen any of it. It is named.
- A commit of which a marker was written is completed. A partition that is not confirmed commits
  what is here, most often all of it; one that is known to lack records aborts its part. Both are
  named.
- A marker may come before its state, by many transactions: `__transaction_state` is followed for
  itself. What is open with an epoch ends as its marker in another partition says (KIP-890), the
  transaction is named, and the epoch continues above all that came.
- What is open and of no transaction whose state came, nor ended by such a marker, is aborted. It
  may be committed at the source, and is named.
- What was open stays open if everything was confirmed after the promotion had begun. Else records
  that were acknowledged may be missing: it is aborted, and its producer fenced, as by its timeout.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.schemas.transactions import SECOND_FLOW, Status
from horolog.storage.names import CONSUMER_OFFSETS, FOLLOWED_OFFSETS, TopicPartition
from horolog.storage.producers.states import NEVER_GIVEN, NO_END, LastEnd
from horolog.transactions import decisions
from horolog.transactions.replay import Replay
from horolog.transactions.values import LAST_EPOCH, NONE, Producer, Transaction

MOST_NOTES: Final = 100
"""Transactions that are named for each partition though none of them can be here in part; of the
others it is said how many they are."""

MOST_TORN: Final = 10_000
"""Transactions, each in each partition, that are named as perhaps here in part; the same."""

MOST_DECIDED: Final = 8
"""Last outcomes of a transactional id that are remembered, beside the first that are lacking."""

_LONGEST_ID: Final = 100

_UNCLEAR: Final = "aborted, as no end and no state of it came, and may be committed at the source"
_AND_ELSEWHERE: Final = "and in other partitions may not have arrived"

_OFFSETS: Final = (CONSUMER_OFFSETS, FOLLOWED_OFFSETS)

_COMPLETE: Final = (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)


class Outcomes(NamedTuple):
    """How transactions end that are open in a partition; those of neither set are aborted."""

    goes_on: frozenset[int] = frozenset()
    """Producer ids whose transaction the coordinator here ends."""
    committed: frozenset[int] = frozenset()
    """Producer ids whose transaction is committed."""
    aborted: frozenset[int] = frozenset()
    """Producer ids whose transaction is aborted, though the coordinator has another one of theirs
    to end in the partition."""


class ProducersHere(NamedTuple):
    """What the log of a partition has of transactions."""

    end_offset: int
    opened: Mapping[int, int]
    """Producer ids with an open transaction, each with the epoch of its records."""
    ends: Mapping[int, LastEnd]
    """The last marker by producer id, or `NO_END`, as far as it is known."""


class PartitionHere(NamedTuple):
    """What has come of a partition."""

    producers: ProducersHere
    confirmed_ms: int = -1
    """When its leader was asked the last time that it had nothing more; -1 if never."""
    is_behind: bool = False
    """Whether it is known to have more."""


class FollowedStates(Replay):
    """The states of the source's transactional ids; and of each the last that was decided.

    What is open in a partition is of the first transaction whose end is missing there. So that one
    is remembered, too, however many were decided since.
    """

    def __init__(
        self, partitions: Mapping[TopicPartition, PartitionHere], *, is_repeated: bool = False
    ) -> None:
        """Of none.

        Args:
            partitions: those that are promoted, and those of the source's `__consumer_offsets` by
                its name here. States have them by this name, then.
            is_repeated: whether a promotion that was interrupted has written states by now.
        """
        super().__init__()
        self._partitions = partitions
        self._has_offsets = any(key.topic == FOLLOWED_OFFSETS for key in partitions)
        self._is_repeated = is_repeated
        self._decided: dict[str, deque[tuple[Transaction, int]]] = {}
        self._firsts: dict[str, list[tuple[Transaction, int]]] = {}
        self._lacking: dict[str, set[TopicPartition]] = {}  # of `_firsts`
        self._missing: dict[str, set[TopicPartition]] = {}
        self._opened: dict[Producer, list[TopicPartition]] = {}  # in `partitions`, by the producer
        for key, here in partitions.items():
            for opened in here.producers.opened.items():
                self._opened.setdefault(Producer(*opened), []).append(key)
        self._committed: dict[str, dict[TopicPartition, Producer]] = {}
        self._came_ms: Callable[[int], int] = int
        self._offset = -1

    def begin(self, came_ms: Callable[[int], int]) -> None:
        """Another partition's batches follow; when one came by its offset, at the latest."""
        self._came_ms = came_ms

    @property
    def highest_id(self) -> int:
        """The highest producer id that a broker can have given; -1 if there is none."""
        ids = (id_ for each in self.states.values() for id_ in (each.producer.id, each.next_id))
        return max((id_ for id_ in ids if id_ < NEVER_GIVEN), default=-1)

    def take(self, batch: Buffer) -> None:
        """See `Replay.take`."""
        self._offset = int.from_bytes(bytes(batch[:8]))
        super().take(batch)

    def note(
        self, transactional_id: str, after: Transaction | None, written_ms: int = NONE
    ) -> None:
        """See `Replay.note`."""
        before = self.states.get(transactional_id)
        if after is not None and not after.is_open:
            # A Kafka takes this time before the markers, and writes the record after them.
            after = after._replace(updated_ms=max(after.updated_ms, written_ms))
        if after is not None and self._has_offsets:
            after = self._renamed(after)
        is_same = before is not None and after is not None and _are_of_one(before, after)
        if before is not None and after is not None and is_same:
            after = after._replace(last_epoch=_written_in(before))
        super().note(transactional_id, after, written_ms)
        if before is not None and before.status is Status.PREPARE_COMMIT and not is_same:
            self._note_missing(transactional_id, *self._decided[transactional_id][-1])
        if after is None:
            kept = self._decided, self._firsts, self._lacking, self._missing, self._committed
            for each in kept:
                each.pop(transactional_id, None)
        elif after.is_preparing:
            its = self._decided.setdefault(transactional_id, deque(maxlen=MOST_DECIDED))
            decided = after, self._came_ms(self._offset)
            if before is not None and before.is_preparing and is_same:  # a promotion has turned it
                turned, firsts = its.pop(), self._firsts.get(transactional_id, [])
                firsts[:] = [decided if each == turned else each for each in firsts]
            its.append(decided)
            self._note_lacking(transactional_id, *its[-1])
        elif after.status is Status.COMPLETE_COMMIT and after.client_version >= SECOND_FLOW:
            for partition in self._opened.get(_writer(after), ()):
                self._committed.setdefault(transactional_id, {})[partition] = _writer(after)

    def _renamed(self, state: Transaction) -> Transaction:
        """A state with the source's partitions of `__consumer_offsets` by their name here.

        One that a promotion here has written has both: those by this name, and those that are led
        here. One that a promotion of the source has written has both for its own source.
        """
        present = state.partitions
        carried = {each for each in present if each[0] == FOLLOWED_OFFSETS}
        led = {each for each in present if each[0] == CONSUMER_OFFSETS}
        if not carried and not led:
            return state
        if not (carried and self._is_repeated):
            carried = {(FOLLOWED_OFFSETS, index) for _, index in led}
        others = {each for each in present if each[0] not in _OFFSETS}
        return state._replace(partitions=frozenset(others | carried))

    def _note_lacking(self, id_: str, decided: Transaction, came_ms: int) -> None:
        before = self._lacking.setdefault(id_, set())
        its = _of(self._partitions, decided)
        new = {key for key, here in its.items() if key not in before and _lacks(here, decided)}
        if new:
            self._firsts.setdefault(id_, []).append((decided, came_ms))
            before |= new

    def _note_missing(self, id_: str, decided: Transaction, came_ms: int) -> None:
        its = _of(self._partitions, decided).items()
        self._missing.setdefault(id_, set()).update(
            key
            for key, here in its
            if not _has_end(here, decided) and (here.is_behind or here.confirmed_ms <= came_ms)
        )

    def missing_of(self, transactional_id: str) -> Collection[TopicPartition]:
        """Partitions that may lack records of former transactions, which were committed."""
        return sorted(self._missing.get(transactional_id, ()))

    def decided_of(self, transactional_id: str) -> list[tuple[Transaction, int]]:
        """Outcomes that are in the log, in order, and when they came; the last one is the last."""
        last = [*self._decided.get(transactional_id, ())]
        first = self._firsts.get(transactional_id, ())
        return [*(each for each in first if each not in last), *last]

    def committed_of(self, transactional_id: str) -> Mapping[TopicPartition, Producer]:
        """Where what is open is of a transaction that is committed, by its epoch (KIP-890).

        So it is known also where compaction has removed the decision, which has the partitions.
        """
        return self._committed.get(transactional_id, {})


class TakenOver(NamedTuple):
    """What is to be done."""

    changed: dict[str, Transaction]
    """States to be written before a partition leads."""
    outcomes: dict[TopicPartition, Outcomes]
    notes: dict[TopicPartition, list[str]]
    """Transactions that are not what they were at the source, in sentences."""


def taken_over(
    known: FollowedStates,
    partitions: Mapping[TopicPartition, PartitionHere],
    begun_ms: int,
    now_ms: int,
    *,
    is_current: bool,
    is_led: bool = False,
) -> TakenOver:
    """Decide on all transactions.

    Args:
        known: the states, in the order in which they came.
        partitions: those that are promoted.
        begun_ms: when the promotion had begun, in the milliseconds of `PartitionHere`.
        now_ms: wall-clock time, for what is written.
        is_current: whether `known` was confirmed after that.
        is_led: whether the coordinator here has written `known`: what it has decided is not turned.
    """
    return _TakingOver(known, partitions, begun_ms, now_ms, is_current, is_led).run()


@dataclass(slots=True)
class _TakingOver:
    _known: FollowedStates
    _partitions: Mapping[TopicPartition, PartitionHere]
    _begun_ms: int
    _now_ms: int
    _is_current: bool
    _is_led: bool
    _changed: dict[str, Transaction] = field(default_factory=dict)
    _goes_on: dict[TopicPartition, set[int]] = field(default_factory=dict)
    _former: dict[TopicPartition, set[int]] = field(default_factory=dict)
    _committed: dict[TopicPartition, set[int]] = field(default_factory=dict)
    _notes: dict[TopicPartition, list[str]] = field(default_factory=dict)
    _torn: int = 0
    _unnamed: Counter[tuple[TopicPartition, bool]] = field(default_factory=Counter)
    _settled: set[tuple[TopicPartition, int]] = field(default_factory=set)

    def run(self) -> TakenOver:
        for id_, state in self._known.states.items():
            decided = self._known.decided_of(id_)
            came_ms = decided.pop()[1] if state.is_preparing else 0
            lost: set[TopicPartition] = set()  # where what is open is of a former transaction
            for former, _ in decided:
                lost |= self._complete(id_, former, lost)
            for partition in self._known.missing_of(id_):
                self._note_committed(partition, id_)
            lost |= self._complete_unnamed(id_, lost)
            self._settled.update((partition, state.producer.id) for partition in lost)
            others = self._others(state, lost)
            if state.is_open:
                its = self._of(state).keys() - others
                self._settled.update((partition, state.producer.id) for partition in its)
            self._note_later(id_, state)
            after = state
            if state.is_preparing:
                after = self._prepared(id_, state, came_ms, is_seen=self._is_led)
            elif state.status is Status.ONGOING and (self._of(state) or not self._is_led):
                after = self._ongoing(id_, state, lost)
            after = self._above(after, others)
            if after is not state:
                self._changed[id_] = after
            if after.is_open:
                for partition in self._of(after):
                    is_its = partition not in lost and partition not in others
                    producers = self._goes_on if is_its else self._former
                    producers.setdefault(partition, set()).add(after.producer.id)
        self._end_unknown()
        for (partition, is_torn), count in self._unnamed.items():
            what = "may be here in part" if is_torn else "are aborted here"
            self._notes[partition].append(f"and {count} other transactions {what}")
        outcomes = {each: self._outcomes(each) for each in self._partitions}
        return TakenOver(self._changed, outcomes, self._notes)

    def _outcomes(self, partition: TopicPartition) -> Outcomes:
        goes_on, committed, former = (
            frozenset(producers.get(partition, ()))
            for producers in (self._goes_on, self._committed, self._former)
        )
        return Outcomes(goes_on, committed, former - committed)

    # --- what was decided at the source -----------------------------------------------

    def _complete(
        self, id_: str, decided: Transaction, lost: Container[TopicPartition]
    ) -> set[TopicPartition]:
        """End what the source has completed, where its marker did not come; where it is open."""
        producer_id, found = decided.producer.id, set()
        for partition, here in self._of(decided).items():
            if _has_end(here, decided):
                continue
            if partition in lost or producer_id not in here.producers.opened:
                continue
            if self._is_of(id_, decided, partition, here):
                found.add(partition)
                if decided.status is Status.PREPARE_COMMIT and not here.is_behind:
                    self._committed.setdefault(partition, set()).add(producer_id)
        return found

    def _complete_unnamed(self, id_: str, lost: Container[TopicPartition]) -> set[TopicPartition]:
        """End commits of which the decision is not in the log any more; where they are open."""
        found = set()
        for partition, producer in self._known.committed_of(id_).items():
            if partition in lost:
                continue
            here = self._partitions[partition]
            found.add(partition)
            self._settled.add((partition, producer.id))
            self._note_committed(partition, id_)
            if not here.is_behind:
                self._committed.setdefault(partition, set()).add(producer.id)
        return found

    def _is_of(
        self, id_: str, decided: Transaction, partition: TopicPartition, here: PartitionHere
    ) -> bool:
        """Whether what is open is of a transaction that was decided, and not of one after it.

        The last marker may not be known where a Kafka has written the snapshot of producers, and
        of a producer that was idle for `producer.id.expiration.ms`.
        """
        if not _has_written(decided, here.producers.opened[decided.producer.id]):
            return False
        if decided.client_version >= SECOND_FLOW:
            return True
        present = self._known.states[id_]
        is_known = decided.producer.id in here.producers.ends
        return is_known or not present.is_open or tuple(partition) not in present.partitions

    def _prepared(
        self, id_: str, state: Transaction, came_ms: int, *, is_seen: bool = False
    ) -> Transaction:
        """The state of a transaction whose outcome is decided."""
        its = self._of(state)
        if state.status is Status.PREPARE_ABORT:
            return state
        lacking = {key: here for key, here in its.items() if not _has_end(here, state)}
        unsure = {key: here for key, here in lacking.items() if here.confirmed_ms <= came_ms}
        has_offsets = _has_unknown_offsets(state, its)
        is_seen = is_seen or any(_may_have_end(here, state, came_ms) for here in its.values())
        if len(lacking) == len(its) and not is_seen and its and (unsure or has_offsets):
            for key, here in its.items():
                what = "may not have arrived" if key in unsure else "arrived"
                self._note(
                    key,
                    id_,
                    "committed at the source, and aborted here in all partitions",
                    here,
                    what,
                )
            return state._replace(status=Status.PREPARE_ABORT)
        without = set()
        for key, here in unsure.items():
            self._note_committed(key, id_)
            if here.is_behind:
                without.add((key.topic, key.partition))
        return state._replace(partitions=state.partitions - without) if without else state

    def _ongoing(self, id_: str, state: Transaction, lost: set[TopicPartition]) -> Transaction:
        its = self._of(state)
        ends = [
            end for here in self._partitions.values() if (end := _ended(here, state)) is not None
        ]
        version = state.client_version
        if any(end.is_commit for end in ends):
            after = decisions.prepared(state, version, self._now_ms, commit=True)
            after = after._replace(updated_ms=min(end.timestamp for end in ends))
            last = max((here.confirmed_ms for here in its.values()), default=-1)
            return self._prepared(id_, after, last, is_seen=True)
        if ends:
            return decisions.prepared(state, version, self._now_ms, commit=False)
        has_offsets = not self._is_led and _has_unknown_offsets(state, its)
        if (
            self._is_current
            and not lost
            and not has_offsets
            and all(here.confirmed_ms >= self._begun_ms for here in its.values())
        ):
            return state
        for key, here in its.items():
            self._note(key, id_, "open at the source, and aborted here", here, "may be missing")
        return decisions.prepared(state, version, self._now_ms, commit=False, fences=True)

    def _note_later(self, id_: str, state: Transaction) -> None:
        """Name a transaction that has ended after its last state here.

        Which partitions it had is not known, so any of them may lack it.
        """
        for partition, here in self._partitions.items():
            end = here.producers.ends.get(state.producer.id)
            if end is not None and _is_after(end, state, partition):
                self._note(
                    partition,
                    id_,
                    "ended at the source after its last state that came",
                    here,
                    _AND_ELSEWHERE,
                )

    def _others(self, state: Transaction, lost: Container[TopicPartition]) -> set[TopicPartition]:
        """Where what is open is of another transaction than that of its last state here."""
        its, found = self._of(state), set()
        for partition, here in self._partitions.items():
            epoch = here.producers.opened.get(state.producer.id)
            if epoch is None or partition in lost:
                continue
            has_ended = state.is_preparing and _has_end(here, state)
            may_be_its = state.is_open and partition in its and _has_written(state, epoch)
            if has_ended or not may_be_its:
                found.add(partition)
        return found

    def _above(self, after: Transaction, others: Container[TopicPartition]) -> Transaction:
        """A state whose epoch is above all that the partitions have seen of its producer.

        Else its markers, and what its next producer writes, would be fenced. It is two above, so
        that an EndTxn of the source's producer is not taken for a retry.
        """
        id_, epoch, highest = *after.producer, NONE
        for partition, here in self._partitions.items():
            end = here.producers.ends.get(id_)
            if end is not None and end.epoch > epoch:
                highest = max(highest, end.epoch)
            opened = here.producers.opened.get(id_, NONE)
            if partition in others and opened >= epoch:
                highest = max(highest, opened)
        if highest == NONE:
            return after
        producer = Producer(id_, min(highest + 2, LAST_EPOCH))
        return after._replace(producer=producer, last_epoch=NONE)

    def _end_unknown(self) -> None:
        """End what is open of transactions that began after the states which came.

        Where no state came of a producer, its id is named, as its transactional id is not known.
        """
        states = {state.producer.id: id_ for id_, state in self._known.states.items()}
        highest = NEVER_GIVEN if self._is_current else self._known.highest_id
        for partition, here in self._partitions.items():
            ended = sorted(
                producer_id
                for producer_id, end in here.producers.ends.items()
                if highest < producer_id < NEVER_GIVEN and end != NO_END
            )
            if ended:
                ids = ", ".join(map(str, ended[:MOST_NOTES]))
                more = " and others" if len(ended) > MOST_NOTES else ""
                self._notes.setdefault(partition, []).append(
                    f"transactions of {len(ended)} producers ended at the source, of which no "
                    f"state came: records of them, from offset {here.producers.end_offset} on and "
                    f"in other partitions, may not have arrived; producer ids {ids}{more}"
                )
            for producer_id in sorted(here.producers.opened):
                if (partition, producer_id) in self._settled:
                    continue
                id_ = states.get(producer_id)
                name = f"producer id {producer_id}" if id_ is None else id_
                if self._is_committed(producer_id, here, id_):
                    self._committed.setdefault(partition, set()).add(producer_id)
                    self._note(
                        partition, name, "committed at the source", here, "may not have arrived"
                    )
                else:
                    self._note(partition, name, _UNCLEAR, here, _AND_ELSEWHERE)

    def _is_committed(self, producer_id: int, here: PartitionHere, id_: str | None) -> bool:
        """Whether another partition has the commit of what is open in one."""
        epoch = here.producers.opened[producer_id]
        found = [here.producers.ends.get(producer_id) for here in self._partitions.values()]
        ends = [end for end in found if end is not None and end.epoch > epoch]
        its = {end.is_commit for end in ends if end.epoch == epoch + 1}
        state = None if id_ is None else self._known.states[id_]
        if state is not None and state.producer.epoch == epoch + 1 and _is_second(state):
            if state.is_preparing:
                return False  # a promotion that was interrupted has left the partition out
            if state.status in _COMPLETE:
                its.add(state.status is Status.COMPLETE_COMMIT)
        if ends or its:  # the second flow: of each epoch there is one transaction
            return its == {True}
        if state is None or state.client_version >= SECOND_FLOW:
            return False
        if state.status is Status.EMPTY and epoch > state.producer.epoch:
            return False  # it may be of the second flow, as others after the state
        own = here.producers.ends.get(producer_id)
        if own is not None and _is_later(own, state):
            return False  # another partition's marker may be of the same transaction as its own
        later = [end for end in found if end is not None and _is_later(end, state)]
        return bool(later) and all(end.is_commit for end in later)

    # --- partitions -------------------------------------------------------------------

    def _of(self, state: Transaction) -> dict[TopicPartition, PartitionHere]:
        """Those of a transaction that are promoted."""
        return _of(self._partitions, state)

    def _note_committed(self, partition: TopicPartition, id_: str) -> None:
        here = self._partitions[partition]
        what = "did not arrive" if here.is_behind else "may not have arrived"
        self._note(partition, id_, "committed at the source", here, what)

    def _note(
        self, partition: TopicPartition, id_: str, what: str, here: PartitionHere, records: str
    ) -> None:
        notes = self._notes.setdefault(partition, [])
        is_torn = "aborted here" not in what
        self._torn += is_torn
        if self._torn > MOST_TORN if is_torn else len(notes) >= MOST_NOTES:
            self._unnamed[partition, is_torn] += 1
            return
        notes.append(
            f"a transaction of {id_[:_LONGEST_ID]!r} was {what}: records of it from offset "
            f"{here.producers.end_offset} on {records}"
        )


def with_places(
    changed: Mapping[str, Transaction],
    states: Mapping[str, Transaction],
    places: Mapping[int, Collection[TopicPartition]],
) -> dict[str, Transaction]:
    """The states to be written, where offsets of the source are carried to groups here.

    Args:
        changed: what is decided.
        states: all of the source.
        places: the partitions of `__consumer_offsets` here that have them, by producer id.
    """
    after = dict(changed)
    for id_, before in states.items():
        state = changed.get(id_, before)
        if state.is_open and any(topic == FOLLOWED_OFFSETS for topic, _ in state.partitions):
            its = places.get(state.producer.id, ())
            after[id_] = state._replace(partitions=state.partitions.union(its))
    return after


def _has_unknown_offsets(state: Transaction, its: Container[TopicPartition]) -> bool:
    """Whether a transaction has offsets of groups, of which it is not known what has come."""
    return any(
        topic in _OFFSETS and TopicPartition(topic, index) not in its
        for topic, index in state.partitions
    )


def _are_of_one(before: Transaction, after: Transaction) -> bool:
    """Whether the second of two states is the decision on a transaction that the first has open.

    Compaction may have removed what was between them.
    """
    is_decision = before.is_open and after.is_preparing
    return is_decision and (before.producer.id, before.started_ms) == (
        after.producer.id,
        after.started_ms,
    )


def _written_in(state: Transaction) -> int:
    """The epoch of the records of an open transaction.

    Its decision raises it in the second flow, and so does a fence, or a promotion (`_above`): then
    it is known from the state before.
    """
    if not state.is_preparing:
        return state.producer.epoch
    if state.last_epoch != NONE:
        return state.last_epoch
    return state.producer.epoch - (state.client_version >= SECOND_FLOW)


def _has_written(decided: Transaction, epoch: int) -> bool:
    """Whether records of an epoch can be of a transaction that was decided."""
    is_unsure = decided.last_epoch == NONE and decided.client_version < SECOND_FLOW
    is_fenced = is_unsure and decided.status is Status.PREPARE_ABORT
    return epoch == _written_in(decided) or (is_fenced and epoch == decided.producer.epoch - 1)


def _is_second(state: Transaction) -> bool:
    return state.client_version >= SECOND_FLOW


def _writer(completed: Transaction) -> Producer:
    """The producer with the epoch of the records of a transaction of the second flow that is over.

    Its markers had the next epoch; after the last one the id has changed, too.
    """
    producer = completed.producer
    if producer.epoch == 0:
        return Producer(completed.previous_id, LAST_EPOCH - 1)
    return Producer(producer.id, producer.epoch - 1)


def _of(
    partitions: Mapping[TopicPartition, PartitionHere], state: Transaction
) -> dict[TopicPartition, PartitionHere]:
    keys = (TopicPartition(*each) for each in sorted(state.partitions))
    return {key: partitions[key] for key in keys if key in partitions}


def _lacks(here: PartitionHere, decided: Transaction) -> bool:
    """Whether a transaction that is open in a partition can be of what was decided, for certain.

    Where the last marker is not known, the epoch has to tell what is open from those before it.
    """
    epoch = here.producers.opened.get(decided.producer.id)
    if epoch is None or _has_end(here, decided) or not _has_written(decided, epoch):
        return False
    is_certain = decided.client_version >= SECOND_FLOW or epoch < decided.producer.epoch
    return is_certain or decided.producer.id in here.producers.ends


def _has_end(here: PartitionHere, decided: Transaction) -> bool:
    """Whether a partition has the marker of a transaction, or a later one of its producer."""
    end = here.producers.ends.get(decided.producer.id)
    epoch = _written_in(decided)
    if end is None:
        return False
    if end.epoch != epoch or decided.client_version >= SECOND_FLOW:
        return end.epoch > epoch
    return end.timestamp >= decided.updated_ms


def _may_have_end(here: PartitionHere, decided: Transaction, came_ms: int) -> bool:
    """Whether a commit that a partition has may be of a transaction, though it has an earlier time.

    In the first flow, where the source's clock went back between the decision and the marker. All
    records of the transaction are in a confirmed partition, so nothing open there means its end.
    """
    producer = decided.producer
    end = here.producers.ends.get(producer.id)
    if end is None or not end.is_commit or producer.id in here.producers.opened:
        return False
    is_after = end.timestamp > decided.started_ms or here.confirmed_ms > came_ms
    return end.epoch == _written_in(decided) and decided.client_version < SECOND_FLOW and is_after


def _is_later(end: LastEnd, state: Transaction) -> bool:
    """Whether a marker was written after a state, and is not of it."""
    epoch = state.producer.epoch
    if state.is_open:
        return end.epoch > epoch
    return end.epoch > epoch or (end.epoch == epoch and end.timestamp > state.updated_ms)


def _is_after(end: LastEnd, state: Transaction, partition: TopicPartition) -> bool:
    """Whether a marker was written after a state, without one that told of it."""
    if end.epoch != state.producer.epoch or state.client_version >= SECOND_FLOW:
        return end.epoch > state.producer.epoch
    if state.is_preparing and tuple(partition) in state.partitions:
        return False  # it is its own, as far as can be known
    since = state.started_ms if state.status is Status.ONGOING else state.updated_ms
    return end.timestamp > since


def _ended(here: PartitionHere, state: Transaction) -> LastEnd | None:
    """The marker that a partition has of a transaction which was open when its state came."""
    end = here.producers.ends.get(state.producer.id)
    if end is None or end.epoch == state.producer.epoch + 1:
        return end
    if state.producer.id in here.producers.opened:
        return None
    is_first_flow = state.client_version < SECOND_FLOW
    is_its = end.epoch == state.producer.epoch and end.timestamp > state.started_ms
    return end if is_first_flow and is_its else None
