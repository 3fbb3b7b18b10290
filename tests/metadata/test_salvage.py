import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from damage import DAMAGES
from partition_files import flip

from horolog.errors import Misconfigured
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow
from horolog.metadata.rows import (
    BROKER_SCOPE,
    TOPIC_SCOPE,
    FollowedRow,
    QueryRow,
    SettingRow,
    SourceRow,
    Stored,
    TopicRow,
    topics_text,
)
from horolog.metadata.salvage import open_store
from horolog.metadata.store import FILE_NAME, FIRST_SCHEMA_VERSION, MetadataStore
from horolog.metadata.verify import check_store
from horolog.storage.verify import Severity

NOW_MS = 1_700_000_000_000
FIRST = 1 << 52
PAGE = 4096

TOPIC_ROWS = [
    TopicRow(f"topic-{n}", UUID(int=n + 1), n % 7 + 1, adopted=n % 5 == 0, deleting=n == 33)
    for n in range(150)
]
OFFSET_ROWS = [
    OffsetRow(f"group-{n % 9}", f"topic-{n % 150}", n, n * 7, -1, "m" * (n % 40), NOW_MS + n)
    for n in range(900)
]
SOURCE = SourceRow("source-id", "kafka:9092", "topic-.*", "/etc/client.properties")
FOLLOWED_ROW = FollowedRow("topic-1", UUID(int=2), False, -1, '{"retention.ms": "5"}')
GROUP_ROWS = [GroupRow(f"group-{n}", "consumer", NOW_MS if n % 2 else None) for n in range(9)]


