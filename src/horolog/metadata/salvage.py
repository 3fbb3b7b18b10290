"""Opens the store and salvages a damaged file.

The readable rows of a damaged file (`damaged.py`) are copied to a new one. The damaged file is
kept as `horolog-metadata.sqlite.<n>.set-aside`, with its write-ahead log unless SQLite has merged
that already. Lost rows are handled conservatively:

- If a topic or a setting may be lost, all topics are adopted (and salvaged: also with
  `horolog.adopt.defaults`): their records are kept until the topics get settings. A topic
  without a row is adopted from its directories.
- A deletion continues only if the checksum of its row is right.
- A followed topic is not led, also where its row in `followed` is lost.
- Producer ids continue beyond any id that a broker can have allocated.
- Committed offsets that cannot be read are lost; the number of rows read is logged.

    <path>.tmp       a new file being written
    <path>.rebuilt   complete: replaces <path> after the damaged file is renamed
"""

import logging
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from horolog.errors import Misconfigured, StorageFailed
from horolog.metadata.damaged import ReadableRows, read_damaged
from horolog.metadata.rows import FOLLOWED, GROUPS, OFFSETS, QUERIES, SOURCES, TABLES, Stored
from horolog.metadata.store import (
    SHM,
    WAL,
    MetadataStore,
    OldSchema,
    StoreDamaged,
    create_store,
    remove_files,
    sync_directory,
)
from horolog.metadata.wal import check_wal
from horolog.storage import names
from horolog.storage.verify.findings import Severity

_logger = logging.getLogger(__name__)

_REBUILT: Final = ".rebuilt"
_PRODUCER_IDS_A_MS: Final = 1000  # more than any broker can allocate


def open_store(path: Path, first_producer_id: int, now_ms: int) -> tuple[MetadataStore, Stored]:
    """Open the store of a locked log directory, and salvage it if it is damaged.

    Args:
        path: the file.
        first_producer_id: the lowest producer id.
        now_ms: record time in milliseconds.

    Raises:
        Misconfigured: the file cannot be opened for another reason than damage.
        StorageFailed: a read or write failed; the files are unchanged.
    """
    _finish_rebuilding(path)
    was_irregular = _clear_the_way(path)
    why = f"{path} was not a regular file" if was_irregular else None
    _check_wal(path)
    if why is None:
        try:
            return _opened(path)
        except OldSchema:
            _logger.info("%s is taken over from an earlier horolog", path)
        except StoreDamaged as error:
            why = str(error)
    found = ReadableRows.none() if was_irregular else read_damaged(path)
    if why is None and not found.is_damaged:
        _rebuild(path, found)
        return _opened(path)
    found.guard(first_producer_id + now_ms * _PRODUCER_IDS_A_MS)
    aside = _rebuild(path, found)
    _tell(path, why, found, aside)
    return _opened(path)


def _check_wal(path: Path) -> None:
    """Log and copy commits in the write-ahead log that SQLite is about to ignore silently.

    A power failure also leaves such a log, so topics are not adopted because of it.
    """
    wal = Path(f"{path}{WAL}")
    for finding in check_wal(wal, str(wal), ""):
        if finding.severity is Severity.NOTE:
            continue
        aside = _free_name(str(path))
        try:
            shutil.copyfile(wal, f"{aside}{WAL}")
        except OSError as error:
            raise StorageFailed(f"{wal} cannot be copied: {error}") from error
        _logger.error(
            "%s: %s. Topics, settings or committed offsets may be what they were before; a copy of "
            "the log is %s%s",
            *(wal, finding.what, aside, WAL),
        )


def _opened(path: Path) -> tuple[MetadataStore, Stored]:
    store = MetadataStore(path)
    try:
        return store, store.load()
    except BaseException:
        store.close()
        raise


def _rebuild(path: Path, found: ReadableRows) -> str | None:
    """Replace the store by a new file with these rows; return the damaged file's new path."""
    rebuilt = Path(f"{path}{_REBUILT}")
    create_store(rebuilt, {table: rows.values() for table, rows in found.rows.items()})
    return _finish_rebuilding(path)


def _finish_rebuilding(path: Path) -> str | None:
    """Complete the replacement by a rebuilt file, also one that a kill interrupted."""
    rebuilt = f"{path}{_REBUILT}"
    if not os.path.lexists(rebuilt):
        return None
    try:
        aside = _set_aside(path)
        os.replace(rebuilt, path)
        sync_directory(path.parent)
    except OSError as error:
        raise StorageFailed(f"{path} cannot be replaced: {error}") from error
    return aside


def _clear_the_way(path: Path) -> bool:
    """Set aside anything that is not a regular file; return whether the store itself was.

    Raises:
        Misconfigured: the path is a symbolic link, which an operator may have created.
    """
    if path.is_symlink():
        raise Misconfigured(
            f"{path} is a symbolic link, which is not followed: put the file itself there, or "
            "remove the link, and topics are adopted from their directories"
        )
    try:
        for suffix in (WAL, SHM, "-journal", names.TEMPORARY):
            if not _is_regular_or_absent(f"{path}{suffix}"):
                aside = _free_name(f"{path}{suffix}")
                os.replace(f"{path}{suffix}", aside)
                _logger.error("%s is not a regular file and was set aside under this name", aside)
        if not os.path.lexists(path) and os.path.lexists(f"{path}{WAL}"):
            _set_aside(path)  # a leftover log of a moved file must not be applied to a new one
        return not _is_regular_or_absent(str(path))
    except OSError as error:
        raise StorageFailed(f"{path} cannot be set aside: {error}") from error


def _set_aside(path: Path) -> str:
    """Rename the file and its write-ahead log so that they can be opened together later."""
    aside = _free_name(str(path))
    for suffix in (WAL, ""):  # a file without its log would be taken for the whole
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    remove_files(f"{path}{SHM}")
    return aside


def _free_name(path: str) -> str:
    number = 1
    while any(os.path.lexists(f"{path}.{number}{names.SET_ASIDE}{s}") for s in ("", WAL)):
        number += 1
    return f"{path}.{number}{names.SET_ASIDE}"


def _is_regular_or_absent(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return True


def _tell(path: Path, why: str | None, found: ReadableRows, aside: str | None) -> None:
    read = ", ".join(f"{len(found.rows[table])} of {table.name}" for table in TABLES)
    _logger.error(
        "%s. A new file was made from the readable rows (%s); the damaged one is %s",
        *(why or f"{path} is damaged", read, aside),
    )
    for table in TABLES:
        if table in found.unread:
            _logger.error("Rows of %s may be lost: pages of the file are damaged", table.name)
        if table in found.lost:
            _logger.error("%d row(s) of %s are damaged and left out", found.lost[table], table.name)
    if found.may_lack_topics:
        _logger.error(
            "All topics are adopted, because some settings may be lost: their records are kept "
            "until the topics get settings again"
        )
    if any(table in found.unread or table in found.lost for table in (GROUPS, OFFSETS)):
        _logger.error("Consumer groups may have to start from their auto.offset.reset")
    if any(table in found.unread or table in found.lost for table in (SOURCES, FOLLOWED)):
        _logger.error(
            "Which cluster is followed, or what was promoted, may be lost: topics that were "
            "followed are not led here until they are followed again or promoted"
        )
    if QUERIES in found.unread or QUERIES in found.lost:
        _logger.error(
            "Queries that write exactly once may be unknown: what logs hold of their last batches "
            "counts again once they begin it, but for partitions that were added meanwhile"
        )
