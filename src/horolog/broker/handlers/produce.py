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

acks=0 has no response; an error then closes the connection, as the only sign of it. acks=all waits
until the in-sync replicas of a cluster have the records, a retry of what is in the log, too.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from horolog.broker.authorisation import TOPIC, TRANSACTIONAL_ID, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.coordinators.admission import Admitted, admit, transactional_header
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.handlers.replicated import (
    Replicating,
    check_in_sync,
    unreplicated,
)
from horolog.broker.partition import Partition
from horolog.buffers import Buffer
from horolog.config import Endpoint
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
from horolog.wire.leaders import NodeEndpoint
from horolog.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    encode_produce_response,
)
from horolog.wire.requests import ProduceRequest

if TYPE_CHECKING:
    from horolog.replication.leading import Leading

INLINE_SECONDS: Final = 0.005
"""Time for validating batches of one request on the event loop; the rest go to threads."""
ALL: Final = -1
"""acks=all."""
_AT_ONCE: Final = 500
"""Most partitions of a request that is handled on the event loop at once."""


@dataclass(slots=True)
class _SentBatch:
    """Batch of a request, with its partition or an error, and its outcome."""

    topic: Topic | None
    records: Buffer
    outcome: ProducedPartition
    partition: Partition | None = None
    refusal: HorologError | None = None
    appending: "asyncio.Future[Appended] | None" = None
    """Result of the append, if a thread makes it."""
    leading: "Leading | None" = None
    """Leader of the partition at the append, if there are other replicas."""
    end_offset: int | None = None
    """Offset after its last record, once it is appended."""


@api(ApiKey.PRODUCE)
async def produce(request: Request[ProduceRequest], broker: BrokerParts) -> Reply | Apart | None:
    """Append each batch.

    Nothing is waited for if all appends complete inline.

    Batches of a transaction are appended once its coordinator admits them (KIP-890).

    Raises:
        TooManyFields: it has very many partitions, and is to be answered slowly.
    """
    body = request.body
    if not request.is_large:
        count = sum(len(asked.partition_data) for asked in body.topic_data)
        if count > _AT_ONCE:
            raise TooManyFields(f"{count} partitions are more than {_AT_ONCE}", 0)
    access = broker.access
    topics: list[tuple[str, UUID | None, list[_SentBatch]]] = []
    for asked in body.topic_data:
        topic = find_topic(broker, request.version, asked.name, asked.topic_id)
        sent: list[_SentBatch] = []
        for data in asked.partition_data:
            if request.is_large:
                await request.checkpoint()
                # It may have been deleted meanwhile, and another topic may have its name.
                topic = find_topic(broker, request.version, asked.name, asked.topic_id)
            batch = _SentBatch(topic, data.records or b"", ProducedPartition(data.index))
            sent.append(batch)
            try:
                name = asked.name if topic is None else topic.name
                if access.rights is not None and (topic is not None or request.version < 13):
                    access.check(request.peer, ApiKey.PRODUCE, TOPIC, name)
                batch.partition = find_partition(
                    broker, request.version, body.acks, topic, data.index
                )
            except HorologError as error:
                batch.refusal = error
        named = asked if topic is None else topic
        topics.append((named.name, named.topic_id, sent))
    batches = [batch for _, _, sent in topics for batch in sent]
    is_refused = access.rights is not None and not _may_transact(request, broker, batches)
    if is_refused:
        for batch in batches:
            batch.partition, batch.refusal = None, refusal(TRANSACTIONAL_ID)
    try:
        if body.transactional_id is None or is_refused:
            await _begin(request, broker, batches, None)
        else:
            async with broker.producer_turns.turn(request.peer, body.transactional_id):
                headers: dict[TopicPartition, BatchHeader] = {}
                for batch in batches:
                    await request.pause()
                    header, partition = transactional_header(batch.records), batch.partition
                    if header is not None and partition is not None and not is_adopted(batch.topic):
                        headers[TopicPartition(partition.topic, partition.index)] = header
                admitted = await admit(
                    broker.transactions,
                    body.transactional_id,
                    headers,
                    request.version,
                    broker.other_coordinators,
                )
                await _begin(request, broker, batches, admitted)
    finally:  # the client may have gone: what is being appended is finished all the same
        for batch in batches:
            if batch.appending is not None:
                await request.pause()
                try:
                    _note(request, broker, batch, await batch.appending)
                except HorologError as error:
                    _note(request, broker, batch, error)
    if body.acks == ALL:
        await _replicate(request, broker, batches)
    produced = [
        ProducedTopic(name, topic_id, [batch.outcome for batch in sent])
        for name, topic_id, sent in topics
    ]
    return _reply(request, broker, produced)


