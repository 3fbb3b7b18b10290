"""ListPartitionReassignments: none, as there is no broker to move a partition to (KIP-455).

v0  flexible from the start
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey
from horolog.wire.requests import ListPartitionReassignmentsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import ListPartitionReassignmentsResponse


@api(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(
    request: Request[ListPartitionReassignmentsRequest], broker: Broker
) -> "ListPartitionReassignmentsResponse":
    """No topic has any, of whatever topics they are asked for, as in Kafka."""
    return {"error_code": ErrorCode.none, "error_message": None, "topics": []}
