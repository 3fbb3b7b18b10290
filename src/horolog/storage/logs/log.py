"""The log of one partition: appended to (logs/appendable.py), truncated, deleted from, closed.

Invariant: what is deleted is out of the readers' sight before its files are touched. Follow-up work
is returned to the caller: the removal of files after a deletion.
"""

from horolog.errors import ErrorCode, RequestRefused
from horolog.storage.logs.cleaning import CleaningLog
from horolog.storage.removal import retention
from horolog.storage.removal.removed_files import DeletedSegment


class Log(CleaningLog):
    """See the module."""

    # Shortening.

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset` (-1: at the high watermark); the new log start.

        The records are gone at once for readers, their segments at the next retention.

        Raises:
            RequestRefused: the offset is out of range (1), or the topic does not delete (44).
        """
        if "delete" not in self.config.cleanup_policy:
            raise RequestRefused(
                ErrorCode.policy_violation,
                f"Cannot delete records of {self}: its cleanup.policy does not contain delete",
            )
        with self._exclusively():
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
        """What retention would take away, and why; may run concurrently with appends.

        Of a segment without a seal this walks all headers, and then seals it, so
        that `apply_retention`, which holds up appends, need not.
        """
        segments = self.segments
        if self.retention_exempt:
            return []
        found = retention.verdicts(
            segments,
            self.config,
            self.log_start_offset,
            self.high_watermark,
            now_ms,
            self._append_times.resets,
        )
        return [
            DeletedSegment(segment.base_offset, segment.size, verdict.reason)
            for segment, verdict in zip(
                segments, retention.going(verdict for _, verdict in found), strict=False
            )
        ]

    def apply_retention(self, now_ms: int, monotonic_ms: int) -> list[DeletedSegment]:
        """Delete the segments that retention no longer keeps; which, and why.

        Their files are renamed at once; `removed_files` removes them `file.delete.delay.ms`
        after `monotonic_ms`.
        """
        with self._exclusively():
            config = self.config
            if not self.retention_exempt and self._writer.must_roll_idle(config, now_ms):
                self._roll(self.log_end_offset, now_ms)
            deleted = self.deletable(now_ms)
            if len(deleted) == len(self.segments):
                self._roll(self.log_end_offset, now_ms)
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
        with self._exclusively(), self._flusher.settling(self):
            unsynced = []
            if self.epochs.latest != self.leader_epoch > 0 and not self.is_following:
                # Clients have seen it; the next start must not lead in an older one.
                self.epochs.assign(self.leader_epoch, self.log_end_offset, sync=False)
                unsynced.append(self.epochs.path)
            if not self._is_settled:
                self._writer.finish()
                unsynced += self.active.segment.paths
            unsynced += self._flusher.unsynced_paths(self)
            if unsynced and self._flusher.has_new_names:
                unsynced.append(self.directory)
            return unsynced

    def finished(self) -> None:
        """The disk has all that `finish` named."""
        self._is_settled = True
        self._flusher.synced_everything(self)

    def doubt(self) -> None:
        """The disk has failed to sync what `finish` named."""
        self._flusher.doubt()

    def end_repairs(self) -> None:
        """Replace no index from here on, also where a thread is checking one: another may write."""
        for segment in self.segments:
            segment.indexes.abandon()

    def abandon(self) -> None:
        """Let go of the files of a log whose directory has another name now."""
        for segment in self.segments:
            segment.abandon()
