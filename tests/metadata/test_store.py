import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from faultyfiles import FaultyFiles, Killed

from horolog.buffers import Buffer
from horolog.errors import RequestRefused, StorageFailed
from horolog.metadata import (
    AS_FOUND,
    BROKER_SCOPE,
    GROUP_SCOPE,
    TOPIC_SCOPE,
    FollowedRow,
    MetadataLog,
    MetadataStore,
    Reserve,
    SettingRow,
    SourceRow,
    TopicRow,
)
from horolog.metadata import TOPIC as TOPIC_RESOURCE
from horolog.rights import AclEntry
from horolog.schemas.metadata import (
    GROUP_VERSION,
    METADATA_VERSION,
    BrokerEndpoint,
    FeatureLevel,
    Record,
    RegisterBroker,
    RegisterController,
)
from horolog.security import Credential
from horolog.storage import Files

NOW_MS = 1_700_000_000_000
SOURCE = SourceRow("source-id", "kafka:9092", ".*", "")
TOPIC = TopicRow("t", UUID(int=7), 3)
DIRECTORY = UUID(int=1 << 100)
BROKER = RegisterBroker(
    *(1, False, UUID(int=9), 5, (BrokerEndpoint("PLAINTEXT", "localhost", 9092),), ()),
    log_dirs=(DIRECTORY,),
)


def opened(path: Path, is_own: bool = True, files: Files | None = None) -> MetadataStore:
    files = files or Files()
    log = MetadataLog.open(
        files,
        str(path),
        node_id=1,
    )
    reserve = Reserve(files, path)
    return MetadataStore(log, reserve, path, is_own, lambda: NOW_MS)


