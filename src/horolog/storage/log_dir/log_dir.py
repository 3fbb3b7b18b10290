"""Log directory: lock it, load its logs, write its checkpoints, and close it cleanly.

A partition directory that is not ours (a Kafka's directory, a restored backup) is
adopted: loaded and served, and nothing of it is deleted, rolled by time or tidied up.
The internal topics of others are left alone altogether, and so is any directory whose
log cannot be read: their lines in the checkpoints stay, and a directory in which they
were not closed cleanly is never marked as clean on their behalf.

In a cluster the controllers have assigned the partitions (log_dir/assigned.py), and give the leader
epochs. Every log is opened as one that follows, with the high watermark of its checkpoint, and none
begins an epoch of its own.

Opening and closing take as long as the disk does: never on an event loop.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from horolog.config import BrokerConfig, TopicConfig
from horolog.errors import CorruptFile, HorologError, StorageFailed
from horolog.storage import names
from horolog.storage.directory.checkpoints import (
    AheadSpan,
    MetaProperties,
    Promises,
    StampState,
    read_stamp_state,
    read_topic_id,
    write_stamp_state,
    write_topic_id,
)
from horolog.storage.directory.clean_shutdown import NO_BROKER_EPOCH, CleanShutdownMarker
from horolog.storage.directory.contents import Contents, clear_the_way, contents_of
from horolog.storage.directory.identity import Remembered, directory_identity, identify_state
from horolog.storage.directory.lock import DirectoryLock, lock_log_dir, still_locks
from horolog.storage.directory.syncing import sync_all
from horolog.storage.directory.uptime import home_of
from horolog.storage.files import Files
from horolog.storage.log_dir.assigned import set_strays_aside
from horolog.storage.log_dir.offset_checkpoints import OffsetCheckpoints
from horolog.storage.logs.append_time_floor import AppendTimes
from horolog.storage.logs.epochs import LeaderEpochs
from horolog.storage.logs.log import Log
from horolog.storage.logs.readable import LogParts
from horolog.storage.logs.stamp_clock import StampClock
from horolog.storage.logs.writer import new_segment
from horolog.storage.names import TopicPartition
from horolog.storage.producers.states import Producers
from horolog.storage.recovery.loading import load_log
from horolog.storage.recovery.segments import LoadPlan, Recovery

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_UNSAVED_STAMPS_MS = 10_000  # the clock of append times is written down each second
_AT_ONCE = -(1 << 63)  # before any monotonic time


class FoundPartitions(NamedTuple):
    """Contents of a log directory before any log is opened."""

    ids: Mapping[TopicPartition, uuid.UUID | None]
    """The topic id in each partition's directory, None where there is none to be read."""
    blocked: Mapping[TopicPartition, str]
    """Names of partitions that something other than a directory has, and what that is."""
    internal: frozenset[str]
    """Kafka's internal topics that have directories."""


@dataclass(slots=True)
class OpeningProgress:
    """How far a log directory is opened; any thread may look."""

    logs: int = 0
    """Number of logs to load; 0 while that is not known."""
    loaded: int = 0
    is_ended: bool = False
    """Set by a stop that comes first: the next segment and the next log are not looked at."""


class _Root:
    """Directory of partitions, with the checkpoints that a stop writes about them."""

    def __init__(self, files: Files, path: Path, lock: DirectoryLock) -> None:
        self.path = path
        self.lock = lock
        self.marker = CleanShutdownMarker(files, str(path))
        self.checkpoints = OffsetCheckpoints(files, str(path))
        self.was_clean = False
        self.left_alone: set[TopicPartition] = set()
        """Partitions that exist and were not opened."""
        self.has_moved = False
        """Another broker was moving partitions to another disk, or set some aside."""

    @property
    def may_be_marked_clean(self) -> bool:
        """Return True if all logs in the directory were closed cleanly.

        Kafka ignores the marker for its own metadata log.
        """
        others = any(partition.topic != names.CLUSTER_METADATA for partition in self.left_alone)
        return self.was_clean or not (others or self.has_moved)


