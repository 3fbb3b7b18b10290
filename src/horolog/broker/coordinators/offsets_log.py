"""Writes groups and committed offsets to `__consumer_offsets`, as records of Kafka's coordinator.

A change is in the log at once, if it is small and no thread is needed. What arrives while a large
one is written is written together: one batch for each partition of the topic. A change counts once
its batch is in the log, and survives a kill of the process, as Kafka's do. One that no record can
hold fails alone.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, repeat
from typing import Final

from horolog.broker.coordinators.state_topics import StateTopic
from horolog.buffers import Buffer
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, RequestRefused, StorageFailed, code_for
from horolog.groups.batches import (
    MOST_CHANGE_BYTES,
    batch_of_transaction,
    gathered,
    join,
    parts_of,
)
from horolog.groups.rows import GroupChange, Outcomes
from horolog.record.builder import LogRecord, build_batch
from horolog.record.compression import Codec
from horolog.record.markers import TransactionEnd
from horolog.record.stamped import stamped_records
from horolog.schemas.group_records import weight
from horolog.storage.logs.appendable import Appended
from horolog.storage.logs.incoming import Batch, StampedRecords

_QUICK: Final = 200  # records that become batches on the event loop
_NOT_COMPRESSED: Final = Codec.NONE  # a lookup of an enum member takes long
_HEADER_BYTES: Final = 128  # of a batch, at most
_OF_MARKERS: Final = (
    ErrorCode.invalid_producer_epoch,
    ErrorCode.transaction_coordinator_fenced,
    ErrorCode.invalid_producer_id_mapping,
)

_Step = bytes | StampedRecords | TransactionEnd
_Begun = tuple[int, Batch, list[int]]
_Writing = tuple["asyncio.Future[Appended]", list[int]]


@dataclass(slots=True)
class _Pieces:
    """Batches and records that one partition gets, in order."""

    steps: list[tuple[_Step, list[int]]] = field(default_factory=list)
    """Batches and markers, each with the positions of its changes."""
    parts: list[tuple[list[LogRecord], int]] = field(default_factory=list)
    """Records that are not in a batch yet, with the positions of their changes."""

    def pack(self, now_ms: int, most_bytes: int, codec: Codec) -> None:
        """Turn the records so far into batches."""
        parts, self.parts = self.parts, []
        if len(parts) == 1:
            ((records, place),) = parts
            self.steps.append((_batch_of(records, now_ms, codec), [place]))
            return
        places = (place for _, place in parts)
        for together in gathered((part for part, _ in parts), most_bytes):
            of_these = list(islice(places, len(together)))
            self.steps.append((_batch_of(join(together), now_ms, codec), of_these))


class OffsetsLog:
    """Log of groups and committed offsets. For the event loop's thread only."""

    def __init__(self, clock: Clock, workers: Executor, codec: Codec = Codec.NONE) -> None:
        """Make a log whose topic is given later, by `write_to`.

        Args:
            clock: the time of the records.
            workers: large changes become batches in a thread of these.
        """
        self._codec = codec
        self._topic: StateTopic
        self._workers = workers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._gathered: list[tuple[Sequence[GroupChange], asyncio.Future[Outcomes]]] = []
        self._writing: asyncio.Task[None] | None = None

    def write_to(self, topic: StateTopic) -> None:
        """Write to a topic from now on. Its controller is made after the groups."""
        self._topic = topic

    @property
    def is_ready(self) -> bool:
        """True if the topic exists, with its settings."""
        return self._topic.is_ready

    def partition_of(self, group_id: str) -> int:
        """Return the partition of a group, also before the topic exists."""
        return self._topic.partition_of(group_id)

    async def ready(self) -> None:
        """Create the topic, unless it exists.

        Not to be awaited in a group's queue.

        Raises:
            RequestRefused: COORDINATOR_NOT_AVAILABLE: it cannot be made.
        """
        try:
            await self._topic.ready()
        except HorologError as error:
            raise _unavailable(error) from error

    def write_groups(self, changes: Sequence[GroupChange]) -> "Outcomes | asyncio.Future[Outcomes]":
        """Append changes in order, each of one group; return the error of each or None."""
        if self._writing is None:
            try:
                if (appended := self._append_now(changes)) is not None:
                    return appended
            except Exception as error:  # noqa: BLE001 - raised where the changes are awaited
                return [error] * len(changes)
        done: asyncio.Future[Outcomes] = self._loop.create_future()
        self._gathered.append((changes, done))
        if self._writing is None:
            self._writing = self._loop.create_task(self._write())
        return done

    def write_records(self, group_id: str, records: Buffer, count: int, now_ms: int) -> bool:
        """Append the encoded records of a commit; return False without an effect if that may wait.

        False, without any effect, if that may take a while.

        Raises:
            HorologError: as `write_groups` has it; nothing of them is in the log.
        """
        if self._writing is not None or self._codec is not _NOT_COMPRESSED:
            return False
        try:
            batch = tuple.__new__(StampedRecords, (records, count, now_ms))
            return self._topic.append_at_once(group_id, batch)
        except HorologError as error:
            refused = _unavailable(error)
            if refused is error:
                raise
            raise refused from error

    def _append_now(
        self, changes: Sequence[GroupChange]
    ) -> "Outcomes | asyncio.Future[Outcomes] | None":
        """Append changes that are encoded on the event loop; return None for others."""
        topic, now_ms = self._topic, self._clock.now_ms()
        if not topic.exists:
            return _gone(changes)
        if not _are_quick(changes):
            return None
        outcomes, writing = self._begun(self._pack(changes, now_ms))
        return self._loop.create_task(_written(outcomes, writing)) if writing else outcomes

    async def _write(self) -> None:
        while self._gathered:
            gathered_now, self._gathered = self._gathered, []
            changes = [change for some, _ in gathered_now for change in some]
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
        topic, now_ms = self._topic, self._clock.now_ms()
        if not topic.exists:
            return _gone(changes)
        # Changes of others wait for it in any case, and clients' requests must not.
        pack = partial(self._pack, changes, now_ms)
        packed = await self._loop.run_in_executor(self._workers, pack)
        return await _written(*self._begun(packed))

    def _begun(self, packed: tuple[Outcomes, list[_Begun]]) -> tuple[Outcomes, list[_Writing]]:
        """Begin to append batches in order; return those that are not in the log yet."""
        outcomes, steps = packed
        writing: list[_Writing] = []
        for index, step, places in steps:
            try:
                written = self._topic.append(index, step)
            except HorologError as error:
                _fail(outcomes, places, error)
            else:
                if written is not None:
                    writing.append((written, places))
        return outcomes, writing

    def _pack(self, changes: Sequence[GroupChange], now_ms: int) -> tuple[Outcomes, list[_Begun]]:
        """Encode changes as batches that can be appended; any thread may do it."""
        outcomes: Outcomes = [None] * len(changes)
        most_bytes = min(MOST_CHANGE_BYTES, self._topic.most_bytes - _HEADER_BYTES)
        pieces: dict[int, _Pieces] = {}
        for place, change in enumerate(changes):
            try:
                self._add(pieces, place, change, now_ms, most_bytes)
            except RequestRefused as error:
                outcomes[place] = error
        steps: list[_Begun] = []
        for index, its in pieces.items():
            its.pack(now_ms, most_bytes, self._codec)
            steps += self._prepared(index, its.steps, outcomes)
        return outcomes, steps

    def _prepared(
        self,
        index: int,
        steps: Sequence[tuple[_Step, list[int]]],
        outcomes: Outcomes,
    ) -> list[_Begun]:
        """Check the batches of a partition; return those that can be appended."""
        begun: list[_Begun] = []
        for step, places in steps:
            try:
                ready = self._topic.prepared(index, step) if isinstance(step, bytes) else step
            except HorologError as error:
                _fail(outcomes, places, error)
            else:
                begun.append((index, ready, places))
        return begun

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
            its.pack(now_ms, most_bytes, self._codec)
            its.steps.append((change.ended.ended, [place]))
            return
        its = pieces.setdefault(self.partition_of(_group_of(change)), _Pieces())
        if change.producer is None:
            its.parts += [(part, place) for part in parts_of(change, now_ms, most_bytes) if part]
            return
        batch = batch_of_transaction(change, now_ms, most_bytes, self._codec)
        assert batch is not None, "it is part of a transaction"
        its.pack(now_ms, most_bytes, self._codec)
        its.steps.append((batch, [place]))


