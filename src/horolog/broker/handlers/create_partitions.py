"""CreatePartitions: adds partitions to topics; their number never decreases.

v1  as v0
v2  flexible
v3  throttling errors: never
"""

from collections import Counter
from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.metadata.topics import NewPartitions
from horolog.wire.api import ApiKey
from horolog.wire.requests import CreatePartitionsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        CreatePartitionsResponse,
        CreatePartitionsTopicResult,
    )


@api(ApiKey.CREATE_PARTITIONS)
async def create_partitions(
    request: Request[CreatePartitionsRequest], broker: Broker
) -> "CreatePartitionsResponse":
    """Add partitions to each topic; one result or error each."""
    body = request.body
    named = Counter(topic.name for topic in body.topics)
    left = NewPartitions()
    results: list[CreatePartitionsTopicResult] = []
    for asked in {topic.name: topic for topic in body.topics}.values():
        await request.checkpoint()
        error_code, message = ErrorCode.none, None
        try:
            if named[asked.name] > 1:
                raise RequestRefused(
                    ErrorCode.invalid_request, f"Duplicate topic name: {asked.name}"
                )
            assignments = None
            if asked.assignments is not None:
                assignments = [tuple(assignment.broker_ids) for assignment in asked.assignments]
            topic = broker.topics.named(asked.name)
            left.take(asked.count - len(topic.partitions))
            await broker.controller.create_partitions(
                topic,
                asked.count,
                assignments,
                validate_only=body.validate_only,
            )
        except HorologError as error:
            error_code, message = code_for(error), str(error)
        results.append({"name": asked.name, "error_code": error_code, "error_message": message})
    return {"results": results}
