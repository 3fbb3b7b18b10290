"""The partitions that a broker serves, and their log directory.

Everything that may wait for the disk runs in the write threads.
"""

import asyncio
import logging
from collections.abc import (
    Callable,
    Collection,
    Container,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    ValuesView,
)
from concurrent.futures import Executor, Future, wait
from typing import Any, Final, NamedTuple, TypeVar

from horolog.broker.clock_exchange import ClockExchange
from horolog.broker.complete_times import CompleteTimes
from horolog.broker.partition import Partition
from horolog.broker.scheduling.fair_pool import Checkers
from horolog.broker.scheduling.inline_tries import InlineTries
from horolog.broker.scheduling.turns import TimeSlice
from horolog.broker.scheduling.write_queue import WriteQueue
from horolog.broker.settings import LiveSettings
from horolog.broker.traffic import Traffic
from horolog.clock import Clock, ManualClock, format_duration
from horolog.config import Settings, TopicConfig
from horolog.errors import StorageFailed
from horolog.metadata.topics import Topic
from horolog.storage.companion.counts import NONE
from horolog.storage.directory.checkpoints import AheadSpan
from horolog.storage.directory.clean_shutdown import NO_BROKER_EPOCH
from horolog.storage.log_dir.log_dir import LogDir
from horolog.storage.logs.log import Log
from horolog.storage.names import TopicPartition

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


STAMP_CLOCK_MS: Final = 1_000
"""Interval at which the clock of append times is raised and written down, in milliseconds."""
_LEAST_JUMP_MS: Final = 1_000
"""Smaller differences between two readings are no jump, whatever the limit of warnings is."""


class _ClockLook(NamedTuple):
    """Readings of the wall clock, the monotonic one, and the clock of append times."""

    now_ms: int
    monotonic_ms: int
    stamp_ms: int


