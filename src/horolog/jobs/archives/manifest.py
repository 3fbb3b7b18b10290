"""The manifest of an archive: lists the files and offsets that the archive contains.

`manifest/<20 digits>.json`, each a whole manifest and never changed; the one with the largest
number counts. It is one line of JSON after its CRC-32C:

    {"version": 3, "number": 7, "id": "...", "topics": {"clicks": {
        "topic_id": "...", "from_ms": null, "to_ms": null, "partition_count": 6,
        "partitions": {"0": {
            "ranges": [{"start": 0, "end": 500, "records": 500, "digest": "...", ...}],
            "records": [{"path": "records/clicks/date=.../hour=09/0-...parquet", "rows": 500, ...}],
            "batches": [...],
            "cut": {"at_ms": 1700000000000, "offset": 500, "committed_offset": 500},
            "times": {"start": 0, "end": 500, "doubts": [[], [], null]}}}}}}

Ranges lie side by side: offsets from the first one's start to the last one's end are archived. A
partition without records has one range, which begins and ends where its log does.

A commit writes the next number, unless there is one: of two runs that write at a time one has to
begin again. Files that no manifest names are of runs that were killed; readers ignore them.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from crc32c import crc32c

from horolog.errors import CorruptFile, Misconfigured
from horolog.jobs.archives.digests import BATCH_STREAMS, RECORD_STREAMS, is_digest, joined
from horolog.jobs.archives.hours import is_name
from horolog.jobs.archives.store import MOST_BYTES, ArchiveStore
from horolog.json_text import Natural, from_json, read_as
from horolog.offsets import Doubts
from horolog.record.timestamps import TimeRange
from horolog.storage.names import MAX_OFFSET, TopicPartition, partition_of

VERSION: Final = 3
_READ: Final = frozenset({2, VERSION})
"""Version 2 has no cuts, and no append times of batches."""
_DIRECTORY: Final = "manifest"
_NAME = re.compile(r"manifest/([0-9]{20})\.json")
_LINE = re.compile(rb"([0-9a-f]{8}) (\{.*\})\n", re.DOTALL)
_PATH = re.compile(r"(records|batches)(?:/(?!\.{1,2}/)[A-Za-z0-9._=-]+)+\.parquet")
_TRIES = 20
_KEPT = 16  # manifests, for readers that have listed them
_SHOWN = 200  # characters of what is wrong


JOINED_BYTES: Final = 32 << 20
"""Largest size of ranges that a manifest joins: frequent runs make ranges of a few records."""
MOST_OFFSETS: Final = 1 << 30
"""Most offsets of a range, which is never split over two segments: their offsets have 31 bits."""


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """Counts, checksums and append times of the offsets from `start` to before `end`."""

    start: Natural
    end: Natural
    records: Natural = 0
    batches: Natural = 0
    bytes: Natural = 0
    """Size of the batches at the source."""
    digest: str = ""
    batch_digest: str = ""
    first_append_ms: int | None = None
    last_append_ms: int | None = None
    is_lost: bool = False
    """The source had deleted these offsets before they were archived."""
    left_out: Natural = 0
    """Number of batches of aborted transactions, whose facts alone are archived."""


def followed_by(before: ArchivedRange, after: ArchivedRange) -> ArchivedRange | None:
    """Join two neighbouring ranges to one; None if they have to stay apart.

    They do where append times go back between them, where one was lost, and where they are large
    or far apart.
    """
    is_later = (
        before.last_append_ms is None
        or after.first_append_ms is None
        or before.last_append_ms <= after.first_append_ms
    )
    if before.is_lost or after.is_lost or not is_later:
        return None
    if before.bytes + after.bytes > JOINED_BYTES or after.end - before.start > MOST_OFFSETS:
        return None
    first_ms, last_ms = before.first_append_ms, after.last_append_ms
    return ArchivedRange(
        start=before.start,
        end=after.end,
        records=before.records + after.records,
        batches=before.batches + after.batches,
        bytes=before.bytes + after.bytes,
        digest=joined(before.digest, after.digest),
        batch_digest=joined(before.batch_digest, after.batch_digest),
        first_append_ms=after.first_append_ms if first_ms is None else first_ms,
        last_append_ms=before.last_append_ms if last_ms is None else last_ms,
        left_out=before.left_out + after.left_out,
    )


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file of records of an hour, or of facts of batches, which have no hour."""

    path: str
    hour: str | None
    rows: Natural
    first_offset: Natural
    last_offset: Natural
    first_ms: int | None
    """The smallest time of its records, -1 included."""
    last_ms: int | None
    size: Natural
    crc: Natural
    """CRC-32C of its bytes."""


