"""ElectLeaders: this broker leads every partition, so that no election is needed (KIP-183).

v0  the preferred replica
v1  unclean elections too (KIP-460)
v2  flexible
"""

from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.partition_results import check_each
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire.api import ApiKey
from horolog.wire.requests import ElectLeadersRequest

if TYPE_CHECKING:
    from horolog.wire.responses import ElectLeadersResponse, ReplicaElectionResult

_ELECTION_TYPES: Final = (0, 1)  # preferred, unclean


@api(ApiKey.ELECT_LEADERS)
async def elect_leaders(
    request: Request[ElectLeadersRequest], broker: Broker
) -> "ElectLeadersResponse":
    """ELECTION_NOT_NEEDED for each partition; without topics, nothing was elected, as in Kafka."""
    election_type = request.body.election_type

    def check(partition: int) -> None:
        if election_type not in _ELECTION_TYPES:
            raise RequestRefused(
                ErrorCode.invalid_request, f"Unknown election type {election_type}"
            )
        raise RequestRefused(
            ErrorCode.election_not_needed, "Leader election not needed for topic partition."
        )

    results: list[ReplicaElectionResult] = []
    for topic in request.body.topic_partitions or ():
        await request.checkpoint()
        checked = await check_each(request, broker, topic.topic, topic.partitions, int, check)
        results.append(
            {
                "topic": topic.topic,
                "partition_result": [
                    {"partition_id": index, "error_code": error_code, "error_message": message}
                    for index, error_code, message in checked
                ],
            }
        )
    is_known = election_type in _ELECTION_TYPES
    return {
        "error_code": ErrorCode.none if is_known else ErrorCode.invalid_request,
        "replica_election_results": results,
    }
