"""A leader's replicas: progress of each, the in-sync replicas (ISR), and the high watermark.

One rule says which replica is caught up. It decides who joins the ISR, who leaves it, and who
holds the high watermark back although it is not a member yet. A proposal to the controllers
(AlterPartition, KIP-497) is pending until they or the metadata log have decided. Until then
everything that may be in force counts: the *maximal* ISR has the members of both.

Times are milliseconds of a clock that never goes back. An offset of -1 is unknown.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from horolog.errors import ErrorCode, RequestRefused
from horolog.replication.proposals import (
    METADATA_LAGS,
    NOT_APPLIED,
    IsrAnswer,
    IsrMember,
    IsrProposal,
)
from horolog.schemas.metadata import PartitionRecord

__all__ = [
    "BrokerView",
    "FetchProgress",
    "Leading",
    "ReplicaProgress",
]

RETRY_MS: Final = 50
"""Pause before a proposal is sent again, or another one after a refusal."""

UNDECIDED_MS: Final = 5_000
"""Pause before a proposal is sent again whose answer says that our metadata lags."""


class BrokerView(NamedTuple):
    """State of a registered broker."""

    epoch: int
    """Epoch of its registration."""
    is_fenced: bool = False
    is_shutting_down: bool = False


class FetchProgress(NamedTuple):
    """Effect of a replica's fetch."""

    high_watermark: int | None
    """New high watermark; None if it has not moved."""
    may_join: bool
    """True if the replica could join the ISR now: `proposal` has to be asked."""
    start_moved: bool
    """True if the replica's log starts at another offset than before."""


class ReplicaProgress:
    """Progress of another replica, as its fetches show it."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end", "fetched_ms", "leader_end", "start")

    def __init__(self, caught_up_ms: int | None) -> None:
        self.end = -1
        """End of its log: the offset of its last fetch."""
        self.start = -1
        self.caught_up_ms = caught_up_ms
        """Last time at which it had all records of the leader; None for never."""
        self.fetched_ms: int | None = None
        self.leader_end = -1
        """End of the leader's log at its last fetch."""
        self.broker_epoch: int | None = None
        """Epoch of its registration at its last fetch; None before the first."""

    def advance(self, offset: int, start: int, leader_end: int, epoch: int, now_ms: int) -> None:
        """Note a fetch from `offset`, of a replica whose log starts at `start`."""
        if offset >= leader_end:
            caught_up_ms: int | None = now_ms
        elif offset >= self.leader_end:
            caught_up_ms = self.fetched_ms
        else:
            caught_up_ms = None
        if caught_up_ms is not None and (
            self.caught_up_ms is None or caught_up_ms > self.caught_up_ms
        ):
            self.caught_up_ms = caught_up_ms
        self.end, self.start = offset, start
        self.leader_end = max(self.leader_end, leader_end)
        self.fetched_ms, self.broker_epoch = now_ms, epoch


