"""Explain retention of the segments of partitions, by a broker or from files."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final, NamedTuple

from horolog.broker.settings import OfflineSettings
from horolog.client import Client, GroupUnread, HeldUp
from horolog.client.topic_facts import ServedPartitions, served_partitions
from horolog.clock import SystemClock
from horolog.errors import Damaged, StorageFailed
from horolog.json_text import read_as
from horolog.metadata.open_transactions import find_held_up
from horolog.record.looks_like import unit_of
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition
from horolog.storage.offline.partition_reader import PartitionReader
from horolog.storage.removal.retention_report import SegmentRetention, report, settings_of
from horolog.storage.verify import find_target
from horolog.times import format_time
from horolog.wire.questions import RETENTION, RETENTION_UNREAD, AskRetention, AskUnread

_AS_KAFKA: Final = {"horolog.retention.by": "create-time"}


class Explained(NamedTuple):
    """Explanation of retention in one partition."""

    name: str
    now_ms: int
    settings: Mapping[str, Any]
    """Settings that retention depends on."""
    source: str
    """Origin of the settings."""
    is_exempt: bool
    segments: Sequence[SegmentRetention] = ()
    notes: Sequence[str] = ()
    damage: str | None = None
    """Error that prevents an explanation; None if there is none."""
    unread: Sequence[GroupUnread] | None = None
    """Losses of groups by it; None where no broker is asked, which alone knows groups."""
    held_up: HeldUp | None = None
    """Transaction that consumers of committed records wait for."""


class AtRisk(NamedTuple):
    """A partition of which Kafka deletes more, or earlier."""

    partition: str
    deleted_at_once: int
    """Bytes, at Kafka's first check."""
    before_offset: int | None
    """All records before it are deleted at once; None if none are."""
    deleted_earlier: int
    """Bytes of segments that are deleted later than that, and before they would be here."""


def explained_by_broker(
    client: Client, served: ServedPartitions, at_ms: int | None, settings: Mapping[str, str]
) -> Iterator[Explained]:
    """Yield the explanations of a broker for each partition of a topic."""
    topic = served.topic
    for number in served.numbers:
        if number in served.offline:
            now_ms = SystemClock().now_ms() if at_ms is None else at_ms
            yield Explained(
                f"{topic}-{number}", now_ms, {}, "the broker", False, damage=served.offline[number]
            )
            continue
        ask = AskRetention(number, now=at_ms, settings=settings)
        answer = client.ask.needed(RETENTION, topic, ask)
        unread = client.ask(RETENTION_UNREAD, topic, AskUnread(number, settings=settings))
        try:
            segments = [
                read_as(SegmentRetention, segment, may_have_more=True)
                for segment in answer.segments
            ]
        except ValueError:
            raise StorageFailed(
                f"{client.config.bootstrap_servers} explains retention in another way"
            ) from None
        yield Explained(
            f"{topic}-{number}",
            answer.now,
            answer.settings,
            "the broker",
            answer.is_exempt,
            segments,
            unread=None if unread is None else unread.unread,
            held_up=answer.held_up,
        )


def explained_by_files(
    path: Path, partitions: Sequence[int] | None, now_ms: int, settings: Mapping[str, str]
) -> Iterator[Explained]:
    """Yield explanations for a log directory, a partition or a segment, without a broker."""
    target = find_target(path)
    stored = OfflineSettings(target.log_dir, settings)
    files = Files(read_only=True)
    for directory in target.partitions:
        partition = names.partition_of(directory.name) or TopicPartition(directory.name, 0)
        is_left_out = partition.topic in INTERNAL_TOPICS and target.is_log_dir
        if is_left_out or (partitions and partition.partition not in partitions):
            continue
        topic = stored.of(partition.topic)
        explained = Explained(
            directory.name, now_ms, settings_of(topic.config), topic.source, topic.is_exempt
        )
        try:
            log = PartitionReader(files, directory)
            retained = report(
                log.segments,
                topic.config,
                log.log_start_offset,
                log.log_end_offset,
                now_ms,
                log.resets(),
                is_exempt=topic.is_exempt,
                names_markers=True,
            )
            segments = list(retained) if log.segments else []
            held_up = find_held_up(files, target.log_dir, log, is_adopted=topic.is_adopted)
            notes = tuple(log.notes)
        except (Damaged, StorageFailed) as error:  # its neighbours are shown all the same
            yield explained._replace(damage=str(error))
            continue
        if target.segment is not None:
            base_offset = names.base_offset_of(target.segment.name, names.LOG)
            segments = [segment for segment in segments if segment.base_offset == base_offset]
        yield explained._replace(segments=segments, notes=notes, held_up=held_up)


def moved_by_files(
    path: Path, now_ms: int, settings: Mapping[str, str]
) -> Iterator[tuple[Explained, Explained]]:
    """Yield how retention here and Kafka's explain each partition of a log directory."""
    here = explained_by_files(path, None, now_ms, settings)
    there = explained_by_files(path, None, now_ms, {**settings, **_AS_KAFKA})
    return zip(here, there, strict=True)


def moved_by_broker(
    client: Client, topic: str, settings: Mapping[str, str]
) -> Iterator[tuple[Explained, Explained]]:
    """Yield how retention here and Kafka's explain each partition of a topic, by its broker."""
    served = served_partitions(client, topic)
    here = explained_by_broker(client, served, None, settings)
    there = explained_by_broker(client, served, None, {**settings, **_AS_KAFKA})
    return zip(here, there, strict=True)


def at_risk(here: Explained, there: Explained) -> list[AtRisk]:
    """Return a partition of which Kafka deletes more, or earlier; empty for any other."""
    if here.is_exempt:
        return []
    stay = {segment.base_offset: segment for segment in here.segments if not segment.goes_now}
    at_once = [
        segment for segment in there.segments if segment.goes_now and segment.base_offset in stay
    ]
    earlier = [
        segment.size
        for segment in there.segments
        if not segment.goes_now
        and segment.goes_ms is not None
        and (its := stay.get(segment.base_offset)) is not None
        and (its.goes_ms is None or segment.goes_ms < its.goes_ms)
    ]
    if not at_once and not earlier:
        return []
    before = max((segment.end_offset for segment in at_once), default=None)
    return [AtRisk(here.name, sum(segment.size for segment in at_once), before, sum(earlier))]


def moment_text(time_ms: int | None, zone: tzinfo) -> str:
    """Format a time, with the unit that it seems to have if it is an unlikely time."""
    unit = "" if time_ms is None else unit_of(time_ms)
    return format_time(time_ms, zone) + (f" (looks like {unit})" if unit else "")
