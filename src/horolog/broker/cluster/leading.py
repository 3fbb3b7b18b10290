"""Partitions that this broker leads for other replicas: progress, and AlterPartition.

`replication.leading` decides. Here a decision moves the high watermark of the log, which completes
requests that wait for it, and is proposed to the controllers: all partitions that have something to
propose in one request, one request at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from horolog.broker.cluster.controllers import AskController
from horolog.broker.cluster.placement import ObservedImage
from horolog.broker.partition import Partition
from horolog.broker.scheduling.turns import TimeSlice
from horolog.client.metadata import error_of
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.metadata.image_changes import Changes, PartitionKey
from horolog.replication.leading import BrokerView, Leading
from horolog.replication.proposals import IsrAnswer, IsrProposal
from horolog.schemas.metadata import PartitionRecord
from horolog.wire.api import ApiKey

__all__ = ["Leaders"]

_LOG = logging.getLogger(__name__)

ANSWER_MS: Final = 10_000
"""Longest wait for the controllers' answer to a proposal."""
MOST_AT_ONCE: Final = 5_000
"""Partitions of one request."""

_NOTE_EVERY_MS: Final = 2_000

_EXPECTED: Final = (ErrorCode.request_timed_out, ErrorCode.new_leader_elected)
"""Not logged: it is tried again, or a reassignment is complete and another broker leads."""
_NO_ANSWER: Final = IsrAnswer(ErrorCode.request_timed_out)


class _Led(NamedTuple):
    partition: Partition
    leading: Leading


