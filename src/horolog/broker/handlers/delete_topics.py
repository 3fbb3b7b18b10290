"""DeleteTopics: deletes topics with their records, settings and committed offsets.

v1  throttle time; v0 differs in that alone
v3  TOPIC_DELETION_DISABLED; before, INVALID_REQUEST
v4  flexible
v5  error messages
v6  topics by name or id
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.wire.api import ApiKey
from horolog.wire.requests import DeleteTopicsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DeletableTopicResult,
        DeleteTopicsResponse,
    )


@api(ApiKey.DELETE_TOPICS)
async def delete_topics(
    request: Request[DeleteTopicsRequest], broker: Broker
) -> "DeleteTopicsResponse":
    """Delete each topic; one result or error each."""
    body = request.body
    if request.version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in body.topics]
    else:
        asked = [(name, None) for name in body.topic_names]
    responses: list[DeletableTopicResult] = []
    for name, topic_id in asked:
        await request.checkpoint()
        error_code, message = ErrorCode.none, None
        try:
            if name is not None and topic_id is not None:
                raise RequestRefused(
                    ErrorCode.invalid_request, "You may not specify both topic name and topic id."
                )
            topics = broker.topics
            topic = topics.named(name) if topic_id is None else topics.with_id(topic_id)
            name, topic_id = topic.name, topic.topic_id
            await broker.controller.delete_topic(topic)
        except HorologError as error:
            error_code, message = code_for(error), str(error)
            if error_code is ErrorCode.topic_deletion_disabled and request.version < 3:
                error_code = ErrorCode.invalid_request
        responses.append(
            {
                "name": name,
                "topic_id": topic_id,
                "error_code": error_code,
                "error_message": message,
            }
        )
    return {"responses": responses}