def fill(path: Path) -> None:
    store = MetadataStore(path)
    for row in TOPIC_ROWS:
        store.put_topic(row, {"retention.ms": "-1", "segment.ms": "60000"})
    store.change_settings(BROKER_SCOPE, "", {"log.retention.ms": "-1"})
    assert store.write_groups([GroupChange(GROUP_ROWS, OFFSET_ROWS)]) == [None]
    assert store.reserve_producer_ids(5000, FIRST) == FIRST
    store.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store with rows on many pages."""
    path = tmp_path_factory.mktemp("sound") / FILE_NAME
    fill(path)
    assert not Path(f"{path}-wal").exists()
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, sound: bytes) -> Path:
    path = tmp_path / "outer" / "log" / FILE_NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(sound)
    return path


def opened(path: Path) -> tuple[Stored, int]:
    """What is in the store, and the producer id that it gives next."""
    store, stored = open_store(path, FIRST, NOW_MS)
    try:
        return stored, store.reserve_producer_ids(0, FIRST)
    finally:
        store.close()


def whole() -> Stored:
    settings = [
        SettingRow(TOPIC_SCOPE, row.name, name, value)
        for row in TOPIC_ROWS
        for name, value in (("retention.ms", "-1"), ("segment.ms", "60000"))
    ]
    settings.append(SettingRow(BROKER_SCOPE, "", "log.retention.ms", "-1"))
    return Stored(TOPIC_ROWS, settings, GROUP_ROWS, OFFSET_ROWS)


def assert_nothing_is_made_up(found: Stored) -> None:
    """Each row is one that was written; where one may be missing, nothing can expire."""
    complete = whole()
    written = {row.name: row for row in complete.topics}
    for row in found.topics:
        before = written[row.name]
        same = row._replace(adopted=before.adopted, is_salvaged=False)
        assert same == before
        assert row.adopted >= before.adopted
    assert set(found.settings) <= set(complete.settings)
    assert set(found.groups) <= set(complete.groups)
    assert set(found.offsets) <= set(complete.offsets)
    lacks = len(found.topics) < len(complete.topics) or len(found.settings) < len(complete.settings)
    if lacks:
        assert found.is_salvaged
        assert all(row.adopted and row.is_salvaged for row in found.topics if not row.deleting)


def test_a_sound_store_is_opened_as_it_is(path: Path) -> None:
    stored, next_id = opened(path)
    assert sorted(stored.topics) == sorted(TOPIC_ROWS)
    assert sorted(stored.settings) == sorted(whole().settings)
    assert sorted(stored.offsets) == sorted(OFFSET_ROWS)
    assert (next_id, stored.is_salvaged) == (FIRST + 5000, False)
    assert [each.name for each in path.parent.iterdir()] == [FILE_NAME]


def test_wherever_a_bit_is_flipped_nothing_is_made_up_and_nothing_lost_in_silence(
    path: Path, sound: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(7)
    places = [*range(0, 100, 7), *(page * PAGE + n for page in range(1, 6) for n in (0, 3, 8))]
    places += [rng.randrange(len(sound)) for _ in range(60)]
    salvaged = 0
    for place in places:
        for each in path.parent.iterdir():
            each.unlink()
        path.write_bytes(sound)
        flip(path, place, 1 << rng.randrange(8))
        caplog.clear()
        stored, next_id = opened(path)
        assert_nothing_is_made_up(stored)
        assert next_id >= FIRST + 5000
        is_whole = not stored.is_salvaged and len(stored.offsets) == len(OFFSET_ROWS)
        is_whole = is_whole and len(stored.groups) == len(GROUP_ROWS)
        assert is_whole or "A new file was made from the readable rows" in caplog.text
        if f"{path}.1.set-aside" in caplog.text:
            salvaged += 1
            if not PAGE <= place < 6 * PAGE:  # where the trees of the tables have their roots
                assert len(stored.topics) + len(stored.offsets) > 500, "most can be read"
            assert opened(path)[0] == stored
    assert salvaged > 20


@pytest.mark.parametrize("table", ["topics", "settings", "groups", "offsets", "counters"])
def test_sql_that_is_no_text_stops_no_start(path: Path, sound: bytes, table: str) -> None:
    """SQLite quotes it in its message, which cannot be decoded either."""
    start = sound.index(b"CREATE TABLE " + table.encode())
    for place in range(start, start + 60, 3):
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        path.write_bytes(sound)
        flip(path, place, 0x80)
        told = [each.severity for each in check_store(path.parent)]
        stored, next_id = opened(path)
        assert_nothing_is_made_up(stored)
        assert next_id >= FIRST + 5000
        assert len(stored.topics) == len(TOPIC_ROWS)
        assert Severity.FAULT in told


@pytest.mark.parametrize("how", DAMAGES)
def test_no_damage_stops_a_start(path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    DAMAGES[how](path)
    if how.startswith("link"):
        for _ in range(2):
            with pytest.raises(Misconfigured, match="is a symbolic link"):
                open_store(path, FIRST, NOW_MS)
        return
    stored, next_id = opened(path)
    assert_nothing_is_made_up(stored)
    assert next_id >= FIRST + 5000
    assert opened(path)[0] == stored
    assert sorted(each.name for each in path.parent.iterdir()) == [
        FILE_NAME,
        f"{FILE_NAME}.1.set-aside",
    ] or (stored == opened(path)[0] and "set-aside" not in caplog.text)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".tmp"])
def test_damage_to_files_next_to_the_store_loses_no_row_of_it(
    path: Path, suffix: str, how: str
) -> None:
    beside = Path(f"{path}{suffix}")
    beside.write_bytes(b"0\n1\nx 0 1\n")
    DAMAGES[how](beside)
    stored, next_id = opened(path)
    assert sorted(stored.topics) == sorted(TOPIC_ROWS)
    assert next_id == FIRST + 5000


@pytest.mark.parametrize("page", range(6))
def test_a_page_of_zeros_costs_only_what_is_on_it(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek(page * PAGE)
        file.write(bytes(PAGE))
    stored, next_id = opened(path)
    assert_nothing_is_made_up(stored)
    assert next_id >= FIRST + 5000
    if page == 0:  # says only where the tables begin, which is always the same
        assert sorted(stored.offsets) == sorted(OFFSET_ROWS)
        assert len(stored.topics) == len(TOPIC_ROWS)


def test_a_row_that_was_changed_by_hand_is_left_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE topics SET deleting = 1 WHERE name = 'topic-5'")
        db.execute("INSERT INTO topics VALUES ('../../evil', zeroblob(16), 1, 0, 0, 1)")
    db.close()
    stored, _ = opened(path)
    assert {row.name for row in TOPIC_ROWS} - {row.name for row in stored.topics} == {"topic-5"}
    assert_nothing_is_made_up(stored)
    assert "2 row(s) of topics are damaged and left out" in caplog.text


def test_damage_in_offsets_lets_topics_expire_as_before(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE offsets SET committed = 8 WHERE partition = 10")
    db.close()
    stored, next_id = opened(path)
    assert sorted(stored.topics) == sorted(TOPIC_ROWS)
    assert (next_id, stored.is_salvaged) == (FIRST + 5000, False)
    assert len(stored.offsets) == len(OFFSET_ROWS) - 1
    assert "Consumer groups may have to start from their auto.offset.reset" in caplog.text


def test_a_lost_counter_repeats_no_producer_id(path: Path) -> None:
    store = MetadataStore(path)
    given = store.reserve_producer_ids(1_000_000, FIRST) + 1_000_000
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE counters SET value = 3")
    db.close()
    _, next_id = opened(path)
    assert given < next_id < 1 << 53


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Have the process die before the given change of a name."""

    def die_at(number: int) -> None:
        left = [number]

        def counted(real: Callable[..., None]) -> Callable[..., None]:
            def change(*args: object) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
                real(*args)

            return change

        monkeypatch.setattr(os, "replace", counted(replace))
        monkeypatch.setattr(os, "unlink", counted(unlink))

    replace, unlink = os.replace, os.unlink
    yield die_at
    monkeypatch.undo()


