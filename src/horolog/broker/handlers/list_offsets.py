"""ListOffsets: offsets by timestamp, and the special timestamps (KIP-79, KIP-734).

v0   offsets of segments by the modification times of their files, descending; times of records do
     not count (LATEST and EARLIEST mean the same as later)
v1   one offset and its timestamp per partition (KIP-79)
v2   isolation level: committed readers end at the last stable offset, others at the high watermark
v4   leader epochs
v6   flexible
v7   timestamp -3: the record with the largest timestamp (KIP-734)
v8   -4: the earliest offset on this broker's own disk (KIP-405)
v9   -5: the last offset on remote storage (KIP-1005), of which there is none
v10  the client's timeout: not needed
v11  -6: the first offset not yet on remote storage (KIP-1023), of which there is none

Where the topic stores format v0 (`message.format.version`), a search for a time of records is
refused (43), whatever older segments hold.

In a cluster a replica is given the log end. A new leader answers consumers OFFSET_NOT_AVAILABLE for
the latest offset until its high watermark has reached the start of its epoch (KIP-207).

With one of horolog's flags in the isolation level (v2 and later) each timestamp is a time, below
zero too: of create times, or of append times (docs/wire.md).
"""

from collections import Counter
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from horolog.broker.authorisation import TOPIC
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api, shortcut
from horolog.broker.handlers.results import each
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.lookup.by_timestamp import TimestampOffset
from horolog.wire.api import ApiKey
from horolog.wire.features import BY_APPEND_TIME, BY_CREATE_TIME, UNKNOWN_TIME
from horolog.wire.fetch import READ_COMMITTED
from horolog.wire.list_offsets import single_answers
from horolog.wire.requests import ListOffsetsPartition, ListOffsetsRequest
from horolog.wire.single_partition import SingleLookup, read_lookup

if TYPE_CHECKING:
    from horolog.wire.responses import (
        ListOffsetsPartitionResponse,
        ListOffsetsResponse,
        ListOffsetsTopicResponse,
    )

T = TypeVar("T")

_FLAGS: Final = BY_APPEND_TIME | BY_CREATE_TIME
AT_ONCE: Final = 100  # partitions; a search of each takes a tenth of a millisecond
_CONSUMER: Final = -1
"""Replica id of consumers. As in Kafka all others, also that of debuggers, see the log end."""
_UNAVAILABLE_SINCE: Final = 5
_EPOCH_FROM: Final = 4  # of versions, whose answers have the leader epoch
_INT64_MAX: Final = (1 << 63) - 1
FEW_SEARCHES: Final = 4  # of a tenth of a millisecond each: that many the event loop does itself


