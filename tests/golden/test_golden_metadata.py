"""Metadata logs of Kafka 4.4, 4.3 and 3.9, and what its dump tool says of each record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from metadata_records import fields_of, name_of, values_in, without_names

from golden import GOLDEN, extract
from horolog.metadata import BROKER, TOPIC, MetadataLog
from horolog.schemas.metadata import BrokerChange, decode, encode
from horolog.storage import Files

ANSWERS: dict[str, Any] = json.loads((GOLDEN / "metadata.answers.json").read_text())
LEVELS = {"4.4": 33, "4.3": 30, "3.9": 21}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract("metadata", tmp_path_factory.mktemp("metadata"))


@pytest.mark.parametrize("file", ANSWERS)
def test_every_record_is_what_kafkas_dump_tool_says(directory: Path, file: str) -> None:
    values = values_in(directory / file)
    assert len(values) == len(ANSWERS[file]) > 3
    for value, (kind, version, said) in zip(values, ANSWERS[file], strict=True):
        record = decode(value)
        assert (name_of(record), value[2]) == (kind, version)
        assert fields_of(record, version) == without_names(said), kind


@pytest.mark.parametrize("file", ANSWERS)
def test_every_record_is_encoded_to_the_same_bytes(directory: Path, file: str) -> None:
    level = LEVELS[file.partition("/")[0]]
    for value in values_in(directory / file):
        record = decode(value)
        if not isinstance(record, BrokerChange):  # Kafka writes the least version that says it
            assert encode(record, level) == value


@pytest.mark.parametrize("release", LEVELS)
def test_the_image_is_what_kafka_was_told(directory: Path, release: str) -> None:
    log = MetadataLog.open(Files(read_only=True), str(directory / release), node_id=1)
    image = log.image
    assert log.damage == ()
    assert image.metadata_version == LEVELS[release]
    assert sorted(image.topics) == ["goes", "later", "plain", "settings"]
    assert {name: len(each.partitions) for name, each in image.topics.items()} == {
        "goes": 1,
        "later": 1,
        "plain": 4,
        "settings": 3,
    }
    assert image.settings_of(TOPIC, "goes") == {}
    settings = dict(image.settings_of(TOPIC, "settings"))
    assert settings == {"cleanup.policy": "compact", "min.insync.replicas": "1"}
    assert image.settings_of(BROKER, "")["horolog.note"] == "kept"
    assert list(image.brokers) == [1]
    assert image.next_producer_id >= 1000
    kinds = sorted(type(each).__name__ for each in image.others.values())
    assert [kind for kind in kinds if kind != "ZkMigrationState"] == []
    assert (len(image.entries), len(image.credentials), len(image.quotas)) == (2, 1, 2)
    assert log.leader_epoch == 3


@pytest.mark.parametrize("release", LEVELS)
def test_a_snapshot_and_the_log_behind_it_say_what_the_whole_log_says(
    directory: Path, tmp_path: Path, release: str
) -> None:
    def image(path: Path) -> set[bytes]:
        log = MetadataLog.open(Files(read_only=True), str(path), node_id=1)
        assert log.damage == ()
        image = log.image
        # A snapshot of Kafka's does not keep who got the producer ids, writes no cordoned
        # directories as none, and features in any order.
        assert image.next_producer_id == 1000
        image.producer_ids = None
        for broker_id, broker in image.brokers.items():
            image.brokers[broker_id] = broker._replace(
                cordoned=broker.cordoned or None, features=tuple(sorted(broker.features))
            )
        for controller_id, controller in image.controllers.items():
            features = tuple(sorted(controller.features))
            image.controllers[controller_id] = controller._replace(features=features)
        return set(image.records())

    whole = tmp_path / "__cluster_metadata-0"
    whole.mkdir()
    kafkas = directory / release / "__cluster_metadata-0"
    snapshots = sorted(kafkas.glob("*.checkpoint"))
    assert snapshots
    for path in kafkas.iterdir():
        if path.suffix != ".checkpoint":
            (whole / path.name).write_bytes(path.read_bytes())
    expected = image(tmp_path)
    assert image(directory / release) == expected
    for snapshot in snapshots:
        kept = whole / snapshot.name
        kept.write_bytes(snapshot.read_bytes())
        assert image(tmp_path) == expected, snapshot.name
        kept.unlink()
