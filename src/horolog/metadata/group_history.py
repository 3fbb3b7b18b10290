"""Reads the history of a group: commits and members with times, or what was in force at a time.

Logs are in the log directory and in a state directory beside it. Each answer reads both from their
first records on. The last entries of a group with many are read from a later segment, if no
transaction was open at its start. An answer about a time stops at the last segment that may contain
a record of that time.

**How far back.** A compacted log keeps all records for `min.compaction.lag.ms`, and of older ones
the last of each key. Missing offsets mean that records were removed. Every change after the last
such place is there; earlier entries are right, but others may be missing.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from struct import error as StructError  # noqa: N812 - its own name says nothing
from typing import TYPE_CHECKING, Final
from uuid import UUID

from horolog.errors import CorruptBatch, CorruptFile, ErrorCode, RequestRefused, StorageFailed
from horolog.groups.replay import GroupReplay
from horolog.history import AskGroupHistory, GroupAspect, GroupEvent, GroupHistory
from horolog.metadata.commit_templates import CommitTemplates
from horolog.metadata.image import BROKER, TOPIC, TopicImage
from horolog.metadata.log import MetadataLog
from horolog.metadata.past import PastLog, answered, past_directories, shortened
from horolog.offsets import ranges_text
from horolog.record.batch import BatchHeader, parse_header
from horolog.record.builder import LogRecord
from horolog.record.kernels.loading import CLEANING_KERNELS
from horolog.record.scan import scan_batch
from horolog.record.timestamps import NO_TIMESTAMP, TimeRange
from horolog.schemas.group_records import (
    CurrentKey,
    CurrentValue,
    GroupEpochKey,
    GroupEpochValue,
    MemberKey,
    MemberMetadataValue,
    read_value,
)
from horolog.schemas.offsets import (
    GroupKey,
    OffsetKey,
    key_bytes,
    partition_for,
    read_committed,
    read_group,
    read_key,
)
from horolog.storage import names
from horolog.storage.directory.checkpoints import kafka_uuid
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition
from horolog.storage.producers.states import Producers
from horolog.storage.record_file import RecordFile
from horolog.storage.removal.leftovers import current_bases
from horolog.storage.segments.reader import SegmentReader

if TYPE_CHECKING:
    from horolog.metadata.segment_parts import SmallParts

_TYPE_BYTES: Final = 2  # of a key, before its fields; the length of a name has two, too
_PARTITION_BYTES: Final = 4
_SEARCHED_BYTES: Final = 4 << 20
_AWAY: Final = "left, its partitions wait for it"
_AWAY_EPOCH: Final = -2  # of a static member
_STATES: Final = {0: "stable", 1: "unrevoked partitions", 2: "unreleased partitions"}


def read_group_history(
    log_dir: Path, group: str, ask: AskGroupHistory, state_dir: Path | None = None
) -> GroupHistory:
    """Read the history of a group from a log directory.

    A broker may be at work there.

    Args:
        ask: which of its entries; those from `ask.start` on are the last of the answer.
        state_dir: of the broker; None: where one has it by default.

    Raises:
        RequestRefused: no group can have this id.
        StorageFailed: the directory cannot be read.
    """
    try:
        key_bytes(GroupKey(group))
    except (StructError, UnicodeError) as error:
        raise RequestRefused(ErrorCode.invalid_group_id, f"no group has this id: {error}") from None

    since = ask.since
    directories = past_directories(log_dir, state_dir)

    def logs(files: Files) -> Iterator[PastLog[GroupEvent]]:
        for log in _logs(files, directories, group, ask.topic):
            log.since = since
            log.at_ms = ask.at
            yield log

    if since is None and ask.at is None and not ask.start and ask.end is None:
        since = _enough_since(directories, group, ask)
    found = answered(logs, _in_force, ask.at, ask.most, ask.start, ask.end)
    if since is not None and ask.since is None and len(found[0]) < ask.most:
        since = None  # the group's name was in other records as well
        found = answered(logs, _in_force, ask.at, ask.most, ask.start, ask.end)
    return GroupHistory(*found, since=since, is_off=_is_off(directories[-1][1]))


def _is_off(log_dir: str) -> bool:
    """Return True if the metadata gives `__consumer_offsets` no compaction lag."""
    image = MetadataLog.open(Files(read_only=True), log_dir, node_id=0).image
    given = image.settings_of(TOPIC, names.CONSUMER_OFFSETS)
    default = image.settings_of(BROKER, "").get("log.cleaner.min.compaction.lag.ms", "0")
    return given.get("min.compaction.lag.ms", default) == "0"


def _logs(
    files: Files, directories: Iterable[tuple[str, str]], group: str, topic: str | None
) -> "Iterator[_GroupLog]":
    for name, directory in directories:
        image = MetadataLog.open(files, directory, node_id=0).image
        for partition in _partitions(files, directory, group, image.topics):
            path = f"{directory}/{partition}"
            yield _GroupLog(files, path, f"{name}{partition}", group, topic, image.by_id)


def _enough_since(
    directories: Iterable[tuple[str, str]], group: str, ask: AskGroupHistory
) -> int | None:
    """Return the base offset of the segment where the last entries begin; None if all are read."""
    files = Files(read_only=True)
    try:
        found = list(_logs(files, directories, group, ask.topic))
        return found[0].enough_since(ask.most) if len(found) == 1 else None
    except StorageFailed:
        return None  # compaction has removed a segment, say
    finally:
        files.close()


def _partitions(
    files: Files, log_dir: str, group: str, topics: Mapping[str, TopicImage]
) -> list[str]:
    """List the directories that can have the group: one, if the number of partitions is known."""
    found = (names.partition_of(name) for name in files.names_in(log_dir))
    present = sorted(
        partition.partition
        for partition in found
        if partition and partition.topic == names.CONSUMER_OFFSETS
    )
    if not present:
        return []
    topic = topics.get(names.CONSUMER_OFFSETS)
    if topic is not None and topic.partitions:
        only = partition_for(group, len(topic.partitions))
        present = [only] if only in present else []
    return [str(TopicPartition(names.CONSUMER_OFFSETS, index)) for index in present]


class _GroupLog(PastLog[GroupEvent]):
    """One partition with changes of groups, read for one group.

    Methods raise StorageFailed where the disk refuses.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        name: str,
        group: str,
        topic: str | None,
        topics: Mapping[UUID, TopicImage],
    ) -> None:
        super().__init__(name)
        self._files = files
        self._topics = topics
        self._path = path
        self._key = key_bytes(GroupKey(group))[_TYPE_BYTES:]
        self._topic = topic
        self._templates = CommitTemplates()
        self._next_offset: int | None = 0
        self.since: int | None = None
        """Base offset of the first segment to read; None for all."""
        self.at_ms: int | None = None
        """Time after which entries are not needed; None for all."""

    def enough_since(self, most: int) -> int | None:
        """Return the last base offset behind which there seem to be records for that many entries.

        None where those before are needed, too. What is compressed is not seen.
        """
        found = 0
        for base in reversed(self._bases()[1:]):
            found += self._seen_in(self._path_of(base))
            if found >= most and self._is_settled_at(base):
                return base
        return None

    def _seen_in(self, path: str) -> int:
        """Count the occurrences of the group's name, and of the topic's, in a segment's keys."""
        sought, found = self._key, 0
        if self._topic is not None:
            sought += key_bytes(OffsetKey("", self._topic, 0))[2 * _TYPE_BYTES : -_PARTITION_BYTES]
        file = self._files.get(path)
        for position in range(0, self._files.length(file), _SEARCHED_BYTES):
            found += self._files.read_at(file, _SEARCHED_BYTES, position).count(sought)
        return found

    def _is_settled_at(self, base_offset: int) -> bool:
        """Return True if no transaction was open at an offset. Commits count from its end on."""
        producers = Producers()
        try:
            producers.read(self._files, self._path, base_offset, 0, alone=True)
        except CorruptFile:
            return False
        return not producers.open_count

    def entries(self) -> Iterator[GroupEvent]:
        """Yield the entries, as `PastLog` describes."""
        replay = GroupReplay()
        try:
            paths = self._paths()
            needed = len(paths) - self._too_late(paths)
            for path in paths[:needed]:
                yield from self._of_file(RecordFile(self._files, path), replay)
            self._note_gap_before(paths[needed:])
        except StorageFailed as error:  # e.g. something else has the name of the directory
            self.note(str(error))
        if replay.unreadable:
            self.note(f"{replay.unreadable} batches cannot be read: {replay.reason}")

    def _of_file(self, file: RecordFile, replay: GroupReplay) -> Iterator[GroupEvent]:
        try:
            for header, data in self._batches(file):
                is_plain = not header.codec_number and not header.is_control
                if is_plain and self._key not in data:
                    continue  # seen without an object for each record
                known = self._templates.event(data, header)
                if known is not None:
                    yield known
                    continue
                is_alone = is_plain and not header.is_transactional and header.records_count == 1
                for record in replay.counted(data):
                    if record.key is not None and record.key.startswith(self._key, _TYPE_BYTES):
                        for event in self._event(record, header):
                            if is_alone:
                                self._templates.learn(data, header, record, event)
                            yield event
        except StorageFailed as error:  # those of other files count
            self.note(str(error))
        for lost in file.lost:
            self.note(str(lost))
        if not self._files.exists(file.path):
            self.note(f"{file.path} was removed while it was read")

    def _batches(self, file: RecordFile) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the batches of a file, without most small ones of other groups."""
        passed = 0
        if CLEANING_KERNELS.is_loaded:
            from horolog.metadata import segment_parts  # noqa: PLC0415 - numpy, once it is needed

            try:
                for part in segment_parts.parts_in(self._files, file.path):
                    if isinstance(part, segment_parts.SmallParts):
                        are_whole = segment_parts.follow(part, self._next_offset)
                        yield from self._of_small(part, are_whole)
                        passed += len(part.small.next_offsets)
                    else:
                        self._pass(part.header)
                        yield part.header, bytes(part.data)
                        passed += 1
            except CorruptBatch:
                pass  # it is read again from there on, and said what is damaged
            else:
                return
        for batch in islice(file.read(), passed, None):
            header = parse_header(batch)
            self._pass(header)
            yield header, bytes(batch)

    def _of_small(
        self, parts: "SmallParts", are_whole: bool
    ) -> Iterator[tuple[BatchHeader, bytes]]:
        starts = parts.small.starts.tolist()
        data = bytes(parts.view[starts[0] : starts[-1]])
        numbers: Iterable[int] = range(len(starts) - 1)
        if are_whole:
            numbers = self._with_key(data, starts)
            self._next_offset = parts.next_offset
        for number in numbers:
            first, end = starts[number] - starts[0], starts[number + 1] - starts[0]
            header = parse_header(data, first)
            if not are_whole:
                self._pass(header)
            yield header, data[first:end]

    def _with_key(self, data: bytes, starts: Sequence[int]) -> Iterator[int]:
        """Yield the numbers of the batches that contain the group's key."""
        at = data.find(self._key)
        while at >= 0:
            number = bisect_right(starts, at + starts[0]) - 1
            yield number
            at = data.find(self._key, starts[number + 1] - starts[0])

    def _pass(self, header: BatchHeader) -> None:
        """Note whether records are missing before a batch."""
        if self._is_incomplete(header):
            self.whole_from = header.max_timestamp
        self._next_offset = header.next_offset

    def _paths(self) -> list[str]:
        bases = self._bases()
        if self.since is not None:
            self._next_offset = None
            bases = bases[max(0, bisect_right(bases, self.since) - 1) :]
        return [self._path_of(base) for base in bases]

    def _too_late(self, paths: Sequence[str]) -> int:
        """Count the last segments that have only records after the asked time."""
        if self.at_ms is None:
            return 0
        window = TimeRange(last_ms=self.at_ms, with_untimed=True)
        return sum(1 for _ in takewhile(lambda path: self._lacks(path, window), reversed(paths)))

    def _lacks(self, path: str, window: TimeRange) -> bool:
        """Return True if a segment is known to have no record of some times."""
        base_offset = names.base_offset_of(os.path.basename(path), names.LOG)
        assert base_offset is not None
        segment = SegmentReader.at(self._files, path, base_offset)
        spans = segment.blocks.spans(window, segment.size)
        if sum(span.end - span.position for span in spans) > _SEARCHED_BYTES:
            return False  # of a Kafka's, say, there is no map of its times
        try:
            return all(
                _earliest_ms(segment, position, header) > window.last_ms
                for span in spans
                for position, header in segment.headers(span.position, span.end)
            )
        except (CorruptBatch, RequestRefused):
            return False

    def _note_gap_before(self, paths: Iterable[str]) -> None:
        """Note whether records are missing before segments that are not read."""
        for path in paths:
            for batch in RecordFile(self._files, path).read():
                header = parse_header(batch)
                if self._next_offset not in (None, header.base_offset):
                    self.whole_from = header.max_timestamp
                return

    def _bases(self) -> list[int]:
        return current_bases(self._files, self._path)

    def _path_of(self, base_offset: int) -> str:
        return f"{self._path}/{names.segment_file(base_offset, names.LOG)}"

    def _is_incomplete(self, header: BatchHeader) -> bool:
        """Return True if records were removed before the end of a batch."""
        is_gap = self._next_offset not in (None, header.base_offset)
        return is_gap or header.records_count <= header.last_offset_delta

    def _event(self, record: LogRecord, header: BatchHeader) -> Iterator[GroupEvent]:
        assert record.key is not None
        time_ms = header.max_timestamp if header.is_control else record.timestamp
        try:
            key = read_key(record.key)
            if isinstance(key, OffsetKey) and self._topic in (None, key.topic):
                yield _committed(time_ms, self.name, key, record.value)
            elif isinstance(key, GroupKey | GroupEpochKey) and self._topic is None:
                yield _group(time_ms, self.name, key, record.value)
            elif isinstance(key, MemberKey) and self._topic is None:
                yield _member(time_ms, self.name, key, record.value)
            elif isinstance(key, CurrentKey) and self._topic is None and record.value is not None:
                yield from self._assigned(time_ms, key, record.value)
        except CorruptBatch as error:
            self.note(f"the record at offset {record.offset} cannot be read: {error}")

    def _assigned(self, time_ms: int, key: CurrentKey, data: bytes) -> Iterator[GroupEvent]:
        """Yield what a member has: its epoch and state, then the partitions of each topic."""
        value = read_value(key, data)
        assert isinstance(value, CurrentValue), "it is the key's"
        event = GroupEvent(
            time_ms, self.name, GroupAspect.ASSIGNED, generation=value.epoch, member=_name(key)
        )
        state = _STATES.get(value.state, str(value.state))
        yield event._replace(state=_AWAY if value.epoch == _AWAY_EPOCH else state)
        for number, topic in enumerate(value.assigned + value.pending):
            known = self._topics.get(topic.topic_id)
            yield event._replace(
                topic=None if known is None else known.name,
                topic_id=kafka_uuid(topic.topic_id),
                partitions=shortened(ranges_text(topic.partitions)),
                state=None if number < len(value.assigned) else "pending revocation",
            )


