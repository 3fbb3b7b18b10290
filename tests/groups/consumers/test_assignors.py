"""Assignors: which member gets which partition, as Apache Kafka 4.4.0 decides it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from random import Random
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from horolog.groups import ASSIGNORS, Assignment, Partitions, Subscriber, assign

TOPICS = {name: UUID(int=number) for number, name in enumerate("tuvwxy", 1)}
NAMES = {topic_id: name for name, topic_id in TOPICS.items()}
COUNTS = dict(zip(TOPICS.values(), (3, 2, 5, 8, 1, 6), strict=True))

VECTORS = """
A[tu] | A=t:0,1,2 u:0,1 | A=t:0,1,2 u:0,1
A[t] B[t] | A=t:0 B=t:1,2 | A=t:0,1 B=t:2
A[tu] B[tu] | A=t:0,1 B=t:2 u:0,1 | A=t:0,1 u:0 B=t:2 u:1
A[u] B[u] C[u] | A=- B=u:0 C=u:1 | A=u:0 B=u:1 C=-
A[t]=t:0,1,2 B[t] | A=t:0,1 B=t:2 | A=t:0,1 B=t:2
A[tu]=t:0,1,2 u:0,1 B[tu] | A=t:0,1,2 B=u:0,1 | A=t:0,1 u:0 B=t:2 u:1
A[w]=w:0,1,2,3 B[w]=w:4,5,6,7 C[w] | A=w:0,1,2 B=w:4,5,6 C=w:3,7 | A=w:0,1,2 B=w:3,4,5 C=w:6,7
A[w]=w:0,1,2 B[w]=w:3,4,5 | A=w:0,1,2,6 B=w:3,4,5,7 | A=w:0,1,2,3 B=w:4,5,6,7
A[v]=v:0,2 B[v]=v:1 | A=v:0,2 B=v:1,3,4 | A=v:0,1,2 B=v:3,4
A[t]=t:1 B[t]=t:0,2 | A=t:1 B=t:0,2 | A=t:0,1 B=t:2
A[t]=t:0,1 u:0 B[t]=t:2 u:1 | A=t:0,1 B=t:2 | A=t:0,1 B=t:2
A[t] B[tu] | A=t:0,1,2 B=u:0,1 | A=t:0,1 B=t:2 u:0,1
A[t] B[tu] C[uv] | A=t:0,2 B=t:1 u:0,1 C=v:0,1,2,3,4 | A=t:0,1 B=t:2 u:0 C=u:1 v:0,1,2,3,4
A[tv]=t:0,1,2 v:0,1,2,3,4 B[tu] C[v] | A=t:0,1 v:0 B=t:2 u:0,1 C=v:1,2,3,4 | A=t:0,1 v:0,1,2 B=t:2 u:0,1 C=v:3,4
A[t] B[] | A=t:0,1,2 B=- | A=t:0,1,2 B=-
A[] B[] | A=- B=- | A=- B=-
member-1[t] member-2[t] member-10[t] member-20[t] | member-1=- member-2=t:0 member-10=t:1 member-20=t:2 | member-1=t:0 member-2=t:2 member-10=t:1 member-20=-
6fa3d0e2-0001-4000-8000-000000000001[v] 0b1c2d3e-0002-4000-8000-000000000002[v] | 6fa3d0e2-0001-4000-8000-000000000001=v:0,1 0b1c2d3e-0002-4000-8000-000000000002=v:2,3,4 | 6fa3d0e2-0001-4000-8000-000000000001=v:3,4 0b1c2d3e-0002-4000-8000-000000000002=v:0,1,2
A[t] B/z[t] C/a[t] | A=t:0 B=t:1 C=t:2 | A=t:2 B=t:1 C=t:0
A2/ia[w]=w:0,1,2,3 B/ib[w]=w:4,5,6,7 | A2=w:0,1,2,3 B=w:4,5,6,7 | A2=w:0,1,2,3 B=w:4,5,6,7
A[u]=u:0,1 B[u] C[u] | A=u:0 B=- C=u:1 | A=u:0 B=u:1 C=-
A[w]=w:0,1 B[w]=w:2,3 C[w]=w:4,5 D[w]=w:6,7 E[w] F[w] G[w] | A=w:0,1 B=w:2 C=w:4 D=w:6 E=w:3 F=w:5 G=w:7 | A=w:0,1 B=w:2 C=w:3 D=w:4 E=w:5 F=w:6 G=w:7
A[tuvx] B[tuvx] | A=t:0,1,2 u:0,1 B=v:0,1,2,3,4 x:0 | A=t:0,1 u:0 v:0,1,2 x:0 B=t:2 u:1 v:3,4
A[y]=y:0,1,2,3,4,5 B[yx] C[yu] | A=y:0,1,2 B=x:0 y:4,5 C=u:0,1 y:3 | A=y:0,1 B=x:0 y:2,3 C=u:0,1 y:4,5
""".strip().splitlines()  # noqa: E501 - members before, then after `uniform` and after `range`


def partitions_of(text: str) -> dict[UUID, frozenset[int]]:
    found = re.findall(r"(\w):([\d,]+)", text)
    return {TOPICS[name]: frozenset(map(int, numbers.split(","))) for name, numbers in found}


def subscribers_of(text: str) -> list[Subscriber]:
    """Read `ID/INSTANCE[TOPICS]=PARTITIONS ...`."""
    return [
        Subscriber(member, instance or None, frozenset(map(TOPICS.get, topics)), partitions_of(had))  # type: ignore[arg-type]
        for member, instance, topics, had in re.findall(
            r"([\w-]+)(?:/(\w+))?\[(\w*)\](=[^A-Z]*)?", text
        )
    ]


def assignment_of(text: str) -> Assignment:
    found = re.findall(r"([\w-]+)=(.*?)(?=\s[\w-]+=|$)", text)
    return {member: partitions_of(partitions) for member, partitions in found}


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_get_what_apache_kafkas_classes_give_them(vector: str, assignor: str) -> None:
    members, *results = vector.split(" | ")
    subscribers = subscribers_of(members)
    wanted = assignment_of(results[[*ASSIGNORS].index(assignor)])
    assert len(subscribers) == len(wanted) > 0
    is_homogeneous = len({member.topics for member in subscribers}) == 1
    assigned = assign(assignor, subscribers, COUNTS, is_homogeneous=is_homogeneous)
    assert assigned == wanted


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[UUID, int], bool]:
    """Members with any targets, also those that a fault left: shared ones, unknown ones."""
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=5))
    counts = {UUID(int=draw(st.integers(0, (1 << 128) - 1))): size for size in sizes}
    topics = st.frozensets(st.sampled_from([*counts, UUID(int=7)]))
    partitions = st.frozensets(st.integers(-1, 21), min_size=1)
    previous = st.dictionaries(st.sampled_from([*counts, UUID(int=8)]), partitions)
    ids = draw(st.lists(st.text(max_size=5), min_size=1, max_size=12, unique=True))
    instances = st.none() | st.text(max_size=2)
    is_homogeneous = draw(st.booleans())
    of_all = draw(topics)
    members = [
        Subscriber(
            member_id, draw(instances), of_all if is_homogeneous else draw(topics), draw(previous)
        )
        for member_id in ids
    ]
    return members, counts, is_homogeneous


def sizes(assigned: Assignment) -> dict[str, int]:
    return {member: sum(map(len, partitions.values())) for member, partitions in assigned.items()}


def is_level(numbers: Iterable[int]) -> bool:
    found = list(numbers)
    return max(found) - min(found) <= 1


@given(groups(), st.sampled_from(list(ASSIGNORS)))
def test_every_partition_of_a_subscribed_topic_has_one_owner_that_is_subscribed(
    group: tuple[list[Subscriber], dict[UUID, int], bool], assignor: str
) -> None:
    members, counts, is_homogeneous = group
    assigned = assign(assignor, members, counts, is_homogeneous=is_homogeneous)
    assert assigned.keys() == {member.member_id for member in members}
    for topic_id, count in counts.items():
        subscribers = [member.member_id for member in members if topic_id in member.topics]
        owned = [sorted(assigned[member].get(topic_id, ())) for member in subscribers]
        assert sorted(chain.from_iterable(owned)) == list(range(count if subscribers else 0))
    topics = {member.member_id: member.topics & counts.keys() for member in members}
    for member, partitions in assigned.items():
        assert partitions.keys() <= topics[member]
        assert all(partitions.values()), "a topic without partitions is left out"


@given(groups())
def test_range_divides_each_topic_evenly(
    group: tuple[list[Subscriber], dict[UUID, int], bool],
) -> None:
    members, counts, is_homogeneous = group
    assigned = assign("range", members, counts, is_homogeneous=is_homogeneous)
    for topic_id in counts:
        subscribers = [member.member_id for member in members if topic_id in member.topics]
        owned = [sorted(assigned[member].get(topic_id, ())) for member in subscribers]
        assert not owned or is_level(map(len, owned))
        assert all(it == list(range(it[0], it[0] + len(it))) for it in owned if it)


@given(groups())
def test_uniform_leaves_no_partition_with_a_member_that_has_two_more_than_another_subscriber(
    group: tuple[list[Subscriber], dict[UUID, int], bool],
) -> None:
    members, counts, is_homogeneous = group
    assigned = assign("uniform", members, counts, is_homogeneous=is_homogeneous)
    loads = sizes(assigned)
    for topic_id in counts:
        subscribers = [member.member_id for member in members if topic_id in member.topics]
        for giver in subscribers:
            if topic_id in assigned[giver]:
                assert loads[giver] - min(loads[taker] for taker in subscribers) <= 1
    assert not is_homogeneous or is_level(loads.values())


@given(groups(), st.sampled_from(list(ASSIGNORS)), st.randoms())
def test_an_assignment_stays_as_it_is_while_nothing_changes(
    group: tuple[list[Subscriber], dict[UUID, int], bool], assignor: str, rng: Random
) -> None:
    members, counts, is_homogeneous = group
    assigned = assign(assignor, members, counts, is_homogeneous=is_homogeneous)
    members = with_previous(members, assigned)
    rng.shuffle(members)
    assert assign(assignor, members, counts, is_homogeneous=is_homogeneous) == assigned


@given(groups(), st.data())
def test_uniform_moves_no_partition_between_members_that_stay(
    group: tuple[list[Subscriber], dict[UUID, int], bool], data: st.DataObject
) -> None:
    members, counts, is_homogeneous = group
    assume(is_homogeneous)
    assigned = assign("uniform", members, counts, is_homogeneous=True)
    stays = data.draw(
        st.lists(st.sampled_from(with_previous(members, assigned)), unique_by=id, min_size=1)
    )
    joins = [
        Subscriber(f"new {number}", None, members[0].topics, {})
        for number in range(data.draw(st.sampled_from([0, 3])) if len(stays) == len(members) else 0)
    ]
    then = assign("uniform", [*stays, *joins], counts, is_homogeneous=True)
    for member in stays:
        for topic_id, partitions in then[member.member_id].items():
            taken = partitions - assigned[member.member_id].get(topic_id, frozenset())
            givers = [
                it.member_id
                for it in stays
                if taken & assigned[it.member_id].get(topic_id, frozenset())
            ]
            assert not givers


def with_previous(
    members: Sequence[Subscriber], assigned: Mapping[str, Partitions]
) -> list[Subscriber]:
    return [member._replace(previous=assigned[member.member_id]) for member in members]


def test_a_group_without_members_has_an_empty_assignment() -> None:
    for assignor in ASSIGNORS:
        assert assign(assignor, [], COUNTS, is_homogeneous=True) == {}
