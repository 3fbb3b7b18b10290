"""Kafka's small text files, and two of our own; each is replaced at once.

offset checkpoints      `0`, the number of entries, then `topic partition offset` lines
leader-epoch-checkpoint `0`, the number of entries, then `epoch start_offset` lines
partition.metadata      `version: 0`, `topic_id: <22 characters of url-safe base64>`
meta.properties         `key=value` lines: version, node.id, cluster.id, directory.id
append-time-checkpoint  ours: `0`, then the last append time given out, in milliseconds; or `1`,
                        the last append time, and how many lines append-time-resets had then
append-time-resets      ours: `0`, the number of entries, then `offset old_ms new_ms clock_ms` lines

Whatever does not look exactly like that is a `CorruptFile`, and its reader says
how to go on without it.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar
from uuid import UUID

from horolog.errors import CorruptFile
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_MAX_BYTES = 64 << 20  # a line for each of a million partitions
_VERSION = "0"
_FLOOR_NUMBERS = {"0": 1, "1": 2}  # by the version of append-time-checkpoint
_NODE_ID = {"0": "broker.id", "1": "node.id"}  # by the version of meta.properties
_T = TypeVar("_T")


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


class AppendTimeFloor(NamedTuple):
    """The last append time that was given out, in milliseconds, and the resets it follows."""

    last_ms: int
    resets: int = 0


class AppendTimeReset(NamedTuple):
    """Where append times were lowered, on which all records from `offset` on may be earlier."""

    offset: int
    """The log end offset at that moment: the first record after the reset."""
    old_ms: int
    """The floor before: no record in front of `offset` was given a later append time."""
    new_ms: int
    """The floor after: no record from `offset` on has an earlier append time."""
    clock_ms: int
    """The broker's clock at that moment."""


class MetaProperties(NamedTuple):
    """Whose log directory this is; `others` are lines of which we only keep the text."""

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    others: Mapping[str, str]
    version: int = 1
    """0 is that of a Kafka under ZooKeeper, which says `broker.id` for `node.id`."""


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty if there is no such file.

    Raises:
        CorruptFile: it is not what its format says.
    """

    def entry(topic: str, partition: str, offset: str) -> tuple[TopicPartition, int]:
        return TopicPartition(topic, int(partition)), int(offset)

    return dict(_read_counted(files, path, entry, 3))


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    _write_counted(files, path, lines)


def read_epochs(files: Files, path: str) -> list[EpochStart]:
    """A leader epoch checkpoint; empty if there is no such file.

    Raises:
        CorruptFile: it is not what its format says, or its epochs do not grow.
    """
    epochs = _read_counted(files, path, lambda epoch, start: EpochStart(int(epoch), int(start)), 2)
    for before, after in pairwise(epochs):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            raise CorruptFile(f"{path}: epoch {after} cannot follow {before}")
    return epochs


def write_epochs(
    files: Files, path: str, epochs: Sequence[EpochStart], *, sync: bool = True
) -> None:
    """Replace a leader epoch checkpoint."""
    lines = [f"{entry.epoch} {entry.start_offset}" for entry in epochs]
    _write_counted(files, path, lines, sync=sync)


def read_topic_id(files: Files, path: str) -> UUID | None:
    """The topic id in a `partition.metadata`, None if there is no such file.

    Raises:
        CorruptFile: it holds no id.
    """
    text = _read(files, path)
    if text is None:
        return None
    encoded = _properties(text, ":").get("topic_id", "")
    try:
        return UUID(bytes=base64.urlsafe_b64decode(encoded + "=="))
    except (ValueError, binascii.Error):
        raise CorruptFile(f"{path} holds no topic id: {text[:80]!r}") from None


def write_topic_id(files: Files, path: str, topic_id: UUID) -> None:
    """Write a `partition.metadata`, to be synced with the rest of a new directory."""
    files.replace(path, f"version: 0\ntopic_id: {kafka_uuid(topic_id)}".encode(), sync=False)


def kafka_uuid(value: UUID) -> str:
    """An id as Kafka prints it."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def read_meta_properties(files: Files, path: str) -> MetaProperties | None:
    """A `meta.properties` of version 0 (`broker.id`) or 1 (`node.id`), None if there is none.

    Raises:
        CorruptFile: it is of another version, or the node id is no number.
    """
    text = _read(files, path)
    if text is None:
        return None
    values = _properties(text, "=")
    version = values.pop("version", "0")
    if version not in _NODE_ID:
        raise CorruptFile(f"{path} is of version {version}; known are 0 and 1")
    node = values.pop(_NODE_ID[version], None)
    try:
        node_id = None if node is None else int(node)
    except ValueError:
        raise CorruptFile(f"{path}: {node!r} is no node id") from None
    cluster, directory = values.pop("cluster.id", None), values.pop("directory.id", None)
    return MetaProperties(cluster, node_id, directory, values, int(version))