def _earliest_ms(segment: SegmentReader, position: int, header: BatchHeader) -> int:
    """Return the smallest timestamp of a batch's records; -1 if a record has none."""
    if header.is_control or not header.records_count:
        return header.max_timestamp
    batch = segment.read_batch(position, header)
    facts = scan_batch(batch, header, max_bytes=_SEARCHED_BYTES)
    records, timed, *_ = facts.counts
    if facts.min_timestamp is None or timed < records:
        return NO_TIMESTAMP
    return facts.min_timestamp


def _committed(time_ms: int, log: str, key: OffsetKey, data: bytes | None) -> GroupEvent:
    topic = shortened(key.topic)
    if data is None:
        return GroupEvent(time_ms, log, GroupAspect.REMOVED, topic, key.partition)
    value = read_committed(data)
    return GroupEvent(
        time_ms,
        log,
        GroupAspect.COMMITTED,
        topic,
        key.partition,
        value.offset,
        topic_id=None if value.topic_id is None else kafka_uuid(value.topic_id),
        metadata=shortened(value.metadata),
    )


def _group(time_ms: int, log: str, key: GroupKey | GroupEpochKey, data: bytes | None) -> GroupEvent:
    if data is None:
        return GroupEvent(time_ms, log, GroupAspect.GROUP_REMOVED)
    event = GroupEvent(time_ms, log, GroupAspect.GROUP)
    if isinstance(key, GroupEpochKey):
        epoch = read_value(key, data)
        assert isinstance(epoch, GroupEpochValue), "it is the key's"
        return event._replace(generation=epoch.epoch)
    value = read_group(data)
    return event._replace(generation=value.generation, members=len(value.members))


