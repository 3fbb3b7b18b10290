"""Random histories of a source, cut by a shadow at random, and what a promotion makes of them.

The source decides as the coordinator does, over both flows of KIP-890, and compacts its states. The
shadow fetches each partition and the states each for itself, is restarted, and is killed within its
promotion, which the next one begins anew. What it commits is held against what the source did.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from examples import stride

from horolog.schemas.transactions import TransactionStatus
from horolog.storage import CONSUMER_OFFSETS, FOLLOWED_OFFSETS, NO_END, LastEnd, TopicPartition
from horolog.transactions import decisions
from horolog.transactions.promotion import Ends, FollowedStates, PartitionHere, ends_of
from horolog.transactions.values import NONE, CoordinatedTransaction, ProducerIdentity

OFFSETS = TopicPartition(FOLLOWED_OFFSETS, 0)
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0), OFFSETS)
SEEDS = 500 // stride(2)
NAMED = re.compile(r"a transaction of '([^']*)' was ")


def at_source(partition: TopicPartition) -> TopicPartition:
    return TopicPartition(CONSUMER_OFFSETS, 0) if partition == OFFSETS else partition


@dataclass(eq=False)
class Sent:
    """A transaction at the source."""

    id_: str
    producer: ProducerIdentity
    is_commit: bool | None = None
    """None while it is open."""
    last: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset of its last record by partition."""
    decided_at: int = -1
    """The offset of its decision in the log of states."""

    @property
    def is_second(self) -> bool:
        return self.id_.startswith("second")


Entry = tuple[Sent, LastEnd | None]
"""Of a log: a record of a transaction, or its marker."""

State = tuple[int, str, CoordinatedTransaction, int]
"""Of the log of states: offset, transactional id, state, and when it came."""


class Source:
    def __init__(self, rng: random.Random, ids: list[str]) -> None:
        self.rng, self.now_ms = rng, 1_000
        self.logs: dict[TopicPartition, list[Entry]] = {each: [] for each in PARTITIONS}
        self.states: list[State] = []
        self.end = 0
        self.sent: list[Sent] = []
        self._ids = ids
        self._now: dict[str, CoordinatedTransaction] = {}
        self._open: dict[str, Sent] = {}
        self._unmarked: dict[str, list[TopicPartition]] = {}

    def _write(self, id_: str, state: CoordinatedTransaction) -> None:
        self._now[id_] = state
        self.states.append((self.end, id_, state, 0))
        self.end += 1

    def step(self) -> None:
        """Let one thing happen to one transactional id."""
        self.now_ms += self.rng.randrange(1, 4)
        id_, draw = self.rng.choice(self._ids), self.rng.random()
        state = self._now.get(id_)
        if state is None:
            state = CoordinatedTransaction(ProducerIdentity(len(self._now), NONE), 60_000)
        if state.is_preparing:
            self._go_on_ending(id_, state)
        elif state.status is TransactionStatus.ONGOING and draw < 0.39:
            commit = 0.04 < draw < 0.3
            self._open[id_].is_commit = commit
            self._open[id_].decided_at = self.end
            keys = [each for each in PARTITIONS if at_source(each) in state.partitions]
            self._unmarked[id_] = keys
            version = state.client_version
            fences = draw <= 0.04
            after = decisions.prepared(state, version, self.now_ms, commit=commit, fences=fences)
            self._write(id_, after)
        elif state.producer.epoch == NONE or (not state.is_open and draw < 0.06):
            self._write(id_, decisions.initialised(state, None, 60_000, self.now_ms, None))
        else:
            self._send(id_, state)

    def _go_on_ending(self, id_: str, state: CoordinatedTransaction) -> None:
        unmarked = self._unmarked[id_]
        if not unmarked:
            self._write(id_, decisions.completed(state, self.now_ms))
            return
        key = unmarked.pop(self.rng.randrange(len(unmarked)))
        is_commit = state.status is TransactionStatus.PREPARE_COMMIT
        end = LastEnd(state.producer.epoch, is_commit, self.now_ms)
        self.logs[key].append((self._open[id_], end))

    def _send(self, id_: str, state: CoordinatedTransaction) -> None:
        key, version = self.rng.choice(PARTITIONS), 2 if id_.startswith("second") else 0
        after = decisions.with_partitions(state, [at_source(key)], version, self.now_ms)
        if state.status is not TransactionStatus.ONGOING:
            self._open[id_] = Sent(id_, state.producer)
            self.sent.append(self._open[id_])
        if after is not state:
            self._write(id_, after)
            if self.rng.random() < 0.5:
                return  # its record comes later, or never
        self._open[id_].last[key] = len(self.logs[key])
        self.logs[key].append((self._open[id_], None))


