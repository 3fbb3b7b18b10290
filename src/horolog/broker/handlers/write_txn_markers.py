"""WriteTxnMarkers: ends transactions in partitions, as a tool does where one hangs (KIP-664).

v1  flexible
v2  the transaction version: from 2 on a marker has an epoch of its own (KIP-1228)

The coordinator of this broker ends its transactions without it. Tools do so for one that hangs. In
a partition of `__consumer_offsets` the offsets that are pending there count from then on, or never.
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.placement import not_leader
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.record.markers import TransactionEnd
from horolog.schemas.transactions import SECOND_FLOW
from horolog.storage.names import TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.requests import WritableTxnMarker, WriteTxnMarkersRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        WritableTxnMarkerPartitionResult,
        WritableTxnMarkerResult,
        WritableTxnMarkerTopicResult,
        WriteTxnMarkersResponse,
    )


@api(ApiKey.WRITE_TXN_MARKERS)
async def write_txn_markers(
    request: Request[WriteTxnMarkersRequest], broker: Broker
) -> "WriteTxnMarkersResponse":
    """Append the markers, one after the other."""
    results: list[WritableTxnMarkerResult] = []
    for marker in request.body.markers:
        topics: list[WritableTxnMarkerTopicResult] = []
        for topic in marker.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            for index in topic.partition_indexes:
                await request.checkpoint()
                code = await _write(broker, marker, topic.name, index)
                partitions.append({"partition_index": index, "error_code": code})
            topics.append({"name": topic.name, "partitions": partitions})
        results.append({"producer_id": marker.producer_id, "topics": topics})
    return {"markers": results}


async def _write(broker: Broker, marker: WritableTxnMarker, name: str, index: int) -> ErrorCode:
    try:
        broker.partition(name, index)  # or it is refused
        topic = broker.topics.find(name)
        if topic is not None and topic.followed:
            raise not_leader(topic)
        ended = TransactionEnd(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version >= SECOND_FLOW,
        )
        writing = broker.markers.end(TopicPartition(name, index), ended)
        if writing is not None:
            await writing
    except HorologError as error:
        return code_for(error)
    return ErrorCode.none
