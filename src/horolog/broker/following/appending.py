"""Appends fetched batches of a leader to the log here: on the event loop, or in a write thread."""

from horolog.buffers import Buffer
from horolog.client.fetching import Fetched
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, parse_header
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.replication.asked import LocalLog, StartAt
from horolog.replication.truncation import TruncateTo
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.appendable import Appended
from horolog.storage.logs.incoming import Origin, SourceBatches
from horolog.storage.logs.log import Log
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.producers.states import Unended

__all__ = ["carry_out", "local", "take", "unended_in", "whole_batches"]


def local(log: ReadableLog) -> LocalLog:
    """Return the offsets and epochs of the log that decisions need."""
    return LocalLog(
        log.log_start_offset, log.log_end_offset, log.high_watermark, log.epochs.entries
    )


def carry_out(log: Log, effect: TruncateTo | StartAt, epoch: int, now_ms: int) -> int:
    """Carry out a decision on the log for a leader of this epoch; return the log end offset.

    Raises:
        RequestRefused: the log does not follow any more, or it follows a later leader (6).
        StorageFailed: the disk refused.
    """
    require_role(log, epoch)
    if isinstance(effect, TruncateTo):
        log.truncate_to(effect.offset, now_ms)
    else:
        log.truncate_fully(effect.offset, now_ms)
    log.led_in(epoch)  # at once: a consumer is to look where it was cut, and not to begin anew
    return log.log_end_offset


def require_role(log: Log, epoch: int) -> None:
    """Refuse a change of a log that was decided for another leader.

    Roles change between a decision and its turn in the queue of writes.

    Raises:
        RequestRefused: the log leads, or follows the leader of a later epoch (6).
    """
    if not log.is_following or log.leader_epoch > epoch:
        raise RequestRefused(
            ErrorCode.not_leader_or_follower,
            f"{log} does not follow the leader of epoch {epoch} any more",
        )


def unended_in(fetched: Fetched) -> list[Unended]:
    """Return the transactions that no marker ends, as a source reports them.

    Apache Kafka has none.
    """
    return [
        Unended(transaction.producer_id, max(first, -1 - first), is_committed=first < 0)
        for transaction in fetched.unended
        for first in [transaction.first_offset]
    ]


def take(
    log: Log,
    fetched: Fetched,
    epoch: int,
    now_ms: int,
    *,
    follows_start: bool,
    may_block: bool = True,
) -> Appended:
    """Append the whole batches of a fetch, and advance the high watermark.

    Args:
        fetched: from its end on, or from behind a gap.
        epoch: the leader's, in which the fetch was answered.
        follows_start: whether the log starts where the leader's does.
        may_block: whether files may be opened, synced or created.

    Returns:
        What was appended: nothing, if the answer ends before its first batch does.

    Raises:
        WouldBlock: the disk may have to be waited for; there is no effect.
        RequestRefused: the log does not follow the leader of this epoch any more (6), or the leader
            says that its log starts behind the end of this one (1).
        CorruptBatch: a batch is damaged, or does not belong there; those before it are in the log.
        StorageFailed: the disk refused.
    """
    require_role(log, epoch)
    start, done = log.log_start_offset, None
    if not may_block and follows_start and fetched.log_start_offset > start:
        raise WouldBlock
    whole = whole_batches(fetched.records, log.epochs.latest, epoch)
    if whole:
        first = parse_header(whole, 0, 0)
        is_within = first.magic == MAGIC and first.base_offset < start <= first.last_offset
        if is_within and start == log.log_end_offset:
            # The leader's log starts within the batch, after DeleteRecords; so will this one.
            if not may_block:
                raise WouldBlock
            log.truncate_fully(first.base_offset, now_ms)
        batches = SourceBatches(whole, fetched.append_times)
        done = log.append(batches, now_ms, Origin.FOLLOWER, may_block=may_block)
        log.replicated_bytes += done.size
    said = unended_in(fetched)
    if log.is_news(said):
        log.count_unended(said)
    log.move_high_watermark(fetched.high_watermark)
    if log.log_start_offset < start:
        log.start_at(start)
    if follows_start and fetched.log_start_offset > log.log_start_offset:
        if fetched.log_start_offset > log.log_end_offset:
            # It would have refused the offset that was asked for.
            raise RequestRefused(
                ErrorCode.offset_out_of_range,
                f"the leader says that its log starts at offset {fetched.log_start_offset}, behind "
                f"the end here, {log.log_end_offset}",
            )
        # What a leader deletes is committed, whatever it says of its high watermark (KAFKA-9491).
        log.move_high_watermark(fetched.log_start_offset)
        log.start_at(fetched.log_start_offset)
    if done is None:
        end_offset = log.log_end_offset
        return Appended(end_offset, end_offset - 1, NO_TIMESTAMP, log.log_start_offset)
    return done


def whole_batches(records: Buffer, latest: int, epoch: int) -> memoryview:
    """Return the batches without a last one that is cut off, which is normal in a response.

    Raises:
        CorruptBatch: of no format, or of a leader epoch that cannot be there: before that of the
            last record of the log, or after the leader's.
    """
    view, position = memoryview(records), 0
    while len(view) - position >= HEADER_SIZE or _is_whole(view, position):
        header = parse_header(view, position, 0)
        end = position + header.size
        if end > len(view):
            break
        if header.magic == MAGIC and header.leader_epoch >= 0:
            if not latest <= header.leader_epoch <= epoch:
                raise CorruptBatch(
                    f"the batch at offset {header.base_offset} is of leader epoch "
                    f"{header.leader_epoch}, between records of epoch {latest} and a leader of "
                    f"epoch {epoch}",
                    position,
                )
            latest = header.leader_epoch
        position = end
    return view[:position]


def _is_whole(view: memoryview, position: int) -> bool:
    """Return True if a whole message is there, which may be shorter than the header of a batch."""
    left = len(view) - position
    if left < LOG_OVERHEAD:
        return False
    return left >= LOG_OVERHEAD + int.from_bytes(view[position + 8 : position + LOG_OVERHEAD])
