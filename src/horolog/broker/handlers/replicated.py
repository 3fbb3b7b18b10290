"""Waits until the in-sync replicas of led partitions have what was appended (acks=all)."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from horolog.broker.broker import BrokerParts
from horolog.broker.partition import Partition
from horolog.broker.scheduling.delayed import Delayed, Growing, Mark
from horolog.errors import BatchRefused, ErrorCode, HorologError, RequestRefused
from horolog.network.peer import Peer

if TYPE_CHECKING:
    from horolog.replication.leading import Leading


def check_in_sync(partition: Partition, leading: "Leading") -> None:
    """Refuse an append with acks=all where too few replicas are in sync.

    Raises:
        BatchRefused: NOT_ENOUGH_REPLICAS.
    """
    if leading.refuses_append:
        raise BatchRefused(
            ErrorCode.not_enough_replicas,
            f"{partition.name} has {len(leading.isr)} in-sync replicas, and acks=all needs "
            f"{leading.effective_min_isr}",
        )


class Replicating(NamedTuple):
    """Records of a partition that in-sync replicas have to have."""

    end_offset: int
    """Offset after the last of them."""
    leading: "Leading"
    """Leader when they were appended. Another one may not have them."""


async def unreplicated(
    broker: BrokerParts, peer: Peer, appended: Mapping[Partition, Replicating], timeout_ms: int
) -> dict[Partition, HorologError]:
    """Wait until in-sync replicas have what was appended.

    Returns:
        the error of each partition where that is not so: REQUEST_TIMED_OUT,
        NOT_LEADER_OR_FOLLOWER, or NOT_ENOUGH_REPLICAS_AFTER_APPEND.
    """
    until = asyncio.get_running_loop().time() + timeout_ms / 1000
    while missing := {
        partition: end_offset
        for partition, (end_offset, leading) in appended.items()
        if _is_led(partition, leading) and partition.mark(Mark.HIGH_WATERMARK) < end_offset
    }:
        offsets: dict[Growing, int] = dict(missing.items())
        with (
            broker.delay(Delayed(offsets, until, Mark.HIGH_WATERMARK)) as delayed,
            peer.when_gone(delayed.end),
        ):
            if await delayed.reached(offsets):
                break
    refusals: dict[Partition, HorologError] = {}
    for partition, (end_offset, leading) in appended.items():
        if not _is_led(partition, leading):
            refusals[partition] = _why_gone(broker, partition)
        elif partition.mark(Mark.HIGH_WATERMARK) < end_offset:
            refusals[partition] = RequestRefused(
                ErrorCode.request_timed_out,
                f"the in-sync replicas of {partition.name} do not have the records yet",
            )
        elif not leading.is_enough:
            refusals[partition] = RequestRefused(
                ErrorCode.not_enough_replicas_after_append,
                f"{partition.name} has fewer in-sync replicas than acks=all needs, which is "
                f"{leading.effective_min_isr}",
            )
    return refusals


def _is_led(partition: Partition, leading: "Leading") -> bool:
    """True while a partition has been led here without interruption."""
    return partition.leading is leading and not partition.is_closed


def _why_gone(broker: BrokerParts, partition: Partition) -> HorologError:
    """Return the error of a partition that another broker leads by now, or that was deleted."""
    try:
        broker.led(partition.topic, partition.index)
    except HorologError as error:
        return error
    return RequestRefused(
        ErrorCode.not_leader_or_follower, f"{partition.name} was led by another broker meanwhile"
    )
