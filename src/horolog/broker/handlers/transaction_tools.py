"""Requests of tools that inspect transactions, and end hanging ones (KIP-664)."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from horolog.broker.authorisation import CLUSTER, TOPIC, TRANSACTIONAL_ID
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.handlers.replicated import Replicating, check_in_sync, unreplicated
from horolog.broker.handlers.results import PartOutcome, apart_if, each
from horolog.broker.partition import Partition
from horolog.broker.scheduling.codec_threads import Checkpoint
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.patterns import name_pattern
from horolog.record.markers import TransactionEnd
from horolog.rights.entries import CLUSTER_NAME
from horolog.schemas.transactions import SECOND_FLOW
from horolog.storage.logs.appendable import Appended
from horolog.storage.names import TopicPartition
from horolog.storage.producers.states import ActiveProducer
from horolog.transactions.values import NONE, STATUS_NAMES, CoordinatedTransaction
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DescribeProducersResponse,
        DescribeTransactionsResponse,
        ListTransactionsResponse,
        ListTransactionsTransactionState,
        PartitionResponse,
        TopicResponse,
        TransactionState,
        WritableTxnMarkerPartitionResult,
        WritableTxnMarkerResult,
        WritableTxnMarkerTopicResult,
        WriteTxnMarkersResponse,
    )

# --- DescribeProducers: who writes to partitions, and where their open transactions began (KIP-664)
#
# v0  flexible
#
# A partition that is named several times is described each time, as by Apache Kafka. But once
# `MOST_AGAIN` producers were repeated, it gets INVALID_REQUEST: the answer to a small request would
# have no bounds.


MOST_AGAIN: Final = 10_000
"""Most producers that a response repeats."""
_MANY_PRODUCERS: Final = 1_000  # producers
_NAME_EACH_ONCE: Final = "name each partition once in a request"


@api(ApiKey.DESCRIBE_PRODUCERS)
async def describe_producers(
    request: Request[DescribeProducersRequest], broker: BrokerParts
) -> "DescribeProducersResponse | Apart":
    """List the producers of each partition that this broker has."""
    count = again = 0
    known: dict[TopicPartition, PartitionResponse] = {}
    topics: list[TopicResponse] = []
    for asked in request.body.topics:
        partitions: list[PartitionResponse] = []
        async for index in each(request, asked.partition_indexes):
            key = TopicPartition(asked.name, index)
            answer = known.get(key)
            if answer is None:
                answer = known[key] = await _producers_of(request, broker, asked.name, index)
            else:
                again += len(answer["active_producers"])
                if again > MOST_AGAIN:
                    answer = _partition(
                        index, PartOutcome(ErrorCode.invalid_request, _NAME_EACH_ONCE)
                    )
            count += len(answer["active_producers"])
            partitions.append(answer)
        topics.append({"name": asked.name, "partitions": partitions})
    response: DescribeProducersResponse = {"topics": topics}
    return Apart(lambda _: response) if count > _MANY_PRODUCERS else response


def _partition(
    index: int, outcome: PartOutcome, producers: Sequence[ActiveProducer] = ()
) -> "PartitionResponse":
    return {
        "partition_index": index,
        "error_code": outcome.error_code,
        "error_message": outcome.message,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.first_open_offset,
            }
            for producer in producers
        ],
    }


async def _producers_of(
    request: Request[DescribeProducersRequest], broker: BrokerParts, name: str, index: int
) -> "PartitionResponse":
    try:
        broker.access.check(request.peer, ApiKey.DESCRIBE_PRODUCERS, TOPIC, name)
        partition = _replica(broker, name, index)
        producers = await partition.change(lambda log: log.producers.active())
        return _partition(index, PartOutcome(), producers)
    except HorologError as error:
        return _partition(index, PartOutcome(code_for(error), str(error)))


def _led_partition(broker: BrokerParts, name: str, index: int) -> Partition:
    """Return a partition that this broker leads.

    Raises:
        RequestRefused, StorageFailed: it is not served here, or another cluster leads it.
    """
    return broker.placement.writable(broker.topics.named(name), index)


def _replica(broker: BrokerParts, name: str, index: int) -> Partition:
    """Return a partition that this broker leads, or follows in a cluster.

    Kafka's tools ask one broker about all its replicas.

    Raises:
        RequestRefused, StorageFailed: it is not served here, or another cluster leads it.
    """
    replica = None if broker.cluster is None else broker.partitions.find(name, index)
    return _led_partition(broker, name, index) if replica is None else replica


# --- ListTransactions: all transactional ids that pass the filters (KIP-664) ------------
#
# v1  for how long a transaction has been open (KIP-994)
# v2  a pattern of the transactional id (KIP-1152): INVALID_REGULAR_EXPRESSION if it is none, or
#     would take seconds for the ids that pass the other filters


_STATUSES: Final = {name: status for status, name in STATUS_NAMES.items()}
_MANY_LISTED: Final = 1_000


@api(ApiKey.LIST_TRANSACTIONS)
def list_transactions(
    request: Request[ListTransactionsRequest], broker: BrokerParts
) -> "ListTransactionsResponse | Apart":
    """List transactional ids that pass every filter; one value of a filter must match."""
    try:
        sees = partial(broker.access.sees, request.peer, AclOperation.DESCRIBE, TRANSACTIONAL_ID)
        found = [it for it in broker.transactions.all() if sees(it[0])]
    except HorologError as error:
        return {
            "error_code": code_for(error),
            "unknown_state_filters": [],
            "transaction_states": [],
        }
    filters = len(request.body.state_filters) + len(request.body.producer_id_filters)
    is_large = max(len(found), filters) > _MANY_LISTED or request.body.transactional_id_pattern
    return apart_if(bool(is_large), partial(_answer, request.body, found))


def _answer(
    body: ListTransactionsRequest,
    found: list[tuple[str, CoordinatedTransaction, int]],
    checkpoint: Checkpoint,
) -> "ListTransactionsResponse":
    states = {_STATUSES[name] for name in body.state_filters if name in _STATUSES}
    unknown = [name for name in dict.fromkeys(body.state_filters) if name not in _STATUSES]
    producers = set(body.producer_id_filters)
    chosen: list[tuple[str, CoordinatedTransaction]] = []
    for transactional_id, transaction, open_ms in found:
        checkpoint()
        if (
            (not body.state_filters or transaction.status in states)
            and (not producers or transaction.producer.id in producers)
            and (body.duration_filter < 0 or open_ms > body.duration_filter)
        ):
            chosen.append((transactional_id, transaction))
    try:
        pattern = (
            name_pattern(body.transactional_id_pattern) if body.transactional_id_pattern else None
        )
        if pattern is not None and pattern.is_slow_for(each for each, _ in chosen):
            raise ValueError("it takes too long")
    except ValueError:
        return {
            "error_code": ErrorCode.invalid_regular_expression,
            "unknown_state_filters": unknown,
            "transaction_states": [],
        }
    listed: list[ListTransactionsTransactionState] = []
    for transactional_id, transaction in chosen:
        checkpoint()
        if pattern is None or pattern.matches(transactional_id):
            listed.append(
                {
                    "transactional_id": transactional_id,
                    "producer_id": transaction.producer.id,
                    "transaction_state": STATUS_NAMES[transaction.status],
                }
            )
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": unknown,
        "transaction_states": listed,
    }


# --- DescribeTransactions: the states of transactional ids (KIP-664) --------------------


@api(ApiKey.DESCRIBE_TRANSACTIONS)
async def describe_transactions(
    request: Request[DescribeTransactionsRequest], broker: BrokerParts
) -> "DescribeTransactionsResponse":
    """Describe each id: its producer, and the partitions and start of its open transaction."""
    asked = dict.fromkeys(request.body.transactional_ids)
    return {
        "transaction_states": [
            _described(request, broker, transactional_id)
            async for transactional_id in each(request, asked)
        ]
    }


def _described(
    request: Request[DescribeTransactionsRequest], broker: BrokerParts, transactional_id: str
) -> "TransactionState":
    access, peer = broker.access, request.peer
    try:
        access.check(peer, ApiKey.DESCRIBE_TRANSACTIONS, TRANSACTIONAL_ID, transactional_id)
        transaction = broker.transactions.describe(transactional_id)
    except HorologError as error:
        return {
            "error_code": code_for(error),
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_timeout_ms": 0,
            "transaction_start_time_ms": 0,
            "producer_id": 0,
            "producer_epoch": 0,
            "topics": [],
        }
    return {
        "error_code": ErrorCode.none,
        "transactional_id": transactional_id,
        "transaction_state": STATUS_NAMES[transaction.status],
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_start_time_ms": transaction.started_ms if transaction.is_open else NONE,
        "producer_id": transaction.producer.id,
        "producer_epoch": transaction.producer.epoch,
        "topics": [
            {"topic": topic, "partitions": indexes}
            for topic, indexes in transaction.topics().items()
            if access.sees(peer, AclOperation.DESCRIBE, TOPIC, topic)
        ],
    }


# --- WriteTxnMarkers: ends transactions in partitions, as a tool does where one hangs (KIP-664)
#
# v1  flexible
# v2  the transaction version: from 2 on a marker has an epoch of its own (KIP-1228)
#
# The coordinator of this broker ends its transactions without it. Tools do so for one that hangs.
# In a partition of `__consumer_offsets` the offsets that are pending there count from then on, or
# never. In a cluster the coordinators of other brokers send it, and are answered once the in-sync
# replicas have the markers.


_REPLICATED_WITHIN_MS: Final = 30_000
"""Longest wait for in-sync replicas, as `request.timeout.ms` of Kafka's brokers."""


