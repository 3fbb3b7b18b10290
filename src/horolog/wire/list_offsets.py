"""The ListOffsets response for one partition, packed in one step because lookups are hot.

v1   topics[name, partitions[index i32, error_code i16, timestamp i64, offset i64]]
v2   throttle_time_ms i32, before the topics
v4   leader_epoch i32, after the offset
v6   compact lengths, tagged fields
"""

from functools import lru_cache
from struct import Struct
from typing import Final

from horolog.wire.api import ApiKey
from horolog.wire.codec import encode_response
from horolog.wire.templates import AnswerTemplate

__all__ = ["single_answers"]

_EPOCH_FROM: Final = 4
_SAMPLE: Final = 0x0102_0304, 5, 0x0102_0304_0506_0708, -2, -3


@lru_cache(maxsize=1024)
def single_answers(version: int, name: str) -> AnswerTemplate:
    """Return the template of answers for one partition of a topic, from version 1.

    The numbers are the partition's index, an error code, the timestamp in milliseconds, the offset
    and the leader epoch, which versions before 4 do not have.
    """
    index, error_code, timestamp, offset, leader_epoch = _SAMPLE
    partition = {
        "partition_index": index,
        "error_code": error_code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": leader_epoch,
    }
    response = {"topics": [{"name": name, "partitions": [partition]}]}
    body = encode_response(ApiKey.LIST_OFFSETS, version, response)
    if version < _EPOCH_FROM:
        return AnswerTemplate(ApiKey.LIST_OFFSETS, version, body, Struct(">ihqq"), _SAMPLE[:4])
    return AnswerTemplate(ApiKey.LIST_OFFSETS, version, body, Struct(">ihqqi"), _SAMPLE)
