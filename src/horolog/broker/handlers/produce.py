"""Produce: validate, stamp and append one batch per partition.

v0   messages of format v0, up to v1; they become one batch of format v2, or what the topic stores
v1   throttle time
v2   messages of format v1; the append time
v3   format v2 only, one batch per partition (KIP-98)
v5   log start offset in the answer
v7   zstd (KIP-110)
v8   which records were at fault (KIP-467)
v9   flexible
v10  leader hints, for topics that another cluster leads (KIP-951)
v12  as v11
v13  topics by id

acks=0 has no response; an error then closes the connection, as the only sign of it.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from horolog.broker.admission import Admitted, admit, transactional_header
from horolog.broker.authorisation import Authorise
from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api, shortcut
from horolog.broker.partition import Partition
from horolog.broker.placement import not_leader
from horolog.errors import (
    BatchRefused,
    ErrorCode,
    HorologError,
    RecordsRejected,
    RequestRefused,
    code_for,
)
from horolog.metadata.topics import Topic
from horolog.network.dispatching import Hangup
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.record.batch import BatchHeader
from horolog.storage.logs.appendable import Appended
from horolog.storage.names import TopicPartition
from horolog.storage.producers.states import Admission
from horolog.wire.api import ApiKey
from horolog.wire.codec import TooManyFields
from horolog.wire.frame import response_prefix
from horolog.wire.leaders import NodeEndpoint
from horolog.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    encode_produce_response,
    single_answers,
)
from horolog.wire.requests import PartitionProduceData, ProduceRequest, TopicProduceData
from horolog.wire.single_partition import SingleProduce, read_produce

INLINE_SECONDS: Final = 0.005
"""How long the batches of one request are validated on the event loop; the rest run in threads."""
_AT_ONCE: Final = 500
"""Partitions of a request: more take too long for the event loop, however few bytes they have."""


class _Appending(NamedTuple):
    """A batch that a thread appends, and the place of its result."""

    partition: Partition
    appended: "asyncio.Future[Appended]"
    outcomes: list[ProducedPartition]
    slot: int


@api(ApiKey.PRODUCE)
def produce(
    request: Request[ProduceRequest], broker: Broker
) -> Reply | Apart | Coroutine[Any, Any, Reply | Apart | None] | None:
    """Append each batch; returns without waiting if all appends complete inline.

    Raises:
        TooManyFields: it has very many partitions, and is to be answered slowly.
    """
    if not request.is_large:
        count = sum(len(asked.partition_data) for asked in request.body.topic_data)
        if count > _AT_ONCE:
            raise TooManyFields(f"{count} partitions are more than {_AT_ONCE}", 0)
    if request.body.transactional_id is not None:
        return _produce_in_transaction(request, broker, request.body.transactional_id)
    if request.is_large:
        return _produce_in_turns(request, broker)
    return _produce_at_once(request, broker)


def _produce_at_once(
    request: Request[ProduceRequest], broker: Broker, admitted: Admitted | None = None
) -> Reply | Apart | Coroutine[Any, Any, Reply | Apart | None] | None:
    """Begin all appends; what has to wait is in the coroutine that is returned."""
    now_ms = broker.clock.now_ms()
    inline_until: float | None = None  # the first batch has all of that time
    topics: list[ProducedTopic] = []
    appending: list[_Appending] = []
    for asked in request.body.topic_data:
        topic = find_topic(broker, request.version, asked.name, asked.topic_id)
        outcomes: list[ProducedPartition] = []
        for sent in asked.partition_data:
            if inline_until is None:
                inline_until, in_thread = time.monotonic() + INLINE_SECONDS, False
            else:
                in_thread = time.monotonic() > inline_until
            _append(
                *(request, broker, topic, sent, now_ms, in_thread, outcomes, appending),
                admitted,
            )
        topics.append(_named(asked, topic, outcomes))
    if appending:
        return _reply_later(request, broker, topics, appending)
    return _reply(request, broker, topics)


@shortcut(ApiKey.PRODUCE)
def produce_single(
    broker: Broker, authorise: Authorise, peer: Peer, frame: bytes
) -> Reply | Coroutine[Any, Any, Reply] | None:
    """Append to one partition, without decoding the request by its schema.

    Returns:
        None, without any effect, if the append may block, or for a request of another form. An
        append of a transaction is waited for here.
    """
    asked = read_produce(frame)
    if asked is None:
        return None
    version, correlation_id, client_id, acks, name, topic_id, index, records, transactional = asked
    authorise(peer, ApiKey.PRODUCE)
    if transactional is not None:
        return _produce_single_in_transaction(broker, peer, asked, transactional)
    topic = partition = None
    try:
        topic = find_topic(broker, version, name, topic_id)
        partition = find_partition(broker, version, acks, topic, index)
        appended = partition.writes.append_nowait(records, broker.clock.now_ms(), version, peer)
    except HorologError as error:
        return _single_refused(broker, asked, topic, error, partition, peer.host)
    if appended is None:
        return None
    broker.note_appended(partition, appended, client_id, peer.host)
    base_offset, _, time_ms, start_offset = appended[:4]
    answers = single_answers(version, name, topic_id)
    return (answers.pack(correlation_id, index, 0, base_offset, time_ms, start_offset),)


def _single_refused(
    broker: Broker,
    asked: SingleProduce,
    topic: Topic | None,
    error: HorologError,
    partition: Partition | None,
    host: str,
) -> Reply:
    version, topic_id = asked.version, asked.topic_id
    outcome = _refused(broker, topic, asked.partition, error, partition, asked.client_id, host)
    refused = ProducedTopic(asked.name, topic_id, [outcome])
    leaders = _leaders(broker, [refused])
    body = encode_produce_response(version, [refused], node_endpoints=leaders)
    return (response_prefix(ApiKey.PRODUCE, version, asked.correlation_id, len(body)), body)


async def _produce_single_in_transaction(
    broker: Broker, peer: Peer, asked: SingleProduce, transactional_id: str
) -> Reply:
    """As `_produce_in_transaction`, for one partition."""
    version, correlation_id, client_id, acks, name, topic_id, index, records, _ = asked
    topic = partition = None
    try:
        async with broker.producer_turns.turn(peer, transactional_id):
            header = transactional_header(records)
            admitted = None
            if header is not None:
                topic = find_topic(broker, version, name, topic_id)
                partition = find_partition(broker, version, acks, topic, index)
                _refuse_adopted(cast("Topic", topic))
                headers = {TopicPartition(partition.topic, index): header}
                admitted = await admit(broker.transactions, transactional_id, headers, version)
                partition = None
            topic = find_topic(broker, version, name, topic_id)  # it may be gone by now
            partition = find_partition(broker, version, acks, topic, index)
            admission = None
            if admitted is not None:
                admission = _admission(admitted, topic, partition)
            now_ms = broker.clock.now_ms()
            appended = partition.writes.append(records, now_ms, version, peer, admission=admission)
        if not isinstance(appended, Appended):
            appended = await appended
    except HorologError as error:
        return _single_refused(broker, asked, topic, error, partition, peer.host)
    _note(broker, partition, appended, version, client_id, peer.host)
    base_offset, _, time_ms, start_offset = appended[:4]
    answers = single_answers(version, name, topic_id)
    return (answers.pack(correlation_id, index, 0, base_offset, time_ms, start_offset),)


async def _produce_in_transaction(
    request: Request[ProduceRequest], broker: Broker, transactional_id: str
) -> Reply | Apart | None:
    """Append what the coordinator of the transaction admits (KIP-890)."""
    async with broker.producer_turns.turn(request.peer, transactional_id):
        headers = await _transactional_headers(request, broker)
        admitted = await admit(broker.transactions, transactional_id, headers, request.version)
        if request.is_large:
            return await _produce_in_turns(request, broker, admitted)
        reply = _produce_at_once(request, broker, admitted)
    return await reply if isinstance(reply, Coroutine) else reply


async def _transactional_headers(
    request: Request[ProduceRequest], broker: Broker
) -> dict[TopicPartition, BatchHeader]:
    """The headers of the transaction's batches for partitions that can be appended to."""
    headers: dict[TopicPartition, BatchHeader] = {}
    body, version = request.body, request.version
    for asked in body.topic_data:
        topic = find_topic(broker, version, asked.name, asked.topic_id)
        for sent in asked.partition_data:
            await request.pause()
            header = transactional_header(sent.records)
            if header is None or topic is None:
                continue
            try:
                find_partition(broker, version, body.acks, topic, sent.index)
                _refuse_adopted(topic)
            except HorologError:
                continue  # `_append` says it
            headers[TopicPartition(topic.name, sent.index)] = header
    return headers


