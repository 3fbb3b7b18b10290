"""Fetch: records from an offset on, as they lie in the files.

v4   format v2; isolation level (KIP-98)
v5   log start offset
v7   sessions (KIP-227), always declined: session id 0, every fetch names all it wants
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

An answer holds the files of its larger slices open until it is sent. Where too many are
held, it is shorter, as where `max_bytes` are used up, and its first records are copied.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, cast

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.partition import Partition
from horolog.broker.waiting import Wait
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.network.file_records import SlicedRecords
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.fetch import READ_COMMITTED, FetchedPartition, FetchedTopic, encode_fetch_response
from horolog.wire.packing import Bytes

# Few bytes go out together with the answer around them.
SMALL_BYTES = 16 * 1024
# More than the event loop looks into at once: each takes some 20 microseconds.
FEW_PARTITIONS = 1000


class _Wanted(NamedTuple):
    """One partition of a request, found; or why it cannot be read."""

    partition_index: int
    partition: Partition | None
    offset: int
    max_bytes: int
    error: HorologError | None


class _Topic(NamedTuple):
    name: str
    topic_id: Any
    wanted: Sequence[_Wanted]


@api(ApiKey.FETCH)
def fetch(request: Request, broker: Broker) -> Reply | Coroutine[Any, Any, Reply]:
    """What there is; at once if that is enough and lies in memory."""
    body = request.body
    if getattr(body, "session_id", 0) and getattr(body, "session_epoch", -1) > 0:
        # A session of another broker, or of this one before it restarted: none is kept here.
        code = ErrorCode.fetch_session_id_not_found
        return encode_fetch_response(request.version, (), error_code=code)
    topics = [_find(request, broker, asked) for asked in body.topics]
    if _is_quick(request, topics):
        found = _read(request, broker, topics)
        if not _must_wait(request, found):
            return encode_fetch_response(request.version, found)
    return _fetch_in_time(request, broker)


async def _fetch_in_time(request: Request, broker: Broker) -> Reply:
    """Read, and wait for what is missing, until there is enough or time is up."""
    body = request.body
    loop = asyncio.get_running_loop()
    until = loop.time() + body.max_wait_ms / 1000
    is_over = False
    while True:
        # Looked for anew each time: a partition may be gone by now.
        topics = [_find(request, broker, asked) for asked in body.topics]
        partitions = [wanted.partition for topic in topics for wanted in topic.wanted]
        # Listening begins before reading: what comes meanwhile, nobody would be told of.
        with (
            broker.waiting(Wait(filter(None, partitions), until)) as wait,
            request.peer.when_gone(wait.end),
        ):
            if _is_quick(request, topics):
                found = _read(request, broker, topics)
            else:
                found = await loop.run_in_executor(broker.readers, _read, request, broker, topics)
            if is_over or not _must_wait(request, found):
                return encode_fetch_response(request.version, found)
            missing = body.min_bytes - _size(found)
            del found  # and with it the files that it holds
            is_over = await wait.grown_by(missing)


def _is_quick(request: Request, topics: Sequence[_Topic]) -> bool:
    """Whether all that is asked for lies in memory, as far as one can know, and is quickly read."""
    committed = request.body.isolation_level == READ_COMMITTED
    return sum(len(topic.wanted) for topic in topics) <= FEW_PARTITIONS and all(
        wanted.partition is None or wanted.partition.is_hot(wanted.offset, committed=committed)
        for topic in topics
        for wanted in topic.wanted
    )


def _must_wait(request: Request, found: Sequence[FetchedTopic]) -> bool:
    body = request.body
    if body.max_wait_ms <= 0 or not found:
        return False
    failed = any(partition.error_code for topic in found for partition in topic.partitions)
    return not failed and _size(found) < body.min_bytes


def _size(found: Sequence[FetchedTopic]) -> int:
    return sum(len(partition.records) for topic in found for partition in topic.partitions)


def _find(request: Request, broker: Broker, asked: Any) -> _Topic:
    if request.version >= 13:
        topic_id = asked.topic_id
        topic = broker.topics.find_id(topic_id)
        name = "" if topic is None else topic.name
        is_known = topic is not None
    else:
        name, topic_id, is_known = asked.topic, None, True
    wanted = []
    for of_partition in asked.partitions:
        partition, error = None, None
        try:
            partition = _partition(broker, name, of_partition, is_known=is_known)
        except HorologError as refusal:
            error = refusal
        wanted.append(
            _Wanted(
                of_partition.partition,
                partition,
                of_partition.fetch_offset,
                of_partition.partition_max_bytes,
                error,
            )
        )
    return _Topic(name, topic_id, wanted)


def _partition(broker: Broker, topic: str, wanted: Any, *, is_known: bool) -> Partition:
    if not is_known:
        raise RequestRefused(ErrorCode.unknown_topic_id, "no topic has this id")
    partition = broker.partition(topic, wanted.partition)
    refusal = partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))
    if refusal is not None:
        raise refusal
    return partition


def _read(request: Request, broker: Broker, topics: Sequence[_Topic]) -> Sequence[FetchedTopic]:
    left = min(request.body.max_bytes, broker.config.fetch_max_bytes)
    committed = request.body.isolation_level == READ_COMMITTED
    nothing_yet = True
    answers = []
    for topic in topics:
        partitions = []
        for wanted in topic.wanted:
            found = _read_partition(broker, wanted, left, committed, nothing_yet)
            size = len(found.records)
            left = max(left - size, 0)
            nothing_yet = nothing_yet and not size
            partitions.append(found)
        answers.append(FetchedTopic(topic.name, topic.topic_id, partitions))
    return answers


def _read_partition(
    broker: Broker, wanted: _Wanted, left: int, committed: bool, nothing_yet: bool
) -> FetchedPartition:
    partition = wanted.partition
    if partition is None:
        assert wanted.error is not None
        return FetchedPartition(wanted.partition_index, code_for(wanted.error))
    max_bytes = max(min(wanted.max_bytes, left), 0)
    try:
        # First, so that what is read lies before them, whatever is appended meanwhile.
        high_watermark, stable = partition.high_watermark, partition.last_stable_offset
        up_to = stable if committed else high_watermark
        found = partition.read(wanted.offset, max_bytes, min_one_batch=nothing_yet, up_to=up_to)
        records: Any = b""
        if found.size:
            records = found.read_cached() if found.size <= SMALL_BYTES else None
            if records is None and broker.slices_to_send.acquire():
                records = SlicedRecords(found, broker.slices_to_send)
            elif records is None:
                records = _first_records(partition, wanted.offset, up_to) if nothing_yet else b""
        aborted = partition.aborted(wanted.offset) if committed else None
    except HorologError as error:
        return FetchedPartition(wanted.partition_index, code_for(error))
    return FetchedPartition(
        wanted.partition_index,
        0,
        high_watermark,
        stable,
        partition.log_start_offset,
        cast(Bytes, records),
        aborted,
    )


def _first_records(partition: Partition, offset: int, up_to: int) -> Bytes:
    """Few bytes, or one batch that has more: what a reader needs to get on."""
    return partition.read(offset, SMALL_BYTES, min_one_batch=True, up_to=up_to).read()
