"""The broker's durable state besides records: an SQLite file in the log directory.

It holds topics with their ids and settings, dynamic broker settings, committed offsets, the next
producer id, and which topics are another cluster's. Every method is one transaction: a kill leaves
all of it or nothing. Topics, settings and producer ids are synced to disk before a method returns;
committed offsets survive a kill of the process, as Kafka's do.

Damage is detected on open: pages are checked, and rows have checksums (rows.py).
`salvage.open_store` also opens a damaged file.

Not thread-safe. Never call it on the event loop, because a commit may sync.
"""

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from horolog.errors import ErrorCode, Misconfigured, RequestRefused, StorageFailed
from horolog.groups.rows import GroupChange
from horolog.metadata.rows import (
    COUNTERS,
    FOLLOWED,
    GROUPS,
    IS_SALVAGED,
    NEXT_PRODUCER_ID,
    OFFSETS,
    QUERIES,
    SETTINGS,
    SOURCES,
    TABLES,
    TOPIC_SCOPE,
    TOPICS,
    FollowedRow,
    QueryRow,
    SourceRow,
    Stored,
    Table,
    TopicRow,
    checksum,
    followed_values,
    promoted_once,
    source_values,
    topic_values,
)
from horolog.storage import names

FILE_NAME = names.METADATA_STORE
WAL: Final = "-wal"
"""What SQLite adds to the name for the write-ahead log, and for its index in shared memory."""
SHM: Final = "-shm"
SCHEMA_VERSION = 4
FIRST_SCHEMA_VERSION = 1
"""Without checksums. `Table.since` says which tables later versions have added."""

_RESERVED_BYTES = 256 << 10  # of the write-ahead log
_MOST_PRODUCER_ID = (1 << 63) - 1
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE

# sqlite3 raises the second if it cannot decode its own message, which quotes damaged SQL.
SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)

# SQLite's result codes that are not damage: a lock, missing permission, a full or failing disk.
_NO_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_AUTH,
    }
)


class StoreDamaged(StorageFailed):
    """The file exists and is damaged."""


class OldSchema(StoreDamaged):
    """The file has the schema of an earlier version."""


