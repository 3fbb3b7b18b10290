"""Requests of transactional producers."""

from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horolog.broker.authorisation import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api, shortcut
from horolog.broker.handlers.commits import (
    NamedTopic,
    asked_topic,
    existing_rows,
    named_topics,
    offset_row,
)
from horolog.broker.handlers.groups import group_error_code
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.groups.rows import OffsetRow, TransactionProducer
from horolog.groups.values import Committer
from horolog.metadata.topics import Topic
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.rights.entries import CLUSTER_NAME
from horolog.schemas.transactions import FIRST_FLOW, SECOND_FLOW
from horolog.storage.names import CONSUMER_OFFSETS, INTERNAL_TOPICS, TopicPartition
from horolog.transactions.values import NONE, ProducerIdentity
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
)
from horolog.wire.transactions import (
    SingleAdd,
    SingleEnd,
    added_answers,
    ended_answers,
    read_add,
    read_end,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTopicResult,
        EndTxnResponse,
        InitProducerIdResponse,
        TxnOffsetCommitResponse,
    )

# --- Error codes of transactions as a version of a request has them ---------------------


def transaction_code(error: HorologError, *, knows_fenced: bool) -> ErrorCode:
    """Return the error code; older clients get an invalid epoch for a fenced producer (KIP-588)."""
    code = code_for(error)
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return code


# --- InitProducerId: gives a producer its id and epoch ----------------------------------
#
# v1  throttle time
# v2  flexible
# v3  the producer's present id and epoch (KIP-360)
# v4  error PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH
# v5  as v4, of clients that know TRANSACTION_ABORTABLE


_INIT_KNOWS_FENCED: Final = 4


@api(ApiKey.INIT_PRODUCER_ID)
async def init_producer_id(
    request: Request[InitProducerIdRequest], broker: BrokerParts
) -> "InitProducerIdResponse":
    """Return a new id for an idempotent producer, or the next epoch of a transactional one."""
    body = request.body
    try:
        if body.transactional_id is None:
            if not broker.access.may_be_idempotent(request.peer):
                raise refusal(CLUSTER)
            producer = ProducerIdentity(await broker.producer_ids.next(), 0)
        else:
            broker.access.check(
                request.peer, ApiKey.INIT_PRODUCER_ID, TRANSACTIONAL_ID, body.transactional_id
            )
            producer = await broker.transactions.initialise(
                body.transactional_id, body.transaction_timeout_ms, _expected(body)
            )
    except HorologError as error:
        code = transaction_code(error, knows_fenced=request.version >= _INIT_KNOWS_FENCED)
        return {"error_code": code, "producer_id": NONE, "producer_epoch": NONE}
    return {
        "error_code": ErrorCode.none,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
    }


def _expected(body: InitProducerIdRequest) -> ProducerIdentity | None:
    """Return the producer id and epoch that the client has; None without any."""
    expected = ProducerIdentity(body.producer_id, body.producer_epoch)
    if (expected.id == NONE) != (expected.epoch == NONE):
        raise RequestRefused(
            ErrorCode.invalid_request, "a producer id needs an epoch, and an epoch a producer id"
        )
    return None if expected.id == NONE else expected


# --- AddPartitionsToTxn: partitions of a transaction, before they are written to --------
#
# v2  error PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH
# v3  flexible
# v4  several transactions, from brokers (KIP-890); partitions may be verified only
# v5  as v4


_KNOWS_FENCED: Final = 2
_BATCHED: Final = 4
ADD: Final = ApiKey.ADD_PARTITIONS_TO_TXN


@api(ApiKey.ADD_PARTITIONS_TO_TXN)
async def add_partitions_to_txn(
    request: Request[AddPartitionsToTxnRequest], broker: BrokerParts
) -> "AddPartitionsToTxnResponse":
    """Add all partitions to a transaction, or none of them."""
    body, version = request.body, request.version
    if version < _BATCHED:
        producer = ProducerIdentity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        results = await _add(
            request,
            broker,
            body.v3_and_below_transactional_id,
            producer,
            body.v3_and_below_topics,
            verify_only=False,
        )
        return {"results_by_topic_v3_and_below": results}
    if not broker.access.allows(request.peer, ADD, CLUSTER, CLUSTER_NAME):
        return {
            "error_code": ErrorCode.cluster_authorization_failed,
            "results_by_transaction": [],
        }
    return {
        "error_code": ErrorCode.none,
        "results_by_transaction": [
            {
                "transactional_id": transaction.transactional_id,
                "topic_results": await _add(
                    request,
                    broker,
                    transaction.transactional_id,
                    ProducerIdentity(transaction.producer_id, transaction.producer_epoch),
                    transaction.topics,
                    verify_only=transaction.verify_only,
                ),
            }
            for transaction in body.transactions
        ],
    }