class SpecialTimestamp(IntEnum):
    """Timestamps with a special meaning."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class Asked(NamedTuple):
    """Fields of a request that are the same for all partitions of a topic."""

    version: int
    isolation_level: int
    topic: str
    is_replica: bool = False


class Found(NamedTuple):
    """Response about one partition, from version 1 on."""

    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


_NOTHING: Final = Found()
_SINCE: Final[Mapping[int, int]] = {
    SpecialTimestamp.LATEST: 0,
    SpecialTimestamp.EARLIEST: 0,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}


@api(ApiKey.LIST_OFFSETS)
async def list_offsets(
    request: Request[ListOffsetsRequest], broker: BrokerParts
) -> "ListOffsetsResponse":
    """Look up each partition, in a thread if the lookup may block.

    A partition that the request contains more than once is refused.
    """
    times: Counter[tuple[str, int]] = Counter()
    for topic in request.body.topics:
        await request.checkpoint()
        times.update((topic.name, partition.partition_index) for partition in topic.partitions)
    repeated = {partition for partition, count in times.items() if count > 1}
    topics: list[ListOffsetsTopicResponse] = []
    is_replica = broker.replicas is not None and request.body.replica_id != _CONSUMER
    for topic in request.body.topics:
        asked = Asked(request.version, request.body.isolation_level, topic.name, is_replica)
        answers: list[ListOffsetsPartitionResponse] = []
        if not broker.access.allows(request.peer, ApiKey.LIST_OFFSETS, TOPIC, topic.name):
            denied = Found(ErrorCode.topic_authorization_failed)
            topics.append(
                {
                    "name": topic.name,
                    "partitions": [
                        _answer(one.partition_index, denied)
                        async for one in each(request, topic.partitions)
                    ],
                }
            )
            continue
        for start in range(0, len(topic.partitions), AT_ONCE):
            await request.checkpoint()
            some = topic.partitions[start : start + AT_ONCE]
            find = partial(_find_some, broker, asked, some, repeated)
            found = found_at_once(broker, asked, [one.timestamp for one in some], find)
            if found is None:
                found = await broker.searchers.run(request.peer, find)
            answers += found
        topics.append({"name": topic.name, "partitions": answers})
    return {"topics": topics}


@shortcut(ApiKey.LIST_OFFSETS)
def look_up_single(
    broker: BrokerParts, peer: Peer, frame: bytes
) -> Reply | Coroutine[Any, Any, Reply] | None:
    """Look up one partition without decoding by the schema; None for a request of another form."""
    requested = read_lookup(frame)
    if requested is None:
        return None
    version, _, isolation_level, name, index, leader_epoch, timestamp = requested
    access = broker.access
    if access.rights is not None and not access.allows(peer, ApiKey.LIST_OFFSETS, TOPIC, name):
        return _packed(requested, Found(ErrorCode.topic_authorization_failed))
    asked = Asked(version, isolation_level, name)
    look = partial(find, broker, asked, index, leader_epoch, timestamp)
    found = found_at_once(broker, asked, (timestamp,), look)
    return (
        _look_in_thread(broker, peer, look, requested)
        if found is None
        else _packed(requested, found)
    )


async def _look_in_thread(
    broker: BrokerParts, peer: Peer, look: Callable[[], Found], requested: SingleLookup
) -> Reply:
    return _packed(requested, await broker.searchers.run(peer, look))


def _packed(requested: SingleLookup, found: Found) -> Reply:
    version, correlation_id, _, name, index = requested[:5]
    numbers = found if version >= _EPOCH_FROM else found[:-1]
    return (single_answers(version, name).pack(correlation_id, index, *numbers),)


def found_at_once(
    broker: BrokerParts, asked: Asked, timestamps: Sequence[int], find: Callable[[], T]
) -> T | None:
    """Run `find` on the event loop; None if it may block or take long."""
    searches = 0
    for timestamp in timestamps:
        if timestamp >= 0:
            searches += 1
        elif timestamp == SpecialTimestamp.MAX_TIMESTAMP:
            return None
    if (
        asked.version == 0  # asks the file system about every segment
        or asked.isolation_level & _FLAGS
        or searches > FEW_SEARCHES
    ):
        return None
    if not searches:
        return find()
    inline = broker.partitions.inline_lookups
    if not inline.is_due(asked.topic):
        return None
    try:
        found = broker.partitions.without_blocking(find)
    except WouldBlock:
        inline.failed(asked.topic)
        return None
    inline.succeeded(asked.topic)
    return found


def _find_some(
    broker: BrokerParts,
    asked: Asked,
    requested: Sequence[ListOffsetsPartition],
    repeated: Container[tuple[str, int]],
) -> "list[ListOffsetsPartitionResponse]":
    answers = []
    for one in requested:
        index = one.partition_index
        if (asked.topic, index) in repeated:
            answers.append(_answer(index, Found(ErrorCode.invalid_request)))
        elif asked.version == 0:
            answers.append(_find_v0(broker, asked.topic, one))
        else:
            found = find(broker, asked, index, one.current_leader_epoch, one.timestamp)
            answers.append(_answer(index, found))
    return answers


def find(broker: BrokerParts, asked: Asked, index: int, leader_epoch: int, timestamp: int) -> Found:
    """Look up one partition, from version 1 on. An error becomes a code in the result."""
    version, isolation_level, topic, is_replica = asked
    flags = isolation_level & _FLAGS
    committed = isolation_level - flags == READ_COMMITTED
    try:
        partition = broker.led(topic, index, leader_epoch)
        log, leading = partition.log, partition.leading
        if is_replica and timestamp == SpecialTimestamp.LATEST:
            return Found(offset=log.log_end_offset, leader_epoch=log.leader_epoch)
        # First: what the high watermark reaches meanwhile is found.
        hides_latest = leading is not None and not leading.shows_latest and not is_replica
        if flags:
            found = _look_by_clock(log, timestamp, flags, committed)
        else:
            found = _look(log, timestamp, version, committed)
    except HorologError as error:
        return Found(code_for(error))
    is_search = flags or timestamp >= 0 or timestamp == SpecialTimestamp.MAX_TIMESTAMP
    is_hidden = found is _NOTHING if is_search else timestamp == SpecialTimestamp.LATEST
    if hides_latest and is_hidden:
        is_known = version >= _UNAVAILABLE_SINCE
        return Found(ErrorCode.offset_not_available if is_known else ErrorCode.leader_not_available)
    return found


def _look(log: ReadableLog, timestamp: int, version: int, committed: bool) -> Found:
    if timestamp >= 0 or timestamp == SpecialTimestamp.MAX_TIMESTAMP:
        _check_has_times(log)
    if timestamp >= 0:
        return _readable(log, log.find_by_timestamp(timestamp), committed=committed)
    _check_meaning(timestamp, version)
    match timestamp:
        case SpecialTimestamp.LATEST:
            end_offset = log.readable_end(committed=committed)
            return Found(offset=end_offset, leader_epoch=log.leader_epoch)
        case SpecialTimestamp.MAX_TIMESTAMP:
            return _readable(log, log.find_max_timestamp(committed=committed), committed=committed)
        case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
            epoch, start = log.earliest
            return Found(offset=start, leader_epoch=epoch)
        case _:
            return _NOTHING


def _look_by_clock(log: ReadableLog, time_ms: int, flags: int, committed: bool) -> Found:
    if flags == BY_CREATE_TIME:
        _check_has_times(log)
        return _readable(log, log.find_by_timestamp(time_ms), committed=committed)
    if flags != BY_APPEND_TIME:
        raise RequestRefused(ErrorCode.invalid_request, "a lookup uses one clock, not two")
    found = log.find_by_append_time(time_ms)
    if found is None or found.offset >= log.readable_end(committed=committed):
        return _NOTHING
    ms = UNKNOWN_TIME if found.ms is None else found.ms
    return Found(0, ms, found.offset, found.leader_epoch)


def _check_has_times(log: ReadableLog) -> None:
    """Refuse a search by create time if the topic stores format v0, as Kafka does."""
    if log.config.message_format_version == 0:
        raise RequestRefused(
            ErrorCode.unsupported_for_message_format,
            f"Cannot search offsets based on timestamp because the message format version for "
            f"partition {log} is earlier than the minimum required version 0.10.0",
        )


def _check_meaning(timestamp: int, version: int) -> None:
    if version < _SINCE.get(timestamp, version + 1):
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"timestamp {timestamp} has no meaning in version {version}",
        )


def _find_v0(
    broker: BrokerParts, topic: str, requested: ListOffsetsPartition
) -> "ListOffsetsPartitionResponse":
    code, offsets = ErrorCode.none, list[int]()
    try:
        index, leader_epoch = requested.partition_index, requested.current_leader_epoch
        log = broker.led(topic, index, leader_epoch).log
        offsets = _offsets_v0(requested, log, broker.clock.now_ms())
    except HorologError as error:
        code = code_for(error)
    index = requested.partition_index
    return {"partition_index": index, "error_code": code, "old_style_offsets": offsets}


def _offsets_v0(requested: ListOffsetsPartition, log: ReadableLog, now_ms: int) -> list[int]:
    """Return first offsets of segments at or before the requested time, in descending order."""
    if requested.timestamp < 0:
        _check_meaning(requested.timestamp, 0)
    count = requested.max_num_offsets
    if requested.timestamp == SpecialTimestamp.EARLIEST:
        offsets = [log.log_start_offset][: max(0, count)]
    else:
        moment = (
            _INT64_MAX if requested.timestamp == SpecialTimestamp.LATEST else requested.timestamp
        )
        offsets = log.offsets_before(moment, count, now_ms)
    visible = log.high_watermark
    if any(offset > visible for offset in offsets):
        offsets = [visible, *(offset for offset in offsets if offset <= visible)]
    return offsets


def _readable(log: ReadableLog, found: TimestampOffset | None, *, committed: bool) -> Found:
    """Return the found record, or nothing if consumers cannot fetch it yet.

    The end is asked for after the search. Before an earlier end there may have been a record that
    compaction has removed meanwhile, for one that was appended behind that end.
    """
    if found is None or found.offset >= log.readable_end(committed=committed):
        return _NOTHING
    return Found(0, *found)


def _answer(index: int, found: Found) -> "ListOffsetsPartitionResponse":
    error_code, timestamp, offset, leader_epoch = found
    return {
        "partition_index": index,
        "error_code": error_code,
        "old_style_offsets": (),
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": leader_epoch,
    }