class Leading:
    """Leader of a partition that has other replicas.

    Args:
        node_id: id of this broker, the leader.
        partition: state of the partition in the metadata log.
        brokers: returns a broker's state in the metadata log; None if it is not registered.
        log_end: end of the leader's log.
        epoch_start: end of the log when this leader epoch began.
        high_watermark: of the log; it never falls while this broker leads.
        min_isr: `min.insync.replicas`.
        lag_max_ms: `replica.lag.time.max.ms`.
    """

    def __init__(
        self,
        node_id: int,
        partition: PartitionRecord,
        brokers: Callable[[int], BrokerView | None],
        *,
        log_end: int,
        epoch_start: int,
        high_watermark: int,
        min_isr: int,
        lag_max_ms: int,
        now_ms: int,
    ) -> None:
        self.node_id = node_id
        self.partition = partition
        """State that the controllers have committed, as far as it is known."""
        self.log_end = log_end
        self.epoch_start = epoch_start
        self.high_watermark = high_watermark
        self.lag_max_ms = lag_max_ms
        self.replicas: dict[int, ReplicaProgress] = {}
        """Progress of the other replicas by broker id; not to be changed."""
        self.maximal_isr: frozenset[int] = frozenset()
        """Members of the committed ISR, and of the one that is proposed."""
        self._brokers = brokers
        self.min_isr = min_isr
        self._now_ms = now_ms  # of the last fetch or tick
        self._pending: IsrProposal | None = None
        self._is_sent = False
        self.not_before_ms = now_ms
        """Time of the next proposal, at the earliest."""
        self._commit(partition, now_ms)
        self._raise()

    # --- what is asked ------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """Leader epoch that the controllers gave to this leader."""
        return self.partition.leader_epoch

    @property
    def isr(self) -> Sequence[int]:
        """In-sync replicas that the controllers have committed."""
        return self.partition.isr

    @property
    def effective_min_isr(self) -> int:
        """Number of in-sync replicas that acks=all needs: at most all replicas."""
        return min(self.min_isr, len(self.replicas) + 1)

    @property
    def refuses_append(self) -> bool:
        """True if an append with acks=all is refused: the ISR is too small."""
        return len(self.partition.isr) < self.effective_min_isr

    @property
    def is_enough(self) -> bool:
        """True if what the high watermark has passed is acknowledged to acks=all."""
        return len(self.maximal_isr) >= self.effective_min_isr

    @property
    def shows_latest(self) -> bool:
        """True if consumers are given the latest offset (KIP-207).

        A new leader's high watermark may be below that of the leader before it, up to the offset
        at which its epoch starts.
        """
        return self.high_watermark >= self.epoch_start

    def low_watermark(self, log_start: int) -> int:
        """Return the smallest start of the logs of live replicas; -1 if one is not known.

        Args:
            log_start: start of the leader's log.
        """
        for broker_id, replica in self.replicas.items():
            view = self._brokers(broker_id)
            if view is not None and not view.is_fenced:
                log_start = min(log_start, replica.start)
        return log_start

    def is_caught_up(self, broker_id: int) -> bool:
        """Return True if a replica has all records, or had them within `lag_max_ms`."""
        replica = self.replicas.get(broker_id)
        return replica is not None and self._is_caught_up(replica)

    # --- what happens -------------------------------------------------------------------

    def on_append(self, log_end: int) -> int | None:
        """Take the log's new end; return the new high watermark, or None if it has not moved."""
        self.log_end = max(self.log_end, log_end)
        return self._raise()

    def check_replica(self, broker_id: int) -> None:
        """Check that a broker may fetch as a replica.

        Raises:
            RequestRefused: UNKNOWN_LEADER_EPOCH; it is not in the assignment as we know it.
        """
        if broker_id not in self.replicas:
            raise RequestRefused(
                ErrorCode.unknown_leader_epoch, f"broker {broker_id} is not a replica"
            )

    def on_fetch(
        self,
        broker_id: int,
        broker_epoch: int,
        offset: int,
        log_start: int,
        leader_end: int,
        now_ms: int,
    ) -> FetchProgress:
        """Take the fetch of a replica, after its records were read.

        A fetch that was refused, that diverges or whose read failed is no progress
        (KAFKA-13141, KAFKA-8400): it does not come here.

        Args:
            broker_epoch: epoch of the replica's registration; -1 if it does not say.
            offset: first offset that is fetched: the end of the replica's log.
            log_start: start of the replica's log.
            leader_end: end of the leader's log when it was read.

        Raises:
            RequestRefused: UNKNOWN_LEADER_EPOCH, as `check_replica`. NOT_LEADER_OR_FOLLOWER: the
                broker has been registered anew since. OFFSET_OUT_OF_RANGE: the log does not have
                the offset. There is no effect.
        """
        self.check_replica(broker_id)
        replica, view = self.replicas[broker_id], self._brokers(broker_id)
        registered = max(replica.broker_epoch or -1, -1 if view is None else view.epoch)
        if -1 != broker_epoch < registered:
            raise RequestRefused(
                ErrorCode.not_leader_or_follower,
                f"the fetch is of epoch {broker_epoch} of broker {broker_id}, which is registered "
                f"under epoch {registered}",
            )
        self.log_end = max(self.log_end, leader_end)
        if not 0 <= offset <= self.log_end:
            raise RequestRefused(
                ErrorCode.offset_out_of_range, f"offset {offset} is beyond the log's end"
            )
        self._now_ms = max(self._now_ms, now_ms)
        start_moved = replica.start != log_start
        replica.advance(offset, log_start, leader_end, broker_epoch, now_ms)
        may_join = broker_id not in self.maximal_isr and self._joins(broker_id, replica)
        return FetchProgress(self._raise(), may_join, start_moved)

    def on_state(
        self, partition: PartitionRecord, now_ms: int, *, epoch_start: int | None = None
    ) -> int | None:
        """Take the partition's state from the metadata log; this broker leads it.

        A state that is older than what is known is ignored. One of the same epoch may still have
        other replicas than the answer to a proposal had. It decides no later proposal.

        Args:
            epoch_start: end of the log when the state's leader epoch began; needed where that is
                a new one.

        Returns:
            the new high watermark, or None if it has not moved.
        """
        known, pending, is_sent = self.partition, self._pending, self._is_sent
        if (
            partition.leader_epoch < known.leader_epoch
            or partition.partition_epoch < known.partition_epoch
        ):
            return None
        if partition.leader_epoch > known.leader_epoch:
            assert epoch_start is not None
            self.epoch_start = epoch_start
            self.log_end = max(self.log_end, epoch_start)
            members = set(partition.isr)
            if partition.leader_epoch != known.leader_epoch + 1:
                # They may have followed another leader meanwhile, and have truncated.
                self.replicas = {}
            for broker_id, replica in self.replicas.items():
                is_member = broker_id in members
                replica.caught_up_ms = replica.fetched_ms = now_ms if is_member else None
                replica.leader_end = epoch_start
        self._commit(partition, now_ms)
        if (
            pending is not None
            and partition.partition_epoch == pending.partition_epoch
            and set(pending.isr) <= set(partition.replicas)
        ):
            self._pending, self._is_sent = pending, is_sent
            self.maximal_isr |= set(pending.isr)
        return self._raise()

    def on_brokers(self) -> int | None:
        """Look at the brokers again, some of which have changed; return as `on_append` does."""
        return self._raise()

    def on_min_isr(self, min_isr: int) -> int | None:
        """Take a new `min.insync.replicas`; return as `on_append` does."""
        self.min_isr = min_isr
        return self._raise()

    def tick(self, now_ms: int) -> int | None:
        """Take the time; return as `on_append` does.

        A replica that is not a member no longer holds the high watermark back once it lags.
        """
        self._now_ms = max(self._now_ms, now_ms)
        return self._raise()

    # --- proposals ----------------------------------------------------------------------

    @property
    def is_proposing(self) -> bool:
        """True while a proposal is not decided."""
        return self._pending is not None

    @property
    def wants_proposal(self) -> bool:
        """True if `proposal` has to be asked: a replica could join, or has to leave."""
        return self._pending is None and self._propose() is not None

    def proposal(self, now_ms: int) -> IsrProposal | None:
        """Return what the controllers have to be asked for now, or None.

        Whoever takes it sends it, and calls `on_answer`. The same one comes again after an answer
        that leaves it undecided.
        """
        self._now_ms = max(self._now_ms, now_ms)
        if now_ms < self.not_before_ms or self._is_sent:
            return None
        if self._pending is None:
            self._pending = self._propose()
            if self._pending is None:
                return None
            self.maximal_isr = frozenset((*self.partition.isr, *self._pending.isr))
        self._is_sent = True
        return self._pending

    def on_answer(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int) -> int | None:
        """Take the answer to a proposal; return the new high watermark or None.

        An answer that never comes is an answer with an error that allows another try.
        """
        if proposal is not self._pending:
            return None  # the metadata log was faster
        self._is_sent = False
        self.not_before_ms = now_ms + RETRY_MS
        if answer.error == ErrorCode.none and self._is_plausible(answer, proposal):
            self.not_before_ms = now_ms
            self._commit(
                self.partition._replace(
                    isr=tuple(answer.isr),
                    recovery_state=answer.recovery_state,
                    partition_epoch=answer.partition_epoch,
                ),
                now_ms,
            )
        elif answer.error in NOT_APPLIED:
            self._pending = None
            self.maximal_isr = frozenset(self.partition.isr)
        elif answer.error in METADATA_LAGS:
            self.not_before_ms = now_ms + UNDECIDED_MS
        return self._raise()

    def _is_plausible(self, answer: IsrAnswer, proposal: IsrProposal) -> bool:
        """Return True if the answer can be the state after our proposal.

        The controllers leave out of it a replica that a reassignment has removed. A partition epoch
        that is too large would make all that the metadata say later look old.
        """
        known = self.partition
        if (answer.leader, answer.leader_epoch) != (self.node_id, known.leader_epoch):
            return False
        if answer.partition_epoch == known.partition_epoch:
            return set(answer.isr) == set(known.isr)
        return (
            answer.partition_epoch == known.partition_epoch + 1
            and self.node_id in answer.isr
            and set(answer.isr) <= set(proposal.isr)
        )

    def _propose(self) -> IsrProposal | None:
        known = self.partition
        joining = [
            broker_id
            for broker_id, replica in self.replicas.items()
            if broker_id not in known.isr and self._joins(broker_id, replica)
        ]
        staying = [
            broker_id
            for broker_id in known.isr
            if broker_id == self.node_id or self.is_caught_up(broker_id)
        ]
        if not joining and len(staying) == len(known.isr):
            return None
        return IsrProposal(
            known.leader_epoch,
            known.partition_epoch,
            tuple(self._members((*staying, *joining))),
            0,  # an unclean election is over once its leader leads
        )

    def _members(self, broker_ids: Iterable[int]) -> Iterable[IsrMember]:
        for broker_id in broker_ids:
            if broker_id == self.node_id:
                view = self._brokers(broker_id)
                epoch = None if view is None else view.epoch
            else:
                epoch = self.replicas[broker_id].broker_epoch
            yield IsrMember(broker_id, -1 if epoch is None else epoch)

    # --- rules --------------------------------------------------------------------------

    def _commit(self, partition: PartitionRecord, now_ms: int) -> None:
        """Take what the controllers have decided; a proposal that is under way is void."""
        self.partition = partition
        self.maximal_isr = frozenset(partition.isr)
        self._pending, self._is_sent = None, False
        self.replicas = {
            broker_id: self.replicas.get(broker_id)
            or ReplicaProgress(now_ms if broker_id in self.maximal_isr else None)
            for broker_id in partition.replicas
            if broker_id != self.node_id
        }

    def _is_caught_up(self, replica: ReplicaProgress) -> bool:
        """Return True for a replica that may be in the ISR: the only rule."""
        return replica.end == self.log_end or (
            replica.caught_up_ms is not None
            and self._now_ms - replica.caught_up_ms <= self.lag_max_ms
        )

    def _is_eligible(self, broker_id: int, replica: ReplicaProgress) -> bool:
        """Return True if the controllers would accept a replica as a member."""
        view = self._brokers(broker_id)
        return (
            view is not None
            and not view.is_fenced
            and not view.is_shutting_down
            and replica.broker_epoch in (-1, view.epoch)
        )

    def _joins(self, broker_id: int, replica: ReplicaProgress) -> bool:
        return (
            replica.end >= self.high_watermark
            and replica.end >= self.epoch_start
            and self._is_caught_up(replica)
            and self._is_eligible(broker_id, replica)
        )

    def _raise(self) -> int | None:
        """Raise the high watermark to what all who count have; return it, or None.

        It does not move while the ISR is smaller than `min.insync.replicas` allows (KIP-966).
        A replica that is about to join counts, too, unless it cannot join (KAFKA-15021).
        """
        if len(self.partition.isr) < self.effective_min_isr:
            return None
        offset, high_watermark = self.log_end, self.high_watermark
        if offset <= high_watermark:
            return None
        for broker_id, replica in self.replicas.items():
            if replica.end < offset and (
                broker_id in self.maximal_isr
                or (self._is_caught_up(replica) and self._is_eligible(broker_id, replica))
            ):
                offset = replica.end
                if offset <= high_watermark:
                    return None
        self.high_watermark = offset
        return offset
