"""Which transactions of a log on disk were aborted, and up to where all have ended (KIP-98).

Read from the control batches that end transactions only: Kafka's own
index of aborted transactions may be missing from a copy. So all headers of the log are
walked over, at 61 bytes a batch, and only when committed records are asked for.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader, verify_crc
from horolog.record.markers import read_marker
from horolog.record.transactions import AbortedTransaction
from horolog.storage.batches.reader import BatchReader
from horolog.storage.files import Files


class Decided(NamedTuple):
    """What is decided of transactions that are open in a partition, by their producers' ids."""

    may_end: frozenset[int]
    """A coordinator of ours may still end these."""
    committed: frozenset[int]
    """A Kafka had decided to commit these when it stopped."""


class Transactions(NamedTuple):
    """What a committed reader of a log has to know."""

    aborted: Collection[AbortedTransaction]
    last_stable_offset: int
    """The offset before which every transaction has ended; the log end if all have."""
    damage: CorruptBatch | None = None
    """What hides how transactions ended that are open there; they are not in the other fields."""


def find_transactions(
    batches: Iterable[tuple[BatchReader, int, BatchHeader]],
    log_dirs: Collection[tuple[Files, str]],
    log_end_offset: int,
    decided: Callable[[Files, str], Decided | None],
) -> Transactions:
    """Walk over all batches of a partition's log, in offset order.

    What is open at the end counts as aborted where no coordinator is left that could end it, as for
    a broker that serves another's logs (`ReadableLog.aborted_transactions`), or as committed where
    that was decided.

    Args:
        batches: each with its place.
        log_dirs: that hold replicas of it.
        log_end_offset: of the log.
        decided: what is decided of those that are open there; None of a directory in which any may
            be ended.

    Raises:
        StorageFailed: the disk refused.
    """
    aborted: list[AbortedTransaction] = []
    open_from: dict[int, int] = {}
    try:
        for walk, position, header in batches:
            if not header.is_transactional:
                continue
            if not header.is_control:
                open_from.setdefault(header.producer_id, header.base_offset)
            elif header.producer_id in open_from:
                batch = walk.batch(position, header)
                verify_crc(batch, 0, header)
                marker = read_marker(batch)
                first_offset = open_from.pop(header.producer_id)
                if marker is not None and marker.is_abort:
                    aborted.append(
                        AbortedTransaction(header.producer_id, first_offset, header.last_offset)
                    )
    except CorruptBatch as error:  # whoever reads the records reports it, but for what it decides
        return Transactions(aborted, log_end_offset, error if open_from else None)
    if not open_from:
        return Transactions(aborted, log_end_offset)
    held, committed = set[int](), set[int]()
    for files, log_dir in log_dirs:
        its = decided(files, log_dir)
        if its is None:
            return Transactions(aborted, min(open_from.values()))
        held |= its.may_end & open_from.keys()
        committed |= its.committed
    stable = min((open_from.pop(each) for each in held), default=log_end_offset)
    for producer_id, first_offset in open_from.items():
        if producer_id not in committed:
            aborted.append(AbortedTransaction(producer_id, first_offset, log_end_offset))
    return Transactions(aborted, stable)