def write_meta_properties(files: Files, path: str, meta: MetaProperties) -> None:
    """Replace a `meta.properties`."""
    version = str(meta.version)
    values = {
        "version": version,
        "cluster.id": meta.cluster_id,
        _NODE_ID[version]: meta.node_id,
        "directory.id": meta.directory_id,
        **meta.others,
    }
    lines = [f"{name}={value}" for name, value in values.items() if value is not None]
    files.replace(path, "\n".join([*lines, ""]).encode())


def read_append_time(files: Files, path: str) -> AppendTimeFloor | None:
    """The last append time that was given out, None if none ever was.

    Raises:
        CorruptFile: it holds no time.
    """
    text = _read(files, path)
    if text is None:
        return None
    version, *numbers = text.splitlines() or [""]
    try:
        floor = AppendTimeFloor(*map(_int64, numbers))
    except (ValueError, TypeError):
        version = ""
    if len(numbers) != _FLOOR_NUMBERS.get(version) or floor.resets < 0:
        raise CorruptFile(f"{path} holds no append time: {text[:80]!r}")
    return floor


def write_append_time(files: Files, path: str, floor: AppendTimeFloor) -> None:
    """Replace the last append time; it need only survive a kill, as the records do."""
    last_ms, resets = floor
    text = f"1\n{last_ms}\n{resets}\n" if resets else f"0\n{last_ms}\n"
    files.replace(path, text.encode(), sync=False)


def read_append_time_resets(files: Files, path: str) -> list[AppendTimeReset]:
    """Where append times were lowered, in order; empty if there is no such file.

    Raises:
        CorruptFile: it is not what its format says, or its offsets fall, or a floor rises.
    """
    resets = _read_counted(files, path, lambda *numbers: AppendTimeReset(*map(_int64, numbers)), 4)
    last_offset = 0
    for reset in resets:
        if reset.offset < last_offset or reset.old_ms < reset.new_ms:
            raise CorruptFile(f"{path}: {reset} cannot be")
        last_offset = reset.offset
    return resets


def write_append_time_resets(files: Files, path: str, resets: Sequence[AppendTimeReset]) -> None:
    """Replace the list of resets; its directory is still to be synced."""
    _write_counted(files, path, [" ".join(map(str, reset)) for reset in resets])


def _int64(text: str) -> int:
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{text} is beyond 64 bits")
    return number


def _read(files: Files, path: str) -> str | None:
    data = files.read_whole(path, _MAX_BYTES)
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptFile(f"{path} is not text") from None


def _read_counted(files: Files, path: str, entry: Callable[..., _T], width: int) -> list[_T]:
    text = _read(files, path)
    if not text:
        return []  # Kafka makes it before it has anything to write
    version, count, *lines = text.splitlines() if text.count("\n") else ["", ""]
    if version != _VERSION or not count.isdecimal() or int(count) != len(lines):
        raise CorruptFile(f"{path} does not begin with its version and {len(lines)} entries")
    entries = []
    for line in lines:
        fields = line.split()
        try:
            if len(fields) != width:
                raise ValueError
            entries.append(entry(*fields))
        except ValueError:
            raise CorruptFile(f"{path}: {line!r} is no entry") from None
    return entries


def _write_counted(files: Files, path: str, lines: Sequence[str], *, sync: bool = True) -> None:
    files.replace(path, "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode(), sync=sync)


def _properties(text: str, separator: str) -> dict[str, str]:
    values = {}
    for line in text.splitlines():
        name, found, value = line.partition(separator)
        if found and not line.startswith("#"):
            values[name.strip()] = value.strip()
    return values
