"""Random histories of one transactional id, with kills, against what clients were promised."""

from dataclasses import dataclass, field

from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from horolog.errors import RequestRefused
from horolog.schemas.transactions import TransactionStatus
from horolog.transactions import decisions
from horolog.transactions.values import (
    LAST_EPOCH,
    CoordinatedTransaction,
    ProducerIdentity,
    transaction_of,
)

CLIENTS = st.integers(0, 1)


@dataclass
class Client:
    """What one client knows."""

    producer: ProducerIdentity | None = None
    version: int = 1
    is_open: bool = False


@dataclass
class Outcome:
    """What became of the transaction in which a producer wrote."""

    commit: bool | None = None
    promised: bool | None = None
    marker: ProducerIdentity | None = None
    wrote: set[ProducerIdentity] = field(default_factory=set)


class TransactionalId(RuleBasedStateMachine):
    """Two clients of one transactional id; a write to the log may fail, a kill may come."""

    def __init__(self) -> None:
        super().__init__()
        self.state = CoordinatedTransaction(ProducerIdentity(1, LAST_EPOCH - 4), 60_000)
        self.clients = [Client(), Client()]
        self.next_id = 2
        self.present: Outcome | None = None
        self.given: list[ProducerIdentity] = []
        self.highest = self.state.producer

    def write(self, after: CoordinatedTransaction, lands: bool) -> bool:
        if not lands:
            return False
        self.state = after
        assert (after.producer.id, after.producer.epoch) >= self.highest
        self.highest = after.producer
        return True

    def prepare(self, after: CoordinatedTransaction, commit: bool, lands: bool) -> bool:
        if decisions.wants_next_id(after):
            after = after._replace(next_id=self.next_id)
            self.next_id += 1
        if not self.write(after, lands):
            return False
        if self.present is not None:
            assert self.present.commit is None  # decided once
            self.present.commit = commit
            self.present.marker = after.producer
            if after.client_version >= 2:
                assert all(wrote.epoch < after.producer.epoch for wrote in self.present.wrote)
        return True

    @rule(client=CLIENTS, version=st.sampled_from([1, 2]), again=st.booleans(), lands=st.booleans())
    def initialise(self, client: int, version: int, again: bool, lands: bool) -> None:
        who = self.clients[client]
        expected = who.producer if again else None
        try:
            decisions.check_initialisable(self.state, expected)
        except RequestRefused:
            return
        if self.state.status is TransactionStatus.ONGOING:
            version = self.state.client_version
            after = decisions.prepared(self.state, version, 0, commit=False, fences=True)
            self.prepare(after, False, lands)
            return
        new_id = None
        if decisions.rotates(self.state, expected):
            new_id, self.next_id = self.next_id, self.next_id + 1
        after = decisions.initialised(self.state, expected, 60_000, 0, new_id)
        if self.write(after, lands):
            assert after.producer.epoch < LAST_EPOCH
            who.producer, who.version, who.is_open = after.producer, version, False

    @rule(client=CLIENTS, lands=st.booleans())
    def add(self, client: int, lands: bool) -> None:
        who = self.clients[client]
        if who.producer is None:
            return
        try:
            decisions.check_producer(self.state, who.producer)
        except RequestRefused:
            return
        is_first = self.state.status is not TransactionStatus.ONGOING
        after = decisions.with_partitions(self.state, [("t", 0)], who.version, 0)
        if after is self.state or self.write(after, lands):
            if is_first:
                self.present = Outcome()
            assert self.present is not None
            self.present.wrote.add(who.producer)
            who.is_open = True

    @rule(client=CLIENTS, commit=st.booleans(), lands=st.booleans(), answered=st.booleans())
    def end(self, client: int, commit: bool, lands: bool, answered: bool) -> None:
        who = self.clients[client]
        if who.producer is None or not who.is_open:
            return
        try:
            after = decisions.ended(self.state, who.producer, who.version, 0, commit=commit)
        except RequestRefused:
            return
        if after is not self.state and not self.prepare(after, commit, lands):
            return
        # What a client is answered is what becomes of it, also if it has asked before.
        assert self.present is not None
        assert self.present.commit is commit
        if answered:
            who.is_open = False
            if who.version >= 2:
                who.producer = self.state.next_producer

    @rule()
    def time_out(self) -> None:
        if self.state.status is TransactionStatus.ONGOING:
            version = self.state.client_version
            after = decisions.prepared(self.state, version, 0, commit=False, fences=True)
            self.prepare(after, False, True)

    @rule(lands=st.booleans())
    def complete(self, lands: bool) -> None:
        if self.state.is_preparing:
            self.write(decisions.completed(self.state, 0), lands)

    @rule()
    def kill(self) -> None:
        self.state = transaction_of(self.state.value())

    @invariant()
    def open_transactions_have_partitions(self) -> None:
        if self.state.status is TransactionStatus.ONGOING:
            assert self.state.partitions
        elif not self.state.is_preparing:
            assert not self.state.partitions


TransactionalId.TestCase.settings = settings(examples(4), stateful_step_count=40)
TestTransactionalId = TransactionalId.TestCase
