"""Asks one broker of another cluster, which is followed, as a consumer does.

Requests are blocking calls in a thread of their own: whatever answers there may be slow, and is
reached with whatever settings a client has.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from horolog.broker.scheduling.blocking_thread import BlockingThread
from horolog.client.brokers import Brokers
from horolog.client.config import Address, ClientConfig
from horolog.client.deadline import Deadline
from horolog.client.fetch_session import ClientFetchSession, FetchAnswer, FetchLimits, FetchPosition
from horolog.client.leader import EpochEnd, LogBounds, cluster_of, epoch_ends, log_bounds
from horolog.client.link import Link
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import TopicPartition
from horolog.storage.names import NAMES_HERE, name_at_source

__all__ = ["SourceLeader"]

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
AskedT = TypeVar("AskedT")


class SourceLeader:
    """Requests to one broker of the source. Created and used on an event loop."""

    def __init__(
        self,
        address: Address,
        config: ClientConfig,
        limits: FetchLimits,
        cluster_id: str,
        *,
        timeout_ms: int,
        fetch_version: int,
    ) -> None:
        self._timeout_ms = timeout_ms  # of a request, beyond its own wait
        self._cluster_id = cluster_id  # that is followed
        self._address = address
        self._thread = BlockingThread(f"horolog-follow-{address}")
        self._brokers = Brokers(config)
        self._session = ClientFetchSession(limits, highest=fetch_version)
        self._link: Link | None = None

    async def fetch(
        self,
        positions: Mapping[TopicPartition, FetchPosition],
        forgotten: Mapping[TopicPartition, None],
        max_wait_ms: int,
    ) -> dict[TopicPartition, FetchAnswer]:
        """Fetch with a session, given the changed positions and the forgotten partitions."""
        return await self._thread.run(partial(self._fetch, positions, forgotten, max_wait_ms))

    async def epoch_ends(
        self, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochEnd]:
        """Return the ends of leader epochs; see `leader.epoch_ends`."""
        return await self._thread.run(partial(self._answers, epoch_ends, asked))

    async def bounds(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogBounds]:
        """Return the first and last offsets of logs; see `leader.log_bounds`."""
        return await self._thread.run(partial(self._answers, log_bounds, asked))

    async def close(self) -> None:
        """Let a request in flight fail, and close the connection without waiting for it."""
        self._brokers.interrupt()
        self._thread.run(self._brokers.close)
        self._thread.end()

    # --- in the thread ----------------------------------------------------------------

    def _fetch(
        self,
        positions: Mapping[TopicPartition, FetchPosition],
        forgotten: Mapping[TopicPartition, None],
        max_wait_ms: int,
    ) -> dict[TopicPartition, FetchAnswer]:
        for partition in forgotten:
            self._session.forget(_at_source(partition))
        for partition, position in positions.items():
            self._session.want(_at_source(partition), position)
        deadline = Deadline.after_ms(max_wait_ms + self._timeout_ms)
        answers = self._session.fetch(self._connected(deadline), max_wait_ms, deadline)
        if self._session.unasked:
            _LOG.warning(
                "%s answered about %d partitions that it was not asked about, such as %s-%d",
                self._address,
                len(self._session.unasked),
                *self._session.unasked[0],
            )
        return {_here(key): answer for key, answer in answers.items()}

    def _answers(
        self,
        ask: Callable[[Link, dict[TopicPartition, AskedT], Deadline], dict[TopicPartition, T]],
        asked: Mapping[TopicPartition, AskedT],
    ) -> dict[TopicPartition, T]:
        """Ask about partitions by their names at the source; return answers by those here."""
        deadline = Deadline.after_ms(self._timeout_ms)
        theirs = {_at_source(key): about for key, about in asked.items()}
        answers = ask(self._connected(deadline), theirs, deadline)
        return {_here(key): answer for key, answer in answers.items()}

    def _connected(self, deadline: Deadline) -> Link:
        link = self._brokers.at(self._address, deadline)
        if link is not self._link:
            # Whatever listens there now may be of another cluster.
            cluster_id = cluster_of(link, deadline)
            if cluster_id != self._cluster_id:
                link.connection.close()
                raise RequestRefused(
                    ErrorCode.inconsistent_cluster_id,
                    f"the broker at {self._address} is of cluster {cluster_id} and not of "
                    f"{self._cluster_id}, which is followed",
                )
            self._link = link
        return link


def _at_source(key: TopicPartition) -> TopicPartition:
    return name_at_source(key[0]), key[1]


def _here(key: TopicPartition) -> TopicPartition:
    return NAMES_HERE.get(key[0], key[0]), key[1]
