"""Rows become metadata records, and records rows: each change is what differs from the image."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.metadata import (
    AS_FOUND,
    BROKER,
    BROKER_SCOPE,
    TOPIC,
    TOPIC_SCOPE,
    DirectoryNode,
    FollowedRow,
    Image,
    SettingRow,
    SourceRow,
    TopicRow,
    mapping,
)
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION, NEWEST_LEVEL, Record

A, B, HERE = UUID(int=10), UUID(int=11), UUID(int=500)
NODE = DirectoryNode(1, HERE)
SETTINGS = {"retention.ms": "5", "horolog.retention.by": "append-time", "segment.bytes": "1000"}


@pytest.fixture
def image() -> Image:
    return applied(Image(), [m.FeatureLevel(METADATA_VERSION, NEWEST_LEVEL)])


def applied(image: Image, records: Sequence[Record]) -> Image:
    image.check(records)
    for record in records:
        image.apply(record)
    return image


def put(image: Image, row: TopicRow, overrides: dict[str, str] | None = None) -> list[Record]:
    records = mapping.topic_records(image, NODE, row, overrides)
    applied(image, records)
    return records


def rows_of(image: Image) -> dict[str, tuple[TopicRow, dict[str, str]]]:
    stored = mapping.stored(image)
    return {
        row.name: (
            row,
            {
                each.name: each.value
                for each in stored.settings
                if each.scope == TOPIC_SCOPE and each.resource == row.name
            },
        )
        for row in stored.topics
    }


def test_a_topic_is_one_change_that_kafka_knows(image: Image) -> None:
    records = put(image, TopicRow("t", A, 2), {"retention.ms": "5"})
    assert records == [
        m.TopicRecord("t", A),
        *(
            m.PartitionRecord(index, A, (1,), (1,), (), (), 1, 0, 0, 0, (HERE,), None, None)
            for index in range(2)
        ),
        m.Config(TOPIC, "t", "retention.ms", "5"),
    ]
    assert rows_of(image) == {"t": (TopicRow("t", A, 2), {"retention.ms": "5"})}


NAMES = st.sampled_from(["a", "a.b", "b"])
ROWS = st.builds(
    TopicRow,
    NAMES,
    st.sampled_from([A, B, UUID(int=12)]),
    st.integers(1, 4),
    adopted=st.booleans(),
    is_salvaged=st.booleans(),
    followed=st.booleans(),
    deleting=st.just(False),
    indexes=st.just(()),
)
OVERRIDES = st.none() | st.dictionaries(
    st.sampled_from([*SETTINGS, "retention.bytes", "message.format.version", "horolog.roll.idle"]),
    st.sampled_from(["1", "2000000"]),
)


@given(st.lists(st.tuples(ROWS, OVERRIDES, st.booleans()), max_size=8))
def test_any_history_leaves_the_rows_that_were_put(
    history: list[tuple[TopicRow, dict[str, str] | None, bool]],
) -> None:
    image = applied(Image(), [m.FeatureLevel(METADATA_VERSION, NEWEST_LEVEL)])
    model: dict[str, tuple[TopicRow, dict[str, str]]] = {}
    for row, overrides, is_forgotten in history:
        others = {its.topic_id for name, (its, _) in model.items() if name != row.name}
        if row.topic_id in others:
            continue  # ids are never given twice
        if is_forgotten:
            applied(image, mapping.forgotten(image, row.name))
            model.pop(row.name, None)
        else:
            put(image, row, overrides)
            before = model.get(row.name)
            kept = before[1] if before is not None else {}
            model[row.name] = (row, kept if overrides is None else overrides)
            assert put(image, row, overrides) == [], "what is stored is not stored again"
        assert rows_of(image) == model


def test_more_partitions_are_added_and_fewer_make_it_another_topic_of_the_same_id(
    image: Image,
) -> None:
    put(image, TopicRow("t", A, 1), SETTINGS)
    grown = put(image, TopicRow("t", A, 2))
    assert [type(each) for each in grown] == [m.PartitionRecord]
    put(image, TopicRow("t", A, 1))
    assert rows_of(image) == {"t": (TopicRow("t", A, 1), SETTINGS)}


def test_a_topic_with_gaps_has_the_partitions_that_were_seen(image: Image) -> None:
    row = TopicRow("t", A, AS_FOUND, adopted=True, indexes=(1, 4))
    put(image, row)
    assert rows_of(image) == {"t": (row, {})}
    assert sorted(image.topics["t"].partitions) == [1, 4]


def test_a_deletion_is_a_note_until_the_topic_is_forgotten(image: Image) -> None:
    put(image, TopicRow("t", A, 2), SETTINGS)
    deleting = TopicRow("t", A, 2, deleting=True)
    put(image, deleting)
    assert image.topics == {}
    assert rows_of(image) == {"t": (deleting, {})}
    applied(image, mapping.forgotten(image, "t"))
    assert rows_of(image) == {}
    assert image.configs == {}


def test_a_topic_that_is_made_while_another_of_its_name_is_deleted_ends_that(image: Image) -> None:
    put(image, TopicRow("t", A, 2), SETTINGS)
    put(image, TopicRow("t", A, 2, deleting=True))
    put(image, TopicRow("t", B, 1), {})
    assert rows_of(image) == {"t": (TopicRow("t", B, 1), {})}


def test_leader_epochs_rise_and_never_fall(image: Image) -> None:
    put(image, TopicRow("t", A, 2))
    raised = mapping.epochs_raised(image, {("t", 0): 7, ("t", 1): 0, ("t", 9): 3, ("u", 0): 3})
    applied(image, raised)
    assert len(raised) == 1
    assert image.topics["t"].partitions[0].leader_epoch == 7
    assert mapping.epochs_raised(image, {("t", 0): 6}) == []


def test_settings_of_brokers_do_not_show_what_is_kept_beside_them(image: Image) -> None:
    put(image, TopicRow("t", A, 1, followed=True), SETTINGS)
    applied(image, mapping.settings_changed(image, {"log.retention.ms": "5"}))
    applied(image, mapping.settings_changed(image, {"log.roll.ms": "6", "none": None}, "1"))
    brokers = [each for each in mapping.stored(image).settings if each.scope == BROKER_SCOPE]
    assert brokers == [
        SettingRow(BROKER_SCOPE, "", "log.retention.ms", "5"),
        SettingRow(BROKER_SCOPE, "1", "log.roll.ms", "6"),
    ]


def test_what_kafka_did_meanwhile_counts(image: Image) -> None:
    put(image, TopicRow("t", A, 1, adopted=True), SETTINGS)
    applied(image, [m.RemoveTopic(A), m.TopicRecord("t", B)])
    applied(image, [m.PartitionRecord(0, B, (1,), (), (), (), -1, 0, 3, 1, (HERE,), (1,), (1,))])
    assert rows_of(image) == {"t": (TopicRow("t", B, 1), {})}
    applied(image, mapping.tidied(image))
    assert {name for kind, name in image.configs if kind == BROKER} == set()


def test_a_promoted_topic_is_remembered_and_a_new_source_forgets_it(image: Image) -> None:
    led = FollowedRow("t", None, True, 7, "{}")
    row = TopicRow("t", A, 1)
    applied(image, mapping.topic_records(image, NODE, row, {}, led))
    source = SourceRow("cluster", "127.0.0.1:1", ".*", "")
    applied(image, mapping.source_records(image, source, []))
    assert mapping.stored(image).source == source
    assert mapping.stored(image).followed == (led,)
    applied(image, mapping.forgotten(image, "t"))
    assert [each.led for each in mapping.stored(image).followed] == [True]
    applied(image, mapping.source_records(image, source, ["t"]))
    assert mapping.stored(image).followed == ()


def test_a_name_that_is_no_topics_is_not_served(image: Image) -> None:
    applied(image, [m.TopicRecord("../t", A)])
    assert rows_of(image) == {}
