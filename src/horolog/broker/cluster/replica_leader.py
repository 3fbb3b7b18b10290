"""Asks a broker of this cluster, as a replica of what it leads, on the event loop.

Between brokers of a cluster the versions of requests follow from its `metadata.version`, whatever a
broker announces: Kafka's replicas do not ask. Append times are asked for only where the broker of
*this* connection announces them: Apache Kafka answers UNKNOWN_SERVER_ERROR.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from horolog.broker.clock_exchange import ClockExchange
from horolog.broker.cluster.own_rights import OwnRights
from horolog.client.fetch_session import (
    ClientFetchSession,
    FetchAnswer,
    FetchingReplica,
    FetchLimits,
    FetchPosition,
)
from horolog.client.introduction import Abilities
from horolog.client.leader import EpochEnd, LogBounds, bounds_of
from horolog.client.offsets import EARLIEST, LATEST, list_offsets_request, listed_offsets
from horolog.errors import ErrorCode, RequestRefused
from horolog.network.outgoing import OutgoingConnection
from horolog.offsets import TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.features import APPEND_TIME, SEEN_TIME, WITH_APPEND_TIMES, WITH_SEEN_TIMES
from horolog.wire.replica_fetch import read_later_answer

__all__ = ["ReplicaLeader", "fetch_version", "list_offsets_version"]

# Levels of metadata.version, as the controllers have them.
_4_0_IV3: Final = 25
_4_1_IV1: Final = 27
_4_2_IV1: Final = 29

_DENIED: Final = frozenset(
    {ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed}
)


def fetch_version(level: int) -> int:
    """Return the version of Fetch between brokers, from `metadata.version` 3.9-IV0 on."""
    return 18 if level >= _4_1_IV1 else 17


def list_offsets_version(level: int) -> int:
    """Return the version of ListOffsets between brokers, from `metadata.version` 3.9-IV0 on."""
    if level >= _4_2_IV1:
        return 11
    return 10 if level >= _4_0_IV3 else 9


class ReplicaLeader:
    """Requests to one leader.

    Args:
        connection: to the leader; closed by `close`.
        level: current level of `metadata.version`.
        timeout_ms: of a request, beyond its own wait.
        clocks: told to leaders of horolog, and raised to theirs.
        rights: those of this node at other brokers, for an error.
    """

    def __init__(
        self,
        connection: OutgoingConnection,
        limits: FetchLimits,
        replica: FetchingReplica,
        level: Callable[[], int],
        clocks: ClockExchange,
        *,
        timeout_ms: int,
        rights: OwnRights,
    ) -> None:
        self._connection = connection
        self._replica = replica
        self._level = level
        self._clocks = clocks
        self._timeout_ms = timeout_ms
        self._rights = rights
        self._session = ClientFetchSession(limits, replica=replica)

    async def fetch(
        self,
        positions: Mapping[TopicPartition, FetchPosition],
        forgotten: Mapping[TopicPartition, None],
        max_wait_ms: int,
    ) -> dict[TopicPartition, FetchAnswer]:
        """Fetch with a session, given the changed positions and the forgotten partitions.

        Raises:
            HorologError: the leader does not answer, or refuses the whole request.
        """
        session = self._session
        for partition in forgotten:
            session.forget(partition)
        for partition, position in positions.items():
            session.want(partition, position)
        connected = await self._connection.connected(timeout_ms=self._timeout_ms)
        version = fetch_version(self._level())
        with_times = APPEND_TIME in connected.features
        wanted = with_times * (
            WITH_APPEND_TIMES + WITH_SEEN_TIMES * (SEEN_TIME in connected.features)
        )
        session.begin(connected, version)
        body = await self._ask_for_records(connected, version, max_wait_ms, wanted)
        if session.is_over(body):
            body = await self._ask_for_records(connected, version, max_wait_ms, wanted)
        address = self._connection.address
        if with_times:
            self._clocks.hear(body.append_clock_ms, f"the broker at {address}")
        answers = session.take(connected, body, address, with_times=with_times)
        if answers and all(answer.error in _DENIED for answer in answers.values()):
            raise RequestRefused(
                ErrorCode.cluster_authorization_failed,
                f"the broker at {address} lets {self._rights.principal} replicate nothing: "
                f"{self._rights.grant}",
            )
        return answers

    async def _ask_for_records(
        self, connected: Abilities, version: int, max_wait_ms: int, level: int
    ) -> Any:
        clock_ms = self._clocks.tell() if level else None
        return await self._connection.ask(
            ApiKey.FETCH,
            self._session.replica_request(max_wait_ms, level, clock_ms),
            timeout_ms=max_wait_ms + self._timeout_ms,
            version=version,
            memory=self._session.memory,
            on=connected,
            read=read_later_answer,
        )

    async def bounds(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogBounds]:
        """Return log start and log end offsets, given the leader's epoch of each partition.

        Raises:
            HorologError: the leader does not answer.
        """
        version = list_offsets_version(self._level())

        async def ask(target: int) -> dict[TopicPartition, Any]:
            targets = dict.fromkeys(asked, target)
            fields = list_offsets_request(
                targets, self._timeout_ms, epochs=asked, replica_id=self._replica.node_id
            )
            body = await self._connection.ask(
                ApiKey.LIST_OFFSETS, fields, timeout_ms=self._timeout_ms, version=version
            )
            return listed_offsets(body, targets)

        return bounds_of(*await asyncio.gather(ask(EARLIEST), ask(LATEST)))

    async def epoch_ends(
        self, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochEnd]:
        """Answer nothing: a replica compares epochs by its fetches."""
        raise AssertionError("a replica does not ask for ends of epochs")

    async def close(self) -> None:
        """Close the connection; a request in flight fails."""
        await self._connection.close()