@shortcut(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_single(broker: BrokerParts, peer: Peer, frame: bytes) -> Coroutine[Any, Any, Reply] | None:
    """Add one partition to a transaction without decoding the request by its schema."""
    asked = read_add(frame)
    if asked is None:
        return None
    return _add_single(broker, peer, asked)


async def _add_single(broker: BrokerParts, peer: Peer, asked: SingleAdd) -> Reply:
    version, correlation_id, transactional_id, producer_id, epoch, name, index = asked
    partition = TopicPartition(name, index)
    code = ErrorCode.transactional_id_authorization_failed
    if broker.access.allows(peer, ADD, TRANSACTIONAL_ID, transactional_id):
        code = _refusal(broker, peer, version, partition)
    if code is ErrorCode.none:
        producer = ProducerIdentity(producer_id, epoch)
        try:
            await broker.transactions.add_partitions(transactional_id, producer, [partition])
        except HorologError as error:
            code = transaction_code(error, knows_fenced=version >= _KNOWS_FENCED)
    return (added_answers(version, name).pack(correlation_id, index, code),)


def _refusal(broker: BrokerParts, peer: Peer, version: int, partition: TopicPartition) -> ErrorCode:
    """Return the error of a partition. Clients cannot write to internal topics."""
    topic = partition.topic
    if version < _BATCHED and (
        topic in INTERNAL_TOPICS or not broker.access.allows(peer, ADD, TOPIC, topic)
    ):
        return ErrorCode.topic_authorization_failed
    if broker.partitions.find(*partition) is None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none


async def _add(
    request: Request[AddPartitionsToTxnRequest],
    broker: BrokerParts,
    transactional_id: str,
    producer: ProducerIdentity,
    topics: Iterable[AddPartitionsToTxnTopic],
    *,
    verify_only: bool,
) -> "list[AddPartitionsToTxnTopicResult]":
    version = request.version
    refusals: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        for index in topic.partitions:
            await request.checkpoint()
            partition = TopicPartition(topic.name, index)
            refusals[partition] = _refusal(broker, request.peer, version, partition)
    codes: Mapping[TopicPartition, ErrorCode] = refusals
    try:
        if version < _BATCHED:
            broker.access.check(request.peer, ADD, TRANSACTIONAL_ID, transactional_id)
        if any(refusals.values()):
            codes = {
                each: code or ErrorCode.operation_not_attempted for each, code in refusals.items()
            }
        elif verify_only:
            codes = broker.transactions.verify(transactional_id, producer, refusals)
        else:
            flow = SECOND_FLOW if version >= _BATCHED else FIRST_FLOW
            await broker.transactions.add_partitions(transactional_id, producer, refusals, flow)
    except HorologError as error:
        code = transaction_code(error, knows_fenced=version >= _KNOWS_FENCED)
        codes = dict.fromkeys(refusals, code)
    return [await _results(request, topic, codes) for topic in topics]


async def _results(
    request: Request[AddPartitionsToTxnRequest],
    topic: AddPartitionsToTxnTopic,
    codes: Mapping[TopicPartition, ErrorCode],
) -> "AddPartitionsToTxnTopicResult":
    results: list[AddPartitionsToTxnPartitionResult] = []
    for index in topic.partitions:
        await request.pause()
        code = codes[TopicPartition(topic.name, index)]
        results.append({"partition_index": index, "partition_error_code": code})
    return {"name": topic.name, "results_by_partition": results}


# --- AddOffsetsToTxn: the offsets of a group, before they are committed in a transaction
#
# v2  error PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH
# v3  flexible
# v4  as v3, of clients that know TRANSACTION_ABORTABLE


@api(ApiKey.ADD_OFFSETS_TO_TXN)
async def add_offsets_to_txn(
    request: Request[AddOffsetsToTxnRequest], broker: BrokerParts
) -> "AddOffsetsToTxnResponse":
    """Add the group's partition of `__consumer_offsets` to a transaction."""
    body, access, peer, api_key = (
        request.body,
        broker.access,
        request.peer,
        ApiKey.ADD_OFFSETS_TO_TXN,
    )
    try:
        access.check(peer, api_key, TRANSACTIONAL_ID, body.transactional_id)
        access.check(peer, api_key, GROUP, body.group_id)
        if not body.group_id:
            raise RequestRefused(ErrorCode.invalid_group_id, "a group id must not be empty")
        index = broker.groups.transactions.partition_of(body.group_id)
        partition = TopicPartition(CONSUMER_OFFSETS, index)
        producer = ProducerIdentity(body.producer_id, body.producer_epoch)
        await broker.transactions.add_partitions(body.transactional_id, producer, [partition])
    except HorologError as error:
        return {
            "error_code": transaction_code(error, knows_fenced=request.version >= _KNOWS_FENCED)
        }
    return {"error_code": ErrorCode.none}


# --- TxnOffsetCommit: offsets of a consumer group that count if a transaction is committed (KIP-98)
#
# v1  the same
# v2  leader epoch of the last record read
# v3  flexible; member, instance and generation (KIP-447)
# v4  error TRANSACTION_ABORTABLE
# v5  the group is added to the transaction, without AddOffsetsToTxn before it (KIP-890)
# v6  topics by id; a group that is not there is GROUP_ID_NOT_FOUND (KIP-1319)
#
# The transaction coordinator is asked before the group: it refuses offsets of a transaction that is
# not open, or that the group's partition of `__consumer_offsets` is not in. It is asked again when
# the offsets are written: the transaction may have ended meanwhile.


_AS_PRODUCE: Final = {6: 12, 5: 12, 4: 11}
"""Version of Produce with the same rules for transactions, by version of TxnOffsetCommit."""
_BEFORE_ABORTABLE: Final = 10
_BY_ID: Final = 6
_LOADING_SINCE: Final = 2  # earlier clients fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)

_OF_A_PARTITION: Final = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
}
"""Replacements for codes that a client would attribute to the committed partition."""


