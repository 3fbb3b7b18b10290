"""Identity of a log directory, by cluster and broker: Kafka's `meta.properties`."""

import logging
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

from horolog.config import BrokerConfig
from horolog.errors import Misconfigured, StorageFailed
from horolog.storage import names
from horolog.storage.directory.checkpoints import (
    MetaProperties,
    UnknownVersion,
    kafka_uuid,
    read_meta_properties,
    write_meta_properties,
)
from horolog.storage.directory.contents import set_aside
from horolog.storage.files import Files

_CLUSTER_ID: Final = re.compile(r"[!-~]{1,200}")

_logger = logging.getLogger(__name__)


class Remembered(NamedTuple):
    """Identity of a directory as known without its `meta.properties`."""

    was_served: bool = False
    """A broker has had it, so it has an identity."""
    cluster_id: str | None = None
    node_id: int | None = None
    directory_ids: tuple[str, ...] = ()
    """Ids of all directories of its broker."""
    version: int | None = None
    """Version of the file."""


def is_cluster_id(text: str | None) -> TypeGuard[str]:
    """Return True if a text can be the id of a cluster or of a directory."""
    return text is not None and _CLUSTER_ID.fullmatch(text) is not None


def directory_identity(
    files: Files,
    path: Path,
    config: BrokerConfig,
    new: Mapping[str, str],
    remembered: Remembered = Remembered(),  # noqa: B008 - immutable
) -> MetaProperties:
    """Read `meta.properties`; a new directory is given a cluster of its own.

    One that is written has the properties of `new`, too.

    A damaged file is kept under another name. A new one has what is `remembered`, and of the rest
    what the damaged one still says. Likewise a lost one is written again. A cluster id that is
    known nowhere is not replaced by a new one, because clients and a Kafka know the old one.

    Raises:
        Misconfigured: the file is of a version that is not known, or of another cluster than
            `horolog.cluster.id`; or it is lost or damaged, and the cluster's id is not known.
        StorageFailed: the disk refused.
    """
    target = str(path / names.META_PROPERTIES)
    damage: list[str] = []
    found = None
    try:
        found = read_meta_properties(files, target, damage)
    except UnknownVersion as error:
        raise Misconfigured(f"{error}; restore the file from a backup, or remove it") from error
    except StorageFailed as error:
        damage = [str(error)]
    given = config.horolog_cluster_id
    if given is not None and not is_cluster_id(given):
        raise Misconfigured(f"horolog.cluster.id {given!r:.60} is no id of a cluster")
    if found is not None and found.version and found.cluster_id is None and not damage:
        damage = [f"{target} has no cluster.id"]  # but under ZooKeeper it could have none
    if found is not None and found.version and found.directory_id is None and not damage:
        # A Kafka before 3.7 has never written one, and no record names one.
        damage = [f"{target} has no directory.id"] if remembered.directory_ids else []
    if not damage and found is not None and found.cluster_id is not None:
        _check_cluster(target, found.cluster_id, given)
        if remembered.cluster_id not in (None, found.cluster_id):
            _logger.warning(
                "%s is of cluster %s, and the metadata here were of cluster %s: the file counts",
                target,
                found.cluster_id,
                remembered.cluster_id,
            )
        return found  # Kafka's own is not touched, of whatever version it is
    is_lost = found is None and remembered.was_served
    cluster_id = remembered.cluster_id or (None if found is None else found.cluster_id)
    _check_cluster(target, cluster_id, given)
    cluster_id = cluster_id or given
    if cluster_id is None and (is_lost or damage):
        why = f"is damaged ({damage[0]})" if damage else "is lost"
        raise Misconfigured(
            f"{target} {why}, and nothing else in the directory has the id of its cluster: restore "
            "the file from a backup, or start once with --cluster-id ID (horolog.cluster.id), the "
            "id that it had"
        )
    before = MetaProperties(None, None, None, {}) if found is None else found
    directory_id = before.directory_id
    if is_lost or damage:
        if len(remembered.directory_ids) > 1 and directory_id not in remembered.directory_ids:
            raise Misconfigured(
                f"{target} is lost or damaged, and its broker had several directories: restore the "
                f"file from a backup, or write it with version=1, cluster.id, node.id and "
                f"directory.id, which is one of {', '.join(remembered.directory_ids)}"
            )
        if len(remembered.directory_ids) == 1:
            (directory_id,) = remembered.directory_ids
    version = before.version
    if is_lost or damage:
        version = remembered.version if remembered.version is not None else 1
    if directory_id is None and version:
        directory_id = kafka_uuid(uuid.uuid4())
    node_id = before.node_id
    if remembered.node_id is not None and (is_lost or damage):
        node_id = remembered.node_id
    meta = MetaProperties(
        cluster_id or kafka_uuid(uuid.uuid4()),
        config.node_id if node_id is None else node_id,
        directory_id,
        {**before.others, **new},
        version,
    )
    if damage:
        _logger.error("%s; the file is kept as %s", "; ".join(damage), set_aside(files, target))
    write_meta_properties(files, target, meta)
    if is_lost or damage:
        _logger.error(
            "%s was lost or damaged, and is written again: cluster.id=%s, node.id=%s, "
            "directory.id=%s",
            target,
            *meta[:3],
        )
    return meta


STATE: Final = {names.METADATA_PROPERTY: "state"}
"""In the `meta.properties` of a state directory, which is no log directory of its own."""


def identify_state(files: Files, path: Path, meta: MetaProperties) -> None:
    """Give a state directory the identity of its log directory, once.

    Raises:
        Misconfigured: it belongs to a log directory of another cluster, or is a log directory.
        StorageFailed: the disk refused.
    """
    target = str(path / names.META_PROPERTIES)
    damage: list[str] = []
    found = read_meta_properties(files, target, damage)
    if found is None or damage:
        write_meta_properties(files, target, meta._replace(others=STATE, version=1))
    elif found.cluster_id != meta.cluster_id or found.others != STATE:
        what = "state" if found.others == STATE else "log directory"
        raise Misconfigured(
            f"{path} has the {what} of a broker in cluster {found.cluster_id}, and is to have the "
            f"state of one in cluster {meta.cluster_id}: move {path} away, or give another "
            "directory by horolog.state.dir"
        )


def _check_cluster(target: str, cluster_id: str | None, given: str | None) -> None:
    """Refuse a directory of another cluster than is `given`."""
    if None not in (cluster_id, given) and cluster_id != given:
        raise Misconfigured(
            f"{target} is or was of cluster {cluster_id}, and horolog.cluster.id is {given}"
        )
