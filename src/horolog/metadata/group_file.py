"""Groups and committed offsets in one file: records of `__consumer_offsets` (groups/replay.py).

For a directory whose `__consumer_offsets` is another's. Changes are appended, and survive a kill
of the process, as Kafka's do (`groups.batches`).

When the file has grown to several times what counts, it is replaced by the last record of each key.
Batches of such a replacement have the leader epoch `REWRITTEN`: behind them every change is there
(`group_history`).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from horolog.errors import RequestRefused, StorageFailed
from horolog.groups.batches import batch_of_transaction, batches_of, parts_of
from horolog.groups.replay import Replay, TopicId
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow, PendingRow
from horolog.record.builder import Record
from horolog.storage.files import Files
from horolog.storage.record_file import RecordFile

REWRITTEN: Final = 1
_GROWN: Final = 4  # times what counts
_LEAST_BYTES: Final = 1 << 20  # below it the file is not replaced

_logger = logging.getLogger(__name__)


class GroupFile:
    """See the module. One thread at a time; `load` comes first."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        now_ms: Callable[[], int],
        least_bytes: int = _LEAST_BYTES,
    ) -> None:
        """At a path.

        Args:
            files: reads and writes.
            path: of the file; made by the first change.
            now_ms: the time of the broker's clock, which records are stamped with.
            least_bytes: a smaller file is never replaced.
        """
        self._file = RecordFile(files, path)
        self._now_ms = now_ms
        self._least_bytes = self._replace_at = least_bytes

    def load(self, topic_id: TopicId) -> tuple[list[GroupRow], list[OffsetRow], list[PendingRow]]:
        """All groups, committed offsets, and those of open transactions.

        What is damaged is named in the log, and left out.

        Args:
            topic_id: tells a topic from an earlier one of the same name.

        Raises:
            StorageFailed: the file cannot be read.
        """
        replay = self._replay()
        groups, offsets = replay.rows(topic_id)
        pending = replay.pending(topic_id)
        for lost in self._file.lost:
            _logger.error("Groups or committed offsets may be lost: %s", lost)
        if replay.unreadable:
            _logger.error(
                "%s: %d records cannot be read and are left out; the first: %s",
                self._file.path,
                replay.unreadable,
                replay.reason,
            )
        self._replace_at = max(self._least_bytes, 2 * self._file.size)
        if replay.seen > _GROWN * replay.count and self._file.size >= self._least_bytes:
            self._replace(replay)
        return groups, offsets, pending

    def write_groups(self, changes: Sequence[GroupChange]) -> list[Exception | None]:
        """Append changes in order, in one write; the error of each or None.

        A change that no record can hold fails alone. A write that fails changes nothing.
        """
        now_ms = self._now_ms()
        outcomes: list[Exception | None] = []
        batches: list[bytes] = []
        accepted: list[list[Record]] = []
        for change in changes:
            try:
                in_transaction = batch_of_transaction(change, now_ms)
                if in_transaction is None:
                    accepted.extend(parts_of(change, now_ms))
                else:
                    batches += *batches_of(accepted), in_transaction
                    accepted = []
            except RequestRefused as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        batches += batches_of(accepted)
        if batches:
            try:
                self._file.append_all(batches, sync=False)
            except StorageFailed as error:
                return [error if outcome is None else outcome for outcome in outcomes]
            if self._file.size >= self._replace_at:
                self._replace(None)
        return outcomes

    def close(self) -> None:
        """Wait until the disk has all changes.

        Raises:
            StorageFailed: the disk refused.
        """
        self._file.sync()

    def _replay(self) -> Replay:
        replay = Replay()
        for batch in self._file.read():
            replay.take(batch)
        return replay

    def _replace(self, replay: Replay | None) -> None:
        """Put the last record of each key in the place of all; a failure leaves the file."""
        try:
            if replay is None:
                replay = self._replay()
            if replay.is_settled and not replay.unreadable:
                self._file.replace(batches_of(([each] for each in replay.records()), REWRITTEN))
        except StorageFailed as error:
            _logger.warning("%s is not replaced by a smaller one: %s", self._file.path, error)
        self._replace_at = max(self._least_bytes, _GROWN * self._file.size)
