"""Fetch: records from an offset, sent unchanged from the files.

v0   format v0, up to v1; a batch of a later format is converted (KIP-32, KIP-283)
v2   format v1, up to v3
v3   max_bytes of the whole response (KIP-74); before, each partition has its own limit
v4   format v2; isolation level (KIP-98)
v5   log start offset
v7   sessions (KIP-227), always declined: session id 0, every fetch names all partitions
v9   the client's leader epoch is checked (KIP-320)
v10  zstd (KIP-110)
v11  rack, no other replica to prefer (KIP-392)
v12  flexible
v13  topics by id (KIP-516)
v15  replica state instead of replica id (KIP-903)
v16  leader hints: this broker leads everything (KIP-951)
v17  directory id of a follower
v18  high watermark of a follower

Waits until `min_bytes` are there, up to `max_wait_ms`. The first batch is given whole
however large it is, so that a reader never gets stuck (KIP-74).
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.fetch_reading import FetchReading, WantedPartition
from horolog.broker.scheduling.delayed_fetch import DelayedFetch
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.fetch import FetchedPartition, FetchedTopic, encode_fetch_response
from horolog.wire.requests import FetchPartition, FetchRequest, FetchTopic

# Partitions per time slice: each takes some 20 microseconds.
AT_ONCE = 100
_ZSTD_SINCE = 10

T = TypeVar("T")


class _Topic(NamedTuple):
    name: str
    topic_id: UUID | None
    wanted: Sequence[WantedPartition]


@api(ApiKey.FETCH)
def fetch(
    request: Request[FetchRequest], broker: Broker
) -> Reply | Coroutine[Any, Any, Reply | Apart]:
    """What there is; at once if that is enough and in the page cache."""
    body = request.body
    if body.session_id and body.session_epoch > 0:
        # A session of another broker, or from before a restart: there are no sessions here.
        code = ErrorCode.fetch_session_id_not_found
        return encode_fetch_response(request.version, (), error_code=code)
    if sum(len(asked.partitions) for asked in body.topics) <= AT_ONCE:
        topics = [
            _Topic(*_named(request, broker, asked), _find(request, broker, asked, asked.partitions))
            for asked in body.topics
        ]
        reading = FetchReading(request, broker)
        found = []
        for topic in topics:
            partitions = reading.read_nowait(topic.wanted)
            if partitions is None:
                break
            found.append(FetchedTopic(topic.name, topic.topic_id, partitions))
        else:
            if not reading.must_go_on:
                _count(broker, found)
                return encode_fetch_response(request.version, found)
            return _fetch_in_time(request, broker, _Seen(topics, reading.size))
    return _fetch_in_time(request, broker)


class _Seen(NamedTuple):
    """What is known to be too little: the topics as they were found, and the bytes in them."""

    topics: Sequence[_Topic]
    size: int


async def _fetch_in_time(
    request: Request[FetchRequest], broker: Broker, seen: _Seen | None = None
) -> Reply | Apart:
    """Read, and wait for appends, until `min_bytes` are available or the timeout elapses.

    `seen` was found in this iteration of the event loop: what is appended since has not been
    announced yet, and a delayed fetch that listens now does not miss it.
    """
    body = request.body
    loop = asyncio.get_running_loop()
    until = loop.time() + body.max_wait_ms / 1000
    is_over = False
    while True:
        # Looked up in every round, because a partition may have been deleted meanwhile.
        topics = await _find_all(request, broker) if seen is None else seen.topics
        partitions = [wanted.partition for topic in topics for wanted in topic.wanted]
        # The delayed fetch listens before the read, so that it does not miss an append.
        with (
            broker.delay(DelayedFetch(filter(None, partitions), until)) as delayed,
            request.peer.when_gone(delayed.end),
        ):
            del partitions
            if seen is None:
                reading = FetchReading(request, broker)
                found = await _read_all(request, broker, reading, topics)
                if is_over or not reading.must_go_on:
                    _count(broker, found)
                    if not request.is_long:
                        return encode_fetch_response(request.version, found)
                    return Apart(partial(encode_fetch_response, request.version, found))
                size = reading.size
                del found  # which holds open files
            else:
                size, seen = seen.size, None
            del topics
            is_over = await delayed.grown_by(body.min_bytes - size)
            request.has_waited()


def _count(broker: Broker, found: Sequence[FetchedTopic]) -> None:
    """Count the bytes that are sent."""
    for topic in found:
        if size := sum(len(partition.records) for partition in topic.partitions):
            broker.traffic.bytes_out.add(topic.name, size)


async def _find_all(request: Request[FetchRequest], broker: Broker) -> Sequence[_Topic]:
    topics = []
    for asked in request.body.topics:
        wanted: list[WantedPartition] = []
        for some in _stretches(asked.partitions):
            await request.checkpoint()
            wanted += _find(request, broker, asked, some)
        topics.append(_Topic(*_named(request, broker, asked), wanted))
    return topics


async def _read_all(
    request: Request[FetchRequest], broker: Broker, reading: FetchReading, topics: Sequence[_Topic]
) -> list[FetchedTopic]:
    loop = asyncio.get_running_loop()
    found = []
    for topic in topics:
        partitions: list[FetchedPartition] = []
        for some in _stretches(topic.wanted):
            await request.checkpoint()
            read = reading.read_nowait(some)
            if read is None and reading.may_convert:
                read = await broker.searchers.run(request.peer, partial(reading.read, some))
            elif read is None:
                read = await loop.run_in_executor(broker.readers, reading.read, some)
            partitions += read
        found.append(FetchedTopic(topic.name, topic.topic_id, partitions))
    for name, count in reading.converted.items():
        who = (request.version, request.client_id, request.peer.host)
        broker.conversions.note(ApiKey.FETCH, *who, name, count)
    return found


def _stretches(partitions: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split into groups of one time slice each."""
    for start in range(0, len(partitions), AT_ONCE):
        yield partitions[start : start + AT_ONCE]


def _named(
    request: Request[FetchRequest], broker: Broker, asked: FetchTopic
) -> tuple[str, UUID | None]:
    """Name and id of a topic; an empty name if the id is unknown."""
    if request.version < 13:
        return asked.topic, None
    topic = broker.topics.find_id(asked.topic_id)
    return ("" if topic is None else topic.name), asked.topic_id


def _find(
    request: Request[FetchRequest],
    broker: Broker,
    asked: FetchTopic,
    some: Sequence[FetchPartition],
) -> list[WantedPartition]:
    """Find some of the requested partitions of a topic."""
    name, _ = _named(request, broker, asked)
    found = []
    for wanted in some:
        partition, error = None, cast("HorologError | None", None)
        try:
            if not name and request.version >= 13:
                raise RequestRefused(ErrorCode.unknown_topic_id, "no topic has this id")
            partition = broker.partition(name, wanted.partition)
            if request.version < _ZSTD_SINCE and partition.log.config.compression_type == "zstd":
                raise RequestRefused(
                    ErrorCode.unsupported_compression_type,
                    f"{partition.name} is compressed with zstd, which clients read from Fetch "
                    f"version {_ZSTD_SINCE} on (KIP-110)",
                )
            partition.log.check_epoch(wanted.current_leader_epoch)
        except HorologError as refusal:
            partition, error = None, refusal
        found.append(
            WantedPartition(
                wanted.partition,
                partition,
                wanted.fetch_offset,
                wanted.partition_max_bytes,
                error,
            )
        )
    return found
