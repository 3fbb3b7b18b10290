"""Settings of topics from a Kafka's own metadata: as it told them, and from bytes made by hand."""

from pathlib import Path
from uuid import UUID

import pytest

from golden import GOLDEN, partitions
from horolog.metadata import Overrides, SnapshotId, read_cluster_metadata, snapshot_batches
from horolog.record import LogRecord, build_batch
from horolog.schemas import metadata as m
from horolog.schemas.metadata import encode
from horolog.storage import Files

FILES = Files(read_only=True)
FIRST, SECOND = UUID(int=1), UUID(int=2)


def topic(name: str, topic_id: UUID) -> bytes:
    return encode(m.TopicRecord(name, topic_id))


def setting(name: str, key: str, value: str | None, resource_type: int = 2) -> bytes:
    return encode(m.Config(resource_type, name, key, value))


def removed(topic_id: UUID) -> bytes:
    return encode(m.RemoveTopic(topic_id))


def write(log_dir: Path, name: str, *values: bytes, base_offset: int = 0) -> Path:
    directory = log_dir / "__cluster_metadata-0"
    directory.mkdir(exist_ok=True)
    records = [LogRecord(5, None, value) for value in values]
    path = directory / name
    with path.open("ab") as file:
        file.write(build_batch(records, base_offset=base_offset))
    return path


def log(log_dir: Path, *values: bytes, base_offset: int = 0) -> Path:
    return write(log_dir, "00000000000000000000.log", *values, base_offset=base_offset)


def read(log_dir: Path) -> Overrides:
    return read_cluster_metadata(FILES, log_dir, is_own=False).topics


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_every_topic_has_the_settings_that_kafka_was_given(name: str) -> None:
    found = read(GOLDEN / {"killed": "recovered"}.get(name, name))
    for golden in partitions(name):
        assert found[golden.topic] == golden.answers["config"], golden.name


def test_a_directory_without_metadata_gives_no_settings(tmp_path: Path) -> None:
    assert read(tmp_path) == {}


def test_the_last_word_counts_and_a_null_takes_it_back(tmp_path: Path) -> None:
    log(
        tmp_path,
        topic("a", FIRST),
        setting("a", "retention.ms", "1"),
        setting("a", "segment.ms", "2"),
        setting("1", "log.retention.ms", "3", resource_type=4),
        encode(m.NoOp()),
    )
    log(
        tmp_path,
        setting("a", "retention.ms", "x" * 200),
        setting("a", "segment.ms", None),
        base_offset=5,
    )
    assert read(tmp_path) == {"a": {"retention.ms": "x" * 200}}


def test_a_topic_that_was_removed_leaves_no_settings_to_the_next_of_its_name(
    tmp_path: Path,
) -> None:
    log(tmp_path, topic("a", FIRST), setting("a", "cleanup.policy", "compact"), removed(FIRST))
    log(tmp_path, topic("a", SECOND), setting("a", "retention.ms", "7"), base_offset=3)
    assert read(tmp_path) == {"a": {"retention.ms": "7"}}


def test_settings_that_are_no_topics_are_told_apart_by_whose_they_are(tmp_path: Path) -> None:
    log(
        tmp_path,
        topic("a", FIRST),
        topic("b", SECOND),
        removed(SECOND),
        setting("", "log.retention.ms", "3", resource_type=4),
        setting("1", "log.cleaner.threads", "2", resource_type=4),
        setting("1", "log.cleaner.threads", None, resource_type=4),
        setting("g", "consumer.session.timeout.ms", "4", resource_type=32),
    )
    found = read_cluster_metadata(FILES, tmp_path, is_own=False)
    assert found.topics == {}
    assert found.topic_ids == {"a": FIRST}
    assert found.others == {
        ("broker", ""): {"log.retention.ms": "3"},
        ("group", "g"): {"consumer.session.timeout.ms": "4"},
    }


def test_access_control_and_scram_users_are_counted_and_quotas_are_carried_over(
    tmp_path: Path,
) -> None:
    def quota(user: str | None, *, remove: bool) -> bytes:
        return encode(m.ClientQuota((m.QuotaEntity("user", user),), "rate", 0.0, remove))

    def entry(entry_id: UUID) -> bytes:
        return encode(m.AccessControlEntry(entry_id, 2, "a", 3, "User:alice", "*", 3, 3))

    def credential(mechanism: int) -> bytes:
        return encode(m.ScramCredential("alice", mechanism, b"s", b"k", b"o", 4096))

    log(
        tmp_path,
        entry(FIRST),
        entry(SECOND),
        encode(m.RemoveAccessControlEntry(FIRST)),
        credential(1),
        credential(2),
        encode(m.RemoveScramCredential("alice", 1)),
        quota("bob", remove=False),
        quota(None, remove=False),
        quota("bob", remove=True),
    )
    found = read_cluster_metadata(FILES, tmp_path, is_own=False)
    assert found.counted == {"access control entry": 1, "SCRAM credential": 1}


def test_a_snapshot_replaces_all_before_it(tmp_path: Path) -> None:
    log(tmp_path, topic("old", FIRST), setting("old", "retention.ms", "1"))
    log(tmp_path, setting("a", "segment.ms", "2"), base_offset=2)
    for offset, name, topic_id in ((1, "old", FIRST), (2, "a", SECOND)):
        batches = snapshot_batches(
            [topic(name, topic_id)], epoch=1, last_timestamp=5, kept_control={}
        )
        path = tmp_path / "__cluster_metadata-0" / SnapshotId(offset, 1).name
        path.write_bytes(b"".join(batches))
    assert read(tmp_path) == {"a": {"segment.ms": "2"}}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x02\x04\x00",
        b"\x01\x04\x00\x02\x7fa",
        b"\x01\x04\x00\x02\x02\xff\x02a\x02b\x00",
        b"\x01\xff\xff\xff\xff\xff\xff",
    ],
    ids=["nothing", "another frame", "too short", "no text", "an endless number"],
)
def test_what_cannot_be_read_costs_only_itself(
    tmp_path: Path, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log(tmp_path, setting("a", "retention.ms", "1"), value, setting("b", "retention.ms", "2"))
    assert read(tmp_path) == {"a": {"retention.ms": "1"}, "b": {"retention.ms": "2"}}
    assert "known only in part" in caplog.text


def test_a_torn_tail_costs_only_what_is_torn(tmp_path: Path) -> None:
    log(tmp_path, setting("a", "retention.ms", "1"))
    path = log(tmp_path, setting("b", "retention.ms", "2"), base_offset=1)
    path.write_bytes(path.read_bytes()[:-3])
    assert read(tmp_path) == {"a": {"retention.ms": "1"}}


def test_what_was_compacted_is_known_without_metadata(tmp_path: Path) -> None:
    """A Kafka under ZooKeeper, or a backup of a broker that was no controller."""
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\nkeys 0 41\nkeys 1 7\n")
    assert read(tmp_path) == {"keys": {"cleanup.policy": "compact"}}
    log(tmp_path, setting("keys", "cleanup.policy", "delete"))
    assert read(tmp_path) == {"keys": {"cleanup.policy": "delete"}}
    (tmp_path / "cleaner-offset-checkpoint").write_text("nonsense")
    assert read(tmp_path) == {"keys": {"cleanup.policy": "delete"}}
