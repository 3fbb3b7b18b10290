"""A log in files as the planner sees it: where it starts, ends, passes a moment; what to read.

Replicas of a partition are merged first (see `merge`); from then on a partition is a
row of pieces, each of one segment file.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader
from horolog.record.scan import find_at_or_after
from horolog.spark.bounds import Bounds, data_lost, first_time
from horolog.spark.file_systems import Root
from horolog.spark.limits import subscribed
from horolog.spark.merge import merge
from horolog.spark.object_stores import shown
from horolog.spark.options import ReadOptions
from horolog.spark.plan import SegmentRange
from horolog.spark.replicas import Replica, epoch_spans, find_replicas
from horolog.spark.segments import Segment
from horolog.spark.transactions import AbortedRange, TransactionScan
from horolog.spark.wanted import Wanted
from horolog.storage.batches.reader import FEWEST_BYTES, BatchReader
from horolog.storage.files import FileMissing
from horolog.storage.index.blocks import Span
from horolog.storage.lookup.by_append_time import appended_within
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition
from horolog.storage.segments.reader import SegmentReader

_MAX_BATCH_BYTES = 1 << 30
# How far the end of a segment may be from its last index entry: a few batches.
_NEAR_BYTES = 1 << 20


class Piece(NamedTuple):
    """Offsets `start` to before `end` of a partition, in one segment file."""

    root: Root
    segment: Segment
    segment_end: int
    start: int
    end: int
    is_followed: bool
    """Whether its segment must go up to `segment_end`, where the next one begins."""
    bytes_within: int | None = None
    """What has to be read of it, where that is known."""

    @property
    def weight(self) -> int:
        """Bytes, as if all records of the segment were equally large."""
        if self.bytes_within is not None:
            return max(1, self.bytes_within)
        offsets = self.segment_end - self.segment.base_offset
        return max(1, self.segment.size * (self.end - self.start) // offsets)


class FileLog:
    """The logs below the paths of a read, as they were when this was made. Close it after use.

    Topics that are named, and logs at all, must be there unless they `may_miss`.
    """

    def __init__(self, options: ReadOptions, *, may_miss: bool = False) -> None:
        self._options = options
        self._may_miss = may_miss
        self._stack = ExitStack()
        self._pieces: dict[TopicPartition, list[Piece]] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._compacted: dict[TopicPartition, bool] = {}
        with ExitStack() as undo:
            undo.callback(self._stack.close)
            self._open()
            undo.pop_all()

    def __enter__(self) -> "FileLog":
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _open(self) -> None:
        by_directory: dict[tuple[TopicPartition, str], tuple[Root, Replica]] = {}
        named = set()
        for path in self._options.paths:
            root = self._stack.enter_context(Root(path, self._options.store))
            for replica in find_replicas(root, may_miss=self._may_miss):
                if root.path.startswith(replica.directory):
                    named.add(replica.partition)
                # Paths may overlap, or be several segments of one directory.
                key = replica.partition, replica.directory
                _, known = by_directory.get(key, (root, replica))
                by_directory[key] = root, replica.joined(known)
        replicas: dict[TopicPartition, list[tuple[Root, Replica]]] = defaultdict(list)
        for (partition, _), root_and_replica in by_directory.items():
            replicas[partition].append(root_and_replica)
        for partition in self._wanted(replicas.keys(), named):
            found = replicas[partition]
            self._pieces[partition] = list(_merged(found))
            self._ends[partition] = max(replica.end for _, replica in found)

    def _wanted(
        self, present: Collection[TopicPartition], named: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        if self._options.subscription is not None:
            where = f"below {', '.join(map(shown, self._options.paths))}"
            return subscribed(self._options.subscription, present, where, may_miss=self._may_miss)
        return sorted(
            partition
            for partition in present
            if partition.topic not in INTERNAL_TOPICS or partition in named
        )

    # As `bounds.Log`.

    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that the read subscribes to."""
        return self._pieces.keys()

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each."""
        return {
            partition: pieces[0].start
            if (pieces := self._pieces[partition])
            else self._end(partition)
            for partition in partitions
        }

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each, or where its first undecided transaction begins."""
        if not self._options.read_committed:
            return {partition: self._end(partition) for partition in partitions}
        return {
            partition: self._transactions(partition).last_stable_offset(self._end(partition))
            for partition in partitions
        }

    def at_or_after(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The earliest offset whose time is at or after the given one; None if there is none."""
        return {
            partition: self._find_time(partition, timestamp_ms)
            for partition, timestamp_ms in times_ms.items()
        }

    def time_at(self, partition: TopicPartition, offset: int) -> int | None:
        """The time of the first record of the batch that holds an offset, or follows it."""
        for piece in self._pieces.get(partition, []):
            if offset < piece.end:
                position = piece.segment.open(piece.root.files).position_for(None, offset)
                for _, _, header in _headers(piece, position):
                    if header.next_offset > offset:
                        return first_time(header)
        return None

    def damaged_at(self, partition: TopicPartition) -> int | None:
        """The offset of a whole batch at the end of the log whose checksum is wrong; None if none.

        The log is read up to there. A part of a batch is none: a broker may be writing it.
        """
        pieces = self._pieces.get(partition)
        if not pieces:
            return None
        files, segment = pieces[-1].root.files, pieces[-1].segment
        with suppress(FileMissing, CorruptBatch):
            size = files.size(segment.path)
            walk = SegmentReader.at(files, segment.path, segment.base_offset).log.batches(size)
            if segment.size < size:
                header = walk.header(segment.size)
                try:
                    walk.check(segment.size, header)
                except CorruptBatch:
                    return header.base_offset
        return None

    # What to read.

    def ranges(self, bounds: Mapping[TopicPartition, Bounds], wanted: Wanted) -> list[SegmentRange]:
        """The stretches of files that may hold what is wanted within the bounds.

        Raises:
            DataLost: something within the bounds is gone, and data loss is to fail.
        """
        ranges: list[SegmentRange] = []
        for partition in sorted(bounds):
            if not wanted.takes(*partition):
                continue
            start = max(bounds[partition].start, wanted.offsets.first)
            end = min(bounds[partition].end, wanted.offsets.last + 1)
            if start < end:
                aborted = self._aborted(partition, start, end)
                pieces = self._in_time(self._within(partition, start, end), wanted)
                ranges += [_range_of(partition, piece, aborted) for piece in pieces]
        return ranges

    def _within(self, partition: TopicPartition, start: int, end: int) -> list[Piece]:
        """The pieces of a stretch of offsets; what no piece has is lost data."""
        position = start
        found = []
        for piece in self._pieces.get(partition, []):
            first, last = max(piece.start, start), min(piece.end, end)
            if first < last:
                self._check_gap(partition, position, first)
                found.append(piece._replace(start=first, end=last))
                position = last
        self._check_gap(partition, position, end)
        return self._up_to_their_ends(partition, found)

    def _up_to_their_ends(self, partition: TopicPartition, pieces: list[Piece]) -> list[Piece]:
        """The pieces; where one ends before the next begins, a segment between them is gone."""
        followed = [piece for piece in pieces if piece.is_followed]
        if not followed:
            return pieces
        ended = dict(zip(followed, pieces[0].root.map(_ended, followed), strict=True))
        found = []
        for piece in pieces:
            segment, end = ended.get(piece, (piece.segment, None))
            if end is not None and end < piece.end and not self._is_compacted(partition):
                self._check_gap(partition, max(end, piece.start), piece.end)
            found.append(piece._replace(segment=segment))
        return found

    def _is_compacted(self, partition: TopicPartition) -> bool:
        """Whether offsets are missing within a segment: only compaction leaves any out."""
        if partition not in self._compacted:
            self._compacted[partition] = any(map(_has_holes, self._pieces[partition]))
        return self._compacted[partition]

    def _check_gap(self, partition: TopicPartition, start: int, end: int) -> None:
        if start < end:
            data_lost(
                self._options,
                f"Offsets {start} to {end - 1} of {partition} are in none of the files",
            )

    def _in_time(self, pieces: list[Piece], wanted: Wanted) -> list[Piece]:
        """Without what is known to hold no wanted time: whole segments, or stretches of them."""
        if not wanted.windows or not pieces:
            return pieces

        def narrowed(piece: Piece) -> Piece | None:
            segment = piece.segment.open(piece.root.files, piece.root.block_cache)
            try:
                return _narrowed_in_time(piece, segment, wanted)
            except (FileMissing, CorruptBatch):
                return piece  # the task that reads it reports it

        found = pieces[0].root.map(narrowed, pieces)
        return [piece for piece in found if piece is not None]

    # Details.

    def _end(self, partition: TopicPartition) -> int:
        pieces = self._pieces[partition]
        return pieces[-1].end if pieces else self._ends[partition]

    def _aborted(self, partition: TopicPartition, start: int, end: int) -> tuple[AbortedRange, ...]:
        if not self._options.read_committed:
            return ()
        return tuple(
            transaction
            for transaction in self._transactions(partition).aborted
            if transaction.first_offset < end and start <= transaction.last_offset
        )

    def _transactions(self, partition: TopicPartition) -> TransactionScan:
        scan = TransactionScan()
        for piece in self._pieces[partition]:
            for walk, position, header in _headers(piece, 0):
                scan.add(header, _reader(walk, position, header))
        return scan

    def _find_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        for piece in self._pieces[partition]:
            segment = piece.segment.open(piece.root.files)
            if not _may_reach(segment, timestamp_ms):
                continue
            at = segment.position_for(timestamp_ms, piece.start)
            for walk, position, header in _headers(piece, at):
                if header.max_timestamp < timestamp_ms:
                    continue
                found = find_at_or_after(
                    walk.batch(position, header),
                    header,
                    timestamp_ms,
                    piece.start,
                    max_bytes=_MAX_BATCH_BYTES,
                )
                if found is not None and found[1] < piece.end:
                    return found[1]
        return None


def _narrowed_in_time(piece: Piece, segment: SegmentReader, wanted: Wanted) -> Piece | None:
    """The part of a piece that may hold a wanted time of either clock, None without any.

    Raises:
        FileMissing: the segment is gone.
        CorruptBatch: it is damaged.
    """
    windows, appended = wanted.windows, wanted.append_times_ms
    if appended is not None:
        within = appended_within(segment, *appended, piece.start, piece.end)
        if within is None:
            return None
        piece = piece._replace(start=within.start, end=within.end)
        if within.is_exact:
            windows = tuple(each for each in windows if not each.of_append)
    if not windows:
        return piece
    look = segment.blocks.look(segment.size)
    from_ms = wanted.from_ms
    if not look.covered and from_ms is not None and not _may_reach(segment, from_ms):
        return None
    return _narrowed(piece, look.spans(windows, piece.segment_end))


def _narrowed(piece: Piece, spans: Sequence[Span]) -> Piece | None:
    """The part of a piece from its first to its last span, None without any.

    Its size is that of the spans: the task that reads it asks the block map again.
    """
    spans = [
        span
        for span in spans
        if span.base_offset < piece.end and (span.next_offset or piece.end) > piece.start
    ]
    if not spans:
        return None
    if len(spans) == 1 and spans[0].end - spans[0].position == piece.segment.size:
        return piece
    start = max(piece.start, spans[0].base_offset)
    end = min(piece.end, spans[-1].next_offset or piece.end)
    return piece._replace(
        start=start, end=end, bytes_within=sum(span.end - span.position for span in spans)
    )


def _merged(found: list[tuple[Root, Replica]]) -> Iterator[Piece]:
    """One partition as pieces of segments, from one replica or several."""
    if len(found) == 1:
        ((root, replica),) = found
        for segment, start, end in replica.stretches():
            yield Piece(root, segment, end, start, end, _is_followed(replica, segment))
        return
    spans = [epoch_spans(root.files, replica) for root, replica in found]
    for number, first, last in merge(spans):
        root, replica = found[number]
        for segment, start, end in replica.stretches():
            begin, stop = max(start, first), min(end, last)
            if begin < stop:
                yield Piece(root, segment, end, begin, stop, _is_followed(replica, segment))


def _is_followed(replica: Replica, segment: Segment) -> bool:
    return replica.is_dense and segment is not replica.segments[-1]


def _ended(piece: Piece) -> tuple[Segment, int | None]:
    """The segment of a piece in full, and its end where that is cheap to find.

    That takes an index: without one, all headers would be read for it. If the segment is damaged or
    gone, the task that reads it reports it.
    """
    segment, files = piece.segment, piece.root.files
    reader = segment.open(files)
    try:
        if segment.size - reader.position_for(None, piece.segment_end - 1) > _NEAR_BYTES:
            return segment, None
        end = reader.whole_end()
        if end.next_offset < piece.segment_end and files.size(segment.path) > segment.size:
            # It was listed before its last append, and the next one after that.
            segment = segment._replace(size=files.size(segment.path))
            end = segment.open(files).whole_end()
    except FileMissing:
        return segment, None
    return segment, end.next_offset if end.size == segment.size else None


def _has_holes(piece: Piece) -> bool:
    """Whether offsets are missing within a segment."""
    expected = None
    walk = piece.segment.open(piece.root.files).batches(FEWEST_BYTES)
    with suppress(FileMissing, CorruptBatch):  # the task that reads it reports it
        for _, header in walk.whole_headers(0):
            if expected not in (None, header.base_offset):
                return True
            expected = header.next_offset
            if header.base_offset + header.records_count < expected:
                return True
    return False


def _may_reach(segment: SegmentReader, timestamp_ms: int) -> bool:
    """Whether a segment may hold a record at or after a time."""
    known = segment.proved_largest()
    if known is None:
        return True
    return known.largest is not None and known.largest.timestamp >= timestamp_ms


def _headers(piece: Piece, position: int) -> Iterator[tuple[BatchReader, int, BatchHeader]]:
    """The batches of a piece, from a position of its file on."""
    walk = piece.segment.open(piece.root.files).batches(FEWEST_BYTES)
    for at, header in walk.whole_headers(position):
        if header.base_offset >= piece.end:
            return
        if header.next_offset > piece.start:
            yield walk, at, header


def _reader(walk: BatchReader, position: int, header: BatchHeader) -> Callable[[], memoryview]:
    return lambda: walk.batch(position, header)


def _range_of(
    partition: TopicPartition, piece: Piece, aborted: tuple[AbortedRange, ...]
) -> SegmentRange:
    return SegmentRange(
        root=piece.root.uri,
        path=piece.segment.path,
        partition=partition,
        base_offset=piece.segment.base_offset,
        size=piece.segment.size,
        start=piece.start,
        end=piece.end,
        weight=piece.weight,
        aborted=aborted,
        maps_from=piece.start,
    )
