"""Waits until replicas of led partitions have what was appended, or deleted."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from horolog.broker.broker import BrokerParts
from horolog.broker.partition import Partition
from horolog.broker.scheduling.delayed import Delayed, Growing, Mark
from horolog.errors import BatchRefused, ErrorCode, HorologError, RequestRefused
from horolog.network.peer import Peer
from horolog.network.reply import Reply

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
    """Offset that replicas of a partition have to reach."""

    offset: int
    leading: "Leading"
    """Leader when the request was carried out. Another one may not know of it."""


async def unreplicated(
    broker: BrokerParts,
    peer: Peer,
    waiting: Mapping[Partition, Replicating],
    timeout_ms: int,
    mark: Mark = Mark.HIGH_WATERMARK,
) -> dict[Partition, HorologError]:
    """Wait until a mark of each partition has reached its offset.

    Returns:
        the error of each partition where that is not so: REQUEST_TIMED_OUT,
        NOT_LEADER_OR_FOLLOWER; of the high watermark also NOT_ENOUGH_REPLICAS_AFTER_APPEND.
    """
    until = asyncio.get_running_loop().time() + timeout_ms / 1000
    while missing := {
        partition: offset
        for partition, (offset, leading) in waiting.items()
        if _is_led(partition, leading) and partition.mark(mark) < offset
    }:
        offsets: dict[Growing, int] = dict(missing.items())
        with (
            broker.delay(Delayed(offsets, until, mark)) as delayed,
            peer.when_gone(delayed.end),
        ):
            if await delayed.reached(offsets):
                break
    refusals: dict[Partition, HorologError] = {}
    for partition, replicating in waiting.items():
        refusal = _refusal(broker, partition, replicating, mark)
        if refusal is not None:
            refusals[partition] = refusal
    return refusals


class Acknowledging:
    """Answer to one append that waits until the in-sync replicas have it, without a task.

    Args:
        finish: returns the answer, given the error where the replicas do not have it.
    """

    __slots__ = ("_broker", "_finish", "_partition", "_peer", "_replicating", "_timer", "answer")

    def __init__(
        self,
        broker: BrokerParts,
        peer: Peer,
        partition: Partition,
        replicating: Replicating,
        timeout_ms: int,
        finish: Callable[[HorologError | None], Reply],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Reply] = loop.create_future()
        self._broker = broker
        self._peer = peer
        self._partition = partition
        self._replicating = replicating
        self._finish = finish
        self._timer = loop.call_at(loop.time() + timeout_ms / 1000, self.end)
        partition.listeners[Mark.HIGH_WATERMARK][self] = None
        peer.call_when_gone(self.end)
        broker.begin_wait(self)

    def on_moved(self, partition: Growing, size: int) -> None:
        """Answer once the high watermark is behind what was appended."""
        if self._partition.log.high_watermark >= self._replicating.offset:
            self.end()

    def on_gone(self) -> None:
        """Answer if the partition is closed, or led by another broker now."""
        partition, (offset, leading) = self._partition, self._replicating
        if not _is_led(partition, leading) or partition.log.high_watermark >= offset:
            self.end()

    def end(self) -> None:
        """Answer by what the replicas have now."""
        if self.answer.done():
            return
        self._timer.cancel()
        self._partition.listeners[Mark.HIGH_WATERMARK].pop(self, None)
        self._peer.forget_call(self.end)
        self._broker.end_wait(self)
        error = _refusal(self._broker, self._partition, self._replicating, Mark.HIGH_WATERMARK)
        self.answer.set_result(self._finish(error))


def _refusal(
    broker: BrokerParts, partition: Partition, replicating: Replicating, mark: Mark
) -> HorologError | None:
    """Return why a mark has not reached an offset; None if it has."""
    offset, leading = replicating
    if not _is_led(partition, leading):
        return _why_gone(broker, partition)
    if partition.mark(mark) < offset:
        return RequestRefused(
            ErrorCode.request_timed_out,
            f"the replicas of {partition.name} have not reached offset {offset} yet",
        )
    if mark is Mark.HIGH_WATERMARK and not leading.is_enough:
        return RequestRefused(
            ErrorCode.not_enough_replicas_after_append,
            f"{partition.name} has fewer in-sync replicas than acks=all needs, which is "
            f"{leading.effective_min_isr}",
        )
    return None


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