class _Asked(NamedTuple):
    """Question to the transaction coordinator."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition]
    produce_version: int


@api(ApiKey.TXN_OFFSET_COMMIT)
async def txn_offset_commit(
    request: Request[TxnOffsetCommitRequest], broker: BrokerParts
) -> "TxnOffsetCommitResponse":
    """Store valid offsets as pending in a transaction; each partition has its own error."""
    body = request.body

    def row(topic: Topic, requested: TxnOffsetCommitRequestPartition) -> OffsetRow:
        return offset_row(broker, body.group_id, topic, requested, broker.clock.now_ms())

    topics = await named_topics(
        request,
        (
            (
                partial(
                    asked_topic,
                    broker,
                    request.peer,
                    ApiKey.TXN_OFFSET_COMMIT,
                    asked,
                    by_id=request.version >= _BY_ID,
                ),
                asked.partitions,
            )
            for asked in body.topics
        ),
        row,
    )
    refused = _refusal_of_commit(request, broker)
    if refused is not None:
        for topic in topics:
            topic.fail_all(refused.code)
    elif any(topic.has_existing for topic in topics):
        await _commit(request, broker, topics)
    return {
        "topics": [
            {"name": asked.name, "topic_id": asked.topic_id, "partitions": of_topic.partitions}
            for asked, of_topic in zip(body.topics, topics, strict=True)
        ]
    }


def _refusal_of_commit(
    request: Request[TxnOffsetCommitRequest], broker: BrokerParts
) -> RequestRefused | None:
    """Return the error of a client that may not use the transactional id, or the group."""
    body, access, peer = request.body, broker.access, request.peer
    for kind, name in ((TRANSACTIONAL_ID, body.transactional_id), (GROUP, body.group_id)):
        if not access.allows(peer, ApiKey.TXN_OFFSET_COMMIT, kind, name):
            return refusal(kind)
    return None


async def _commit(
    request: Request[TxnOffsetCommitRequest], broker: BrokerParts, topics: list[NamedTopic]
) -> None:
    body = request.body
    index = broker.groups.transactions.partition_of(body.group_id)
    asked = _Asked(
        body.transactional_id,
        body.producer_id,
        body.producer_epoch,
        (TopicPartition(CONSUMER_OFFSETS, index),),
        _AS_PRODUCE.get(request.version, _BEFORE_ABORTABLE),
    )

    async def admit() -> None:
        """Add the group's partition to the transaction; raises the coordinator's refusal."""
        _check(asked, await broker.transactions.admit(*asked))

    def confirm() -> None:
        """Check that the partition is still in the transaction; raises the refusal."""
        _check(asked, broker.transactions.admitted(*asked))

    try:
        if not body.group_id:
            raise RequestRefused(ErrorCode.invalid_group_id, "a group id must not be empty")
        broker.groups.check_loaded(body.group_id)
        await broker.groups.transactions.commit(
            body.group_id,
            Committer(
                body.member_id,
                body.group_instance_id,
                body.generation_id,
                says_epoch=request.version >= _BY_ID,
            ),
            TransactionProducer(body.producer_id, body.producer_epoch),
            partial(existing_rows, broker, topics),
            admit,
            confirm,
        )
    except HorologError as error:
        for topic in topics:
            topic.fail(_error_code(error, request.version))


def _check(asked: _Asked, codes: Mapping[TopicPartition, ErrorCode]) -> None:
    (partition,) = asked.partitions
    if code := codes[partition]:
        raise RequestRefused(
            code, f"{partition} is in no ongoing transaction of {asked.transactional_id!r}"
        )


def _error_code(error: HorologError, version: int) -> ErrorCode:
    """Return the error code for a failed commit, as Apache Kafka's coordinator does."""
    error_code = group_error_code(error)
    if error_code in _OF_A_PARTITION:
        error_code = _OF_A_PARTITION[error_code]
    if error_code is ErrorCode.coordinator_load_in_progress and version < _LOADING_SINCE:
        return ErrorCode.coordinator_not_available
    if error_code is ErrorCode.group_id_not_found and version < _BY_ID:
        return ErrorCode.illegal_generation
    return error_code


