"""What verification finds in the metadata store, without a lock and without writing a byte."""

from __future__ import annotations

import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from storelogs import NOW, open_dir

from horolog.config import TopicConfig
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow
from horolog.metadata.rows import TABLES, TopicRow
from horolog.metadata.store import FILE_NAME, MetadataStore
from horolog.metadata.verify import check_store
from horolog.storage.verify import Finding, Severity

DAMAGE, FAULT, NOTE = Severity.DAMAGE, Severity.FAULT, Severity.NOTE
ORDERS, LOGS = (uuid.UUID(int=n) for n in (7, 8))
WAL = f"{FILE_NAME}-wal"


def fill(store: MetadataStore) -> None:
    store.put_topic(TopicRow("orders", ORDERS, 3), {"retention.ms": "1000"})
    store.put_topic(TopicRow("logs", LOGS, 1), {})
    store.change_settings("broker", "", {"log.retention.ms": "5000"})
    store.reserve_producer_ids(1000, at_least=1 << 52)
    for number in range(60):
        row = OffsetRow(f"group-{number}", "orders", number % 3, number, 0, "m" * 90, NOW, None)
        group = GroupRow(f"group-{number}", "consumer", None)
        assert store.write_groups([GroupChange([group], [row])]) == [None]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Two topics and sixty groups, stopped cleanly."""
    opened = open_dir(tmp_path / "data")
    opened.create_all("orders", range(3), ORDERS, TopicConfig(), NOW)
    opened.create_all("logs", [0], LOGS, TopicConfig(), NOW)
    assert opened.close() == []
    store = MetadataStore(tmp_path / "data" / FILE_NAME)
    fill(store)
    store.close()
    return tmp_path / "data"


@pytest.fixture
def killed(log_dir: Path) -> Path:
    """The same as a kill leaves it: with a write-ahead log."""
    path = log_dir / FILE_NAME
    path.unlink()
    store = MetadataStore(path)
    fill(store)
    content = {each: each.read_bytes() for each in (path, log_dir / WAL)}
    store.close()
    for each, data in content.items():
        each.write_bytes(data)
    assert len(content[log_dir / WAL]) > 100_000
    return log_dir


def found(log_dir: Path, *, is_live: bool = False, is_clean: bool = True) -> list[Finding]:
    return list(check_store(log_dir, is_live=is_live, is_clean=is_clean))


def only(log_dir: Path, **more: bool) -> Finding:
    (finding,) = found(log_dir, **more)
    return finding


def change(path: Path, how: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    how(data)
    path.write_bytes(data)


def execute(log_dir: Path, *statements: str) -> None:
    with closing(sqlite3.connect(log_dir / FILE_NAME, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


# -- nothing wrong --------------------------------------------------------------------------


def test_what_a_broker_left_is_sound(log_dir: Path) -> None:
    assert found(log_dir) == []


def test_what_a_kill_left_is_sound(killed: Path) -> None:
    assert found(killed, is_clean=False) == []


def test_a_store_that_is_written_to_is_read_without_its_locks_and_left_as_it_is(
    log_dir: Path,
) -> None:
    def snapshot() -> dict[str, tuple[bytes, int]]:
        return {
            each.name: (each.read_bytes(), each.stat().st_mtime_ns)
            for each in log_dir.iterdir()
            if each.is_file()
        }

    with closing(sqlite3.connect(log_dir / FILE_NAME, isolation_level=None)) as db:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("DELETE FROM topics")
        before = snapshot()
        assert found(log_dir, is_live=True) == [], "the transaction is not committed"
        assert snapshot() == before
        db.execute("ROLLBACK")
    before = snapshot()
    assert found(log_dir) == []
    assert snapshot() == before


def test_a_store_that_is_checkpointed_while_it_is_copied_is_copied_again(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between file and write-ahead log, the one is brought up to date and the other emptied."""
    open_ = os.open
    store: list[MetadataStore] = []

    def open_slowly(path: str, flags: int, *more: Any, **named: Any) -> int:
        if str(path).endswith("-wal") and not store:
            store.append(MetadataStore(killed / FILE_NAME))
            execute(killed, "PRAGMA wal_checkpoint(TRUNCATE)")
            store[0].put_topic(TopicRow("logs", LOGS, 1, deleting=True))
        return open_(path, flags, *more, **named)

    monkeypatch.setattr("horolog.metadata.verify.os.open", open_slowly)
    assert "deletion of logs is incomplete" in only(killed, is_clean=False).what
    store[0].close()


