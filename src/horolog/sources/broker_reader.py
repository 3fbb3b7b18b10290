"""Fetching a stretch of a partition from its broker as whole batches.

The next request is sent before what the last one gave is decoded and handed on. Its response is
received meanwhile, in a thread that rarely needs the interpreter (`client/fetch_ahead.py`).
"""

import time
from collections.abc import Iterator
from dataclasses import replace

from horolog.client import EARLIEST, LATEST, Client, Fetched, NoAnswer
from horolog.client.fetch_ahead import FetchAhead
from horolog.client.fetching import PartitionFetch
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch_runs import next_offset_of
from horolog.record.timestamps import RecordClock, TimeRange
from horolog.sources.batches import Batches
from horolog.sources.bounds import data_lost
from horolog.sources.options import ReadOptions
from horolog.sources.plan import BrokerStretch, Task
from horolog.sources.row_filter import RowFilter
from horolog.storage.names import TopicPartition

_SURELY_EMPTY = 3
_LEAST_BYTES = 64 << 10
_ASK_AGAIN_S = 0.1
_GONE = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


def task_client(options: ReadOptions) -> Client:
    """Return a client for one task, with the time limit of `kafkaConsumer.pollTimeoutMs`."""
    assert options.brokers is not None
    return Client.of(replace(options.brokers, timeout_ms=options.fetching.poll_timeout_ms))


def up_to_the_log_end(client: Client, task: Task, options: ReadOptions) -> Task:
    """Return the task with stretches that follow the log end extended to the present end."""
    followed = [
        stretch
        for stretch in task
        if isinstance(stretch, BrokerStretch) and stretch.until is not None
    ]
    if not followed:
        return task
    try:
        found = client.list_offsets(
            {stretch.partition: LATEST for stretch in followed},
            read_committed=options.read_committed,
        )
    except RequestRefused as error:
        if error.code not in _GONE:
            raise
        found = {}  # what was planned is missed when it is read
    ends = {partition: answer.offset for partition, answer in found.items() if answer is not None}
    return tuple(
        replace(
            stretch,
            end=max(stretch.end, min(ends.get(stretch.partition, stretch.end), stretch.until)),
        )
        if isinstance(stretch, BrokerStretch) and stretch.until is not None
        else stretch
        for stretch in task
    )


def narrowed_to_appends(
    client: Client, stretch: BrokerStretch, row_filter: RowFilter
) -> BrokerStretch | None:
    """Return the part of a stretch that can have append times of a filter; None if none can."""
    is_planned = stretch.size is not None and stretch.until is None  # by blocks, which is enough
    if row_filter.append_times.is_everything or is_planned:
        return stretch
    return appended_then(client, stretch, row_filter.append_times)


def appended_then(client: Client, stretch: BrokerStretch, times: TimeRange) -> BrokerStretch | None:
    """Return the part of a stretch that can have been appended at these times; None if none can.

    Records before the first one were appended earlier. What follows the last one was appended
    later, if append times have never been reset.
    """
    partition = stretch.partition
    first = client.find_records({partition: times.first_ms}, RecordClock.APPEND)[partition]
    if first is None or first.offset >= stretch.end:
        return None
    start, end = max(stretch.start, first.offset), stretch.end
    if times.to_ms is not None:
        later = client.find_records({partition: times.to_ms}, RecordClock.APPEND)[partition]
        is_known = later is not None and later.ms is not None
        if (
            later is not None
            and is_known
            and not client.topics.append_times_ahead(partition[0]).resets
        ):
            end = min(end, later.offset)
    return replace(stretch, start=start, end=end) if start < end else None


