"""How far a partition is compacted, and what the cleaner's last run over it has done."""

from typing import Final

from horolog.broker.broker import Broker
from horolog.network.peer import Peer
from horolog.wire.questions import AskPartition, CleaningSummary, PartitionCleaning

_LONGEST: Final = 500  # characters of an error


async def describe_cleaning(
    broker: Broker, peer: Peer, topic: str, ask: AskPartition
) -> PartitionCleaning:
    """What may be cleaned now, and the last run since the broker was started.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where its times have to be read from it.
    """
    partition, cleaner = broker.partition(topic, ask.partition), broker.cleaner
    now_ms = broker.clock.now_ms()
    state = await broker.searchers.run(peer, lambda: partition.cleanable(now_ms))
    why = next((why for each, why in cleaner.uncleanable() if each is partition), None)
    run, last = cleaner.runs.get(partition), None
    if run is not None:
        last = CleaningSummary(
            run.started_ms,
            run.ended_ms,
            run.is_whole,
            run.from_offset,
            run.end_offset,
            run.keys,
            run.read_bytes,
            run.records_before,
            run.records_after,
            run.bytes_before,
            run.bytes_after,
        )
    return PartitionCleaning(
        state is not None,
        None if state is None else state.first_dirty,
        None if state is None else state.end,
        0 if state is None else state.clean_bytes,
        0 if state is None else state.dirty_bytes,
        0 if state is None else state.overdue_ms,
        None if why is None else why[:_LONGEST],
        last,
    )
