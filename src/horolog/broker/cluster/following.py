"""Replicas whose partitions other brokers lead: one fetcher for each leader.

Roles call `follow` and `stop`. All is for the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from horolog.broker.clock_exchange import ClockExchange
from horolog.broker.cluster.own_rights import OwnRights
from horolog.broker.cluster.replica_leader import ReplicaLeader
from horolog.broker.following.fetching import LeaderFetcher
from horolog.broker.following.followed import Followed, fetch_limits
from horolog.broker.partition import Partition
from horolog.broker.settings import LiveSettings
from horolog.client.config import Address
from horolog.client.fetch_session import FetchingReplica
from horolog.client.security import Security
from horolog.clock import Clock
from horolog.network.outgoing import OutgoingConnection
from horolog.offsets import TopicPartition
from horolog.replication.replica import ReplicaPartition

__all__ = ["ReplicaFetchers", "ReplicaStatus"]

_LOG = logging.getLogger(__name__)

REPORT_S: Final = 10.0
FAILURES: Final = 3
"""Errors in a row from which on they are reported: those of an election are over by then."""
_MOST_NAMED: Final = 10


class ReplicaStatus(NamedTuple):
    """Progress of one replica."""

    leader: int | None
    offsets_behind: int | None
    """Offsets that the leader has committed and that are missing here; None if unknown."""
    why: str | None
    """Reason why it is not followed now; None if it is."""


class ReplicaFetchers:
    """Fetchers of the leaders of this node's replicas.

    Args:
        replica: this node.
        address_of: returns the address of a broker's listener for brokers; None if it has none.
        level: returns the level of `metadata.version`.
        security: settings for connections to that listener.
        clocks: this broker's clock of append times.
        clock: for what logs do with times.
    """

    def __init__(
        self,
        replica: FetchingReplica,
        address_of: Callable[[int], Address | None],
        level: Callable[[], int],
        live: LiveSettings,
        security: Security,
        clock: Clock,
        clocks: ClockExchange,
    ) -> None:
        self._replica = replica
        self._address_of = address_of
        self._level = level
        self._live = live
        self._security = security
        self._clock = clock
        self._clocks = clocks
        self._loop = asyncio.get_running_loop()
        self._followed: dict[TopicPartition, Followed[ReplicaPartition]] = {}
        self._fetchers: dict[int, tuple[Address, LeaderFetcher]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._reported: dict[TopicPartition, str] = {}
        self._reporting = asyncio.create_task(self._report(), name="report replicas")

    # --- roles ------------------------------------------------------------------------

    def follow(
        self, partition: Partition, leader_id: int, leader_epoch: int, topic_id: UUID
    ) -> None:
        """Fetch a partition from the leader of an epoch; an earlier epoch is ignored.

        Its log follows in this epoch once the writes that are queued by now are done.
        """
        key = (partition.topic, partition.index)
        followed = self._followed.get(key)
        if followed is not None and (
            followed.partition is not partition or followed.topic_id != topic_id
        ):
            self.stop(followed.partition)
            followed = None
        if followed is None:
            backoff_ms = self._live.config.replica_fetch_backoff_ms
            state = ReplicaPartition(backoff_ms, backoff_ms)
            followed = Followed(partition, topic_id, state, self._now_ms())
            self._followed[key] = followed
        state, turn = followed.state, followed.state.turn
        before = self._fetcher_of(followed)
        state.lead(leader_id, leader_epoch)
        if state.turn == turn:
            return
        if before is not None:
            before.drop(followed)
        fetcher = self._fetcher_of(followed) or self._add_fetcher(leader_id)
        if fetcher is not None:  # else its address is not known yet
            fetcher.attend(followed)

    def stop(self, partition: Partition) -> None:
        """Stop fetching a partition; a batch that is not queued yet is not appended."""
        key = (partition.topic, partition.index)
        followed = self._followed.get(key)
        if followed is None or followed.partition is not partition:
            return
        del self._followed[key]
        fetcher = self._fetcher_of(followed)
        followed.state.release()
        if fetcher is not None:
            fetcher.drop(followed)

    def on_brokers(self) -> None:
        """Connect to brokers anew whose addresses have changed, or are known now."""
        for node_id, (address, fetcher) in list(self._fetchers.items()):
            if self._address_of(node_id) != address:
                del self._fetchers[node_id]
                self._end(fetcher)
        waiting = [one for one in self._followed.values() if self._fetcher_of(one) is None]
        for followed in waiting:
            leader = followed.state.leader
            to_ask = self._fetcher_of(followed)
            if to_ask is None and leader is not None:
                to_ask = self._add_fetcher(leader)
            if to_ask is not None:
                to_ask.attend(followed)

    async def close(self) -> None:
        """Fetch nothing more. Batches that are being appended are appended."""
        self._reporting.cancel()
        for followed in list(self._followed.values()):
            self.stop(followed.partition)
        fetchers, self._fetchers = self._fetchers, {}
        for _, fetcher in fetchers.values():
            self._end(fetcher)
        await asyncio.gather(self._reporting, *self._ending, return_exceptions=True)

    def _fetcher_of(self, followed: Followed[ReplicaPartition]) -> LeaderFetcher | None:
        leader = followed.state.leader
        found = None if leader is None else self._fetchers.get(leader)
        return None if found is None else found[1]

    def _add_fetcher(self, node_id: int) -> LeaderFetcher | None:
        address = self._address_of(node_id)
        if address is None:
            return None
        config = self._live.config
        leader = ReplicaLeader(
            OutgoingConnection(
                address, self._security, client_id=f"broker-{self._replica.node_id}-fetcher-0"
            ),
            fetch_limits(config),
            self._replica,
            self._level,
            self._clocks,
            timeout_ms=config.replica_socket_timeout_ms,
            rights=OwnRights(self._security),
        )
        fetcher = LeaderFetcher(
            leader,
            f"broker {node_id} at {address}",
            self._clock,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            follows_start=True,
            look_again=lambda: None,
        )
        self._fetchers[node_id] = address, fetcher
        return fetcher

    def _end(self, fetcher: LeaderFetcher) -> None:
        task = asyncio.create_task(fetcher.stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # --- status -----------------------------------------------------------------------

    def status_of(self, partition: Partition) -> ReplicaStatus | None:
        """Return the progress of a replica; None if it is not followed."""
        followed = self._followed.get((partition.topic, partition.index))
        if followed is None or followed.partition is not partition:
            return None
        state, fetcher = followed.state, self._fetcher_of(followed)
        why = state.why
        if fetcher is None:
            why = f"the address of broker {state.leader} is not known"
        elif why is None:
            why = fetcher.why
        return ReplicaStatus(state.leader, state.offsets_behind, why)

    async def _report(self) -> None:
        """Log from time to time which replicas have trouble, each reason once."""
        while True:
            await asyncio.sleep(REPORT_S)
            new = []
            for key, followed in self._followed.items():
                state = followed.state
                why = state.why if state.failures >= FAILURES else None
                if why is None:
                    self._reported.pop(key, None)
                elif self._reported.get(key) != why:
                    self._reported[key] = why
                    new.append(f"{followed.partition.name}: {why}")
            for gone in self._reported.keys() - self._followed.keys():
                del self._reported[gone]
            for line in new[:_MOST_NAMED]:
                _LOG.warning("%s", line)
            if len(new) > _MOST_NAMED:
                _LOG.warning("%d other replicas are not followed now", len(new) - _MOST_NAMED)