def _may_transact(
    request: Request[ProduceRequest], broker: BrokerParts, batches: Iterable[_SentBatch]
) -> bool:
    """Return True unless a batch is transactional, and the client may not use its id."""
    if all(transactional_header(batch.records) is None for batch in batches):
        return True
    transactional_id = request.body.transactional_id
    return transactional_id is not None and broker.access.allows(
        request.peer, ApiKey.PRODUCE, TRANSACTIONAL_ID, transactional_id
    )


async def _begin(
    request: Request[ProduceRequest],
    broker: BrokerParts,
    batches: Iterable[_SentBatch],
    admitted: Admitted | None,
) -> None:
    """Append the batches of a request, or start their appends in threads."""
    now_ms, inline_until = broker.clock.now_ms(), None
    for batch in batches:
        in_thread = False
        if request.is_large:
            await request.checkpoint()
            now_ms = broker.clock.now_ms()  # append times may be reset meanwhile
        elif inline_until is None:  # the first batch has all of that time
            inline_until = time.monotonic() + INLINE_SECONDS
        else:
            in_thread = time.monotonic() > inline_until
        try:
            if batch.partition is None:
                assert batch.refusal is not None
                raise batch.refusal
            batch.leading = batch.partition.replicas()
            if batch.leading is not None and request.body.acks == ALL:
                check_in_sync(batch.partition, batch.leading)
            admission = None
            if admitted is not None and transactional_header(batch.records) is not None:
                admission = admission_of(admitted, batch.topic, batch.partition)
            appended = batch.partition.writes.append(
                batch.records,
                now_ms,
                request.version,
                request.peer,
                in_thread=in_thread,
                admission=admission,
            )
        except HorologError as error:
            _note(request, broker, batch, error)
            continue
        if isinstance(appended, Appended):
            _note(request, broker, batch, appended)
        else:
            batch.appending = appended


async def _replicate(
    request: Request[ProduceRequest], broker: BrokerParts, batches: Collection[_SentBatch]
) -> None:
    """Wait until in-sync replicas have the appended batches; set the outcome of those that fail."""
    appended: dict[Partition, Replicating] = {}
    for batch in batches:
        partition, leading, end_offset = batch.partition, batch.leading, batch.end_offset
        if partition is not None and leading is not None and end_offset is not None:
            known = appended.get(partition)
            if known is None or known.offset < end_offset:
                appended[partition] = Replicating(end_offset, leading)
    if not appended:
        return
    refusals = await unreplicated(broker, request.peer, appended, request.body.timeout_ms)
    request.has_waited()
    for batch in batches:
        partition = batch.partition
        if partition in refusals and batch.end_offset is not None:
            batch.outcome = not_replicated(
                broker, batch.outcome, partition, refusals[partition], request.peer
            )


def not_replicated(
    broker: BrokerParts,
    outcome: ProducedPartition,
    partition: Partition,
    error: HorologError,
    peer: Peer,
) -> ProducedPartition:
    """Return the outcome of a batch that was appended, and may not be in all in-sync replicas."""
    code, hint = code_for(error), None
    if code is ErrorCode.not_leader_or_follower:
        hint = broker.placement.leader_hint(partition.topic, partition.index, peer.listener)
    return outcome._replace(
        error_code=code, error_message=str(error), current_leader=hint and hint.current
    )


def is_adopted(topic: Topic | None) -> bool:
    """True if the topic was adopted.

    Open transactions of adopted topics are aborted by a restart.
    """
    return topic is not None and topic.adopted


