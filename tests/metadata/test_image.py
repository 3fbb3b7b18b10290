"""What an image makes of records, and gives to a snapshot."""

from __future__ import annotations

from uuid import UUID

import pytest

from horolog.errors import CorruptBatch
from horolog.metadata import BROKER, TOPIC, Image
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION, Record, decode

A, B, DIRECTORY = UUID(int=10), UUID(int=11), UUID(int=500)
BROKER_1 = m.RegisterBroker(1, False, UUID(int=3), 5, (m.BrokerEndpoint("P", "host", 9092),), ())


def partition(topic_id: UUID = A, number: int = 0) -> m.PartitionRecord:
    return m.PartitionRecord(number, topic_id, (1,), (1,), (), (), 1, 0, 0, 0, (DIRECTORY,))


def image_of(*records: Record) -> Image:
    image = Image()
    for record in records:
        image.apply(record)
    return image


def again(image: Image) -> Image:
    return image_of(*map(decode, image.records()))


def test_a_change_of_a_partition_raises_the_epochs_that_it_does_not_say() -> None:
    image = image_of(m.TopicRecord("a", A), partition())
    image.apply(m.PartitionChange(0, A, isr=()))
    assert image.topics["a"].partitions[0] == partition()._replace(isr=(), partition_epoch=1)
    image.apply(m.PartitionChange(0, A, leader=1, recovery_state=1))
    image.apply(m.PartitionChange(0, A, leader=1, elr=(2,), directories=(A,)))
    assert image.topics["a"].partitions[0] == partition()._replace(
        isr=(),
        leader_epoch=2,
        partition_epoch=3,
        recovery_state=1,
        elr=(2,),
        directories=(A,),
    )
    image.apply(m.ClearElr(""))
    cleared = image.topics["a"].partitions[0]
    assert (cleared.elr, cleared.partition_epoch) == (None, 4)
    image.apply(m.ClearElr("a"))
    assert image.topics["a"].partitions[0] == cleared


def test_a_removed_topic_takes_its_partitions_and_settings_with_it() -> None:
    image = image_of(
        m.TopicRecord("a", A),
        partition(),
        m.Config(TOPIC, "a", "retention.ms", "1"),
        m.Config(BROKER, "", "retention.ms", "2"),
        m.RemoveTopic(A),
    )
    assert image.topics == {}
    assert image.by_id == {}
    assert image.configs == {(BROKER, ""): {"retention.ms": "2"}}
    image.apply(m.TopicRecord("a", B))
    assert image.topics["a"].partitions == {}
    assert image.settings_of(TOPIC, "a") == {}


def test_settings_are_set_and_removed_one_by_one() -> None:
    image = image_of(
        m.Config(TOPIC, "a", "x", "1"),
        m.Config(TOPIC, "a", "y", ""),
        m.Config(TOPIC, "a", "x", "2"),
    )
    assert image.settings_of(TOPIC, "a") == {"x": "2", "y": ""}
    for name in ("x", "y", "z"):
        image.apply(m.Config(TOPIC, "a", name, None))
    assert image.configs == {}


def test_a_broker_is_as_its_last_change_left_it() -> None:
    image = image_of(BROKER_1, m.BrokerChange(1, 5, fenced=-1))
    assert image.brokers[1] == BROKER_1._replace(fenced=False)
    image.apply(m.BrokerChange(1, 5, in_controlled_shutdown=1, log_dirs=(A,), cordoned=()))
    assert image.brokers[1] == BROKER_1._replace(
        fenced=False, in_controlled_shutdown=True, log_dirs=(A,), cordoned=()
    )
    image.apply(m.FenceBroker(1, 5))
    assert image.brokers[1].fenced
    image.apply(m.UnfenceBroker(1, 5))
    assert not image.brokers[1].fenced
    image.apply(m.UnregisterBroker(1, 5))
    assert image.brokers == {}


@pytest.mark.parametrize(
    "record",
    [
        partition(B),
        m.PartitionChange(0, B),
        m.PartitionChange(7, A),
        m.RemoveTopic(B),
        m.TopicRecord("a", B),
        m.ClearElr("b"),
        m.BrokerChange(2, 5),
        m.UnregisterBroker(2, 5),
        m.BrokerChange(1, 4),
        m.UnregisterBroker(1, 6),
    ],
)
def test_a_record_about_what_is_not_there_is_refused_and_changes_nothing(record: Record) -> None:
    image = image_of(m.TopicRecord("a", A), partition(), BROKER_1)
    before = list(image.records())
    with pytest.raises(CorruptBatch):
        image.apply(record)
    assert list(image.records()) == before


def test_a_snapshot_loses_nothing_and_begins_with_the_metadata_version() -> None:
    entity = (m.QuotaEntity("user", "alice"), m.QuotaEntity("client-id", None))
    records = [
        m.FeatureLevel("group.version", 1),
        m.FeatureLevel(METADATA_VERSION, 29),
        m.FeatureLevel("share.version", 1),
        m.FeatureLevel("share.version", 0),
        BROKER_1,
        m.RegisterController(1, UUID(int=3), False, (), (m.Supported("kraft.version", 0, 1),)),
        m.RegisterController(2, UUID(int=3), False, (), ()),
        m.UnregisterController(2),
        m.UnregisterController(3),
        m.TopicRecord("b", B),
        m.TopicRecord("a", A),
        partition(A),
        partition(A, 1),
        partition(B),
        m.Config(TOPIC, "a", "retention.ms", "1"),
        m.ProducerIdsRecord(1, 5, 1000),
        m.ProducerIdsRecord(1, 5, 2000),
        m.AccessControlEntry(A, 2, "a", 3, "User:alice", "*", 3, 3),
        m.AccessControlEntry(B, 2, "b", 3, "User:alice", "*", 3, 3),
        m.RemoveAccessControlEntry(B),
        m.ScramCredential("alice", 1, b"salt", b"key", b"other", 4096),
        m.ScramCredential("bob", 1, b"salt", b"key", b"other", 4096),
        m.RemoveScramCredential("bob", 1),
        m.ClientQuota(entity, "producer_byte_rate", 10.5),
        m.ClientQuota(entity, "consumer_byte_rate", 10.5),
        m.ClientQuota(entity[::-1], "consumer_byte_rate", 0.0, remove=True),
        m.DelegationToken("o", "r", ("x",), 1, 2, 3, "token"),
        m.DelegationToken("o", "r", ("x",), 1, 2, 3, "gone"),
        m.RemoveDelegationToken("gone"),
        m.Unknown(99, b"\1\x63\0later"),
        m.NoOp(),
    ]
    image = image_of(*records)
    snapshot = list(image.records())
    assert decode(snapshot[0]) == m.FeatureLevel(METADATA_VERSION, 29)
    assert snapshot == list(again(image).records())
    assert again(image).others == image.others
    assert again(image).tokens == image.tokens
    assert (len(image.others), [*image.tokens]) == (1, ["token"])
    assert [(q.key, q.value) for q in again(image).quotas.values()] == [
        ("producer_byte_rate", 10.5)
    ]
    assert (again(image).entries, again(image).credentials) == (image.entries, image.credentials)
    assert ([*image.entries], [*image.credentials]) == ([A], [("alice", 1)])
    assert [*image.controllers] == [1]
    assert (image.metadata_version, image.next_producer_id) == (29, 2000)
    assert image.features == {METADATA_VERSION: 29, "group.version": 1}
    assert list(image.topics) == ["b", "a"]
