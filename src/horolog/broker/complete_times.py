"""Times up to which a partition is complete: no record with an earlier timestamp will be appended.

`message.timestamp.before.max.ms` makes this a guarantee. It counts from the clock of append times,
which never goes back, and reaches at least what is on the disk of it. So nothing can be appended
that is earlier than that clock less the bound, also after a kill, and in idle partitions. On a
LogAppendTime topic the bound is 0.

What is given out is therefore counted

- from the clock as it is on the disk, so that asking writes nothing;
- at most from the clock that a waiting batch was given when it came: it is checked by that, and by
  the settings of that moment, however long it waits for a thread. The alternative, to repeat the
  check at the append, would refuse batches that the bound allows.

A value does not hold any more where records come that the bound does not stop, or where the bound
or the clock moves. It is withdrawn then, and none is given until one is at least as large:

    reset     the clock was set back; until it is past where it was
    raised    the bound was raised; until the clock less the new bound is past the last value
    followed  another cluster led the topic since

These are written beside the clock before they take effect, because the times in the metadata log
are the wall clock's, and no log has the settings that a broker was started with.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple
from uuid import UUID

from horolog.broker.partition import Partition
from horolog.broker.settings import LiveSettings
from horolog.config import LONG_MAX, Settings, TopicConfig
from horolog.config.topic import past_bound_ms
from horolog.errors import StorageFailed
from horolog.metadata.topics import Topic
from horolog.storage.directory.checkpoints import Promise
from horolog.storage.log_dir.log_dir import LogDir
from horolog.storage.logs.stamp_clock import EVER
from horolog.wire.questions import Withdrawn

_TYPE: Final = "message.timestamp.type"
_BEFORE: Final = "message.timestamp.before.max.ms"
_LEAST: Final = -(1 << 63)
_WHY: Final = {"raised": Withdrawn.BOUND_RAISED, "followed": Withdrawn.FOLLOWED}


class PartitionComplete(NamedTuple):
    """Time up to which a partition is complete, in milliseconds, or why there is none."""

    ms: int | None
    withdrawn: Withdrawn | None = None


class CompleteTimes:
    """Complete times of a broker's partitions. For the event loop's thread only."""

    def __init__(self, log_dir: LogDir, topics: Iterable[Topic], live: LiveSettings) -> None:
        self._log_dir = log_dir
        self._live = live
        self._changing: dict[UUID, Withdrawn] = {}  # topics whose values are being withdrawn
        default = _default(live.settings)
        if log_dir.promises.default != default:
            for topic in topics:
                self._break_as_started(topic, live.of_topic(topic))
            self._changing.clear()
            log_dir.promises = log_dir.promises._replace(default=default)
            with suppress(StorageFailed):  # the task that keeps the clock tries again
                log_dir.save_stamps()

    def _break_as_started(self, topic: Topic, config: TopicConfig) -> None:
        """Withdraw the value of a topic whose bound the broker was started with, if it is raised.

        The topic's own settings are as they were. Of its own deprecated difference and the bound
        of the broker the smaller one counts: which of both it was depends on how that was given.
        """
        promises = self._log_dir.promises
        if promises.default is None:
            return
        timestamp_type, before_max_ms = promises.default
        if _TYPE in topic.overrides:
            timestamp_type = config.message_timestamp_type
        own_ms = Settings().topic_config(topic.overrides).message_timestamp_before_max_ms
        is_own = _BEFORE in topic.overrides and own_ms != LONG_MAX
        before_max_ms = own_ms if is_own else min(own_ms, before_max_ms)
        before_ms = past_bound_ms(timestamp_type, before_max_ms)
        self._break_if_raised(topic, before_ms, config, self._log_dir.loaded_stamp_ms)

    def until(self, topic: Topic, partition: Partition) -> PartitionComplete:
        """Return the time up to which a partition of a topic is complete."""
        config, waiting_ms = partition.log.config, partition.writes.earliest_ms()
        saved_ms, promises = self._log_dir.saved_stamp_ms, self._log_dir.promises
        ms = config.earliest_ms(saved_ms)
        if partition.log.is_following:
            return PartitionComplete(None, Withdrawn.FOLLOWED)
        if topic.adopted:
            return PartitionComplete(None, Withdrawn.ADOPTED)
        if topic.is_internal or ms is None:
            return PartitionComplete(None, Withdrawn.NO_BOUND)
        if saved_ms == EVER or self._log_dir.saved_promises.default != promises.default:
            return PartitionComplete(None, Withdrawn.NOT_WRITTEN)
        if topic.topic_id in self._changing:
            return PartitionComplete(None, self._changing[topic.topic_id])
        if waiting_ms is None:  # a batch that came before there was a bound
            return PartitionComplete(None, Withdrawn.BOUND_RAISED)
        if promises.reset_ms is not None and (
            saved_ms <= promises.reset_ms
            or waiting_ms < ms + promises.reset_ms - saved_ms  # the value before the reset
        ):
            return PartitionComplete(None, Withdrawn.RESET)
        ms = max(_LEAST, min(ms, waiting_ms, LONG_MAX))
        broken = promises.broken.get(topic.topic_id)
        if broken is not None and ms < broken.ms:
            return PartitionComplete(None, _WHY[broken.why])
        return PartitionComplete(ms)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Give no value that `change` or `follow` withdraws until the block ends.

        The clock goes on until the change is stored and has taken effect: a value of that moment
        would not be covered by what was written before.
        """
        try:
            yield
        finally:
            self._changing.clear()
            default = _default(self._live.settings)
            if self._log_dir.promises.default != default:  # the change has failed
                self._log_dir.promises = self._log_dir.promises._replace(default=default)

    def reset(self) -> bool:
        """Withdraw all values: the clock of append times is about to be set back.

        Return True unless that is on the disk.
        """
        promises, clock_ms = self._log_dir.promises, self._log_dir.stamps.last_ms
        if promises.reset_ms is None or clock_ms > promises.reset_ms:
            self._log_dir.promises = promises._replace(reset_ms=clock_ms)
        saved_ms = self._log_dir.saved_promises.reset_ms
        return saved_ms is None or clock_ms > saved_ms

    def follow(self, topic: Topic, config: TopicConfig) -> None:
        """Withdraw the value of a topic that is about to be followed, within `changing`."""
        earliest_ms = config.earliest_ms(self._highest_ms(self._log_dir.stamps.last_ms))
        if earliest_ms is not None:
            self._break(topic.topic_id, Promise(earliest_ms, "followed"))

    def change(self, topic: Topic, before: TopicConfig, after: TopicConfig) -> bool:
        """Withdraw the value of a topic if its bound is about to be raised; return whether it is.

        Within `changing`. The value of a topic that is not led here is withdrawn already.
        """
        before_ms = past_bound_ms(
            before.message_timestamp_type, before.message_timestamp_before_max_ms
        )
        clock_ms = self._log_dir.stamps.last_ms
        return self._break_if_raised(topic, before_ms, after, clock_ms)

    def change_default(self, after: Settings) -> bool:
        """Note the bound of topics without settings of their own; return whether it is another."""
        promises, default = self._log_dir.promises, _default(after)
        self._log_dir.promises = promises._replace(default=default)
        return promises.default != default

    def _break_if_raised(
        self, topic: Topic, before_ms: int | None, after: TopicConfig, clock_ms: int
    ) -> bool:
        after_ms = past_bound_ms(
            after.message_timestamp_type, after.message_timestamp_before_max_ms
        )
        is_led = not (topic.followed or topic.adopted or topic.is_internal)
        is_raised = before_ms is not None and (after_ms is None or after_ms > before_ms)
        if before_ms is None or not is_raised or not is_led:
            return False
        self._break(topic.topic_id, Promise(self._highest_ms(clock_ms) - before_ms, "raised"))
        return True

    def _highest_ms(self, clock_ms: int) -> int:
        """Return the clock that values were counted from, also before it was set back."""
        reset_ms = self._log_dir.promises.reset_ms
        return clock_ms if reset_ms is None else max(clock_ms, reset_ms)

    def _break(self, topic_id: UUID, promise: Promise) -> None:
        promises = self._log_dir.promises
        self._changing[topic_id] = _WHY[promise.why]
        known = promises.broken.get(topic_id)
        if known is None or promise.ms > known.ms:
            broken = {**promises.broken, topic_id: promise}
            self._log_dir.promises = promises._replace(broken=broken)

    def forget(self, topic: Topic) -> None:
        """Drop what is known of a deleted topic."""
        promises = self._log_dir.promises
        if topic.topic_id in promises.broken:
            broken = {key: its for key, its in promises.broken.items() if key != topic.topic_id}
            self._log_dir.promises = promises._replace(broken=broken)

    def tidy(self, partitions: Iterable[Partition]) -> None:
        """Drop withdrawals that are over in all partitions of their topics."""
        promises, saved_ms = self._log_dir.promises, self._log_dir.saved_stamp_ms
        if not promises.broken:
            return
        over, not_over = set[UUID](), set[UUID]()
        for partition in partitions:
            log = partition.log
            if log.topic_id is None or (promise := promises.broken.get(log.topic_id)) is None:
                continue
            times_ms = log.config.earliest_ms(saved_ms), partition.writes.earliest_ms()
            is_over = not (log.is_following or log.topic_id in self._changing) and all(
                ms is not None and ms >= promise.ms for ms in times_ms
            )
            (over if is_over else not_over).add(log.topic_id)
        kept = {key: its for key, its in promises.broken.items() if key not in over - not_over}
        self._log_dir.promises = promises._replace(broken=kept)


def _default(settings: Settings) -> tuple[int, int]:
    config = settings.topic_config()
    return int(config.message_timestamp_type), config.message_timestamp_before_max_ms
