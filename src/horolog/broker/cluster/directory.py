"""Log directory of a broker of a cluster before it is opened: formatted, and of this broker."""

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from horolog.config import BrokerConfig
from horolog.errors import CorruptFile, HorologError, Misconfigured
from horolog.storage import names
from horolog.storage.directory.checkpoints import (
    MetaProperties,
    decode_uuid,
    kafka_uuid,
    read_meta_properties,
    write_meta_properties,
)
from horolog.storage.directory.clean_shutdown import NO_BROKER_EPOCH
from horolog.storage.directory.identity import is_cluster_id
from horolog.storage.directory.lock import DirectoryLock, lock_log_dir
from horolog.storage.files import Files

_LOG = logging.getLogger(__name__)

_MOST_MARKER_BYTES: Final = 4096


class ClusterDirectory(NamedTuple):
    """A locked log directory of this broker."""

    path: Path
    lock: DirectoryLock
    cluster_id: str
    directory_id: UUID
    previous_epoch: int
    """Broker epoch of the last clean stop; -1 if it was not clean."""


def lock_cluster_directory(config: BrokerConfig) -> ClusterDirectory:
    """Check a log directory, and lock it. Nothing is written into one that is refused.

    Raises:
        Misconfigured: it is not formatted, or of another cluster or node, or of a node alone.
        StorageFailed: the disk refused.
    """
    path = Path(config.log_dir)
    meta = _formatted(path, config.node_id)
    lock = lock_log_dir(path)
    try:
        files = Files()
        if meta.directory_id is None:  # formatted by a Kafka before 3.7
            meta = meta._replace(directory_id=kafka_uuid(uuid4()))
            write_meta_properties(files, str(path / names.META_PROPERTIES), meta)
        return ClusterDirectory(
            path,
            lock,
            str(meta.cluster_id),
            decode_uuid(str(meta.directory_id)),
            _previous_epoch(files, path),
        )
    except ValueError as error:
        lock.close()
        raise Misconfigured(f"{path / names.META_PROPERTIES}: directory.id: {error}") from None
    except BaseException:
        lock.close()
        raise


class FormattedDirectory(NamedTuple):
    """A log directory that has an identity."""

    path: str
    node_id: int
    cluster_id: str
    directory_id: str
    was_formatted: bool


def format_directory(
    config: BrokerConfig, cluster_id: str, *, keeps_formatted: bool = False
) -> FormattedDirectory:
    """Give a log directory the identity of a broker of a cluster.

    Args:
        keeps_formatted: leave one that is formatted for this broker as it is.

    Raises:
        Misconfigured: it has an identity, or metadata of another cluster.
        StorageFailed: the disk refused.
    """
    path = Path(config.log_dir)
    target = path / names.META_PROPERTIES
    if not is_cluster_id(cluster_id):
        raise Misconfigured(f"{cluster_id!r:.60} is no id of a cluster")
    if target.exists():
        if not keeps_formatted:
            raise Misconfigured(
                f"{path} is formatted already; --ignore-formatted leaves it as it is"
            )
        meta = _formatted(path, config.node_id)
        if meta.cluster_id != cluster_id:
            raise Misconfigured(f"{path} is of cluster {meta.cluster_id}, not of {cluster_id}")
        return FormattedDirectory(
            str(path), config.node_id, cluster_id, str(meta.directory_id), was_formatted=True
        )
    if (path / f"{names.CLUSTER_METADATA}-0").exists():
        raise Misconfigured(
            f"{path} has {names.CLUSTER_METADATA}-0, the metadata of another broker: use an empty "
            "directory, or restore its meta.properties from a backup"
        )
    lock = lock_log_dir(path)
    try:
        meta = MetaProperties(cluster_id, config.node_id, kafka_uuid(uuid4()), {})
        write_meta_properties(Files(), str(target), meta)
    finally:
        lock.close()
    return FormattedDirectory(
        str(path), config.node_id, cluster_id, str(meta.directory_id), was_formatted=False
    )


def directory_info(config: BrokerConfig) -> dict[str, str]:
    """Return the identity of a log directory, and how the last broker left it, in words."""
    path = Path(config.log_dir)
    files = Files(read_only=True)
    meta = read_meta_properties(files, str(path / names.META_PROPERTIES), [])
    found = {"path": str(path), "formatted": "no" if meta is None else "yes"}
    if meta is not None:
        found["node_id"] = str(meta.node_id)
        found["cluster_id"] = str(meta.cluster_id)
        found["directory.id"] = str(meta.directory_id)
        found["of"] = "a node alone" if names.METADATA_PROPERTY in meta.others else "a cluster"
    epoch = _previous_epoch(files, path)
    if (path / names.CLEAN_SHUTDOWN).exists():
        found["closed"] = f"cleanly, in broker epoch {epoch}" if epoch >= 0 else "cleanly"
    elif path.exists() and any(it.is_dir() for it in path.iterdir()):
        found["closed"] = "not cleanly, or in use"
    return found


def _formatted(path: Path, node_id: int) -> MetaProperties:
    """Read the identity of a formatted directory, without writing."""
    target = path / names.META_PROPERTIES
    try:
        meta = read_meta_properties(Files(read_only=True), str(target))
    except CorruptFile as error:
        raise Misconfigured(f"{error}; restore it from a backup") from error
    if meta is None:
        raise Misconfigured(
            f"{path} is not formatted: `horolog storage format --cluster-id ID --config FILE`, "
            "with the cluster's id, as `kafka-cluster cluster-id` prints it"
        )
    if names.METADATA_PROPERTY in meta.others:
        raise Misconfigured(
            f"{path} is of a horolog that is alone, with metadata of its own: a broker of a "
            "cluster needs another directory (docs/cluster.md)"
        )
    if meta.version == 0 or meta.cluster_id is None:
        raise Misconfigured(f"{target} has no cluster.id of version 1; format the directory anew")
    if meta.node_id != node_id:
        raise Misconfigured(f"node.id={node_id}, and {target} has node.id={meta.node_id}")
    return meta


def _previous_epoch(files: Files, path: Path) -> int:
    """Return the broker epoch in the marker of a clean stop; -1 without one.

    The marker stays until the logs are opened: a stop before that changes nothing.
    """
    marker = str(path / names.CLEAN_SHUTDOWN)
    with suppress(HorologError, ValueError):
        found = json.loads(files.read_whole(marker, _MOST_MARKER_BYTES) or b"")
        if isinstance(found, dict) and type(epoch := found.get("brokerEpoch")) is int:
            return max(epoch, NO_BROKER_EPOCH)
    return NO_BROKER_EPOCH