def admission_of(admitted: Admitted, topic: Topic | None, partition: Partition) -> Admission:
    """Check that the partition of a transaction's batch belongs to the transaction.

    Raises:
        RequestRefused: it does not, or the topic is adopted (44).
    """
    if is_adopted(topic):
        raise RequestRefused(
            ErrorCode.policy_violation,
            f"{partition.topic} was adopted from directories written elsewhere, where what is open "
            "counts as aborted; give it a setting first (retention.ms, say) if it is to take "
            "transactions",
        )
    key = TopicPartition(partition.topic, partition.index)
    admitted.refuse_unless_in(key)
    return admitted.admissions.get(key) or partition.admit(
        admitted.producer_id, is_strict=admitted.is_strict
    )


def _reply(
    request: Request[ProduceRequest], broker: BrokerParts, topics: Sequence[ProducedTopic]
) -> Reply | Apart | None:
    if request.body.acks != 0:
        encode = partial(
            encode_produce_response,
            request.version,
            topics,
            node_endpoints=hinted_leaders(broker, topics, request.peer.listener),
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
    request: Request[ProduceRequest],
    broker: BrokerParts,
    batch: _SentBatch,
    result: Appended | HorologError,
) -> None:
    """Set the outcome of a batch that was appended or refused."""
    client_id, peer = request.client_id, request.peer
    index, partition = batch.outcome.partition_index, batch.partition
    if isinstance(result, HorologError):
        batch.outcome = refused_outcome(
            broker, batch.topic, index, result, partition, client_id, peer
        )
        return
    assert partition is not None
    broker.note_appended(partition, result, request.version, client_id, peer.host)
    batch.outcome = ProducedPartition(
        index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
    )
    batch.end_offset = result.next_offset


def refused_outcome(
    broker: BrokerParts,
    topic: Topic | None,
    index: int,
    error: HorologError,
    partition: Partition | None,
    client_id: str,
    peer: Peer,
) -> ProducedPartition:
    """Count a batch that was refused, and return its outcome."""
    broker.traffic.refuse(None if partition is None else partition.topic, error)
    if partition is not None:
        broker.append_warnings.note_refused(partition, error, client_id, peer.host)
    code = code_for(error)
    tells_start = isinstance(error, BatchRefused) or code is ErrorCode.unknown_server_error
    leader = None
    if code is ErrorCode.not_leader_or_follower and topic is not None:
        leader = broker.placement.leader_hint(topic.name, index, peer.listener)
    return ProducedPartition(
        index,
        code,
        log_start_offset=partition.log.log_start_offset if partition and tells_start else -1,
        record_errors=error.errors if isinstance(error, RecordsRejected) else (),
        error_message=str(error),
        current_leader=leader and leader.current,
    )


def hinted_leaders(
    broker: BrokerParts, topics: Sequence[ProducedTopic], listener: Endpoint
) -> list[NodeEndpoint]:
    """Return the endpoints of leaders that the results refer to."""
    named = {
        partition.current_leader.leader_id: (topic.name, partition.partition_index)
        for topic in topics
        for partition in topic.partitions
        if partition.current_leader is not None
    }
    hints = [broker.placement.leader_hint(*where, listener) for where in named.values()]
    return [hint.node for hint in hints if hint is not None]


def find_topic(broker: BrokerParts, version: int, name: str, topic_id: UUID | None) -> Topic | None:
    """Return the requested topic; None if it does not exist."""
    if version >= 13:
        return broker.topics.find_id(topic_id)
    return broker.topics.find(name)


def find_partition(
    broker: BrokerParts, version: int, acks: int, topic: Topic | None, index: int
) -> Partition:
    """Return the partition to append to.

    Raises:
        RequestRefused, StorageFailed: there is none, or the request as a whole forbids it.
    """
    if topic is None:
        code = ErrorCode.unknown_topic_or_partition
        if version >= 13:
            code = ErrorCode.unknown_topic_id
        raise RequestRefused(code, "This server does not host this topic-partition.")
    partition = broker.placement.writable(topic, index)
    if acks not in (-1, 0, 1):
        raise RequestRefused(
            ErrorCode.invalid_required_acks, f"acks={acks}, allowed are -1 (all), 0 and 1"
        )
    if topic.is_internal:
        raise RequestRefused(
            ErrorCode.invalid_topic_exception, f"{topic.name} is internal: only brokers write to it"
        )
    return partition
