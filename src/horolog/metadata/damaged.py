"""The readable rows of a damaged store, read from a copy of its file.

Each table is read from both ends, because a damaged page ends a scan, and once more with a new
first page where the file's own is damaged. A row counts if its checksum is right.
"""

import logging
import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from horolog.errors import StorageFailed
from horolog.metadata.rows import (
    COUNTERS,
    IS_SALVAGED,
    NEXT_PRODUCER_ID,
    SETTINGS,
    TABLES,
    TOPICS,
    Table,
    TopicRow,
    checksum,
    topic_values,
)
from horolog.metadata.store import (
    FIRST_SCHEMA_VERSION,
    SCHEMA_VERSION,
    SHM,
    SQLITE_ERRORS,
    WAL,
    StoreDamaged,
    create_store,
    remove_files,
)

_logger = logging.getLogger(__name__)

_SCRATCH: Final = ".scratch"
_HEADER_PAGES = slice(28, 32)
_HEADER_CHANGES = slice(24, 28)
_HEADER_VALID_FOR = slice(92, 96)
_HEADER_PAGE_SIZE = slice(16, 18)


class ReadableRows:
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

    @classmethod
    def none(cls) -> "ReadableRows":
        """Where not a row can be read."""
        rows = cls()
        rows.unread = set(TABLES)
        return rows

    @property
    def is_damaged(self) -> bool:
        """Whether rows are lost, or may be."""
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


def read_damaged(path: Path) -> ReadableRows:
    """Read all readable rows from a copy.

    Raises:
        StorageFailed: the file cannot be copied.
    """
    scratch, best = f"{path}{_SCRATCH}", ReadableRows.none()
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
        remove_files(scratch, *(scratch + suffix for suffix in (WAL, SHM, "-journal", ".new")))


def _read_copy(path: Path, scratch: str, *, with_new_header: bool) -> ReadableRows:
    try:
        for suffix in ("", WAL):
            remove_files(scratch + suffix)
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
        is_old = FIRST_SCHEMA_VERSION <= version < SCHEMA_VERSION
        tables = [t for t in TABLES if t.name in present or not is_old or t.since <= version]
        if not {table.name for table in tables} <= present:
            raise StoreDamaged("tables are missing")
        found = ReadableRows()
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


def _read_table(db: sqlite3.Connection, table: Table, found: ReadableRows) -> None:
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


def _take(table: Table, values: Sequence[Any], found: ReadableRows, lost: set[object]) -> None:
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
    remove_files(str(fresh))
    create_store(fresh, {})
    page = bytearray(fresh.read_bytes())
    size = int.from_bytes(page[_HEADER_PAGE_SIZE], "big")
    size = 1 << 16 if size == 1 else size
    del page[size:]
    page[_HEADER_PAGES] = (path.stat().st_size // size).to_bytes(4, "big")
    page[_HEADER_VALID_FOR] = page[_HEADER_CHANGES]
    if os.path.lexists(f"{path}{WAL}"):
        page[18:20] = b"\2\2"  # with a write-ahead log
    with path.open("r+b") as file:
        file.write(page)
