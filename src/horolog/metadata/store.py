"""What one broker must remember besides records: an SQLite file in the log directory.

Topics with their ids and settings, dynamic broker settings, committed offsets, and how
far producer ids have been given out. Every method is one transaction: a kill leaves
either all of it or nothing. Topics, settings and producer ids are on disk when a method
returns; committed offsets survive a kill of the process, as Kafka's do.

Not thread-safe: one thread at a time, and never the event loop, for a commit may sync.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from horolog.errors import ErrorCode, Misconfigured, RequestRefused, StorageFailed
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow

FILE_NAME = "horolog-metadata.sqlite"
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE topics (
    name TEXT PRIMARY KEY, topic_id BLOB NOT NULL, partitions INTEGER NOT NULL,
    adopted INTEGER NOT NULL, deleting INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE settings (
    scope TEXT NOT NULL, resource TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (scope, resource, name)
) WITHOUT ROWID;
CREATE TABLE groups (
    group_id TEXT PRIMARY KEY, protocol_type TEXT NOT NULL, empty_since_ms INTEGER
) WITHOUT ROWID;
CREATE TABLE offsets (
    group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    committed INTEGER NOT NULL, leader_epoch INTEGER NOT NULL, metadata TEXT NOT NULL,
    commit_ms INTEGER NOT NULL, expire_ms INTEGER,
    PRIMARY KEY (group_id, topic, partition)
) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""

AS_FOUND: Final = 0
"""In place of a topic's number of partitions: those whose directories are there."""

TOPIC_SCOPE = "topic"
BROKER_SCOPE = "broker"


class TopicRow(NamedTuple):
    """A topic. Its partitions are 0 to `partitions` - 1, or with `AS_FOUND` those on disk.

    An adopted one has those on disk in any case.
    """

    name: str
    topic_id: UUID
    partitions: int
    adopted: bool = False
    deleting: bool = False


class SettingRow(NamedTuple):
    """One override; `resource` is a topic, a broker id, or "" for all brokers."""

    scope: str
    resource: str
    name: str
    value: str


class Stored(NamedTuple):
    """All that was remembered when the broker last stopped."""

    topics: list[TopicRow]
    settings: list[SettingRow]
    groups: list[GroupRow]
    offsets: list[OffsetRow]


class MetadataStore:
    """The open file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.refusal: str | None = None
        """Why nothing is taken any more: what is committed would not be found again."""
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._ensure_schema()
        except sqlite3.Error as error:
            raise Misconfigured(
                f"{path} is not readable as horolog's metadata: {error}. Restore it from a "
                "backup, or move it away: topics are then adopted from their directories, "
                "without settings and committed offsets."
            ) from error

    def _ensure_schema(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            create_schema(self._db)
        elif version > SCHEMA_VERSION:
            self._db.close()
            raise Misconfigured(
                f"{self._path} was written by a newer horolog (schema {version}; this one "
                f"reads up to {SCHEMA_VERSION})"
            )

    def close(self) -> None:
        """Close the file; what was committed stays."""
        self._db.close()

    def load(self) -> Stored:
        """Everything, for the start of a broker."""
        rows = self._db.execute
        return Stored(
            [
                TopicRow(name, UUID(bytes=topic_id), partitions, bool(adopted), bool(deleting))
                for name, topic_id, partitions, adopted, deleting in rows(
                    "SELECT name, topic_id, partitions, adopted, deleting FROM topics"
                )
            ],
            [SettingRow(*row) for row in rows("SELECT * FROM settings")],
            [GroupRow(*row) for row in rows("SELECT * FROM groups")],
            [OffsetRow(*row) for row in rows("SELECT * FROM offsets")],
        )

    # --- topics and settings ----------------------------------------------------------

    def put_topic(self, topic: TopicRow, overrides: Mapping[str, str] | None = None) -> None:
        """Create a topic or replace what is known of it; `overrides` replace its settings.

        Offsets of a topic of that name whose deletion could not be finished are dropped.
        """
        with self._transaction(synced=True):
            before = self._db.execute(
                "SELECT topic_id FROM topics WHERE name = ? AND deleting", (topic.name,)
            ).fetchone()
            if before is not None and before[0] != topic.topic_id.bytes:
                self._db.execute("DELETE FROM offsets WHERE topic = ?", (topic.name,))
            self._db.execute(
                "INSERT OR REPLACE INTO topics VALUES (?, ?, ?, ?, ?)",
                (topic.name, topic.topic_id.bytes, topic.partitions, topic.adopted, topic.deleting),
            )
            if overrides is not None:
                self._db.execute(
                    "DELETE FROM settings WHERE scope = ? AND resource = ?",
                    (TOPIC_SCOPE, topic.name),
                )
                self._set(TOPIC_SCOPE, topic.name, overrides)

    def forget_topic(self, name: str) -> None:
        """Drop a topic with its settings and all offsets committed for it."""
        with self._transaction(synced=True):
            self._db.execute("DELETE FROM topics WHERE name = ?", (name,))
            self._db.execute(
                "DELETE FROM settings WHERE scope = ? AND resource = ?", (TOPIC_SCOPE, name)
            )
            self._db.execute("DELETE FROM offsets WHERE topic = ?", (name,))

    def change_settings(self, scope: str, resource: str, changes: Mapping[str, str | None]) -> None:
        """Set overrides; None removes one."""
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
                self._db.execute(
                    "INSERT OR REPLACE INTO settings VALUES (?, ?, ?, ?)",
                    (scope, resource, name, value),
                )

    def reserve_producer_ids(self, count: int, at_least: int) -> int:
        """The first of `count` producer ids that nobody has had, none below `at_least`."""
        with self._transaction(synced=True):
            row = self._db.execute(
                "SELECT value FROM counters WHERE name = 'next_producer_id'"
            ).fetchone()
            first = max(at_least, row[0] if row else 0)
            self._db.execute(
                "INSERT OR REPLACE INTO counters VALUES ('next_producer_id', ?)", (first + count,)
            )
        return first

    # --- groups -----------------------------------------------------------------------

    def write_groups(self, changes: Sequence[GroupChange]) -> list[Exception | None]:
        """Write many changes in order, in one transaction if possible; the error of each.

        A change that cannot be written fails alone: the others are then written one by one.
        """
        try:
            self._write_together(changes)
        except Exception as error:  # noqa: BLE001 - returned to whoever asked for the change
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
        self._db.executemany("INSERT OR REPLACE INTO groups VALUES (?, ?, ?)", change.groups)
        self._db.executemany(
            "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?)", change.offsets
        )

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
                if self._db.in_transaction:  # some failures have ended it already
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StorageFailed(f"{self._path}: {error}") from error


def create_schema(db: sqlite3.Connection) -> None:
    """Make the tables in a new file."""
    db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
