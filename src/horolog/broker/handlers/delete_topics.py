"""DeleteTopics: deletes topics with their records, settings and committed offsets.

v1  throttle time; v0 differs in that alone
v3  TOPIC_DELETION_DISABLED; before, INVALID_REQUEST
v4  flexible
v5  error messages
v6  topics by name or id
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

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


_Asked: TypeAlias = tuple[str | None, UUID | None]


@api(ApiKey.DELETE_TOPICS)
async def delete_topics(
    request: Request[DeleteTopicsRequest], broker: Broker
) -> "DeleteTopicsResponse":
    """Delete each topic; one result or error each, and nothing of a topic that is named twice."""
    body = request.body
    if request.version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in body.topics]
    else:
        asked = [(name, None) for name in body.topic_names]
    named_by_both = await _named_by_both(request, broker, asked)
    responses: list[DeletableTopicResult] = []
    for (name, topic_id), count in Counter(asked).items():
        await request.checkpoint()
        if topic_id is not None and topic_id in named_by_both.values():
            continue  # said of its name
        error_code, message = ErrorCode.none, None
        try:
            _check_named(name, topic_id, count)
            if name in named_by_both:
                topic_id = named_by_both[name]
                raise RequestRefused(
                    ErrorCode.invalid_request,
                    "The provided topic name maps to an ID that was already supplied.",
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


async def _named_by_both(
    request: Request[DeleteTopicsRequest], broker: Broker, asked: Sequence[_Asked]
) -> dict[str | None, UUID]:
    """The topics that are asked for by name and by id."""
    ids = {topic_id for name, topic_id in asked if name is None and topic_id is not None}
    found: dict[str | None, UUID] = {}
    for name, topic_id in asked if ids else ():
        await request.checkpoint()
        topic = None if name is None or topic_id is not None else broker.topics.find(name)
        if topic is not None and topic.topic_id in ids:
            found[name] = topic.topic_id
    return found


def _check_named(name: str | None, topic_id: UUID | None, count: int) -> None:
    """Refuse a topic that is not named by one of both, once."""
    if name is not None and topic_id is not None:
        what = "You may not specify both topic name and topic id."
    elif name is None and topic_id is None:
        what = "Neither topic name nor id were specified."
    elif count > 1:
        what = f"Duplicate topic {'name' if topic_id is None else 'id'}."
    else:
        return
    raise RequestRefused(ErrorCode.invalid_request, what)
