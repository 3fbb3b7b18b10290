"""Produce: check, stamp and append one batch to each partition.

v3   format v2 only, one batch per partition (KIP-98)
v5   log start offset in the answer
v7   zstd (KIP-110)
v8   which records were at fault (KIP-467)
v9   flexible
v10  leader hints: this broker leads everything
v12  as v11
v13  topics by id

acks=0 has no answer; an error then ends the connection, for nothing else can tell.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from horolog.broker.broker import Broker
from horolog.broker.connection import Hangup
from horolog.broker.dispatch import Request, api
from horolog.broker.partition import Partition, Written
from horolog.broker.reply import Reply
from horolog.cluster.topics import Topic
from horolog.errors import (
    BatchRefused,
    ErrorCode,
    HorologError,
    RecordsRejected,
    RequestRefused,
    code_for,
)
from horolog.wire.api import ApiKey
from horolog.wire.produce import ProducedPartition, ProducedTopic, encode_produce_response


class _Appending(NamedTuple):
    """A partition whose batch is in a thread's hands."""

    partition_index: int
    partition: Partition
    written: "asyncio.Future[Written]"


_Outcome = ProducedPartition | _Appending


@api(ApiKey.PRODUCE)
def produce(request: Request, broker: Broker) -> Reply | Coroutine[Any, Any, Reply | None] | None:
    """Append each batch; answered at once where nothing has to be waited for."""
    now_ms = broker.clock.now_ms()
    topics: list[tuple[Any, Topic | None, list[_Outcome]]] = []
    waits = False
    for asked in request.body.topic_data:
        topic = _find_topic(request, broker, asked)
        outcomes = [
            _append(request, broker, topic, wanted, now_ms) for wanted in asked.partition_data
        ]
        topics.append((asked, topic, outcomes))
        waits = waits or any(isinstance(outcome, _Appending) for outcome in outcomes)
    if waits:
        return _reply_later(request, broker, topics)
    return _reply(request, topics)


def _append(
    request: Request, broker: Broker, topic: Topic | None, wanted: Any, now_ms: int
) -> _Outcome:
    partition = None
    try:
        partition = _partition(request, broker, topic, wanted.index)
        written = partition.append(wanted.records or b"", now_ms, request.version)
    except HorologError as error:
        return _refused(wanted.index, error, partition)
    if isinstance(written, asyncio.Future):
        return _Appending(wanted.index, partition, written)
    broker.note_written(partition, written)
    return _accepted(wanted.index, written)


async def _reply_later(
    request: Request, broker: Broker, topics: Sequence[tuple[Any, Topic | None, list[_Outcome]]]
) -> Reply | None:
    for _, _, outcomes in topics:
        for slot, outcome in enumerate(outcomes):
            if isinstance(outcome, _Appending):
                outcomes[slot] = await _outcome(broker, outcome)
    return _reply(request, topics)


async def _outcome(broker: Broker, appending: _Appending) -> ProducedPartition:
    try:
        written = await appending.written
    except HorologError as error:
        return _refused(appending.partition_index, error, appending.partition)
    broker.note_written(appending.partition, written)
    return _accepted(appending.partition_index, written)


def _reply(
    request: Request, topics: Sequence[tuple[Any, Topic | None, list[_Outcome]]]
) -> Reply | None:
    answers = []
    for asked, topic, outcomes in topics:
        partitions = [outcome for outcome in outcomes if isinstance(outcome, ProducedPartition)]
        if topic is not None:
            answers.append(ProducedTopic(topic.name, topic.topic_id, partitions))
        else:
            name = getattr(asked, "name", "")
            answers.append(ProducedTopic(name, getattr(asked, "topic_id", None), partitions))
    if request.body.acks != 0:
        return (encode_produce_response(request.version, answers),)
    for answer in answers:
        for partition in answer.partitions:
            if partition.error_code:
                raise Hangup(
                    f"a produce request with acks=0 to {answer.name}-{partition.index} failed: "
                    f"{partition.error_message}"
                )
    return None


def _accepted(index: int, written: Written) -> ProducedPartition:
    appended = written.appended
    return ProducedPartition(
        index, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


def _refused(index: int, error: HorologError, partition: Partition | None) -> ProducedPartition:
    code = code_for(error)
    tells_start = isinstance(error, BatchRefused) or code is ErrorCode.unknown_server_error
    return ProducedPartition(
        index,
        code,
        log_start_offset=partition.log.log_start_offset if partition and tells_start else -1,
        record_errors=error.errors if isinstance(error, RecordsRejected) else (),
        error_message=str(error),
    )


def _find_topic(request: Request, broker: Broker, asked: Any) -> Topic | None:
    if request.version >= 13:
        return broker.topics.find_id(asked.topic_id)
    return broker.topics.find(asked.name)


def _partition(request: Request, broker: Broker, topic: Topic | None, index: int) -> Partition:
    """The partition to append to, unless the request as a whole forbids it."""
    if topic is None:
        code = ErrorCode.unknown_topic_or_partition
        if request.version >= 13:
            code = ErrorCode.unknown_topic_id
        raise RequestRefused(code, "This server does not host this topic-partition.")
    partition = broker.partition(topic.name, index)
    acks = request.body.acks
    if acks not in (-1, 0, 1):
        raise RequestRefused(
            ErrorCode.invalid_required_acks, f"acks={acks}, allowed are -1 (all), 0 and 1"
        )
    if topic.is_internal:
        raise RequestRefused(
            ErrorCode.invalid_topic_exception, f"{topic.name} is internal: only brokers write to it"
        )
    if acks == -1 and partition.log.config.min_insync_replicas > 1:
        raise RequestRefused(
            ErrorCode.not_enough_replicas,
            f"min.insync.replicas={partition.log.config.min_insync_replicas} of {topic.name}, "
            "and there is one broker",
        )
    return partition