def overlapping(files: Iterable[ArchivedFile], start: int, end: int) -> tuple[ArchivedFile, ...]:
    """Return the files that may have an offset from `start` to before `end`."""
    return tuple(file for file in files if file.last_offset >= start and file.first_offset < end)


@dataclass(frozen=True, slots=True)
class ArchivedCut:
    """The latest append time as of which a partition was archived."""

    at_ms: int
    offset: Natural
    """First offset of the log that was appended at or after that time."""
    committed_offset: Natural
    """Offset before which all transactions were whole."""


@dataclass(frozen=True, slots=True)
class ArchivedTimes:
    """Offsets whose batches have their append times in the archive, aborted ones included."""

    start: Natural
    end: Natural
    """Offset before which the doubts are known, too."""
    doubts: Doubts


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """Ranges and files that an archive has of one partition."""

    ranges: tuple[ArchivedRange, ...]
    records: tuple[ArchivedFile, ...]
    batches: tuple[ArchivedFile, ...]
    cut: ArchivedCut | None = None
    """None if it was never archived as of a time."""
    times: ArchivedTimes | None = None
    """None of archives of version 2."""

    @property
    def start(self) -> int:
        """First archived offset."""
        return self.ranges[0].start

    @property
    def end(self) -> int:
        """Offset after the last archived one, where the next run continues."""
        return self.ranges[-1].end

    def extended(
        self, ranges: Iterable[ArchivedRange], files: Iterable[ArchivedFile]
    ) -> "ArchivedPartition":
        """Return the partition with more ranges, and their files.

        Raises:
            Misconfigured: they do not follow, since another run was here.
        """
        ranges, files = tuple(ranges), tuple(files)
        position = self.ranges[-1].end if self.ranges else None
        for range_ in ranges:
            if position not in (None, range_.start):
                raise Misconfigured(
                    f"offsets {range_.start} to {range_.end - 1} do not follow the archive, which "
                    f"ends at {position}: another run has written to it. Run this one again"
                )
            position = range_.end
        times = self.times
        if times is None and ranges:
            times = ArchivedTimes(ranges[0].start, ranges[0].start, Doubts())
        return replace(
            self,
            times=times,
            ranges=_joined(self.ranges, ranges),
            records=(*self.records, *(file for file in files if file.hour is not None)),
            batches=(*self.batches, *(file for file in files if file.hour is None)),
        )