@pytest.fixture(params=[False, True])
def is_own(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def store(tmp_path: Path, is_own: bool) -> Iterator[MetadataStore]:
    store = opened(tmp_path, is_own)
    store.register(BROKER)
    yield store
    store.close()


def test_a_topic_comes_back_with_its_settings(
    store: MetadataStore, tmp_path: Path, is_own: bool
) -> None:
    given = {"retention.ms": "5", "segment.bytes": "6", "horolog.roll.idle": "true"}
    store.put_topic(TOPIC, given)
    store.change_settings("", {"log.retention.ms": "9"})
    stored = opened(tmp_path, is_own).load()
    assert stored.topics == [TOPIC]
    its = {row.name: row.value for row in stored.settings if row.scope == TOPIC_SCOPE}
    assert its == given
    of_brokers = [row for row in stored.settings if row.scope == BROKER_SCOPE]
    assert of_brokers == [SettingRow(BROKER_SCOPE, "", "log.retention.ms", "9")]


def test_partitions_are_led_by_the_broker_that_has_registered(store: MetadataStore) -> None:
    store.put_topic(TOPIC)
    its = store.image.topics["t"].partitions
    assert [*its] == [0, 1, 2]
    assert {(each.replicas, each.leader, each.directories) for each in its.values()} == {
        ((1,), 1, (DIRECTORY,))
    }
    store.raise_epochs({("t", 1): 4, ("t", 2): 0, ("gone", 0): 9})
    assert [each.leader_epoch for each in its.values()] == [0, 4, 0]


CONTROLLER = RegisterController(1, UUID(int=4), False, (), ())


@pytest.mark.parametrize(
    ("earlier", "level"),
    [
        ([], 1),
        ([FeatureLevel(METADATA_VERSION, 30)], 1),  # of a horolog without consumer groups
        ([FeatureLevel(METADATA_VERSION, 30), CONTROLLER], 0),
        ([FeatureLevel(METADATA_VERSION, 14)], 0),  # of a Kafka which names no controllers
        ([FeatureLevel(METADATA_VERSION, 25), FeatureLevel(GROUP_VERSION, 1), CONTROLLER], 1),
    ],
)
def test_consumer_groups_are_on_where_horolog_has_made_the_metadata(
    tmp_path: Path, earlier: list[Record], level: int
) -> None:
    log = MetadataLog.open(Files(), str(tmp_path), node_id=1)
    if earlier:
        log.append(earlier, NOW_MS)
    log.close()
    for _ in range(2):
        store = opened(tmp_path)
        store.register(BROKER)
        assert store.group_version == store.image.features.get(GROUP_VERSION, 0) == level
        store.close()


def test_replacing_a_topic_keeps_its_settings_unless_new_ones_are_given(
    store: MetadataStore,
) -> None:
    store.put_topic(TOPIC, {"retention.ms": "5"})
    store.put_topic(TOPIC._replace(partitions=4))
    assert store.load().topics == [TOPIC._replace(partitions=4)]
    assert len(store.load().settings) == 1
    store.put_topic(TOPIC)
    assert store.load().topics == [TOPIC], "a growth that failed is taken back"
    store.put_topic(TOPIC._replace(topic_id=UUID(int=8)))
    assert store.load().topics[0].topic_id == UUID(int=8)
    assert len(store.load().settings) == 1
    store.put_topic(TOPIC, {})
    assert store.load().settings == []


def test_an_adopted_topic_with_gaps_comes_back(
    store: MetadataStore, tmp_path: Path, is_own: bool
) -> None:
    row = TopicRow("t", TOPIC.topic_id, AS_FOUND, adopted=True, indexes=(2, 5))
    store.put_topic(row)
    store.put_topic(TOPIC._replace(name="u", topic_id=UUID(int=8), adopted=True))
    own = store.image.settings_of(TOPIC_RESOURCE, "t")
    assert own == {"retention.ms": "-1", "retention.bytes": "-1"}
    stored = opened(tmp_path, is_own).load()
    assert stored.topics[0] == row
    assert stored.topics[1].adopted
    assert stored.settings == []
    store.put_topic(row._replace(adopted=False), {"retention.ms": "7"})
    assert store.image.settings_of(TOPIC_RESOURCE, "t") == {"retention.ms": "7"}


def test_a_deletion_is_a_note_until_it_is_forgotten(
    store: MetadataStore, tmp_path: Path, is_own: bool
) -> None:
    store.put_topic(TOPIC, {"horolog.roll.idle": "true"})
    doomed = TOPIC._replace(deleting=True)
    store.put_topic(doomed)
    assert store.image.topics == {}
    stored = opened(tmp_path, is_own).load()
    assert (stored.topics, stored.settings) == ([doomed], [])
    store.forget_topic("t")
    stored = opened(tmp_path, is_own).load()
    assert (stored.topics, stored.settings) == ([], [])


def test_a_topic_that_takes_the_name_of_a_deleted_one_inherits_nothing(
    store: MetadataStore,
) -> None:
    store.put_topic(TOPIC, {"horolog.roll.idle": "true"})
    store.put_topic(TOPIC._replace(deleting=True))
    again = TOPIC._replace(topic_id=UUID(int=8))
    store.put_topic(again, {})
    assert (store.load().topics, store.load().settings) == ([again], [])


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
    store.put_topic(TOPIC, None, row._replace(led=True, epoch=7))
    store.forget_topic("t")
    kept = (FollowedRow("t", None, True, 0, "{}"),)
    assert store.load().followed == kept, "it is not followed again, and one of its name is new"
    store.put_source(SOURCE, ["t"])
    assert store.load().followed == ()


def test_a_producer_id_is_never_given_twice(
    store: MetadataStore, tmp_path: Path, is_own: bool
) -> None:
    assert store.reserve_producer_ids(1000, at_least=0) == 0
    again = opened(tmp_path, is_own)
    assert again.reserve_producer_ids(1000, at_least=0) == 1000
    assert again.reserve_producer_ids(1000, at_least=70_000) == 70_000
    assert again.reserve_producer_ids(1000, at_least=5) == 71_000
    again.raise_producer_ids((1 << 63) - 1000)
    with pytest.raises(RequestRefused, match="No producer id is left"):
        again.reserve_producer_ids(1000, at_least=0)
    again.raise_producer_ids(1 << 63)
    with pytest.raises(RequestRefused, match="No producer id is left"):
        again.reserve_producer_ids(1, at_least=0)
    again.close()


def test_damage_leaves_no_topic_that_expires_and_gives_no_producer_id_twice(
    tmp_path: Path, is_own: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path, is_own)
    store.register(BROKER)
    store.put_topic(TOPIC, {"retention.ms": "5"})
    store.put_topic(TOPIC._replace(name="u", topic_id=UUID(int=8)), {"retention.ms": "5"})
    store.reserve_producer_ids(1000, at_least=0)
    store.close()
    path = tmp_path / f"__cluster_metadata-0/{0:020}.log"
    data = path.read_bytes()
    at = data.rindex(b"retention.ms")
    path.write_bytes(data[:at] + b"x" + data[at + 1 :])
    for _ in range(2):  # until something is written, each start finds the damage again
        damaged = opened(tmp_path, is_own)
        stored = damaged.load()
        assert stored.is_salvaged
        (row,) = stored.topics
        assert (row.name, row.adopted, row.is_salvaged) == ("t", True, True)
    assert "All topics are adopted" in caplog.text
    damaged.register(BROKER)
    again = opened(tmp_path, is_own)
    assert again.load().is_salvaged
    assert again.load().topics[0].is_salvaged
    assert again.reserve_producer_ids(1000, at_least=0) >= NOW_MS * 1000
    again.end_salvage()
    assert not opened(tmp_path, is_own).load().is_salvaged


def test_no_kill_leaves_damaged_metadata_without_its_guard(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    store = opened(tmp_path / "a")
    store.register(BROKER)
    store.put_topic(TOPIC, {"retention.ms": "5"})
    store.put_topic(TOPIC, {"retention.ms": "6"})
    store.close()
    path = Path("__cluster_metadata-0", f"{0:020}.log")
    files = {each.name: each.read_bytes() for each in (tmp_path / "a" / path).parent.iterdir()}
    data = files[path.name]
    at = data.rindex(b"retention.ms")
    files[path.name] = data[:at] + b"x" + data[at + 1 :]
    for step in range(200):
        log_dir = tmp_path / f"killed-{step}"
        (log_dir / path).parent.mkdir(parents=True)
        for name, content in files.items():
            (log_dir / path).with_name(name).write_bytes(content)
        faulty = FaultyFiles(None)
        damaged = opened(log_dir, files=faulty)
        faulty.fail_after(step, Killed())
        try:
            damaged.register(BROKER)
            is_done = True
        except Killed:
            is_done = False
        (row,) = opened(log_dir).load().topics
        assert row.adopted, step
        if is_done:
            break
    assert is_done
    assert step > 3


def test_a_write_that_fails_changes_nothing(store: MetadataStore) -> None:
    store.refusal = "it cannot be read back"
    with pytest.raises(StorageFailed, match="read back"):
        store.put_topic(TOPIC)
    store.refusal = None
    assert store.load().topics == []


class SmallDisk(Files):
    """Has no space left beyond that of the files that it had when `limit` was set."""

    limit = 1 << 40

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def used(self) -> int:
        return sum(path.stat().st_size for path in self._directory.rglob("*") if path.is_file())

    def os_pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        end = position + sum(map(len, parts))
        if self.used() + max(end - os.fstat(fd).st_size, 0) > self.limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().os_pwritev(fd, parts, position)


def test_rights_and_passwords_are_taken_away_on_a_full_disk(tmp_path: Path) -> None:
    """Again and again: each time the rest of what is held back is reserved anew."""
    disk = SmallDisk(tmp_path)
    store = opened(tmp_path, files=disk)
    store.register(BROKER)
    entry = AclEntry(2, "t", 3, "User:alice", "*", 3, 3)
    denial = entry._replace(permission=2)
    ids = [UUID(int=number + 1) for number in range(100)]
    store.change_entries(dict.fromkeys(ids, entry), ())
    credentials = {(f"{number}", 1): Credential(b"", b"", b"", 4096) for number in range(9)}
    store.change_credentials(credentials, ())
    disk.limit = disk.used()
    with pytest.raises(StorageFailed):
        store.change_entries({UUID(int=1 << 70): entry}, ())
    with pytest.raises(StorageFailed):
        store.change_credentials({("new", 1): Credential(b"", b"", b"", 4096)}, ())
    for entry_id in ids:
        store.change_entries({}, [entry_id])
    for key in credentials:
        store.change_credentials({}, [key])
    store.change_entries({UUID(int=1 << 71): denial}, ())
    store.close()
    disk.limit = 1 << 40
    again = opened(tmp_path)
    assert [*again.load().entries.values()] == [denial]
    assert not again.load().credentials
    again.register(BROKER)
    assert (tmp_path / "horolog-reserve").stat().st_size == 1 << 20
    again.close()


def test_settings_of_groups_come_back_until_they_are_removed(
    store: MetadataStore, tmp_path: Path, is_own: bool
) -> None:
    store.change_group_settings("g", {"consumer.heartbeat.interval.ms": "6000", "x": "1"})
    store.change_group_settings("h", {"x": "2"})
    store.change_group_settings("g", {"x": None})
    rows = [SettingRow(GROUP_SCOPE, "g", "consumer.heartbeat.interval.ms", "6000")]
    assert opened(tmp_path, is_own).load().settings == [
        *rows,
        SettingRow(GROUP_SCOPE, "h", "x", "2"),
    ]
    store.change_group_settings("h", {"x": None})
    assert opened(tmp_path, is_own).load().settings == rows
