import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from horolog.errors import Misconfigured, RequestRefused, StorageFailed
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow
from horolog.metadata.rows import (
    BROKER_SCOPE,
    TOPIC_SCOPE,
    FollowedRow,
    SettingRow,
    SourceRow,
    TopicRow,
)
from horolog.metadata.store import FILE_NAME, MetadataStore, StoreDamaged

SOURCE = SourceRow("source-id", "kafka:9092", ".*", "")
TOPIC = TopicRow("t", UUID(int=7), 3)
OFFSET = OffsetRow("g", "t", 0, 45, 2, "note", 1_700_000_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture
def store(path: Path) -> Iterator[MetadataStore]:
    store = MetadataStore(path)
    yield store
    store.close()


def reopened(path: Path) -> MetadataStore:
    """Another view of the file, as after a kill: the first was never closed."""
    return MetadataStore(path)


def test_a_topic_comes_back_with_its_settings(store: MetadataStore, path: Path) -> None:
    store.put_topic(TOPIC, {"retention.ms": "5", "segment.ms": "6"})
    store.change_settings(TOPIC_SCOPE, "t", {"segment.ms": None, "retention.ms": "7"})
    again = reopened(path)
    stored = again.load()
    again.close()
    assert stored.topics == [TOPIC]
    assert stored.settings == [SettingRow(TOPIC_SCOPE, "t", "retention.ms", "7")]


def test_replacing_a_topic_keeps_its_settings_unless_new_ones_are_given(
    store: MetadataStore,
) -> None:
    store.put_topic(TOPIC, {"retention.ms": "5"})
    store.put_topic(TOPIC._replace(partitions=4))
    assert store.load().topics == [TOPIC._replace(partitions=4)]
    assert len(store.load().settings) == 1
    store.put_topic(TOPIC, {})
    assert store.load().settings == []


def test_a_forgotten_topic_takes_settings_and_offsets_along(store: MetadataStore) -> None:
    store.put_topic(TOPIC, {"retention.ms": "5"})
    store.change_settings(BROKER_SCOPE, "", {"log.retention.ms": "9"})
    other = OFFSET._replace(topic="other")
    store.write_groups([GroupChange(offsets=[OFFSET, other])])
    store.forget_topic("t")
    stored = store.load()
    assert stored.topics == []
    assert stored.settings == [SettingRow(BROKER_SCOPE, "", "log.retention.ms", "9")]
    assert stored.offsets == [other]


def test_a_topic_is_created_promoted_and_forgotten_with_what_it_is_at_the_source(
    store: MetadataStore,
) -> None:
    row = FollowedRow("t", TOPIC.topic_id, False, -1, '{"retention.ms": "5"}')
    store.put_source(SOURCE)
    store.put_topic(TOPIC._replace(followed=True), {"retention.ms": "5"}, row)
    stored = store.load()
    assert stored.topics == [TOPIC._replace(followed=True)]
    assert (stored.source, stored.followed) == (SOURCE, (row,))
    store.forget_topic("t")
    assert store.load().followed == ()
    promoted = row._replace(led=True, epoch=7)
    store.put_topic(TOPIC, None, promoted)
    store.forget_topic("t")
    kept = (FollowedRow("t", None, True, 0, "{}"),)
    assert store.load().followed == kept, "it is not followed again, and one of its name is new"


def test_one_cluster_is_followed_at_a_time(store: MetadataStore) -> None:
    store.put_source(SOURCE)
    other = SOURCE._replace(cluster_id="other", ended=True)
    store.put_source(other)
    assert store.load().source == other


@contextmanager
def full_disk(longest: int) -> Iterator[None]:
    """No file can grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_topic_is_deleted_on_a_full_disk(store: MetadataStore, path: Path) -> None:
    store.put_topic(TOPIC, {"retention.ms": "5"})
    for _ in range(40):
        store.write_groups([GroupChange(offsets=[OFFSET])])
    size = Path(f"{path}-wal").stat().st_size
    with full_disk(size):
        (error,) = store.write_groups([GroupChange(offsets=[OFFSET])])
        assert isinstance(error, StorageFailed)
        with pytest.raises(StorageFailed):
            store.put_topic(TOPIC._replace(name="more"))
        store.put_topic(TOPIC._replace(deleting=True))
        store.forget_topic("t")
        assert Path(f"{path}-wal").stat().st_size == size
    again = reopened(path)
    assert again.load().topics == []
    assert again.load().offsets == []
    again.close()


def test_no_producer_id_beyond_the_largest_is_given_out(store: MetadataStore) -> None:
    store.raise_producer_ids((1 << 63) - 1000)
    with pytest.raises(RequestRefused, match="No producer id is left"):
        store.reserve_producer_ids(1000, at_least=0)
    store.raise_producer_ids(1 << 63)
    with pytest.raises(RequestRefused, match="No producer id is left"):
        store.reserve_producer_ids(1, at_least=0)


def test_the_last_committed_offset_is_kept(store: MetadataStore, path: Path) -> None:
    store.write_groups([GroupChange(groups=[GroupRow("g", "consumer", None)], offsets=[OFFSET])])
    store.write_groups(
        [
            GroupChange(
                groups=[GroupRow("g", "consumer", 5)],
                offsets=[OFFSET._replace(committed=46, expire_ms=9)],
            )
        ]
    )
    again = reopened(path)
    stored = again.load()
    again.close()
    assert stored.offsets == [OFFSET._replace(committed=46, expire_ms=9)]
    assert stored.groups == [GroupRow("g", "consumer", 5)]


def test_offsets_and_groups_are_dropped(store: MetadataStore) -> None:
    offsets = [OFFSET, OFFSET._replace(partition=1), OFFSET._replace(group_id="h")]
    store.write_groups(
        [GroupChange(groups=[GroupRow("g", "", None), GroupRow("h", "", None)], offsets=offsets)]
    )
    store.write_groups([GroupChange(dropped_offsets=[("g", "t", 1)])])
    assert len(store.load().offsets) == 2
    store.write_groups([GroupChange(dropped_groups=["g"])])
    stored = store.load()
    assert stored.offsets == [offsets[2]]
    assert stored.groups == [GroupRow("h", "", None)]


def test_a_producer_id_is_never_given_twice(store: MetadataStore, path: Path) -> None:
    assert store.reserve_producer_ids(1000, at_least=0) == 0
    again = reopened(path)
    assert again.reserve_producer_ids(1000, at_least=0) == 1000
    assert again.reserve_producer_ids(1000, at_least=70_000) == 70_000
    assert again.reserve_producer_ids(1000, at_least=5) == 71_000
    again.close()


def test_a_file_that_is_not_a_database_is_named(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(StoreDamaged, match=FILE_NAME):
        MetadataStore(path)


def test_a_file_that_is_in_use_is_not_taken_for_damaged(path: Path) -> None:
    MetadataStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Misconfigured, match="database is locked"):
            MetadataStore(path)


def test_a_newer_schema_is_refused(path: Path) -> None:
    MetadataStore(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=99")
        database.execute(f"PRAGMA application_id={0x686D0000 | 99}")
    with pytest.raises(Misconfigured, match="newer horolog"):
        MetadataStore(path)


def test_a_kill_at_any_byte_of_a_commit_leaves_what_was_before_or_after_it(
    store: MetadataStore, path: Path, tmp_path: Path
) -> None:
    """Commits are appended to the write-ahead log: a kill leaves some first part of it."""
    wal = Path(f"{path}-wal")
    commits = [
        lambda: store.put_topic(TOPIC, {"retention.ms": "5", "segment.bytes": "9"}),
        lambda: store.write_groups([GroupChange([GroupRow("g", "", None)], [OFFSET])]),
        lambda: store.reserve_producer_ids(1000, at_least=0),
        lambda: store.put_topic(TOPIC._replace(deleting=True)),
        lambda: store.forget_topic("t"),
    ]
    states, ends = [store.load()], [wal.stat().st_size]
    for commit in commits:
        commit()
        states.append(store.load())
        ends.append(wal.stat().st_size)
    whole, database = wal.read_bytes(), path.read_bytes()
    assert ends == sorted(ends)
    killed = tmp_path / "killed.sqlite"
    for size in [*range(ends[0], len(whole), 509), *ends, *(end - 1 for end in ends[1:])]:
        killed.write_bytes(database)
        Path(f"{killed}-wal").write_bytes(whole[:size])
        Path(f"{killed}-shm").unlink(missing_ok=True)
        again = MetadataStore(killed)
        found = again.load()
        again.reserve_producer_ids(1, at_least=0)
        again.close()
        written = sum(end <= size for end in ends[1:])
        assert found == states[written], f"killed after {size} of {len(whole)} bytes"


def test_a_commit_that_the_disk_refuses_leaves_the_next_one_free(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*args: Any, **more: Any) -> sqlite3.Connection:
        connected.append(connect(*args, **more))
        return connected[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    store = MetadataStore(path)
    database = connected[-1]  # a limit counts for the connection that sets it
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count={pages}")
    many = [OFFSET._replace(partition=n, metadata="m" * 500) for n in range(200)]
    for _ in range(2):
        (error,) = store.write_groups([GroupChange(offsets=many)])
        assert isinstance(error, StorageFailed)
        assert "full" in str(error)
    assert store.load().offsets == []
    database.execute("PRAGMA max_page_count=1000000")
    assert store.write_groups([GroupChange(offsets=many)]) == [None]
    assert len(store.load().offsets) == 200
    store.close()


@pytest.mark.parametrize(
    "bad",
    [
        OFFSET._replace(partition=9, expire_ms=1 << 63),
        OFFSET._replace(partition=9, committed=-(1 << 63) - 1),
        OFFSET._replace(partition=9, metadata="\ud800"),
        OFFSET._replace(partition=9, group_id="\udfff"),
    ],
)
def test_a_change_that_cannot_be_stored_fails_alone(store: MetadataStore, bad: OffsetRow) -> None:
    good = [OFFSET._replace(partition=n) for n in range(8)]
    changes = [GroupChange(offsets=[row]) for row in good]
    changes.insert(3, GroupChange([GroupRow("new", "", None)], [OFFSET._replace(partition=8), bad]))
    errors = store.write_groups(changes)
    assert [error is None for error in errors] == [True] * 3 + [False] + [True] * 5
    assert isinstance(errors[3], RequestRefused)
    assert store.load().offsets == good
    assert store.load().groups == []


@pytest.mark.parametrize(
    "row",
    [
        OffsetRow("g", "t", 2**31 - 1, 2**63 - 1, -1, "", 2**63 - 1, 2**63 - 1),
        OffsetRow("g", "t", 0, -(2**63), -(2**31), "a\0b", -(2**63), 0),
        OffsetRow("g\0h", "t", 0, 1, 2, "\U0010ffff" * 9_000, 3),
        OffsetRow("g" * 32_767, "t", 0, 1, 2, "\ufffd", 3),
    ],
)
def test_offsets_at_the_edges_of_their_types_come_back(
    store: MetadataStore, path: Path, row: OffsetRow
) -> None:
    beside = row._replace(group_id="g")
    assert store.write_groups([GroupChange(offsets=[row, beside])]) == [None]
    store.close()
    again = MetadataStore(path)
    assert set(again.load().offsets) == {row, beside}
    again.write_groups([GroupChange(dropped_offsets=[(row.group_id, row.topic, row.partition)])])
    assert again.load().offsets == ([beside] if beside != row else [])
    again.close()


def test_a_new_topic_has_no_offsets_of_one_whose_deletion_was_not_finished(
    store: MetadataStore,
) -> None:
    store.put_topic(TOPIC)
    store.write_groups([GroupChange(offsets=[OFFSET])])
    store.put_topic(TOPIC._replace(partitions=9))
    store.put_topic(TOPIC._replace(deleting=True))
    assert store.load().offsets == [OFFSET]
    store.put_topic(TOPIC._replace(topic_id=UUID(int=8)), {})
    assert store.load().offsets == []


def test_a_store_whose_directory_is_gone_takes_nothing(store: MetadataStore) -> None:
    store.refusal = "gone"
    with pytest.raises(StorageFailed, match="gone"):
        store.put_topic(TOPIC)
    assert store.load().topics == []