def _refuse_adopted(topic: Topic) -> None:
    """Refuse a transaction where what is open counts as aborted after a restart.

    Raises:
        RequestRefused: the topic is adopted (44).
    """
    if topic.adopted:
        raise RequestRefused(
            ErrorCode.policy_violation,
            f"{topic.name} was adopted from directories written elsewhere, where what is open "
            "counts as aborted; give it a setting first (retention.ms, say) if it is to take "
            "transactions",
        )


def _admission(admitted: Admitted, topic: Topic | None, partition: Partition) -> Admission:
    """Of a batch of a transaction to the partition that it is for.

    Raises:
        RequestRefused: the topic is adopted, or the partition is not in the transaction.
    """
    _refuse_adopted(cast("Topic", topic))
    admitted.refuse_unless_in(TopicPartition(partition.topic, partition.index))
    return partition.admit(admitted.producer_id, is_strict=admitted.is_strict)


async def _produce_in_turns(
    request: Request[ProduceRequest], broker: Broker, admitted: Admitted | None = None
) -> Reply | Apart | None:
    """As `produce`, for very many partitions: nothing else of the client is begun meanwhile."""
    now_ms = broker.clock.now_ms()
    topics: list[ProducedTopic] = []
    appending: list[_Appending] = []
    try:
        for asked in request.body.topic_data:
            outcomes: list[ProducedPartition] = []
            for sent in asked.partition_data:
                await request.checkpoint()
                topic = find_topic(broker, request.version, asked.name, asked.topic_id)
                _append(
                    *(request, broker, topic, sent, now_ms, False, outcomes, appending),
                    admitted,
                )
            topics.append(
                _named(
                    asked, find_topic(broker, request.version, asked.name, asked.topic_id), outcomes
                )
            )
    finally:  # the client may have gone: what is being appended is finished all the same
        reply = await _reply_later(request, broker, topics, appending)
    return reply