# --- EndTxn: commit or abort a transaction ----------------------------------------------
#
# v2  error PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH
# v3  flexible
# v4  as v3, of clients that know TRANSACTION_ABORTABLE
# v5  the end bumps the epoch; the producer of the next transaction is in the answer (KIP-890)


_BUMPS_EPOCH: Final = 5


@api(ApiKey.END_TXN)
async def end_txn(request: Request[EndTxnRequest], broker: BrokerParts) -> "EndTxnResponse":
    """Commit or abort a transaction. The response precedes the markers."""
    body = request.body
    producer = ProducerIdentity(body.producer_id, body.producer_epoch)
    code, after = await _end(
        broker,
        request.peer,
        request.version,
        body.transactional_id,
        producer,
        commit=body.committed,
    )
    return {"error_code": code, "producer_id": after.id, "producer_epoch": after.epoch}


@shortcut(ApiKey.END_TXN)
def end_single(broker: BrokerParts, peer: Peer, frame: bytes) -> Coroutine[Any, Any, Reply] | None:
    """Commit or abort a transaction without decoding the request by its schema."""
    asked = read_end(frame)
    if asked is None:
        return None
    return _end_single(broker, peer, asked)


async def _end_single(broker: BrokerParts, peer: Peer, asked: SingleEnd) -> Reply:
    version, correlation_id, transactional_id, producer_id, epoch, committed = asked
    producer = ProducerIdentity(producer_id, epoch)
    code, after = await _end(broker, peer, version, transactional_id, producer, commit=committed)
    answers = ended_answers(version)
    if version < _BUMPS_EPOCH:
        return (answers.pack(correlation_id, code),)
    return (answers.pack(correlation_id, code, *after),)


async def _end(
    broker: BrokerParts,
    peer: Peer,
    version: int,
    transactional_id: str,
    producer: ProducerIdentity,
    *,
    commit: bool,
) -> tuple[ErrorCode, ProducerIdentity]:
    """Commit or abort; return the error code, and the producer of the next transaction."""
    flow = SECOND_FLOW if version >= _BUMPS_EPOCH else FIRST_FLOW
    try:
        broker.access.check(peer, ApiKey.END_TXN, TRANSACTIONAL_ID, transactional_id)
        after = await broker.transactions.end(transactional_id, producer, flow, commit=commit)
    except HorologError as error:
        code = transaction_code(error, knows_fenced=version >= _KNOWS_FENCED)
        return code, ProducerIdentity(NONE, NONE)
    return ErrorCode.none, after
