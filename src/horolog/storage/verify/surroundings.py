"""Checks of a log directory's checkpoints and lock."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import UUID

from horolog.errors import CorruptFile, StorageFailed, listed
from horolog.storage import names
from horolog.storage.directory.checkpoint_ids import (
    NO_IDS,
    Checkpointed,
    CheckpointIds,
    read_checkpoint_ids,
)
from horolog.storage.directory.checkpoints import MetaProperties, read_meta_properties, read_offsets
from horolog.storage.directory.lock import is_locked
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition
from horolog.storage.scan.findings import Finding, fault, note

_T = TypeVar("_T")
_OFFSET_FILES = {
    names.RECOVERY_POINTS: "stop the broker and remove the file: the next start checks every log",
    names.LOG_START_OFFSETS: "restore it from a backup; without it deleted records come back",
    names.HIGH_WATERMARKS: "stop the broker and remove the file: it is written again",
    names.CLEANER_OFFSETS: "stop the broker and remove the file: compaction begins again",
}


class Surroundings(NamedTuple):
    """Checkpoints of a log directory, and the state of its lock."""

    is_live: bool
    """True if a broker holds the lock."""
    is_clean: bool
    """True if the directory was closed cleanly, so that the next start checks nothing."""
    offsets: Mapping[str, Mapping[TopicPartition, int]]
    """The offsets of partitions, by the name of Kafka's file."""
    ids: CheckpointIds
    are_ours: bool
    """True if the file of log starts is unchanged since the ids were written."""
    replicas: Collection[TopicPartition] = ()
    """Partitions that have other replicas, from which they get what they lack."""

    def checkpointed(self, partition: TopicPartition, topic_id: UUID | None) -> Checkpointed:
        """Return the checkpoints of a partition that count for a topic with this id."""
        checkpoints = Checkpointed(
            self.offsets[names.RECOVERY_POINTS].get(partition),
            self.offsets[names.LOG_START_OFFSETS].get(partition),
            self.ids.entries.get(partition),
            self.are_ours,
        )
        return checkpoints.for_topic(topic_id)


def surroundings_of(files: Files, log_dir: Path) -> tuple[Surroundings, list[Finding]]:
    """Read the checkpoints of a directory. Returns them, and the faults in them."""
    findings: list[Finding] = []
    is_live = files.is_local and is_locked(str(log_dir / names.LOCK))
    is_clean = files.exists(str(log_dir / names.CLEAN_SHUTDOWN))
    offsets = {}
    for name, mend in _OFFSET_FILES.items():
        path = str(log_dir / name)
        findings += empty_note(files, path)
        read = partial(read_offsets, files, path)
        content = None if is_empty(files, path) else read_or_report(read, path, mend, findings)
        offsets[name] = content or {}
        for partition, offset in offsets[name].items():
            if offset < 0:
                findings.append(fault(path, f"It says {offset} for {partition}", mend))
    path = str(log_dir / names.CHECKPOINT_IDS)
    read_ids = partial(read_checkpoint_ids, files, path)
    forget = "stop the broker and remove the file: it is written again"
    ids = read_or_report(read_ids, path, forget, findings) or NO_IDS
    are_ours = ids.are_of(files, str(log_dir / names.LOG_START_OFFSETS))
    return Surroundings(is_live, is_clean, offsets, ids, are_ours), findings


def is_empty(files: Files, path: str) -> bool:
    """Return True if a file exists and is empty."""
    return files.exists(path) and files.size(path) == 0


def empty_note(files: Files, path: str) -> Iterator[Finding]:
    """Yield a note on a checkpoint that Kafka created and has not written yet."""
    if is_empty(files, path):
        yield note(path, "It is empty, as Kafka makes it before it first writes it")


def read_or_report(
    read: Callable[[], _T], path: str, mend: str, findings: list[Finding]
) -> _T | None:
    """Return the content of a small file. If it cannot be read, add a finding and return None."""
    try:
        return read()
    except (CorruptFile, StorageFailed) as error:
        findings.append(fault(path, str(error).removeprefix(path).strip(" :"), mend))
    except ValueError:  # a number too long to be one
        findings.append(fault(path, "It holds what is no number", mend))
    return None


def check_log_dir(files: Files, log_dir: Path, around: Surroundings) -> Iterator[Finding]:
    """Check the files of a log directory that belong to no partition."""
    path = str(log_dir / names.META_PROPERTIES)
    findings: list[Finding] = []
    restore = "restore it from a backup; a broker does not start without knowing whose this is"
    meta = read_or_report(lambda: read_meta_properties(files, path), path, restore, findings)
    if not findings and meta is None:
        findings.append(
            note(
                path,
                "There is none: a start restores it from the metadata, or asks for --cluster-id",
            )
        )
    elif meta is not None and _is_of_an_old_kafka(meta):
        what = "It names no cluster.id, as old Kafkas left it: a broker that starts here adds one"
        findings.append(note(path, what))
    elif meta is not None and None in (meta.cluster_id, meta.node_id):
        findings.append(fault(path, "It names no cluster.id or no node.id", restore))
    yield from findings
    if around.is_live:
        yield note(
            str(log_dir / names.LOCK),
            "A broker is at work here: ends of logs may move while they are read",
        )
    present = {
        name
        for entry in log_dir.iterdir()
        if entry.is_dir() and names.partition_of(name := entry.name)
    }
    yield from _check_absent(log_dir, around, present)
    yield from _check_leftovers(log_dir)


def _is_of_an_old_kafka(meta: MetaProperties) -> bool:
    """Return True if a Kafka wrote the file before it stored the cluster's id there."""
    return meta.version == 0 and meta.cluster_id is None and meta.node_id is not None


def _check_absent(log_dir: Path, around: Surroundings, present: set[str]) -> Iterator[Finding]:
    for name in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS):
        absent = sorted({str(partition) for partition in around.offsets[name]} - present)
        if absent:
            yield note(
                str(log_dir / name),
                f"It names {listed(absent, 3)}, which are not here: deleted or elsewhere",
            )


def _check_leftovers(log_dir: Path) -> Iterator[Finding]:
    for entry in sorted(log_dir.iterdir()):
        name = entry.name
        if entry.is_dir() and names.is_deleted_directory(name):
            yield note(str(entry), "The partition was deleted and waits for its removal")
        elif entry.is_dir() and name.endswith(("-stray", "-future")):
            yield note(str(entry), "Kafka has set it aside: it is not served")
        elif name.endswith(".tmp"):
            yield note(str(entry), "It is left from a replacement that was interrupted")