class MetadataStore:
    """The open file; created if absent.

    Raises:
        StoreDamaged: the file is damaged; see `salvage.open_store`.
        Misconfigured: the file cannot be opened, or a newer version has written it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.refusal: str | None = None
        """Why writes are refused: a commit could not be read back."""
        if not path.exists():
            create_store(path, {})
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            with _named(path):
                self._check_version()
                self._db.execute("PRAGMA journal_mode=WAL")
                self._check_header()
                self._check_pages()
        except BaseException:
            self._db.close()
            raise
        self._reserve_space()

    def _reserve_space(self) -> None:
        """Let the write-ahead log have the blocks for a deletion, so that it fits on a full disk.

        The file keeps its length, and SQLite never shortens it.
        """
        import ctypes  # noqa: PLC0415 - 5 ms that a reader of stores need not wait for

        fallocate = getattr(ctypes.CDLL(None), "fallocate", None)  # Linux
        if fallocate is None:
            return
        fallocate.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64
        with suppress(OSError), Path(f"{self._path}{WAL}").open("r+b") as wal:
            # It may fail, on a full disk or where the file system cannot reserve.
            fallocate(wal.fileno(), _KEEP_SIZE, 0, _RESERVED_BYTES)

    def _check_version(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (again,) = self._db.execute("PRAGMA application_id").fetchone()
        if is_old_schema(version, again):
            raise OldSchema(f"{self._path} has the schema {version}")
        if not 0 < version <= 0xFFFF or again != application_id(version):
            raise StoreDamaged(f"{self._path} claims to have the schema {version}")
        if version > SCHEMA_VERSION:
            raise Misconfigured(
                f"{self._path} was written by a newer horolog (schema {version}; this one "
                f"reads up to {SCHEMA_VERSION})"
            )

    def _check_header(self) -> None:
        """Check the file format: SQLite opens an unknown one read-only."""
        with self._path.open("rb") as file:
            formats = file.read(20)[18:]
        if formats != b"\2\2":
            raise StoreDamaged(f"{self._path} has the file formats {formats!r}")

    def _check_pages(self) -> None:
        (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreDamaged(f"{self._path} has a damaged page: {' '.join(found.split())}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def load(self) -> Stored:
        """Read the whole content, for the start of a broker.

        Raises:
            StoreDamaged: a row is damaged.
        """
        with _named(self._path):
            counters = dict(self._rows(COUNTERS))
            return Stored(
                list(self._rows(TOPICS)),
                list(self._rows(SETTINGS)),
                list(self._rows(GROUPS)),
                list(self._rows(OFFSETS)),
                tuple(self._rows(QUERIES)),
                next(self._rows(SOURCES), None),
                tuple(self._rows(FOLLOWED)),
                is_salvaged=IS_SALVAGED in counters,
            )

    def _rows(self, table: Table) -> Iterator[Any]:
        for *values, found in self._db.execute(table.select):
            if found != checksum(table.name, values):
                raise StoreDamaged(f"{self._path}: a row of {table.name} is damaged")
            yield table.read(values)

    # --- topics and settings ----------------------------------------------------------

    def put_topic(
        self,
        topic: TopicRow,
        overrides: Mapping[str, str] | None = None,
        followed: FollowedRow | None = None,
    ) -> None:
        """Create or replace a topic; `overrides`, if given, replace its settings.

        `followed`, if given, replaces what is known of it as a followed topic. Offsets of a topic
        of that name whose deletion is incomplete are dropped. The begin of a deletion is stored on
        a full disk, too, as long as there is reserved space.
        """
        if topic.deleting:
            self._without_space(partial(self._put_topic, topic, overrides, followed))
        else:
            self._put_topic(topic, overrides, followed)

    def _put_topic(
        self,
        topic: TopicRow,
        overrides: Mapping[str, str] | None,
        followed: FollowedRow | None,
    ) -> None:
        with self._transaction(synced=True):
            before = self._db.execute(
                "SELECT topic_id FROM topics WHERE name = ? AND deleting", (topic.name,)
            ).fetchone()
            if before is not None and before[0] != topic.topic_id.bytes:
                self._db.execute("DELETE FROM offsets WHERE topic = ?", (topic.name,))
            self._db.execute(TOPICS.insert, TOPICS.checked(topic_values(topic)))
            if followed is not None:
                self._db.execute(FOLLOWED.insert, FOLLOWED.checked(followed_values(followed)))
            if overrides is not None:
                self._db.execute(
                    "DELETE FROM settings WHERE scope = ? AND resource = ?",
                    (TOPIC_SCOPE, topic.name),
                )
                self._set(TOPIC_SCOPE, topic.name, overrides)

    def forget_topic(self, name: str) -> None:
        """Delete a topic with its settings and all offsets committed for it; as `put_topic`.

        That it was promoted is kept, and nothing else of that.
        """
        self._without_space(partial(self._forget_topic, name))

    def _forget_topic(self, name: str) -> None:
        with self._transaction(synced=True):
            self._db.execute("DELETE FROM topics WHERE name = ?", (name,))
            self._db.execute(
                "DELETE FROM settings WHERE scope = ? AND resource = ?", (TOPIC_SCOPE, name)
            )
            self._db.execute("DELETE FROM offsets WHERE topic = ?", (name,))
            its = self._db.execute("SELECT led FROM followed WHERE topic = ?", (name,))
            if its.fetchone() == (1,):
                kept = followed_values(promoted_once(name))
                self._db.execute(FOLLOWED.insert, FOLLOWED.checked(kept))
            else:
                self._db.execute("DELETE FROM followed WHERE topic = ?", (name,))

    def _without_space(self, change: Callable[[], None]) -> None:
        """Make a change that frees space; the write-ahead log is written from its start again.

        That takes no space that the file does not have.
        """
        try:
            change()
        except StorageFailed:
            with suppress(*SQLITE_ERRORS):  # where the file itself cannot grow
                self._db.execute("PRAGMA wal_checkpoint(RESTART)")
            change()

    def end_salvage(self) -> None:
        """Record that every topic on disk has a row again."""
        with self._transaction(synced=True):
            self._db.execute("DELETE FROM counters WHERE name = ?", (IS_SALVAGED,))

    def change_settings(self, scope: str, resource: str, changes: Mapping[str, str | None]) -> None:
        """Set overrides; None deletes one."""
        with self._transaction(synced=True):
            self._set(scope, resource, changes)

    def _set(self, scope: str, resource: str, changes: Mapping[str, str | None]) -> None:
        for name, value in changes.items():
            if value is None:
                self._db.execute(
                    "DELETE FROM settings WHERE scope = ? AND resource = ? AND name = ?",
                    (scope, resource, name),
                )
            else:
                row = (scope, resource, name, value)
                self._db.execute(SETTINGS.insert, SETTINGS.checked(row))

    def put_source(self, source: SourceRow, forgotten: Collection[str] = ()) -> None:
        """Replace the cluster that is followed, and forget that these topics were promoted."""
        with self._transaction(synced=True):
            for name in forgotten:
                self._db.execute("DELETE FROM followed WHERE topic = ? AND led", (name,))
            self._db.execute("DELETE FROM sources")
            self._db.execute(SOURCES.insert, SOURCES.checked(source_values(source)))

    def reserve_producer_ids(self, count: int, at_least: int) -> int:
        """Reserve `count` unused producer ids from `at_least`; return the first.

        Raises:
            RequestRefused: there are none left.
        """
        with self._transaction(synced=True):
            row = self._db.execute(
                "SELECT value FROM counters WHERE name = ?", (NEXT_PRODUCER_ID,)
            ).fetchone()
            first = max(at_least, row[0] if row else 0)
            if first > _MOST_PRODUCER_ID - count:
                raise RequestRefused(
                    ErrorCode.unknown_server_error,
                    f"No producer id is left: {self._path} or a producer in a log has {first - 1}. "
                    "Restore what is damaged, or remove the log that was copied here",
                )
            after = COUNTERS.checked((NEXT_PRODUCER_ID, first + count))
            self._db.execute(COUNTERS.insert, after)
        return first

    def raise_producer_ids(self, at_least: int) -> None:
        """Reserve no producer id below this one from now on."""
        at_least = min(at_least, _MOST_PRODUCER_ID)
        with self._transaction(synced=True):
            row = self._db.execute(
                "SELECT value FROM counters WHERE name = ?", (NEXT_PRODUCER_ID,)
            ).fetchone()
            if row is None or row[0] < at_least:
                counter = COUNTERS.checked((NEXT_PRODUCER_ID, at_least))
                self._db.execute(COUNTERS.insert, counter)

    def put_query(self, row: QueryRow) -> None:
        """Create or replace a query that writes exactly once."""
        with self._transaction(synced=True):
            self._db.execute(QUERIES.insert, QUERIES.checked(row))

    # --- groups -----------------------------------------------------------------------

    def write_groups(self, changes: Sequence[GroupChange]) -> list[Exception | None]:
        """Write changes in order, in one transaction if possible; return the error of each.

        If a change cannot be written, all are written one by one, so that only that one fails.
        """
        try:
            self._write_together(changes)
        except Exception as error:  # noqa: BLE001 - returned to the caller
            if len(changes) == 1:
                return [error]
        else:
            return [None] * len(changes)
        return [error for change in changes for error in self.write_groups([change])]

    def _write_together(self, changes: Sequence[GroupChange]) -> None:
        try:
            with self._transaction(synced=False):
                for change in changes:
                    self._write_change(change)
        except (OverflowError, UnicodeError) as error:
            raise RequestRefused(
                ErrorCode.invalid_commit_offset_size, f"SQLite cannot hold it: {error}"
            ) from error

    def _write_change(self, change: GroupChange) -> None:
        for group_id in change.dropped_groups:
            self._db.execute("DELETE FROM groups WHERE group_id = ?", (group_id,))
            self._db.execute("DELETE FROM offsets WHERE group_id = ?", (group_id,))
        self._db.executemany(
            "DELETE FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?",
            change.dropped_offsets,
        )
        self._db.executemany(GROUPS.insert, map(GROUPS.checked, change.groups))
        self._db.executemany(OFFSETS.insert, map(OFFSETS.checked, change.offsets))

    @contextmanager
    def _transaction(self, *, synced: bool) -> Iterator[None]:
        if self.refusal is not None:
            raise StorageFailed(self.refusal)
        try:
            self._db.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # some errors roll back by themselves
                    self._db.execute("ROLLBACK")
                raise
        except SQLITE_ERRORS as error:
            raise StorageFailed(f"{self._path}: {error}") from error


def create_store(path: Path, rows: Mapping[Table, Iterable[Sequence[Any]]]) -> None:
    """Write a new store with these rows atomically.

    Raises:
        StorageFailed: a write failed.
    """
    temporary = f"{path}{names.TEMPORARY}"
    with _named(path):
        remove_files(temporary, f"{temporary}-journal")
        with closing(sqlite3.connect(temporary, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            create_schema(db)
            for table in TABLES:
                db.executemany(table.insert, map(table.checked, rows.get(table, ())))
            db.execute("COMMIT")
        os.replace(temporary, path)
        sync_directory(path.parent)


def create_schema(db: sqlite3.Connection) -> None:
    """Create the tables in a new file."""
    for table in TABLES:
        db.execute(table.schema)
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    db.execute(f"PRAGMA application_id={application_id(SCHEMA_VERSION)}")


def application_id(version: int) -> int:
    """A second copy of the schema version, so that a flipped bit does not pass for a newer one."""
    return int.from_bytes(b"hm", "big") << 16 | version


def is_old_schema(version: int, again: int) -> bool:
    """Whether a store has an earlier schema, by its `user_version` and `application_id`."""
    if version == FIRST_SCHEMA_VERSION:
        return again == 0
    return FIRST_SCHEMA_VERSION < version < SCHEMA_VERSION and again == application_id(version)


def remove_files(*paths: str) -> None:
    """Remove those that are there."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def sync_directory(path: Path) -> None:
    """Sync a directory, so that new and renamed files survive a power failure."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and of rows to StoreDamaged, StorageFailed or Misconfigured."""
    try:
        yield
    except (*SQLITE_ERRORS, ValueError) as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in _NO_DAMAGE:
            raise Misconfigured(
                f"{path} cannot be opened: {error}. Check the disk and the permissions of the "
                "file, and that no other process has it open"
            ) from error
        raise StoreDamaged(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise StorageFailed(f"{path} cannot be made: {error.strerror}") from error
