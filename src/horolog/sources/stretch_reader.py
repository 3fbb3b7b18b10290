"""Reader of stretches from brokers or segment files."""

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from typing import Self

from horolog.client import Client
from horolog.errors import CorruptBatch, Damaged, Misconfigured, StorageFailed
from horolog.offsets import TimeBlock
from horolog.record.batch import iter_headers
from horolog.record.timestamps import RecordClock
from horolog.sources.batches import Batches
from horolog.sources.bounds import data_lost, loss_hint
from horolog.sources.broker_reader import fetches, narrowed_to_appends, task_client
from horolog.sources.file_reader import batches_in_file
from horolog.sources.file_systems import Root
from horolog.sources.options import ReadOptions
from horolog.sources.ordered import TimedStretch, group_bytes, timed_parts
from horolog.sources.plan import BrokerStretch, SegmentStretch, Stretch, from_offset
from horolog.sources.read_blocks import read_blocks, stamped
from horolog.sources.replaced import present_segments
from horolog.sources.row_filter import RowFilter
from horolog.sources.uris import LogPath
from horolog.storage.file_errors import FileMissing


class StretchReader:
    """Open resources of a task: a client of the brokers, or files.

    Close it after use.

    Unless it `runs_ahead`, batches of several stretches may be asked for in turns. Unless it
    `reuses_memory`, batches stay valid; otherwise until the next ones are asked for.
    """

    def __init__(
        self, options: ReadOptions, *, runs_ahead: bool = True, reuses_memory: bool = True
    ) -> None:
        self._options = options
        self._runs_ahead = runs_ahead
        self._reuses_memory = reuses_memory
        self._stack = ExitStack()
        self._roots: dict[LogPath, Root] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def interrupt(self) -> None:
        """Make a request that another thread waits for fail now, for good."""
        client = vars(self).get("client")
        if client is not None:
            client.brokers.interrupt()

    @cached_property
    def client(self) -> Client:
        """Client of the brokers."""
        return self._stack.enter_context(task_client(self._options))

    @cached_property
    def _keeps_append_times(self) -> bool:
        return self.client.offsets.has_append_times()

    def batches(
        self,
        stretch: Stretch,
        row_filter: RowFilter,
        *,
        with_append_times: bool = False,
        with_markers: bool = False,
    ) -> Iterator[Batches]:
        """Yield the batches of a stretch that may hold a record of a filter.

        Args:
            row_filter: whose records are looked for.
            with_append_times: say when records were appended, as far as that is known.
            with_markers: also give batches without records for consumers, be they control batches
                or emptied by compaction. From brokers they always come.

        Raises:
            FileMissing: a segment is gone.
            CorruptBatch: a batch is damaged; those before it are given.
            DataLost: the broker has not all offsets any more, and data loss is to fail.
            RequestRefused: the broker refuses for another reason, or keeps no append times of the
                records.
            NoAnswer: it does not answer.
        """
        if isinstance(stretch, SegmentStretch):
            root = self._root(stretch.root)
            return batches_in_file(
                root,
                stretch,
                row_filter,
                with_append_times=with_append_times,
                with_markers=with_markers,
                runs_ahead=self._runs_ahead,
            )
        narrowed = narrowed_to_appends(self.client, stretch, row_filter)
        if narrowed is None:
            return iter(())
        is_stamped = with_append_times and not self._keeps_append_times
        found = fetches(
            self.client,
            narrowed,
            self._options,
            with_append_times and not is_stamped,
            reuses_memory=self._reuses_memory,
            runs_ahead=self._runs_ahead,
        )
        return (stamped(batches, stretch.partition) for batches in found) if is_stamped else found

    def timed(
        self,
        stretches: Sequence[Stretch],
        clock: RecordClock,
        memory: int,
        on_looked: Callable[[int], None] = lambda offsets: None,
    ) -> list[TimedStretch]:
        """Cut stretches at the blocks of their logs, each with the earliest time in it.

        A log at a broker of Apache Kafka is read for that. The rest of a stretch that is damaged
        has unknown times: reading it reports the damage.

        Args:
            memory: how many bytes of records may be held in order.
            on_looked: called with the number of offsets whose times are found.

        Raises:
            RequestRefused: the broker refuses, or keeps no append times of the records.
            NoAnswer: it does not answer.
        """
        most = group_bytes(memory, len({stretch.partition for stretch in stretches}))
        where: dict[tuple[str, int], tuple[int, int]] = {}
        for stretch in stretches:
            if isinstance(stretch, BrokerStretch):
                key = stretch.partition.topic, stretch.partition.partition
                first, last = where.get(key, (stretch.start, stretch.end))
                where[key] = min(first, stretch.start), max(last, stretch.end)
        known = self.client.offsets.time_blocks(where, clock) if where else {}
        found: list[TimedStretch] = []
        looked = 0
        for stretch in stretches:
            reached = stretch.start
            blocks = known.get((stretch.partition.topic, stretch.partition.partition))
            try:
                for part in self._timed_parts(stretch, blocks, clock, most):
                    found.append(part)
                    reached = part.stretch.end
                    looked += reached - part.stretch.start
                    on_looked(looked)
            except (Damaged, StorageFailed):
                found += timed_parts(from_offset(stretch, reached), (), most)
        return found

    def _timed_parts(
        self,
        stretch: Stretch,
        blocks: Iterable[TimeBlock] | None,
        clock: RecordClock,
        most: int,
    ) -> Iterator[TimedStretch]:
        by_append = clock is RecordClock.APPEND
        if isinstance(stretch, BrokerStretch):
            if blocks is None:
                read = self.batches(stretch, RowFilter(), with_append_times=by_append)
                blocks = read_blocks(read, clock)
            yield from timed_parts(stretch, blocks, most)
            return
        with self.losses(stretch):
            for piece, reader in present_segments(self._root(stretch.root), stretch):
                reader.complete_blocks()
                look = reader.blocks.look(min(reader.size, piece.segment.size))
                found = look.time_blocks(piece.end, of_append=by_append)
                yield from timed_parts(piece, found, most)

    @contextmanager
    def losses(self, stretch: Stretch) -> Iterator[None]:
        """Report missing or damaged segments as the options say: by an error or a warning.

        Raises:
            Misconfigured: this process cannot see the path at all.
            DataLost: the segment went away, or lost its end, and data loss is to fail.
            CorruptBatch: a batch is damaged, and data loss is to fail.
        """
        if isinstance(stretch, BrokerStretch):
            yield
            return
        options = self._options
        try:
            yield
        except FileMissing:
            root = self._root(stretch.root)
            if not root.exists():
                raise Misconfigured(
                    f"The path {root.name} does not exist on {socket.gethostname()}, where a task "
                    "runs: every worker has to see it, at the same place"
                ) from None
            data_lost(options, f"{stretch.path} was deleted before it was read")
        except CorruptBatch as error:
            message = f"{stretch.path} cannot be read to its end: {error.reason}"
            if options.fail_on_data_loss or options.fail_on_damage:
                hint = loss_hint(options, "read what is behind it")
                raise CorruptBatch(message + hint) from error
            data_lost(options, message)

    def _root(self, path: LogPath) -> Root:
        if path not in self._roots:
            self._roots[path] = self._stack.enter_context(Root(path, self._options.store))
        return self._roots[path]


@contextmanager
def naming_batch(batches: Batches) -> Iterator[None]:
    """Add the batch's offset to errors about its records.

    Raises:
        CorruptBatch: of the caller's, with the batch's offset.
    """
    try:
        yield
    except CorruptBatch as error:
        where = ""
        with suppress(CorruptBatch):  # then the error stands for itself
            for position, header in iter_headers(batches.data):
                if error.position is not None and error.position < position + header.size:
                    where = f"the batch at offset {header.base_offset}: "
                    break
        raise CorruptBatch(f"{where}{error}") from error
