"""Answers Fetch requests of replicas, whose partitions this broker leads.

A replica gets the bytes of the log as they are, up to the log end. Its offset says what it has:
each fetch, also one that reads nothing, is noted by the leader (`Leaders`). The order of the
checks is Apache Kafka's:

    epoch      the leader epoch of the request is the current one (74, 75) of this leader (6)
    replica    the replica is assigned to the partition (75)
    range      its last epoch is known here, and its offset is not before the log start (1)
    diverging  its last epoch ends here before its offset: the answer says where; no progress
    read       the offset is not behind the log end (1); a failed read is no progress (KAFKA-8400)
    progress   the broker epoch of the request is not older than the registration's (6)

Only the fetch that arrives is progress; what is read after a wait is not. A fetch waits for records
alone: a high watermark that moves does not end the wait (KAFKA-9952).

A partition of a session costs a comparison while the replica is at the log end and knows all
offsets. Its progress is noted again from time to time (`Leaders.note_every_ms`): at the log end a
replica is in sync however long ago it fetched, but lags from then on once there is more.

For the event loop's thread only; the reads that may wait for the disk run in a reading thread.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from horolog.broker.authorisation import CLUSTER, TOPIC, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Apart, Request
from horolog.broker.fetch_sessions import (
    FetchSessions,
    SessionFetch,
    SessionPartition,
    SessionTopic,
)
from horolog.broker.partition import Partition
from horolog.broker.replica_reads import ReplicaRead, Watched, diverging_answer
from horolog.broker.replica_watch import WATCHED_SINCE, ReplicaWatch
from horolog.broker.scheduling.codec_threads import Checkpoint, no_checkpoint
from horolog.broker.scheduling.delayed import Delayed, Mark
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.network.reply import Reply
from horolog.rights.entries import CLUSTER_NAME
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.view import LogView
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.fetch import (
    FetchedPartition,
    FetchedTopic,
    encode_fetch_response,
)
from horolog.wire.other_versions import NO_CLOCK
from horolog.wire.requests import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from horolog.broker.cluster.leading import Leaders

_QUIET_AT_ONCE: Final = 250  # of a session; each takes two microseconds, or some more if noted
_BY_ID: Final = 13
_NO_SESSION: Final = -1  # its epoch
_NO_EPOCH: Final = -1
HINTS_SINCE: Final = 16
HINTED: Final = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


class _AskedPartition(NamedTuple):
    topics: Sequence[FetchTopic | SessionTopic]
    session: SessionFetch | None = None


async def fetch_as_replica(
    request: Request[FetchRequest], broker: BrokerParts, leaders: "Leaders"
) -> Reply | Apart:
    """Return records from the replica's offsets on, and note its progress."""
    body, version = request.body, request.version
    if broker.quotas.is_set:
        request.peer.take_used_s()  # replicas have no quotas of clients
    if request.peer.listener.name != broker.config.inter_broker_listener_name:
        code = ErrorCode.cluster_authorization_failed
        return encode_fetch_response(version, (), error_code=code)
    session_id = 0
    try:
        asked = _asked(version, body, broker.fetch_sessions)
        session = None if asked.session is None else asked.session.session
        watch = None if session is None else session.watch
        if isinstance(watch, ReplicaWatch):
            watch.hand_over()
        topics: Sequence[FetchedTopic]
        reading = _ReplicaReading(request, broker, leaders)
        if is_ours := reading.may_fetch and body.append_clock_ms != NO_CLOCK:
            who = f"the broker at {request.peer.host}"
            broker.partitions.clocks.hear(body.append_clock_ms, who)
        topics = await reading.find(asked)
        if asked.session is not None:
            topics, session_id = asked.session.news(topics), asked.session.session_id
            if version >= WATCHED_SINCE and broker.fetch_sessions.is_open(session_id):
                watch = ReplicaWatch.of(asked.session.session, broker, leaders)
                await watch.look_around(
                    reading.replica_id, reading.broker_epoch, request.checkpoint
                )
        elif body.session_epoch == 0:
            session_id = broker.fetch_sessions.begin(version, body, topics)
    except RequestRefused as error:
        return encode_fetch_response(version, (), error_code=error.code)
    # Not earlier than any append time in the answer.
    clock_ms = broker.partitions.clocks.tell() if is_ours else None

    def encode(checkpoint: Checkpoint) -> Reply:
        return encode_fetch_response(
            version,
            topics,
            session_id=session_id,
            append_clock_ms=clock_ms,
            checkpoint=checkpoint,
        )

    return Apart(encode) if request.is_long else encode(no_checkpoint)


