"""Fetch: records from an offset, sent unchanged from the files.

v0   format v0, up to v1; a batch of a later format is converted (KIP-32, KIP-283)
v2   format v1, up to v3
v3   max_bytes of the whole response (KIP-74); before, each partition has its own limit
v4   format v2; isolation level (KIP-98)
v5   log start offset
v7   sessions (KIP-227): `broker/fetch_sessions.py`
v9   the client's leader epoch is checked (KIP-320)
v10  zstd (KIP-110)
v11  rack, no other replica to prefer (KIP-392)
v12  flexible
v13  topics by id (KIP-516)
v15  replica state instead of replica id (KIP-903)
v16  leader hints, for partitions that another broker of a cluster leads (KIP-951)
v17  directory id of a follower
v18  high watermark of a follower

Waits until `min_bytes` are there, up to `max_wait_ms`. The first batch is given whole
however large it is, so that a reader never gets stuck (KIP-74).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from horolog.broker.authorisation import CLUSTER, TOPIC, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.fetch_reading import (
    FetchReading,
    RequestedPartition,
    is_committed,
    is_follower,
)
from horolog.broker.fetch_sessions import SessionFetch, SessionPartition, SessionTopic
from horolog.broker.partition import Partition
from horolog.broker.replica_fetches import HINTED, HINTS_SINCE, fetch_as_replica
from horolog.broker.scheduling.codec_threads import Checkpoint, no_checkpoint
from horolog.broker.scheduling.delayed import Delayed, Mark
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.rights.entries import CLUSTER_NAME
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.fetch import FetchedPartition, FetchedTopic, encode_fetch_response
from horolog.wire.leaders import NodeEndpoint
from horolog.wire.requests import FetchPartition, FetchRequest, FetchTopic

# Partitions per time slice: each takes some 20 microseconds.
AT_ONCE = 100
# Of a session, of which most have no news, which takes a microsecond.
_OF_SESSION_AT_ONCE = 1_000
_ZSTD_SINCE = 10
_NO_SESSION = -1  # its epoch

T = TypeVar("T")


class _FoundTopic(NamedTuple):
    name: str
    topic_id: UUID | None
    requested: Sequence[RequestedPartition]


class _Quiet(NamedTuple):
    """Partition of a fetch session that had no news when it was checked."""

    known: SessionPartition
    partition: Partition


class _AskedFetch(NamedTuple):
    """Partitions to read, from the request or from its fetch session."""

    topics: Sequence[FetchTopic | SessionTopic]
    session: SessionFetch | None = None
    slice_size: int = AT_ONCE


@api(ApiKey.FETCH)
def fetch(
    request: Request[FetchRequest], broker: BrokerParts
) -> Reply | Coroutine[Any, Any, Reply | Apart]:
    """Return the available records; without waiting if they suffice and are in the page cache."""
    body = request.body
    if broker.replicas is not None and is_follower(body):
        return fetch_as_replica(request, broker, broker.replicas)
    asked = _AskedFetch(body.topics)
    if body.session_id or body.session_epoch != _NO_SESSION:
        try:
            asked = _of_session(request, broker)
        except RequestRefused as refusal:
            return encode_fetch_response(request.version, (), error_code=refusal.code)
    if sum(len(topic.partitions) for topic in asked.topics) <= asked.slice_size:
        quiet: list[_Quiet] = []
        topics = [
            _FoundTopic(*named, _find(request, broker, named[0], topic.partitions, quiet))
            for topic in asked.topics
            for named in [_named(request, broker, topic)]
        ]
        if asked.session is not None:
            topics = [topic for topic in topics if topic.requested]
            if sum(len(topic.requested) for topic in topics) > AT_ONCE:
                return _fetch_in_time(request, broker, asked)
        reading = FetchReading(request, broker, asks_any=bool(asked.topics))
        found = []
        for topic in topics:
            partitions = reading.read_nowait(topic.requested)
            if partitions is None:
                break
            found.append(FetchedTopic(topic.name, topic.topic_id, partitions))
        else:
            if not reading.must_go_on:
                return _answer(request, broker, asked, found)(no_checkpoint)
            return _fetch_in_time(request, broker, asked, _TooLittle(topics, quiet, reading.size))
    return _fetch_in_time(request, broker, asked)


def _of_session(request: Request[FetchRequest], broker: BrokerParts) -> _AskedFetch:
    """Return the partitions to read for a fetch with a session id or epoch.

    Raises:
        RequestRefused: it is not the next one of a session.
    """
    body, sessions = request.body, broker.fetch_sessions
    if body.session_epoch in (0, _NO_SESSION):
        sessions.end(body.session_id)
        return _AskedFetch(body.topics)
    session = sessions.go_on(request.version, body)
    if session is None:
        return _AskedFetch(body.topics)
    return _AskedFetch(session.topics, session, _OF_SESSION_AT_ONCE)


def _answer(
    request: Request[FetchRequest],
    broker: BrokerParts,
    asked: _AskedFetch,
    found: Sequence[FetchedTopic],
) -> Callable[[Checkpoint], Reply]:
    """Count the sent bytes, update the session, and return a function that packs the response.

    What is returned packs the response, and may be called in a thread.
    """
    body, version, session_id = request.body, request.version, 0
    if broker.quotas.is_set and (wait_ms := _wait_ms(request, broker, found)):
        request.peer.mute(wait_ms / 1000)
        return _empty(version, asked, wait_ms)
    if asked.session is not None:
        try:
            found, session_id = asked.session.news(found), asked.session.session_id
        except RequestRefused as refusal:
            error_code = refusal.code
            return lambda _: encode_fetch_response(version, (), error_code=error_code)
    elif body.session_epoch == 0:
        session_id = broker.fetch_sessions.begin(version, body, found)
    nodes: Sequence[NodeEndpoint] = ()
    if broker.replicas is not None and version >= HINTS_SINCE:
        found, nodes = _with_leaders(broker, request.peer, found)
    for topic in found:
        if size := sum(len(partition.records) for partition in topic.partitions):
            broker.traffic.bytes_out.add(topic.name, size)
    return lambda checkpoint: encode_fetch_response(
        version, found, session_id=session_id, node_endpoints=nodes, checkpoint=checkpoint
    )


def _with_leaders(
    broker: BrokerParts, peer: Peer, found: Sequence[FetchedTopic]
) -> tuple[Sequence[FetchedTopic], Sequence[NodeEndpoint]]:
    """Add the leaders of partitions that are led elsewhere, and their endpoints (KIP-951)."""
    nodes: dict[int, NodeEndpoint] = {}
    topics = []
    for topic in found:
        if any(partition.error_code in HINTED for partition in topic.partitions):
            partitions = []
            for partition in topic.partitions:
                hint = None
                if partition.error_code in HINTED:
                    index = partition.partition_index
                    hint = broker.placement.leader_hint(topic.name, index, peer.listener)
                if hint is not None:
                    nodes[hint.current.leader_id] = hint.node
                    partition = partition._replace(current_leader=hint.current)
                partitions.append(partition)
            topic = topic._replace(partitions=partitions)
        topics.append(topic)
    return topics, tuple(nodes.values())


def _wait_ms(
    request: Request[FetchRequest], broker: BrokerParts, found: Sequence[FetchedTopic]
) -> int:
    """Return for how many milliseconds a consumer has to wait instead of an answer."""
    if is_follower(request.body):
        request.peer.take_used_s()
        return 0
    return broker.quotas.fetched(
        request.peer,
        request.client_id,
        lambda: sum(map(len, encode_fetch_response(request.version, found))),
    )


def _empty(version: int, asked: _AskedFetch, wait_ms: int) -> Callable[[Checkpoint], Reply]:
    """Return a function that packs the response of a client over its quota.

    The session keeps what the client knows, so that the next fetch of it reads the same.
    """
    error_code = session_id = 0
    if asked.session is not None:
        session_id = asked.session.session_id
        try:
            asked.session.news(())
        except RequestRefused as refusal:
            error_code, session_id = refusal.code, 0
    return lambda _: encode_fetch_response(
        version, (), throttle_time_ms=wait_ms, error_code=error_code, session_id=session_id
    )


class _TooLittle(NamedTuple):
    """Result of a read that found less than `min_bytes`: the topics and the bytes found.

    The quiet partitions of a session have no news.
    """

    topics: Sequence[_FoundTopic]
    quiet: Sequence[_Quiet]
    size: int


async def _fetch_in_time(
    request: Request[FetchRequest],
    broker: BrokerParts,
    asked: _AskedFetch,
    seen: _TooLittle | None = None,
) -> Reply | Apart:
    """Read, and wait for appends, until `min_bytes` are available or the timeout elapses.

    `seen` was found in this iteration of the event loop: what is appended since has not been
    announced yet, and a delayed fetch that listens now does not miss it.
    """
    body = request.body
    loop = asyncio.get_running_loop()
    until = loop.time() + body.max_wait_ms / 1000
    least = body.min_bytes
    if broker.quotas.is_set:
        least = broker.quotas.most_fetched(request.peer, request.client_id, least)
    mark = Mark.LAST_STABLE if is_committed(body) else Mark.HIGH_WATERMARK
    is_over = False
    while True:
        # Looked up in every round, because a partition may have been deleted meanwhile.
        quiet: Sequence[_Quiet]
        topics, quiet = await _find_all(request, broker, asked) if seen is None else seen[:2]
        partitions = [requested.partition for topic in topics for requested in topic.requested]
        partitions += [without_news.partition for without_news in quiet]
        # The delayed fetch listens before the read, so that it does not miss an append.
        with (
            broker.delay(Delayed(filter(None, partitions), until, mark)) as delayed,
            request.peer.when_gone(delayed.end),
        ):
            del partitions
            if seen is None:
                reading = FetchReading(request, broker, asks_any=bool(asked.topics))
                found = await _read_all(request, broker, reading, topics)
                if is_over or not reading.must_go_on:
                    answer = _answer(request, broker, asked, found)
                    return Apart(answer) if request.is_long else answer(no_checkpoint)
                size = reading.size
                del found  # which holds open files
                if any(not known.has_no_news(partition.log) for known, partition in quiet):
                    continue  # it grew before the delayed fetch listened
            else:
                size, seen = seen.size, None
            del topics, quiet
            is_over = await delayed.grown_by(least - size)
            request.has_waited()


async def _find_all(
    request: Request[FetchRequest], broker: BrokerParts, asked: _AskedFetch
) -> tuple[Sequence[_FoundTopic], Sequence[_Quiet]]:
    """Return the partitions to read, and the partitions of a session without news."""
    topics = []
    quiet: list[_Quiet] = []
    for topic in asked.topics:
        name, topic_id = _named(request, broker, topic)
        requested: list[RequestedPartition] = []
        partitions: Sequence[FetchPartition | SessionPartition] = topic.partitions
        for some in _stretches(partitions):
            await request.checkpoint()
            # The topic may have been deleted meanwhile, and another one may have its name.
            name, topic_id = _named(request, broker, topic)
            requested += _find(request, broker, name, some, quiet)
        if requested or asked.session is None:
            topics.append(_FoundTopic(name, topic_id, requested))
    return topics, quiet


async def _read_all(
    request: Request[FetchRequest],
    broker: BrokerParts,
    reading: FetchReading,
    topics: Sequence[_FoundTopic],
) -> list[FetchedTopic]:
    loop = asyncio.get_running_loop()
    found = []
    for topic in topics:
        partitions: list[FetchedPartition] = []
        for some in _stretches(topic.requested):
            await request.checkpoint()
            read = reading.read_nowait(some)
            if read is None and reading.may_convert:
                read = await broker.searchers.run(request.peer, partial(reading.read, some))
            elif read is None:
                read = await loop.run_in_executor(
                    broker.readers, _read_by, request.peer, reading, some
                )
            partitions += read
        found.append(FetchedTopic(topic.name, topic.topic_id, partitions))
    for name, count in reading.converted.items():
        who = (request.version, request.client_id, request.peer.host)
        broker.conversions.note(ApiKey.FETCH, *who, name, count)
    return found


def _read_by(
    peer: Peer, reading: FetchReading, some: Sequence[RequestedPartition]
) -> list[FetchedPartition]:
    """Read partitions in a thread, and count its time where that is asked for."""
    began, times = perf_counter(), peer.thread_times
    read = reading.read(some)
    if times is not None:
        times.append(perf_counter() - began)
    return read


def _stretches(partitions: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split partitions into groups for one time slice each."""
    for start in range(0, len(partitions), AT_ONCE):
        yield partitions[start : start + AT_ONCE]


