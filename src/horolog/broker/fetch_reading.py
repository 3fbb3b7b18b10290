"""Reads the records of a Fetch request, one partition after another, up to its limits.

With horolog's flag in the isolation level a partition's append times follow its aborted
transactions (docs/wire.md).

An answer holds the files of its larger slices open until it is sent. Where too many are
held, it is shorter, as where `max_bytes` are used up, and its first records are copied.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request
from horolog.broker.down_conversion import CONVERTED_BYTES, newest_format, read_converted
from horolog.broker.partition import Partition
from horolog.buffers import Buffer
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.network.reply import SlicedRecords
from horolog.record.batch import MAGIC
from horolog.storage.batches.slices import Slice
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.view import LogView
from horolog.wire.features import UNKNOWN_TIME, WITH_APPEND_TIMES, WITH_SEEN_TIMES
from horolog.wire.fetch import READ_COMMITTED, FetchedAbort, FetchedPartition
from horolog.wire.requests import FetchRequest

# Fewer bytes are copied into the response instead of sent from the file.
_SMALL_BYTES = 16 * 1024
_LIMITED = 3  # the first version with a limit of the whole response
_NO_STORAGE = 5  # the last version without KAFKA_STORAGE_ERROR
# If the page cache may lack records; a thread then reads all of them again.
_FEW_TRIED = 16


def is_committed(body: FetchRequest) -> bool:
    """Return True if a consumer asks for committed records only."""
    return body.isolation_level & ~(WITH_APPEND_TIMES | WITH_SEEN_TIMES) == READ_COMMITTED


def is_follower(body: FetchRequest) -> bool:
    """Return True if a replica fetches, and no consumer."""
    state = body.replica_state
    return (body.replica_id if state is None else state.replica_id) >= 0


class RequestedPartition(NamedTuple):
    """One requested partition, or the error that prevents reading it."""

    partition_index: int
    partition: Partition | None
    offset: int
    max_bytes: int
    error: HorologError | None


class FetchReading:
    """Records that a request has read so far, and its remaining limits."""

    __slots__ = (
        "_asks_any",
        "_broker",
        "_committed",
        "_format",
        "_has_failed",
        "_least",
        "_left",
        "_request",
        "_with_append_times",
        "_with_seen_times",
        "converted",
        "size",
    )

    def __init__(
        self, request: Request[FetchRequest], broker: BrokerParts, *, asks_any: bool = True
    ) -> None:
        self._request = request
        self._broker = broker
        self._left = min(request.body.max_bytes, broker.config.fetch_max_bytes)
        if broker.quotas.is_set and not is_follower(request.body):
            self._left = broker.quotas.most_fetched(request.peer, request.client_id, self._left)
        self._least = min(request.body.min_bytes, self._left)
        level = request.body.isolation_level
        self._with_append_times = bool(level & WITH_APPEND_TIMES)
        self._with_seen_times = bool(level & WITH_SEEN_TIMES)
        self._committed = is_committed(request.body)
        self._format = newest_format(request.version)
        if self._format < MAGIC:
            self._left = min(self._left, CONVERTED_BYTES)
        self._asks_any = asks_any
        self._has_failed = False
        self.size = 0
        """Bytes of records."""
        self.converted: dict[str, int] = {}
        """Number of converted records by topic."""

    def read(self, some: Sequence[RequestedPartition]) -> list[FetchedPartition]:
        """Read the next partitions, in the order of the request."""
        partitions = []
        for requested in some:
            if self.may_convert:
                found = self._converted(requested)
            else:
                # A follower is given empty batches, too: they hold what is known of producers.
                found = _read_partition(
                    self._broker,
                    requested,
                    self._left,
                    self._committed,
                    not self.size,
                    with_append_times=self._with_append_times,
                    seen=self._with_seen_times,
                )
            if found.error_code:
                found = found._replace(error_code=self._error_code(found.error_code))
            size = len(found.records)
            self._left = max(self._left - size, 0)
            self.size += size
            self._has_failed = self._has_failed or found.error_code != 0
            partitions.append(found)
        return partitions

    def _converted(self, requested: RequestedPartition) -> FetchedPartition:
        """Read a partition in a format that the client understands."""
        partition = requested.partition
        if partition is None:
            assert requested.error is not None
            return FetchedPartition(requested.partition_index, code_for(requested.error))
        try:
            view = partition.log.look()
            records, converted = read_converted(
                view,
                requested.offset,
                min(requested.max_bytes, self._left),
                self._format,
                # Before v3 no partition's limit depends on the others, so each gets on.
                at_least_one=not self.size or (self._request.version < _LIMITED and self._left > 0),
            )
        except HorologError as error:
            return FetchedPartition(requested.partition_index, code_for(error))
        if converted:
            self.converted[partition.topic] = self.converted.get(partition.topic, 0) + converted
        high_watermark = view.high_watermark
        return FetchedPartition(
            requested.partition_index, 0, high_watermark, high_watermark, records=records
        )

    def _error_code(self, error_code: int) -> int:
        """Return an error code that this version of Fetch may have."""
        if error_code == ErrorCode.kafka_storage_error and self._request.version <= _NO_STORAGE:
            return ErrorCode.not_leader_or_follower
        return error_code

    def read_nowait(self, some: Sequence[RequestedPartition]) -> list[FetchedPartition] | None:
        """Read on the event loop; return None without an effect if that may block."""
        if self.may_convert or self._with_append_times:
            return None
        if self._are_hot(some):
            return self.read(some)
        if len(some) > _FEW_TRIED:
            return None
        before = self._left, self.size, self._has_failed
        try:
            return self._broker.partitions.without_blocking(lambda: self.read(some))
        except WouldBlock:
            self._left, self.size, self._has_failed = before
            return None

    def _are_hot(self, some: Sequence[RequestedPartition]) -> bool:
        """True if the page cache certainly contains the records of all these partitions."""
        for requested in some:
            if requested.partition is not None and not requested.partition.is_hot(
                requested.offset, committed=self._committed
            ):
                return False
        return True

    @property
    def may_convert(self) -> bool:
        """True if the client cannot read the newest format."""
        return self._format < MAGIC

    @property
    def must_go_on(self) -> bool:
        """True if fewer than `min_bytes` are available and the client allows waiting."""
        body = self._request.body
        return (
            body.max_wait_ms > 0
            and self.size < self._least
            and not self._has_failed
            and self._asks_any
        )


def _read_partition(
    broker: BrokerParts,
    requested: RequestedPartition,
    left: int,
    committed: bool,
    nothing_yet: bool,
    *,
    with_append_times: bool,
    seen: bool,
) -> FetchedPartition:
    partition, offset = requested.partition, requested.offset
    if partition is None:
        assert requested.error is not None
        return FetchedPartition(requested.partition_index, code_for(requested.error))
    max_bytes = max(min(requested.max_bytes, left), 0)
    try:
        # One look: the aborted transactions and append times of other segments are of others.
        view = partition.log.look()
        high_watermark, stable = view.high_watermark, view.last_stable_offset
        up_to = stable if committed else high_watermark
        found = view.read(offset, max_bytes, min_one_batch=nothing_yet, up_to=up_to)
        if not with_append_times and found.begins_empty:
            offset = view.behind_empty_batches(offset, up_to)
            if offset < up_to:
                found = view.read(offset, max_bytes, min_one_batch=nothing_yet, up_to=up_to)
            elif found.size:
                found = view.gap(requested.offset, up_to)
        records: Buffer | SlicedRecords | None = b""
        if found.size:
            records = found.read_cached() if found.size <= _SMALL_BYTES else None
            if records is None and broker.slices_to_send.acquire():
                records = SlicedRecords(found, broker.slices_to_send)
            elif records is None:
                records = _first_records(view, offset, up_to) if nothing_yet else b""
        size = len(cast(Buffer, records))
        aborted: Sequence[FetchedAbort] | None = None
        if committed:
            aborted = _aborted(view, offset, size, stable)
        if with_append_times:
            aborted = with_append_time_entries(view, offset, size, aborted, found, seen=seen)
    except HorologError as error:
        return FetchedPartition(requested.partition_index, code_for(error))
    return FetchedPartition(
        requested.partition_index,
        0,
        high_watermark,
        stable,
        view.log_start_offset,
        cast(Buffer, records),
        aborted,
    )


def _aborted(view: LogView, offset: int, size: int, end_offset: int) -> list[FetchedAbort]:
    """Return the aborted transactions that a committed reader of some bytes has to know.

    Transactions that were open when the broker of an adopted log stopped count as aborted, so that
    everything there is stable.
    """
    if not view.has_transactions or not size:
        return []
    found = view.aborted_transactions(offset, view.end_of_read(offset, size, end_offset))
    return [FetchedAbort(entry.producer_id, entry.first_offset) for entry in found]


def with_append_time_entries(
    view: LogView,
    offset: int,
    size: int,
    aborted: Sequence[FetchedAbort] | None,
    read: Slice,
    *,
    seen: bool,
) -> Sequence[FetchedAbort]:
    """Add the append times of the records: a count of the entries before them, then each stretch.

    A follower also reads uncommitted records. It is given the transactions that no marker will end.

    Args:
        read: where the records are, from the offset on.
    """
    if aborted is None:
        aborted = [
            FetchedAbort(
                transaction.producer_id,
                -1 - transaction.first_offset
                if transaction.is_committed
                else transaction.first_offset,
            )
            for transaction in view.unended
        ]
    added = (
        FetchedAbort(
            UNKNOWN_TIME if stretch.ms is None else stretch.ms,
            -1 - stretch.offset if stretch.is_seen else stretch.offset,
        )
        for stretch in (
            view.append_times_within(offset, size, read=read, seen=seen) if size else ()
        )
    )
    return (FetchedAbort(len(aborted), -1), *aborted, *added)


def _first_records(view: LogView, offset: int, up_to: int) -> Buffer:
    """Read a little, but at least one batch, so that the consumer makes progress."""
    return view.read(offset, _SMALL_BYTES, min_one_batch=True, up_to=up_to).read()
