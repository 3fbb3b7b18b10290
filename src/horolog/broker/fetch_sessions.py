"""Fetch sessions (KIP-227): partitions that a client fetches, kept between its requests.

The first fetch of a session names all partitions. Later fetches name only changes. Their responses
contain only partitions with records, an error, or offsets that are new to the client. A partition
that gave records goes to the end of the order, so that no partition starves when `max_bytes` are
used up.

    session id    epoch    meaning
    0             -1       no session
    0             0        a new session, if there is room for one
    id            0        a new session in place of this one
    id            -1       no session, and the end of this one
    id            1...     the next fetch of this session; after 2^31 - 1 comes 1

Sessions are evicted as in Apache Kafka 4.3 (`FetchSessionCache`, without its shards). The least
recently used session goes if it was last used over two minutes ago. Otherwise the smallest session
older than two minutes goes, followers last, if it is smaller than the new one. For a follower any
session of a consumer goes. A client without a session names all partitions in each fetch. A session
belongs to no connection, as in Kafka.

For the event loop's thread only.
"""

import secrets
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from horolog.errors import ErrorCode, RequestRefused
from horolog.storage.logs.readable import ReadableLog
from horolog.wire.fetch import FetchedPartition, FetchedTopic
from horolog.wire.requests import FetchPartition, FetchRequest, FetchTopic

__all__ = ["FetchSession", "FetchSessions", "SessionFetch"]

MIN_EVICTION_MS: Final = 120_000
MOST_PARTITIONS: Final = 10_000
"""Partitions of one session, because each of its fetches looks at all of them."""
MOST_PARTITIONS_OF_ALL: Final = 100_000
"""Partitions of all sessions, some 40 MB."""
_MOST_NAME: Final = 249
_LAST_EPOCH: Final = 0x7FFF_FFFF
_TOPIC_IDS_SINCE: Final = 13

_Key = tuple[str | UUID | None, int]


_Rank = tuple[bool, int, int]
"""Rank of a session: whether it is a follower's, its size and its id. The lowest goes first."""


class AskedPosition(Protocol):
    """Position and limits of a partition in a request."""

    @property
    def fetch_offset(self) -> int:
        """First offset to read."""
        ...

    @property
    def partition_max_bytes(self) -> int:
        """Limit of its records in the response."""
        ...

    @property
    def current_leader_epoch(self) -> int:
        """Leader epoch that the client knows; -1 for none."""
        ...

    @property
    def last_fetched_epoch(self) -> int:
        """Epoch of the last record before the offset; -1 for none."""
        ...

    @property
    def log_start_offset(self) -> int:
        """Start of a replica's log; -1 of a consumer."""
        ...


class SessionWatch(Protocol):
    """Watches the partitions of a session between its fetches."""

    def close(self) -> None:
        """Watch nothing more, because the session has ended."""
        ...