def test_a_kill_at_any_step_of_a_salvage_loses_nothing_more(
    path: Path, sound: bytes, steps: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(path, 3 * PAGE + 2)
    damaged = path.read_bytes()
    expected, _ = opened(path)
    killed = 0
    for number in range(100):
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        path.write_bytes(damaged)
        steps(number)
        try:
            open_store(path, FIRST, NOW_MS)[0].close()
        except KeyboardInterrupt:
            killed += 1
        else:
            break
        finally:
            monkeypatch.undo()
        assert opened(path)[0] == expected
        asides = list(path.parent.glob("*.set-aside"))
        assert [each.read_bytes() for each in asides] == [damaged]
    assert killed > 5


def test_the_write_ahead_log_of_a_damaged_store_counts(path: Path) -> None:
    live = MetadataStore(path)
    more = TopicRow("one-more", UUID(int=999), 3)
    live.put_topic(more, {})
    wal = Path(f"{path}-wal").read_bytes()
    damaged = path.with_name("copy.sqlite")
    shutil.copy(path, damaged)
    Path(f"{damaged}-wal").write_bytes(wal)
    live.close()
    flip(damaged, 0)
    stored, _ = opened(damaged)
    assert "one-more" in {row.name for row in stored.topics}


def test_commits_that_sqlite_ignores_are_named_and_kept(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = MetadataStore(path)
    for n in range(5):
        live.put_topic(TopicRow(f"more-{n}", UUID(int=900 + n), 3), {})
    killed = path.with_name("killed.sqlite")
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{killed}{suffix}")
    live.close()
    wal = Path(f"{killed}-wal")
    flip(wal, wal.stat().st_size // 2)
    before = wal.read_bytes()
    stored, _ = opened(killed)
    assert "more-0" in {row.name for row in stored.topics}
    assert "more-4" not in {row.name for row in stored.topics}
    assert "SQLite ignores it and all that was committed" in caplog.text
    assert Path(f"{killed}.1.set-aside-wal").read_bytes() == before


def test_a_log_without_its_store_is_not_taken_for_that_of_a_new_one(path: Path) -> None:
    live = MetadataStore(path)
    live.put_topic(TopicRow("one-more", UUID(int=999), 3), {})
    wal = Path(f"{path}-wal").read_bytes()
    live.close()
    path.unlink()
    Path(f"{path}-wal").write_bytes(wal)
    stored, _ = opened(path)
    assert stored == Stored([], [], [], [])
    assert Path(f"{path}.1.set-aside-wal").read_bytes() == wal


OLD_SCHEMA = """
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
PRAGMA user_version=1;
"""


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_store_of_the_first_schema_is_taken_over(
    tmp_path: Path, is_damaged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without checksums: in a damaged one no row that says to delete is obeyed."""
    path = tmp_path / FILE_NAME
    rows = [TopicRow("t", UUID(int=1), 3), TopicRow("gone", UUID(int=2), 1, deleting=True)]
    with sqlite3.connect(path) as db:
        db.executescript(OLD_SCHEMA)
        for row in rows:
            values = (row.name, row.topic_id.bytes, row.partitions, row.adopted, row.deleting)
            db.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?)", values)
        db.execute("INSERT INTO settings VALUES ('topic', 't', 'retention.ms', '-1')")
        db.execute("INSERT INTO counters VALUES ('next_producer_id', ?)", (FIRST + 7,))
        if is_damaged:
            db.execute("INSERT INTO topics VALUES ('../../evil', zeroblob(16), 1, 0, 0)")
            db.execute("INSERT INTO offsets VALUES ('g', 't', 0, 1, 2, CAST(x'ff' AS TEXT), 3, 4)")
    db.close()
    stored, next_id = opened(path)
    assert stored.settings == [SettingRow(TOPIC_SCOPE, "t", "retention.ms", "-1")]
    assert next_id >= FIRST + 7
    if is_damaged:
        held = [row._replace(deleting=False, adopted=True, is_salvaged=True) for row in rows]
        assert sorted(stored.topics) == sorted(held)
        assert "The deletion of gone may be a damaged row" in caplog.text
    else:
        assert sorted(stored.topics) == sorted(rows)
        assert not stored.is_salvaged
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_store_of_the_second_schema_is_taken_over_whole(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, next_id = opened(path)
    with sqlite3.connect(path) as db:
        for table in ("queries", "sources", "followed"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version=2")
        db.execute(f"PRAGMA application_id={0x686D0000 | 2}")
    db.close()
    after, later_id = opened(path)
    assert after == before
    assert later_id >= next_id
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    store, stored = open_store(path, FIRST, NOW_MS)
    topics = topics_text({"t": (UUID(int=1), 4)})
    row = QueryRow("q", 1, 2, 3, -1, NOW_MS, 7, 1, 1000, "r", 0, "[3]", topics)
    store.put_query(row)
    store.close()
    assert opened(path)[0] == stored._replace(queries=(row,))


def test_a_store_of_the_third_schema_is_taken_over_whole(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MetadataStore(path)
    store.put_query(QueryRow("q", 1, 2, 3, -1, NOW_MS, 7, 1, 1000, "r", 0, "[3]", "{}"))
    store.close()
    before, next_id = opened(path)
    with sqlite3.connect(path) as db:
        for table in ("sources", "followed"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version=3")
        db.execute(f"PRAGMA application_id={0x686D0000 | 3}")
    db.close()
    assert opened(path) == (before, next_id)
    assert len(before.queries) == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    store, _ = open_store(path, FIRST, NOW_MS)
    store.put_source(SOURCE)
    store.put_topic(TOPIC_ROWS[1]._replace(followed=True), None, FOLLOWED_ROW)
    store.close()
    again, _ = opened(path)
    assert (again.source, again.followed) == (SOURCE, (FOLLOWED_ROW,))


def test_a_followed_topic_is_known_as_one_whichever_of_its_rows_is_lost(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MetadataStore(path)
    store.put_source(SOURCE)
    store.put_topic(TOPIC_ROWS[1]._replace(followed=True), None, FOLLOWED_ROW)
    store.close()
    sound = path.read_bytes()
    for table, column in (("topics", "name"), ("followed", "topic")):
        path.write_bytes(sound)
        with sqlite3.connect(path) as db:
            db.execute(f"UPDATE {table} SET checksum = 0 WHERE {column} = ?", (FOLLOWED_ROW.topic,))
        db.close()
        findings = [each.what for each in check_store(path.parent)]
        assert any("its checksum does not match" in what for what in findings)
        stored, _ = opened(path)
        rows = [row for row in stored.topics if row.name == FOLLOWED_ROW.topic]
        if table == "topics":
            assert (rows, stored.followed) == ([], (FOLLOWED_ROW,))
        else:
            assert ([row.followed for row in rows], stored.followed) == ([True], ())
            assert "are not led here until they are followed again or promoted" in caplog.text
            findings = [each.what for each in check_store(path.parent)]
            assert any("its row of followed is lost" in what for what in findings)
        assert stored.source == SOURCE


def test_a_flipped_schema_version_hides_no_followed_topic(path: Path) -> None:
    store = MetadataStore(path)
    store.put_source(SOURCE)
    store.put_topic(TOPIC_ROWS[1]._replace(followed=True), None, FOLLOWED_ROW)
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=3")
    db.close()
    stored, _ = opened(path)
    assert (stored.source, stored.followed) == (SOURCE, (FOLLOWED_ROW,))


def test_a_store_that_a_later_version_wrote_is_neither_read_nor_moved(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=5")
        db.execute(f"PRAGMA application_id={0x686D0000 | 5}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(Misconfigured, match="newer horolog"):
        open_store(path, FIRST, NOW_MS)
    assert path.read_bytes() == before
    assert FIRST_SCHEMA_VERSION == 1
