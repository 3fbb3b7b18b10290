from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from horolog.errors import Misconfigured, StorageFailed
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow
from horolog.metadata.store import (
    BROKER_SCOPE,
    FILE_NAME,
    TOPIC_SCOPE,
    MetadataStore,
    SettingRow,
    TopicRow,
)

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


def test_the_last_committed_offset_stands(store: MetadataStore, path: Path) -> None:
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
    with pytest.raises(Misconfigured, match=FILE_NAME):
        MetadataStore(path)


def test_a_newer_schema_is_refused(path: Path) -> None:
    store = MetadataStore(path)
    store._db.execute("PRAGMA user_version=99")
    store.close()
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


def test_a_commit_that_the_disk_refuses_leaves_the_next_one_free(store: MetadataStore) -> None:
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count={pages}")
    many = [OFFSET._replace(partition=n, metadata="m" * 500) for n in range(200)]
    for _ in range(2):
        with pytest.raises(StorageFailed, match="full"):
            store.write_groups([GroupChange(offsets=many)])
    assert store.load().offsets == []
    store._db.execute("PRAGMA max_page_count=1000000")
    store.write_groups([GroupChange(offsets=many)])
    assert len(store.load().offsets) == 200


def test_a_store_whose_directory_is_gone_takes_nothing(store: MetadataStore) -> None:
    store.refusal = "gone"
    with pytest.raises(StorageFailed, match="gone"):
        store.put_topic(TOPIC)
    assert store.load().topics == []
