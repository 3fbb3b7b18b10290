"""A log that follows: the batches of a source as they are, up to what the source says is readable.

Nothing is validated but that a batch is whole and comes behind the last one, and nothing is
stamped: bytes, offsets, leader epochs and append times are those of the source. The leader of the
source has judged the rest, as for any follower (KIP-32). Of a source without append times it is
kept when the records were seen.

Invariant: the high watermark is at most the log end, and goes back with a truncation alone.
"""

import logging
from collections.abc import Container, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, StorageFailed
from horolog.record.batch import parse_header, verify_crc
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import names
from horolog.storage.logs.truncating import TruncatingLog
from horolog.storage.producers.states import Unended
from horolog.storage.segments.numbered import Numbered, as_they_are

_logger = logging.getLogger(__name__)


class Followed(NamedTuple):
    """What became of the batches of a source."""

    last_offset: int
    """Of the log."""
    size: int
    """Bytes that were appended."""
    rolled: bool
    """The segments before the active one need a `flush_rolled`, which may be in another thread."""

    @property
    def next_offset(self) -> int:
        """The offset to fetch next."""
        return self.last_offset + 1


class FollowingLog(TruncatingLog):
    """See the module."""

    def begin_following(self, high_watermark: int) -> None:
        """Take the batches of a source from here on, and none of producers.

        Args:
            high_watermark: up to which consumers read meanwhile, as far as there are records.
        """
        with self._exclusively():
            end_offset = self.log_end_offset
            self._said_unended = frozenset()
            self.producers.keeps_ended = True
            self.has_transactions = True  # the source's may have any
            self._high_watermark = max(self.log_start_offset, min(high_watermark, end_offset))
            # An epoch in which this log led, and wrote nothing, is not known to another leader.
            self.epochs.truncate_from_end(end_offset)
            self._truncate_append_times(end_offset)
            self._find_unstable()

    def lead(
        self,
        epoch: int,
        now_ms: int,
        *,
        committed: Container[int] = (),
    ) -> None:
        """Take the batches of producers from here on, in a leader epoch that is the largest so far.

        All records are readable. Transactions that are open end as the source said, or are aborted:
        the producers that could end them write to another leader. Where the disk refuses their
        markers they count so meanwhile, and the next start writes them (`end_inherited`). The epoch
        is on the disk before any batch of it.

        Args:
            epoch: the leader epoch.
            now_ms: the clock.
            committed: producer ids whose open transactions are committed.

        Raises:
            StorageFailed: the disk refused; the log still follows.
        """
        assert epoch > self.epochs.latest
        with self._exclusively():
            self._is_settled = False
            self.epochs.assign(epoch, self.log_end_offset)
            self.leader_epoch = epoch
            self.producers.keeps_ended = False
            said = {each[:2]: each for each in self._said_unended}
            self._said_unended = frozenset()
            opened = self.producers.unended()
            self._unended = tuple(
                said.get(each, Unended(*each, each[0] in committed)) for each in opened
            )
            self._high_watermark = None
            self._find_unstable()
            try:
                self._end_unended(now_ms)
            except StorageFailed as error:
                _logger.warning("%s: open transactions count as aborted: %s", self, error)

    def end_inherited(
        self,
        epoch: int,
        now_ms: int,
        *,
        committed: Container[int] = (),
    ) -> None:
        """End what was open before the log was first led in an epoch, if anything still is.

        The arguments are those of `lead`.

        Raises:
            StorageFailed: the disk refused; the rest count as aborted.
        """
        with self._exclusively():
            before = self.epochs.end_offset_for(epoch - 1, self.log_end_offset)
            if before is None:
                return
            start, opened = before.start_offset, self.producers.unended()
            self._unended = tuple(
                Unended(*each, each[0] in committed) for each in opened if each[1] < start
            )
            self._find_unstable()
            self._end_unended(now_ms)

    def led_in(self, epoch: int) -> None:
        """The source leads in this epoch, and all that is here is in its log.

        Consumers are given it; one that knows an earlier epoch has to look whether what it has read
        is still there (KIP-320).
        """
        with self._exclusively():
            assert self.is_following
            self.leader_epoch = epoch

    def follow(
        self, data: Buffer, *, append_times: Sequence[AppendTimeStretch] = (), now_ms: int
    ) -> Followed:
        """Append batches of the source, of any format.

        Args:
            data: whole batches, behind the log end; there may be gaps, which compaction leaves.
            append_times: of the records, in order, as far as the source knows them. Where it gives
                none, as another product does, the records are kept as seen now.
            now_ms: the clock.

        Raises:
            CorruptBatch: one is damaged, not whole, or not behind those before it. Those before
                it are in the log.
            StorageFailed: the disk refused; some may be in the log, or all if it was the flush
                that `flush.messages` asks for.
        """
        assert self.is_following
        with self._exclusively():
            if self._flusher.is_in_doubt:
                self._refuse_in_doubt()
            if not append_times:
                seen_ms = self._append_times.next(now_ms)  # a clock that goes back resets nothing
                append_times = [AppendTimeStretch(self.log_end_offset, seen_ms, is_seen=True)]
            batches, damage = self._checked(data, append_times)
            before = self.segments[-1]
            size = sum(batch.size for batch in batches)
            try:
                self._extend(batches, now_ms)
            finally:
                self._find_unstable()
            if self.log_end_offset - self._flusher.recovery_point >= self.config.flush_messages:
                self._flusher.flush(self)
            if damage is not None:
                raise damage
            rolled = self.segments[-1] is not before
            return Followed(self.log_end_offset - 1, size, rolled)

    def _checked(
        self, data: Buffer, append_times: Sequence[AppendTimeStretch]
    ) -> tuple[list[Numbered], CorruptBatch | None]:
        """The batches before the first that is wrong, and what is wrong with that."""
        found: list[Numbered] = []
        next_offset = self.log_end_offset
        try:
            for batch in as_they_are(data, next_offset, append_times):
                if found and batch.base_offset < next_offset:
                    found.pop()  # a base offset has no checksum: it may be that which is wrong
                self._check(batch, next_offset)
                found.append(batch)
                next_offset = batch.last_offset + 1
        except CorruptBatch as damage:
            return found, damage
        return found, None

    def _check(self, batch: Numbered, next_offset: int) -> None:
        first, last = batch.base_offset, batch.last_offset
        if not next_offset <= first <= last <= names.MAX_BASE_OFFSET:
            raise CorruptBatch(
                f"A batch of offsets {first} to {last} cannot follow in {self}, which ends at "
                f"{next_offset}"
            )
        (part,), listed = batch.parts, batch.messages
        if listed is None:
            verify_crc(part, 0, batch.header)
            return
        positions = listed[0].positions
        for position in (each - positions[0] for each in positions):
            verify_crc(part, position, parse_header(part, position, first))

    def _extend(self, batches: Sequence[Numbered], now_ms: int) -> None:
        self._is_settled = False
        self._writer.extend(
            batches,
            self.config,
            now_ms,
            by_time=not self.retention_exempt,
            roll=partial(self._roll, now_ms),
        )

    def advance_high_watermark(self, offset: int) -> int:
        """Let consumers read up to an offset, or to the log end; the high watermark."""
        with self._exclusively():
            assert self._high_watermark is not None
            offset = min(offset, self.log_end_offset)
            if offset > self._high_watermark:
                self._high_watermark = offset
                self._find_unstable()
            return self._high_watermark

    def count_unended(self, said: Iterable[Unended]) -> None:
        """Let transactions that no marker ends count as they do at the source, from now on.

        They are open here until the source says so, and after a restart until it says so again.
        Of what it has said nothing is taken back before the log is truncated: what consumers were
        told to leave out, they are not given by a source that starts itself and knows less yet.
        """
        with self._exclusively():
            assert self.is_following
            self._said_unended |= frozenset(said)
            self._find_unstable()

    def start_at(self, offset: int) -> int:
        """Let the log start where its source's does, as far as consumers read; the log start."""
        with self._exclusively():
            self._start_at(min(offset, self.high_watermark))
            return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