def _member(time_ms: int, log: str, key: MemberKey, data: bytes | None) -> GroupEvent:
    event = GroupEvent(time_ms, log, GroupAspect.MEMBER_REMOVED, member=_name(key))
    if data is None:
        return event
    value = read_value(key, data)
    assert isinstance(value, MemberMetadataValue), "it is the key's"
    subscription = [", ".join(sorted(value.topics))] if value.topics else []
    if value.regex:
        subscription.append(f"pattern {value.regex}")
    if value.instance_id is not None:
        subscription.append(f"instance {value.instance_id}")
    if value.classic is not None:
        subscription.append("classic protocol")
    return event._replace(aspect=GroupAspect.MEMBER, metadata=shortened("; ".join(subscription)))


def _name(key: MemberKey | CurrentKey) -> str:
    return shortened(key.member) or ""


def _in_force(entries: Iterable[GroupEvent]) -> list[GroupEvent]:
    """Return the group, its members and its committed offsets as these entries leave them."""
    group: list[GroupEvent] = []
    members: dict[str, GroupEvent] = {}
    assigned: dict[str, list[GroupEvent]] = {}
    committed: dict[tuple[str, int], GroupEvent] = {}
    for entry in entries:
        member = entry.member or ""
        match entry.aspect:
            case GroupAspect.GROUP | GroupAspect.GROUP_REMOVED:
                group = [entry] if entry.aspect is GroupAspect.GROUP else []
            case GroupAspect.MEMBER:
                members[member] = entry
            case GroupAspect.MEMBER_REMOVED:
                members.pop(member, None)
                assigned.pop(member, None)
            case GroupAspect.ASSIGNED if entry.topic_id is None:
                assigned[member] = [entry]
            case GroupAspect.ASSIGNED:
                assigned.setdefault(member, []).append(entry)
            case _:
                key = entry.topic or "", entry.partition or 0
                committed.pop(key, None)
                if entry.aspect is GroupAspect.COMMITTED:
                    committed[key] = entry
    for member in sorted(members.keys() | assigned.keys()):
        group += [members[member]] if member in members else []
        group += assigned.get(member, ())
    return group + [committed[key] for key in sorted(committed)]
