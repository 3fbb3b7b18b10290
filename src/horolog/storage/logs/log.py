"""The log of one partition: appended to, truncated, cleaned, deleted from, closed.

Appends are in logs/appendable.py. What takes several steps is done by parts, which hold what the
disk has left to do: `Truncator` (logs/truncating.py) and `Swap` (logs/replacing.py).

A log leads or follows. One that follows takes the batches of a source as they are, up to what the
source says is readable: bytes, offsets, leader epochs and append times are those of the source. Of
a source without append times it is kept when the records were seen. In a cluster the controllers
decide the role and give the epochs (`become_leader`, `become_follower`); otherwise this broker does
(`lead`, `begin_following`).

Invariant: what is deleted is out of the readers' sight before its files are touched. A high
watermark that is told is at most the log end, and goes back with a truncation alone. Follow-up work
is returned to the caller: the removal of files after a deletion.
"""

import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager

from horolog.config import LONG_MAX
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.storage import names
from horolog.storage.cleaning.choosing import Cleanable, cleanable, first_dirty, first_time
from horolog.storage.directory.checkpoints import write_cleaning
from horolog.storage.logs.appendable import AppendableLog
from horolog.storage.logs.readable import LogParts
from horolog.storage.logs.replacing import Swap
from horolog.storage.logs.truncating import Truncator, truncate_append_times
from horolog.storage.producers.states import Unended
from horolog.storage.removal import retention
from horolog.storage.removal.removed_files import DeletedSegment
from horolog.storage.segments.segment import Segment

_logger = logging.getLogger(__name__)


