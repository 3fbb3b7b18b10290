"""Batches on their way into a log, and whom they come from.

A leader gives them offsets, an epoch and append times. Batches of another log keep theirs.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE, LOG_OVERHEAD, new_head, parse_header, verify_crc
from horolog.record.markers import Marker, TransactionEnd, stamped_marker
from horolog.record.stamped import stamped_body, stamped_sums
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP, AppendTimeStretch
from horolog.storage import names
from horolog.storage.segments.numbered import (
    Numbered,
    Particulars,
    as_it_is,
    as_they_are,
)
from horolog.storage.validation.validate import Prepared, trusted_plain


class Origin(Enum):
    """Sender of a batch."""

    CLIENT = "client"
    """A producer: its answer says whether the records' times are late, or ahead of the clock."""
    COORDINATOR = "coordinator"
    """A coordinator of this broker."""
    FOLLOWER = "follower"
    """This broker, which follows the leader of the batches."""
    RESTORE = "restore"
    """A copy of another log, or a state log that has its own offsets; any role of the log does."""


class StampedRecords(NamedTuple):
    """Plain records of format v2 that this broker has made, all of one time."""

    records: Buffer
    """In the bytes of a batch, behind its header."""
    records_count: int
    """At least one."""
    now_ms: int
    """Their timestamp in milliseconds."""

    def numbered(
        self, base_offset: int, leader_epoch: int, append_ms: int, config: TopicConfig
    ) -> Numbered:
        """Build the stored batch, with its offsets and append time.

        Raises:
            RequestRefused: it is larger than a segment may be (18).
        """
        records, count, now_ms = self
        size = HEADER_SIZE + len(records)
        if (
            now_ms == NO_TIMESTAMP
            or size > config.segment_bytes
            or config.message_timestamp_type is LOG_APPEND_TIME
        ):
            built = stamped_body(bytes(records), count, now_ms)
            prepared = trusted_plain(built, config, now_ms)
            return prepared.numbered(base_offset, leader_epoch, append_ms)
        covered = (0, count - 1, now_ms, now_ms, -1, -1, -1, count)  # as `stamped_body` has them
        head = new_head(base_offset, size - LOG_OVERHEAD, leader_epoch, covered, records)
        parts, last_offset = (head, records), base_offset + count - 1
        counts = stamped_sums(count, now_ms)
        return Numbered(
            parts, size, base_offset, last_offset, now_ms, leader_epoch, append_ms, counts
        )


class SourceBatches(NamedTuple):
    """Batches of another log, of any format, that keep their bytes and offsets."""

    data: Buffer
    """Whole batches, behind the log end; there may be gaps, which compaction leaves."""
    append_times: Sequence[AppendTimeStretch] = ()
    """Append times of the records, in order, as far as the source knows them. Without any, as
    another product answers, the records are kept as seen now."""

    def checked(
        self, log: object, next_offset: int, seen_ms: int
    ) -> tuple[list[Numbered], CorruptBatch | None]:
        """Return the batches before the first damaged one, and its error, if one is damaged.

        Args:
            seen_ms: when the records are seen, if the source knows no append times.
        """
        append_times = self.append_times or [AppendTimeStretch(next_offset, seen_ms, is_seen=True)]
        batches: list[Numbered] = []
        try:
            for batch in as_they_are(self.data, next_offset, append_times):
                if not self.append_times:
                    # Not before its leader has stamped it, whose clock may be ahead of this one.
                    batch.append_ms = seen_ms = max(seen_ms, _stamp(batch))
                if batches and batch.base_offset < next_offset:
                    batches.pop()  # a base offset has no checksum: it may be that which is wrong
                _check(batch, log, next_offset)
                batches.append(batch)
                next_offset = batch.last_offset + 1
        except CorruptBatch as damage:
            return batches, damage
        return batches, None


Batch: TypeAlias = Prepared | StampedRecords | TransactionEnd | SourceBatches


def numbered_marker(
    ended: TransactionEnd,
    now_ms: int,
    base_offset: int,
    leader_epoch: int,
    append_ms: int,
    config: TopicConfig,
) -> Numbered:
    """Build the control batch that ends a transaction, with its offset and times.

    Args:
        now_ms: the time of its record.
        leader_epoch: the epoch of the leader.
    """
    timestamp_type = config.message_timestamp_type
    header, parts, counts = stamped_marker(
        ended,
        now_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        append_ms=append_ms,
        timestamp_type=timestamp_type,
    )
    batch = as_it_is(header, parts, append_ms)
    batch.counts, batch.is_stamped = counts.tobytes(), timestamp_type is LOG_APPEND_TIME
    marker = Marker(not ended.is_commit, ended.coordinator_epoch)
    batch.particulars = Particulars(header, marker=marker)
    return batch


def _stamp(batch: Numbered) -> int:
    """Return the append time in the records of a batch; -1 where they have create times."""
    header = batch.particulars.header
    is_stamped = header is not None and header.timestamp_type is LOG_APPEND_TIME
    return batch.max_timestamp if is_stamped else NO_TIMESTAMP


def _check(batch: Numbered, log: object, next_offset: int) -> None:
    first, last = batch.base_offset, batch.last_offset
    if not next_offset <= first <= last <= names.MAX_BASE_OFFSET:
        raise CorruptBatch(
            f"A batch of offsets {first} to {last} cannot follow in {log}, which ends at "
            f"{next_offset}"
        )
    (part,), listed = batch.parts, batch.particulars.messages
    if listed is None:
        verify_crc(part, 0, batch.particulars.header)
        return
    positions = listed[0].positions
    for position in positions:
        at = position - positions[0]
        verify_crc(part, at, parse_header(part, at, first))
