"""Whether the metadata store can be read, and agrees with the partition directories.

Nothing in the log directory is written or locked: SQLite sees only a copy (copies.py).

SQLite pages have no checksums, but rows have one of horolog's. The write-ahead log has checksums;
SQLite silently drops everything after the first frame that fails, and this check reports it.
"""

import os
import sqlite3
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from horolog.config.tables import topic_setting
from horolog.errors import CorruptFile, StorageFailed
from horolog.metadata.copies import copy_of_both
from horolog.metadata.reconcile import TopicOnDisk, reconcile
from horolog.metadata.rows import (
    AS_FOUND,
    COUNTERS,
    FOLLOWED,
    GROUPS,
    OFFSETS,
    QUERIES,
    SETTINGS,
    SOURCES,
    TOPIC_SCOPE,
    TOPICS,
    Table,
    TopicRow,
    checksum,
    pinned_topics,
)
from horolog.metadata.store import (
    FILE_NAME,
    SCHEMA_VERSION,
    SQLITE_ERRORS,
    application_id,
    create_schema,
    is_old_schema,
)
from horolog.metadata.wal import check_wal
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_topic_id
from horolog.storage.files import Files
from horolog.storage.verify.findings import Finding, Findings, damage, fault, note

_MEND = (
    "stop the broker and restore the file from a backup; else the next start keeps the sound rows, "
    "and adopts all topics where one or its settings may be lost"
)
_FILE_FORMATS = (b"", b"\1\1", b"\2\2")  # of SQLite: nothing yet, created, opened by a broker
_MAX_PROBLEMS = 20  # of SQLite's own check
_TYPES = {"TEXT": str, "INTEGER": int, "BLOB": bytes}


def check_store(log_dir: Path, *, is_live: bool = False, is_clean: bool = False) -> Findings:
    """Everything about the metadata store of a log directory.

    Args:
        log_dir: the log directory.
        is_live: a broker is running, so rows and directories may differ.
        is_clean: the last broker was stopped, not killed.
    """
    path = log_dir / FILE_NAME
    wal = path.with_name(FILE_NAME + "-wal")
    if not os.path.lexists(path):
        yield from _without_store(log_dir, path, wal)
        return
    for each in (path, wal):
        if os.path.lexists(each) and not stat.S_ISREG(os.lstat(each).st_mode):
            yield fault(str(each), "It is not a regular file", _MEND)
            return
    with tempfile.TemporaryDirectory(prefix="horolog-verify-") as aside:
        try:
            copy = copy_of_both(path, Path(aside))
        except OSError as error:
            yield fault(
                str(path), f"It cannot be read or copied: {error}", "check disk and permissions"
            )
            return
        if copy is None:
            yield note(str(path), "It changes faster than it can be copied, and is not checked")
            return
        yield from check_wal(copy.with_name(copy.name + "-wal"), str(wal), _MEND)
        store = _StoreCheck(copy, str(path))
        yield from store.findings()
    if store.topics is not None and not is_live:
        yield from _directories(log_dir, str(path), store.topics, is_clean=is_clean)


def _without_store(log_dir: Path, path: Path, wal: Path) -> Findings:
    if os.path.lexists(wal):
        yield fault(str(path), "It is missing, and its write-ahead log is here", _MEND)
    elif any(log_dir.glob(f"*/*{names.COMPANION}")):
        yield note(
            str(path),
            "There is none, although horolog has used this directory: a start adopts all topics, "
            "without settings and committed offsets",
        )


