"""A controller that elects, and brokers that replicate one partition: lists in place of files.

The brokers decide by `horolog.replication`. What one of them has applied of the metadata, which
request and which answer arrive, who dies, and what a dead broker's log has lost is up to the test.
"""

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from replica_model import Model

from horolog.errors import ErrorCode, RequestRefused
from horolog.replication.leading import BrokerView, Leading
from horolog.replication.proposals import IsrAnswer, IsrProposal
from horolog.schemas.metadata import PartitionRecord

LAG_MS: Final = 1_000
TOPIC: Final = UUID(int=1)
Read = tuple[int, str]  # epoch, and who wrote what


class Metadata(NamedTuple):
    """State of the cluster after a record of the metadata log."""

    partition: PartitionRecord
    brokers: dict[int, BrokerView]


class ElectingController:
    """The controllers of a cluster with one partition, which never fail.

    Args:
        has_elr: `eligible.leader.replicas.version` 1.
        may_lose: `unclean.leader.election.enable`.
    """

    def __init__(
        self,
        replicas: tuple[int, ...],
        brokers: int,
        *,
        min_isr: int,
        has_elr: bool,
        may_lose: bool,
    ) -> None:
        self.min_isr, self.has_elr, self.may_lose = min_isr, has_elr, may_lose
        self.partition = PartitionRecord(
            0, TOPIC, replicas, replicas, (), (), replicas[0], 0, 0, 0, (), (), ()
        )
        self.brokers = {id_: BrokerView(id_) for id_ in range(1, brokers + 1)}
        self.next_epoch = brokers + 1
        self.on_election: Callable[[int, int, bool], None] = lambda leader, epoch, clean: None
        """Called with each elected leader, its epoch, and whether the election was clean."""
        self.log = [Metadata(self.partition, dict(self.brokers))]

    # --- brokers ------------------------------------------------------------------------

    def register(self, broker: int, *, clean: bool) -> int:
        """Register a new process of a broker; return its epoch."""
        self.next_epoch += 1
        self.brokers[broker] = BrokerView(self.next_epoch, is_fenced=True)
        isr = [member for member in self.partition.isr if member != broker]
        if not clean and self.has_elr:
            self._change(isr=isr, unclean=broker)
        else:
            self._change(isr=isr or list(self.partition.isr))
        return self.next_epoch

    def fence(self, broker: int) -> None:
        self._set(broker, self.brokers[broker]._replace(is_fenced=True))

    def unfence(self, broker: int) -> None:
        self._set(broker, self.brokers[broker]._replace(is_fenced=False))

    def shut_down(self, broker: int) -> None:
        """Take leadership from a broker that asks for its controlled shutdown."""
        self._set(broker, self.brokers[broker]._replace(is_shutting_down=True))

    def _set(self, broker: int, view: BrokerView) -> None:
        self.brokers[broker] = view
        isr = list(self.partition.isr)
        if not self._is_active(broker) and broker in isr:
            isr.remove(broker)
            if not isr and not self.has_elr:
                isr = [broker]  # the last one stays
        self._change(isr=isr)

    def _is_active(self, broker: int) -> bool:
        view = self.brokers[broker]
        return not view.is_fenced and not view.is_shutting_down

    # --- the partition ------------------------------------------------------------------

    def reassign(self, target: tuple[int, ...]) -> None:
        known = self.partition
        if known.adding or known.removing or set(target) == set(known.replicas):
            return
        adding = tuple(id_ for id_ in target if id_ not in known.replicas)
        removing = tuple(id_ for id_ in known.replicas if id_ not in target)
        self._change(
            isr=list(known.isr), replicas=(*target, *removing), adding=adding, removing=removing
        )

    def prefer(self) -> None:
        """Elect the preferred leader, if it is in sync."""
        preferred = self.partition.replicas[0]
        if preferred in self.partition.isr and self._is_active(preferred):
            self._change(isr=list(self.partition.isr), leader=preferred)

    def alter(self, sender: int, sender_epoch: int, proposal: IsrProposal) -> IsrAnswer:
        """Answer an AlterPartition."""
        known, view = self.partition, self.brokers[sender]
        if view.epoch != sender_epoch:
            return IsrAnswer(ErrorCode.stale_broker_epoch)
        if proposal.leader_epoch < known.leader_epoch:
            return IsrAnswer(ErrorCode.fenced_leader_epoch)
        if sender != known.leader:
            return IsrAnswer(ErrorCode.invalid_request)
        if proposal.partition_epoch < known.partition_epoch:
            return IsrAnswer(ErrorCode.invalid_update_version)
        assert proposal.leader_epoch == known.leader_epoch
        assert proposal.partition_epoch == known.partition_epoch
        assert len(set(proposal.isr)) == len(proposal.isr)
        assert sender in proposal.isr
        if not set(proposal.isr) <= set(known.replicas):  # a reassignment is over
            return IsrAnswer(ErrorCode.invalid_request)
        assert not proposal.recovery_state
        for member in proposal.members:
            now = self.brokers[member.broker_id]
            if member.broker_epoch not in (-1, now.epoch) or (
                not self._is_active(member.broker_id)
            ):
                return IsrAnswer(ErrorCode.ineligible_replica)
        self._change(isr=list(proposal.isr), recovery_state=0)
        known = self.partition
        if known.leader != sender:
            return IsrAnswer(ErrorCode.new_leader_elected)
        return IsrAnswer(
            0, sender, known.leader_epoch, known.isr, known.recovery_state, known.partition_epoch
        )

    def _change(
        self,
        *,
        isr: list[int],
        unclean: int | None = None,
        leader: int | None = None,
        **fields: object,
    ) -> None:
        old = self.partition
        new = old._replace(**fields)  # type: ignore[arg-type]
        if (new.adding or new.removing) and set(new.adding) <= set(isr):
            staying = [id_ for id_ in isr if id_ not in new.removing]
            if staying:
                isr = staying
                replicas = tuple(id_ for id_ in new.replicas if id_ not in new.removing)
                new = new._replace(replicas=replicas, adding=(), removing=())
        elr = [*(old.elr or ()), *old.isr] if self.has_elr and len(isr) < self.min_isr else []
        elr = [
            id_
            for id_ in dict.fromkeys(elr)
            if id_ not in isr and id_ != unclean and id_ in new.replicas
        ]
        last_known = old.last_known_elr or ()
        if old.leader >= 0:
            last_known = (old.leader,)
        chosen, clean = old.leader if leader is None else leader, True
        if chosen < 0 or chosen not in isr or not self._is_active(chosen):
            candidates = [id_ for id_ in new.replicas if id_ in isr and self._is_active(id_)]
            if not candidates:
                candidates = [id_ for id_ in new.replicas if id_ in elr and self._is_active(id_)]
            if not candidates:
                clean = False
                if not isr and not elr:
                    candidates = [
                        id_
                        for id_ in last_known
                        if id_ in new.replicas and not self.brokers[id_].is_fenced
                    ]
                if not candidates and self.may_lose:
                    candidates = [id_ for id_ in new.replicas if self._is_active(id_)]
            chosen = candidates[0] if candidates else -1
            if chosen >= 0 and chosen not in isr:
                isr = [chosen]
                elr = [] if not clean else [id_ for id_ in elr if id_ != chosen]
        elected = chosen != old.leader or leader is not None
        new = new._replace(isr=tuple(isr), leader=chosen, elr=tuple(elr), last_known_elr=last_known)
        if elected:
            new = new._replace(leader_epoch=old.leader_epoch + 1)
            if chosen >= 0 and not clean:
                new = new._replace(recovery_state=1)
        if new != old:
            new = new._replace(partition_epoch=old.partition_epoch + 1)
        self.partition = new
        self.log.append(Metadata(new, dict(self.brokers)))
        if elected and chosen >= 0:
            self.on_election(chosen, new.leader_epoch, clean)


