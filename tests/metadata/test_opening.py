"""Which metadata log is appended to, and what is written there first."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from golden import GOLDEN
from horolog.errors import Misconfigured
from horolog.metadata import (
    BROKER,
    TOPIC,
    FollowedRow,
    Image,
    MetadataLog,
    MetadataStore,
    SourceRow,
    TopicRow,
    mapping,
    open_store,
    state,
    state_dir_beside,
    state_dir_of,
)
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION, NEW_LOG_LEVEL, Record
from horolog.storage import Files

NOW = 1_800_000_000_000
HERE, MADE = UUID(int=500), UUID(int=7)
SOURCE = SourceRow("cluster", "127.0.0.1:1", ".*", "", ended=True)


@pytest.fixture
def kafkas(tmp_path: Path) -> Path:
    """A directory that a single Kafka node has left."""
    shutil.copytree(GOLDEN / "clean", tmp_path / "kafka")
    return tmp_path / "kafka"


def opened(
    path: Path,
    *,
    take_over: bool = False,
    node_id: int = 1,
    open_to_all: bool = False,
    state_dir: Path | None = None,
) -> MetadataStore:
    return open_store(
        *(Files(), path, node_id, lambda: NOW),
        take_over=take_over,
        open_to_all=open_to_all,
        state_dir=state_dir,
    )


def started(path: Path, *, take_over: bool = False) -> MetadataStore:
    """A store as a broker has it once it has started."""
    store = opened(path, take_over=take_over)
    ids = m.BrokerEndpoint("PLAINTEXT", "localhost", 9092)
    store.register(m.RegisterBroker(1, False, UUID(int=9), 5, (ids,), (), log_dirs=(HERE,)))
    return store


def start(path: Path, *, take_over: bool = False) -> Image:
    store = started(path, take_over=take_over)
    store.close()
    return store.image


def is_marked(image: Image) -> bool:
    return state.HOME in mapping.shared_settings(image)


def test_a_new_directory_has_its_own_log_with_a_level_and_a_mark(tmp_path: Path) -> None:
    for take_over in (False, True):  # it is nobody else's
        image = start(tmp_path, take_over=take_over)
        assert (image.metadata_version, is_marked(image)) == (NEW_LOG_LEVEL, True)
    assert not state_dir_beside(tmp_path).exists()


def test_beside_a_kafkas_log_nothing_of_it_is_touched(kafkas: Path) -> None:
    own = kafkas / "__cluster_metadata-0"
    before = {path.name: path.read_bytes() for path in own.iterdir()}
    for _ in range(2):
        image = start(kafkas)
        assert (image.topics, is_marked(image)) == ({}, False)
    assert state_dir_of(kafkas) == state_dir_beside(kafkas)
    assert (state_dir_of(kafkas) / "__cluster_metadata-0").exists()
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before


def test_a_kafkas_log_is_gone_on_with_once_it_is_taken_over(kafkas: Path) -> None:
    theirs = MetadataLog.open(Files(read_only=True), str(kafkas), node_id=1).image
    assert theirs.topics
    for take_over in (True, False, True):
        image = start(kafkas, take_over=take_over)
        assert is_marked(image)
        assert {*image.topics} == {*theirs.topics}
        assert image.metadata_version == theirs.metadata_version
    assert not state_dir_beside(kafkas).exists()
    assert state_dir_of(kafkas) == kafkas


def test_a_kill_before_the_mark_leaves_it_to_be_taken_over_again(kafkas: Path) -> None:
    opened(kafkas, take_over=True).close()
    assert opened(kafkas).image.topics == {}
    assert is_marked(start(kafkas, take_over=True))


def test_what_was_made_beside_it_is_carried_over(kafkas: Path) -> None:
    theirs = MetadataLog.open(Files(read_only=True), str(kafkas), node_id=1).image
    name, topic = next((n, t) for n, t in theirs.topics.items() if not n.startswith("__"))
    led = FollowedRow("made", None, True, 7, "{}")
    beside = started(kafkas)
    made = TopicRow("made", MADE, 2)
    beside.put_topic(made, {"horolog.retention.by": "append-time"}, led)
    known = TopicRow(name, topic.topic_id, len(topic.partitions))
    beside.put_topic(known, {"retention.ms": "77"})
    other = next(n for n in theirs.topics if n not in (name, "made") and not n.startswith("__"))
    beside.put_topic(TopicRow(other, theirs.topics[other].topic_id, 1, adopted=True))
    beside.put_topic(TopicRow("gone", UUID(int=8), 1, deleting=True))
    beside.put_source(SOURCE)
    beside.change_settings("", {"log.retention.ms": "99"})
    beside.close()

    for take_over in (True, False):
        image = start(kafkas, take_over=take_over)
        assert image.topics["made"].topic_id == MADE
        assert sorted(image.topics["made"].partitions) == [0, 1]
        assert image.settings_of(TOPIC, name) == {"retention.ms": "77"}
        assert image.settings_of(TOPIC, other) == theirs.settings_of(TOPIC, other)
        assert image.settings_of(BROKER, "")["log.retention.ms"] == "99"
        assert "gone" not in image.topics
        stored = mapping.stored(image)
        assert (stored.source, stored.followed) == (SOURCE, (led,))
        assert ("made", "horolog.retention.by", "append-time") in [
            each[1:] for each in stored.settings
        ]


@pytest.mark.parametrize(
    ("record", "node_id", "why"),
    [
        (None, 2, "set node.id=1"),
        (
            m.RegisterBroker(2, False, UUID(int=3), 5, (), (), None, False),
            1,
            "broker 2 of its cluster is not fenced",
        ),
        (m.RegisterController(9, UUID(int=3), False, (), ()), 1, "node 9 is a voter"),
        (m.FeatureLevel(METADATA_VERSION, 34), 1, "metadata.version is 34"),
    ],
)
def test_a_node_that_was_not_alone_is_refused_and_nothing_is_written(
    record: Record | None, node_id: int, why: str, kafkas: Path
) -> None:
    if record is not None:
        log = MetadataLog.open(Files(), str(kafkas), node_id=1)
        log.append([record], NOW)
        log.close()
    before = {path: path.read_bytes() for path in kafkas.rglob("*") if path.is_file()}
    with pytest.raises(Misconfigured, match=why):
        opened(kafkas, take_over=True, node_id=node_id)
    assert {path: path.read_bytes() for path in kafkas.rglob("*") if path.is_file()} == before


def test_other_voters_of_a_static_quorum_are_refused(kafkas: Path) -> None:
    quorum = kafkas / "__cluster_metadata-0" / "quorum-state"
    text = quorum.read_text()
    assert '"voterId":1' in text
    quorum.write_text(text.replace('[{"voterId":1}]', '[{"voterId":1},{"voterId":3}]'))
    with pytest.raises(Misconfigured, match="node 3 is a voter"):
        opened(kafkas, take_over=True)


def test_what_is_damaged_is_not_taken_over(kafkas: Path) -> None:
    quorum = kafkas / "__cluster_metadata-0" / "quorum-state"
    whole = quorum.read_bytes()
    quorum.write_bytes(whole[:-9])
    with pytest.raises(Misconfigured, match=r"cannot be taken over: .*quorum-state"):
        opened(kafkas, take_over=True)
    quorum.write_bytes(whole)
    start(kafkas)
    beside = state_dir_beside(kafkas) / f"__cluster_metadata-0/{0:020}.log"
    data = bytearray(beside.read_bytes())
    data[-3] ^= 1
    beside.write_bytes(data)
    with pytest.raises(Misconfigured, match="the metadata beside it is damaged"):
        opened(kafkas, take_over=True)
    shutil.rmtree(state_dir_beside(kafkas))
    assert is_marked(start(kafkas, take_over=True))


ENTRY = m.AccessControlEntry(UUID(int=1), 2, "orders", 3, "User:alice", "*", 3, 3)
CREDENTIAL = m.ScramCredential("alice", 1, b"salt", b"key", b"other", 4096)


@pytest.mark.parametrize("in_snapshot", [False, True])
@pytest.mark.parametrize(
    ("record", "named", "removal"),
    [
        (ENTRY, "access control entries: 1", m.RemoveAccessControlEntry(ENTRY.entry_id)),
        (CREDENTIAL, "SCRAM credentials: 1", m.RemoveScramCredential("alice", 1)),
    ],
)
def test_a_secured_directory_is_opened_only_to_be_open_to_all(
    kafkas: Path, record: Record, named: str, removal: Record, in_snapshot: bool
) -> None:
    """Whether it is taken over, adopted, or was taken over before."""

    def append(change: Record) -> None:
        log = MetadataLog.open(Files(), str(kafkas), node_id=1)
        log.append([change], NOW)
        if in_snapshot:
            log.snapshot(NOW)
        log.close()

    append(record)
    before = sorted(path.name for path in kafkas.iterdir())
    for take_over in (False, True):
        with pytest.raises(Misconfigured, match=f"{named}.*horolog.open.listeners"):
            opened(kafkas, take_over=take_over)
    assert sorted(path.name for path in kafkas.iterdir()) == before
    opened(kafkas, open_to_all=True).close()
    store = opened(kafkas, take_over=True, open_to_all=True)
    store.register(m.RegisterBroker(1, False, UUID(int=9), 5, (), (), log_dirs=(HERE,)))
    store.close()
    assert is_marked(store.image)
    for take_over in (False, True):
        with pytest.raises(Misconfigured, match=named):
            opened(kafkas, take_over=take_over)
    append(removal)
    opened(kafkas).close()


def test_a_state_directory_that_cannot_be_made_is_named(kafkas: Path) -> None:
    state_dir_beside(kafkas).write_text("")
    with pytest.raises(Misconfigured, match=r"kafka\.horolog cannot be made .*horolog\.state\.dir"):
        opened(kafkas)
    with pytest.raises(Misconfigured, match="it would be within the log directory"):
        opened(kafkas, state_dir=kafkas / "state")
    opened(kafkas, state_dir=kafkas.parent / "elsewhere" / "state").close()
    assert (kafkas.parent / "elsewhere" / "state").is_dir()


def test_a_broker_without_metadata_is_refused_and_adopted(kafkas: Path) -> None:
    shutil.rmtree(kafkas / "__cluster_metadata-0")
    with pytest.raises(Misconfigured, match="there is no metadata of a Kafka"):
        opened(kafkas, take_over=True)
    assert not is_marked(start(kafkas))
