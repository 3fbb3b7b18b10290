"""Fetch: records from an offset, sent unchanged from the files.

v0   format v0, up to v1; a batch of a later format is converted (KIP-32, KIP-283)
v2   format v1, up to v3
v3   max_bytes of the whole response (KIP-74); before, each partition has its own limit
v4   format v2; isolation level (KIP-98)
v5   log start offset
v7   sessions (KIP-227), always declined: session id 0, every fetch names all partitions
v9   the client's leader epoch is checked (KIP-320)
v10  zstd (KIP-110)
v11  rack, no other replica to prefer (KIP-392)
v12  flexible
v13  topics by id (KIP-516)
v15  replica state instead of replica id (KIP-903)
v16  leader hints: this broker leads everything (KIP-951)
v17  directory id of a follower
v18  high watermark of a follower

Waits until `min_bytes` are there, up to `max_wait_ms`. The first batch is given whole
however large it is, so that a reader never gets stuck (KIP-74).

With horolog's flag in the isolation level a partition's append times follow its aborted
transactions (docs/wire.md).

An answer holds the files of its larger slices open until it is sent. Where too many are
held, it is shorter, as where `max_bytes` are used up, and its first records are copied.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from horolog.broker.broker import Broker
from horolog.broker.delayed_fetch import DelayedFetch
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.down_conversion import CONVERTED_BYTES, newest_format, read_converted
from horolog.broker.partition import Partition
from horolog.buffers import Buffer
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.network.file_records import SlicedRecords
from horolog.network.reply import Reply
from horolog.record.batch import MAGIC
from horolog.storage.file_errors import WouldBlock
from horolog.wire.api import ApiKey
from horolog.wire.features import UNKNOWN_TIME, WITH_APPEND_TIMES
from horolog.wire.fetch import (
    READ_COMMITTED,
    AbortedTransaction,
    FetchedPartition,
    FetchedTopic,
    encode_fetch_response,
)
from horolog.wire.requests import FetchPartition, FetchRequest, FetchTopic

# Fewer bytes are copied into the response instead of sent from the file.
SMALL_BYTES = 16 * 1024
# Partitions per time slice: each takes some 20 microseconds.
AT_ONCE = 100
_ZSTD_SINCE = 10
_LIMITED = 3  # the first version with a limit of the whole response
_NO_STORAGE = 5  # the last version without KAFKA_STORAGE_ERROR
# If the page cache may lack records; a thread then reads all of them again.
FEW_TRIED = 16

T = TypeVar("T")


class _Wanted(NamedTuple):
    """One requested partition, or the error why it cannot be read."""

    partition_index: int
    partition: Partition | None
    offset: int
    max_bytes: int
    error: HorologError | None


class _Topic(NamedTuple):
    name: str
    topic_id: UUID | None
    wanted: Sequence[_Wanted]


@api(ApiKey.FETCH)
def fetch(
    request: Request[FetchRequest], broker: Broker
) -> Reply | Coroutine[Any, Any, Reply | Apart]:
    """What there is; at once if that is enough and in the page cache."""
    body = request.body
    if body.session_id and body.session_epoch > 0:
        # A session of another broker, or from before a restart: there are no sessions here.
        code = ErrorCode.fetch_session_id_not_found
        return encode_fetch_response(request.version, (), error_code=code)
    if sum(len(asked.partitions) for asked in body.topics) <= AT_ONCE:
        topics = [
            _Topic(*_named(request, broker, asked), _find(request, broker, asked, asked.partitions))
            for asked in body.topics
        ]
        reading = _Reading(request, broker)
        found = []
        for topic in topics:
            partitions = reading.read_nowait(topic.wanted)
            if partitions is None:
                break
            found.append(FetchedTopic(topic.name, topic.topic_id, partitions))
        else:
            if not reading.must_go_on:
                return encode_fetch_response(request.version, found)
            return _fetch_in_time(request, broker, _Seen(topics, reading.size))
    return _fetch_in_time(request, broker)


class _Seen(NamedTuple):
    """What is known to be too little: the topics as they were found, and the bytes in them."""

    topics: Sequence[_Topic]
    size: int


async def _fetch_in_time(
    request: Request[FetchRequest], broker: Broker, seen: _Seen | None = None
) -> Reply | Apart:
    """Read, and wait for appends, until `min_bytes` are available or the timeout elapses.

    `seen` was found in this iteration of the event loop: what is appended since has not been
    announced yet, and a delayed fetch that listens now does not miss it.
    """
    body = request.body
    loop = asyncio.get_running_loop()
    until = loop.time() + body.max_wait_ms / 1000
    is_over = False
    while True:
        # Looked up in every round, because a partition may have been deleted meanwhile.
        topics = await _find_all(request, broker) if seen is None else seen.topics
        partitions = [wanted.partition for topic in topics for wanted in topic.wanted]
        # The delayed fetch listens before the read, so that it does not miss an append.
        with (
            broker.delay(DelayedFetch(filter(None, partitions), until)) as delayed,
            request.peer.when_gone(delayed.end),
        ):
            del partitions
            if seen is None:
                reading = _Reading(request, broker)
                found = await _read_all(request, broker, reading, topics)
                if is_over or not reading.must_go_on:
                    if not request.is_long:
                        return encode_fetch_response(request.version, found)
                    return Apart(partial(encode_fetch_response, request.version, found))
                size = reading.size
                del found  # which holds open files
            else:
                size, seen = seen.size, None
            del topics
            is_over = await delayed.grown_by(body.min_bytes - size)
            request.has_waited()


async def _find_all(request: Request[FetchRequest], broker: Broker) -> Sequence[_Topic]:
    topics = []
    for asked in request.body.topics:
        wanted: list[_Wanted] = []
        for some in _stretches(asked.partitions):
            await request.checkpoint()
            wanted += _find(request, broker, asked, some)
        topics.append(_Topic(*_named(request, broker, asked), wanted))
    return topics


async def _read_all(
    request: Request[FetchRequest], broker: Broker, reading: "_Reading", topics: Sequence[_Topic]
) -> list[FetchedTopic]:
    loop = asyncio.get_running_loop()
    found = []
    for topic in topics:
        partitions: list[FetchedPartition] = []
        for some in _stretches(topic.wanted):
            await request.checkpoint()
            read = reading.read_nowait(some)
            if read is None and reading.may_convert:
                read = await broker.searchers.run(request.peer, partial(reading.read, some))
            elif read is None:
                read = await loop.run_in_executor(broker.readers, reading.read, some)
            partitions += read
        found.append(FetchedTopic(topic.name, topic.topic_id, partitions))
    for name, count in reading.converted.items():
        broker.conversions.note(request, ApiKey.FETCH, name, count)
    return found


def _stretches(partitions: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split into groups of one time slice each."""
    for start in range(0, len(partitions), AT_ONCE):
        yield partitions[start : start + AT_ONCE]