def fetches(
    client: Client,
    stretch: BrokerStretch,
    options: ReadOptions,
    with_append_times: bool,
    *,
    reuses_memory: bool = False,
    runs_ahead: bool = True,
) -> Iterator[Batches]:
    """Fetch a stretch from its broker, each batch once.

    The batch that holds the last offset is among them, and comes whole. The next request is
    sent before batches are given, if nothing else asks the client meanwhile (`runs_ahead`). With
    `reuses_memory` batches are valid only until the next ones.

    Where the log start offset has moved past the first one, reading continues there.

    Raises:
        DataLost: the broker has not all offsets any more, and data loss is to fail.
        RequestRefused: or refuses for another reason.
        NoAnswer: it does not answer, or gives nothing before the end.
        CorruptBatch: a batch is damaged; those before it are given.
    """
    fetching = options.fetching
    offset, size = stretch.start, stretch.size if stretch.until is None else None
    empty = 0
    give_up = time.monotonic() + fetching.poll_timeout_ms / 1000
    with FetchAhead(client, reuses_memory=reuses_memory) as fetcher:
        while offset < stretch.end:
            request = _request(stretch.partition, offset, size, options, with_append_times)
            try:
                fetched = fetcher.fetch(request)
            except RequestRefused as error:
                following = _after_loss(client, stretch, options, offset, error)
                if following == offset:
                    if time.monotonic() > give_up:
                        raise
                    time.sleep(_ASK_AGAIN_S)
                offset = following
                continue
            fetched, following, damage = _sound(fetched, offset)
            if following > offset:
                size = None if size is None else size - len(fetched.records)
                if runs_ahead and damage is None and following < stretch.end:
                    fetcher.send(
                        _request(stretch.partition, following, size, options, with_append_times)
                    )
                yield _batches(fetched, offset, stretch.end, options)
                offset, empty = following, 0
                give_up = time.monotonic() + fetching.poll_timeout_ms / 1000
            elif damage is None:
                empty += 1
                if empty >= _SURELY_EMPTY and fetched.high_watermark >= stretch.end:
                    return  # compaction left nothing up to the end
                if time.monotonic() > give_up:
                    raise NoAnswer(
                        f"{stretch.partition} gave nothing from offset {offset} on for "
                        f"{fetching.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs), and goes up "
                        f"to {stretch.end}"
                    )
            if damage is not None:
                raise damage


def _sound(fetched: Fetched, offset: int) -> tuple[Fetched, int, CorruptBatch | None]:
    """Return the fetched batches before damage, the offset after them, and the damage."""
    try:
        return fetched, next_offset_of(fetched.records, offset, fetched.high_watermark), None
    except CorruptBatch as error:
        if not error.position:
            raise
        sound = fetched._replace(records=memoryview(fetched.records)[: error.position])
        return sound, next_offset_of(sound.records, offset, sound.high_watermark), error


def _batches(fetched: Fetched, start: int, end: int, options: ReadOptions) -> Batches:
    aborted = fetched.aborted if options.read_committed else None
    times = (lambda *_: fetched.append_times) if fetched.append_times else None
    return Batches(fetched.records, start, end, times, aborted)


def _request(
    partition: TopicPartition,
    offset: int,
    size: int | None,
    options: ReadOptions,
    with_append_times: bool,
) -> PartitionFetch:
    """Return a fetch from an offset on, of no more than `size` bytes if that is known."""
    fetching = options.fetching
    most = fetching.max_bytes
    return PartitionFetch(
        *partition,
        offset,
        max_bytes=most if size is None else max(_LEAST_BYTES, min(size, most)),
        max_wait_ms=fetching.max_wait_ms,
        min_bytes=fetching.min_bytes,
        read_committed=options.read_committed,
        with_append_times=with_append_times,
        with_seen_times=True,
    )


def _after_loss(
    client: Client, stretch: BrokerStretch, options: ReadOptions, offset: int, error: RequestRefused
) -> int:
    """Return the offset to continue at when the broker lacks the one asked for.

    The same offset, where the log has it after all: the leader may have changed meanwhile.

    Raises:
        DataLost: data loss is to fail.
        RequestRefused: the refusal was about something else.
    """
    partition = stretch.partition
    if error.code in _GONE:
        data_lost(options, f"{partition} does not exist any more")
        return stretch.end
    if error.code != ErrorCode.offset_out_of_range:
        raise error
    start, end = (_end_of_log(client, partition, which) for which in (EARLIEST, LATEST))
    if start is not None and start > offset:
        if stretch.is_from_earliest and offset == stretch.start:
            return start
        data_lost(
            options,
            f"{partition} was to be read from offset {offset}, and starts at {start} now",
        )
        return start
    if end is not None and end > offset:
        return offset
    data_lost(
        options,
        f"{partition} was to be read from offset {offset} up to {stretch.end}, and ends at "
        f"{end} now",
    )
    return stretch.end


def _end_of_log(client: Client, partition: TopicPartition, which: int) -> int | None:
    found = client.list_offsets({partition: which})[partition]
    return None if found is None else found.offset
