"""The OffsetCommit response for one partition, packed in one step because commits are hot."""

from functools import lru_cache
from struct import Struct
from typing import Final
from uuid import UUID

from horolog.wire.api import ApiKey
from horolog.wire.codec import encode_response
from horolog.wire.templates import AnswerTemplate

__all__ = ["single_committed"]

_SAMPLE: Final = 0x0102_0304, 5


@lru_cache(maxsize=1024)
def single_committed(version: int, name: str, topic_id: UUID | None) -> AnswerTemplate:
    """Packs answers to requests for one partition of a topic: its index, and an error code."""
    index, error_code = _SAMPLE
    partition = {"partition_index": index, "error_code": error_code}
    topic = {"name": name, "topic_id": topic_id, "partitions": [partition]}
    body = encode_response(ApiKey.OFFSET_COMMIT, version, {"topics": [topic]})
    return AnswerTemplate(ApiKey.OFFSET_COMMIT, version, body, Struct(">ih"), _SAMPLE)
