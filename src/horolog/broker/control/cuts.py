"""Answers the question where a partition parts at an append time."""

from horolog.broker.broker import BrokerParts
from horolog.broker.control.rows import answers, as_many_as_fit
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused, StorageFailed
from horolog.network.peer import Peer
from horolog.offsets import Doubts, Inexact, TransactionStart
from horolog.storage.lookup.cuts import LogCut, cut_log, doubts_of, unfinished
from horolog.storage.names import TopicPartition
from horolog.wire.questions import CUT, AskCut, PartitionCut


@answers(CUT)
async def cut_partition(broker: BrokerParts, peer: Peer, topic: str, ask: AskCut) -> PartitionCut:
    """Cut a partition at an append time.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the partition is offline, or the disk refuses the clock of append times.
    """
    partition, partitions = broker.led(topic, ask.partition), broker.partitions
    clock_ms = await partitions.past(ask.at)
    await partition.writes.written()
    clock_ms = min(clock_ms, partitions.stamp_ms)  # it may have been lowered meanwhile
    log = partition.log
    span = partitions.ahead_span(TopicPartition(topic, ask.partition))
    follows, has_open = log.is_following, log.producers.open_count > 0
    view = log.look()
    # Behind the look: what was cleaned or stamped since may only make the cut less certain.
    its = view.cut_log(span, log.floor.last, log.compacted_to, follows=follows, has_open=has_open)

    def work() -> tuple[LogCut, tuple[tuple[TransactionStart, ...], int | None]]:
        cut = cut_log(its, ask.at, clock_ms)
        found = unfinished(
            its,
            cut.offset,
            view.opened_at,
            behind=ask.behind,
            since=ask.since,
            first_id=ask.start,
        )
        return cut, as_many_as_fit(((start.producer_id, start) for start in found), doubts)

    doubts = Doubts().joined(doubts_of(its))
    try:
        cut, (transactions, following) = await broker.searchers.run(peer, work)
    except (CorruptBatch, StorageFailed) as error:
        if partition.is_closed:  # it was deleted meanwhile
            raise RequestRefused(
                ErrorCode.unknown_topic_or_partition, f"{partition.name} is no longer served here"
            ) from None
        # An error would hide all partitions of the request.
        return PartitionCut(0, Inexact.UNKNOWN, (), None, error=f"{error!s:.1000}")
    return PartitionCut(cut.offset, cut.why, transactions, following, doubts)
