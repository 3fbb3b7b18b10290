"""Changes of an image keep another one equal, however they come."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch
from horolog.metadata import (
    TOPIC,
    Changes,
    Image,
    MetadataReplay,
    MetadataUnreadable,
    PartitionKey,
    TopicKey,
    TrackedImage,
    difference,
)
from horolog.record.builder import LogRecord, build_batch
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION, NEWEST_LEVEL, Record, encode

IDS = [UUID(int=number) for number in range(100, 106)]
NAMES = ["a", "b", "c"]
ENTITY = (m.QuotaEntity("user", "alice"),)

topic_ids, names, few = st.sampled_from(IDS), st.sampled_from(NAMES), st.integers(0, 2)


def partition(topic_id: UUID, index: int = 0, leader: int = 1) -> m.PartitionRecord:
    return m.PartitionRecord(index, topic_id, (1, 2), (1,), (), (), leader, 0, 0, 0, (), (2,))


def registered(broker: int) -> m.RegisterBroker:
    return m.RegisterBroker(broker, False, UUID(int=1), 5, (), ())


records = st.one_of(
    st.builds(m.TopicRecord, names, topic_ids),
    st.builds(partition, topic_ids, few, few),
    st.builds(lambda id_, index, leader: m.PartitionChange(index, id_, leader=leader),
              topic_ids, few, few),
    st.builds(m.RemoveTopic, topic_ids),
    st.builds(lambda name, key, value: m.Config(TOPIC, name, key, value),
              names, names, st.sampled_from(["1", "2", None])),
    st.builds(m.FeatureLevel, names, few),
    st.builds(registered, few),
    st.builds(m.UnregisterBroker, few, st.just(5)),
    st.builds(lambda broker, to: m.BrokerChange(broker, 5, fenced=to),
              few, st.sampled_from([-1, 1])),
    st.builds(m.ClearElr, st.sampled_from(["", *NAMES])),
    st.builds(lambda id_, host: m.AccessControlEntry(id_, 2, "a", 3, "User:x", host, 3, 3),
              topic_ids, names),
    st.builds(m.RemoveAccessControlEntry, topic_ids),
    st.builds(lambda name, key: m.ScramCredential(name, 1, b"salt", key.encode(), b"", 4096),
              names, names),
    st.builds(m.RemoveScramCredential, names, st.just(1)),
    st.builds(lambda key, remove: m.ClientQuota(ENTITY, key, 1.5, remove), names, st.booleans()),
    st.builds(lambda id_, owner: m.DelegationToken(owner, "r", (), 1, 2, 3, id_), names, names),
    st.builds(m.RemoveDelegationToken, names),
    st.builds(lambda id_: m.RegisterController(id_, UUID(int=1), False, (), ()), few),
    st.builds(m.UnregisterController, few),
)  # fmt: skip
SNAPSHOT, TAKE = "snapshot", "take"
steps = st.lists(st.one_of(records, st.just(SNAPSHOT), st.just(TAKE)), max_size=60)


def state_of(image: Image) -> list[object]:
    return [
        {name: (topic.topic_id, topic.partitions) for name, topic in image.topics.items()},
        {topic_id: topic.name for topic_id, topic in image.by_id.items()},
        image.configs, image.features, image.brokers, image.controllers,
        image.entries, image.credentials, image.quotas, image.tokens,
    ]  # fmt: skip


def apply_all(tracked: TrackedImage, some: list[Record]) -> None:
    for record in some:
        tracked.apply(record)


@given(steps, st.integers(1, 4))
def test_changes_keep_another_image_equal(steps: list[Record | str], most: int) -> None:
    tracked, offsets, other = TrackedImage(), count(1), Image()
    history = [deepcopy(tracked.image)]
    at = 0
    for step in [*steps, TAKE]:
        if step == TAKE:
            changes = tracked.take(next(offsets))
            pieces = list(changes.pieces(at, most))
            assert [piece.offset for piece in pieces] == [at] * (len(pieces) - 1) + [changes.offset]
            for piece in pieces:
                piece.apply_to(other)
            at = changes.offset
            assert state_of(other) == state_of(tracked.image)
        elif step == SNAPSHOT:
            before = history[len(history) // 2]
            try:
                tracked.replace(deepcopy(before))
            except MetadataUnreadable:
                continue
        else:
            assert not isinstance(step, str)
            history.append(deepcopy(tracked.image))
            try:
                tracked.apply(step)
            except CorruptBatch:
                assert state_of(tracked.image) == state_of(history[-1])


@given(st.lists(records, max_size=40), st.lists(records, max_size=40))
def test_the_difference_leads_from_one_image_to_another(
    some: list[Record], others: list[Record]
) -> None:
    before, after = Image(), Image()
    for image, applied in ((before, some), (after, others)):
        for record in applied:
            if isinstance(record, m.TopicRecord) and record.topic_id in {
                topic.topic_id for topic in image.topics.values()
            }:
                continue  # no controller gives two topics one id
            try:
                image.apply(record)
            except CorruptBatch:
                continue
    try:
        changes = difference(before, after, 7)
    except MetadataUnreadable:
        return
    assert changes.is_empty == (state_of(before) == state_of(after))
    changes.apply_to(before)
    assert state_of(before) == state_of(after)


def test_a_name_that_is_used_again_is_another_topic() -> None:
    tracked = TrackedImage()
    apply_all(tracked, [m.TopicRecord("a", IDS[0]), partition(IDS[0])])
    tracked.apply(m.Config(TOPIC, "a", "x", "1"))
    tracked.take(3)
    apply_all(tracked, [m.RemoveTopic(IDS[0]), m.TopicRecord("a", IDS[1]), partition(IDS[1])])
    changes = tracked.take(6, 99)
    assert (changes.offset, changes.timestamp) == (6, 99)
    assert changes.topics_deleted == (TopicKey("a", IDS[0]),)
    assert changes.topics_created == (TopicKey("a", IDS[1]),)
    assert [*changes.partitions] == [PartitionKey(IDS[1], 0)]
    assert changes.configs == {(TOPIC, "a"): {}}


def test_a_topic_that_came_and_went_between_two_looks_is_not_mentioned() -> None:
    tracked = TrackedImage()
    apply_all(tracked, [m.TopicRecord("a", IDS[0]), partition(IDS[0]), m.RemoveTopic(IDS[0])])
    changes = tracked.take(3)
    assert not changes.topics_deleted
    assert not changes.topics_created
    assert not changes.partitions


def test_a_record_that_changes_nothing_known_leaves_changes_empty() -> None:
    tracked = TrackedImage()
    tracked.apply(m.NoOp())
    assert tracked.take(1).is_empty
    tracked.apply(m.FeatureLevel("group.version", 1))
    assert tracked.take(2).features == {"group.version": 1}


def test_pieces_bring_a_topic_whole_with_its_settings_and_the_offset_last() -> None:
    tracked = TrackedImage()
    for number, topic_id in enumerate(IDS):
        apply_all(tracked, [m.TopicRecord(str(number), topic_id), *(
            partition(topic_id, index) for index in range(10))])  # fmt: skip
        tracked.apply(m.Config(TOPIC, str(number), "retention.ms", "1"))
    pieces = list(tracked.take(1000).pieces(400, 20))
    assert [piece.offset for piece in pieces] == [400] * (len(pieces) - 1) + [1000]
    for piece in pieces[1:]:
        assert len(piece.partitions) == 10 * len(piece.topics_created)
        assert [*piece.configs] == [(TOPIC, key.name) for key in piece.topics_created]


def test_a_snapshot_without_a_partition_of_a_topic_is_refused() -> None:
    tracked = TrackedImage()
    apply_all(tracked, [m.TopicRecord("a", IDS[0]), partition(IDS[0]), partition(IDS[0], 1)])
    before, lacks = state_of(deepcopy(tracked.image)), deepcopy(tracked.image)
    del lacks.by_id[IDS[0]].partitions[1]
    with pytest.raises(MetadataUnreadable):
        tracked.replace(lacks)
    assert state_of(tracked.image) == before


def test_changes_are_values() -> None:
    assert Changes(offset=1) == replace(Changes(offset=2), offset=1)


def batch(*values: bytes | None, base_offset: int = 0) -> bytes:
    some = [LogRecord(0, None, value) for value in values]
    return build_batch(some, base_offset=base_offset, leader_epoch=1)


@pytest.mark.parametrize(
    "values",
    [
        [b"\1\x63\0later"],
        [b"\1\2\x07"],
        [b"\2\2\0"],
        [b""],
        [None],
        [encode(m.FeatureLevel(METADATA_VERSION, NEWEST_LEVEL + 1))],
        [encode(m.RemoveTopic(IDS[0]))],
        [encode(m.BeginTransaction()), encode(m.BeginTransaction())],
        [encode(m.EndTransaction())],
        [encode(m.AbortTransaction())],
    ],
    ids=[
        "type", "version", "frame", "empty", "null", "level", "unknown topic", "begins twice",
        "ends none", "aborts none",
    ],
)  # fmt: skip
def test_a_strict_replay_stops_where_another_notes_damage(values: list[bytes | None]) -> None:
    strict = MetadataReplay("path", is_strict=True)
    with pytest.raises(MetadataUnreadable):
        strict.take(batch(*values))


def test_a_strict_replay_counts_transactions_once_they_end() -> None:
    strict = MetadataReplay("path", is_strict=True)
    begins = [m.BeginTransaction("t"), m.FeatureLevel("group.version", 1)]
    strict.take(batch(*map(encode, begins)))
    assert (strict.is_in_transaction, strict.image.features) == (True, {})
    strict.take(batch(encode(m.EndTransaction()), base_offset=2))
    assert (strict.is_in_transaction, strict.image.features) == (False, {"group.version": 1})
    strict.take(batch(*map(encode, begins), encode(m.AbortTransaction("no")), base_offset=3))
    assert (strict.is_in_transaction, strict.next_offset) == (False, 6)
