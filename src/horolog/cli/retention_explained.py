"""What retention does about the segments of partitions, asked of a broker or read from files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from horolog.broker.offline_settings import OfflineSettings, OfflineTopic
from horolog.cli.retention_screen import Explained
from horolog.client import Client
from horolog.client.topic_facts import ServedPartitions
from horolog.clock import SystemClock
from horolog.errors import Damaged, StorageFailed
from horolog.json_text import read_as
from horolog.metadata.open_transactions import find_held_up
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition
from horolog.storage.offline.partition_reader import PartitionReader
from horolog.storage.removal.retention_report import SegmentRetention, report, settings_of
from horolog.storage.verify import find_target
from horolog.wire.questions import RETENTION, RETENTION_UNREAD, AskRetention, AskUnread


def explained_by_broker(
    client: Client, served: ServedPartitions, at_ms: int | None, settings: Mapping[str, str]
) -> Iterator[Explained]:
    """What a broker says of each partition; raises as `Client.ask`."""
    topic = served.topic
    for number in served.numbers:
        if number in served.offline:
            now_ms = SystemClock().now_ms() if at_ms is None else at_ms
            yield Explained(
                f"{topic}-{number}", now_ms, {}, "the broker", False, damage=served.offline[number]
            )
            continue
        ask = AskRetention(number, now=at_ms, settings=settings)
        found = client.ask.needed(RETENTION, topic, ask)
        unread = client.ask(RETENTION_UNREAD, topic, AskUnread(number, settings=settings))
        try:
            segments = [
                read_as(SegmentRetention, each, may_have_more=True) for each in found.segments
            ]
        except ValueError:
            raise StorageFailed(
                f"{client.config.bootstrap_servers} explains retention in another way"
            ) from None
        yield Explained(
            f"{topic}-{number}",
            found.now,
            found.settings,
            "the broker",
            found.is_exempt,
            segments,
            unread=None if unread is None else unread.unread,
            held_up=found.held_up,
        )


def explained_by_files(
    path: Path, partitions: Sequence[int] | None, now_ms: int, settings: Mapping[str, str]
) -> Iterator[Explained]:
    """The same of a log directory, a partition or a segment, without a broker."""
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
            found = _report(log, topic, now_ms)
            held_up = find_held_up(files, target.log_dir, log, is_adopted=topic.is_adopted)
            notes = tuple(log.notes)
        except (Damaged, StorageFailed) as error:  # its neighbours are shown all the same
            yield explained._replace(damage=str(error))
            continue
        if target.segment is not None:
            base_offset = names.base_offset_of(target.segment.name, names.LOG)
            found = [each for each in found if each.base_offset == base_offset]
        yield explained._replace(segments=found, notes=notes, held_up=held_up)


def _report(log: PartitionReader, topic: OfflineTopic, now_ms: int) -> list[SegmentRetention]:
    if not log.segments:
        return []
    found = report(
        log.segments,
        topic.config,
        log.log_start_offset,
        log.log_end_offset,
        now_ms,
        log.resets(),
        is_exempt=topic.is_exempt,
        names_markers=True,
    )
    return list(found)
