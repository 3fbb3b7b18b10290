"""Repeated fetches of many partitions from one leader, in a session (KIP-227).

The first fetch contains all partitions. If the broker offers a session, later fetches contain only
changes, and responses only partitions with news. So 1,000 idle partitions cost a request of some
bytes. Without a session every fetch contains all partitions. A partition that returned records
moves to the end of the order, so that no partition waits for ever.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.client.config import Address
from horolog.client.connection import ReusedMemory
from horolog.client.deadline import Deadline
from horolog.client.fetching import (
    Fetched,
    append_times_level,
    fetch_request,
    fetched,
    fetched_later,
    highest_for,
)
from horolog.client.link import Link
from horolog.client.metadata import error_of, refuse
from horolog.errors import ErrorCode
from horolog.offsets import TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.features import APPEND_TIME
from horolog.wire.fetch import DivergingEpoch
from horolog.wire.replica_fetch import LaterAnswer, ReplicaFetch, encode_replica_fetch

_LAST_EPOCH: Final = 0x7FFF_FFFF
_FIRST_WITH_TOPIC_IDS: Final = 13
_SESSION_IS_OVER: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


class FetchLimits(NamedTuple):
    """Limits of one response. The first batch is returned whole, however large it is."""

    max_bytes: int
    partition_max_bytes: int
    min_bytes: int = 1
    kept_bytes: int = 64 << 20
    """Largest response whose memory is kept for the next one."""


class FetchPosition(NamedTuple):
    """Position at which a partition is read."""

    offset: int
    topic_id: UUID | None
    leader_epoch: int
    """Expected leader epoch; the broker refuses if its own differs."""
    last_epoch: int
    """Epoch of the last record before the offset; -1 without one."""
    log_start: int = -1
    """Start of a replica's log."""


class FetchingReplica(NamedTuple):
    """Broker that fetches as a replica (KIP-903)."""

    node_id: int
    broker_epoch: Callable[[], int]
    """Epoch of its current registration."""


class FetchAnswer(NamedTuple):
    """Response of a leader about one partition."""

    error: ErrorCode
    fetched: Fetched
    diverging: DivergingEpoch | None
    """Largest epoch up to that before the offset that the leader has, and its end there, if the
    log before the offset differs from the leader's (KIP-595)."""