def test_a_store_that_always_changes_is_said_to(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_dir / FILE_NAME
    open_ = os.open

    def open_late(name: str, flags: int, *more: Any, **named: Any) -> int:
        if str(name) == str(path):
            path.write_bytes(path.read_bytes() + bytes(4096))
        return open_(name, flags, *more, **named)

    monkeypatch.setattr("horolog.metadata.verify.os.open", open_late)
    assert only(log_dir).severity is NOTE


# -- the file -------------------------------------------------------------------------------


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


FILES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("no database" * 100),
    "half": lambda path: os.truncate(path, path.stat().st_size // 8192 * 4096),
    "less than a page": lambda path: os.truncate(path, 1000),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a page of zeros": lambda path: change(
        path, lambda d: d.__setitem__(slice(4096, 8192), bytes(4096))
    ),
    "a root page flipped": lambda path: change(path, lambda d: d.__setitem__(4096, d[4096] ^ 0xFF)),
    "first byte": lambda path: change(path, lambda d: d.__setitem__(0, 0)),
    "a fifo": make_fifo,
    "a link": make_link,
    "a directory": make_directory,
}


@pytest.mark.parametrize("how", FILES)
def test_a_damaged_file_is_reported_with_what_can_be_done(log_dir: Path, how: str) -> None:
    FILES[how](log_dir / FILE_NAME)
    seen = found(log_dir)
    assert seen
    assert {each.severity for each in seen} == {FAULT}
    assert all(each.path == str(log_dir / FILE_NAME) and each.mend for each in seen)


def test_a_store_that_is_gone_is_reported_where_horolog_was_at_work(log_dir: Path) -> None:
    (log_dir / FILE_NAME).unlink()
    finding = only(log_dir)
    assert finding.severity is NOTE
    assert "without settings and committed offsets" in finding.what
    for seal in log_dir.glob("*/*.companion"):
        seal.unlink()
    assert found(log_dir) == []


def test_a_write_ahead_log_without_its_file_is_a_fault(killed: Path) -> None:
    (killed / FILE_NAME).unlink()
    assert only(killed).severity is FAULT


FRAME = 24 + 4096


@pytest.mark.parametrize(
    "place", [5, 20, 33, 32 + 4, 32 + 9, 32 + 17, 32 + 500, 32 + 5 * FRAME + 9]
)
def test_damage_in_the_write_ahead_log_is_reported_though_sqlite_passes_over_it(
    killed: Path, place: int
) -> None:
    change(killed / WAL, lambda data: data.__setitem__(place, data[place] ^ 0x41))
    seen = [each for each in found(killed) if each.path.endswith("-wal")]
    assert [each.severity for each in seen] == [FAULT]
    assert "lost" in seen[0].what or "ignores" in seen[0].what


@pytest.mark.parametrize("cut", [1, 100, FRAME - 1, FRAME, FRAME + 7])
def test_a_write_that_a_kill_cut_short_is_no_fault(killed: Path, cut: int) -> None:
    os.truncate(killed / WAL, (killed / WAL).stat().st_size - cut)
    assert found(killed, is_clean=False) == []


def test_frames_of_an_earlier_round_are_no_fault(killed: Path) -> None:
    """A checkpoint lets SQLite write from the start of the log again, over old frames."""
    store = MetadataStore(killed / FILE_NAME)
    execute(killed, "PRAGMA wal_checkpoint(RESTART)")
    store.change_settings("broker", "", {"log.retention.ms": "6000"})
    copies = {each: each.read_bytes() for each in (killed / FILE_NAME, killed / WAL)}
    store.close()
    for path, data in copies.items():
        path.write_bytes(data)
    assert found(killed, is_clean=False) == []


