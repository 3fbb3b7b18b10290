"""What Kafka's own tools say of a broker: compared before and after its directory has moved."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tools.peers.kafka import NEWEST, run_tool

from horolog.clock import SystemClock
from horolog.metadata.image import BROKER, TOPIC
from horolog.metadata.log import MetadataLog
from horolog.metadata.rows import TOPIC_SCOPE
from horolog.metadata.store import FILE_NAME, MetadataStore
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION
from horolog.storage.directory.checkpoints import decode_uuid, read_epochs, read_meta_properties
from horolog.storage.files import Files

INTERNAL = "__"
_TOPIC = re.compile(r"^Topic: (\S+)\s+TopicId: (\S+)\s+PartitionCount: (\d+)", re.MULTILINE)
_SETTINGS_OF = re.compile(r"^Dynamic configs for topic (\S+) are:$")
_SETTING = re.compile(r"^  (\S+?)=(.*?) sensitive=")
_COMMITTED = re.compile(r"^(\S+)\s+(\S+)\s+(\d+)\s+(\d+)\s", re.MULTILINE)


class Seen(NamedTuple):
    """What the tools say; topics of Kafka's own are left out, except of `topics`."""

    topics: dict[str, tuple[str, int]]
    """Topic id and number of partitions."""
    settings: dict[str, dict[str, str]]
    """Those that topics have of their own."""
    committed: dict[str, int]
    """Offsets by group, topic and partition in one text."""
    offsets: dict[str, str]
    """By what was asked: first and last offsets of all partitions, and offsets by time."""


def tool(bootstrap: str, name: str, *arguments: str) -> str:
    """What a tool of the newest Kafka says of a broker."""
    return run_tool(name, "--bootstrap-server", bootstrap, *arguments, peer=NEWEST).stdout.decode()


def seen(bootstrap: str, times_ms: Iterable[int] = ()) -> Seen:
    """Ask the tools."""
    topics = {
        name: (topic_id, int(count))
        for name, topic_id, count in _TOPIC.findall(tool(bootstrap, "topics", "--describe"))
        if name != "__transaction_state"  # not served here yet
    }
    groups = tool(bootstrap, "groups", "--describe", "--all-groups", "--offsets")
    asked = ("-2", "-1", *map(str, times_ms))
    return Seen(
        topics,
        {
            name: its
            for name, its in _settings(tool(bootstrap, "configs", *_ALL_TOPICS)).items()
            if not name.startswith(INTERNAL)
        },
        {
            f"{group} {topic}-{partition}": int(offset)
            for group, topic, partition, offset in _COMMITTED.findall(groups)
        },
        {each: _offsets(tool(bootstrap, "offsets", "--time", each)) for each in asked},
    )


_ALL_TOPICS = ("--entity-type", "topics", "--describe")


def _settings(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    its: dict[str, str] = {}
    for line in text.splitlines():
        if of := _SETTINGS_OF.match(line):
            its = found[of[1]] = {}
        elif setting := _SETTING.match(line):
            its[setting[1]] = setting[2]
    return found


def _offsets(text: str) -> str:
    return "\n".join(sorted(line for line in text.split() if not line.startswith(INTERNAL)))


def strays(log_dir: Path) -> list[str]:
    """Directories that a Kafka has renamed because its metadata does not know them."""
    return sorted(path.name for path in log_dir.glob("*-stray"))


def write_metadata(log_dir: Path) -> None:
    """Write what horolog's store has of topics into the metadata log, as Kafka has to find it.

    A stand-in for a store that keeps them there itself.
    """
    files, now_ms = Files(), SystemClock().now_ms()
    store = MetadataStore(log_dir / FILE_NAME)
    stored = store.load()
    next_producer_id = store.reserve_producer_ids(1, 0)
    store.close()
    meta = read_meta_properties(files, str(log_dir / "meta.properties"), [])
    assert meta is not None
    assert meta.node_id is not None
    node = meta.node_id
    directory = decode_uuid(str(meta.directory_id))
    log = MetadataLog.open(files, str(log_dir), node_id=node)
    assert log.damage == ()
    if METADATA_VERSION not in log.image.features:
        log.append([m.FeatureLevel(METADATA_VERSION, m.NEWEST_LEVEL)], now_ms)
    image = log.image
    epoch = log.next_offset
    level = m.Supported(METADATA_VERSION, m.OLDEST_LEVEL, image.metadata_version)
    listens = m.Endpoint("PLAINTEXT", "127.0.0.1", 9092)
    records: list[m.Record] = [
        # Fenced: or else Kafka waits for the end of this session before it begins its own.
        m.RegisterBroker(node, False, uuid4(), epoch, (listens,), (level,), log_dirs=(directory,)),
        m.Config(BROKER, "", "horolog.state.home", "own"),
        m.ProducerIds(node, epoch, max(next_producer_id, image.next_producer_id)),
    ]
    rows = {row.name: row for row in stored.topics}
    for name, topic in image.topics.items():
        if not name.startswith(INTERNAL) and name not in rows:
            records.append(m.RemoveTopic(topic.topic_id))
    for name, row in rows.items():
        known = image.by_id.get(row.topic_id)
        if known is None:
            records.append(m.Topic(name, row.topic_id))
        for index in range(row.partitions):
            its = m.Partition(
                *(index, row.topic_id, (node,), (node,), (), (), node),
                leader_epoch=_leader_epoch(files, log_dir / f"{name}-{index}"),
                partition_epoch=0,
                directories=(directory,),
            )
            if known is not None and (before := known.partitions.get(index)) is not None:
                its = its._replace(
                    leader_epoch=max(its.leader_epoch, before.leader_epoch),
                    partition_epoch=before.partition_epoch + 1,
                )
            records.append(its)
    settings: dict[str, dict[str, str]] = {name: {} for name in rows}
    for setting in stored.settings:
        if setting.scope == TOPIC_SCOPE:
            settings[setting.resource][setting.name] = setting.value
    for name, given in settings.items():
        if given:  # else it is adopted, and has Kafka's
            removed = dict.fromkeys(image.settings_of(TOPIC, name))
            changed: dict[str, str | None] = {**removed, **given}
            records += [m.Config(TOPIC, name, *each) for each in changed.items()]
    log.append(records, now_ms)
    log.close()


def _leader_epoch(files: Files, directory: Path) -> int:
    """The last that the partition's log was led in."""
    epochs = read_epochs(files, str(directory / "leader-epoch-checkpoint"))
    return max((each.epoch for each in epochs), default=0)
