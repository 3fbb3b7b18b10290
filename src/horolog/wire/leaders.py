"""Leader discovery (KIP-951): the current leader and its endpoint in Produce responses."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from horolog.wire.packing import EMPTY_TAGS, INT32, compact_string, tagged, uvarint

__all__ = ["CurrentLeader", "NodeEndpoint", "current_leader_field", "nodes_field"]

_LEADER: Final = Struct(">iix")


class CurrentLeader(NamedTuple):
    """Current leader of a partition, for a client that sent its request to another broker."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """A broker's id and endpoint."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def current_leader_field(tag: int, leader: CurrentLeader) -> tuple[int, bytes]:
    """Return the tagged field `current_leader` of a partition."""
    return tag, _LEADER.pack(*leader)


def nodes_field(nodes: Sequence[NodeEndpoint], *more: tuple[int, bytes]) -> bytes:
    """Return all tagged fields of a response: `node_endpoints` under tag 0, if any, and `more`."""
    if not nodes:
        return tagged(*more)
    packed = b"".join(
        INT32.pack(node.node_id)
        + compact_string(node.host)
        + INT32.pack(node.port)
        + compact_string(node.rack)
        + EMPTY_TAGS
        for node in nodes
    )
    return tagged((0, uvarint(len(nodes) + 1) + packed), *more)
