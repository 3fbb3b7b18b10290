"""Proposals of a leader to the controllers, and their answers: AlterPartition (KIP-497)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from horolog.errors import ErrorCode

__all__ = ["METADATA_LAGS", "NOT_APPLIED", "IsrAnswer", "IsrMember", "IsrProposal"]

NOT_APPLIED: Final = frozenset({ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted})
"""Answers after which a proposal is dropped: it was not applied, and never will be."""

METADATA_LAGS: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    }
)
"""Answers after which the metadata log brings another state; until then nothing is dropped."""


class IsrMember(NamedTuple):
    """Member of a proposed ISR."""

    broker_id: int
    broker_epoch: int
    """Epoch of the registration that the member was seen under; -1 if it is not known."""


class IsrProposal(NamedTuple):
    """In-sync replicas that a leader asks the controllers for."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[IsrMember, ...]
    recovery_state: int

    @property
    def isr(self) -> tuple[int, ...]:
        """Ids of the members."""
        return tuple([member.broker_id for member in self.members])


class IsrAnswer(NamedTuple):
    """Answer of the controllers about one partition; the rest counts where there is no error."""

    error: int = ErrorCode.none
    leader: int = -1
    leader_epoch: int = -1
    isr: Sequence[int] = ()
    recovery_state: int = 0
    partition_epoch: int = -1