class Fetched(NamedTuple):
    """A replica's fetch on its way."""

    replica: int
    broker_epoch: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int
    turn: int


class FetchAnswer(NamedTuple):
    """Answer to a replica's fetch on its way."""

    replica: int
    turn: int
    diverging: tuple[int, int] | None
    records: list[Read]
    high_watermark: int


class ReplicatingBroker:
    """A broker's process, and the log that outlives it."""

    def __init__(self, id_: int, epoch: int, min_isr: int) -> None:
        self.id, self.epoch, self.min_isr = id_, epoch, min_isr
        self.is_alive = True
        self.model = Model()
        self.high_watermark = 0
        self.applied = -1
        """Index of the last metadata that was applied."""
        self.needs = 0
        """Index of the metadata with its own registration: there it takes its first role."""
        self.metadata: Metadata | None = None
        self.leading: Leading | None = None
        self.follows: tuple[int, int] | None = None
        """Leader and leader epoch."""
        self.turn = 0
        self.asked: IsrProposal | None = None
        """Proposal that is under way."""
        self.answered: IsrAnswer | None = None
        """Answer to it that is under way."""

    @property
    def end(self) -> int:
        return len(self.model.records)

    def view(self, broker: int) -> BrokerView | None:
        assert self.metadata is not None
        return self.metadata.brokers.get(broker)

    def stop(self) -> None:
        self.is_alive = False
        self.leading = self.follows = self.metadata = None
        self.turn += 1
        self.asked = self.answered = None

    def start(self, epoch: int, needs: int, lost: int, low: int) -> None:
        """Start a new process, whose log has lost some records, and whose checkpoint is old."""
        self.is_alive, self.epoch, self.needs, self.applied = True, epoch, needs, -1
        del self.model.records[max(0, self.end - lost) :]
        self.high_watermark = max(0, min(self.high_watermark - low, self.end))

    # --- metadata -----------------------------------------------------------------------

    def apply(self, metadata: Metadata, index: int, now_ms: int) -> None:
        self.applied, self.metadata = index, metadata
        if index < self.needs:
            return
        partition = metadata.partition
        if partition.leader != self.id:
            self.leading = None
            followed = None
            if partition.leader >= 0 and self.id in partition.replicas:
                followed = partition.leader, partition.leader_epoch
            if followed != self.follows:
                self.turn += 1
            self.follows = followed
            if self.id not in partition.replicas:  # deleted
                self.model.records.clear()
                self.high_watermark = 0
            return
        self.follows = None
        self.turn += 1
        if self.leading is None:
            self.leading = Leading(
                self.id,
                partition,
                self.view,
                log_end=self.end,
                epoch_start=self.end,
                high_watermark=self.high_watermark,
                min_isr=self.min_isr,
                lag_max_ms=LAG_MS,
                now_ms=now_ms,
            )
        elif partition.leader_epoch > self.leading.leader_epoch:
            self.leading.on_state(partition, now_ms, epoch_start=self.end)
        else:
            self.leading.on_state(partition, now_ms)
        self.leading.on_brokers()

    # --- leading ------------------------------------------------------------------------

    def append(self, what: str, count: int) -> bool:
        """Append with acks=all; return False if that is refused."""
        assert self.leading is not None
        if self.leading.refuses_append:
            return False
        for number in range(count):
            self.model.append(self.leading.leader_epoch, f"{what}.{number}", 1)
        self.leading.on_append(self.end)
        return True

    def take(self, fetch: Fetched, most: int, now_ms: int) -> FetchAnswer | None:
        """Answer a replica's fetch; None for an error, after which the replica tries again."""
        leading = self.leading
        if leading is None or fetch.leader_epoch != leading.leader_epoch:
            return None
        try:
            leading.check_replica(fetch.replica)
        except RequestRefused:
            return None
        if fetch.last_epoch >= 0:
            epoch, end = self.model.end_of(fetch.last_epoch, leading.leader_epoch)
            if epoch < fetch.last_epoch or end < fetch.offset:
                return FetchAnswer(fetch.replica, fetch.turn, (epoch, end), [], 0)
        high_watermark, leader_end = leading.high_watermark, self.end
        records = self.model.records[fetch.offset : fetch.offset + most]
        try:
            leading.on_fetch(fetch.replica, fetch.broker_epoch, fetch.offset, 0, leader_end, now_ms)
        except RequestRefused:
            return None
        return FetchAnswer(fetch.replica, fetch.turn, None, records, high_watermark)

    def hear(self, answer: IsrAnswer, now_ms: int) -> None:
        """Take the answer to the proposal that is under way."""
        assert self.asked is not None
        if self.leading is not None:
            self.leading.on_answer(self.asked, answer, now_ms)
        self.asked = self.answered = None

    # --- following ----------------------------------------------------------------------

    def fetch(self) -> Fetched | None:
        if self.follows is None:
            return None
        self.turn += 1  # an earlier answer comes too late
        last = self.model.records[-1][0] if self.model.records else -1
        return Fetched(self.id, self.epoch, *self.follows, self.end, last, self.turn)

    def obey(self, answer: FetchAnswer) -> None:
        if not self.is_alive or answer.turn != self.turn or self.follows is None:
            return
        self.turn += 1
        records = self.model.records
        if answer.diverging is not None:
            epoch, end = answer.diverging
            ours = sum(record[0] <= epoch for record in records)
            del records[min(end, ours) :]
            self.high_watermark = min(self.high_watermark, self.end)
            return
        records += answer.records
        self.high_watermark = max(self.high_watermark, min(answer.high_watermark, self.end))