def _asked(version: int, body: FetchRequest, sessions: FetchSessions) -> _AskedPartition:
    """Return what to read: of the request, or of its session.

    Raises:
        RequestRefused: it is not the next fetch of a session (70, 71, 106).
    """
    if body.session_epoch in (0, _NO_SESSION):
        sessions.end(body.session_id)
        return _AskedPartition(body.topics)
    session = sessions.go_on(version, body)
    return _AskedPartition(body.topics if session is None else session.topics, session)


class _ReplicaReading:
    """Reads of one fetch of a replica."""

    __slots__ = (
        "_broker",
        "_has_been_away",
        "_has_failed",
        "_has_waited",
        "_is_arrival",
        "_leaders",
        "_left",
        "_now_ms",
        "_request",
        "_size",
        "broker_epoch",
        "may_fetch",
        "replica_id",
    )

    def __init__(
        self, request: Request[FetchRequest], broker: BrokerParts, leaders: "Leaders"
    ) -> None:
        body, state = request.body, request.body.replica_state
        self._request = request
        self._broker = broker
        self._leaders = leaders
        self.replica_id = body.replica_id if state is None else state.replica_id
        self.broker_epoch = _NO_EPOCH if state is None else state.replica_epoch
        self.may_fetch = broker.access.allows_operation(
            request.peer, ApiKey.FETCH, AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME
        )
        self._is_arrival = True
        self._left = self._size = self._now_ms = 0
        self._has_failed = self._has_waited = self._has_been_away = False

    @property
    def _was_away(self) -> bool:
        """True if other requests ran during the look."""
        return self._has_been_away or self._request.is_long

    async def find(self, asked: _AskedPartition) -> list[FetchedTopic]:
        """Read, and wait for appends until `min_bytes` are there or the timeout elapses."""
        request, broker = self._request, self._broker
        body = request.body
        until = asyncio.get_running_loop().time() + body.max_wait_ms / 1000
        least = min(body.min_bytes, body.max_bytes, broker.config.fetch_max_bytes)
        is_over = body.max_wait_ms <= 0 or not asked.topics
        while True:
            watched: list[Watched] = []
            topics = await self._look(asked, watched)
            self._is_arrival = False
            if is_over or self._has_failed or self._size >= least:
                broker.traffic.replication_bytes_out += self._size
                return topics
            del topics  # which holds open files
            partitions = [it.partition for it in watched]
            with (
                broker.delay(Delayed(partitions, until, Mark.LOG_END)) as delayed,
                request.peer.when_gone(delayed.end),
            ):
                if self._was_away and any(it.has_grown for it in watched):
                    continue  # before it listened
                is_over = await delayed.grown_by(least - self._size)
                request.has_waited()

    async def _look(self, asked: _AskedPartition, watched: list[Watched]) -> list[FetchedTopic]:
        """Look at all partitions; those that may grow are added to `watched`."""
        request, broker = self._request, self._broker
        self._left = min(request.body.max_bytes, broker.config.fetch_max_bytes)
        self._size, self._has_failed, self._has_been_away = 0, False, False
        self._now_ms = broker.clock.monotonic_ms()
        topics: list[FetchedTopic] = []
        for topic in asked.topics:
            answers: list[FetchedPartition] = []
            partitions: Sequence[FetchPartition | SessionPartition] = topic.partitions
            for count, requested in enumerate(partitions):
                if isinstance(requested, SessionPartition):
                    known = requested.watched
                    if isinstance(known, Watched) and self._is_quiet(requested, known):
                        watched.append(known)
                        if count % _QUIET_AT_ONCE == 0:
                            await request.checkpoint()
                        continue
                await request.checkpoint()
                found = await self._found(topic, requested, watched)
                answers.append(found)
                size = len(found.records)
                self._size += size
                self._left = max(0, self._left - size)
                self._has_failed |= bool(found.error_code) or found.diverging is not None
            if answers:
                topics.append(FetchedTopic(topic.topic, topic.topic_id, answers))
        return topics

    def _is_quiet(self, requested: SessionPartition, known: Watched) -> bool:
        """Return True if there is no news of a partition; its progress is noted where that is due.

        An append since the last note counts from that one on, as late as it may be.
        """
        is_told = (
            requested.high_watermark == known.high_watermark
            and requested.log_start_offset == known.log_start_offset
        )  # a look before a wait finds offsets that are told by the look after it
        if not (self.may_fetch and is_told and known.is_same):
            return False
        if self._is_arrival and self._now_ms >= known.until_ms:
            try:
                self._note(known.partition, known.end_offset, requested)
            except HorologError:
                return False  # which the whole look finds again
            until_ms = self._now_ms + self._leaders.note_every_ms
            requested.watched = known._replace(until_ms=until_ms)
        return True

    async def _found(
        self,
        topic: FetchTopic | SessionTopic,
        requested: FetchPartition | SessionPartition,
        watched: list[Watched],
    ) -> FetchedPartition:
        """Check, read and note one partition."""
        index, name = requested.partition, topic.topic
        try:
            name = self._named(topic)
            partition = self._led(name, requested)
            view, epoch = partition.log.look(to_end=True), partition.log.leader_epoch
            diverging = diverging_answer(partition, view, requested)
            if diverging is not None:
                return diverging
            found = await self._read(partition, view, requested)
            self._check_led(name, partition, requested, epoch)
            if self._is_arrival:
                self._note(partition, view.end_offset, requested)
        except HorologError as error:
            return self._refused(index, name, error)
        it = Watched(
            partition, epoch, view.end_offset, found.high_watermark, found.log_start_offset, 0
        )
        watched.append(it)
        if isinstance(requested, SessionPartition):
            has_all = requested.fetch_offset == view.end_offset
            until_ms = self._now_ms + self._leaders.note_every_ms
            requested.watched = it._replace(until_ms=until_ms) if has_all else None
            requested.served = partition
        return found

    def _named(self, topic: FetchTopic | SessionTopic) -> str:
        """Return the name of a topic.

        Raises:
            RequestRefused: no topic has this id (100), or the client may not fetch as a replica.
        """
        name = topic.topic
        if self._request.version >= _BY_ID:
            known = self._broker.topics.find_id(topic.topic_id)
            if known is None:
                raise RequestRefused(ErrorCode.unknown_topic_id, "no topic has this id")
            name = known.name
        if not self.may_fetch:
            raise refusal(TOPIC)
        return name

    def _led(self, name: str, requested: FetchPartition | SessionPartition) -> Partition:
        """Return a partition that is led here, and that the replica is assigned to."""
        partition = self._broker.led(name, requested.partition, requested.current_leader_epoch)
        self._leaders.check_replica(partition, self.replica_id)
        return partition

    def _check_led(
        self,
        name: str,
        partition: Partition,
        requested: FetchPartition | SessionPartition,
        epoch: int,
    ) -> None:
        """Check that what was read is of the leader that was asked.

        Raises:
            RequestRefused: it was not, or the replica is not assigned any more.
        """
        if self._has_waited and self._led(name, requested) is partition:
            self._has_waited = False
        log = partition.log
        if self._has_waited or log.is_following or log.leader_epoch != epoch:
            raise RequestRefused(
                ErrorCode.not_leader_or_follower, f"{partition.name} was led anew meanwhile"
            )

    async def _read(
        self, partition: Partition, view: LogView, requested: FetchPartition | SessionPartition
    ) -> FetchedPartition:
        """Read on the event loop if the page cache has the records, otherwise in a thread."""
        read = ReplicaRead(
            self._broker,
            partition,
            view,
            requested,
            max(0, min(requested.partition_max_bytes, self._left)),
            is_first=not self._size,
            level=self._request.body.isolation_level,
        )
        self._has_waited = False
        try:
            return read.nowait()
        except WouldBlock:
            self._has_waited = self._has_been_away = True
            return await read.wait()

    def _note(
        self, partition: Partition, leader_end: int, requested: FetchPartition | SessionPartition
    ) -> None:
        start = (
            requested.replica_start_offset
            if isinstance(requested, SessionPartition)
            else requested.log_start_offset
        )
        self._leaders.fetched(
            partition,
            self.replica_id,
            self.broker_epoch,
            requested.fetch_offset,
            start,
            leader_end,
        )

    def _refused(self, index: int, name: str, error: HorologError) -> FetchedPartition:
        """Return an error; with the leader, where another one leads."""
        code = code_for(error)
        if code in HINTED and self._request.version >= HINTS_SINCE:
            hint = self._broker.placement.leader_hint(name, index, self._request.peer.listener)
            return FetchedPartition(index, code, current_leader=hint and hint.current)
        return FetchedPartition(index, code)
