"""AlterPartitionReassignments: each partition stays on this broker, the only one (KIP-455).

v0  flexible from the start
v1  whether the number of replicas may change (KIP-860)
"""

from operator import attrgetter
from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.partition_results import check_each
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire.api import ApiKey
from horolog.wire.requests import AlterPartitionReassignmentsRequest, ReassignablePartition

if TYPE_CHECKING:
    from horolog.wire.responses import (
        AlterPartitionReassignmentsResponse,
        ReassignableTopicResponse,
    )


@api(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
async def alter_partition_reassignments(
    request: Request[AlterPartitionReassignmentsRequest], broker: Broker
) -> "AlterPartitionReassignmentsResponse":
    """An assignment to this broker changes nothing; there is none to cancel and no other broker."""
    here = broker.config.node_id

    def check(partition: ReassignablePartition) -> None:
        if partition.replicas is None:
            raise RequestRefused(
                ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress."
            )
        if list(partition.replicas) != [here]:
            raise RequestRefused(
                ErrorCode.invalid_replica_assignment,
                f"the replicas of a partition are [{here}]: broker {here} is the only one",
            )

    responses: list[ReassignableTopicResponse] = []
    for topic in request.body.topics:
        await request.checkpoint()
        checked = await check_each(
            request, broker, topic.name, topic.partitions, attrgetter("partition_index"), check
        )
        responses.append(
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": error_code, "error_message": message}
                    for index, error_code, message in checked
                ],
            }
        )
    return {
        "allow_replication_factor_change": request.body.allow_replication_factor_change,
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": responses,
    }
