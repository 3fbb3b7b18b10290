"""Which cluster and which broker a log directory belongs to: Kafka's `meta.properties`."""

import logging
import uuid
from collections.abc import Mapping
from pathlib import Path

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

_logger = logging.getLogger(__name__)


def directory_identity(
    files: Files, path: Path, config: BrokerConfig, new: Mapping[str, str]
) -> MetaProperties:
    """Read `meta.properties`; a new directory is given a cluster of its own.

    One that is written has the properties of `new`, too.

    A damaged file is kept under another name, and what it still says goes into a new one.

    Raises:
        Misconfigured: the file is of a version that is not known.
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
    if damage:
        _logger.error("%s; the file is kept as %s", "; ".join(damage), set_aside(files, target))
        if found is None or found.cluster_id is None:
            _logger.error("this cluster is given a new id: %s said none", target)
    elif found is not None and found.cluster_id is not None:
        return found  # Kafka's own is not touched, of whatever version it is
    meta = MetaProperties(
        kafka_uuid(uuid.uuid4()) if found is None or not found.cluster_id else found.cluster_id,
        config.node_id if found is None or found.node_id is None else found.node_id,
        found.directory_id
        if found is not None and (found.directory_id or not found.version)
        else kafka_uuid(uuid.uuid4()),
        {**({} if found is None else found.others), **new},
        1 if found is None else found.version,
    )
    write_meta_properties(files, target, meta)
    return meta
