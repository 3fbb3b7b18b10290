"""The history of the metadata, as far back as it is kept."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from horolog.metadata import TOPIC, Image, MetadataLog, changes
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION
from horolog.storage import Files

DAY = 86_400_000
NOW = 1_700_000_000_000


def setting(value: int) -> m.Config:
    return m.Config(TOPIC, "a", "retention.ms", str(value))


def image_at(path: Path, time_ms: int) -> Image:
    image = Image()
    for change in changes(Files(read_only=True), str(path)):
        if change.timestamp > time_ms:
            break
        for record in change.records:
            image.apply(record)
    return image


def test_what_was_known_at_a_time_is_known_from_the_changes_before_it(tmp_path: Path) -> None:
    assert list(changes(Files(read_only=True), str(tmp_path))) == []
    log = MetadataLog.open(Files(), str(tmp_path), node_id=1)
    log.append([m.FeatureLevel(METADATA_VERSION, 30)], NOW)
    log.append([m.TopicRecord("a", UUID(int=4)), setting(0)], NOW + 1)
    for number in range(1, 5):
        log.append([setting(number)], NOW + number * DAY)
    log.append([m.RemoveTopic(UUID(int=4))], NOW + 9 * DAY)
    assert image_at(tmp_path, NOW).topics == {}
    for number in range(1, 5):
        image = image_at(tmp_path, NOW + number * DAY + 1)
        assert image.settings_of(TOPIC, "a") == {"retention.ms": str(number)}
    assert image_at(tmp_path, NOW + 10 * DAY).topics == {}
    found = list(changes(Files(), str(tmp_path)))
    times = [each.timestamp for each in found]
    assert times == sorted(times)
    assert [len(each.records) for each in found] == [1, 2, 1, 1, 1, 1, 1]


def test_what_is_older_than_a_year_is_what_a_snapshot_says(tmp_path: Path) -> None:
    log = MetadataLog.open(Files(), str(tmp_path), node_id=1)
    log.append([m.FeatureLevel(METADATA_VERSION, 30)], NOW)
    log.append([m.TopicRecord("a", UUID(int=4))], NOW)
    for number in range(100):
        log.append([setting(number)], NOW + 10 * number * DAY)
        log.snapshot(NOW + 10 * number * DAY)
    found = list(changes(Files(), str(tmp_path)))
    first, second = found[:2]
    assert isinstance(first.records[0], m.FeatureLevel)
    assert (first.is_snapshot, second.is_snapshot) == (True, False)
    assert second.timestamp - first.timestamp == 10 * DAY
    assert 360 * DAY < found[-1].timestamp - first.timestamp < 390 * DAY
    records = [first.records[-1], *(each.records[0] for each in found[1:])]
    assert records == list(map(setting, range(100 - len(found), 100)))
    log.append([setting(5000)], NOW + 2000 * DAY)
    assert image_at(tmp_path, NOW + 2000 * DAY).settings_of(TOPIC, "a") == {"retention.ms": "5000"}
