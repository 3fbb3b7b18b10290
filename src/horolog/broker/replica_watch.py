"""Repeated fetches of a replica within its session, answered without a look at all partitions.

Between two fetches the partitions of a session tell what has changed: they have grown, their high
watermark or start has moved, or they are led anew. A fetch looks at these alone, and at the one
that it changes. While it waits it is no task: the partition that grows completes it.

Whatever is not usual is left to `fetch_as_replica`, before there is an effect: many partitions at
once, an error, a log that diverges, records that have to be read from the disk. It looks at all
partitions now and then, too, and notes the progress of those that rest (`Leaders.note_every_ms`).

For the event loop's thread only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from horolog.broker.authorisation import CLUSTER
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import shortcut
from horolog.broker.fetch_sessions import FetchSession, SessionPartition
from horolog.broker.partition import Partition
from horolog.broker.replica_reads import ReplicaRead, Watched, diverging_answer
from horolog.errors import ErrorCode, HorologError
from horolog.network.peer import Peer
from horolog.network.reply import Reply, SlicedRecords
from horolog.rights.entries import CLUSTER_NAME
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.view import LogView
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.fetch import FetchedPartition, FetchedTopic, encode_fetch_response
from horolog.wire.frame import response_prefix
from horolog.wire.other_versions import NO_CLOCK
from horolog.wire.replica_fetch import LaterFetch, read_later_fetch

if TYPE_CHECKING:
    from horolog.broker.cluster.leading import Leaders

__all__ = ["WATCHED_SINCE", "ReplicaWatch", "fetch_again"]

WATCHED_SINCE: Final = 17
"""Version of Fetch from which on sessions of replicas are watched."""

_MOST_CHANGED: Final = 64
"""Changed partitions that are looked at without a pause."""

_MOST_BYTES: Final = 1 << 20
"""Records of one answer, beyond its first batch: the next one has the others."""

_WATCHED_AT_ONCE: Final = 500

_Found: TypeAlias = dict[SessionPartition, FetchedPartition]
"""What is read, by partition."""

_JOINED_BYTES: Final = 16 * 1024  # more records are not copied once more


@shortcut(ApiKey.FETCH, in_cluster=True)
def fetch_again(
    broker: BrokerParts, peer: Peer, frame: bytes
) -> "Reply | asyncio.Future[Reply] | None":
    """Answer a later fetch of a replica's session, which changes one partition at most.

    Returns:
        None, without any effect, for a request of another form or an unusual answer.
    """
    fetch = read_later_fetch(frame)
    if fetch is None:
        return None
    session = broker.fetch_sessions.expecting(fetch.session_id, fetch.session_epoch)
    watch = None if session is None else session.watch
    if not isinstance(watch, ReplicaWatch):
        return None
    return watch.fetch(fetch, peer)


class _Unusual(HorologError):
    """The partition has to be looked at by `fetch_as_replica`."""


class _Watcher:
    """Is told of changes of one partition. It is told of one if no fetch waits."""

    __slots__ = ("_watch", "known", "partition")

    def __init__(
        self, watch: "ReplicaWatch", known: SessionPartition, partition: Partition
    ) -> None:
        self._watch = watch
        self.known = known
        self.partition = partition

    def on_changed(self, size: int) -> None:
        """Note that the partition has grown by `size` bytes, or that a mark has moved."""
        watch = self._watch
        watch.changed[self.known] = None
        if not watch.is_waiting:
            self.partition.watchers.pop(self, None)
        elif size:
            watch.on_grown(size)

    def on_gone(self) -> None:
        """Note that the partition is closed, or led anew."""
        self._watch.changed[self.known] = None
        self._watch.end()


class ReplicaWatch:
    """Watch over the partitions of one session."""

    def __init__(self, session: FetchSession, broker: BrokerParts, leaders: "Leaders") -> None:
        self.changed: dict[SessionPartition, None] = {}
        """Partitions that have to be looked at."""
        self._session = session
        self._broker = broker
        self._leaders = leaders
        self._watchers: dict[SessionPartition, _Watcher] = {}
        self._registration = (-1, -1)  # replica id and broker epoch of the fetches
        self._all_by_ms = 0  # time of the next look at all partitions
        self._loop = asyncio.get_running_loop()
        self._fetch: LaterFetch | None = None  # that waits
        self._answer: asyncio.Future[Reply] | None = None
        self._missing = 0  # bytes until it is answered
        self._until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._peer: Peer | None = None
        self._is_closed = False

    @classmethod
    def of(cls, session: FetchSession, broker: BrokerParts, leaders: "Leaders") -> "ReplicaWatch":
        """Return the watch of a session, which begins with it."""
        watch = session.watch
        if not isinstance(watch, ReplicaWatch):
            session.watch = watch = cls(session, broker, leaders)
        return watch

    @property
    def is_waiting(self) -> bool:
        """True while a fetch waits for records."""
        return self._answer is not None

    def close(self) -> None:
        """Watch nothing more; a fetch that waits is told that the session is over."""
        self.hand_over(ErrorCode.fetch_session_id_not_found)
        for known in list(self._watchers):
            self._forget(known)
        self._is_closed, self._all_by_ms = True, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._peer is not None:
            self._peer.forget_call(self._leave)
            self._peer = None

    def hand_over(self, error: ErrorCode = ErrorCode.invalid_fetch_session_epoch) -> None:
        """Leave the session to another fetch; one that waits here is refused."""
        if self._answer is not None:
            self._complete(self._encoded((), error))

    async def look_around(
        self, replica_id: int, broker_epoch: int, pause: Callable[[], Awaitable[None]]
    ) -> None:
        """Watch all partitions of the session, after a look at all of them.

        Args:
            pause: called now and then, for other requests.
        """
        self._all_by_ms, partitions = 0, self._session.partitions
        for count, known in enumerate(list(partitions.values()), 1):
            self._look_around(known)
            if count % _WATCHED_AT_ONCE == 0:
                await pause()
                if self._is_closed:
                    return
        if len(self._watchers) > len(partitions):
            for gone in self._watchers.keys() - set(partitions.values()):
                self._forget(gone)
        self._registration = (replica_id, broker_epoch)
        self._all_by_ms = self._broker.clock.monotonic_ms() + self._leaders.note_every_ms

    def _look_around(self, known: SessionPartition) -> None:
        watcher, partition = self._watchers.get(known), known.served
        if watcher is None or watcher.partition is not partition:
            self._forget(known)
            if isinstance(partition, Partition):
                self._watchers[known] = watcher = _Watcher(self, known, partition)
        if watcher is not None:
            watcher.partition.watchers[watcher] = None
        watched = known.watched
        if isinstance(watched, Watched) and watched.is_same and _is_told(known, watched):
            self.changed.pop(known, None)
        else:
            self.changed[known] = None

    def _forget(self, known: SessionPartition) -> None:
        self.changed.pop(known, None)
        watcher = self._watchers.pop(known, None)
        if watcher is not None:
            watcher.partition.watchers.pop(watcher, None)

    # --- fetches ------------------------------------------------------------------------

    def fetch(self, fetch: LaterFetch, peer: Peer) -> "Reply | asyncio.Future[Reply] | None":
        """Answer the next fetch, or begin to wait for records; None if it is not usual."""
        broker, session = self._broker, self._session
        if (
            broker.clock.monotonic_ms() >= self._all_by_ms
            or (fetch.replica_id, fetch.replica_epoch) != self._registration
            or peer.listener.name != broker.config.inter_broker_listener_name
            or broker.quotas.is_set
            or not broker.access.allows_operation(
                peer, ApiKey.FETCH, AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME
            )
        ):
            return None
        if fetch.topic_id is not None:
            known = session.partitions.get((fetch.topic_id, fetch.partition))
            if known is None:
                return None
            known.ask(fetch)
            self.changed[known] = None
        if len(self.changed) > _MOST_CHANGED:
            return None
        try:
            found, size = self._look(fetch, is_arrival=True)
        except (HorologError, WouldBlock):
            return None
        self.hand_over()
        broker.fetch_sessions.take_turn(session)
        if fetch.append_clock_ms != NO_CLOCK:
            broker.partitions.clocks.hear(fetch.append_clock_ms, f"the broker at {peer.host}")
        self._fetch = fetch
        missing = min(fetch.min_bytes, fetch.max_bytes, broker.config.fetch_max_bytes) - size
        if missing <= 0 or fetch.max_wait_ms <= 0:
            return self._told(found)
        self._missing = missing
        self._answer = answer = self._loop.create_future()
        if self._peer is not peer:
            if self._peer is not None:
                self._peer.forget_call(self._leave)
            self._peer = peer
            peer.call_when_gone(self._leave)
        self._until_s = self._loop.time() + fetch.max_wait_ms / 1000
        if self._timer is None or self._timer_s > self._until_s:
            self._set_timer()
        broker.begin_wait(self)
        return answer

    def on_grown(self, size: int) -> None:
        """Count bytes of records; there are enough once they are those that are missing."""
        before, self._missing = self._missing, self._missing - size
        if before > 0 >= self._missing:  # all appends of this turn of the event loop go together
            self._loop.call_soon(self._on_enough)

    def end(self) -> None:
        """Answer the fetch that waits now, if there is one."""
        if self._answer is not None and self._fetch is not None:
            found, _ = self._look(self._fetch, is_arrival=False)
            self._complete(self._told(found))

    def _on_enough(self) -> None:
        if self._missing <= 0:  # else a later fetch waits by now
            self.end()

    def _leave(self) -> None:
        """Forget the fetch that waits: its client has gone."""
        self._peer = None
        if self._answer is not None:
            self._complete(None)

    def _complete(self, reply: Reply | None) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        self._broker.end_wait(self)
        if reply is None:
            answer.cancel()
        elif not answer.done():
            answer.set_result(reply)

    # One timer for many fetches, nearly all of which are answered before.

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = self._until_s
        self._timer = self._loop.call_at(self._until_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._answer is None:
            return
        if self._loop.time() < self._until_s - 0.001:
            self._set_timer()
        else:
            self.end()

    # --- partitions ---------------------------------------------------------------------

    def _look(self, fetch: LaterFetch, *, is_arrival: bool) -> tuple[_Found, int]:
        """Look at the changed partitions; return what is read of them, and its size.

        Only the fetch that arrives is progress of the replica. Of a partition that is not usual
        nothing is read after a wait: the next fetch finds it.

        Raises:
            HorologError, WouldBlock: at the arrival, for a partition that is not usual.
        """
        left, size = min(fetch.max_bytes, self._broker.config.fetch_max_bytes, _MOST_BYTES), 0
        found: _Found = {}
        for known in list(self.changed):
            most = max(0, min(known.partition_max_bytes, left - size))
            try:
                one = self._look_at(known, fetch, most, is_first=not size, is_arrival=is_arrival)
            except (HorologError, WouldBlock):
                if is_arrival:
                    raise
                known.watched = None
                continue
            if one is not None:
                found[known] = one
                size += len(one.records)
        return found, size

    def _look_at(
        self,
        known: SessionPartition,
        fetch: LaterFetch,
        max_bytes: int,
        *,
        is_first: bool,
        is_arrival: bool,
    ) -> FetchedPartition | None:
        """Check, read and note one partition; None if the replica knows all of it."""
        watcher = self._watchers.get(known)
        if watcher is None:
            raise _Unusual("it is not known where it is")
        partition, leaders = watcher.partition, self._leaders
        led = self._broker.led(partition.topic, known.partition, known.current_leader_epoch)
        log = partition.log
        if led is not partition or log.topic_id != known.topic_id:
            raise _Unusual("it is another one by now")
        end, epoch = log.log_end_offset, known.last_fetched_epoch
        has_all = known.fetch_offset == end and epoch in (-1, log.leader_epoch, log.epochs.latest)
        found = None
        if not has_all:
            view = log.look(to_end=True)
            end = view.end_offset
            if diverging_answer(partition, view, known) is not None:
                raise _Unusual("it diverges")
            found = self._read(partition, view, known, fetch, max_bytes, is_first=is_first)
        if is_arrival:
            leaders.fetched(
                partition,
                fetch.replica_id,
                fetch.replica_epoch,
                known.fetch_offset,
                known.replica_start_offset,
                end,
            )
        else:
            leaders.check_replica(partition, fetch.replica_id)
        partition.watchers[watcher] = None
        if found is not None:
            known.watched = None
            return found
        until_ms = self._broker.clock.monotonic_ms() + leaders.note_every_ms
        known.watched = watched = Watched(
            partition, log.leader_epoch, end, known.high_watermark, known.log_start_offset, until_ms
        )
        if watched.is_same:
            del self.changed[known]
        return None

    def _read(
        self,
        partition: Partition,
        view: LogView,
        known: SessionPartition,
        fetch: LaterFetch,
        max_bytes: int,
        *,
        is_first: bool,
    ) -> FetchedPartition:
        return ReplicaRead(
            self._broker,
            partition,
            view,
            known,
            max_bytes,
            is_first=is_first,
            level=fetch.isolation_level,
        ).nowait()

    # --- answers ------------------------------------------------------------------------

    def _told(self, found: _Found) -> Reply:
        """Return the answer with the news for the replica, which it knows from then on."""
        partitions = self._session.partitions
        topics: dict[UUID | None, list[FetchedPartition]] = {}
        for known in list(self.changed):
            one = found.get(known) or self._offsets_of(known)
            if one is None or not known.note(one):
                continue
            topic_id, size = known.topic_id, len(one.records)
            topics.setdefault(topic_id, []).append(one)
            self._broker.traffic.replication_bytes_out += size
            if size and len(partitions) > 1:
                # Behind all others from now on.
                self.changed[known] = self.changed.pop(known)
                key = topic_id, known.partition
                partitions[key] = partitions.pop(key)
        news = [FetchedTopic("", topic_id, its) for topic_id, its in topics.items()]
        return self._encoded(news, ErrorCode.none)

    def _offsets_of(self, known: SessionPartition) -> FetchedPartition | None:
        """Return an answer without records for a replica that has all; None for others."""
        watched, fetch = known.watched, self._fetch
        if not isinstance(watched, Watched) or watched.has_grown or fetch is None:
            return None
        partition = watched.partition
        view = partition.log.look(to_end=True)
        return self._read(partition, view, known, fetch, 0, is_first=False)

    def _encoded(self, topics: Sequence[FetchedTopic], error: ErrorCode) -> Reply:
        fetch = self._fetch
        assert fetch is not None
        has_clock = fetch.append_clock_ms != NO_CLOCK and not error
        parts = encode_fetch_response(
            fetch.version,
            topics,
            error_code=error,
            session_id=0 if error else self._session.id,
            # Not earlier than any append time in the answer.
            append_clock_ms=self._broker.partitions.clocks.tell() if has_clock else None,
        )
        size = sum(map(len, parts))
        prefix = response_prefix(ApiKey.FETCH, fetch.version, fetch.correlation_id, size)
        if size <= _JOINED_BYTES and not any(isinstance(part, SlicedRecords) for part in parts):
            return (b"".join((prefix, *parts)),)
        return (prefix, *parts)


def _is_told(known: SessionPartition, watched: Watched) -> bool:
    """Return True if the replica knows the offsets that a look has found."""
    return (
        known.high_watermark == watched.high_watermark
        and known.log_start_offset == watched.log_start_offset
    )
