"""Opens the store and salvages a damaged file.

The readable rows of a damaged file are copied to a new one. The damaged file is kept as
`horolog-metadata.sqlite.<n>.set-aside`, with its write-ahead log unless SQLite has merged that
already. Lost rows are handled conservatively:

- If a topic or a setting may be lost, all topics are adopted (and salvaged: also with
  `horolog.adopt.defaults`): their records are kept until the topics get settings. A topic
  without a row is adopted from its directories.
- A deletion continues only if the checksum of its row is right.
- Producer ids continue beyond any id that a broker can have allocated.
- Committed offsets that cannot be read are lost; the number of rows read is logged.

    <path>.tmp       a new file being written
    <path>.rebuilt   complete: replaces <path> after the damaged file is renamed
"""

import logging
import os
import shutil
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from horolog.errors import Misconfigured, StorageFailed
from horolog.metadata.rows import (
    COUNTERS,
    GROUPS,
    IS_SALVAGED,
    NEXT_PRODUCER_ID,
    OFFSETS,
    QUERIES,
    SETTINGS,
    TABLES,
    TOPICS,
    Stored,
    Table,
    TopicRow,
    checksum,
    topic_values,
)
from horolog.metadata.store import (
    FIRST_SCHEMA_VERSION,
    SECOND_SCHEMA_VERSION,
    SQLITE_ERRORS,
    MetadataStore,
    OldSchema,
    StoreDamaged,
    create_store,
    sync_directory,
)
from horolog.metadata.wal import check_wal
from horolog.storage import names
from horolog.storage.verify.findings import Severity

_logger = logging.getLogger(__name__)

_WAL: Final = "-wal"
_SHM: Final = "-shm"
_REBUILT: Final = ".rebuilt"
_SCRATCH: Final = ".scratch"
_PRODUCER_IDS_A_MS: Final = 1000  # more than any broker can allocate
_HEADER_PAGES = slice(28, 32)
_HEADER_CHANGES = slice(24, 28)
_HEADER_VALID_FOR = slice(92, 96)
_HEADER_PAGE_SIZE = slice(16, 18)


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
    found = _nothing() if was_irregular else _read_damaged(path)
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
    wal = Path(f"{path}{_WAL}")
    for finding in check_wal(wal, str(wal), ""):
        if finding.severity is Severity.NOTE:
            continue
        aside = _free_name(str(path))
        try:
            shutil.copyfile(wal, f"{aside}{_WAL}")
        except OSError as error:
            raise StorageFailed(f"{wal} cannot be copied: {error}") from error
        _logger.error(
            "%s: %s. Topics, settings or committed offsets may be what they were before; a copy of "
            "the log is %s%s",
            *(wal, finding.what, aside, _WAL),
        )


def _opened(path: Path) -> tuple[MetadataStore, Stored]:
    store = MetadataStore(path)
    try:
        return store, store.load()
    except BaseException:
        store.close()
        raise


class _Found:
    """The readable content of a damaged store."""

    def __init__(self) -> None:
        self.rows: dict[Table, dict[tuple[Any, ...], tuple[Any, ...]]] = {
            table: {} for table in TABLES
        }
        """The values of each row, by key."""
        self.lost: dict[Table, int] = {}
        """The number of damaged rows by table."""
        self.unread: set[Table] = set()
        """Tables with damaged pages, where the number of lost rows is unknown."""
        self.has_checksums = True

    @property
    def is_damaged(self) -> bool:
        return bool(self.unread or self.lost)

    @property
    def count(self) -> int:
        """The number of rows read."""
        return sum(map(len, self.rows.values()))

    @property
    def may_lack_topics(self) -> bool:
        """Whether a topic or a setting may be lost."""
        return any(table in self.unread or table in self.lost for table in (TOPICS, SETTINGS))

    def guard(self, next_producer_id: int) -> None:
        """Make sure that lost rows cause no deletion and no reuse of producer ids."""
        topics = self.rows[TOPICS]
        for key, values in topics.items():
            row: TopicRow = TOPICS.read(values)
            if row.deleting and not self.has_checksums:
                _logger.error("The deletion of %s may be a damaged row: it is adopted", row.name)
                row = row._replace(deleting=False, adopted=True, is_salvaged=True)
            if self.may_lack_topics and not row.deleting:
                row = row._replace(adopted=True, is_salvaged=True)
            topics[key] = topic_values(row)
        if COUNTERS in self.unread or COUNTERS in self.lost or not self.rows[COUNTERS]:
            known = self.rows[COUNTERS].get((NEXT_PRODUCER_ID,), (NEXT_PRODUCER_ID, 0))
            first = max(known[1], next_producer_id)
            self.rows[COUNTERS][NEXT_PRODUCER_ID,] = (NEXT_PRODUCER_ID, first)
        if self.may_lack_topics:
            self.rows[COUNTERS][IS_SALVAGED,] = (IS_SALVAGED, 1)


def _nothing() -> _Found:
    found = _Found()
    found.unread = set(TABLES)
    return found


# --- reading --------------------------------------------------------------------------


def _read_damaged(path: Path) -> _Found:
    """Read all readable rows from a copy."""
    scratch, best = f"{path}{_SCRATCH}", _nothing()
    try:
        for with_new_header in (False, True):
            try:
                found = _read_copy(path, scratch, with_new_header=with_new_header)
            except (*SQLITE_ERRORS, StoreDamaged) as error:
                what = "with a new first page" if with_new_header else "as it is"
                _logger.warning("%s cannot be read %s: %s", path, what, error)
                continue
            if found.count > best.count or not found.is_damaged:
                best = found
            if not best.is_damaged:
                break
        return best
    finally:
        _remove(scratch, *(scratch + suffix for suffix in (_WAL, _SHM, "-journal", ".new")))


