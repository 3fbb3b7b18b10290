"""When horolog continues as the Kafka node that wrote a directory, and when it does not."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest

from horolog.errors import CorruptFile
from horolog.metadata import TOPIC, UNASSIGNED, Image, static_voters, why_not
from horolog.metadata.taking_over import FormerNode, was_led_by_another
from horolog.schemas import metadata as m
from horolog.schemas.control import Voter
from horolog.schemas.metadata import Record
from horolog.storage import Files

A, HERE, ELSEWHERE = UUID(int=10), UUID(int=500), UUID(int=501)
NODE = FormerNode(1, 1, HERE)
LEVEL = m.FeatureLevel(m.METADATA_VERSION, 21)


def broker(broker_id: int, *, fenced: bool) -> m.RegisterBroker:
    return m.RegisterBroker(broker_id, False, UUID(int=3), 5, (), (), None, fenced)


def partition(
    replicas: tuple[int, ...] = (1,),
    directories: tuple[UUID, ...] = (HERE,),
    adding: tuple[int, ...] = (),
) -> m.PartitionRecord:
    return m.PartitionRecord(0, A, replicas, (), (), adding, -1, 0, 0, 0, directories)


def refusal(
    *records: Record,
    voters: tuple[Voter, ...] = (Voter(1),),
    damage: tuple[str, ...] = (),
    node: FormerNode = NODE,
) -> str | None:
    image = Image()
    for record in records:
        image.apply(record)
    return why_not(image, node, voters, damage)


@pytest.mark.parametrize("directory", [HERE, UNASSIGNED])
def test_a_node_that_was_alone_is_gone_on_as(directory: UUID) -> None:
    alone = (
        LEVEL,
        broker(1, fenced=False),
        broker(2, fenced=True),
        m.RegisterController(1, UUID(int=4), False, (), ()),
        m.ZkMigrationState(0),
        m.TopicRecord("a", A),
        partition(directories=(directory,)),
        m.Config(TOPIC, "a", "remote.storage.enable", "false"),
    )
    assert refusal(*alone) is None
    assert refusal(*alone, voters=(Voter(1, HERE),)) is None
    assert refusal(*alone, voters=()) is None
    assert (
        refusal(LEVEL, m.TopicRecord("a", A), partition(directories=())) is None
    )  # before KIP-858


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ((), "no metadata of a Kafka"),
        ((m.FeatureLevel(m.METADATA_VERSION, 34),), "metadata.version is 34"),
        ((m.FeatureLevel(m.METADATA_VERSION, 6),), "metadata.version is 6"),
        ((LEVEL, broker(2, fenced=False)), "broker 2 of its cluster is not fenced"),
        ((LEVEL, m.RegisterController(3, A, False, (), ())), "node 3 is a voter"),
        ((LEVEL, m.ZkMigrationState(2)), "migration from ZooKeeper"),
        ((LEVEL, m.TopicRecord("a", A), partition((1, 2))), r"a-0 has the replicas \[1, 2\]"),
        ((LEVEL, m.TopicRecord("a", A), partition((2,))), r"a-0 has the replicas \[2\]"),
        ((LEVEL, m.TopicRecord("a", A), partition(adding=(2,))), "a-0 has the replicas"),
        (
            (LEVEL, m.TopicRecord("a", A), partition(directories=(ELSEWHERE,))),
            "a-0 is in another log directory",
        ),
        (
            (LEVEL, m.TopicRecord("a", A), m.Config(TOPIC, "a", "remote.storage.enable", "true")),
            "a are in remote storage",
        ),
    ],
)
def test_a_node_that_was_not_alone_is_refused(records: tuple[Record, ...], why: str) -> None:
    said = refusal(*records)
    assert said is not None
    assert re.search(why, said)


def test_a_registration_of_an_earlier_horolog_is_not_anothers() -> None:
    image = Image()
    for levels, others, is_anothers in [
        ((7, 30), (), False),
        ((7, 33), (), False),
        ((7, 33), (m.Supported("group.version", 0, 1),), False),
        ((1, 20), (m.Supported("group.version", 0, 1),), True),
        (
            (7, 33),
            (m.Supported("group.version", 0, 1), m.Supported("kraft.version", 0, 1)),
            True,
        ),
    ]:
        features = (
            m.Supported(m.METADATA_VERSION, *levels),
            m.Supported(m.TRANSACTION_VERSION, 0, 2),
        )
        image.apply(broker(1, fenced=False)._replace(features=(*features, *others)))
        assert was_led_by_another(image, 1) == is_anothers
    assert not was_led_by_another(image, 2)


def test_other_voters_another_node_and_damage_are_refused() -> None:
    assert "node 2 is a voter" in str(refusal(LEVEL, voters=(Voter(1), Voter(2))))
    assert "another directory" in str(refusal(LEVEL, voters=(Voter(1, ELSEWHERE),)))
    assert "set node.id=4" in str(refusal(LEVEL, node=FormerNode(1, 4, HERE)))
    assert "damaged (a batch)" in str(refusal(LEVEL, damage=("a batch",)))


@pytest.mark.parametrize(
    ("text", "voters"),
    [
        (None, ()),
        ('{"leaderEpoch":1,"currentVoters":[{"voterId":1},{"voterId":2}]}', (Voter(1), Voter(2))),
        ('{"leaderEpoch":1,"data_version":1}', ()),
        ('{"currentVoters":[]}', ()),
    ],
)
def test_the_quorum_state_names_the_voters_of_a_static_quorum(
    text: str | None, voters: tuple[Voter, ...], tmp_path: Path
) -> None:
    path = tmp_path / "quorum-state"
    if text is not None:
        path.write_text(text)
    assert static_voters(Files(), str(path)) == voters


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"currentVoters":7}',
        '{"currentVoters":[{}]}',
        '{"currentVoters":[{"voterId":1},{"voterId":"2"}]}',
        '{"currentVoters":[{"voterId":true}]}',
    ],
)
def test_a_quorum_state_that_hides_a_voter_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "quorum-state"
    path.write_text(text)
    with pytest.raises(CorruptFile, match="quorum-state"):
        static_voters(Files(), str(path))
