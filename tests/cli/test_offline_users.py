"""`horolog users add --log-dir`: the first user of a broker that is stopped."""

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from command_runner import Ran, run_command
from running_broker import MakeBroker, RunningBroker
from secrets_kept import password

from horolog.client import AuthenticationFailed, Client
from horolog.errors import StorageFailed
from horolog.metadata import MetadataStore, SnapshotId, snapshot_batches
from horolog.schemas.metadata import FeatureLevel, encode

SCRAM = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}
METADATA = "__cluster_metadata-0"
PENCIL, PENCILS, PAPER, ANOTHER = map(password, ("pencil", "pencils", "paper", "another"))


def add(directory: Path, name: str, secret: str, *more: object) -> Ran:
    return run_command("users", "add", name, "--log-dir", directory, *more, stdin=f"{secret}\n")


def may_log_in(address: str, name: str, secret: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="{name}" password="{secret}";',
    }
    with Client(address, security=security) as client:
        try:
            client.metadata()
        except AuthenticationFailed:
            return False
    return True


def files_in(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in found
        if path.name != ".lock"
    }


def test_the_first_user_of_a_new_directory_logs_in(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "log"
    added = add(directory, "alice", PENCIL)
    assert (added.code, added.out) == (0, "alice logs in by SCRAM-SHA-512\n")
    assert add(directory, "bob", PAPER, "--mechanism", "scram-sha-256").code == 0
    for path in (directory / METADATA).iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert not any(PENCIL.encode() in data for data in files_in(tmp_path).values())
    with RunningBroker(directory, SCRAM) as broker:
        assert may_log_in(broker.address, "alice", PENCIL)
        assert not may_log_in(broker.address, "alice", PENCILS)
        assert may_log_in(broker.address, "bob", PAPER, "SCRAM-SHA-256")
        broker.create_topic("t")
    assert add(directory, "alice", ANOTHER).code == 0
    with RunningBroker(directory, SCRAM) as broker:
        assert may_log_in(broker.address, "alice", ANOTHER)
        assert not may_log_in(broker.address, "alice", PENCIL)
        assert broker.broker.topics.named("t").partitions == (0,)


def test_a_new_directory_is_formatted_by_the_settings_of_the_broker(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("node.id=7\nhorolog.cluster.id=of-the-file\nlog.dirs=/nowhere\n")
    assert add(tmp_path / "log", "alice", PENCIL, "--config", config).code == 0
    properties = (tmp_path / "log" / "meta.properties").read_text().splitlines()
    assert {"node.id=7", "cluster.id=of-the-file", "horolog.metadata=own"} <= set(properties)
    assert not Path("/nowhere").exists()


def test_a_start_adds_users_to_the_same_cluster(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "log", {"node.id": "3"}) as broker:
        cluster_id = broker.broker.cluster_id
    assert add(tmp_path / "log", "alice", PENCIL).code == 0
    with RunningBroker(tmp_path / "log", {**SCRAM, "node.id": "3"}) as broker:
        assert broker.broker.cluster_id == cluster_id
        assert may_log_in(broker.address, "alice", PENCIL)


def test_a_directory_in_use_is_refused(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(log_dir=tmp_path / "log")
    refused = add(tmp_path / "log", "alice", PENCIL)
    assert refused.code != 0
    assert "A broker in another process is using this directory" in refused.err
    assert broker.client.users.list() == []


def test_metadata_without_meta_properties_are_refused_and_left_alone(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "log"):
        pass
    (tmp_path / "log" / "meta.properties").unlink()
    before = files_in(tmp_path)
    refused = add(tmp_path / "log", "alice", PENCIL)
    assert refused.code != 0
    assert "has no meta.properties: start a broker on it once" in refused.err
    assert files_in(tmp_path) == before


def test_copied_partitions_without_metadata_are_refused(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "log") as broker:
        broker.create_topic("t")
    shutil.copytree(tmp_path / "log" / "t-0", tmp_path / "copy" / "t-0")
    refused = add(tmp_path / "copy", "alice", PENCIL)
    assert refused.code != 0
    assert "has no meta.properties" in refused.err
    assert not (tmp_path / "copy" / METADATA).exists()


def test_a_disk_that_refuses_leaves_a_directory_that_can_be_used(tmp_path: Path) -> None:
    with patch.object(MetadataStore, "change_credentials", side_effect=StorageFailed("full")):
        assert add(tmp_path / "log", "alice", PENCIL).code != 0
    assert (tmp_path / "log" / "meta.properties").exists()
    assert add(tmp_path / "log", "alice", PENCIL).code == 0
    with RunningBroker(tmp_path / "log", SCRAM) as broker:
        assert may_log_in(broker.address, "alice", PENCIL)


def test_meta_properties_come_before_metadata(tmp_path: Path) -> None:
    with patch(
        "horolog.storage.directory.identity.write_meta_properties",
        side_effect=StorageFailed("full"),
    ):
        assert add(tmp_path / "log", "alice", PENCIL).code != 0
    assert not (tmp_path / "log" / METADATA).exists()
    assert add(tmp_path / "log", "alice", PENCIL).code == 0


def formatted(directory: Path) -> Path:
    """A directory as `kafka-storage format` of Kafka 4.4 leaves it."""
    (directory / METADATA).mkdir(parents=True)
    (directory / "meta.properties").write_text(
        "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\n"
        "directory.id=AAAAAAAAAAAAAAAAAAAAAg\n"
    )
    level = encode(FeatureLevel("metadata.version", 30), 30)
    batches = snapshot_batches([level], epoch=0, last_timestamp=1, kept_control={})
    (directory / METADATA / SnapshotId(0, 0).name).write_bytes(b"".join(batches))
    return directory


def test_a_user_joins_those_of_kafkas_formatting(tmp_path: Path) -> None:
    directory = formatted(tmp_path / "log")
    for name in ("alice", "bob"):
        assert add(directory, name, password(name)).code == 0
        (file,) = (directory / METADATA).iterdir()
        assert file.name == SnapshotId(0, 0).name
        assert file.stat().st_mode & 0o077 == 0
    with RunningBroker(directory, SCRAM) as broker:
        assert may_log_in(broker.address, "alice", password("alice"))
        assert may_log_in(broker.address, "bob", password("bob"))
    assert add(directory, "bob", ANOTHER).code == 0, "beside it horolog has state by now"
    with RunningBroker(directory, SCRAM) as broker:
        assert may_log_in(broker.address, "bob", ANOTHER)


def test_a_directory_that_kafka_has_served_is_refused(tmp_path: Path) -> None:
    directory = formatted(tmp_path / "log")
    with RunningBroker(directory, {"horolog.take.over": "true"}) as broker:
        broker.create_topic("t")
    mine = files_in(directory / METADATA)
    log = next(name for name in mine if name.endswith(".log"))
    (tmp_path / "other" / METADATA).mkdir(parents=True)
    shutil.copy(directory / "meta.properties", tmp_path / "other")
    other = formatted(tmp_path / "third")
    (other / METADATA / log).write_bytes(b"")
    before = files_in(other)
    modes = {path: path.stat().st_mode for path in other.rglob("*")}
    refused = add(other, "alice", PENCIL)
    assert refused.code != 0
    assert "those of the Kafka that owns it" in refused.err
    assert files_in(other) == before
    assert {path: path.stat().st_mode for path in modes} == modes
    refused = add(tmp_path / "other", "alice", PENCIL)
    assert refused.code != 0
    assert add(directory, "alice", PENCIL).code == 0, "it is horolog's by now"
    with RunningBroker(directory, SCRAM) as broker:
        assert may_log_in(broker.address, "alice", PENCIL)


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: 12_345)
    refused = add(tmp_path / "log", "alice", PENCIL)
    assert refused.code != 0
    assert "run this as that user" in refused.err
    assert not list((tmp_path / "log").iterdir())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("users", "add", "", "--log-dir", "{}"), "A user needs a name"),
        (("users", "add", "a", "--config", "{}/file"), "--config is for --log-dir DIR"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[Any, ...], why: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    named = [argument.format(tmp_path) for argument in arguments]
    refused = run_command(*named, stdin=f"{PENCIL}\n")
    assert refused.code != 0
    assert why in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