class ClientFetchSession:
    """Partitions that are fetched from one leader, and the state of the session.

    For one thread. A blocking caller uses `fetch`; another one sends `request` after `begin`, again
    if `is_over` says so, and gives the response to `take`.

    Args:
        highest: the highest version of Fetch to use.
        replica: the broker that fetches, if it is a replica.
    """

    def __init__(
        self,
        limits: FetchLimits,
        *,
        highest: int = 0x7FFF,
        replica: FetchingReplica | None = None,
    ) -> None:
        self._limits = limits
        self._highest = highest
        self._replica = replica
        self._positions: dict[TopicPartition, FetchPosition] = {}
        self._nameable: dict[UUID, str] = {}  # topics by id
        self._without_id: set[TopicPartition] = set()
        self._connection: object = None
        self._version = -1
        self._id = self._epoch = 0  # of the session; epoch 0 asks for all, and for a session
        self._known: set[TopicPartition] = set()  # to the broker, in a session
        self._changed: dict[TopicPartition, None] = {}
        self._forgotten: dict[tuple[str, UUID | None], set[int]] = {}
        self.memory = ReusedMemory(limits.kept_bytes)
        """Memory for responses: one is valid until the next one arrives."""
        self.unasked: list[TopicPartition] = []
        """Partitions in the last response that were not requested."""

    def __len__(self) -> int:
        """Return the number of partitions that are fetched."""
        return len(self._positions)

    def __contains__(self, partition: TopicPartition) -> bool:
        """True if the partition is fetched."""
        return partition in self._positions

    def want(self, partition: TopicPartition, position: FetchPosition) -> None:
        """Fetch a partition from this position, after all other partitions."""
        before = self._positions.get(partition)
        if before is not None and before.topic_id != position.topic_id:
            self.forget(partition)
        self._positions.pop(partition, None)
        self._positions[partition] = position
        self._changed[partition] = None
        topic, index = partition
        if position.topic_id is None:
            self._without_id.add(partition)
        else:
            self._nameable[position.topic_id] = topic
        self._forgotten.get((topic, position.topic_id), set()).discard(index)

    def forget(self, partition: TopicPartition) -> None:
        """Stop fetching a partition."""
        position = self._positions.pop(partition, None)
        if position is None:
            return
        self._changed.pop(partition, None)
        self._without_id.discard(partition)
        if partition in self._known:
            self._known.discard(partition)
            topic, index = partition
            self._forgotten.setdefault((topic, position.topic_id), set()).add(index)

    def fetch(
        self, link: Link, max_wait_ms: int, deadline: Deadline
    ) -> dict[TopicPartition, FetchAnswer]:
        """Return responses about the partitions that have records or news.

        Their records are valid until the next fetch, which may write over them.

        Args:
            link: connection to the leader. A session ends with it.
            max_wait_ms: how long the leader may wait for `min_bytes`.

        Raises:
            RequestRefused: the whole request was refused.
            NoAnswer, MalformedResponse: like `Link.ask`.
        """
        highest = min(self._highest, highest_for(None if self._without_id else self._nameable))
        version = link.version(ApiKey.FETCH, highest=highest)
        self.begin(link, version)
        with_times = APPEND_TIME in link.features
        level = append_times_level(link, seen=True) * with_times

        def ask() -> Any:
            link.send(ApiKey.FETCH, version, self.request(max_wait_ms, level), deadline)
            return link.receive(ApiKey.FETCH, version, deadline, self.memory)

        body = ask()
        if self.is_over(body):
            body = ask()
        return self.take(link, body, link.address, with_times=with_times)

    def begin(self, connection: object, version: int) -> None:
        """Prepare for a request on a connection; a session ends with it, or with the version."""
        if connection is not self._connection or version != self._version:
            self._id = self._epoch = 0
        self._connection, self._version = None, version  # what fails is not gone on with

    def request(self, max_wait_ms: int, level: int) -> dict[str, Any]:
        """Return the next request.

        Args:
            level: isolation level, with what else is asked for.
        """
        limits, in_session = self._limits, self._epoch > 0
        asked = self._changed if in_session else self._positions
        request = fetch_request(
            [self._topic(topic, indexes) for topic, indexes in _neighbours(asked)],
            max_bytes=limits.max_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=limits.min_bytes,
            level=level,
        )
        forgotten = [
            {"topic": topic, "topic_id": topic_id, "partitions": sorted(indexes)}
            for (topic, topic_id), indexes in self._forgotten.items()
            if indexes and in_session
        ]
        request |= {
            "session_id": self._id,
            "session_epoch": self._epoch,
            "forgotten_topics_data": forgotten,
        }
        if self._replica is not None:
            node_id, epoch = self._replica.node_id, self._replica.broker_epoch()
            request["replica_id"] = node_id  # up to version 14
            request["replica_state"] = {"replica_id": node_id, "replica_epoch": epoch}
        return request

    def replica_request(self, max_wait_ms: int, level: int, clock_ms: int | None = None) -> bytes:
        """Return the body of a replica's next request, of version 17 or 18; see `request`.

        Args:
            clock_ms: this broker's clock of append times, for a leader of horolog.
        """
        limits, in_session, replica = self._limits, self._epoch > 0, self._replica
        assert replica is not None
        topics = []
        for topic, indexes in _neighbours(self._changed if in_session else self._positions):
            partitions, topic_id = [], None
            for index in indexes:
                offset, topic_id, leader_epoch, last_epoch, start = self._positions[topic, index]
                most = limits.partition_max_bytes
                partitions.append((index, leader_epoch, offset, last_epoch, start, most))
            topics.append((topic_id, partitions))
        forgotten = [
            (topic_id, indexes)
            for (_, topic_id), indexes in self._forgotten.items()
            if indexes and in_session
        ]
        fetch = ReplicaFetch(
            max_wait_ms,
            limits.min_bytes,
            limits.max_bytes,
            level,
            self._id,
            self._epoch,
            replica.node_id,
            replica.broker_epoch(),
        )
        return encode_replica_fetch(fetch, topics, forgotten, append_clock_ms=clock_ms)

    def is_over(self, body: Any) -> bool:
        """Return True if the broker does not know the session: `request` begins another one."""
        code = getattr(body, "error_code", 0)
        if code not in _SESSION_IS_OVER:
            return False
        self._epoch = 0
        if code == ErrorCode.fetch_session_id_not_found:
            self._id = 0
        return True

    def take(
        self, connection: object, body: Any, address: Address, *, with_times: bool
    ) -> dict[TopicPartition, FetchAnswer]:
        """Return the answers of a response to the last request on this connection.

        Raises:
            RequestRefused: the whole request was refused.
        """
        refuse(getattr(body, "error_code", 0), f"fetch from {address}")
        self._connection = connection
        self._note_asked(getattr(body, "session_id", 0))
        if isinstance(body, LaterAnswer):
            return self._later_answer(body, with_times=with_times)
        return self._answers(body, with_times=with_times)

    def _topic(self, topic: str, indexes: Iterable[int]) -> Mapping[str, Any]:
        partitions, topic_id = [], None
        for index in indexes:
            offset, topic_id, leader_epoch, last_epoch, start = self._positions[topic, index]
            partitions.append(
                {
                    "partition": index,
                    "current_leader_epoch": leader_epoch,
                    "fetch_offset": offset,
                    "last_fetched_epoch": last_epoch,
                    "log_start_offset": start,
                    "partition_max_bytes": self._limits.partition_max_bytes,
                }
            )
        return {"topic": topic, "topic_id": topic_id, "partitions": partitions}

    def _note_asked(self, session_id: int) -> None:
        """Note which partitions the broker knows after a successful fetch."""
        if self._epoch:
            self._known.update(self._changed)
        else:
            self._known = set(self._positions)
            used = {position.topic_id for position in self._positions.values()}
            self._nameable = {i: name for i, name in self._nameable.items() if i in used}
        self._changed.clear()
        self._forgotten.clear()
        self._id = session_id
        self._epoch = 0 if session_id == 0 else self._epoch % _LAST_EPOCH + 1

    def _later_answer(
        self, body: LaterAnswer, *, with_times: bool
    ) -> dict[TopicPartition, FetchAnswer]:
        """Return the answer about one partition, or none."""
        self.unasked = []
        if body.topic_id is None:
            return {}
        name = self._nameable.get(body.topic_id, f"with id {body.topic_id}")
        partition = (name, body.partition)
        if partition not in self._positions:
            self.unasked.append(partition)
            return {}
        _, _, _, _, _, *offsets, listed, records = body
        found = fetched_later(records, offsets, listed, with_times=with_times)
        return {partition: FetchAnswer(ErrorCode.none, found, None)}

    def _answers(self, body: Any, *, with_times: bool) -> dict[TopicPartition, FetchAnswer]:
        answers: dict[TopicPartition, FetchAnswer] = {}
        self.unasked = []
        for topic in body.responses:
            if self._version >= _FIRST_WITH_TOPIC_IDS:
                name = self._nameable.get(topic.topic_id, f"with id {topic.topic_id}")
            else:
                name = topic.topic
            for it in topic.partitions:
                partition = (name, it.partition_index)
                if partition not in self._positions or partition in answers:
                    self.unasked.append(partition)
                    continue
                answers[partition] = FetchAnswer(
                    error_of(it.error_code),
                    fetched(it, with_times=with_times, committed=False),
                    _diverging(getattr(it, "diverging_epoch", None)),
                )
        return answers


def _diverging(said: Any) -> DivergingEpoch | None:
    is_said = said is not None and said.end_offset >= 0
    return DivergingEpoch(said.epoch, said.end_offset) if is_said else None


def _neighbours(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, Iterable[int]]]:
    """Yield partitions in order, grouped where neighbours have the same topic."""
    for topic, some in groupby(partitions, lambda partition: partition[0]):
        yield topic, (number for _, number in some)