class _StoreCheck:
    """The check of one copy."""

    def __init__(self, copy: Path, path: str) -> None:
        self.topics: list[TopicRow] | None = None
        """The stored topics, if they could all be read."""
        self._copy = copy
        self._path = path
        self._is_old = False  # rows without checksums

    def findings(self) -> Findings:
        """All that is wrong with the file and its rows."""
        if self._copy.stat().st_size == 0 and not self._copy.with_name(FILE_NAME + "-wal").exists():
            yield fault(
                self._path,
                "It is empty",
                _MEND,
            )
            return
        with self._copy.open("rb") as file:
            formats = file.read(20)[18:]
        if formats not in _FILE_FORMATS:  # SQLite reads such a file, and does not write it
            yield fault(self._path, f"It has the file formats {formats!r}", _MEND)
        try:
            with closing(sqlite3.connect(self._copy)) as db:
                db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
                problems = [
                    str(text).replace("\n", "; ")
                    for (text,) in db.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})")
                ]
                if problems != ["ok"]:
                    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
                    yield fault(self._path, f"SQLite finds it damaged: {problems[0]}{more}", _MEND)
                wrong = list(self._schema(db))
                yield from wrong
                if not wrong and not self._is_old:
                    yield from self._rows(db)
        except SQLITE_ERRORS as error:
            yield fault(self._path, f"SQLite cannot read it: {error}", _MEND)

    def _schema(self, db: sqlite3.Connection) -> Findings:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            yield fault(
                self._path,
                f"It was written by a newer horolog (schema {version}; this one reads up to "
                f"{SCHEMA_VERSION})",
                "use that horolog",
            )
            return
        (again,) = db.execute("PRAGMA application_id").fetchone()
        if is_old_schema(version, again):
            yield note(self._path, "An earlier horolog wrote it: the next start takes it over")
            self._is_old = True
            return
        expected = _columns_of_new_store()
        for table, columns in expected.items():
            there = _columns(db, table)
            if not there:
                yield fault(self._path, f"It has no table {table}", _MEND)
            elif there != columns:
                yield fault(
                    self._path, f"The table {table} has other columns than it should", _MEND
                )
        is_current = (version, again) == (SCHEMA_VERSION, application_id(SCHEMA_VERSION))
        if not is_current and all(_columns(db, table) for table in expected):
            yield fault(self._path, f"Its schema version is {version}, not {SCHEMA_VERSION}", _MEND)

    def _rows(self, db: sqlite3.Connection) -> Findings:
        topics: dict[str, int] = {}
        rows: list[TopicRow] = []
        is_whole = True
        for read_as, wrong_with in (
            (TOPICS, _sound),
            (SETTINGS, _wrong_setting),
            (GROUPS, _wrong_group),
            (OFFSETS, _wrong_offset),
            (COUNTERS, _sound),
            (QUERIES, _wrong_query),
            (SOURCES, _sound),
            (FOLLOWED, _wrong_followed),
        ):
            table = read_as.name
            wrong: list[str] = []
            count = 0
            unknown: set[str] = set()
            columns = _columns(db, table)
            for *values, stored_sum in db.execute(read_as.select):
                row = tuple(values)
                why = _wrong_type(row, columns)
                if why is None and stored_sum != checksum(table, row):
                    why = "its checksum does not match"
                why = why or _unreadable(read_as, row) or wrong_with(row, topics)
                if why is not None:
                    count += 1
                    wrong += [f"The row {_shown(row)} of {table} cannot be: {why}"][len(wrong) :]
                elif table == "topics":
                    rows.append(TOPICS.read(row))
                    topics[rows[-1].name] = rows[-1].partitions
                elif (table == "offsets" and row[1] not in topics) or (
                    table == "settings" and row[0] == TOPIC_SCOPE and row[1] not in topics
                ):
                    unknown.add(row[1])
            if wrong:
                more = f"; {count - 1} more rows are wrong" if count > 1 else ""
                yield fault(self._path, wrong[0] + more, _MEND)
                is_whole &= table != "topics"
            if unknown:
                yield note(
                    self._path,
                    f"Rows of {table} are about {len(unknown)} topics that are not stored, "
                    f"for example {min(unknown)!r}",
                )
        if is_whole:
            self.topics = rows
            yield from self._lost_rows(db)

    def _lost_rows(self, db: sqlite3.Connection) -> Findings:
        """Followed topics of which it is not known any more how far they are the source's."""
        known = {topic for (topic,) in db.execute("SELECT topic FROM followed WHERE NOT led")}
        lost = sorted(row.name for row in self.topics or () if row.followed and not row.deleting)
        for name in (name for name in lost if name not in known):
            yield fault(
                self._path,
                f"{name} is followed, and its row of followed is lost: it is not led here",
                "start the broker with horolog.follow, or promote the topic",
            )