def compacted(states: list[State], before: int) -> list[State]:
    latest = {id_: offset for offset, id_, _, _ in states if offset < before}
    return [each for each in states if each[0] >= before or latest[each[1]] == each[0]]


class Shadow:
    def __init__(self, source: Source) -> None:
        self._source, self._rng = source, source.rng
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self._confirmed_ms = dict.fromkeys(PARTITIONS, -1)
        self._states: list[State] = []
        self.came: set[int] = set()
        """The offsets of the states that were here when the first promotion began."""
        self._position = 0

    def fetch(self, key: TopicPartition) -> None:
        self._source.now_ms += 1
        end = len(self._source.logs[key])
        all_of_it = self._rng.random() < 0.6
        self.ends[key] = end if all_of_it else self._rng.randrange(self.ends[key], end + 1)
        self._confirmed_ms[key] = -1 if self.ends[key] < end else self._source.now_ms
        self._source.now_ms += 1

    def fetch_states(self, *, all_of_them: bool = False) -> None:
        self._source.now_ms += 1
        its = [each for each in self._source.states if each[0] >= self._position]
        all_of_them = all_of_them or self._rng.random() < 0.6
        count = len(its) if all_of_them else self._rng.randrange(len(its) + 1)
        for offset, id_, state, _ in its[:count]:
            self._states.append((offset, id_, state, self._source.now_ms))
            self._position = offset + 1
        self._source.now_ms += 1

    def compact(self) -> None:
        self._states = compacted(self._states, self._rng.randrange(self._position + 1))

    def restart(self) -> None:
        self._source.now_ms += 10
        self._confirmed_ms = dict.fromkeys(PARTITIONS, -1)
        self._states = [(*each[:3], self._source.now_ms) for each in self._states]

    def _here(self, key: TopicPartition) -> PartitionHere:
        opened: dict[int, int] = {}
        ends: dict[int, LastEnd] = {}
        for sent, end in self._source.logs[key][: self.ends[key]]:
            if end is None:
                opened[sent.producer.id] = sent.producer.epoch
                ends.setdefault(sent.producer.id, NO_END)
            else:
                opened.pop(sent.producer.id, None)
                ends[sent.producer.id] = end
        return PartitionHere(self.ends[key], opened, ends, self._confirmed_ms[key])

    def promotions(self) -> Iterator[Ends]:
        """What each promotion decides; all but the last are killed while they write it."""
        self.came = {offset for offset, *_ in self._states}
        while True:
            here = {each: self._here(each) for each in PARTITIONS}
            known = FollowedStates(here)
            known.begin(max((came_ms for *_, came_ms in self._states), default=0))
            for _, id_, state, _ in self._states:
                known.note(id_, state)
            now_ms = self._source.now_ms
            ends = ends_of(known, here, [each.topic for each in PARTITIONS], now_ms)
            yield ends
            self._check_states({**known.states, **ends.changed}, here)
            if self._rng.random() < 0.5:
                return
            written = list(ends.changed.items())
            for id_, state in written[: self._rng.randrange(len(written) + 1)]:
                self._states.append((self._position, id_, state, now_ms))
                self._position += 1
            self.restart()

    def _check_states(
        self,
        states: Mapping[str, CoordinatedTransaction],
        here: Mapping[TopicPartition, PartitionHere],
    ) -> None:
        """Nothing is open, and no producer of the source can write to what is aborted."""
        for state in states.values():
            assert state.status is not TransactionStatus.ONGOING
            for its in here.values():
                end = its.ends.get(state.producer.id, NO_END)
                assert state.producer.epoch >= end.epoch
                assert state.producer.epoch >= its.opened.get(state.producer.id, NONE)


