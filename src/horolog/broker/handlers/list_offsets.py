"""ListOffsets: which offset holds a given moment?

v1   one offset and its timestamp per partition (KIP-79)
v2   isolation level: committed readers end at the last stable offset, others at the high watermark
v4   leader epochs
v6   flexible
v7   timestamp -3: the record with the largest timestamp (KIP-734)
v8   -4: the earliest offset on this broker's own disk (KIP-405)
v9   -5: the last offset on remote storage (KIP-1005), of which there is none
v10  the client's timeout: not needed
v11  -6: the first offset not yet on remote storage (KIP-1023), of which there is none
"""

from collections import Counter
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any, Final, NamedTuple

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.partition import Partition
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.storage.files import WouldWait
from horolog.storage.lookup import TimestampOffset
from horolog.wire.api import ApiKey
from horolog.wire.fetch import READ_COMMITTED

FEW_SEARCHES: Final = 4  # of a tenth of a millisecond each: that many the event loop does itself


class Moment(IntEnum):
    """Timestamps that mean something else."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class _Found(NamedTuple):
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


_NOTHING = _Found()
_SINCE = {
    Moment.LATEST: 1,
    Moment.EARLIEST: 1,
    Moment.MAX_TIMESTAMP: 7,
    Moment.EARLIEST_LOCAL: 8,
    Moment.LATEST_TIERED: 9,
    Moment.EARLIEST_PENDING_UPLOAD: 11,
}


@api(ApiKey.LIST_OFFSETS)
def list_offsets(
    request: Request, broker: Broker
) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]:
    """An answer for each partition; found in a thread if the disk may have to be waited for."""
    wanted = [
        partition.timestamp for topic in request.body.topics for partition in topic.partitions
    ]
    searches = sum(time >= 0 for time in wanted)
    if Moment.MAX_TIMESTAMP in wanted or searches > FEW_SEARCHES:
        return _in_thread(request, broker)
    if not searches:
        return _answers(request, broker)
    try:
        return broker.partitions.at_once(lambda: _answers(request, broker))
    except WouldWait:
        return _in_thread(request, broker)


async def _in_thread(request: Request, broker: Broker) -> dict[str, Any]:
    return await broker.searchers.run(request.peer, lambda: _answers(request, broker))


def _answers(request: Request, broker: Broker) -> dict[str, Any]:
    committed = getattr(request.body, "isolation_level", 0) == READ_COMMITTED
    topics = []
    for topic in request.body.topics:
        asked = Counter(wanted.partition_index for wanted in topic.partitions)
        answers = []
        for wanted in topic.partitions:
            try:
                if asked[wanted.partition_index] > 1:
                    raise RequestRefused(
                        ErrorCode.invalid_request, "a partition is asked for twice"
                    )
                partition = _partition(broker, topic.name, wanted)
                found = _look(partition, wanted.timestamp, request.version, committed)
                answers.append(_answer(wanted, ErrorCode.none, found))
            except HorologError as error:
                answers.append(_answer(wanted, code_for(error), _NOTHING))
        topics.append({"name": topic.name, "partitions": answers})
    return {"topics": topics}


def _partition(broker: Broker, topic: str, wanted: Any) -> Partition:
    partition = broker.partition(topic, wanted.partition_index)
    error = partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))
    if error is not None:
        raise error
    return partition


def _look(partition: Partition, timestamp: int, version: int, committed: bool) -> _Found:
    end_offset = partition.readable_end(committed=committed)
    if timestamp >= 0:
        return _before(end_offset, partition.find_by_timestamp(timestamp))
    if version < _SINCE.get(timestamp, version + 1):  # type: ignore[call-overload]
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"timestamp {timestamp} has no meaning in version {version}",
        )
    match timestamp:
        case Moment.LATEST:
            return _Found(-1, end_offset, partition.leader_epoch)
        case Moment.MAX_TIMESTAMP:
            return _before(end_offset, partition.find_max_timestamp())
        case Moment.EARLIEST | Moment.EARLIEST_LOCAL:
            return _Found(-1, partition.log_start_offset, partition.start_epoch)
        case _:
            return _NOTHING


def _before(end_offset: int, found: TimestampOffset | None) -> _Found:
    """A record, unless a consumer cannot fetch it yet."""
    return _NOTHING if found is None or found.offset >= end_offset else _Found(*found)


def _answer(wanted: Any, error_code: ErrorCode, found: _Found) -> dict[str, Any]:
    return {
        "partition_index": wanted.partition_index,
        "error_code": error_code,
        "timestamp": found.timestamp,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }
