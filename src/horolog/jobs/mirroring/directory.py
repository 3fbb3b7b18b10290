"""Destination of a mirror that is a log directory: same offsets, bytes and append times."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

from pyspark.sql import SparkSession

from horolog.errors import HorologError, Misconfigured, StorageFailed
from horolog.jobs.files.offline import locked_offline
from horolog.jobs.mirroring.bundles import bundled, in_tasks
from horolog.jobs.mirroring.keeping import WHY, Copy, KeptTopic, finish, keep
from horolog.jobs.mirroring.ledger import Ledger, Place
from horolog.jobs.mirroring.moving import Moved, PartitionMove, StretchToMirror
from horolog.jobs.mirroring.topics import Renaming, SourceTopic, TargetTopic
from horolog.jobs.parameters.mirror import Mirror
from horolog.jobs.receiving import is_horolog
from horolog.jobs.selection import Selection
from horolog.metadata.replicated import refuse_directory_of_cluster
from horolog.sources.location import Location
from horolog.sources.uris import local_path
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_offsets, write_offsets
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_SEGMENT_BYTES = 1 << 30


class LogDirectory:
    """Destination of a mirror that is a log directory; no broker may be at work in it."""

    note = (
        "The log directory has the source's offsets and bytes; a broker that opens it serves them"
    )
    reading: Mapping[str, str] = MappingProxyType({"kafka.isolation.level": "read_uncommitted"})

    def __init__(self, job: Mirror, location: Location, ledger: Ledger) -> None:
        """Lock the directory; create it if it is missing.

        Raises:
            Misconfigured: the target is no local path, or a broker is at work there.
            StorageFailed: the directory cannot be created.
        """
        path = None if location.path is None else local_path(location.path.uri)
        if path is None:
            raise Misconfigured(f"target {location}: a log directory is on a disk; use `archive`")
        self._path = Path(path).absolute()
        self._ledger = ledger
        self._topics: dict[str, tuple[SourceTopic, str]] = {}
        """Topics by their names at the source, each with its name in the directory."""
        self._with_append_times = True
        self._touched: set[TopicPartition] = set()
        self._stack = ExitStack()
        if not job.dry_run:
            try:
                self._path.mkdir(parents=True, exist_ok=True)
                (self._path / names.LOCK).touch()
            except OSError as error:
                raise StorageFailed(f"Cannot make {self._path}: {error.strerror}") from error
            self._stack.enter_context(locked_offline([self._path], WHY))

    def close(self) -> None:
        """Release the lock, so that a broker can start in the directory."""
        self._stack.close()

    def check(self, selection: Selection, renaming: Renaming) -> None:
        """Refuse a range of time, and a source that is the target directory itself.

        Raises:
            Misconfigured: a range of time is given, source and target are one directory, or it is
                that of a broker of a cluster.
        """
        refuse_directory_of_cluster(self._path)
        if not selection.times.is_everything:
            raise Misconfigured(
                "a log directory gets whole logs, at the same offsets: leave out from and to"
            )
        if selection.source.is_broker:
            with closing(selection.client("horolog-mirror")) as client:
                self._with_append_times = is_horolog(client)
            return
        source = None if selection.source.path is None else local_path(selection.source.path.uri)
        if source is not None and Path(source).absolute() == self._path and not renaming.pattern:
            raise Misconfigured("source and target are one directory: give --rename")

    def excluded(self, targets: Collection[str]) -> Collection[str]:
        """Return no topics: a log directory is never its own source by a pattern."""
        return ()

    def prepare(self, source: SourceTopic, name: str) -> TargetTopic:
        """Refuse a topic whose directories exist, unless this mirror has written them.

        Raises:
            Misconfigured: the topic's directory exists, and is not this mirror's.
        """
        for number in range(source.partitions):
            partition = TopicPartition(source.name, number)
            place = self._ledger.place(partition)
            directory = self._path / f"{name}-{number}"
            if place is None and directory.is_dir() and _has_segments(directory):
                raise Misconfigured(
                    f"{directory} is there already, and not of this mirror: give another --target, "
                    "or the --state with which it was made"
                )
            if place is not None and self._ledger.begun(partition) is None:
                _check_untouched(directory, place)
        self._topics[source.name] = source, name
        return TargetTopic(name, source.partitions, None, source.stamps)

    def ids(self, names: Collection[str]) -> Mapping[str, str | None]:
        """Return None for each topic: a log directory has no topic ids to compare."""
        return dict.fromkeys(names)

    def first_place(self, partition: TopicPartition, target: str, start: int) -> Place:
        """Return the position of a new partition: the start of its source, at the same offset."""
        return Place(start, target_offset=start)

    def move(self, spark: SparkSession, units: Sequence[StretchToMirror]) -> Iterator[list[Moved]]:
        """Copy the stretches in tasks."""
        self._ledger.begin({unit.partition: unit.place for unit in units})
        for wave in in_tasks(spark, bundled(spark, units), partial(keep, self._copy())):
            self._touched |= {moved.partition for moved in wave}
            yield wave

    def finish(self, spark: SparkSession) -> Sequence[str]:
        """Write the indexes of the last segments and the checkpoints; return the errors."""
        units = [
            PartitionMove(partition=partition, target_topic=name, place=place, end=place.offset)
            for topic, name in self._topics.values()
            for number in range(topic.partitions)
            for partition in [TopicPartition(topic.name, number)]
            for place in [self._ledger.place(partition)]
            if place is not None and (partition in self._touched or place.segment is None)
        ]
        work = partial(finish, self._copy())
        done = [moved for wave in in_tasks(spark, bundled(spark, units), work) for moved in wave]
        failures = [
            f"{moved.partition}: {moved.error}" for moved in done if moved.error is not None
        ]
        try:
            self._write_checkpoints({moved.partition for moved in done if moved.error is None})
        except HorologError as error:
            failures.append(str(error))
        return failures

    def _write_checkpoints(self, finished: Collection[TopicPartition]) -> None:
        """Write the recovery points and the log start offsets of partitions."""
        if not finished:
            return
        ends, starts = {}, {}
        for partition in finished:
            place = self._ledger.place(partition)
            assert place is not None
            named = TopicPartition(self._topics[partition.topic][1], partition.partition)
            ends[named] = place.offset
            starts[named] = place.target_offset  # as `first_place` had it
        with closing(Files()) as files:
            for name, news in ((names.RECOVERY_POINTS, ends), (names.LOG_START_OFFSETS, starts)):
                path = str(self._path / name)
                write_offsets(files, path, {**read_offsets(files, path), **news})
            files.sync_path(str(self._path))

    def _copy(self) -> Copy:
        topics = {
            name: KeptTopic(
                None if topic.topic_id is None else UUID(topic.topic_id),
                int(topic.settings.get("segment.bytes", _SEGMENT_BYTES)),
            )
            for name, (topic, _) in self._topics.items()
        }
        return Copy(path=self._path, topics=topics, with_append_times=self._with_append_times)


def _has_segments(directory: Path) -> bool:
    """True if a directory contains segments, or segments that a compaction has not renamed yet."""
    return any(
        entry.name.endswith((names.LOG, names.LOG + names.SWAP)) for entry in directory.iterdir()
    )


def _check_untouched(directory: Path, place: Place) -> None:
    """Refuse a directory whose segments differ from those that the mirror wrote.

    Raises:
        Misconfigured: a broker has appended to the directory, or files are missing.
    """
    expected = {} if place.segment is None else {place.segment: place.size}
    sizes = {
        base: path.stat().st_size
        for path in directory.glob("*" + names.LOG)
        if (base := names.base_offset_of(path.name, names.LOG)) is not None
        and base >= (place.offset if place.segment is None else place.segment)
    }
    if {base: size for base, size in sizes.items() if size} != expected:
        raise Misconfigured(
            f"{directory} is not as the mirror left it: a broker has written to it since, or "
            "files are lost. Mirror into another --target, with another --state"
        )
