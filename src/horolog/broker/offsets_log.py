"""Groups and committed offsets in `__consumer_offsets`, in the records of Kafka's coordinator.

What arrives while a write is under way is written together: one batch for each partition of the
topic. A change counts once its batch is in the log, and survives a kill of the process, as Kafka's
do. One that no record can hold fails alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, repeat
from typing import Final

from horolog.broker.state_topics import StateTopic
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, RequestRefused, StorageFailed, code_for
from horolog.groups.batches import (
    MOST_CHANGE_BYTES,
    batch_of_transaction,
    gathered,
    join,
    parts_of,
)
from horolog.groups.rows import GroupChange, TransactionEnd
from horolog.record.builder import Record, build_batch
from horolog.storage.validation.validate import Prepared

_QUICK: Final = 200  # records that become batches on the event loop
_HEADER_BYTES: Final = 128  # of a batch, at most
_OF_MARKERS: Final = (
    ErrorCode.invalid_producer_epoch,
    ErrorCode.transaction_coordinator_fenced,
    ErrorCode.invalid_producer_id_mapping,
)

Outcomes = list[Exception | None]
_Step = bytes | TransactionEnd
_Begun = tuple[int, Prepared | TransactionEnd, list[int]]


@dataclass(slots=True)
class _Pieces:
    """What one partition is to get, in its order."""

    steps: list[tuple[_Step, list[int]]] = field(default_factory=list)
    """Each with the places of the changes that it holds."""
    parts: list[tuple[list[Record], int]] = field(default_factory=list)
    """Records that are no batch yet."""

    def pack(self, most_bytes: int) -> None:
        """Make batches of the records so far."""
        parts, self.parts = self.parts, []
        places = (place for _, place in parts)
        for together in gathered((part for part, _ in parts), most_bytes):
            of_these = list(islice(places, len(together)))
            self.steps.append((build_batch(join(together)), of_these))


class OffsetsLog:
    """See the module; it is a `GroupStore`. For the event loop's thread only."""

    def __init__(self, topic: Callable[[], StateTopic], clock: Clock, workers: Executor) -> None:
        """Of a topic, which is asked for once the broker is there; records get the clock's time.

        Large changes become batches in a thread of `workers`.
        """
        self._topic = topic
        self._workers = workers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._gathered: list[tuple[Sequence[GroupChange], asyncio.Future[Outcomes]]] = []
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is the topic, with its settings."""
        return self._topic().is_ready

    def partition_of(self, group_id: str) -> int:
        """The partition of the topic that has a group, also before there is the topic."""
        return self._topic().partition_of(group_id)

    async def ready(self) -> None:
        """Make the topic.

        Raises:
            RequestRefused: COORDINATOR_NOT_AVAILABLE: it cannot be made.
        """
        try:
            await self._topic().ready()
        except HorologError as error:
            raise _unavailable(error) from error

    def write_groups(self, changes: Sequence[GroupChange]) -> "asyncio.Future[Outcomes]":
        """Append changes, each of one group, in order; the error of each or None."""
        done: asyncio.Future[Outcomes] = self._loop.create_future()
        self._gathered.append((changes, done))
        if self._writing is None:
            self._writing = self._loop.create_task(self._write())
        return done

    async def _write(self) -> None:
        while self._gathered:
            gathered_now, self._gathered = self._gathered, []
            changes = [each for some, _ in gathered_now for each in some]
            try:
                outcomes: Iterator[Exception | None] = iter(await self._append(changes))
            except Exception as error:  # noqa: BLE001 - raised where the changes are awaited
                outcomes = repeat(error)
            for some, done in gathered_now:
                result = [next(outcomes) for _ in some]
                if not done.done():
                    done.set_result(result)
        self._writing = None

    async def _append(self, changes: Sequence[GroupChange]) -> Outcomes:
        topic, now_ms = self._topic(), self._clock.now_ms()
        if not topic.exists:
            return [_unavailable(StorageFailed("__consumer_offsets is gone"))] * len(changes)
        pack = partial(self._pack, topic, changes, now_ms)
        is_quick = sum(map(_size, changes)) <= _QUICK
        # Changes of others wait for it in any case, and clients' requests must not.
        packed = pack() if is_quick else await self._loop.run_in_executor(self._workers, pack)
        outcomes, steps = packed
        writing: list[tuple[Awaitable[object], list[int]]] = []
        for index, step, places in steps:
            writing.append((self._begin(topic, index, step, now_ms), places))
        for written, places in writing:
            try:
                await written
            except HorologError as error:
                for place in places:
                    outcomes[place] = outcomes[place] or _unavailable(error)
        return outcomes

    def _pack(
        self, topic: StateTopic, changes: Sequence[GroupChange], now_ms: int
    ) -> tuple[Outcomes, list[_Begun]]:
        """The batches of changes, ready to be appended; any thread may make them."""
        outcomes: Outcomes = [None] * len(changes)
        most_bytes = min(MOST_CHANGE_BYTES, topic.most_bytes - _HEADER_BYTES)
        pieces: dict[int, _Pieces] = {}
        for place, change in enumerate(changes):
            try:
                self._add(pieces, place, change, now_ms, most_bytes)
            except RequestRefused as error:
                outcomes[place] = error
        steps: list[_Begun] = []
        for index, its in pieces.items():
            its.pack(most_bytes)
            for step, places in its.steps:
                try:
                    ready = topic.prepared(index, step) if isinstance(step, bytes) else step
                except HorologError as error:
                    for place in places:
                        outcomes[place] = outcomes[place] or _unavailable(error)
                else:
                    steps.append((index, ready, places))
        return outcomes, steps

    def _add(
        self,
        pieces: dict[int, _Pieces],
        place: int,
        change: GroupChange,
        now_ms: int,
        most_bytes: int,
    ) -> None:
        if change.ended is not None:
            its = pieces.setdefault(change.ended.partition, _Pieces())
            its.pack(most_bytes)
            its.steps.append((change.ended, [place]))
            return
        batch = batch_of_transaction(change, now_ms, most_bytes)
        parts = [] if batch is not None else parts_of(change, now_ms, most_bytes)
        its = pieces.setdefault(self.partition_of(_group_of(change)), _Pieces())
        if batch is not None:
            its.pack(most_bytes)
            its.steps.append((batch, [place]))
        else:
            its.parts += [(part, place) for part in parts if part]

    def _begin(
        self, topic: StateTopic, index: int, step: Prepared | TransactionEnd, now_ms: int
    ) -> Awaitable[object]:
        if isinstance(step, Prepared):
            return topic.append(index, [step])
        return topic.end_transaction(
            *(index, *step.producer, step.coordinator_epoch),
            commit=step.is_commit,
            strict=step.is_strict,
            now_ms=now_ms,
        )


def _size(change: GroupChange) -> int:
    """Records of a change."""
    return (
        len(change.groups)
        + len(change.offsets)
        + len(change.dropped_offsets)
        + len(change.dropped_groups)
    )


def _group_of(change: GroupChange) -> str:
    """The group that a change is about."""
    if change.groups:
        return change.groups[0].group_id
    if change.offsets:
        return change.offsets[0].group_id
    return change.dropped_offsets[0][0] if change.dropped_offsets else change.dropped_groups[0]


def _unavailable(error: HorologError) -> HorologError:
    """What of the log's errors clients and the coordinator are told."""
    if isinstance(error, StorageFailed) or code_for(error) in _OF_MARKERS:
        return error
    return RequestRefused(ErrorCode.coordinator_not_available, str(error))
