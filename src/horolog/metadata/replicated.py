"""Tells which partitions of a log directory have other replicas, without a broker.

A broker of a cluster keeps a copy of the metadata log in its log directory. In a directory that
horolog serves alone no partition has another replica. In one that was copied without the metadata,
or whose broker keeps them elsewhere, a partition with a high watermark counts as one that has: a
reader who is shown too little can ask for more, one who is shown what was taken back never knows.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from time import monotonic
from uuid import UUID

from horolog.errors import HorologError, Misconfigured
from horolog.metadata.forms import KafkaForm
from horolog.metadata.home import PROPERTIES, state_dir_beside
from horolog.storage import names
from horolog.storage.directory.checkpoints import (
    read_meta_properties,
    read_offsets,
    topic_id_in,
)
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)

_Key = tuple[UUID, int]

_KNOWN_S = 60.0
_known: dict[str, tuple[float, Mapping[_Key, bool] | None]] = {}
"""Replicated partitions by log directory, and until when that counts: a stream asks often."""


def forget_known() -> None:
    """Read the metadata of all log directories again when it is asked for."""
    _known.clear()
    _warn_of.cache_clear()


class CommittedEnds:
    """Ends of the replicated partitions of a log directory, as far as they are committed.

    A record behind the high watermark may be taken back: the next leader may not have it.
    """

    def __init__(self, files: Files, log_dir: str, *, is_local: bool) -> None:
        self._files = files
        self._log_dir = log_dir
        self._is_local = is_local  # otherwise the metadata is not looked for

    def of(self, partition: TopicPartition, topic_id: UUID | None, end_offset: int) -> int:
        """Return the end of a partition for readers of committed records.

        Args:
            end_offset: the end of its log.
        """
        if not self._high_watermarks or self._is_alone:
            return end_offset
        high_watermark = self._high_watermarks.get(partition)
        if high_watermark is not None and high_watermark >= end_offset:
            return end_offset
        is_replicated = self._is_replicated(partition, topic_id)
        if is_replicated is None:  # without a line it is not of this directory's broker
            is_replicated = high_watermark is not None
            if is_replicated:
                _warn_of(self._log_dir)
        return (high_watermark or 0) if is_replicated else end_offset

    def is_replica(self, partition: TopicPartition, topic_id: UUID | None) -> bool:
        """Return True if a partition has other replicas, by the metadata in the directory."""
        return not self._is_alone and self._is_replicated(partition, topic_id) is True

    @cached_property
    def _high_watermarks(self) -> Mapping[TopicPartition, int]:
        try:
            return read_offsets(self._files, f"{self._log_dir}/{names.HIGH_WATERMARKS}")
        except HorologError as error:
            _logger.warning("%s; reading to the ends of logs", error)
            return {}

    @cached_property
    def _is_alone(self) -> bool:
        """True if a horolog serves the directory, and is no broker of a cluster."""
        path = f"{self._log_dir}/{names.META_PROPERTIES}"
        try:
            meta = read_meta_properties(self._files, path, [])
        except HorologError:
            meta = None
        if meta is not None and PROPERTIES.items() <= meta.others.items():
            return True
        if not self._is_local:
            return False
        beside = f"{state_dir_beside(Path(self._log_dir))}/{names.CLUSTER_METADATA}-0"
        return self._files.exists(beside)

    def _is_replicated(self, partition: TopicPartition, topic_id: UUID | None) -> bool | None:
        """Return whether a partition has other replicas; None if the metadata is not here."""
        if not self._is_local:
            return None
        until, known = _known.get(self._log_dir, (0.0, None))
        if monotonic() >= until:
            known = _replicated(self._files, self._log_dir)
            _known[self._log_dir] = monotonic() + _KNOWN_S, known
        if known is None or topic_id is None:
            return None
        return known.get((topic_id, partition.partition))


def replicas_in(log_dir: Path, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return those partitions of a log directory that have other replicas.

    Raises:
        StorageFailed: the disk refused.
    """
    files = Files(read_only=True)
    ends = CommittedEnds(files, str(log_dir), is_local=True)
    try:
        return [
            partition
            for partition in partitions
            if ends.is_replica(partition, topic_id_in(files, f"{log_dir}/{partition}", []))
        ]
    finally:
        files.close()


def replicas_among(log_dir: Path, directories: Iterable[Path]) -> list[TopicPartition]:
    """Return those partitions that have other replicas, of some directories in a log directory.

    Raises:
        StorageFailed: the disk refused.
    """
    named = (names.partition_of(directory.name) for directory in directories)
    return replicas_in(log_dir, [partition for partition in named if partition is not None])


def refuse_directory_of_cluster(log_dir: Path) -> None:
    """Refuse to add partitions to the directory of a broker of a cluster.

    Its controllers decide which replicas are there, and others would be strays.

    Raises:
        Misconfigured: it is of a broker of a cluster.
    """
    files = Files(read_only=True)
    try:
        brokers = KafkaForm(files, str(log_dir)).replay().image.brokers
    except HorologError:
        return
    finally:
        files.close()
    if len(brokers) > 1:
        raise Misconfigured(
            f"{log_dir} is of a broker of a cluster, whose controllers give it its replicas: give "
            "another directory, and copy the records to the cluster from there (horolog spark "
            "mirror)"
        )


def refuse_replicas(log_dir: Path, directories: Iterable[Path], what: str) -> None:
    """Refuse to change the files of replicas, which have to be those of their leaders.

    Args:
        what: the verb of what would be done.

    Raises:
        Misconfigured: one of the directories is a replica of a partition of a cluster.
        StorageFailed: the disk refused.
    """
    replicas = replicas_among(log_dir, directories)
    if replicas:
        raise Misconfigured(
            f"{log_dir / str(replicas[0])} is a replica of a partition of a cluster: its files "
            f"have to be those of its leader. Copy the directory elsewhere to {what} it"
        )


@lru_cache(maxsize=1 << 10)
def _warn_of(log_dir: str) -> None:
    """Log once that committed records may be missing: a stream looks repeatedly."""
    _logger.warning(
        "%s has no metadata that says whether its partitions have other replicas: they are read up "
        "to the high watermarks that the broker writes every five seconds. Of a broker that is "
        "down, or a copy, up to the last five seconds are missing: copy __cluster_metadata-0, too, "
        "or read on with the option uncommitted (--uncommitted)",
        log_dir,
    )


def _replicated(files: Files, log_dir: str) -> Mapping[_Key, bool] | None:
    try:
        image = KafkaForm(files, log_dir).replay().image
    except HorologError as error:
        _logger.warning("Which partitions have other replicas is not known: %s", error)
        return None
    if not image.topics:
        return None
    return {
        (topic.topic_id, index): len(partition.replicas) > 1
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
    }