class Leaders:
    """Leaders of this broker that have other replicas. For the event loop's thread.

    Args:
        ask: asks the active controller.
        broker_epoch: returns the epoch of this broker's registration.
        lag_max_ms: `replica.lag.time.max.ms`.
    """

    def __init__(
        self,
        node_id: int,
        view: ObservedImage,
        ask: AskController,
        broker_epoch: Callable[[], int],
        clock: Clock,
        *,
        lag_max_ms: int,
    ) -> None:
        self.isr_expands = 0
        """Replicas that have joined the ISR of a partition led here, since the start."""
        self.isr_shrinks = 0
        """Replicas that this broker has taken out of an ISR."""
        self.failed_isr_updates = 0
        """Proposals that the controllers did not take."""
        self.note_every_ms = min(_NOTE_EVERY_MS, lag_max_ms // 10)
        """How often the fetches of a replica that has everything are noted again."""
        self._node_id = node_id
        self._view = view
        self._ask = ask
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._lag_max_ms = lag_max_ms
        self._led: dict[PartitionKey, _Led] = {}
        self._proposing: dict[PartitionKey, None] = {}  # may have something to propose
        self._has_proposals = asyncio.Event()
        self._looks_again = asyncio.Event()
        self._complaints: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return len(self._led)

    def __iter__(self) -> Iterator[tuple[Partition, Leading]]:
        """Yield the partitions that are led here for other replicas."""
        return iter(list(self._led.values()))

    def start(self, on_ended: Callable[["asyncio.Task[None]"], object] = lambda _: None) -> None:
        """Look for replicas that lag, and send proposals, until `close`.

        Args:
            on_ended: called with a task that has ended: without it no replica joins or leaves.
        """
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch()), loop.create_task(self._send())]
        for task in self._tasks:
            task.add_done_callback(on_ended)

    async def close(self) -> None:
        """Lead nothing more; a proposal that is under way is forgotten."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for partition, _ in self._led.values():
            partition.lead(None)
        self._led.clear()

    # --- roles --------------------------------------------------------------------------

    def lead(self, partition: Partition, state: PartitionRecord) -> None:
        """Lead a partition whose log leads in the state's leader epoch, or lead it on.

        The replicas, the in-sync replicas or the leader epoch may have changed.
        """
        key, log = _key(state), partition.log
        if len(state.replicas) < 2:
            self.stop(state)
            return
        led, now_ms = self._led.get(key), self._clock.monotonic_ms()
        if led is None or led.partition is not partition:
            leading = Leading(
                self._node_id,
                state,
                self._broker,
                log_end=log.log_end_offset,
                epoch_start=log.epoch_start_offset,
                high_watermark=log.high_watermark,
                min_isr=log.config.min_insync_replicas,
                lag_max_ms=self._lag_max_ms,
                now_ms=now_ms,
            )
            self._led[key] = led = _Led(partition, leading)
            partition.lead(leading)
        else:
            is_new_epoch = state.leader_epoch > led.leading.leader_epoch
            led.leading.on_state(state, now_ms, epoch_start=log.epoch_start_offset)
            if is_new_epoch:
                partition.lead(led.leading)  # who waits in the old epoch looks again
        # An append may have been too early to be noticed.
        led.leading.on_append(log.log_end_offset)
        partition.move_high_watermark(led.leading.high_watermark)
        if led.leading.wants_proposal:
            self._propose(key)

    def stop(self, state: PartitionRecord) -> None:
        """Stop leading a partition for other replicas, before its log changes its role."""
        led = self._led.pop(_key(state), None)
        if led is not None:
            led.partition.lead(None)

    def on_changes(self, changes: Changes) -> None:
        """Look again at brokers and settings that may have changed."""
        if changes.brokers or changes.configs:
            self._looks_again.set()

    def _broker(self, broker_id: int) -> BrokerView | None:
        broker = self._view.image.brokers.get(broker_id)
        if broker is None:
            return None
        return BrokerView(broker.broker_epoch, broker.fenced, broker.in_controlled_shutdown)

    # --- replicas' fetches --------------------------------------------------------------

    def check_replica(self, partition: Partition, replica_id: int) -> None:
        """Check that a broker may fetch as a replica.

        Raises:
            RequestRefused: UNKNOWN_LEADER_EPOCH; it is not in the assignment as we know it.
        """
        if partition.leading is None:
            raise RequestRefused(
                ErrorCode.unknown_leader_epoch, f"{partition.name} has no other replica"
            )
        partition.leading.check_replica(replica_id)

    def fetched(
        self,
        partition: Partition,
        replica_id: int,
        broker_epoch: int,
        offset: int,
        log_start_offset: int,
        leader_end: int,
    ) -> None:
        """Take the progress of a replica whose records were read: see `Leading.on_fetch`.

        Raises:
            RequestRefused: as there.
        """
        self.check_replica(partition, replica_id)
        leading = partition.leading
        assert leading is not None
        progress = leading.on_fetch(
            replica_id,
            broker_epoch,
            offset,
            log_start_offset,
            leader_end,
            self._clock.monotonic_ms(),
        )
        if progress.may_join:
            self._propose(_key(leading.partition))
        if progress.high_watermark is not None:
            partition.move_high_watermark(progress.high_watermark)
        if progress.start_moved:
            partition.notify(0)

    # --- replicas that lag --------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._looks_again.wait(), self._lag_max_ms / 2_000)
            self._looks_again.clear()
            await self.look()

    async def look(self) -> None:
        """Look at all replicas: who lags, who may join by now, and whether the minimum changed."""
        turns = TimeSlice()
        for key, (partition, leading) in list(self._led.items()):
            await turns.pause()
            if partition.leading is not leading:
                continue
            min_isr = partition.log.config.min_insync_replicas
            if min_isr != leading.min_isr:
                leading.on_min_isr(min_isr)
            leading.tick(self._clock.monotonic_ms())
            partition.move_high_watermark(leading.high_watermark)
            partition.notify(0)  # a fenced replica holds no deletion up
            if leading.wants_proposal:
                self._propose(key)

    # --- proposals ----------------------------------------------------------------------

    def _propose(self, key: PartitionKey) -> None:
        self._proposing[key] = None
        self._has_proposals.set()

    async def _send(self) -> None:
        while True:
            await self._has_proposals.wait()
            batch, pause_ms = self._take_batch()
            if batch:
                await self.send(batch)
                continue
            self._has_proposals.clear()
            if pause_ms is not None:
                try:
                    await asyncio.wait_for(self._has_proposals.wait(), pause_ms / 1_000)
                except TimeoutError:
                    self._has_proposals.set()

    def _take_batch(self) -> tuple[dict[PartitionKey, IsrProposal], int | None]:
        """Return what can be proposed now, and milliseconds until there may be more."""
        batch: dict[PartitionKey, IsrProposal] = {}
        pause_ms: int | None = None
        now_ms = self._clock.monotonic_ms()
        for key in list(self._proposing):
            led = self._led.get(key)
            if led is not None and now_ms < led.leading.not_before_ms:
                left_ms = led.leading.not_before_ms - now_ms
                pause_ms = left_ms if pause_ms is None else min(pause_ms, left_ms)
                continue
            if len(batch) == MOST_AT_ONCE:
                return batch, 0
            del self._proposing[key]
            proposal = None if led is None else led.leading.proposal(now_ms)
            if proposal is not None:
                batch[key] = proposal
        return batch, pause_ms

    async def send(self, batch: Mapping[PartitionKey, IsrProposal]) -> None:
        """Propose to the controllers, and take their answer."""
        leaders = {key: self._led[key].leading for key in batch}
        request = _request(self._node_id, self._broker_epoch(), batch)
        try:
            body = await self._ask(ApiKey.ALTER_PARTITION, request, timeout_ms=ANSWER_MS)
            answers = _answers(body)
            if body.error_code != ErrorCode.none:
                self._complain("partitions led here", body.error_code)
        except HorologError as error:
            _LOG.debug("no answer to proposed in-sync replicas: %s", error)
            answers = dict.fromkeys(batch, _NO_ANSWER)
        turns = TimeSlice()
        for key, proposal in batch.items():
            await turns.pause()
            led = self._led.get(key)
            if led is not None and led.leading is leaders[key]:
                self._take_answer(key, led, proposal, answers.get(key, _NO_ANSWER))

    def _take_answer(
        self, key: PartitionKey, led: _Led, proposal: IsrProposal, answer: IsrAnswer
    ) -> None:
        partition, leading = led
        before = leading.isr
        leading.on_answer(proposal, answer, self._clock.monotonic_ms())
        partition.move_high_watermark(leading.high_watermark)
        if answer.error == ErrorCode.none:
            self._complaints.clear()
            self._count(partition, before, leading.isr)
        else:
            self.failed_isr_updates += 1
            self._complain(partition.name, answer.error)
        if leading.is_proposing or leading.wants_proposal:
            self._propose(key)

    def _count(self, partition: Partition, before: Sequence[int], after: Sequence[int]) -> None:
        joined, left = set(after) - set(before), set(before) - set(after)
        self.isr_expands += len(joined)
        self.isr_shrinks += len(left)
        if joined or left:
            _LOG.info("in-sync replicas of %s: %s", partition.name, list(after))

    def _complain(self, what: str, error: int) -> None:
        """Log an error, once until the controllers have taken a proposal."""
        if error in self._complaints or error in _EXPECTED:
            return
        self._complaints.add(error)
        name = error_of(error).name.upper()
        _LOG.warning("the controllers refuse the in-sync replicas of %s: %s", what, name)


def _key(state: PartitionRecord) -> PartitionKey:
    return PartitionKey(state.topic_id, state.partition)


def _request(
    node_id: int, broker_epoch: int, batch: Mapping[PartitionKey, IsrProposal]
) -> dict[str, Any]:
    topics: dict[Any, list[dict[str, Any]]] = {}
    for (topic_id, index), proposal in batch.items():
        topics.setdefault(topic_id, []).append(
            {
                "partition_index": index,
                "leader_epoch": proposal.leader_epoch,
                "new_isr_with_epochs": [member._asdict() for member in proposal.members],
                "leader_recovery_state": proposal.recovery_state,
                "partition_epoch": proposal.partition_epoch,
            }
        )
    return {
        "broker_id": node_id,
        "broker_epoch": broker_epoch,
        "topics": [
            {"topic_id": topic_id, "partitions": partitions}
            for topic_id, partitions in topics.items()
        ],
    }


def _answers(body: Any) -> dict[PartitionKey, IsrAnswer]:
    """Return the answers by partition; those that are missing, or all refused, are no answer."""
    if body.error_code != ErrorCode.none:
        return {}
    return {
        PartitionKey(topic.topic_id, partition.partition_index): IsrAnswer(
            partition.error_code,
            partition.leader_id,
            partition.leader_epoch,
            partition.isr,
            partition.leader_recovery_state,
            partition.partition_epoch,
        )
        for topic in body.topics
        for partition in topic.partitions
    }