def _named(
    request: Request[FetchRequest], broker: BrokerParts, asked: FetchTopic | SessionTopic
) -> tuple[str, UUID | None]:
    """Return name and id of a topic; the name is empty if the id is unknown."""
    if request.version < 13:
        return asked.topic, None
    topic = broker.topics.find_id(asked.topic_id)
    return ("" if topic is None else topic.name), asked.topic_id


def _may_read(request: Request[FetchRequest], broker: BrokerParts, name: str) -> bool:
    """Return True if the client may read a topic; a replica needs a right to the cluster."""
    if not name and request.version >= 13:
        return True  # there is nothing to read
    access, peer, body = broker.access, request.peer, request.body
    if is_follower(body):
        operation = AclOperation.CLUSTER_ACTION
        return access.allows_operation(peer, ApiKey.FETCH, operation, CLUSTER, CLUSTER_NAME)
    return access.allows(peer, ApiKey.FETCH, TOPIC, name)


def _find(
    request: Request[FetchRequest],
    broker: BrokerParts,
    name: str,
    some: Sequence[FetchPartition | SessionPartition],
    quiet: list[_Quiet],
) -> list[RequestedPartition]:
    """Look up requested partitions of a topic. Partitions without news are added to `quiet`."""
    found = []
    is_allowed = broker.access.rights is None or _may_read(request, broker, name)
    for requested in some:
        partition, error = None, cast("HorologError | None", None)
        try:
            if not name and request.version >= 13:
                raise RequestRefused(ErrorCode.unknown_topic_id, "no topic has this id")
            if not is_allowed:
                raise refusal(TOPIC)
            partition = broker.led(name, requested.partition)
            if request.version < _ZSTD_SINCE and partition.log.config.compression_type == "zstd":
                raise RequestRefused(
                    ErrorCode.unsupported_compression_type,
                    f"{partition.name} is compressed with zstd, which clients read from Fetch "
                    f"version {_ZSTD_SINCE} on (KIP-110)",
                )
            if isinstance(requested, SessionPartition) and requested.has_no_news(partition.log):
                quiet.append(_Quiet(requested, partition))
                continue
            partition.log.check_epoch(requested.current_leader_epoch)
        except HorologError as why:
            partition, error = None, why
        found.append(
            RequestedPartition(
                requested.partition,
                partition,
                requested.fetch_offset,
                requested.partition_max_bytes,
                error,
            )
        )
    return found