def _append(
    request: Request[ProduceRequest],
    broker: Broker,
    topic: Topic | None,
    sent: PartitionProduceData,
    now_ms: int,
    in_thread: bool,
    outcomes: list[ProducedPartition],
    appending: list[_Appending],
    admitted: Admitted | None,
) -> None:
    """Append to one partition, or have it done; `outcomes` gets the result."""
    partition = None
    try:
        partition = find_partition(broker, request.version, request.body.acks, topic, sent.index)
        admission = None
        if admitted is not None and transactional_header(sent.records) is not None:
            admission = _admission(admitted, topic, partition)
        appended = partition.writes.append(
            *(sent.records or b"", now_ms, request.version, request.peer),
            in_thread=in_thread,
            admission=admission,
        )
    except HorologError as error:
        who = _who(request)[1:]
        outcomes.append(_refused(broker, topic, sent.index, error, partition, *who))
        return
    if isinstance(appended, Appended):
        _note(broker, partition, appended, *_who(request))
        outcomes.append(_accepted(sent.index, appended))
    else:
        appending.append(_Appending(partition, appended, outcomes, len(outcomes)))
        outcomes.append(ProducedPartition(sent.index))


def _named(
    asked: TopicProduceData, topic: Topic | None, outcomes: Sequence[ProducedPartition]
) -> ProducedTopic:
    if topic is not None:
        return ProducedTopic(topic.name, topic.topic_id, outcomes)
    return ProducedTopic(asked.name, asked.topic_id, outcomes)


async def _reply_later(
    request: Request[ProduceRequest],
    broker: Broker,
    topics: Sequence[ProducedTopic],
    appending: Sequence[_Appending],
) -> Reply | Apart | None:
    for one in appending:
        await request.pause()
        index = one.outcomes[one.slot].partition_index
        try:
            appended = await one.appended
        except HorologError as error:
            topic = broker.topics.find(one.partition.topic)
            who = _who(request)[1:]
            one.outcomes[one.slot] = _refused(broker, topic, index, error, one.partition, *who)
            continue
        _note(broker, one.partition, appended, *_who(request))
        one.outcomes[one.slot] = _accepted(index, appended)
    return _reply(request, broker, topics)