def _named(
    request: Request[FetchRequest], broker: Broker, asked: FetchTopic
) -> tuple[str, UUID | None]:
    """Name and id of a topic; an empty name if the id is unknown."""
    if request.version < 13:
        return asked.topic, None
    topic = broker.topics.find_id(asked.topic_id)
    return ("" if topic is None else topic.name), asked.topic_id


def _find(
    request: Request[FetchRequest],
    broker: Broker,
    asked: FetchTopic,
    some: Sequence[FetchPartition],
) -> list[_Wanted]:
    """Find some of the requested partitions of a topic."""
    name, _ = _named(request, broker, asked)
    found = []
    for wanted in some:
        partition, error = None, cast("HorologError | None", None)
        try:
            if not name and request.version >= 13:
                raise RequestRefused(ErrorCode.unknown_topic_id, "no topic has this id")
            partition = broker.partition(name, wanted.partition)
            error = partition.check_epoch(wanted.current_leader_epoch)
            if request.version < _ZSTD_SINCE and partition.config.compression_type == "zstd":
                error = RequestRefused(
                    ErrorCode.unsupported_compression_type,
                    f"{partition.name} is compressed with zstd, which clients read from Fetch "
                    f"version {_ZSTD_SINCE} on (KIP-110)",
                )
            if error is not None:
                partition = None
        except HorologError as refusal:
            error = refusal
        found.append(
            _Wanted(
                wanted.partition,
                partition,
                wanted.fetch_offset,
                wanted.partition_max_bytes,
                error,
            )
        )
    return found


