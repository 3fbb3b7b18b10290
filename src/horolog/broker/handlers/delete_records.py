"""DeleteRecords: let partitions begin later (KIP-107).

v1  as v0
v2  flexible
"""

import logging
from typing import Any, NamedTuple

from horolog.broker.broker import Broker
from horolog.broker.controller import check_owned
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, StorageFailed, code_for
from horolog.wire.api import ApiKey

_LOG = logging.getLogger(__name__)


@api(ApiKey.DELETE_RECORDS)
async def delete_records(request: Request, broker: Broker) -> dict[str, Any]:
    """Each partition, or why not; -1 deletes all there is now.

    The answer has a code for each partition and no message, so the log says why a policy refuses.
    Answered when it is written down where the logs start. Kafka writes that now and then, and what
    was deleted is back after a kill.
    """
    topics = []
    for topic in request.body.topics:
        reasons: set[str] = set()
        deleted = [await _delete(broker, topic.name, p, reasons) for p in topic.partitions]
        topics.append((topic.name, deleted))
        for reason in sorted(reasons):
            _LOG.warning("DeleteRecords of %s: %s", topic.name, reason)
    if any(low_watermark >= 0 for _, deleted in topics for _, low_watermark, _ in deleted):
        try:
            await broker.partitions.checkpoint_starts()
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


async def _delete(broker: Broker, topic: str, wanted: Any, reasons: set[str]) -> _Deleted:
    """The log start offset after it; `reasons` takes why a policy forbids it."""
    try:
        partition = broker.partition(topic, wanted.partition_index)
        check_owned(broker.topics.named(topic))
        start = await partition.delete_records(wanted.offset)
    except HorologError as error:
        code = code_for(error)
        if code == ErrorCode.policy_violation:
            reasons.add(str(error))
        return _Deleted(wanted.partition_index, -1, code)
    return _Deleted(wanted.partition_index, start, ErrorCode.none)


def _not_written_down(outcome: _Deleted, error: StorageFailed) -> _Deleted:
    """They are gone for readers, but a kill would bring them back: the client is to try again."""
    if outcome.error_code:
        return outcome
    return outcome._replace(low_watermark=-1, error_code=code_for(error))