def _reply(
    request: Request[ProduceRequest], broker: Broker, topics: Sequence[ProducedTopic]
) -> Reply | Apart | None:
    if request.body.acks != 0:
        encode = partial(
            encode_produce_response,
            request.version,
            topics,
            node_endpoints=_leaders(broker, topics),
        )
        return (
            Apart(lambda checkpoint: (encode(checkpoint=checkpoint),))
            if request.is_large
            else (encode(),)
        )
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code:
                name = f"{topic.name}-{partition.partition_index}"
                raise Hangup(
                    f"a produce request with acks=0 to {name} failed: {partition.error_message}"
                )
    return None


def _note(
    broker: Broker,
    partition: Partition,
    appended: Appended,
    version: int,
    client_id: str,
    host: str,
) -> None:
    broker.note_appended(partition, appended, client_id, host)
    if appended.is_converted:
        count = appended.last_offset - appended.base_offset + 1
        broker.conversions.note(ApiKey.PRODUCE, version, client_id, host, partition.topic, count)


def _who(request: Request[ProduceRequest]) -> tuple[int, str, str]:
    return request.version, request.client_id, request.peer.host


def _accepted(index: int, appended: Appended) -> ProducedPartition:
    return ProducedPartition(
        index, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


def _refused(
    broker: Broker,
    topic: Topic | None,
    index: int,
    error: HorologError,
    partition: Partition | None,
    client_id: str,
    host: str,
) -> ProducedPartition:
    broker.traffic.refuse(None if partition is None else partition.topic, error)
    if partition is not None:
        broker.append_warnings.note_refused(partition, error, client_id, host)
    code = code_for(error)
    tells_start = isinstance(error, BatchRefused) or code is ErrorCode.unknown_server_error
    leader = None
    if code is ErrorCode.not_leader_or_follower and topic is not None:
        leader = broker.placement.leader_hint(topic.name, index)
    return ProducedPartition(
        index,
        code,
        log_start_offset=partition.log.log_start_offset if partition and tells_start else -1,
        record_errors=error.errors if isinstance(error, RecordsRejected) else (),
        error_message=str(error),
        current_leader=leader and leader.current,
    )


def _leaders(broker: Broker, topics: Sequence[ProducedTopic]) -> list[NodeEndpoint]:
    """The endpoints of the leaders that results name."""
    if broker.placement.seen is None:
        return []
    named = {
        partition.current_leader.leader_id: (topic.name, partition.partition_index)
        for topic in topics
        for partition in topic.partitions
        if partition.current_leader is not None
    }
    hints = [broker.placement.leader_hint(*where) for where in named.values()]
    return [hint.node for hint in hints if hint is not None]


def find_topic(broker: Broker, version: int, name: str, topic_id: UUID | None) -> Topic | None:
    """The topic that a request names; None if there is none."""
    if version >= 13:
        return broker.topics.find_id(topic_id)
    return broker.topics.find(name)


def find_partition(
    broker: Broker, version: int, acks: int, topic: Topic | None, index: int
) -> Partition:
    """The partition to append to.

    Raises:
        RequestRefused, StorageFailed: there is none, or the request as a whole forbids it.
    """
    if topic is None:
        code = ErrorCode.unknown_topic_or_partition
        if version >= 13:
            code = ErrorCode.unknown_topic_id
        raise RequestRefused(code, "This server does not host this topic-partition.")
    partition = broker.partition(topic.name, index)
    if topic.followed:
        raise not_leader(topic)
    if acks not in (-1, 0, 1):
        raise RequestRefused(
            ErrorCode.invalid_required_acks, f"acks={acks}, allowed are -1 (all), 0 and 1"
        )
    if topic.is_internal:
        raise RequestRefused(
            ErrorCode.invalid_topic_exception, f"{topic.name} is internal: only brokers write to it"
        )
    return partition
