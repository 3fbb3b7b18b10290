"""Brokers under a controller that elects: what is committed survives, and logs become equal."""

from random import Random

import pytest
from electing import LAG_MS, ElectingController, FetchAnswer, Fetched, Read, ReplicatingBroker
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from horolog.errors import ErrorCode
from horolog.replication.leading import Leading
from horolog.replication.proposals import IsrAnswer

BROKERS = 4
LOST = IsrAnswer(ErrorCode.request_timed_out)

brokers = st.integers(1, BROKERS)
places = st.integers(0, 7)
few = st.integers(1, 3)


class ReplicatedPartition(RuleBasedStateMachine):
    """Everything that may happen to a partition with three replicas, in any order."""

    controller: ElectingController

    @initialize(has_elr=st.booleans(), min_isr=few, may_lose=st.booleans())
    def begin(self, has_elr: bool, min_isr: int, may_lose: bool) -> None:
        self.controller = ElectingController(
            (1, 2, 3), BROKERS, min_isr=min_isr, has_elr=has_elr, may_lose=may_lose
        )
        self.controller.on_election = self.elected
        self.brokers = {id_: ReplicatingBroker(id_, id_, min_isr) for id_ in range(1, BROKERS + 1)}
        self.now_ms = 0
        self.fetches: list[Fetched] = []
        self.answers: list[FetchAnswer] = []
        self.written = 0
        self.committed: list[Read] = []
        self.unclean_epoch = -1
        self.marks: dict[int, tuple[Leading, int]] = {}
        for broker in self.brokers.values():
            broker.apply(self.controller.log[0], 0, 0)

    # --- what must hold -----------------------------------------------------------------

    def elected(self, leader: int, epoch: int, clean: bool) -> None:
        records = self.brokers[leader].model.records
        if clean:
            assert records[: len(self.committed)] == self.committed, "lost what was committed"
            return
        self.unclean_epoch = epoch
        same = 0
        for ours, theirs in zip(self.committed, records, strict=False):
            if ours != theirs:
                break
            same += 1
        del self.committed[same:]

    @invariant()
    def nothing_committed_changes(self) -> None:
        if not hasattr(self, "brokers"):
            return
        for id_, broker in self.brokers.items():
            leading = broker.leading
            if leading is None:
                continue
            mark = leading.high_watermark
            assert mark <= broker.end
            known, before = self.marks.get(id_, (leading, 0))
            assert known is not leading or before <= mark, "a high watermark fell"
            self.marks[id_] = leading, mark
            broker.high_watermark = mark
            if leading.leader_epoch < self.unclean_epoch:
                continue  # it does not know yet that another leader began without its records
            shown = broker.model.records[:mark]
            both = min(len(shown), len(self.committed))
            assert shown[:both] == self.committed[:both], "two records at one offset"
            self.committed += shown[both:]

    # --- clients ------------------------------------------------------------------------

    @rule(id_=brokers, count=few)
    def produce(self, id_: int, count: int) -> None:
        broker = self.brokers[id_]
        if broker.leading is not None:
            self.written += 1
            broker.append(f"{id_}:{self.written}", count)

    # --- messages -----------------------------------------------------------------------

    @rule(id_=brokers, skipped=places)
    def hear_metadata(self, id_: int, skipped: int) -> None:
        broker = self.brokers[id_]
        index = max(broker.applied + 1, len(self.controller.log) - 1 - skipped)
        if broker.is_alive and index < len(self.controller.log):
            broker.apply(self.controller.log[index], index, self.now_ms)

    @rule(id_=brokers)
    def send_fetch(self, id_: int) -> None:
        broker = self.brokers[id_]
        fetch = broker.fetch() if broker.is_alive else None
        if fetch is not None:
            self.fetches.append(fetch)

    @precondition(lambda self: self.fetches)
    @rule(place=places, most=few, is_lost=st.booleans())
    def take_fetch(self, place: int, most: int, is_lost: bool) -> None:
        fetch = self.fetches.pop(place % len(self.fetches))
        leader = self.brokers[fetch.leader]
        answer = leader.take(fetch, most, self.now_ms) if leader.is_alive else None
        if answer is not None and not is_lost:
            self.answers.append(answer)

    @precondition(lambda self: self.answers)
    @rule(place=places)
    def take_answer(self, place: int) -> None:
        answer = self.answers.pop(place % len(self.answers))
        self.brokers[answer.replica].obey(answer)

    @rule(id_=brokers, most=few)
    def fetch_at_once(self, id_: int, most: int) -> None:
        """All of a fetch: what happens most of the time."""
        broker = self.brokers[id_]
        fetch = broker.fetch() if broker.is_alive else None
        if fetch is not None:
            leader = self.brokers[fetch.leader]
            answer = leader.take(fetch, most, self.now_ms) if leader.is_alive else None
            if answer is not None:
                broker.obey(answer)

    @rule(id_=brokers)
    def propose(self, id_: int) -> None:
        broker = self.brokers[id_]
        if broker.leading is not None and broker.asked is None:
            broker.asked = broker.leading.proposal(self.now_ms)

    @rule(id_=brokers)
    def decide(self, id_: int) -> None:
        broker = self.brokers[id_]
        if broker.asked is not None and broker.answered is None:
            broker.answered = self.controller.alter(id_, broker.epoch, broker.asked)

    @rule(id_=brokers)
    def hear_decision(self, id_: int) -> None:
        broker = self.brokers[id_]
        if broker.answered is not None:
            broker.hear(broker.answered, self.now_ms)

    @rule(id_=brokers)
    def lose_connection(self, id_: int) -> None:
        broker = self.brokers[id_]
        if broker.asked is not None:
            broker.hear(LOST, self.now_ms)

    # --- time and failures --------------------------------------------------------------

    @rule(ms=st.sampled_from([60, LAG_MS // 2, LAG_MS + 1]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for broker in self.brokers.values():
            if broker.leading is not None:
                broker.leading.tick(self.now_ms)

    @rule(id_=brokers)
    def kill(self, id_: int) -> None:
        self.brokers[id_].stop()

    @rule(id_=brokers)
    def shut_down(self, id_: int) -> None:
        if self.brokers[id_].is_alive and not self.controller.brokers[id_].is_fenced:
            self.controller.shut_down(id_)

    @rule(id_=brokers)
    def fence(self, id_: int) -> None:
        if not self.controller.brokers[id_].is_fenced:
            self.controller.fence(id_)

    @rule(id_=brokers)
    def unfence(self, id_: int) -> None:
        broker, view = self.brokers[id_], self.controller.brokers[id_]
        if (
            broker.is_alive
            and broker.applied >= broker.needs
            and view.is_fenced
            and view.epoch == broker.epoch
        ):
            self.controller.unfence(id_)

    @rule(id_=brokers, lost=st.integers(0, 5), low=few)
    def restart(self, id_: int, lost: int, low: int) -> None:
        broker = self.brokers[id_]
        if broker.is_alive:
            return
        if not self.controller.brokers[id_].is_fenced:
            self.controller.fence(id_)
        lost = lost if self.controller.has_elr else 0
        del broker.model.records[max(0, broker.end - lost) :]
        epoch = self.controller.register(id_, clean=not lost)
        broker.start(epoch, len(self.controller.log) - 1, 0, low)

    @rule(id_=brokers)
    def prefer(self, id_: int) -> None:
        self.controller.prefer()

    @rule(gone=brokers)
    def reassign(self, gone: int) -> None:
        self.controller.reassign(tuple(id_ for id_ in range(1, BROKERS + 1) if id_ != gone))

    # --- the end ------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "brokers"):
            return
        self.fetches.clear()
        for id_, broker in self.brokers.items():
            if broker.asked is not None:
                broker.hear(LOST, self.now_ms)
            if self.controller.brokers[id_].is_shutting_down:
                broker.stop()
            self.restart(id_, 0, 1)
        for _ in range(60):
            for id_ in self.brokers:
                self.hear_metadata(id_, 0)
                self.unfence(id_)
            self.now_ms += 200
            for id_ in self.brokers:
                self.fetch_at_once(id_, 3)
                self.propose(id_)
                self.decide(id_)
                self.hear_decision(id_)
            self.nothing_committed_changes()
            if self.is_quiet():
                break
        partition = self.controller.partition
        if partition.leader < 0:
            return  # all that could be elected without loss is gone
        assert self.is_quiet()
        leader = self.brokers[partition.leader]
        for id_ in partition.replicas:
            assert self.brokers[id_].model.records == leader.model.records

    def is_quiet(self) -> bool:
        partition = self.controller.partition
        if partition.leader < 0 or set(partition.isr) != set(partition.replicas):
            return False
        return not partition.adding and all(
            self.brokers[id_].high_watermark == self.brokers[partition.leader].end
            for id_ in partition.replicas
        )


def test_what_is_committed_survives_elections_restarts_and_lost_messages() -> None:
    run_state_machine_as_test(ReplicatedPartition)


def walk(seed: int, steps: int) -> None:
    """Let most things go well, so that logs grow long between failures."""
    random = Random(seed)
    machine = ReplicatedPartition()
    machine.begin(random.random() < 0.6, random.randint(1, 3), random.random() < 0.3)
    rare = [machine.kill, machine.shut_down, machine.fence, machine.reassign, machine.prefer]
    failing = random.choice([0.01, 0.03, 0.06])
    late = random.choice([[0], [0, 0, 1, 3], [0, 2, 5, 9]])
    weights = {
        "fail": failing * 100,
        "restart": failing * 300,
        "unfence": 10,
        "wait": 4,
        "produce": 12,
        "metadata": 12,
        "send": 4,
        "take": 4,
        "answer": 2,
        "propose": 12,
        "decide": 8,
        "hear": 6,
        "lose": 2,
        "fetch": 25,
    }
    for what in random.choices(list(weights), list(weights.values()), k=steps):
        id_ = random.randint(1, BROKERS)
        leader = machine.controller.partition.leader
        likely = leader if leader > 0 and random.random() < 0.8 else id_
        match what:
            case "fail":
                random.choice(rare)(likely)
            case "restart":
                machine.restart(id_, random.choice([0, 0, 1, 5]), random.randint(0, 3))
            case "unfence":
                machine.unfence(id_)
            case "wait":
                machine.wait(random.choice([60, 60, LAG_MS // 2, LAG_MS + 1]))
            case "produce":
                machine.produce(likely, random.randint(1, 3))
            case "metadata":
                machine.hear_metadata(id_, random.choice(late))
            case "send":
                machine.send_fetch(id_)
            case "take" if machine.fetches:
                machine.take_fetch(random.randrange(8), random.randint(0, 3), False)
            case "answer" if machine.answers:
                machine.take_answer(random.randrange(8))
            case "propose":
                machine.propose(likely)
            case "decide":
                machine.decide(likely)
            case "hear":
                machine.hear_decision(likely)
            case "lose":
                machine.lose_connection(likely)
            case "fetch":
                machine.fetch_at_once(id_, random.randint(1, 3))
        machine.nothing_committed_changes()
    machine.teardown()


@pytest.mark.parametrize("seed", range(8))
def test_it_survives_long_lives_too(seed: int) -> None:
    for number in range(10):
        walk(seed * 1000 + number, 400)