def _joined(
    ranges: tuple[ArchivedRange, ...], more: Iterable[ArchivedRange]
) -> tuple[ArchivedRange, ...]:
    """Append ranges to others; small neighbours become one."""
    joined_ranges = list(ranges)
    for range_ in more:
        both = followed_by(joined_ranges[-1], range_) if joined_ranges else None
        if both is None:
            joined_ranges.append(range_)
        else:
            joined_ranges[-1] = both
    return tuple(joined_ranges)


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """An archived topic, and the limits of its records' times."""

    topic_id: str | None
    """Id of the topic at the broker, if known."""
    from_ms: int | None
    to_ms: int | None
    partitions: Mapping[int, ArchivedPartition]
    partition_count: Natural
    """Number of partitions that the source knew of the topic."""
    cluster_id: str | None = None
    """Id of the cluster that it was first archived from, if known."""

    @property
    def times(self) -> TimeRange:
        """Range of time of the topic's archived records."""
        return TimeRange.between(self.from_ms, self.to_ms)

    @property
    def as_of_ms(self) -> int | None:
        """Append time before which all committed records are archived; None if it is unknown."""
        cuts = [state.cut for state in self.partitions.values() if state.ranges]
        times = [cut.at_ms for cut in cuts if cut is not None]
        return min(times, default=None) if len(times) == self.partition_count else None

    def updated(
        self, topic_id: str | None, partition_count: int, cluster_id: str | None
    ) -> "ArchivedTopic":
        """Return the topic with ids that were unknown, and with partitions that were added."""
        return replace(
            self,
            topic_id=self.topic_id or topic_id,
            cluster_id=self.cluster_id or cluster_id,
            partition_count=max(self.partition_count, partition_count),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of an archive as of one commit."""

    number: Natural
    id: str
    topics: Mapping[str, ArchivedTopic]

    def partition(self, partition: TopicPartition) -> ArchivedPartition | None:
        """Return the archive's contents of one partition; None if nothing is archived."""
        topic = self.topics.get(partition.topic)
        state = None if topic is None else topic.partitions.get(partition.partition)
        return state if state is not None and state.ranges else None

    def partitions(self) -> dict[TopicPartition, ArchivedPartition]:
        """Return the partitions of which something is archived."""
        return {
            TopicPartition(name, index): state
            for name, topic in sorted(self.topics.items())
            for index, state in sorted(topic.partitions.items())
            if state.ranges
        }

    def with_topic(self, name: str, topic: ArchivedTopic) -> "Manifest":
        """Return the manifest with a topic added or replaced."""
        return replace(self, topics={**self.topics, name: topic})

    def with_partition(self, partition: TopicPartition, state: ArchivedPartition) -> "Manifest":
        """Return the manifest with a partition added or replaced."""
        unknown = ArchivedTopic(None, None, None, {}, partition.partition + 1)
        topic = self.topics.get(partition.topic, unknown)
        partitions = {**topic.partitions, partition.partition: state}
        return self.with_topic(partition.topic, replace(topic, partitions=partitions))

    def paths(self) -> set[str]:
        """Return the paths of all files that the archive contains."""
        return {
            file.path
            for state in self.partitions().values()
            for file in (*state.records, *state.batches)
        }

    def to_bytes(self) -> bytes:
        """Encode the manifest as the line of its file."""
        document = {"version": VERSION, **asdict(self)}
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=True).encode()
        return b"%08x %s\n" % (crc32c(text), text)

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> "Manifest":
        """Decode the content of a manifest file.

        Raises:
            CorruptFile: it is damaged.
            Misconfigured: it is of another version.
        """
        match = _LINE.fullmatch(content)
        if match is None or int(match[1], 16) != crc32c(match[2]):
            raise CorruptFile(
                f"{name} is damaged. Restore it, or remove it if it is the newest one: the archive "
                "is then what the manifest before it says, and the next run continues from there"
            )
        try:
            document = from_json(match[2])
            version = document.pop("version", None)
            if version not in _READ:
                raise Misconfigured(
                    f"{name} is of version {version!r:.{_SHOWN}}, and this horolog reads "
                    f"{', '.join(map(str, sorted(_READ)))}"
                )
            manifest = read_as(cls, document)
            for topic, state in manifest.topics.items():
                _check_topic(topic, state)
        except ValueError as error:
            raise CorruptFile(f"{name} is no manifest: {error!s:.{_SHOWN}}") from None
        return manifest


def _check_topic(name: str, topic: ArchivedTopic) -> None:
    """Refuse a topic that no commit has written: its names become paths of files."""
    if partition_of(f"{name}-0") is None:
        raise ValueError(f"{name!r} is no topic")
    if topic.topic_id is not None:
        uuid.UUID(topic.topic_id)
    for index, state in topic.partitions.items():
        if partition_of(f"{name}-{index}") != TopicPartition(name, index):
            raise ValueError(f"{name!r} has no partition {index!r}")
        if state.cut is not None and state.cut.committed_offset > state.cut.offset:
            raise ValueError(f"a cut cannot be {state.cut}")
        for range_ in state.ranges:
            if range_.start > range_.end:
                raise ValueError(f"a range cannot be from {range_.start} to {range_.end}")
            if not (
                is_digest(range_.digest, RECORD_STREAMS)
                and is_digest(range_.batch_digest, BATCH_STREAMS)
            ):
                raise ValueError("a range has a digest that is none")
        if index >= topic.partition_count:
            raise ValueError(f"{name!r} cannot have {topic.partition_count} partitions and {index}")
        for where, files in (("records", state.records), ("batches", state.batches)):
            for file in files:
                _check_file(where, file)