class LogDir:
    """A log directory and its open logs. `open` makes one, `close` ends it."""

    def __init__(
        self,
        files: Files,
        roots: Sequence[_Root],
        meta: MetaProperties,
        config: BrokerConfig,
        assigned: Mapping[TopicPartition, uuid.UUID] | None,
    ) -> None:
        self.path = roots[0].path
        self.meta = meta
        self.logs: dict[TopicPartition, Log] = {}
        self.adopted: list[TopicPartition] = []
        """Partitions that are not ours, in order."""
        self.unreadable: dict[TopicPartition, str] = {}
        """Partitions that were not loaded, and why; their directories are untouched."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called, in any thread, after the disk has refused a write of a log."""
        self.recoveries: list[Recovery] = []
        """Repairs of each log that needed one to be opened."""
        self.stamps = StampClock()
        """The clock of append times of all logs."""
        self.saved_stamp_ms = self.stamps.last_ms
        """The clock of append times as it is on the disk."""
        self.settled_ms = self.stamps.last_ms
        """The logs have every record that was given an earlier append time."""
        self.now_ms: Callable[[], int] = lambda: self.stamps.last_ms
        """The machine's clock, for any thread; a broker gives it."""
        self._were_ahead: dict[TopicPartition, AheadSpan] = {}
        self.loaded_stamp_ms = self.stamps.last_ms
        """The clock of append times as the last process has left it on the disk."""
        self.promises = Promises()
        """Complete times that do not hold any more; replaced, on the event loop alone."""
        self.saved_promises = self.promises
        """The same as it is on the disk."""
        self._home = home_of(files, str(self.path))
        self._stamp_path = f"{self.path}/{names.STAMP_CLOCK}"
        self._saving_stamps = threading.Lock()
        self._roots = roots
        self._assigned = assigned
        self._is_of_cluster = assigned is not None
        self._ends: dict[TopicPartition, int] = {}  # where logs ended when the marker was taken
        self._failed: dict[TopicPartition, int] = {}  # not opened: their file.delete.delay.ms
        self._files = files
        self._config = config
        self._to_remove: list[tuple[int, str]] = []
        self._removing = threading.Lock()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        broker_config: BrokerConfig,
        topic_config: Callable[[str], TopicConfig],
        now_ms: int,
        is_ours: Callable[[str], bool] = lambda topic: True,
        choose: Callable[["FoundPartitions"], Mapping[TopicPartition, str]] = lambda found: {},
        topic_id: Callable[[str], uuid.UUID | None] = lambda topic: None,
        follows: Callable[[str], bool] = lambda topic: False,
        known_epoch: Callable[[TopicPartition], int] = lambda partition: -1,
        is_known: Callable[[str], bool] = lambda topic: True,
        succeeds_another: bool = False,
        files: Files | None = None,
        lock: DirectoryLock | None = None,
        state_dir: Path | None = None,
        assigned: Mapping[TopicPartition, uuid.UUID] | None = None,
        properties: Mapping[str, str] = MappingProxyType({}),
        remembered: Remembered = Remembered(),  # noqa: B008 - immutable
        progress: OpeningProgress | None = None,
    ) -> "LogDir":
        """Lock a directory, create it if it is missing, and load its logs.

        Args:
            topic_config: the settings of a topic by its name, of one that is not ours too.
            now_ms: the clock, in milliseconds.
            is_ours: whether a topic may be shortened; one that is not is adopted. Called after
                `choose`.
            choose: given the partitions on disk, those that are not to be opened and why.
            topic_id: the id of a topic that is ours, None if it is not known. It is written into
                directories that lack theirs.
            follows: whether the logs of a topic that is ours take the batches of a source.
            known_epoch: the leader epoch that the metadata have of a partition, which is led in
                none that is lower; -1 if it is not known. Called after `choose`.
            is_known: whether this broker served a topic before; append times of others are not its.
            succeeds_another: another broker led the partitions last.
            lock: what `lock_log_dir` returned, if it was called before; let go of with the
                log directory, also where it cannot be opened.
            state_dir: has the partitions of the coordinators' topics, made if it is not there; it
                may be the log directory. None: no such partition is opened.
            assigned: in a cluster, topic ids of the partitions that the controllers have assigned
                to this broker. What the arguments say of topics other than settings does not count
                then. None for a node alone.
            properties: what a `meta.properties` that is made gets, too.
            remembered: what is known of the directory's identity without that file.
            progress: counts the logs while they are loaded.

        Raises:
            Misconfigured: another broker has it, or it cannot be a log directory.
            StorageFailed: the disk refused.
        """
        files = files or Files()
        roots = [_Root(files, path, lock or lock_log_dir(path))]
        try:
            if state_dir not in (None, path):
                roots.append(_Root(files, state_dir, lock_log_dir(state_dir)))
            own = [f"{n}{suffix}" for n in names.LOG_DIR_FILES for suffix in ("", names.TEMPORARY)]
            for root in roots:
                for moved in clear_the_way(files, str(root.path), own):
                    _logger.error(
                        "%s is not a regular file and was set aside under this name", moved
                    )
            meta = directory_identity(files, path, broker_config, properties, remembered)
            for root in roots[1:]:
                identify_state(files, root.path, meta)
            log_dir = cls(files, roots, meta, broker_config, assigned)
            reserved = names.INTERNAL_TOPICS
            if assigned is not None:
                reserved = frozenset({names.CLUSTER_METADATA})
                topics = {partition.topic: topic for partition, topic in assigned.items()}
                is_ours, follows, topic_id = topics.__contains__, lambda topic: True, topics.get
                known_epoch, succeeds_another = lambda partition: -1, False
            elif state_dir == path:
                reserved -= names.SERVED_INTERNAL
            log_dir._load(
                reserved,
                topic_config,
                is_ours,
                choose,
                topic_id,
                follows,
                known_epoch,
                now_ms,
                progress or OpeningProgress(),
                succeeds_another=succeeds_another,
            )
            log_dir._settle_stamps(is_known, now_ms)
        except BaseException:
            for root in roots:
                root.lock.close()
            raise
        return log_dir

    def _load(
        self,
        reserved: Container[str],
        topic_config: Callable[[str], TopicConfig],
        is_ours: Callable[[str], bool],
        choose: Callable[["FoundPartitions"], Mapping[TopicPartition, str]],
        topic_id: Callable[[str], uuid.UUID | None],
        follows: Callable[[str], bool],
        known_epoch: Callable[[TopicPartition], int],
        now_ms: int,
        progress: OpeningProgress,
        *,
        succeeds_another: bool,
    ) -> None:
        contents = self._contents(reserved)
        for root in self._roots:
            root.was_clean = root.marker.take()
            root.checkpoints.read()
        config_of = cache(topic_config)

        def load(partition: TopicPartition) -> tuple[Log, Recovery] | HorologError:
            is_adopted, root = not is_ours(partition.topic), self._root_of(partition)
            plan = LoadPlan(
                config_of(partition.topic),
                now_ms,
                root.was_clean,
                root.checkpoints.of(partition),
                topic_id(partition.topic),
                is_adopted,
                follows(partition.topic) and not is_adopted,
                self._config.horolog_max_batch_uncompressed_bytes,
                known_epoch(partition),
                succeeds_another,
                is_ended=lambda: progress.is_ended,
            )
            try:
                return load_log(self._files, self._path(partition), partition, plan)
            except HorologError as error:
                return error

        self._to_remove = [(_AT_ONCE, path) for path in contents.deleted]
        present = contents.partitions
        if self._assigned is None:
            self.unreadable |= choose(self._found(contents))
        else:
            present, unreadable = set_strays_aside(self._files, self.path, present, self._assigned)
            blocked = contents.blocked.keys() & self._assigned.keys()
            self.unreadable |= unreadable | {key: contents.blocked[key] for key in blocked}
        for partition in self.unreadable:
            self._root_of(partition).left_alone.add(partition)
        partitions = [partition for partition in present if partition not in self.unreadable]
        progress.logs = len(partitions)
        with ThreadPoolExecutor(self._config.num_recovery_threads_per_data_dir) as pool:
            for partition, loaded in zip(partitions, pool.map(load, partitions), strict=True):
                progress.loaded += 1
                if progress.is_ended:
                    raise StorageFailed("the logs are not opened: the broker stops")
                if isinstance(loaded, HorologError):
                    self.unreadable[partition] = str(loaded)
                    self._failed[partition] = config_of(partition.topic).file_delete_delay_ms
                    self._root_of(partition).left_alone.add(partition)
                    continue
                log, recovery = loaded
                self._take(log)
                if not recovery.removed_bytes:
                    self._ends[partition] = log.log_end_offset
                if recovery.has_findings or recovery.checked_bytes:
                    self.recoveries.append(recovery)
        for root in self._roots:
            root.checkpoints.keep(root.left_alone, self._logs_in(root))
        self.adopted = [partition for partition in self.logs if not is_ours(partition.topic)]

    def _settle_stamps(self, is_known: Callable[[str], bool], now_ms: int) -> None:
        """Let the clock of append times continue where the last process left it.

        After a kill the last append times are in the logs alone. A floor that was as far ahead of
        the clock before, and that of a log that follows or is new here, says nothing of this clock.
        """
        saved: StampState | None = None
        try:
            saved = read_stamp_state(self._files, self._stamp_path)
        except CorruptFile as error:
            _logger.warning("The clock of append times begins with the machine's: %s", error)
        self.stamps.rise(now_ms)
        if saved is not None:
            self.stamps.rise(saved.clock_ms)
            present = self.logs.keys() | self.unreadable.keys()
            self._were_ahead = {key: saved.ahead[key] for key in saved.ahead.keys() & present}
            self.loaded_stamp_ms, self.promises = saved.clock_ms, saved.promises
            self.saved_promises = saved.promises
        for partition, log in self.logs.items():
            floor_ms, span = log.floor.last, self._were_ahead.get(partition)
            if (
                saved is not None
                and not self._root_of(partition).was_clean
                and floor_ms is not None
                and (span is None or floor_ms != span.floor_ms)
                and (not log.is_following or self._may_have_led(floor_ms, saved))
                and is_known(partition.topic)
            ):
                self.stamps.rise(floor_ms)
        self.settled_ms = self.stamps.last_ms
        self.note_ahead(self.logs)
        self.try_to_save_stamps()

    def _may_have_led(self, floor_ms: int, saved: StampState) -> bool:
        """Return True if a log that follows now may have been given append times by this clock."""
        return self._is_of_cluster and floor_ms - saved.clock_ms <= _UNSAVED_STAMPS_MS

    def lower_stamps(self, clock_ms: int) -> None:
        """Lower the clock of append times. Logs whose floors are ahead of it then keep them."""
        self.stamps.last_ms = clock_ms
        self.settled_ms = min(self.settled_ms, clock_ms)
        self.note_ahead(self.logs.copy())

    def try_to_save_stamps(self) -> None:
        """Write the clock of append times; a full disk prevents neither starts nor deletions."""
        try:
            self.save_stamps()
        except StorageFailed as error:
            _logger.warning("The clock of append times is not written down: %s", error)

    def save_stamps(self) -> None:
        """Write down the clock of append times, and the floors that are or were ahead of it.

        Raises:
            StorageFailed: the disk refused; the earlier content stays.
        """
        with self._saving_stamps:
            clock_ms = self.stamps.last_ms
            # The floors of others get ahead of the clock only where that is lowered.
            following = [key for key, log in self.logs.copy().items() if log.is_following]
            self.note_ahead(following)
            ahead = {key: span for key, span in self._were_ahead.copy().items() if self._has(key)}
            settled_ms, promises = min(self.settled_ms, clock_ms), self.promises
            state = StampState(
                clock_ms, settled_ms, ahead, promises, frozenset(following), self._home
            )
            write_stamp_state(self._files, self._stamp_path, state)
            self.saved_stamp_ms, self.saved_promises = clock_ms, promises

    def _has(self, partition: TopicPartition) -> bool:
        return partition in self.logs or partition in self.unreadable

    def note_ahead(self, partitions: Collection[TopicPartition]) -> None:
        """Note which of these logs have floors that are ahead of the clock."""
        for partition in partitions:
            span = self.ahead_span(partition)
            if span is not None:
                self._were_ahead[partition] = span

    def ahead_span(self, partition: TopicPartition) -> AheadSpan | None:
        """Return the times that a log stamped while it was ahead of the clock; None without any."""
        log, known = self.logs.get(partition), self._were_ahead.get(partition)
        floor_ms = None if log is None else log.floor.last
        # The clock is read after the floor, which it is never behind where it gave that.
        if log is None or floor_ms is None or floor_ms <= (clock_ms := self.stamps.last_ms):
            return known
        if log.is_following and floor_ms <= self.now_ms():
            return known  # the source's clock has moved on since ours was raised
        if known is None:
            return AheadSpan(clock_ms, floor_ms)
        return AheadSpan(min(clock_ms, known.since_ms), max(floor_ms, known.floor_ms))

    def _contents(self, reserved: Container[str]) -> Contents:
        """List the log directory, and the internal topics of a state directory beside it."""
        contents = contents_of(self.path, reserved)
        self._roots[0].left_alone.update(contents.internal)
        self._roots[0].has_moved = contents.has_moved and not self._is_of_cluster
        for root in self._roots[1:]:
            state = contents_of(root.path, reserved=())
            contents.partitions.extend(
                partition for partition in state.partitions if self._is_state(partition)
            )
            contents.deleted.extend(state.deleted)
        return contents

    def _found(self, contents: Contents) -> "FoundPartitions":
        """Return the partitions on disk with their topic ids."""
        ids: dict[TopicPartition, uuid.UUID | None] = {}
        for partition in contents.partitions:
            path = f"{self._path(partition)}/{names.PARTITION_METADATA}"
            try:
                ids[partition] = read_topic_id(self._files, path)
            except HorologError as error:
                _logger.warning("%s: its topic id is not known: %s", partition, error)
                ids[partition] = None
        internal = frozenset(partition.topic for partition in contents.internal)
        return FoundPartitions(ids, contents.blocked, internal)

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: TopicConfig,
        now_ms: int,
    ) -> Log:
        """Make a new, empty partition.

        Raises:
            StorageFailed: there is one, or the disk refused.
        """
        self.create_all(topic, [partition], topic_id, config, now_ms)
        return self.logs[TopicPartition(topic, partition)]

    def create_all(
        self,
        topic: str,
        partitions: Iterable[int],
        topic_id: uuid.UUID,
        config: TopicConfig,
        now_ms: int,
        *,
        leader_epoch: Callable[[TopicPartition], int] = lambda partition: 0,
    ) -> None:
        """Make new, empty partitions of one topic.

        Args:
            now_ms: the clock, in milliseconds.
            leader_epoch: in which each is led.

        Raises:
            StorageFailed: there is one, or the disk refused. None has been made.
        """
        made: list[Log] = []
        keys = [TopicPartition(topic, partition) for partition in partitions]
        for key in keys:
            if self._files.exists(self._path(key)):  # and its lines in the checkpoints count
                raise StorageFailed(f"Cannot create {self._path(key)}: it is there already")
        root = self._root_of(TopicPartition(topic, 0))
        root.checkpoints.make_room(keys, self._logs_in(root))
        try:
            for key in keys:
                if names.partition_of(str(key)) != key:  # a name that leads elsewhere
                    raise StorageFailed(f"{key} cannot be the name of a partition's directory")
                made.append(self._make(key, topic_id, config, now_ms, leader_epoch(key)))
            ids = [f"{log.directory}/{names.PARTITION_METADATA}" for log in made]
            for failure in self._sync([*ids, str(root.path)]).values():
                raise failure
        except StorageFailed:
            for log in made:
                log.abandon()
                self._files.remove_tree(log.directory)
            raise
        for log in made:
            self._take(log)

    def _take(self, log: Log) -> None:
        log.checkpoint = self.checkpoint
        log.flusher.on_failure = self._note_failure
        log.stamps = self.stamps
        log.is_of_cluster = self._is_of_cluster
        self.logs[TopicPartition(log.topic, log.partition)] = log

    def _note_failure(self) -> None:
        self.on_failure()

    def _make(
        self,
        key: TopicPartition,
        topic_id: uuid.UUID,
        config: TopicConfig,
        now_ms: int,
        leader_epoch: int,
    ) -> Log:
        directory = self._path(key)
        files = self._files
        files.make_directory(directory)
        try:
            write_topic_id(files, f"{directory}/{names.PARTITION_METADATA}", topic_id)
            active = new_segment(files, directory, 0, config, now_ms)
        except StorageFailed:
            files.remove_tree(directory)  # or the next try would find it there
            raise
        return Log(
            LogParts(
                files=files,
                directory=directory,
                partition=key,
                config=config,
                segments=[active.segment],
                active=active,
                topic_id=topic_id,
                producers=Producers(),
                epochs=LeaderEpochs(files, f"{directory}/{names.LEADER_EPOCHS}"),
                leader_epoch=leader_epoch,
                is_following=self._is_of_cluster,
                high_watermark=0 if self._is_of_cluster else None,
                append_times=AppendTimes(files, directory),
                max_batch_uncompressed_bytes=self._config.horolog_max_batch_uncompressed_bytes,
            )
        )

    def claim(self, partitions: Iterable[TopicPartition], topic_id: uuid.UUID) -> None:
        """Write a topic's id into the directories of its partitions that have another id or no id.

        Raises:
            StorageFailed: the disk refused; some may have it.
        """
        paths = []
        for log in (self.logs[key] for key in partitions if key in self.logs):
            if log.topic_id != topic_id:
                path = f"{log.directory}/{names.PARTITION_METADATA}"
                write_topic_id(self._files, path, topic_id)
                log.topic_id = topic_id
                paths.append(path)
        for failure in self._sync(paths).values():
            raise failure

    def delete(self, partitions: Iterable[TopicPartition], monotonic_ms: int) -> None:
        """Delete partitions: their directories are renamed at once, and removed later.

        `remove_deleted` removes them `file.delete.delay.ms` after `monotonic_ms`.

        That goes for one that could not be opened too; what was left alone is left alone.

        Their lines in the checkpoints go too, after that: a kill in between leaves lines of
        partitions that are not there, which the next start removes.

        Raises:
            StorageFailed: the disk refused; what could not be taken away is as it was.
        """
        gone = set()
        self.try_to_save_stamps()  # nothing else shows after a kill what these logs were given
        try:
            for key in partitions:
                log = self.logs.get(key)
                if log is None and key not in self._failed:
                    continue
                root = self._root_of(key)
                target = f"{root.path}/{names.deleted_directory(key, uuid.uuid4())}"
                self._files.rename(self._path(key), target)
                gone.add(key)
                if log is None:
                    delay_ms = self._failed.pop(key)
                    del self.unreadable[key]
                    root.left_alone.discard(key)
                else:
                    delay_ms = log.config.file_delete_delay_ms
                    del self.logs[key]
                    log.abandon()
                self._to_remove.append((monotonic_ms + delay_ms, target))
            for root in {self._root_of(key) for key in gone}:
                self._files.sync_path(str(root.path))
        finally:
            self.adopted = [kept for kept in self.adopted if kept not in gone]
            for root in {self._root_of(key) for key in gone}:
                its = {key for key in gone if self._root_of(key) is root}
                root.checkpoints.forget(its, self._logs_in(root))
            with self._saving_stamps:
                spans = [self._were_ahead.pop(key, None) for key in gone]
            if any(spans):  # another partition of the name did not stamp them
                self.try_to_save_stamps()

    def without_blocking(self, look: Callable[[], T]) -> T:
        """Call `look` with reads from the page cache only; for one thread only.

        Raises:
            WouldBlock: the data is not in the page cache, or the call takes long.
        """
        return self._files.without_blocking(look)

    def remove_deleted(self, monotonic_ms: int) -> int:
        """Remove directories of partitions that were deleted long enough ago; return how many.

        Any number of threads may call it: what one removes, the others wait for.
        """
        with self._removing:
            due = [entry for entry in list(self._to_remove) if entry[0] <= monotonic_ms]
            for entry in due:
                self._files.remove_tree(entry[1])
                self._to_remove.remove(entry)  # others may be entered meanwhile
            return len(due)

    def checkpoint(self) -> None:
        """Write recovery points, log starts, high watermarks and cleaner points of all logs."""
        for root in self._roots:
            root.checkpoints.write(self._logs_in(root))

    def checkpoint_starts(self) -> None:
        """Write the log start offsets of all logs.

        Raises:
            StorageFailed: the disk refused; the earlier content stays.
        """
        for root in self._roots:
            root.checkpoints.write(self._logs_in(root), names.LOG_START_OFFSETS)

    def checkpoint_replicas(self) -> None:
        """Write the high watermarks of all logs, and the recovery points if a log was truncated.

        Raises:
            StorageFailed: the disk refused; the earlier content stays.
        """
        logs = self.logs.copy().values()
        truncated = [(log, log.truncated_to) for log in logs if log.truncated_to is not None]
        for root in self._roots:
            root.checkpoints.write(self._logs_in(root), names.HIGH_WATERMARKS)
            if truncated:
                root.checkpoints.write(self._logs_in(root), names.RECOVERY_POINTS)
        for log, offset in truncated:
            if log.truncated_to == offset:  # else it was truncated again meanwhile
                log.truncated_to = None

    def checkpoint_cleaner(self) -> None:
        """Write the cleaner points of all logs, if they have changed.

        Raises:
            StorageFailed: the disk refused; the earlier content stays.
        """
        for root in self._roots:
            root.checkpoints.write(self._logs_in(root), names.CLEANER_OFFSETS)

    @property
    def was_clean(self) -> bool:
        """True if the last broker closed the log directory cleanly."""
        return self._roots[0].was_clean

    @property
    def previous_broker_epoch(self) -> int:
        """Epoch of the registration in which the last broker stopped cleanly; -1 if unknown."""
        return self._roots[0].marker.broker_epoch

    def _has_changed(self, root: _Root) -> bool:
        """Return True if a log in the directory has changed since `open`.

        A log that follows may have been truncated, and grown again to where it ended.
        """
        logs = self._logs_in(root)
        ends = {key: log.log_end_offset for key, log in logs.items()}
        before = {key: end for key, end in self._ends.items() if self._root_of(key) is root}
        return ends != before or any(log.is_following for log in logs.values())

    def check(self) -> str | None:
        """Return why the directory is lost; None if it is not.

        A lost directory refuses all file access.

        It may have been removed, renamed or unmounted: open files would accept records that are
        lost. Without its lock file another broker could use it.
        """
        for root in self._roots:
            fd = root.lock.fd
            if fd is not None and not still_locks(f"{root.path}/{names.LOCK}", fd):
                why = f"The log directory {root.path} is gone; start again when it is back"
                self._files.refuse(why)
                return why
        return None

    def close(self, *, clean: bool = True, broker_epoch: int = NO_BROKER_EPOCH) -> list[str]:
        """Close every log and release the directory; return the failures.

        Not clean, everything is left as a kill would leave it.

        Args:
            broker_epoch: in a cluster, epoch of the registration of this broker, if the controllers
                have granted its stop; otherwise -1.
        """
        failures, changed = [], {root: self._has_changed(root) for root in self._roots}
        if clean:
            try:
                failures = self._finish_logs()
                self.checkpoint()
                self.settled_ms = self.stamps.last_ms
                self.save_stamps()
                for root, has_changed in changed.items():
                    if not failures and root.may_be_marked_clean:
                        keeps = not (has_changed or self._is_of_cluster)
                        root.marker.write(None if keeps else broker_epoch)
            except StorageFailed as error:
                failures.append(str(error))
        for log in self.logs.values():
            log.end_repairs()
        self.logs.clear()
        self._files.close()
        for root in self._roots:
            root.lock.close()
        return failures

    def _finish_logs(self) -> list[str]:
        """Finish all logs and sync them; return the failures."""
        failures, unsynced = [], {}
        for log in self.logs.values():
            try:
                unsynced[log] = log.finish()
            except StorageFailed as error:
                failures.append(f"{log}: {error}")
        refused = self._sync([path for paths in unsynced.values() for path in paths])
        for log, paths in unsynced.items():
            errors = [refused[path] for path in paths if path in refused]
            if errors:
                log.flusher.doubt()
                failures.append(f"{log}: {errors[0]}")
            else:
                log.finished()
        return failures

    def _sync(self, paths: Sequence[str]) -> dict[str, StorageFailed]:
        lock = self._roots[0].lock
        assert lock.fd is not None
        return sync_all(self._files, paths, lock.fd)

    def _is_state(self, partition: TopicPartition) -> bool:
        """Return True if a coordinator of this broker keeps its state in a partition."""
        return partition.topic in names.SERVED_INTERNAL

    def _root_of(self, partition: TopicPartition) -> _Root:
        return self._roots[-1] if self._is_state(partition) else self._roots[0]

    def _logs_in(self, root: _Root) -> Mapping[TopicPartition, Log]:
        if len(self._roots) == 1:
            return self.logs
        logs = dict(self.logs)  # others may be made or deleted meanwhile
        return {key: log for key, log in logs.items() if self._root_of(key) is root}

    def _path(self, partition: TopicPartition) -> str:
        return f"{self._root_of(partition).path}/{partition}"