class _Reading:
    """The records that a request has read so far, and its remaining limits."""

    __slots__ = (
        "_broker",
        "_committed",
        "_format",
        "_has_failed",
        "_left",
        "_request",
        "_with_append_times",
        "converted",
        "size",
    )

    def __init__(self, request: Request[FetchRequest], broker: Broker) -> None:
        self._request = request
        self._broker = broker
        self._left = min(request.body.max_bytes, broker.config.fetch_max_bytes)
        level = request.body.isolation_level
        self._with_append_times = bool(level & WITH_APPEND_TIMES)
        self._committed = level & ~WITH_APPEND_TIMES == READ_COMMITTED
        self._format = newest_format(request.version)
        if self._format < MAGIC:
            self._left = min(self._left, CONVERTED_BYTES)
        self._has_failed = False
        self.size = 0
        """Bytes of records."""
        self.converted: dict[str, int] = {}
        """Records that had to be converted for the client, by topic."""

    def read(self, some: Sequence[_Wanted]) -> list[FetchedPartition]:
        """Read the next partitions, in the order of the request."""
        partitions = []
        for wanted in some:
            if self.may_convert:
                found = self._converted(wanted)
            else:
                found = _read_partition(
                    self._broker, wanted, self._left, self._committed, not self.size
                )
            if self._with_append_times and wanted.partition is not None:
                found = _with_append_times(wanted.partition, wanted.offset, found)
            if found.error_code:
                found = found._replace(error_code=self._error_code(found.error_code))
            size = len(found.records)
            self._left = max(self._left - size, 0)
            self.size += size
            self._has_failed = self._has_failed or found.error_code != 0
            partitions.append(found)
        return partitions

    def _converted(self, wanted: _Wanted) -> FetchedPartition:
        """As `_read_partition`, in a format that the client reads."""
        partition = wanted.partition
        if partition is None:
            assert wanted.error is not None
            return FetchedPartition(wanted.partition_index, code_for(wanted.error))
        try:
            high_watermark = partition.high_watermark
            records, converted = read_converted(
                partition,
                wanted.offset,
                min(wanted.max_bytes, self._left),
                self._format,
                up_to=high_watermark,
                # Before v3 no partition's limit depends on the others, so each gets on.
                at_least_one=not self.size or (self._request.version < _LIMITED and self._left > 0),
            )
        except HorologError as error:
            return FetchedPartition(wanted.partition_index, code_for(error))
        if converted:
            self.converted[partition.topic] = self.converted.get(partition.topic, 0) + converted
        return FetchedPartition(
            wanted.partition_index, 0, high_watermark, high_watermark, records=records
        )

    def _error_code(self, error_code: int) -> int:
        """A code that this version of Fetch may have."""
        if error_code == ErrorCode.kafka_storage_error and self._request.version <= _NO_STORAGE:
            return ErrorCode.not_leader_or_follower
        return error_code

    def read_nowait(self, some: Sequence[_Wanted]) -> list[FetchedPartition] | None:
        """As `read`, on the event loop; None, and nothing is read, if that may block."""
        if self.may_convert or self._with_append_times:
            return None
        if self._are_hot(some):
            return self.read(some)
        if len(some) > FEW_TRIED:
            return None
        before = self._left, self.size, self._has_failed
        try:
            return self._broker.partitions.without_blocking(lambda: self.read(some))
        except WouldBlock:
            self._left, self.size, self._has_failed = before
            return None

    def _are_hot(self, some: Sequence[_Wanted]) -> bool:
        """Whether the page cache certainly has the records of all these partitions."""
        for wanted in some:
            if wanted.partition is not None and not wanted.partition.is_hot(
                wanted.offset, committed=self._committed
            ):
                return False
        return True

    @property
    def may_convert(self) -> bool:
        """Whether the client cannot read the newest format."""
        return self._format < MAGIC

    @property
    def must_go_on(self) -> bool:
        """Whether fewer than `min_bytes` are available and the client allows waiting."""
        body = self._request.body
        return (
            body.max_wait_ms > 0
            and self.size < body.min_bytes
            and not self._has_failed
            and bool(body.topics)
        )


def _read_partition(
    broker: Broker, wanted: _Wanted, left: int, committed: bool, nothing_yet: bool
) -> FetchedPartition:
    partition = wanted.partition
    if partition is None:
        assert wanted.error is not None
        return FetchedPartition(wanted.partition_index, code_for(wanted.error))
    max_bytes = max(min(wanted.max_bytes, left), 0)
    try:
        # First, so that what is read is before them, whatever is appended meanwhile.
        high_watermark, stable = partition.high_watermark, partition.last_stable_offset
        up_to = stable if committed else high_watermark
        found = partition.read(wanted.offset, max_bytes, min_one_batch=nothing_yet, up_to=up_to)
        records: Buffer | SlicedRecords | None = b""
        if found.size:
            records = found.read_cached() if found.size <= SMALL_BYTES else None
            if records is None and broker.slices_to_send.acquire():
                records = SlicedRecords(found, broker.slices_to_send)
            elif records is None:
                records = _first_records(partition, wanted.offset, up_to) if nothing_yet else b""
        aborted = partition.aborted(wanted.offset) if committed else None
    except HorologError as error:
        return FetchedPartition(wanted.partition_index, code_for(error))
    return FetchedPartition(
        wanted.partition_index,
        0,
        high_watermark,
        stable,
        partition.log_start_offset,
        cast(Buffer, records),
        aborted,
    )


def _with_append_times(
    partition: Partition, offset: int, found: FetchedPartition
) -> FetchedPartition:
    """Add the append times of the records: a count of what is before them, then each stretch."""
    aborted = found.aborted_transactions or ()
    if found.error_code:
        return found
    try:
        times = partition.append_times(offset, len(found.records)) if len(found.records) else ()
    except HorologError as error:
        return FetchedPartition(found.partition_index, code_for(error))
    added = (
        AbortedTransaction(UNKNOWN_TIME if stretch.ms is None else stretch.ms, stretch.offset)
        for stretch in times
    )
    both = (AbortedTransaction(len(aborted), -1), *aborted, *added)
    return found._replace(aborted_transactions=both)


def _first_records(partition: Partition, offset: int, up_to: int) -> Buffer:
    """A small read of at least one batch, so that the consumer makes progress."""
    return partition.read(offset, SMALL_BYTES, min_one_batch=True, up_to=up_to).read()