def _check_file(where: str, file: ArchivedFile) -> None:
    match = _PATH.fullmatch(file.path)
    if match is None or match[1] != where:
        raise ValueError(f"{file.path} is no path of {where}")
    if where == "batches":
        is_whole = file.hour is None
    else:
        is_whole = None not in (file.first_ms, file.last_ms) and is_name(file.hour or "")
    if not is_whole:
        raise ValueError(f"{where} cannot be of the hour {file.hour!r}, or without their times")


def read_manifest(store: ArchiveStore) -> Manifest | None:
    """Return the newest manifest; None if the archive has none.

    Raises:
        CorruptFile: it is damaged, or larger than any that is written.
        StorageFailed: it cannot be read.
    """
    for _ in range(3):  # a commit removes old ones
        number = max(_numbers(store), default=None)
        if number is None:
            return None
        path = _path(number)
        content = store.read(path)
        if content is not None:
            manifest = Manifest.from_bytes(content, f"{store.name}/{path}")
            if manifest.number != number:
                raise CorruptFile(f"{store.name}/{path} is a manifest of number {manifest.number}")
            return manifest
    raise CorruptFile(f"The manifests of {store.name} vanish while they are read")


def require_manifest(store: ArchiveStore) -> Manifest:
    """Return the newest manifest.

    Raises:
        Misconfigured: there is no archive.
    """
    manifest = read_manifest(store)
    if manifest is None:
        raise Misconfigured(f"There is no archive at {store.name}")
    return manifest


def create_archive(store: ArchiveStore) -> Manifest:
    """Return the newest manifest; first create an empty archive if there is none.

    Raises:
        Misconfigured: the directory holds other files.
    """
    manifest = read_manifest(store)
    if manifest is not None:
        return manifest
    refuse_foreign(store)
    store.put_new(_path(0), Manifest(0, uuid.uuid4().hex, {}).to_bytes())
    return require_manifest(store)


def refuse_foreign(store: ArchiveStore) -> None:
    """Refuse a directory with files that belong to no archive.

    Raises:
        Misconfigured: it is one.
    """
    if not store.is_empty() and any(
        not file.path.startswith(f"{_DIRECTORY}/") for file in store.listed()
    ):
        raise Misconfigured(f"{store.name} is no archive and not empty: give another path")


def commit(store: ArchiveStore, manifest: Manifest) -> Manifest | None:
    """Write a manifest as the newest one; None if another run has committed since.

    Args:
        manifest: what is to be in it, with the number of the one that it was made of.

    Raises:
        Misconfigured: it is larger than readers take.
        StorageFailed: it cannot be written.
    """
    following = replace(manifest, number=manifest.number + 1)
    content = following.to_bytes()
    if len(content) > MOST_BYTES or following.number > MAX_OFFSET:
        raise Misconfigured(
            f"The next manifest of {store.name} would be number {following.number} with "
            f"{len(content)} bytes, and readers take {MOST_BYTES}: merge its files with `horolog "
            "spark archive --merge`, or begin another archive"
        )
    if max(_numbers(store), default=None) != manifest.number:
        return None  # or a number could be taken again that was removed since
    if not store.put_new(_path(following.number), content):
        return None
    if following.number >= _KEPT:
        store.remove(_path(following.number - _KEPT))
    return following


def commit_changes(
    store: ArchiveStore, manifest: Manifest, changed: Callable[[Manifest], Manifest]
) -> Manifest:
    """Commit changes; apply them again to the newest manifest if another run committed meanwhile.

    Args:
        manifest: its newest one, as far as is known.
        changed: makes the one to be committed; equal to it if there is nothing to do.

    Raises:
        Misconfigured: other runs commit all the time; as `commit`.
        StorageFailed: as `commit`.
    """
    for _ in range(_TRIES):
        following = changed(manifest)
        done = manifest if following == manifest else commit(store, following)
        if done is not None:
            return done
        manifest = require_manifest(store)
    raise Misconfigured(f"Other runs write to {store.name} all the time: run this again")


def _numbers(store: ArchiveStore) -> list[int]:
    matches = (_NAME.fullmatch(file.path) for file in store.listed(_DIRECTORY))
    return [int(match[1]) for match in matches if match is not None]


def _path(number: int) -> str:
    return f"{_DIRECTORY}/{number:020d}.json"
