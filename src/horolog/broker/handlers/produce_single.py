"""Produce to one partition, without decoding the request by its schema.

Nearly all requests of producers that do not batch over partitions have this form.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from horolog.broker.authorisation import TOPIC, TRANSACTIONAL_ID, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.coordinators.admission import admit, transactional_header
from horolog.broker.dispatch import shortcut
from horolog.broker.handlers.produce import (
    ALL,
    admission_of,
    find_partition,
    find_topic,
    hinted_leaders,
    is_adopted,
    not_replicated,
    refused_outcome,
)
from horolog.broker.handlers.replicated import Acknowledging, Replicating, check_in_sync
from horolog.broker.partition import Partition
from horolog.errors import HorologError
from horolog.metadata.topics import Topic
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.appendable import Appended
from horolog.storage.names import TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.frame import response_prefix
from horolog.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    encode_produce_response,
    single_answers,
)
from horolog.wire.single_partition import SingleProduce, read_produce

if TYPE_CHECKING:
    from horolog.replication.leading import Leading


@shortcut(ApiKey.PRODUCE)
def produce_single(
    broker: BrokerParts, peer: Peer, frame: bytes
) -> "Reply | asyncio.Future[Reply] | Coroutine[Any, Any, Reply] | None":
    """Append to one partition without decoding the request by its schema.

    Returns:
        None, without any effect, if the append may block, or for a request of another form. An
        append of a transaction is waited for here.
    """
    asked = read_produce(frame)
    if asked is None:
        return None
    version, _, _, acks, name, topic_id, index, records, transactional, _ = asked
    topic = partition = None
    try:
        topic = find_topic(broker, version, name, topic_id)
        access = broker.access
        if access.rights is not None:
            if transactional_header(records) is not None:
                _check_transactional_id(broker, peer, transactional)
            if topic is not None or version < 13:
                written = name if topic is None else topic.name
                if not access.allows(peer, ApiKey.PRODUCE, TOPIC, written):
                    raise refusal(TOPIC)
        partition = find_partition(broker, version, acks, topic, index)
        if transactional is not None:
            return _append_admitted(broker, peer, asked, topic, partition)
        leading = partition.replicas()
        if leading is not None and acks == ALL:
            check_in_sync(partition, leading)
        appended = partition.writes.append(
            records, broker.clock.now_ms(), version, peer, may_block=False
        )
    except WouldBlock:
        return None
    except HorologError as error:
        return _single_refused(broker, asked, topic, error, partition, peer)
    assert isinstance(appended, Appended)
    if leading is not None and acks == ALL:
        return _single_replicated(broker, asked, appended, partition, leading, peer)
    return _single_appended(broker, asked, appended, partition, peer.host)


def _check_transactional_id(broker: BrokerParts, peer: Peer, transactional_id: str | None) -> None:
    """Check that a client may send a transactional batch.

    Raises:
        RequestRefused: it may not use its transactional id, or gives none (53).
    """
    if transactional_id is None:
        raise refusal(TRANSACTIONAL_ID)
    broker.access.check(peer, ApiKey.PRODUCE, TRANSACTIONAL_ID, transactional_id)


async def _append_admitted(
    broker: BrokerParts, peer: Peer, asked: SingleProduce, topic: Topic | None, partition: Partition
) -> Reply:
    """Append a batch to one partition once the coordinator of its transaction admits it."""
    version, records, transactional_id = asked.version, asked.records, asked.transactional_id
    assert transactional_id is not None
    try:
        async with broker.producer_turns.turn(peer, transactional_id):
            header, headers = transactional_header(records), {}
            if header is not None and not is_adopted(topic):
                headers[TopicPartition(partition.topic, partition.index)] = header
            others = broker.other_coordinators
            admitted = await admit(broker.transactions, transactional_id, headers, version, others)
            admission = None if header is None else admission_of(admitted, topic, partition)
            leading = partition.replicas()
            if leading is not None and asked.acks == ALL:
                check_in_sync(partition, leading)
            now_ms = broker.clock.now_ms()
            appended = partition.writes.append(records, now_ms, version, peer, admission=admission)
        if not isinstance(appended, Appended):
            appended = await appended
    except HorologError as error:
        return _single_refused(broker, asked, topic, error, partition, peer)
    if leading is not None and asked.acks == ALL:
        return await _single_replicated(broker, asked, appended, partition, leading, peer)
    return _single_appended(broker, asked, appended, partition, peer.host)


def _single_replicated(
    broker: BrokerParts,
    asked: SingleProduce,
    appended: Appended,
    partition: Partition,
    leading: "Leading",
    peer: Peer,
) -> "asyncio.Future[Reply]":
    """Return the answer, which is there once the in-sync replicas have the batch."""
    reply = _single_appended(broker, asked, appended, partition, peer.host)

    def finish(error: HorologError | None) -> Reply:
        if error is None:
            return reply
        base_offset, _, time_ms, start_offset = appended[:4]
        outcome = ProducedPartition(asked.partition, 0, base_offset, time_ms, start_offset)
        outcome = not_replicated(broker, outcome, partition, error, peer)
        return _single(broker, asked, outcome, peer)

    replicating = Replicating(appended.next_offset, leading)
    waiting = Acknowledging(broker, peer, partition, replicating, asked.timeout_ms, finish)
    waiting.on_gone()  # the high watermark may have moved with the append
    return waiting.answer


def _single_appended(
    broker: BrokerParts, asked: SingleProduce, appended: Appended, partition: Partition, host: str
) -> Reply:
    version, correlation_id, client_id, _, name, topic_id, index = asked[:7]
    broker.note_appended(partition, appended, version, client_id, host)
    base_offset, _, time_ms, start_offset = appended[:4]
    answers = single_answers(version, name, topic_id)
    return (answers.pack(correlation_id, index, 0, base_offset, time_ms, start_offset),)


def _single_refused(
    broker: BrokerParts,
    asked: SingleProduce,
    topic: Topic | None,
    error: HorologError,
    partition: Partition | None,
    peer: Peer,
) -> Reply:
    outcome = refused_outcome(
        broker, topic, asked.partition, error, partition, asked.client_id, peer
    )
    return _single(broker, asked, outcome, peer)


def _single(
    broker: BrokerParts, asked: SingleProduce, outcome: ProducedPartition, peer: Peer
) -> Reply:
    version, produced = asked.version, [ProducedTopic(asked.name, asked.topic_id, [outcome])]
    leaders = hinted_leaders(broker, produced, peer.listener)
    body = encode_produce_response(version, produced, node_endpoints=leaders)
    return (response_prefix(ApiKey.PRODUCE, version, asked.correlation_id, len(body)), body)
