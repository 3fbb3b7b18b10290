"""Metadata logs of clusters under Kafka's controllers of 4.4, 4.3 and 3.9.

Their snapshots say what Kafka's own image was after the records before them.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from metadata_records import fields_of, name_of, values_in, without_names

from golden import GOLDEN, extract
from horolog.metadata import Image
from horolog.metadata.replay import MetadataReplay
from horolog.metadata.snapshots import SnapshotId, snapshots_in
from horolog.record import parse_header
from horolog.schemas.metadata import decode
from horolog.storage import Files, RecordFile

ANSWERS: dict[str, Any] = json.loads((GOLDEN / "cluster.answers.json").read_text())
RELEASES = ("4.4", "4.3", "3.9")
METADATA = "__cluster_metadata-0"
KINDS_OF_BROKERS = (
    "REGISTER_BROKER_RECORD",
    "BROKER_REGISTRATION_CHANGE_RECORD",
    "UNREGISTER_BROKER_RECORD",
    "PARTITION_CHANGE_RECORD",
    "REMOVE_TOPIC_RECORD",
    "PRODUCER_IDS_RECORD",
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract("cluster", tmp_path_factory.mktemp("cluster"))


def replayed(path: Path, before: int = 1 << 60) -> MetadataReplay:
    """All batches of a file that end before an offset."""
    replay = MetadataReplay(str(path))
    for batch in RecordFile(Files(read_only=True), str(path)).read():
        if parse_header(batch).last_offset < before:
            replay.take(batch)
    assert replay.damage == []
    return replay


def comparable(image: Image) -> set[bytes]:
    """Records of an image, without what a snapshot of Kafka's lacks or orders at will."""
    if image.producer_ids is not None:  # who got them is not kept
        image.producer_ids = image.producer_ids._replace(broker_id=-1, broker_epoch=-1)
    for broker_id, broker in image.brokers.items():
        image.brokers[broker_id] = broker._replace(
            cordoned=broker.cordoned or None,
            features=tuple(sorted(broker.features)),
            log_dirs=tuple(sorted(broker.log_dirs)),
        )
    for controller_id, controller in image.controllers.items():
        features = tuple(sorted(controller.features))
        image.controllers[controller_id] = controller._replace(features=features)
    return set(image.records())


@pytest.mark.parametrize("file", ANSWERS)
def test_every_record_is_what_kafkas_dump_tool_says(directory: Path, file: str) -> None:
    values = values_in(directory / file)
    assert len(values) == len(ANSWERS[file]) > 100
    kinds: Counter[str] = Counter()
    for value, (kind, version, said) in zip(values, ANSWERS[file], strict=True):
        record = decode(value)
        assert (name_of(record), value[2]) == (kind, version)
        assert fields_of(record, version) == without_names(said), kind
        kinds[kind] += 1
    assert all(kinds[kind] for kind in KINDS_OF_BROKERS)


@pytest.mark.parametrize("release", RELEASES)
def test_image_is_kafkas_own_at_each_snapshot(directory: Path, release: str) -> None:
    log = directory / release / METADATA
    snapshots = [it for it in snapshots_in(path.name for path in log.iterdir()) if it != (0, 0)]
    assert len(snapshots) > 2
    for snapshot in snapshots:
        ours = replayed(log / f"{0:020d}.log", snapshot.end_offset).image
        theirs = replayed(log / snapshot.name).image
        assert comparable(ours) == comparable(theirs), snapshot


@pytest.mark.parametrize("release", RELEASES)
def test_voters_of_the_dynamic_quorum_are_known(directory: Path, release: str) -> None:
    bootstrap = SnapshotId(0, 0).name
    (voter,) = replayed(directory / release / METADATA / bootstrap).voters
    assert voter.voter_id == 100
    assert voter.directory is not None
