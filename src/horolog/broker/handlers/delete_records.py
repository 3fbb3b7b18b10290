"""DeleteRecords: let partitions begin later (KIP-107).

v1  as v0
v2  flexible
"""

from typing import Any, NamedTuple

from horolog.broker.broker import Broker
from horolog.broker.controller import check_owned
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, StorageFailed, code_for
from horolog.wire.api import ApiKey


@api(ApiKey.DELETE_RECORDS)
async def delete_records(request: Request, broker: Broker) -> dict[str, Any]:
    """Each partition, or why not; -1 deletes all there is now.

    Answered when it is written down where the logs start. Kafka writes that now and then, and what
    was deleted is back after a kill.
    """
    topics = [
        (topic.name, [await _delete(broker, topic.name, p) for p in topic.partitions])
        for topic in request.body.topics
    ]
    if any(low_watermark >= 0 for _, deleted in topics for _, low_watermark, _ in deleted):
        try:
            await broker.checkpoint_starts()
        except StorageFailed as error:
            topics = [
                (name, [_not_written_down(outcome, error) for outcome in deleted])
                for name, deleted in topics
            ]
    return {
        "topics": [
            {"name": name, "partitions": [outcome._asdict() for outcome in deleted]}
            for name, deleted in topics
        ]
    }


class _Deleted(NamedTuple):
    partition_index: int
    low_watermark: int
    error_code: ErrorCode


async def _delete(broker: Broker, topic: str, wanted: Any) -> _Deleted:
    try:
        partition = broker.partition(topic, wanted.partition_index)
        check_owned(broker.topics.named(topic))
        start = await partition.run(lambda: partition.log.delete_records(wanted.offset))
    except HorologError as error:
        return _Deleted(wanted.partition_index, -1, code_for(error))
    return _Deleted(wanted.partition_index, start, ErrorCode.none)


def _not_written_down(outcome: _Deleted, error: StorageFailed) -> _Deleted:
    """They are gone for readers, but a kill would bring them back: the client is to try again."""
    if outcome.error_code:
        return outcome
    return outcome._replace(low_watermark=-1, error_code=code_for(error))