# -- its rows -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 99",
        "PRAGMA user_version = 0",
        "DROP TABLE offsets",
        "ALTER TABLE offsets DROP COLUMN metadata",
        "UPDATE topics SET name = 'a/b' WHERE name = 'logs'",
        "UPDATE topics SET name = CAST(x'ff' AS TEXT) WHERE name = 'logs'",
        "UPDATE topics SET topic_id = x'00' WHERE name = 'logs'",
        "UPDATE topics SET topic_id = 'sixteen letters!' WHERE name = 'logs'",
        "UPDATE topics SET partitions = -1 WHERE name = 'logs'",
        "UPDATE topics SET partitions = 1 << 40 WHERE name = 'logs'",
        "UPDATE topics SET partitions = 'many' WHERE name = 'logs'",
        "UPDATE topics SET adopted = 7 WHERE name = 'logs'",
        "UPDATE settings SET value = 'soon' WHERE scope = 'topic'",
        "UPDATE settings SET name = 'no.such' WHERE scope = 'topic'",
        "UPDATE settings SET scope = 'moon' WHERE scope = 'topic'",
        "UPDATE settings SET resource = 'x' WHERE scope = 'broker'",
        "UPDATE groups SET empty_since_ms = -5 WHERE group_id = 'group-1'",
        "UPDATE offsets SET partition = 3 WHERE group_id = 'group-1'",
        "UPDATE offsets SET partition = -1 WHERE group_id = 'group-1'",
        "UPDATE offsets SET committed = 'x' WHERE group_id = 'group-1'",
        "UPDATE offsets SET leader_epoch = 'x' WHERE group_id = 'group-1'",
        "UPDATE offsets SET commit_ms = -9 WHERE group_id = 'group-1'",
        "UPDATE counters SET value = -9",
        "UPDATE counters SET value = 'x'",
    ],
)
@pytest.mark.parametrize("has_checksum", [False, True])
def test_a_row_that_cannot_be_is_a_fault(log_dir: Path, statement: str, has_checksum: bool) -> None:
    execute(log_dir, "PRAGMA ignore_check_constraints = ON", statement)
    if has_checksum:
        sum_again(log_dir)
    finding = found(log_dir)[0]
    assert finding.severity is FAULT
    assert finding.mend


def sum_again(log_dir: Path) -> None:
    """Give every row that can be read the checksum of what it is now."""
    with closing(sqlite3.connect(log_dir / FILE_NAME, isolation_level=None)) as db:
        for table in TABLES:
            with suppress(sqlite3.Error):
                rows = list(db.execute(f"SELECT * FROM {table.name}"))
                db.executemany(table.insert, (table.checked(row[:-1]) for row in rows))


def test_a_row_that_is_not_what_was_written_is_a_fault(log_dir: Path) -> None:
    execute(log_dir, "UPDATE offsets SET committed = 5 WHERE group_id = 'group-1'")
    assert only(log_dir).severity is FAULT
    assert "checksum does not match" in only(log_dir).what


def test_rows_about_topics_that_are_not_stored_are_reported(log_dir: Path) -> None:
    execute(log_dir, "UPDATE offsets SET topic = 'gone' WHERE group_id = 'group-1'")
    sum_again(log_dir)
    assert (only(log_dir).severity, "'gone'" in only(log_dir).what) == (NOTE, True)


# -- and its directories --------------------------------------------------------------------


def test_a_partition_that_is_gone_is_damage(log_dir: Path) -> None:
    shutil.rmtree(log_dir / "orders-1")
    finding = only(log_dir)
    assert finding.severity is DAMAGE
    assert "orders-1" in finding.what


def test_a_topic_without_directories_may_be_one_that_a_kill_kept_from_being_made(
    log_dir: Path,
) -> None:
    shutil.rmtree(log_dir / "logs-0")
    assert only(log_dir, is_clean=True).severity is DAMAGE
    assert only(log_dir, is_clean=False).severity is FAULT
    assert found(log_dir, is_live=True) == []


def test_directories_with_another_topic_id_are_reported(log_dir: Path) -> None:
    metadata = log_dir / "logs-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ\n")
    assert only(log_dir).severity is FAULT
    assert "adopted as it is on disk" in only(log_dir).what


def test_a_topic_that_is_not_stored_is_reported(log_dir: Path) -> None:
    execute(log_dir, "DELETE FROM topics WHERE name = 'logs'")
    assert (only(log_dir).severity, "logs" in only(log_dir).what) == (NOTE, True)


# -- any bytes at all -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("sound") / FILE_NAME
    store = MetadataStore(path)
    fill(store)
    store.close()
    return path, path.read_bytes()


@example(changes=[(18, 0)])
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=3
    )
)
def test_whatever_happens_to_the_bytes_a_store_that_cannot_be_loaded_is_reported(
    sound: tuple[Path, bytes], changes: list[tuple[int, int]]
) -> None:
    path, good = sound
    content = bytearray(good)
    for at, byte in changes:
        content[at % len(content)] = byte
    path.write_bytes(content)
    told = list(check_store(path.parent, is_live=True))
    for leftover in path.parent.glob(f"{FILE_NAME}-*"):
        leftover.unlink()
    try:
        store = MetadataStore(path)
        with closing(store):
            store.load()
    except Exception:  # noqa: BLE001 - whatever a start would meet
        assert [each for each in told if each.severity is not NOTE]
    finally:
        for leftover in path.parent.glob(f"{FILE_NAME}-*"):
            leftover.unlink()