def _columns_of_new_store() -> dict[str, list[tuple[str, str, int]]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        create_schema(db)
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master")]
        return {table: found for table in tables if (found := _columns(db, table))}


def _columns(db: sqlite3.Connection, table: str) -> list[tuple[str, str, int]]:
    """Name, type and whether NULL is refused, of each column."""
    return [(row[1], row[2], row[3]) for row in db.execute(f"PRAGMA table_info({table})")]


PartitionCounts = dict[str, int]
"""The stored topics, and how many partitions each is stored with."""


def _wrong_type(row: tuple[object, ...], columns: list[tuple[str, str, int]]) -> str | None:
    for value, (name, kind, refuses_null) in zip(row, columns[:-1], strict=True):
        if value is None and not refuses_null:
            continue
        if not isinstance(value, _TYPES[kind]):
            return f"{name} is not of type {kind}"
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return f"{name} is not UTF-8"
    return None


def _unreadable(table: Table, row: tuple[object, ...]) -> str | None:
    return _refusal(lambda: table.read(row))


def _sound(row: tuple[object, ...], known: PartitionCounts) -> str | None:
    """Nothing besides what is checked when it is read."""
    return None


def _wrong_setting(row: tuple[object, ...], known: PartitionCounts) -> str | None:
    scope, resource, name, value = map(str, row)
    if scope == TOPIC_SCOPE:
        return _refusal(lambda: topic_setting(name).read(value, name))
    if resource and not resource.isdecimal():
        return f"there is no broker {resource!r}"
    return None


def _wrong_group(row: tuple[object, ...], known: PartitionCounts) -> str | None:
    _, _, empty_since_ms = row
    if isinstance(empty_since_ms, int) and empty_since_ms < 0:
        return f"it is empty since {empty_since_ms}"
    return None


def _wrong_offset(row: tuple[object, ...], known: PartitionCounts) -> str | None:
    # Any offset and leader epoch may be committed, as in Kafka: readers take -1 for none.
    _, topic, partition, _, _, _, commit_ms, expire_ms = row
    assert isinstance(partition, int)
    partitions = known.get(str(topic), AS_FOUND)
    if not 0 <= partition <= (partitions - 1 if partitions > 0 else names.MAX_PARTITION):
        return f"{topic} has no partition {partition}"
    times = (commit_ms, expire_ms)
    return "it has a time below 0" if any(isinstance(t, int) and t < -1 for t in times) else None


def _wrong_query(row: tuple[object, ...], known: PartitionCounts) -> str | None:
    def check() -> None:
        for _, partitions in pinned_topics(str(row[-1])).values():
            if not 0 < partitions <= names.MAX_PARTITION:
                raise ValueError(f"a topic has {partitions} partitions")

    return _refusal(check)


def _wrong_followed(row: tuple[object, ...], known: PartitionCounts) -> str | None:
    _, _, led, epoch, _ = row
    assert isinstance(epoch, int)
    return None if bool(led) == (epoch >= 0) else "a followed topic is led in an epoch, or none is"


def _refusal(check: Callable[[], object]) -> str | None:
    try:
        check()
    except ValueError as error:
        return str(error)
    return None


def _shown(row: tuple[object, ...]) -> str:
    text = ", ".join(value.hex() if isinstance(value, bytes) else ascii(value) for value in row)
    return f"({text[:200]}{'...' if len(text) > 200 else ''})"


def _directories(
    log_dir: Path, path: str, rows: list[TopicRow], *, is_clean: bool
) -> Iterator[Finding]:
    """What a start would do about rows and directories that do not belong together."""
    found = _found(log_dir)
    plan = reconcile(rows, found, new_id=uuid.uuid4)
    missing: dict[str, list[int]] = {}
    for topic, index in plan.create:
        missing.setdefault(topic, []).append(index)
    for topic, indexes in missing.items():
        shown = ", ".join(f"{topic}-{index}" for index in indexes[:3])
        more = f" and {len(indexes) - 3} more" if len(indexes) > 3 else ""
        is_lost = is_clean or bool(found.get(topic))
        report = damage if is_lost else fault
        why = "" if is_lost else ", unless a kill interrupted their creation"
        yield report(
            path,
            f"{topic} is stored with {len(plan.partitions[topic])} partitions, and the directories "
            f"of {shown}{more} are gone{why}: a start creates them empty",
            "restore the directories from a backup before a broker starts",
        )
    for warning in plan.warnings:
        if not any(f"{topic} lacked the directories" in warning for topic in missing):
            yield fault(path, f"A start would log: {warning}", "restore rows or directories before")
    for row in rows:
        if row.deleting:
            yield note(
                path, f"The deletion of {row.name} is incomplete: the next start continues it"
            )
    for (topic, index), why in plan.left_alone.items():
        yield note(str(log_dir / f"{topic}-{index}"), f"It is not served: {why}")
    if plan.adopted:
        yield note(
            path,
            f"{len(plan.adopted)} topics have directories and are not stored, {plan.adopted[0]} "
            "for example: a start adopts them, and their records do not expire",
        )


def _found(log_dir: Path) -> dict[str, TopicOnDisk]:
    files = Files(read_only=True)
    ids: dict[str, dict[int, uuid.UUID | None]] = {}
    blocked: dict[str, dict[int, str]] = {}
    for each in sorted(log_dir.iterdir()):
        partition = names.partition_of(each.name)
        if partition is None or partition.topic in names.INTERNAL_TOPICS:
            continue
        topic, index = partition
        if each.is_symlink() or not each.is_dir():
            blocked.setdefault(topic, {})[index] = "it is not a directory"
            continue
        ids.setdefault(topic, {})[index] = None
        with suppress(CorruptFile, StorageFailed):  # reported with the partition
            ids[topic][index] = read_topic_id(files, str(each / names.PARTITION_METADATA))
    return {
        topic: TopicOnDisk(ids.get(topic, {}), blocked.get(topic, {})) for topic in {*ids, *blocked}
    }
