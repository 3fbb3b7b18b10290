"""The stored rows of groups, and the changes that are written in one transaction."""

from collections.abc import Sequence
from typing import NamedTuple


class OffsetRow(NamedTuple):
    """One committed offset; `expire_ms` is set if the client requested a retention."""

    group_id: str
    topic: str
    partition: int
    committed: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None


class GroupRow(NamedTuple):
    """A group; `empty_since_ms` is set while it has no members."""

    group_id: str
    protocol_type: str
    empty_since_ms: int | None


class GroupChange(NamedTuple):
    """Changes of groups in one transaction; rows are dropped before others are set."""

    groups: Sequence[GroupRow] = ()
    offsets: Sequence[OffsetRow] = ()
    dropped_offsets: Sequence[tuple[str, str, int]] = ()
    dropped_groups: Sequence[str] = ()