class SessionPartition:
    """A partition of a session: the client's position and limits, and the offsets that it knows.

    Has the fields of `wire.requests.FetchPartition` that are read.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "replica_start_offset",
        "served",
        "topic",
        "topic_id",
        "watched",
    )

    def __init__(self, topic: FetchTopic, requested: FetchPartition) -> None:
        self.topic, self.topic_id = topic.topic, topic.topic_id
        self.partition = requested.partition
        self.fetch_offset = -1
        self.high_watermark = self.log_start_offset = -1
        """Offsets in the last response about it; -1 if unknown, or after an error."""
        self.served: object = None
        """Partition of this broker that a replica was given last."""
        self.ask(requested)

    def ask(self, requested: AskedPosition) -> None:
        """Fetch from another offset, or with other limits."""
        if requested.fetch_offset == self.fetch_offset:
            # A replica that is led anew by this broker has dropped the answer to its last fetch.
            self.high_watermark = -1
        self.fetch_offset = requested.fetch_offset
        self.partition_max_bytes = requested.partition_max_bytes
        self.current_leader_epoch = requested.current_leader_epoch
        self.last_fetched_epoch = requested.last_fetched_epoch
        self.replica_start_offset = requested.log_start_offset
        self.watched: object = None
        """State of the last look at it, for a replica that had everything; None to look again."""

    def has_no_news(self, log: ReadableLog) -> bool:
        """True if a read certainly returns nothing that the client does not know."""
        return (
            self.fetch_offset == self.high_watermark == log.high_watermark
            and self.log_start_offset == log.log_start_offset
            and self.current_leader_epoch in (-1, log.leader_epoch)
        )

    def note(self, found: FetchedPartition) -> bool:
        """Note the content of a response; return True if it is new to the client."""
        is_new = bool(
            found.error_code
            or len(found.records)
            or found.diverging is not None
            or found.high_watermark != self.high_watermark
            or found.log_start_offset != self.log_start_offset
        )
        self.high_watermark = -1 if found.error_code else found.high_watermark
        self.log_start_offset = found.log_start_offset
        return is_new


class SessionTopic(NamedTuple):
    """Consecutive partitions of one topic in a session, with the fields of `FetchTopic`."""

    topic: str
    topic_id: UUID | None
    partitions: Sequence[SessionPartition]


class FetchSession:
    """One session."""

    __slots__ = (
        "created_ms",
        "epoch",
        "has_topic_ids",
        "id",
        "is_privileged",
        "partitions",
        "ranked",
        "size",
        "used_ms",
        "watch",
    )

    def __init__(
        self,
        id_: int,
        partitions: dict[_Key, SessionPartition],
        now_ms: int,
        *,
        has_topic_ids: bool,
        is_privileged: bool,
    ) -> None:
        self.id = id_
        self.partitions = partitions
        self.has_topic_ids = has_topic_ids
        self.is_privileged = is_privileged
        self.created_ms = self.used_ms = now_ms
        self.epoch = 1
        """Epoch of the next fetch."""
        self.size = len(partitions)
        """Partitions at its last use."""
        self.ranked: tuple[int, int] | None = None
        """Size in its rank, and by whom it may be evicted: nobody (0), followers (1) or all (2)."""
        self.watch: SessionWatch | None = None
        """Watch over its partitions, of a replica; closed with the session."""


class SessionFetch:
    """One fetch of a session: the partitions to read, and the news for its response."""

    __slots__ = ("_epoch", "_session", "topics")

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch
        self.topics: list[SessionTopic] = []
        before: SessionPartition | None = None
        for partition in session.partitions.values():
            if (
                before is None
                or partition.topic != before.topic
                or partition.topic_id != before.topic_id
            ):
                together: list[SessionPartition] = []
                self.topics.append(SessionTopic(partition.topic, partition.topic_id, together))
            together.append(partition)
            before = partition

    @property
    def session(self) -> FetchSession:
        """Its session."""
        return self._session

    @property
    def session_id(self) -> int:
        """Id of the session."""
        return self._session.id

    def news(self, found: Iterable[FetchedTopic]) -> Sequence[FetchedTopic]:
        """Return the parts of a read that the client does not know yet, and count them as known.

        Raises:
            RequestRefused: meanwhile another fetch of this session was begun.
        """
        session = self._session
        if session.epoch != self._epoch:
            raise RequestRefused(
                ErrorCode.invalid_fetch_session_epoch, "another fetch of this session has begun"
            )
        topics = []
        for topic in found:
            name = topic.topic_id if session.has_topic_ids else topic.name
            partitions = []
            for partition in topic.partitions:
                key = name, partition.partition_index
                known = session.partitions[key]
                if known.note(partition):
                    partitions.append(partition)
                    if len(partition.records) and len(session.partitions) > 1:
                        session.partitions[key] = session.partitions.pop(key)
            if partitions:
                topics.append(FetchedTopic(topic.name, topic.topic_id, partitions))
        return topics


class FetchSessions:
    """The sessions of a broker.

    Args:
        slots: how many there may be.
    """

    def __init__(self, slots: int, monotonic_ms: Callable[[], int]) -> None:
        self._slots = slots
        self._monotonic_ms = monotonic_ms
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self._for_consumers: list[_Rank] = []  # what may be evicted for them, in order
        self._for_followers: list[_Rank] = []
        self.partitions = 0
        """Number of partitions of all sessions."""
        self.evictions = 0
        """Sessions that made room for others."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def ids(self) -> Iterable[int]:
        """Ids of all sessions, the one used least recently first."""
        return self._sessions.keys()

    def begin(self, version: int, request: FetchRequest, found: Iterable[FetchedTopic]) -> int:
        """Begin a session of all partitions of a fetch, of which `found` was read; return its id.

        0 if there is no room for it.
        """
        partitions = self._asked(version, request)
        if partitions is None:
            return 0
        size, is_privileged = len(partitions), _is_follower(request)
        now_ms = self._monotonic_ms()
        while len(self._sessions) >= self._slots or self.partitions + size > MOST_PARTITIONS_OF_ALL:
            evicted = self._evicted(is_privileged, size, now_ms)
            if evicted is None:
                return 0
            self.end(evicted)
            self.evictions += 1
        has_topic_ids = version >= _TOPIC_IDS_SINCE
        for topic in found:
            name = topic.topic_id if has_topic_ids else topic.name
            for partition in topic.partitions:
                if (known := partitions.get((name, partition.partition_index))) is not None:
                    known.note(partition)
        session = FetchSession(
            self._new_id(),
            partitions,
            now_ms,
            has_topic_ids=has_topic_ids,
            is_privileged=is_privileged,
        )
        self._sessions[session.id] = session
        self.partitions += size
        self._rank(session)
        return session.id

    def end(self, session_id: int) -> None:
        """End a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= session.size
            self._unrank(session)
            if session.watch is not None:
                session.watch.close()

    def is_open(self, session_id: int) -> bool:
        """Return True if there is a session with this id."""
        return session_id in self._sessions

    def expecting(self, session_id: int, epoch: int) -> FetchSession | None:
        """Return a session by topic ids whose next fetch has this epoch; None without one."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or not session.has_topic_ids:
            return None
        return session

    def take_turn(self, session: FetchSession) -> None:
        """Note the next fetch of a session, which is used now."""
        session.used_ms = self._monotonic_ms()
        self._sessions.move_to_end(session.id)
        self._rank(session)
        session.epoch = session.epoch + 1 if session.epoch < _LAST_EPOCH else 1

    def go_on(self, version: int, request: FetchRequest) -> SessionFetch | None:
        """Return the next fetch of a session; None if no partition is left, which ends the session.

        Raises:
            RequestRefused: there is no such session (70), the fetch is not the next one (71), or it
                names topics by id where the session has names, or the other way round (106).
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise RequestRefused(ErrorCode.fetch_session_id_not_found, "there is no such session")
        if session.epoch != request.session_epoch:
            raise RequestRefused(
                ErrorCode.invalid_fetch_session_epoch, f"the next fetch is {session.epoch}"
            )
        if session.has_topic_ids != (version >= _TOPIC_IDS_SINCE):
            raise RequestRefused(
                ErrorCode.fetch_session_topic_id_error, "the session names topics otherwise"
            )
        self._change(session, version, request)
        if not session.partitions:
            self._end_changed(session)
            return None
        self.take_turn(session)
        return SessionFetch(session)

    def _end_changed(self, session: FetchSession) -> None:
        """End a session that another fetch may still be reading; that fetch is refused."""
        session.epoch = 0
        self.end(session.id)

    def _change(self, session: FetchSession, version: int, request: FetchRequest) -> None:
        partitions = session.partitions
        asked = self._asked(version, request, partitions) if request.topics else partitions
        if asked is not None:
            for topic in request.forgotten_topics_data:
                name = topic.topic_id if session.has_topic_ids else topic.topic
                for index in topic.partitions:
                    partitions.pop((name, index), None)
            size = len(partitions)
            if size == session.size:
                return
            self.partitions += size - session.size
            self._unrank(session)
            session.size, session.ranked = size, None
            if self.partitions <= MOST_PARTITIONS_OF_ALL:
                return
        self._end_changed(session)
        # The client begins anew, and is declined.
        raise RequestRefused(ErrorCode.fetch_session_id_not_found, "the session is too large")

    @staticmethod
    def _asked(
        version: int, request: FetchRequest, known: dict[_Key, SessionPartition] | None = None
    ) -> dict[_Key, SessionPartition] | None:
        """Add the partitions of a request to the known ones; None if they are too many."""
        partitions = {} if known is None else known
        count = 0
        for topic in request.topics:
            count += len(topic.partitions)
            if count > MOST_PARTITIONS:
                return None
            if len(topic.topic) > _MOST_NAME:
                return None
            name = topic.topic_id if version >= _TOPIC_IDS_SINCE else topic.topic
            for requested in topic.partitions:
                found = partitions.get((name, requested.partition))
                if found is None:
                    partitions[name, requested.partition] = SessionPartition(topic, requested)
                else:
                    found.ask(requested)
        return None if len(partitions) > MOST_PARTITIONS else partitions

    def _evicted(self, is_privileged: bool, size: int, now_ms: int) -> int | None:
        """Return the id of the session that makes room for one of this size, if any does."""
        if not self._sessions:
            return None
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > MIN_EVICTION_MS:
            return oldest.id
        ranks = self._for_followers if is_privileged else self._for_consumers
        if not ranks or (is_privileged, size, 0) < ranks[0]:
            return None
        return ranks[0][2]

    def _rank(self, session: FetchSession) -> None:
        """Rank a session among those that may be evicted."""
        if session.used_ms - session.created_ms > MIN_EVICTION_MS:
            kinds = 2
        else:
            kinds = 0 if session.is_privileged else 1
        if session.ranked is not None and session.ranked == (session.size, kinds):
            return
        self._unrank(session)
        rank = session.is_privileged, session.size, session.id
        for ranks in (self._for_followers, self._for_consumers)[:kinds]:
            insort(ranks, rank)
        session.ranked = session.size, kinds

    def _unrank(self, session: FetchSession) -> None:
        if session.ranked is not None:
            size, kinds = session.ranked
            rank = session.is_privileged, size, session.id
            for ranks in (self._for_followers, self._for_consumers)[:kinds]:
                del ranks[bisect_left(ranks, rank)]

    def _new_id(self) -> int:
        while True:
            id_ = secrets.randbelow(_LAST_EPOCH) + 1
            if id_ not in self._sessions:
                return id_


def _is_follower(request: FetchRequest) -> bool:
    state = request.replica_state
    return (request.replica_id if state is None else state.replica_id) >= 0
