"""The identity of a log directory: `meta.properties`, its copy in the metadata, and their loss."""

from pathlib import Path

import pytest
from batches import batch
from running_broker import TOPIC, MakeBroker, RunningBroker, a_broker
from stored import lose_metadata

from golden import copy_directory
from horolog.errors import Misconfigured
from horolog.metadata import BROKER, KafkaForm, MetadataLog
from horolog.schemas.metadata import Config
from horolog.storage import Files, decode_uuid, names
from horolog.wire import HEALTH

NOW_MS = 1_700_000_000_000
OTHER = "wgPH0HbHQdafz7FRtFo3PQ"

broker = a_broker("t", partitions=2)


def identity(log_dir: Path) -> list[str]:
    """The lines of `meta.properties` that Kafka has, in order."""
    lines = (log_dir / names.META_PROPERTIES).read_text().splitlines()
    return sorted(line for line in lines if line.startswith(("cluster", "node", "dir", "version")))


def wrong_with(broker: RunningBroker) -> list[tuple[str, int | None]]:
    (health,) = broker.client.ask.each_broker(HEALTH).values()
    assert health is not None
    return [(each.kind, each.value) for each in health.wrong]


def forget_copy(log_dir: Path) -> None:
    """As an earlier version left the metadata."""
    log = MetadataLog.open(Files(), str(log_dir), node_id=1)
    log.append([Config(BROKER, "", "horolog.state.identity", None)], NOW_MS)
    log.close()


@pytest.mark.parametrize("damage", [None, b"", b"\xff\0", b"version=1\nnode.id=1\n", b"cluster"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_lost_or_damaged_file_is_written_again_from_the_metadata(
    broker: RunningBroker, damage: bytes | None, is_clean: bool
) -> None:
    before = identity(broker.log_dir)
    broker.append("t", batch(NOW_MS))
    broker.stop() if is_clean else broker.kill()
    path = broker.log_dir / names.META_PROPERTIES
    path.unlink() if damage is None else path.write_bytes(damage)
    broker.restart()
    assert identity(broker.log_dir) == before
    assert broker.count("t") == 1
    assert wrong_with(broker) == []


def test_without_a_copy_a_start_is_refused_until_the_cluster_is_named(
    broker: RunningBroker,
) -> None:
    before = identity(broker.log_dir)
    cluster_id = broker.broker.cluster_id
    broker.stop()
    forget_copy(broker.log_dir)
    path = broker.log_dir / names.META_PROPERTIES
    path.unlink()
    with pytest.raises(Misconfigured, match=r"meta\.properties is lost.*--cluster-id ID"):
        broker.restart()
    assert not path.exists()
    broker.restart(horolog_cluster_id=cluster_id)
    assert identity(broker.log_dir) == before  # the directory's id is in its registration
    broker.stop()
    path.unlink()
    broker.restart()
    assert identity(broker.log_dir) == before


def test_a_directory_of_another_cluster_is_refused(broker: RunningBroker) -> None:
    broker.stop()
    for is_lost in (False, True):
        if is_lost:
            (broker.log_dir / names.META_PROPERTIES).unlink()
        with pytest.raises(Misconfigured, match=f"horolog.cluster.id is {OTHER}"):
            broker.restart(horolog_cluster_id=OTHER)
    with pytest.raises(Misconfigured, match="is no id of a cluster"):
        broker.restart(horolog_cluster_id="a\nb")


def test_a_new_directory_can_be_given_its_cluster(make_broker: MakeBroker, tmp_path: Path) -> None:
    made = make_broker(log_dir=tmp_path / "new", horolog_cluster_id=OTHER)
    assert made.broker.cluster_id == OTHER
    assert f"cluster.id={OTHER}" in identity(made.log_dir)


def test_beside_a_kafkas_metadata_the_identity_is_that_of_its_kafka(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    log_dir = copy_directory("clean", tmp_path / "kafka")
    before = identity(log_dir)
    path = log_dir / names.META_PROPERTIES
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(Misconfigured, match="is lost"):
        make_broker(log_dir=log_dir)
    cluster_id = next(line for line in before if line.startswith("cluster")).partition("=")[2]
    given = make_broker(log_dir=log_dir, horolog_cluster_id=cluster_id)
    assert identity(log_dir) == before
    given.stop()
    path.unlink()
    given.restart(horolog_cluster_id=cluster_id)
    assert identity(log_dir) == before
    given.stop()
    path.write_bytes(whole)
    given.restart()
    assert path.read_bytes() == whole


def test_partitions_whose_records_name_a_lost_directory_get_the_present_one(
    broker: RunningBroker,
) -> None:
    """Kafka elects no leader for them."""
    broker.stop()
    path = broker.log_dir / names.META_PROPERTIES
    lines = [line for line in path.read_text().splitlines() if not line.startswith("directory")]
    path.write_text("\n".join([*lines, f"directory.id={OTHER}", ""]))
    broker.restart()
    broker.stop()
    image = KafkaForm(Files(read_only=True), str(broker.log_dir)).replay().image
    found = {its.directories for its in image.topics["t"].partitions.values()}
    assert found == {(decode_uuid(OTHER),)}
    assert image.brokers[1].log_dirs == (decode_uuid(OTHER),)


def test_health_says_that_metadata_are_lost_until_topics_have_settings(
    broker: RunningBroker,
) -> None:
    broker.append("t", batch(NOW_MS))
    broker.stop()
    lose_metadata(broker.log_dir)
    for _ in range(2):
        broker.restart()
        assert wrong_with(broker) == [("metadata-lost", 1)]
    assert broker.alter("t", kind=TOPIC, retention_ms="-1").error_code == 0
    assert wrong_with(broker) == []
    broker.restart()
    assert wrong_with(broker) == []


def test_metadata_and_identity_lost_together_are_both_said(broker: RunningBroker) -> None:
    broker.append("t", batch(NOW_MS))
    broker.stop()
    lose_metadata(broker.log_dir)
    (broker.log_dir / names.META_PROPERTIES).unlink()
    with pytest.raises(Misconfigured, match="--cluster-id"):
        broker.restart()
    broker.restart(horolog_cluster_id=OTHER)
    assert wrong_with(broker) == [("metadata-lost", 1)]
    assert broker.count("t") == 1
