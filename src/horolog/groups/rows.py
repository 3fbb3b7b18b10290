"""What is stored of groups: rows, and the changes that are written together."""

from collections.abc import Sequence
from typing import NamedTuple


class OffsetRow(NamedTuple):
    """One committed offset; `expire_ms` only when the client asked for its own retention."""

    group_id: str
    topic: str
    partition: int
    committed: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None


class GroupRow(NamedTuple):
    """A group; `empty_since_ms` while nobody belongs to it."""

    group_id: str
    protocol_type: str
    empty_since_ms: int | None


class GroupChange(NamedTuple):
    """What is to be written of groups together; what is dropped goes before what is set."""

    groups: Sequence[GroupRow] = ()
    offsets: Sequence[OffsetRow] = ()
    dropped_offsets: Sequence[tuple[str, str, int]] = ()
    dropped_groups: Sequence[str] = ()