def _batch_of(records: list[LogRecord], now_ms: int, codec: Codec) -> bytes | StampedRecords:
    if codec is Codec.NONE:
        return StampedRecords(stamped_records(records), len(records), now_ms)
    return build_batch(records, codec=codec)


async def written(log: OffsetsLog, changes: Sequence[GroupChange]) -> Outcomes:
    """Write changes in order; return the error of each, or None."""
    outcomes = log.write_groups(changes)
    return outcomes if isinstance(outcomes, list) else await outcomes


async def _written(outcomes: Outcomes, writing: Sequence[_Writing]) -> Outcomes:
    for written, places in writing:
        try:
            await written
        except HorologError as error:
            _fail(outcomes, places, error)
    return outcomes


def _fail(outcomes: Outcomes, places: Sequence[int], error: HorologError) -> None:
    for place in places:
        outcomes[place] = outcomes[place] or _unavailable(error)


def _gone(changes: Sequence[GroupChange]) -> Outcomes:
    return [_unavailable(StorageFailed("__consumer_offsets is gone"))] * len(changes)


def _are_quick(changes: Sequence[GroupChange]) -> bool:
    """Return True if the changes are small enough to be encoded on the event loop."""
    records = 0
    for groups, offsets, dropped_offsets, dropped_groups, _, _, of_consumers in changes:
        records += len(groups) + len(offsets) + len(dropped_offsets) + len(dropped_groups)
        records += sum(len(group.members) for group in groups)  # each takes as long as a record
        records += sum(weight(value) for _, value in of_consumers)
    return records <= _QUICK


def _group_of(change: GroupChange) -> str:
    """Return the group that a change is about."""
    if change.offsets:
        return change.offsets[0].group_id
    if change.groups:
        return change.groups[0].group_id
    if change.records:
        return change.records[0][0].group
    return change.dropped_offsets[0][0] if change.dropped_offsets else change.dropped_groups[0]


def _unavailable(error: HorologError) -> HorologError:
    """Return the error that clients get for an error of the log."""
    if isinstance(error, StorageFailed) or code_for(error) in _OF_MARKERS:
        return error
    return RequestRefused(ErrorCode.coordinator_not_available, str(error))