@api(ApiKey.WRITE_TXN_MARKERS)
async def write_txn_markers(
    request: Request[WriteTxnMarkersRequest], broker: BrokerParts
) -> "WriteTxnMarkersResponse":
    """Append markers, one after the other, and wait for in-sync replicas."""
    access, peer, api_key = broker.access, request.peer, ApiKey.WRITE_TXN_MARKERS
    is_allowed = access.sees(peer, AclOperation.ALTER, CLUSTER, CLUSTER_NAME) or access.allows(
        peer, api_key, CLUSTER, CLUSTER_NAME
    )
    waiting: dict[Partition, Replicating] = {}
    answers: list[tuple[WritableTxnMarkerPartitionResult, Partition | None]] = []
    results: list[WritableTxnMarkerResult] = []
    for marker in request.body.markers:
        topics: list[WritableTxnMarkerTopicResult] = []
        for topic in marker.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            async for index in each(request, topic.partition_indexes):
                code, partition = ErrorCode.cluster_authorization_failed, None
                if is_allowed:
                    code, partition = await _write(broker, marker, topic.name, index, waiting)
                partitions.append({"partition_index": index, "error_code": code})
                answers.append((partitions[-1], partition))
            topics.append({"name": topic.name, "partitions": partitions})
        results.append({"producer_id": marker.producer_id, "topics": topics})
    if waiting:
        refusals = await unreplicated(broker, request.peer, waiting, _REPLICATED_WITHIN_MS)
        request.has_waited()
        for answer, partition in answers:
            if partition is not None and partition in refusals:
                answer["error_code"] = code_for(refusals[partition])
    return {"markers": results}


async def _write(
    broker: BrokerParts,
    marker: WritableTxnMarker,
    name: str,
    index: int,
    waiting: dict[Partition, Replicating],
) -> tuple[ErrorCode, Partition | None]:
    """Append one marker; a partition with other replicas is added to `waiting`, and returned.

    The coordinators of a cluster are other brokers: in a partition of `__consumer_offsets` nothing
    is pending here.
    """
    try:
        partition = _led_partition(broker, name, index)  # or it is refused
        ended = TransactionEnd(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version >= SECOND_FLOW,
        )
        if broker.replicas is None:
            writing = broker.markers.end(TopicPartition(name, index), ended)
            if writing is not None:
                await writing
            return ErrorCode.none, None
        leading = partition.replicas()
        if leading is not None:
            check_in_sync(partition, leading)
        appended = partition.append(ended, broker.clock.now_ms())
        if not isinstance(appended, Appended):
            appended = await appended
        if leading is None:
            return ErrorCode.none, None
        waiting[partition] = Replicating(appended.next_offset, leading)
        return ErrorCode.none, partition
    except HorologError as error:
        return code_for(error), None