def _read_copy(path: Path, scratch: str, *, with_new_header: bool) -> _Found:
    try:
        for suffix in ("", _WAL):
            _remove(scratch + suffix)
            if os.path.lexists(f"{path}{suffix}"):
                shutil.copyfile(f"{path}{suffix}", scratch + suffix, follow_symlinks=False)
        if with_new_header:
            _put_first_page(Path(scratch))
    except OSError as error:
        raise StorageFailed(f"{path} cannot be copied: {error}") from error
    with closing(sqlite3.connect(scratch, isolation_level=None)) as db:
        db.text_factory = _text
        (version,) = db.execute("PRAGMA user_version").fetchone()
        present = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
        tables: tuple[Table, ...] = TABLES
        if version in (FIRST_SCHEMA_VERSION, SECOND_SCHEMA_VERSION):
            tables = tuple(table for table in TABLES if table is not QUERIES)
        if not {table.name for table in tables} <= present:
            raise StoreDamaged("tables are missing")
        found = _Found()
        found.has_checksums = version != FIRST_SCHEMA_VERSION
        for table in tables:
            _read_table(db, table, found)
        if not found.is_damaged and not _has_sound_pages(db):
            found.unread = set(TABLES)  # any number of rows may be lost
    return found


def _has_sound_pages(db: sqlite3.Connection) -> bool:
    try:
        (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except SQLITE_ERRORS:
        return False
    return bool(found == "ok")


def _read_table(db: sqlite3.Connection, table: Table, found: _Found) -> None:
    """Read in both directions, because a damaged page ends each scan."""
    lost: set[object] = set()
    for backwards in (False, True):
        try:
            for values in db.execute(table.select_by_key(backwards=backwards)):
                _take(table, values, found, lost)
        except (*SQLITE_ERRORS, OverflowError) as error:
            found.unread.add(table)
            _logger.debug("%s, read %s: %s", table.name, "back" if backwards else "on", error)
        else:
            break
    if lost:
        found.lost[table] = len(lost)


def _take(table: Table, values: Sequence[Any], found: _Found, lost: set[object]) -> None:
    columns = tuple(values)
    if found.has_checksums:
        *read, stored_sum = values
        columns = tuple(read)
        is_sound = stored_sum == checksum(table.name, columns)
    else:
        is_sound = True
    try:
        if not is_sound:
            raise ValueError
        table.read(columns)
        "".join(value for value in columns if isinstance(value, str)).encode()
    except (ValueError, TypeError):
        lost.add(repr(columns))
        return
    width = table.key.count(",") + 1
    found.rows[table][columns[:width]] = columns


def _text(data: bytes) -> str:
    """Decode text; invalid UTF-8 is replaced and only fails the checksum of its row."""
    return data.decode("utf-8", "surrogateescape")


def _put_first_page(path: Path) -> None:
    """Replace a damaged first page. It locates the tables and is the same in every store."""
    fresh = Path(f"{path}.new")
    _remove(str(fresh))
    create_store(fresh, {})
    page = bytearray(fresh.read_bytes())
    size = int.from_bytes(page[_HEADER_PAGE_SIZE], "big")
    size = 1 << 16 if size == 1 else size
    del page[size:]
    page[_HEADER_PAGES] = (path.stat().st_size // size).to_bytes(4, "big")
    page[_HEADER_VALID_FOR] = page[_HEADER_CHANGES]
    if os.path.lexists(f"{path}{_WAL}"):
        page[18:20] = b"\2\2"  # with a write-ahead log
    with path.open("r+b") as file:
        file.write(page)


# --- replacing ------------------------------------------------------------------------


def _rebuild(path: Path, found: _Found) -> str | None:
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
        for suffix in (_WAL, _SHM, "-journal", names.TEMPORARY):
            if not _is_regular_or_absent(f"{path}{suffix}"):
                aside = _free_name(f"{path}{suffix}")
                os.replace(f"{path}{suffix}", aside)
                _logger.error("%s is not a regular file and was set aside under this name", aside)
        if not os.path.lexists(path) and os.path.lexists(f"{path}{_WAL}"):
            _set_aside(path)  # a leftover log of a moved file must not be applied to a new one
        return not _is_regular_or_absent(str(path))
    except OSError as error:
        raise StorageFailed(f"{path} cannot be set aside: {error}") from error


def _set_aside(path: Path) -> str:
    """Rename the file and its write-ahead log so that they can be opened together later."""
    aside = _free_name(str(path))
    for suffix in (_WAL, ""):  # a file without its log would be taken for the whole
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    _remove(f"{path}{_SHM}")
    return aside


def _free_name(path: str) -> str:
    number = 1
    while any(os.path.lexists(f"{path}.{number}{names.SET_ASIDE}{s}") for s in ("", _WAL)):
        number += 1
    return f"{path}.{number}{names.SET_ASIDE}"


def _is_regular_or_absent(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return True


def _remove(*paths: str) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _tell(path: Path, why: str | None, found: _Found, aside: str | None) -> None:
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
    if QUERIES in found.unread or QUERIES in found.lost:
        _logger.error(
            "Queries that write exactly once may be unknown: what logs hold of their last batches "
            "counts again once they begin it, but for partitions that were added meanwhile"
        )
