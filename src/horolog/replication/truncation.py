"""The offset at which a follower's log and its leader's part, by leader epochs.

A leader's records of one epoch are the same in every log that has them. So two logs agree up to the
end, in the shorter one, of the latest epoch that both know. The follower asks the leader for the
end of its own latest epoch (OffsetForLeaderEpoch). The leader answers with the largest epoch that
it knows up to that one, and with the offset at which its next epoch starts, or its log end. A
follower that does not know this epoch asks again, for the largest earlier epoch that it knows
(KIP-279). Nothing is truncated until an epoch is found that both know.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from horolog.storage.directory.checkpoints import EpochStart

__all__ = ["Agree", "AskAgain", "Decision", "TruncateTo", "common_end", "truncation"]

_EPOCH = attrgetter("epoch")


class Agree(NamedTuple):
    """Result: all of the follower's log is in the leader's."""


class TruncateTo(NamedTuple):
    """Result: the log agrees up to this offset; the leader does not have the rest."""

    offset: int


class AskAgain(NamedTuple):
    """Result: ask the leader for the end of this epoch, which is earlier than the one asked for."""

    epoch: int


Decision = Agree | TruncateTo | AskAgain


def truncation(
    epochs: Sequence[EpochStart], log_end: int, answered_epoch: int, answered_end: int
) -> Decision:
    """Return the consequence of an answer to OffsetForLeaderEpoch for the log of a follower.

    Args:
        epochs: leader epochs of the follower's log, with the offsets at which they start.
        log_end: end of the follower's log.
        answered_epoch: epoch that the leader knows, at most the one asked for.
        answered_end: end of that epoch in the leader's log.
    """
    before = bisect_right(epochs, answered_epoch, key=_EPOCH)
    if before:
        known = epochs[before - 1].epoch
        if known != answered_epoch:
            return AskAgain(known)
    offset = common_end(epochs, log_end, answered_epoch, answered_end)
    return Agree() if offset == log_end else TruncateTo(offset)


def common_end(
    epochs: Sequence[EpochStart], log_end: int, answered_epoch: int, answered_end: int
) -> int:
    """Return the offset from which on nothing of a follower's log is in its leader's.

    The leader knows no later epoch up to the one asked for, so that nothing of those is its own.
    The arguments are those of `truncation`. Records before may differ, too, if the follower does
    not know the answered epoch: then it asks again.
    """
    # (Where the follower knows no earlier one, Kafka truncates to the leader's end, and may keep
    # records that the leader never had.)
    before = bisect_right(epochs, answered_epoch, key=_EPOCH)
    end = epochs[before].start_offset if before < len(epochs) else log_end
    return min(end, answered_end, log_end)