class Partitions(Mapping[tuple[str, int], Partition]):
    """Served partitions by topic name and index. For the event loop's thread only."""

    def __init__(
        self,
        log_dir: LogDir,
        topics: Collection[Topic],
        live: LiveSettings,
        clock: Clock,
        workers: Executor,
        checkers: Checkers,
    ) -> None:
        self.cluster_id = str(log_dir.meta.cluster_id)
        """Cluster id in `meta.properties` of the log directory."""
        self.inline_lookups = InlineTries()
        self.traffic = Traffic()
        self.clock_jumps = {"ahead": 0, "back": 0}
        """How often the clock has jumped since the start."""
        self.refusal: str | None = None
        """Reason of the last `check` to refuse everything; None if there is none."""
        self._served: dict[tuple[str, int], Partition] = {}
        self._busy: set[WriteQueue] = set()
        self._log_dir = log_dir
        log_dir.now_ms = clock.now_ms
        self._returns = clock.returns if isinstance(clock, ManualClock) else 0
        self._live = live
        self._clock = clock
        log_dir.stamps.belong_to_this_thread()
        self.clocks = ClockExchange(log_dir.stamps, clock, live)
        """Clock of append times, beside those of other brokers."""
        self._look = _ClockLook(clock.now_ms(), clock.monotonic_ms(), log_dir.stamps.last_ms)
        self._workers = workers
        self._checkers = checkers
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._running: set[Future[Any]] = set()  # calls in threads, also of cancelled tasks
        self.complete = CompleteTimes(log_dir, topics, live)
        """Times up to which they are complete."""
        by_topic = {topic.name: topic.partitions for topic in topics}
        for (name, index), log in log_dir.logs.items():
            if index in by_topic.get(name, ()):
                self._serve(log)

    def __getitem__(self, key: tuple[str, int]) -> Partition:
        return self._served[key]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)

    def find(self, topic: str, index: int) -> Partition | None:
        """Return the partition if it is served, otherwise None."""
        return self._served.get((topic, index))

    def why_offline(self, topic: str, index: int) -> str:
        """Return the reason why a partition of a topic is not served."""
        return self._log_dir.unreadable.get(TopicPartition(topic, index), "it has no log here")

    def values(self) -> ValuesView[Partition]:
        """Return all served partitions."""
        return self._served.values()

    def items(self) -> ItemsView[tuple[str, int], Partition]:
        """Return all served partitions by topic name and index."""
        return self._served.items()

    # --- changes of topics ------------------------------------------------------------

    async def open(self, topic: Topic, indexes: Collection[int]) -> None:
        """Create and serve new partitions.

        Raises:
            StorageFailed: a write failed; none is created.
        """
        config, now_ms = self._live.of_topic(topic), self._clock.now_ms()

        def make(log_dir: LogDir) -> None:
            log_dir.create_all(topic.name, indexes, topic.topic_id, config, now_ms)
            if topic.followed:
                for index in indexes:
                    log_dir.logs[TopicPartition(topic.name, index)].begin_following(0)
                log_dir.try_to_save_stamps()  # readers of the files have to know that

        await self.run(make)
        turns = TimeSlice()
        for index in indexes:
            await turns.pause()
            self._serve(self._log_dir.logs[TopicPartition(topic.name, index)])

    async def claim(self, topic: Topic) -> None:
        """Write the topic's id to the directories of its partitions.

        Raises:
            StorageFailed: a write failed.
        """
        keys = [TopicPartition(topic.name, index) for index in topic.partitions]
        await self.run(lambda log_dir: log_dir.claim(keys, topic.topic_id))

    async def remove(self, topic: Topic, indexes: Collection[int] | None = None) -> None:
        """Stop serving a topic's partitions, all or some, and delete their directories."""
        appended, gone = NONE, topic.partitions if indexes is None else indexes
        for index in gone:
            partition = self._served.pop((topic.name, index), None)
            if partition is not None:
                await partition.close()
                appended = appended.plus(partition.log.active.counts)
                self.traffic.deleted_replicated_bytes += partition.log.replicated_bytes
        if any((topic.name, index) in self._served for index in topic.partitions):
            self.traffic.deleted = self.traffic.deleted.plus(appended)
        else:
            self.traffic.forget(topic.name, appended)
            self.complete.forget(topic)
            self.inline_lookups.forget(topic.name)
        keys = [TopicPartition(topic.name, index) for index in gone]
        clock = self._clock
        await self.run(lambda log_dir: log_dir.delete(keys, clock.monotonic_ms()))

    async def change(self, topic: Topic, change: Callable[[Log], object]) -> None:
        """Change the logs of a topic one after the other, each in the order of its writes."""
        for index in topic.partitions:
            partition = self.find(topic.name, index)
            if partition is not None:
                await partition.change(change)

    async def lead(
        self,
        topic: Topic,
        epoch: int,
        committed: Mapping[int, Container[int]],
    ) -> None:
        """Take records of producers in this leader epoch.

        Args:
            committed: producer ids whose open transactions are committed, by partition.

        Raises:
            StorageFailed: a write failed; some partitions may lead.
        """
        now_ms = self._stamp_ms()

        def lead(log: Log) -> None:
            if log.is_following:
                its = committed.get(log.partition, ())
                log.lead(epoch, now_ms, committed=its)

        await self.change(topic, lead)
        self._stamp_ms()
        keys = [TopicPartition(topic.name, index) for index in topic.partitions]
        self._log_dir.note_ahead(keys)  # by what the source's clock was ahead

    async def end_unended(self, topic: Topic) -> None:
        """Write the markers of transactions that another broker left open in an adopted topic.

        Raises:
            StorageFailed: the disk refused; some may be written.
        """
        now_ms = self._stamp_ms()
        await self.change(topic, lambda log: log.end_unended(now_ms))

    def _stamp_ms(self) -> int:
        """Return the clock for appends that threads make, and raise that of append times to it."""
        clock, stamps = self._clock, self._log_dir.stamps
        now_ms = clock.now_ms()
        if isinstance(clock, ManualClock) and clock.returns != self._returns:
            # A test goes back in time; that a machine's clock goes back is a step.
            self._returns = clock.returns
            if now_ms < stamps.last_ms:
                self.complete.reset()
                self._log_dir.lower_stamps(now_ms)
        stamps.rise(now_ms)
        self._warn_of_jump(_ClockLook(now_ms, clock.monotonic_ms(), stamps.last_ms))
        return now_ms

    def _warn_of_jump(self, look: "_ClockLook") -> None:
        """Count jumps of the clock since the last look, and warn if append times follow one."""
        before, self._look = self._look, look
        elapsed_ms = look.monotonic_ms - before.monotonic_ms
        jump_ms = look.now_ms - before.now_ms - elapsed_ms
        limit_ms = max(_LEAST_JUMP_MS, self._live.config.horolog_timestamp_warn_ahead_ms)
        if abs(jump_ms) > limit_ms:
            self.clock_jumps["ahead" if jump_ms > 0 else "back"] += 1
        if jump_ms > limit_ms and look.now_ms > before.stamp_ms:
            _LOG.warning(
                "the clock has jumped ahead by %s, and append times follow it: if it is wrong, set "
                "it right, then run `horolog topics reset-append-time --all` "
                "(docs/append-times.md)",
                format_duration(jump_ms),
            )

    async def keep_stamp_clock(self) -> None:
        """Raise the clock of append times to the broker's clock, and write it down.

        So times become complete in partitions to which nothing is appended.

        Raises:
            StorageFailed: the disk refused.
        """
        self._stamp_ms()
        clock_ms = self.stamp_ms
        if self._busy:  # a slow disk does not hold up the clock itself
            await self.run(LogDir.save_stamps)
        for writes in list(self._busy):
            await writes.written()
        if self.stamp_ms >= clock_ms:  # else it was lowered meanwhile
            self._log_dir.settled_ms = clock_ms
        self.complete.tidy(self._served.values())
        await self.run(LogDir.save_stamps)

    async def past(self, at_ms: int) -> int:
        """Raise the clock of append times, and return it in milliseconds.

        If it is at or after a time, no record is given an earlier append time from now on, after a
        kill neither. What was given one before may still have to be written: see
        `WriteQueue.written`.

        Raises:
            StorageFailed: the disk refused.
        """
        self._stamp_ms()
        clock_ms = self.stamp_ms
        if self._log_dir.saved_stamp_ms < at_ms <= clock_ms:
            await self.run(LogDir.save_stamps)
        return clock_ms

    def ahead_span(self, partition: TopicPartition) -> AheadSpan | None:
        """Return the times that a partition stamped while it was ahead of the clock."""
        return self._log_dir.ahead_span(partition)

    async def lower_stamp_clock(self) -> int:
        """Lower the clock of append times to the broker's clock; return by how many milliseconds.

        Raises:
            StorageFailed: the disk refused; the clock may be lowered, and a restart may undo that.
        """
        # What was called complete is withdrawn for good before a record is let in below that.
        while self.stamps_ahead_ms and self.complete.reset():  # again if it rises meanwhile
            await self.run(LogDir.save_stamps)
        ahead_ms = self.stamps_ahead_ms
        if ahead_ms:
            self._log_dir.lower_stamps(self.stamp_ms - ahead_ms)
            await self.run(LogDir.save_stamps)
        return ahead_ms

    async def change_bounds(
        self, changes: Iterable[tuple[Topic, TopicConfig]], settings: Settings | None = None
    ) -> None:
        """Withdraw complete times of topics whose bound is about to be raised, on the disk, too.

        Within `CompleteTimes.changing`.

        Args:
            changes: topics with their settings after the change.
            settings: the broker's after the change, if these are changed.

        Raises:
            StorageFailed: the disk refused.
        """
        turns, is_changed = TimeSlice(), False
        for topic, after in changes:
            await turns.pause()
            is_changed |= self.complete.change(topic, self._live.of_topic(topic), after)
        if settings is not None:
            is_changed |= self.complete.change_default(settings)
        if is_changed:
            await self.run(LogDir.save_stamps)

    async def stop_leading(self, topic: Topic) -> None:
        """Prepare to follow a topic: write what was last promised of it, and stamped.

        Within `CompleteTimes.changing`.

        Raises:
            StorageFailed: the disk refused.
        """
        self.complete.follow(topic, self._live.of_topic(topic))
        await self.keep_stamp_clock()

    @property
    def stamp_ms(self) -> int:
        """The last append time that any partition gave, or could have given, in milliseconds."""
        return self._log_dir.stamps.last_ms

    @property
    def stamps_ahead_ms(self) -> int:
        """By how much the clock of append times is ahead of the broker's, in milliseconds."""
        return max(0, self._log_dir.stamps.last_ms - self._clock.now_ms())

    def obey_settings(self, topic: Topic) -> None:
        """Apply a topic's settings to its partitions from the next request on."""
        config = self._live.of_topic(topic)
        for index in topic.partitions:
            partition = self._served.get((topic.name, index))
            if partition is not None:
                partition.obey(config, retention_exempt=not topic.may_expire)

    # --- the log directory ------------------------------------------------------------

    def without_blocking(self, look: Callable[[], T]) -> T:
        """Call `look` on the event loop; it may read logs only from the page cache.

        Raises:
            WouldBlock: the data is not in the page cache, or the call takes long.
        """
        return self._log_dir.without_blocking(look)

    async def check(self) -> str | None:
        """Return the reason if the log directory is lost; its files then refuse all I/O."""
        refusal = await self.run(LogDir.check)
        self.refusal = self.refusal or refusal  # one that began before may end after others
        if self.refusal is not None:
            self._log_dir.on_failure()
        return self.refusal

    async def checkpoint_replicas(self) -> None:
        """Checkpoint the high watermarks of a broker of a cluster, which each start begins with.

        Raises:
            StorageFailed: the disk refused.
        """
        await self.run(LogDir.checkpoint_replicas)

    def on_failure(self, look: Callable[[], None]) -> None:
        """Let `look` be called, in any thread, after the disk has refused a write."""
        self._log_dir.on_failure = look

    @property
    def failure(self) -> str | None:
        """Reason why the disk refuses writes of a partition; None if it refuses none."""
        if self.refusal is not None:
            return self.refusal
        for partition in self._served.values():
            log = partition.log
            if log.is_in_doubt:
                return f"{log}: a flush failed, and what was written may not be on the disk"
            if log.refusal is not None:
                return f"{log}: {log.refusal}"
        return None

    async def close(self, *, clean: bool, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Complete queued writes and close the logs; without `clean`, as after a crash.

        Args:
            broker_epoch: in a cluster, epoch of this broker's registration, if the controllers have
                granted its stop.
        """
        for partition in list(self._served.values()):
            await partition.close()
        if self._closed:
            return
        self._closed = True  # from here on nothing is written down: the lock is released
        running = list(self._running)

        def end() -> list[str]:
            wait(running)
            return self._log_dir.close(clean=clean, broker_epoch=broker_epoch)

        failures = await self._loop.run_in_executor(self._workers, end)
        for failure in failures:
            _LOG.error("not closed cleanly, the next start will recover it: %s", failure)

    async def run(self, call: Callable[[LogDir], T]) -> T:
        """Call with the log directory in a write thread, because it may wait for the disk.

        Raises:
            StorageFailed: the disk refused, or the log directory is closed and may have another
                owner.
        """
        if self._closed:
            raise StorageFailed("The broker is closed")
        running = self._workers.submit(call, self._log_dir)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(running)

    def _serve(self, log: Log) -> None:
        limit = self._live.config.horolog_max_batch_uncompressed_bytes
        key = (log.topic, log.partition)
        if key not in self._served:
            self._served[key] = Partition(log, self._workers, self._checkers, limit)
            self._served[key].writes.busy = self._busy