class Found:
    """What consumers of committed records are given of the source's transactions."""

    def __init__(self, source: Source, shadow: Shadow, ends: Ends) -> None:
        self.counts: dict[tuple[Sent, TopicPartition], bool] = {}
        """Whether what is here of a transaction in a partition is committed."""
        self.committed: set[Sent] = set()
        """Those of which a marker of a commit is here."""
        for key in PARTITIONS:
            opened = dict[int, Sent]()
            for sent, end in source.logs[key][: shadow.ends[key]]:
                if end is None:
                    opened[sent.producer.id] = sent
                    continue
                opened.pop(sent.producer.id, None)
                self.counts[sent, key] = end.is_commit
                if end.is_commit:
                    self.committed.add(sent)
            for producer_id, sent in opened.items():
                self.counts[sent, key] = producer_id in ends.committed.get(key, ())


def run(seed: int, *, compacts: bool) -> tuple[Source, Shadow, Found, set[str]]:
    """A history and its promotion; and the transactional and producer ids that it has named."""
    rng = random.Random(seed)
    ids = rng.choice([["first"], ["second"], ["first", "second"], ["first", "second", "second-2"]])
    source = Source(rng, ids)
    shadow = Shadow(source)
    rate, states_rate = rng.choice([0.02, 0.1, 0.4]), rng.choice([0.02, 0.1, 0.4])
    for number in range(rng.randrange(20, 150)):
        source.step()
        for key in PARTITIONS:
            if rng.random() < rate:
                shadow.fetch(key)
        if rng.random() < states_rate or number == 12:
            shadow.fetch_states(all_of_them=number == 12)
        if compacts and rng.random() < 0.05:
            source.states = compacted(source.states, rng.randrange(source.end + 1))
        if compacts and rng.random() < 0.02:
            shadow.compact()
    source.now_ms += 10
    if rng.random() < 0.3:
        shadow.restart()
    promotions = list(shadow.promotions())
    said = [" ".join(each) for ends in promotions for each in ends.notes.values()]
    named = {id_ for each in said for id_ in NAMED.findall(each)}
    return source, shadow, Found(source, shadow, promotions[-1]), named


@pytest.mark.parametrize("compacts", [False, True])
def test_no_transaction_is_turned_or_in_part_unless_its_id_is_named(compacts: bool) -> None:
    torn = turned = 0
    for seed in range(SEEDS):
        source, shadow, found, named = run(seed, compacts=compacts)
        for sent in source.sent:
            names = {sent.id_, f"producer id {sent.producer.id}"}
            parts = {key: found.counts.get((sent, key)) for key in sent.last}
            some = {key for key, counts in parts.items() if counts}
            said = f"{seed}: {sent}, {parts}"
            is_known = sent.is_second or not compacts
            if sent.is_commit and is_known and sent.decided_at in shadow.came:
                assert False not in parts.values(), f"decided and not completed: {said}"
            if not sent.is_commit:
                turned += bool(some)
                assert not some or not sent.is_second, said
                assert not some or names & named, said
            elif compacts and not sent.is_second:
                pass  # it may be taken for the next one, whose decision came
            elif sent in found.committed or some:
                whole = {key for key in some if sent.last[key] < shadow.ends[key]}
                torn += whole != sent.last.keys()
                lacks = sent.last.keys() - whole
                if compacts or not sent.is_second:
                    # Of a commit whose decision did not come nothing may have come somewhere.
                    lacks = {key for key in lacks if parts[key] is not None}
                assert not lacks or names & named, said
            elif any(counts is not None for counts in parts.values()):
                assert names & named, f"aborted and not named: {said}"
    assert torn
    assert turned
