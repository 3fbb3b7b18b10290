"""Logs that can be cut at an append time: at a broker, in a directory or in an archive."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from horolog.sources.cuts import CutSource
from horolog.sources.options import ReadOptions
from horolog.sources.planning import opened_log


@contextmanager
def opened_cut_source(options: ReadOptions) -> Iterator[CutSource]:
    """Open the log of a read to cut it; a path may also be that of an archive.

    Raises:
        Misconfigured: it is not there, or a topic that is named is not.
        CorruptFile: the manifest of an archive is damaged.
        NoAnswer, StorageFailed: the log cannot be read.
    """
    archive = _archive_of(options)
    if archive is not None:
        yield archive
    else:
        with opened_log(options, is_cut=True) as log:
            yield log


def _archive_of(options: ReadOptions) -> CutSource | None:
    """Return the chosen topics of an archive; None if the log is none."""
    if len(options.paths) != 1 or options.paths[0].pattern is not None:
        return None
    local = options.paths[0].local
    if local is not None and not Path(local, "manifest").is_dir():
        return None
    # Arrow, which reads archives, takes long to import, and is of an extra.
    from horolog.jobs.archives.cuts import ArchiveLog  # noqa: PLC0415
    from horolog.jobs.archives.manifest import read_manifest  # noqa: PLC0415
    from horolog.jobs.archives.store import ArchiveStore  # noqa: PLC0415

    store = ArchiveStore(options.paths[0].uri, options.store)
    manifest = read_manifest(store)
    return None if manifest is None else ArchiveLog(store, manifest, options.subscription)
