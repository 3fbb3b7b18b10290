"""Logs that can be cut at an append time: at a broker or in a directory."""

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
        source: HOST:PORT of a broker, or a path.
        settings: of the clients or stores.
        topics: of a path all by default.

    Raises:
        Misconfigured: a topic is not there, or an argument is wrong.
        NoAnswer, StorageFailed: the log cannot be read.
    """
    selection = Selection.of(source, topics, topics_pattern, settings=settings)
    options = selection.read_options()
    if selection.source.is_broker:
        with BrokerLog(options) as log:
            yield log
    else:
        with FileLog(options, is_cut=True) as files:
            yield files
