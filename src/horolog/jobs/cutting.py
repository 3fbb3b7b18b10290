"""Logs that can be cut at an append time: at a broker, in a directory or in an archive."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from horolog.jobs.parameters.shared import Names
from horolog.jobs.selection import Selection
from horolog.sources.broker_log import BrokerLog
from horolog.sources.cuts import CutSource
from horolog.sources.file_log import FileLog
from horolog.storage.names import TopicPartition


class OpenCutSource(CutSource, Protocol):
    """A log that can be cut, with the partitions that were chosen."""

    def partitions(self) -> Collection[TopicPartition]:
        """Return the partitions of the chosen topics."""
        ...


@contextmanager
def opened_cut_source(
    source: str | os.PathLike[str],
    settings: Mapping[str, str] | None = None,
    *,
    topics: Names = None,
    topics_pattern: str | None = None,
) -> Iterator[OpenCutSource]:
    """Open a log to cut it with `sources.cuts.cut_of`.

    Args:
        source: HOST:PORT of a broker, or the path of a directory or an archive.
        settings: of the clients or stores.
        topics: of a path all by default.

    Raises:
        Misconfigured: a topic is not there, or an argument is wrong.
        NoAnswer, StorageFailed: the log cannot be read.
    """
    selection = Selection.of(source, topics, topics_pattern, settings=settings)
    options = selection.read_options()
    archive = _archive_at(source, selection, settings)
    if archive is not None:
        yield archive
    elif selection.source.is_broker:
        with BrokerLog(options) as log:
            yield log
    else:
        with FileLog(options, is_cut=True) as files:
            yield files


def _archive_at(
    source: str | os.PathLike[str], selection: Selection, settings: Mapping[str, str] | None
) -> OpenCutSource | None:
    """Return the chosen topics of an archive; None if a path has none.

    Raises:
        Misconfigured: a topic that is named is not in the archive.
        CorruptFile: its manifest is damaged.
    """
    if selection.source.is_broker or any(mark in os.fspath(source) for mark in "*?[{"):
        return None
    # Arrow, which reads archives, takes long to import.
    from horolog.jobs.archives.cuts import ArchiveLog  # noqa: PLC0415
    from horolog.jobs.archives.manifest import read_manifest  # noqa: PLC0415
    from horolog.jobs.archives.segment_plan import chosen_partitions  # noqa: PLC0415
    from horolog.jobs.archives.store import ArchiveStore  # noqa: PLC0415

    store = ArchiveStore.of(source, settings)
    manifest = read_manifest(store)
    if manifest is None:
        return None
    chosen = {key.topic for key in chosen_partitions(manifest, selection, store.name)}
    return ArchiveLog(store, manifest, chosen.__contains__)
