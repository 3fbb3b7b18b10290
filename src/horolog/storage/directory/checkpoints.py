"""Kafka's small text files, and four of our own; each is replaced at once.

offset checkpoints      `0`, the number of entries, then `topic partition offset` lines
leader-epoch-checkpoint `0`, the number of entries, then `epoch start_offset` lines
partition.metadata      `version: 0`, `topic_id: <22 characters of url-safe base64>`
meta.properties         `key=value` lines: version, node.id, cluster.id, directory.id
append-time-checkpoint  ours: `0`, then the last append time given out, in milliseconds; or `1`,
                        the last append time, and how many lines append-time-resets had then
cleaning-checkpoint     ours: `0`, then the offset in front of which a pass of compaction may have
                        removed records; written before the first of them is
append-time-resets      ours: `0`, the number of entries, then `offset old_ms new_ms clock_ms` lines
append-time-clock       ours: `0`, the clock of append times and the time before which the logs are
                        complete, in milliseconds, the number of entries, then `topic partition
                        since_ms last_ms` lines of partitions that are, or were, ahead of it, then
                        lines about times that were called complete (`Promises`): `reset ms`,
                        `default type before_max_ms`, `raised topic_id ms`, `followed topic_id ms`;
                        `follows topic partition`, which takes the batches of a source; and
                        `home`, the machine's uptime and the inode of `.lock`

Whatever does not look exactly like that is a `CorruptFile`, and its reader says
how to continue without it.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import le, lt
from typing import NamedTuple, TypeVar
from uuid import UUID

from horolog.errors import CorruptFile, StorageFailed
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.names import MAX_BASE_OFFSET, MAX_OFFSET, MAX_PARTITION, TopicPartition

_MAX_BYTES = 64 << 20  # a line for each of a million partitions
_VERSION = "0"
_HOME = "home "
_CLEANING = re.compile(r"0\n([0-9]{1,19})\n")
MAX_EPOCH = (1 << 31) - 1  # int32, as is a node id
_MAX_NODE_ID = (1 << 31) - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_EPOCHS = re.compile(r"0\n[0-9]{1,10}\n(?:[0-9]{1,10} [0-9]{1,19}\n)*+")
_VERSION_NUMBER = re.compile(r"[0-9]{1,4}")
_FLOOR_NUMBERS = {"0": 1, "1": 2}  # by the version of append-time-checkpoint
_NODE_ID = {"0": "broker.id", "1": "node.id"}  # by the version of meta.properties
_METADATA_ID = 1  # of Kafka's metadata topic; no other topic has it, or 0
_T = TypeVar("_T")


class UnknownVersion(CorruptFile):
    """A file that a later version has written."""


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


class AppendTimeFloor(NamedTuple):
    """The last append time that was given out, in milliseconds, and the resets it follows."""

    last_ms: int
    resets: int = 0


class AheadSpan(NamedTuple):
    """Times that a log stamped while its floor was ahead of the clock, in milliseconds.

    Records that it stamped with a time above `since_ms`, up to `floor_ms`, were appended at other
    times of the clock.
    """

    since_ms: int
    floor_ms: int


class Promise(NamedTuple):
    """A time up to which records of a topic were called complete, and which holds no more."""

    ms: int
    why: str
    """`raised` (the bound on create times) or `followed` (another's records)."""


class Promises(NamedTuple):
    """Complete times that were given out, and do not hold any more."""

    reset_ms: int | None = None
    """The clock of append times before it was set back; what counts from it holds again once the
    clock is past that."""
    default: tuple[int, int] | None = None
    """The timestamp type and `before.max.ms` of topics without their own, when this was written."""
    broken: Mapping[UUID, Promise] = {}
    """By topic id."""


class StampState(NamedTuple):
    """The clock of append times of all logs (logs/stamp_clock.py), in milliseconds."""

    clock_ms: int
    settled_ms: int
    """The logs have every record that was given an earlier append time; at most the clock."""
    ahead: Mapping[TopicPartition, AheadSpan]
    """Logs whose floor is, or was, ahead of the clock."""
    promises: Promises = Promises()
    following: frozenset[TopicPartition] = frozenset()
    """Logs that take the batches of a source, which may have more."""
    home: str = ""
    """Machine's uptime and inode of the directory's lock file, which a copy does not have."""


class AppendTimeReset(NamedTuple):
    """A lowering of append times, after which records from `offset` on may have earlier times."""

    offset: int
    """The log end offset at that moment: the first record after the reset."""
    old_ms: int
    """The floor before: no record in front of `offset` was given a later append time."""
    new_ms: int
    """The floor after: no record from `offset` on has an earlier append time."""
    clock_ms: int
    """The broker's clock at that moment."""


class MetaProperties(NamedTuple):
    """Identity of a log directory; `others` are lines that are kept as text."""

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    others: Mapping[str, str]
    version: int = 1
    """0 is that of a Kafka under ZooKeeper, which says `broker.id` for `node.id`."""


def read_offsets(
    files: Files, path: str, damage: list[str] | None = None
) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; empty if the file is missing.

    Args:
        damage: if given, what is wrong with the file is appended to it as sentences, and the
            lines that can be read count.

    Raises:
        CorruptFile: it is not what its format says, and `damage` is not given.
    """

    def entry(topic: str, partition: str, offset: str) -> tuple[TopicPartition, int]:
        index = _number(partition, 0, MAX_PARTITION)
        return TopicPartition(topic, index), _number(offset, 0, MAX_BASE_OFFSET)

    return dict(_read_counted(files, path, entry, 3, damage))


def write_offsets(
    files: Files,
    path: str,
    offsets: Mapping[TopicPartition, int],
    before: Callable[[str], None] | None = None,
) -> None:
    """Replace an offset checkpoint; see `Files.replace` for `before`."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    _write_counted(files, path, lines, before=before)


def read_epochs(files: Files, path: str) -> list[EpochStart]:
    """Read a leader epoch checkpoint; empty if the file is missing.

    Raises:
        CorruptFile: it is not what its format says, or its epochs do not grow.
    """

    def entry(epoch: str, start: str) -> EpochStart:
        return EpochStart(_number(epoch, 0, MAX_EPOCH), _number(start, 0, MAX_OFFSET))

    right = _epochs_in(_read(files, path) or "")
    if right is not None:
        return right
    epochs = _read_counted(files, path, entry, 2)
    for before, after in pairwise(epochs):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            raise CorruptFile(f"{path}: epoch {after} cannot follow {before}")
    return epochs


def _epochs_in(text: str) -> list[EpochStart] | None:
    """Parse a valid file by columns; None if it needs a careful parse."""
    if not _EPOCHS.fullmatch(text):
        return None
    _, count, *numbers = map(int, text.split())
    epochs, starts = numbers[::2], numbers[1::2]
    grow = all(map(lt, epochs, epochs[1:])) and all(map(le, starts, starts[1:]))
    if count != len(epochs) or not grow or max(epochs[-1:], default=0) > MAX_EPOCH:
        return None
    return (
        list(map(EpochStart, epochs, starts)) if max(starts[-1:], default=0) <= MAX_OFFSET else None
    )


def write_epochs(
    files: Files, path: str, epochs: Sequence[EpochStart], *, sync: bool = True
) -> None:
    """Replace a leader epoch checkpoint."""
    lines = [f"{entry.epoch} {entry.start_offset}" for entry in epochs]
    _write_counted(files, path, lines, sync=sync)


def read_topic_id(files: Files, path: str) -> UUID | None:
    """Read the topic id in a `partition.metadata`; None if the file is missing.

    Raises:
        CorruptFile: it holds no id.
    """
    text = _read(files, path)
    if text is None:
        return None
    encoded = _properties(text, ":").get("topic_id", "")
    try:
        topic_id = decode_uuid(encoded)
        if topic_id.int <= _METADATA_ID and f"{names.CLUSTER_METADATA}-" not in path:
            raise ValueError(f"{topic_id} is reserved")
        return topic_id
    except ValueError:
        raise CorruptFile(f"{path} holds no topic id: {text[:80]!r}") from None


def topic_id_in(files: Files, directory: str, notes: list[str]) -> UUID | None:
    """Return the topic id of a partition's directory, with a note if it is damaged."""
    try:
        return read_topic_id(files, f"{directory}/{names.PARTITION_METADATA}")
    except (CorruptFile, StorageFailed) as error:
        notes.append(str(error))
        return None


def write_topic_id(files: Files, path: str, topic_id: UUID, *, sync: bool = False) -> None:
    """Write a `partition.metadata`; by default to be synced with the rest of a new directory."""
    files.replace(path, f"version: 0\ntopic_id: {kafka_uuid(topic_id)}".encode(), sync=sync)


def kafka_uuid(value: UUID) -> str:
    """Return an id in the form that Kafka prints."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """Parse an id as Kafka prints it: 22 characters of url-safe base64.

    Raises:
        ValueError: it is none.
    """
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def read_meta_properties(
    files: Files, path: str, damage: list[str] | None = None
) -> MetaProperties | None:
    """Read a `meta.properties` of version 0 (`broker.id`) or 1 (`node.id`); None if it is missing.

    Args:
        damage: if given, what is wrong with the file is appended to it as sentences, and what
            can be read counts.

    Raises:
        CorruptFile: it is not what its format says, and `damage` is not given.
        UnknownVersion: it is of another version.
    """
    found: list[str] = []
    text = _read(files, path, found if damage is not None else None)
    if text is None:
        return None
    values = _properties(text, "=")
    if not values or not all(map(str.isprintable, (*values, *values.values()))):
        found.append(f"{path} is no list of properties")
        values = {}
    version = values.pop("version", "0")
    if version not in _NODE_ID:
        if _VERSION_NUMBER.fullmatch(version):
            raise UnknownVersion(f"{path} is of version {version}; known are 0 and 1")
        found.append(f"{path}: {version!r} is no version")
        version = "1"
    node, node_id = values.pop(_NODE_ID[version], None), None
    try:
        node_id = None if node is None else _number(node, -1, _MAX_NODE_ID)
    except ValueError:
        found.append(f"{path}: {node!r} is no node id")
    if damage is None and found:
        raise CorruptFile(found[0])
    if damage is not None:
        damage += found
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
    """Read the floor of append times; None if the file is missing.

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
    is_whole = text.endswith("\n")  # a number that was cut off is another number
    if not is_whole or len(numbers) != _FLOOR_NUMBERS.get(version) or floor.resets < 0:
        raise CorruptFile(f"{path} holds no append time: {text[:80]!r}")
    return floor


def write_append_time(files: Files, path: str, floor: AppendTimeFloor) -> None:
    """Replace the last append time; it need only survive a kill, as the records do."""
    last_ms, resets = floor
    text = f"1\n{last_ms}\n{resets}\n" if resets else f"0\n{last_ms}\n"
    files.replace(path, text.encode(), sync=False)


def read_cleaning(files: Files, path: str) -> int:
    """Read up to where compaction may have come; 0 if the file is missing.

    Raises:
        CorruptFile: it holds no offset.
    """
    text = _read(files, path)
    if text is None:
        return 0
    match = _CLEANING.fullmatch(text)
    if match is None or int(match[1]) > MAX_OFFSET:
        raise CorruptFile(f"{path} holds no offset: {text[:80]!r}")
    return int(match[1])


def write_cleaning(files: Files, path: str, offset: int) -> None:
    """Replace the offset in front of which compaction may have removed records, durably."""
    files.replace(path, f"0\n{offset}\n".encode())


def read_stamp_state(files: Files, path: str) -> StampState | None:
    """Read the clock of append times; None if the file is missing.

    Raises:
        CorruptFile: it is not what its format says.
    """
    text = _read(files, path)
    if text is None:
        return None
    try:
        version, clocks, count, *lines = text.splitlines()
        clock, settled = map(_int64, clocks.split(" "))
        end = _number(count, 0, len(lines))
        ahead = {
            TopicPartition(topic, _number(index, 0, MAX_PARTITION)): AheadSpan(
                _int64(since), _int64(floor)
            )
            for topic, index, since, floor in (line.split(" ") for line in lines[:end])
        }
        follows = [line.split(" ")[1:] for line in lines[end:] if line.startswith("follows ")]
        following = {
            TopicPartition(topic, _number(index, 0, MAX_PARTITION)) for topic, index in follows
        }
        home = next((line for line in lines[end:] if line.startswith(_HOME)), _HOME)
        others = [line for line in lines[end:] if not line.startswith(("follows ", _HOME))]
        promises = _promises(others)
        is_whole = version == _VERSION and end == len(ahead) and text.endswith("\n")
    except ValueError:
        is_whole = False
    if not is_whole or settled > clock:
        raise CorruptFile(f"{path} is no clock of append times: {text[:80]!r}")
    return StampState(
        clock, settled, ahead, promises, frozenset(following), home.removeprefix(_HOME)
    )


def _promises(lines: Sequence[str]) -> Promises:
    """Read the lines about complete times.

    Raises:
        ValueError: a line is of another form.
    """
    found, broken = Promises(), dict[UUID, Promise]()
    for line in lines:
        match line.split(" "):
            case ["reset", ms]:
                found = found._replace(reset_ms=_int64(ms))
            case ["default", stamps, before_ms]:
                found = found._replace(default=(_number(stamps, 0, 1), _int64(before_ms)))
            case [("raised" | "followed") as why, topic_id, ms]:
                broken[UUID(topic_id)] = Promise(_int64(ms), why)
            case _:
                raise ValueError(line)
    return found._replace(broken=broken)


def write_stamp_state(files: Files, path: str, state: StampState) -> None:
    """Replace the clock of append times; it need only survive a kill, as the records do."""
    ahead = [
        f"{topic} {partition} {since_ms} {floor_ms}"
        for (topic, partition), (since_ms, floor_ms) in sorted(state.ahead.items())
    ]
    reset_ms, default, broken = state.promises
    lines = [_VERSION, f"{state.clock_ms} {state.settled_ms}", str(len(ahead)), *ahead]
    lines += [] if reset_ms is None else [f"reset {reset_ms}"]
    lines += [] if default is None else [f"default {default[0]} {default[1]}"]
    lines += [f"{promise.why} {topic_id} {promise.ms}" for topic_id, promise in broken.items()]
    lines += [f"follows {topic} {partition}" for topic, partition in sorted(state.following)]
    lines += [f"{_HOME}{state.home}"] if state.home else []
    files.replace(path, "\n".join([*lines, ""]).encode(), sync=False)


def read_append_time_resets(files: Files, path: str) -> list[AppendTimeReset]:
    """Read the resets of append times, in order; empty if the file is missing.

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
    return _number(text, -MAX_OFFSET - 1, MAX_OFFSET)


def _number(text: str, least: int, most: int) -> int:
    """Parse a number as Kafka writes it: ASCII digits and at most one minus sign."""
    if not _NUMBER.fullmatch(text) or not least <= (number := int(text)) <= most:
        raise ValueError(f"{text:.40} is no number from {least} to {most}")
    return number


def _read(files: Files, path: str, damage: list[str] | None = None) -> str | None:
    if damage is None and files.size(path) > _MAX_BYTES:
        raise CorruptFile(f"{path} is longer than {_MAX_BYTES} bytes")
    data = files.read_whole(path, _MAX_BYTES)
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        if damage is None:
            raise CorruptFile(f"{path} is not text") from None
        damage.append(f"{path} is not text")
        return data.decode("utf-8", "replace")


def _read_counted(
    files: Files,
    path: str,
    entry: Callable[..., _T],
    width: int,
    damage: list[str] | None = None,
) -> list[_T]:
    """Read the entries of a file that begins with a version and their number."""
    found: list[str] = []
    text = _read(files, path, found if damage is not None else None)
    if not text and not found:
        return []  # Kafka makes it before it has anything to write
    head, lines = (text or "").splitlines()[:2], (text or "").splitlines()[2:]
    if head != [_VERSION, str(len(lines))]:
        found.append(f"{path} does not begin with its version and {len(lines)} entries")
    if head[:1] != [_VERSION]:
        lines = []
    elif lines and not (text or "").endswith("\n"):
        found.append(f"{path} ends within {lines.pop()!r:.80}")
    entries = []
    for line in lines:
        fields = line.split()
        try:
            if len(fields) != width:
                raise ValueError
            entries.append(entry(*fields))
        except ValueError:
            found.append(f"{path}: {line!r:.80} is no entry")
    if damage is None and found:
        raise CorruptFile(found[0])
    if damage is not None:
        damage += found
    return entries


def _write_counted(
    files: Files,
    path: str,
    lines: Sequence[str],
    *,
    sync: bool = True,
    before: Callable[[str], None] | None = None,
) -> None:
    content = "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()
    files.replace(path, content, sync=sync, before=before)


def _properties(text: str, separator: str) -> dict[str, str]:
    values = {}
    for line in text.splitlines():
        name, found, value = line.partition(separator)
        if found and not line.startswith("#"):
            values[name.strip()] = value.strip()
    return values
