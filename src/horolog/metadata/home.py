"""Decides who owns a log directory, and so where horolog keeps its own state.

    OWN      horolog owns it: its state is in the directory, in the topics that Kafka has for it
    BESIDE   another product owns it: the state is in a directory beside it, in the same topics,
             and the internal topics in the log directory are not touched

A directory with another's metadata stays another's, unless horolog continues as its node: then, and
in a new directory, horolog's metadata has a mark (`state.HOME`). It is among the settings of all
brokers, so it survives a stay at Apache Kafka. A second one in `meta.properties` counts where the
metadata is lost or too damaged to have it.

A directory into which partitions were copied, and nothing else of another, is horolog's.
"""

import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from horolog.errors import HorologError
from horolog.storage import names
from horolog.storage.directory.checkpoints import MetaProperties, read_meta_properties
from horolog.storage.directory.contents import contents_of
from horolog.storage.files import Files

_logger = logging.getLogger(__name__)

OWN: Final = "own"
PROPERTIES: Final = {names.METADATA_PROPERTY: OWN}
"""Entry in `meta.properties` of a directory that horolog has made."""


class Signs(NamedTuple):
    """Evidence of a directory's owner."""

    is_marked: bool | None
    """Whether the metadata in `__cluster_metadata-0` has the mark; None without metadata."""
    has_file_beside: bool = False
    """`horolog-metadata.log` exists, in which an earlier version kept the metadata."""
    internal: Collection[str] = ()
    """Kafka's internal topics that have directories."""
    meta: MetaProperties | None = None
    was_served: bool = False
    """Whether a broker has served it: it contains files that only brokers write."""
    was_served_here: bool = False
    """Whether a horolog has served it."""
    has_partitions: bool = False
    has_state_beside: bool = False
    """The state directory beside it has metadata."""

    @property
    def is_made_here(self) -> bool:
        """True if `meta.properties` says that horolog made the directory."""
        return self.meta is not None and self.meta.others.get(names.METADATA_PROPERTY) == OWN


def is_own(signs: Signs) -> bool:
    """Return True if horolog owns a log directory, by the evidence in it."""
    if signs.is_marked or signs.has_file_beside:
        return bool(signs.is_marked)
    if signs.is_made_here:
        return True
    if signs.is_marked is not None or signs.internal or signs.meta is not None:
        return False
    return not (signs.has_state_beside and signs.has_partitions)


def state_dir_beside(log_dir: Path) -> Path:
    """Return the directory of horolog's state beside a log directory that another product owns."""
    path = Path(os.path.realpath(log_dir))
    return path.with_name(f"{path.name}.horolog")


def signs_in(files: Files, log_dir: Path, is_marked: bool | None) -> Signs:
    """Collect the evidence of a log directory's owner, without writing."""
    try:
        meta = read_meta_properties(files, str(log_dir / names.META_PROPERTIES), [])
    except HorologError as error:  # told where it is opened
        _logger.debug("%s", error)
        meta = MetaProperties(None, None, None, {})
    contents = contents_of(log_dir)
    internal = {partition.topic for partition in contents.internal}
    return Signs(
        is_marked,
        files.exists(str(log_dir / names.METADATA_FILE)),
        internal - {names.CLUSTER_METADATA},
        meta,
        any(files.exists(str(log_dir / name)) for name in names.SERVED),
        any(files.exists(str(log_dir / name)) for name in names.SERVED_HERE),
        bool(contents.partitions or internal - {names.CLUSTER_METADATA}),
        files.exists(f"{state_dir_beside(log_dir)}/{names.CLUSTER_METADATA}-0"),
    )