class Log(AppendableLog):
    """The log of one partition."""

    __slots__ = (
        "_swap",
        "_truncator",
        "oddly_kept",
    )

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self._truncator = Truncator()
        self._swap = Swap()
        self.oddly_kept: retention.Because | None = None
        """Why the last check of retention kept the oldest segment, if that is unusual."""

    def finish_pending(self) -> None:
        """Complete operations that the disk refused half-way, before the log is changed again."""
        if self._truncator.is_unfinished or self._swap.is_unfinished:
            with self.flusher.truncating():
                self._truncator.finish(self)
                self._swap.finish(self)

    # Following and leading.

    def begin_following(self, high_watermark: int) -> None:
        """Accept the batches of a source from now on, and refuse those of producers.

        Args:
            high_watermark: up to which consumers read meanwhile, as far as there are records.
        """
        with self.exclusively():
            self._follow(high_watermark)

    def become_follower(self, epoch: int) -> None:
        """Accept the batches of the leader of an epoch, and refuse those of producers.

        The high watermark stays: what is behind it may not be in the log of the leader.
        """
        with self.exclusively():
            if not self.is_following:
                self._follow(self.high_watermark)
            self.leader_epoch = epoch

    def _follow(self, high_watermark: int) -> None:
        end_offset = self.log_end_offset
        self.said_unended = frozenset()
        self.producers.keeps_ended = True
        self.has_transactions = True  # the source's may have any
        self.is_following = True
        self.known_high_watermark = max(self.log_start_offset, min(high_watermark, end_offset))
        # An epoch in which this log led, and wrote nothing, is not known to another leader.
        self.epochs.truncate_from_end(end_offset)
        truncate_append_times(self, end_offset)
        self.find_unstable()

    def become_leader(self, epoch: int, *, is_replicated: bool) -> None:
        """Take the batches of producers in a leader epoch that the controllers gave.

        The high watermark stays, and transactions stay open: their coordinator ends them. The epoch
        is in its file before any batch of it. A log that leads in the epoch already goes on.

        Args:
            is_replicated: see `set_replicated`.

        Raises:
            RequestRefused: the log has records of a later epoch (74).
            StorageFailed: the disk refused; the log has the role that it had.
        """
        with self.exclusively():
            if self.epochs.latest > epoch:
                raise RequestRefused(
                    ErrorCode.fenced_leader_epoch,
                    f"{self} cannot be led in epoch {epoch}: it has epoch {self.epochs.latest}",
                )
            if self.is_following or epoch != self.leader_epoch:
                self._begin_epoch(epoch)
                self.said_unended, self.unended = frozenset(), ()
                self.is_following = False
            self._count_replicas(is_replicated=is_replicated)

    def _begin_epoch(self, epoch: int) -> None:
        """Begin an epoch of this leader at the log end.

        In a cluster the file is not synced, since a broker may be told to lead a thousand logs at
        once: what a power cut takes of it is in the batches, and in the controllers' metadata.
        """
        self.is_settled = False
        end_offset = self.log_end_offset
        self.epochs.assign(epoch, end_offset, sync=not self.is_of_cluster)
        self.leader_epoch, self.epoch_start_offset = epoch, end_offset

    def set_replicated(self, is_replicated: bool) -> None:
        """Note whether there are other replicas of a log that leads.

        With them the high watermark stays where it is until it is moved; otherwise it is the log
        end.
        """
        with self.exclusively():
            if not self.is_following:
                self._count_replicas(is_replicated=is_replicated)

    def _count_replicas(self, *, is_replicated: bool) -> None:
        self.producers.keeps_ended = is_replicated
        if not is_replicated:
            self.known_high_watermark = None
        elif self.known_high_watermark is None:  # else it may be moved just now
            self.known_high_watermark = self.log_end_offset
        self.find_unstable()

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
            committed: producer ids whose open transactions are committed.

        Raises:
            StorageFailed: the disk refused; the log still follows.
        """
        assert epoch > self.epochs.latest
        with self.exclusively():
            self._begin_epoch(epoch)
            self.producers.keeps_ended = False
            said = {transaction[:2]: transaction for transaction in self.said_unended}
            self.said_unended = frozenset()
            opened = self.producers.unended()
            self.unended = tuple(
                said.get(transaction, Unended(*transaction, transaction[0] in committed))
                for transaction in opened
            )
            self.is_following, self.known_high_watermark = False, None
            self.find_unstable()
        try:
            self.end_unended(now_ms)
        except StorageFailed as error:
            _logger.warning("%s: open transactions count as aborted: %s", self, error)

    def end_inherited(
        self,
        epoch: int,
        now_ms: int,
        *,
        committed: Container[int] = (),
    ) -> None:
        """End transactions that were open before the log was first led in an epoch.

        The arguments are those of `lead`.

        Raises:
            StorageFailed: the disk refused; the rest count as aborted.
        """
        with self.exclusively():
            before = self.epochs.end_offset_for(epoch - 1, self.log_end_offset)
            if before is None:
                return
            start, opened = before.start_offset, self.producers.unended()
            self.unended = tuple(
                Unended(*transaction, transaction[0] in committed)
                for transaction in opened
                if transaction[1] < start
            )
            self.find_unstable()
        self.end_unended(now_ms)

    def led_in(self, epoch: int) -> None:
        """Note that the source leads in this epoch, and has all records of this log.

        Consumers are given it; one that knows an earlier epoch has to look whether what it has read
        is still there (KIP-320).
        """
        with self.exclusively():
            assert self.is_following
            self.leader_epoch = epoch

    def move_high_watermark(self, offset: int) -> bool:
        """Let consumers read up to an offset, or to the log end; return True if that is more.

        May run while another thread appends. One thread at a time moves it, and none while the role
        of the log changes or the log is truncated.
        """
        known = self.known_high_watermark
        if known is None or offset <= known:
            return False
        end_offset = self.log_end_offset
        if offset > end_offset:
            offset = end_offset
        self.known_high_watermark = max(known, offset)
        return offset > known

    def count_unended(self, said: Iterable[Unended]) -> None:
        """Let transactions that no marker ends count as they do at the source, from now on.

        They are open here until the source says so, and after a restart until it says so again.
        Of what it has said nothing is taken back before the log is truncated: what consumers were
        told to leave out, they are not given by a source that starts itself and knows less yet.
        """
        with self.exclusively():
            assert self.is_following
            self.said_unended |= frozenset(said)
            self.find_unstable()

    def start_at(self, offset: int) -> int:
        """Advance the log start to the source's, at most to the high watermark; return it.

        In a cluster the high watermark is raised to the start: what the leader has deleted was
        committed (KAFKA-9491, KAFKA-16452).
        """
        with self.exclusively():
            if self.is_of_cluster:
                self.move_high_watermark(offset)
            self._start_at(min(offset, self.high_watermark))
            return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    # Truncating.

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Take the batch that holds `offset` and all that follow out of the log.

        The log end is then the end of the last batch that stays, which is before `offset`
        where that was within a batch or a gap. (Kafka calls the offset itself the end, and has a
        gap.) What goes is set aside, and named in a warning.

        Raises:
            StorageFailed: the disk refused. The log is as it was, or ends there, and the rest is
                tried again before anything is written to it.
            CorruptBatch: the segment that stays is damaged before that offset.
        """
        with self.exclusively(), self.flusher.truncating(), self._noting_refusals():
            if offset < self.log_end_offset:
                self._truncator.truncate_to(self, offset, now_ms)

    def truncate_fully(self, start_offset: int, now_ms: int) -> None:
        """Remove all records from the log, which then starts and ends at an offset.

        Raises:
            StorageFailed: as `truncate_to`.
        """
        with self.exclusively(), self.flusher.truncating(), self._noting_refusals():
            self._truncator.truncate_fully(self, start_offset, now_ms)

    @contextmanager
    def _noting_refusals(self) -> Iterator[None]:
        try:
            yield
        except StorageFailed as error:
            self.note_refusal(error)
            raise

    # Cleaning.

    def cleanable(self, now_ms: int) -> Cleanable | None:
        """Return the part that may be cleaned; None if the log is never cleaned.

        Any thread may ask.

        Raises:
            StorageFailed: the disk refused.
            CorruptBatch: the log is damaged where its times have to be read from it.
        """
        config = self.config
        if not config.compacts or self.retention_exempt:
            return None
        stable_end = min(self.last_stable_offset, self.high_watermark)
        return cleanable(
            self.segments,
            config,
            self.cleaner_point,
            self.log_start_offset,
            stable_end,
            now_ms,
            self.floor.resets,
        )

    def must_roll_to_clean(self, now_ms: int) -> bool:
        """Return True if records have been in the active segment for `max.compaction.lag.ms`.

        They are not cleaned there. (Kafka rolls it with the next append alone.)
        """
        config, active = self.config, self.segments[-1]
        lag_ms = config.max_compaction_lag_ms
        if not config.compacts or self.retention_exempt or lag_ms == LONG_MAX or not active.size:
            return False
        return now_ms - first_time(active, config) > lag_ms

    def segments_to_clean(self, chosen: Cleanable) -> list[Segment]:
        """Return the segments of the chosen part, after pending operations are complete.

        None where the log has changed since: it was cleaned, truncated, or is another one.
        """
        with self.exclusively():
            point = first_dirty(self.cleaner_point, self.log_start_offset, self.log_end_offset)
            stable_end = min(self.last_stable_offset, self.high_watermark)
            if point != chosen.first_dirty or chosen.end > stable_end or self.retention_exempt:
                return []
            if all(segment.base_offset != chosen.end for segment in self.segments):
                return []
            return [segment for segment in self.segments[:-1] if segment.base_offset < chosen.end]

    def put_cleaned(self, old: Sequence[Segment], work: str, due_ms: int, keys_end: int) -> bool:
        """Replace old segments by those of a directory.

        Return False if some are no longer in the log.

        Args:
            old: segments of this log that follow each other.
            work: holds finished, synced segments alone, with what is to stay of the old ones.
            due_ms: from when on, by the monotonic clock, the old ones' files may be removed.
            keys_end: offset in front of which are all records in whose favour others were removed.

        Raises:
            StorageFailed: the disk refused. The old ones are in the log, or the new ones will be
                before anything else changes its segments.
        """
        with self.exclusively(), self.flusher.truncating():
            present = {id(segment) for segment in self.segments[:-1]}
            may_clean = self.config.compacts and not self.retention_exempt
            if not may_clean or not all(id(segment) in present for segment in old):
                return False
            if keys_end > self.cleaning_to:
                path = f"{self.directory}/{names.CLEANING_CHECKPOINT}"
                write_cleaning(self.files, path, keys_end)
                self.cleaning_to = keys_end
            self._swap.put(self, old, work, due_ms)
            return True

    def cleaned_to(self, offset: int) -> None:
        """Record the offset up to which the log was cleaned."""
        with self.exclusively():
            if offset <= self.log_end_offset:
                self.cleaner_point = offset

    # Shortening.

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset` (-1: at the high watermark); the new log start.

        The records are gone at once for readers, their segments at the next retention.

        Raises:
            RequestRefused: the offset is out of range (1), the topic does not delete (44), or the
                log follows another broker of its cluster (6).
        """
        if self.is_following and self.is_of_cluster:
            raise RequestRefused(
                ErrorCode.not_leader_or_follower, f"{self} follows another broker, which deletes"
            )
        if "delete" not in self.config.cleanup_policy:
            raise RequestRefused(
                ErrorCode.policy_violation,
                f"Cannot delete records of {self}: its cleanup.policy does not contain delete",
            )
        with self.exclusively():
            end_offset = self.high_watermark
            if offset == -1:
                offset = end_offset
            if not 0 <= offset <= end_offset:
                raise RequestRefused(
                    ErrorCode.offset_out_of_range,
                    f"Cannot increment the log start offset to {offset} of partition {self} since "
                    f"it is larger than the high watermark {end_offset}",
                )
            self._start_at(offset)
        return self.log_start_offset

    def deletable(self, now_ms: int) -> list[DeletedSegment]:
        """List the segments that retention would delete, and why; may run during appends.

        Of a segment without a seal this walks all headers, and then seals it, so
        that `apply_retention`, which holds up appends, need not.
        """
        segments, deleted = self.segments, list[DeletedSegment]()
        self.oddly_kept = None
        if self.retention_exempt:
            self.oddly_kept = None if self.is_empty else retention.Because.EXEMPT
            return deleted
        found = retention.verdicts(
            segments,
            self.config,
            self.log_start_offset,
            self.high_watermark,
            now_ms,
            self.floor.resets,
        )
        for segment, (_, verdict) in zip(segments, found, strict=False):
            because, counts_ms = verdict.because, verdict.time and verdict.time.time_ms
            if not verdict.may_go:
                is_odd = retention.is_odd(because, counts_ms, now_ms)
                self.oddly_kept = because if is_odd else None
                break
            its = DeletedSegment(segment.base_offset, segment.size, verdict.reason, because)
            deleted.append(its)
        return deleted

    def apply_retention(self, now_ms: int, monotonic_ms: int) -> list[DeletedSegment]:
        """Delete the segments that retention no longer keeps; which, and why.

        Their files are renamed at once; `removed_files` removes them `file.delete.delay.ms`
        after `monotonic_ms`.
        """
        with self.exclusively():
            config = self.config
            if not self.retention_exempt and self.writer.must_roll_idle(config, now_ms):
                self.roll_at(self.log_end_offset, now_ms)
            deleted = self.deletable(now_ms)
            if len(deleted) == len(self.segments):
                self.roll_at(self.log_end_offset, now_ms)
            doomed, kept = self.segments[: len(deleted)], self.segments[len(deleted) :]
            # Readers lose sight of the segments before their files change names. What is before
            # the log start is out of range for them; of what no segment has they would not know.
            self._start_at(kept[0].base_offset)
            self.segments = kept
            for segment in doomed:
                due_ms = monotonic_ms + config.file_delete_delay_ms
                self.removed_files.remove_segment_later(segment, due_ms)
            if not self.retention_exempt:
                deleted += self.removed_files.expire_set_aside(config, now_ms)
            return deleted

    # Closing.

    def finish(self) -> list[str]:
        """Finish the files so that the next start need not look into them; those to be synced.

        No more appends follow. Call `finished` once the files are synced.

        Raises:
            StorageFailed: the disk refused; the next start must recover this log.
        """
        with self.exclusively(), self.flusher.settling(self):
            unsynced = []
            if self.epochs.latest != self.leader_epoch > 0 and not self.is_following:
                # Clients have seen it; the next start must not lead in an older one.
                self.epochs.assign(self.leader_epoch, self.log_end_offset, sync=False)
                unsynced.append(self.epochs.path)
            if not self.is_settled:
                self.writer.finish()
                unsynced += self.active.segment.paths
            unsynced += self.flusher.unsynced_paths(self)
            if unsynced and self.flusher.has_new_names:
                unsynced.append(self.directory)
            return unsynced

    def finished(self) -> None:
        """Note that the disk has all files that `finish` returned."""
        self.is_settled = True
        self.flusher.synced_everything(self)

    def end_repairs(self) -> None:
        """Replace no index from here on, also where a thread is checking one: another may write."""
        for segment in self.segments:
            segment.indexes.abandon()

    def abandon(self) -> None:
        """Close the files of a log whose directory was renamed."""
        for segment in self.segments:
            segment.abandon()
