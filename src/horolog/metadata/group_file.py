"""Groups and committed offsets in one file: records of `__consumer_offsets` (groups/replay.py).

For a directory whose `__consumer_offsets` is another's. Changes are appended, and survive a kill
of the process, as Kafka's do (`groups.batches`).

When the file has grown to several times what counts, it is replaced by the last record of each key.
Batches of such a replacement have the leader epoch `REWRITTEN`: behind them every change is there
(`group_history`).
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from horolog.errors import RequestRefused, StorageFailed
from horolog.groups.batches import batch_of_transaction, batches_of, parts_of
from horolog.groups.replay import Replay, TopicId
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow, PendingRow
from horolog.metadata.compacted_file import GROWN, CompactedFile
from horolog.record.builder import Record
from horolog.record.kernels.loading import REPLAY_WORTH_KERNELS
from horolog.storage import names
from horolog.storage.segments.reader import SegmentReader

REWRITTEN: Final = 1


_logger = logging.getLogger(__name__)


class GroupFile(CompactedFile):
    """See the module. One thread at a time; `load` comes first."""

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
        self._note_loaded("Groups or committed offsets", grown=2)
        if replay.unreadable:
            _logger.error(
                "%s: %d records cannot be read and are left out; the first: %s",
                self._file.path,
                replay.unreadable,
                replay.reason,
            )
        if replay.seen > GROWN * replay.count and self._file.size >= self._least_bytes:
            self._replace()
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
                self.append(batches)
            except StorageFailed as error:
                return [error if outcome is None else outcome for outcome in outcomes]
        return outcomes

    def _replay(self) -> Replay:
        replay = Replay()
        for batch in self._file.read():
            replay.take(batch)
        return replay

    def _latest(self) -> Replay:
        """What the file adds up to; of a large one superseded records are not decoded."""
        if self._file.size < REPLAY_WORTH_KERNELS:
            return self._replay()
        from horolog.record.cleaning import load_kernels  # noqa: PLC0415 - numpy, once it is needed
        from horolog.storage.cleaning.latest import replay_latest  # noqa: PLC0415 - the same

        load_kernels()
        replay = Replay()
        stem = self._file.path.removesuffix(names.LOG)
        segment = SegmentReader(self._files, stem, 0, self._file.size)
        is_whole = not any(replay_latest([segment], 0, replay.take))
        return replay if is_whole else self._replay()

    def _batches_that_count(self) -> Iterable[bytes] | None:
        replay = self._latest()
        if replay.unreadable or not replay.is_settled:
            return None
        return batches_of(([each] for each in replay.records()), REWRITTEN)
