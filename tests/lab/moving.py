"""What Kafka's own tools say of a broker: compared before and after its directory has moved."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tools.peers.kafka import NEWEST, run_tool

from horolog.clock import SystemClock
from horolog.metadata.opening import open_log_store
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
    """Have what horolog's store keeps of topics in the metadata log, as Kafka has to find it.

    A stand-in for a broker that keeps it there itself.
    """
    files = Files()
    old = MetadataStore(log_dir / FILE_NAME)
    stored = old.load()
    next_producer_id = old.reserve_producer_ids(1, 0)
    old.close()
    meta = read_meta_properties(files, str(log_dir / "meta.properties"), [])
    assert meta is not None
    assert meta.node_id is not None
    store = open_log_store(
        files, log_dir, meta.node_id, lambda: SystemClock().now_ms(), take_over=True
    )
    listens = m.Endpoint("PLAINTEXT", "127.0.0.1", 9092)
    level = m.Supported(METADATA_VERSION, m.OLDEST_LEVEL, m.NEWEST_LEVEL)
    store.register(
        # Fenced: or else Kafka waits for the end of this session before it begins its own.
        m.RegisterBroker(
            *(meta.node_id, False, uuid4(), 0, (listens,), (level,)),
            log_dirs=(decode_uuid(str(meta.directory_id)),),
        )
    )
    settings: dict[str, dict[str, str]] = {row.name: {} for row in stored.topics}
    for setting in stored.settings:
        if setting.scope == TOPIC_SCOPE:
            settings[setting.resource][setting.name] = setting.value
    for name in [name for name in store.image.topics if not name.startswith(INTERNAL)]:
        if name not in settings:
            store.forget_topic(name)
    epochs = {}
    for row in stored.topics:
        if not (row.adopted and row.name in store.image.topics):
            store.put_topic(row, settings[row.name])
        for index in range(row.partitions):
            directory = log_dir / f"{row.name}-{index}"
            epochs[row.name, index] = _leader_epoch(files, directory)
    store.raise_epochs(epochs)
    store.raise_producer_ids(next_producer_id)
    store.close()


def _leader_epoch(files: Files, directory: Path) -> int:
    """The last that the partition's log was led in."""
    epochs = read_epochs(files, str(directory / "leader-epoch-checkpoint"))
    return max((each.epoch for each in epochs), default=0)
