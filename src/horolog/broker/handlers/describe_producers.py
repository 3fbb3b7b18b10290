"""DescribeProducers: who writes to partitions, and where their open transactions began (KIP-664).

v0  flexible

A partition that is named several times is described each time, as by Apache Kafka. But once
`MOST_AGAIN` producers were repeated, it gets INVALID_REQUEST: the answer to a small request would
have no bounds.
"""

from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.placement import not_leader
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.offsets import TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.requests import DescribeProducersRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DescribeProducersResponse,
        PartitionResponse,
        TopicResponse,
    )

MOST_AGAIN: Final = 10_000
"""Producers in an answer that has them already."""
_MANY: Final = 1_000  # producers


@api(ApiKey.DESCRIBE_PRODUCERS)
async def describe_producers(
    request: Request[DescribeProducersRequest], broker: Broker
) -> "DescribeProducersResponse | Apart":
    """List the producers of each partition that is led here."""
    count = again = 0
    known: dict[TopicPartition, PartitionResponse] = {}
    topics: list[TopicResponse] = []
    for asked in request.body.topics:
        partitions: list[PartitionResponse] = []
        for index in asked.partition_indexes:
            await request.checkpoint()
            answer = known.get((asked.name, index))
            if answer is None:
                answer = known[asked.name, index] = await _of_partition(broker, asked.name, index)
            else:
                again += len(answer["active_producers"])
                if again > MOST_AGAIN:
                    answer = _named_too_often(index)
            count += len(answer["active_producers"])
            partitions.append(answer)
        topics.append({"name": asked.name, "partitions": partitions})
    response: DescribeProducersResponse = {"topics": topics}
    return Apart(lambda _: response) if count > _MANY else response


def _named_too_often(index: int) -> "PartitionResponse":
    return {
        "partition_index": index,
        "error_code": ErrorCode.invalid_request,
        "error_message": "name each partition once in a request",
        "active_producers": [],
    }


async def _of_partition(broker: Broker, name: str, index: int) -> "PartitionResponse":
    try:
        partition = broker.partition(name, index)
        topic = broker.topics.find(name)
        if topic is not None and topic.followed:
            raise not_leader(topic)
        found = await partition.active_producers()
    except HorologError as error:
        return {
            "partition_index": index,
            "error_code": code_for(error),
            "error_message": str(error),
            "active_producers": [],
        }
    return {
        "partition_index": index,
        "error_code": 0,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": each.last_timestamp,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.first_open_offset,
            }
            for each in found
        ],
    }
