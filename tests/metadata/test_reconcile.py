from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.metadata import (
    AS_FOUND,
    MAX_CREATED,
    FoundPartitions,
    StartPlan,
    TopicOnDisk,
    TopicRow,
    stored_count,
)
from horolog.metadata.reconcile import reconcile
from horolog.storage import INTERNAL_TOPICS

OURS, THEIRS, NEW = UUID(int=1), UUID(int=2), UUID(int=3)
ROW = TopicRow("t", OURS, 3)


def plan(
    *rows: TopicRow,
    found: Mapping[str, FoundPartitions],
    blocked: Mapping[str, Mapping[int, str]] | None = None,
    **more: Any,
) -> StartPlan:
    blocked = blocked or {}
    both = {
        name: TopicOnDisk(found.get(name, {}), blocked.get(name, {})) for name in {*found, *blocked}
    }
    return reconcile(rows, both, new_id=lambda: NEW, **more)


def test_what_agrees_is_served_and_nothing_is_touched() -> None:
    made = plan(ROW, found={"t": dict.fromkeys(range(3), OURS)})
    assert made.rows == [ROW]
    assert made.partitions == {"t": (0, 1, 2)}
    assert [made.create, made.delete, made.put, made.forget, made.warnings] == [[]] * 5


def test_a_kill_between_row_and_directories_is_made_up_for() -> None:
    made = plan(ROW, found={"t": {0: OURS}})
    assert made.create == [("t", 1), ("t", 2)]
    assert made.rows == [ROW]


def test_a_deletion_that_was_begun_is_finished() -> None:
    made = plan(ROW._replace(deleting=True), found={"t": {0: OURS, 2: None}})
    assert made.delete == [("t", 0), ("t", 2)]
    assert made.forget == ["t"]
    assert made.rows == []


def test_a_topic_without_a_row_is_adopted_with_its_id_and_its_gaps() -> None:
    made = plan(found={"t": {2: THEIRS, 5: THEIRS}})
    assert made.rows == made.put == [TopicRow("t", THEIRS, AS_FOUND, adopted=True, indexes=(2, 5))]
    assert made.partitions == {"t": (2, 5)}
    assert not made.create
    assert made.adopted == ["t"]


def test_an_adopted_topic_without_an_id_is_given_one_and_keeps_it() -> None:
    first = plan(found={"t": {0: None}})
    assert first.rows[0].topic_id == NEW
    second = reconcile(first.put, {"t": TopicOnDisk({0: None})}, new_id=lambda: THEIRS)
    assert second.rows == first.rows
    assert not second.put


def test_an_adopted_topic_that_left_the_disk_is_forgotten() -> None:
    made = plan(ROW._replace(adopted=True), found={})
    assert made.forget == ["t"]
    assert not made.create


def test_directories_with_another_id_are_adopted_and_not_mistaken_for_ours() -> None:
    made = plan(ROW, found={"t": {0: THEIRS}})
    assert made.rows == made.put == [TopicRow("t", THEIRS, 1, adopted=True)]
    assert made.create == made.delete == []


def test_one_directory_with_another_id_is_offline_and_the_others_are_served() -> None:
    made = plan(ROW, found={"t": {0: OURS, 1: THEIRS, 2: None}})
    assert made.rows == [ROW]
    assert made.partitions == {"t": (0, 1, 2)}
    assert list(made.left_alone) == [("t", 1)]
    assert made.create == made.put == []


def test_a_directory_with_the_id_of_another_stored_topic_is_offline() -> None:
    """Adopted it would be another topic, without its deleted records and committed offsets."""
    other = TopicRow("other", THEIRS, 1)
    found: dict[str, FoundPartitions] = {"t": {0: THEIRS}, "other": {0: THEIRS}}
    made = plan(ROW, other, found=found)
    assert made.rows == [ROW, other]
    assert made.put == []
    (why,) = made.left_alone.values()
    assert "remove that file if the directory belongs to the topic" in why


def test_a_copied_directory_does_not_take_its_originals_id() -> None:
    made = plan(ROW, found={"t": dict.fromkeys(range(3), OURS), "copy": {0: OURS}})
    assert made.rows == [ROW, TopicRow("copy", NEW, 1, adopted=True)]


def test_a_deletion_spares_directories_with_another_id() -> None:
    made = plan(ROW._replace(deleting=True), found={"t": {0: OURS, 1: THEIRS}})
    assert made.delete == [("t", 0)]
    assert made.rows == [TopicRow("t", THEIRS, AS_FOUND, adopted=True, indexes=(1,))]
    assert made.partitions == {"t": (1,)}


@pytest.mark.parametrize("index", [3, 99_999, 2_147_483_647])
def test_a_directory_beyond_the_number_of_partitions_is_left_alone(index: int) -> None:
    for topic_id in (OURS, THEIRS, None):
        made = plan(ROW, found={"t": {0: OURS, 1: OURS, 2: OURS, index: topic_id}})
        assert made.partitions == {"t": (0, 1, 2)}
        assert list(made.left_alone) == [("t", index)]
        assert made.put == made.create == made.delete == []


def test_a_directory_beyond_the_number_of_partitions_outlives_the_topic() -> None:
    made = plan(ROW._replace(deleting=True), found={"t": {0: OURS, 7: None}})
    assert made.delete == [("t", 0)]
    assert made.partitions == {"t": (7,)}
    assert made.rows[0].adopted


@pytest.mark.parametrize("adopt_defaults", [False, True])
def test_gaps_of_an_adopted_topic_are_never_filled(adopt_defaults: bool) -> None:
    found: dict[str, FoundPartitions] = {"t": {0: THEIRS, 2_147_483_647: THEIRS}}
    first = plan(found=found, adopt_defaults=adopt_defaults)
    row = TopicRow("t", THEIRS, AS_FOUND, adopted=not adopt_defaults, indexes=(0, 2_147_483_647))
    assert first.rows == [row]
    again = plan(*first.put, found=found)
    for made in (first, again):
        assert made.partitions == {"t": (0, 2_147_483_647)}
        assert not made.create


def test_a_stored_number_that_no_request_can_have_made_creates_nothing() -> None:
    made = plan(ROW._replace(partitions=1 << 31), found={"t": {0: OURS}})
    assert made.partitions == {"t": (0,)}
    assert made.create == made.delete == made.forget == []
    assert "2147483648 partitions" in made.warnings[0]


def test_a_name_that_something_else_has_is_offline_and_nothing_is_created_there() -> None:
    blocked = {"t": {1: "t-1 is a symbolic link", 5: "t-5 is not a directory"}}
    made = plan(ROW, found={"t": {0: OURS}}, blocked=blocked)
    assert made.partitions == {"t": (0, 1, 2)}
    assert made.create == [("t", 2)]
    assert made.left_alone == {
        ("t", 1): "t-1 is a symbolic link",
        ("t", 5): "t-5 is not a directory",
    }


def test_a_name_that_something_else_has_makes_no_topic() -> None:
    made = plan(found={}, blocked={"notes": {2024: "notes-2024 is not a directory"}})
    assert made.rows == made.put == []


def test_an_adopted_topic_whose_directory_became_a_link_is_not_forgotten() -> None:
    made = plan(ROW._replace(adopted=True), found={}, blocked={"t": {0: "t-0 is a symbolic link"}})
    assert not made.forget


def test_adopted_topics_become_ours_when_asked() -> None:
    made = plan(found={"t": {0: THEIRS}}, adopt_defaults=True)
    assert made.rows == made.put == [TopicRow("t", THEIRS, 1)]
    assert not made.create


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_a_row_of_an_internal_topic_is_not_served_and_its_directories_stay(name: str) -> None:
    row = TopicRow(name, THEIRS, 50)
    kept = plan(row, ROW, found={"t": dict.fromkeys(range(3), OURS)}, internal={name})
    assert kept.rows == [ROW]
    assert kept.create == kept.delete == kept.put == kept.forget == []
    assert name in kept.warnings[0]
    assert plan(row, found={}).forget == [name]


IDS = st.sampled_from([None, *(UUID(int=n) for n in range(1, 5))])
INDEXES = st.sampled_from([0, 1, 2, 3, 4, 99_999, (1 << 31) - 1])
NAMES = st.sampled_from(["a", "b", "__remote_log_metadata"])
ROWS = st.lists(
    st.builds(
        TopicRow,
        NAMES,
        IDS.filter(lambda topic_id: topic_id is not None),
        st.sampled_from([AS_FOUND, 1, 3, 20_000, 1 << 31]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=3,
    unique_by=lambda row: row.name,
)
FOUND = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.builds(
        TopicOnDisk,
        st.dictionaries(INDEXES, IDS, max_size=5),
        st.just({}),
    ).filter(lambda found: bool(found.partitions)),
)


@given(rows=ROWS, found=FOUND, adopt_defaults=st.booleans())
def test_whatever_is_there_a_plan_is_safe_and_the_next_starts_agree(
    rows: list[TopicRow], found: dict[str, TopicOnDisk], adopt_defaults: bool
) -> None:
    ids = iter(UUID(int=n) for n in range(100, 200))
    made = reconcile(rows, found, new_id=lambda: next(ids), adopt_defaults=adopt_defaults)
    stored = {row.name: row for row in rows}
    for name, index in made.delete:
        row = stored[name]
        assert row.deleting
        assert found[name].partitions[index] in (None, row.topic_id)
    assert len(made.create) <= MAX_CREATED * len(rows)
    on_disk = {(name, index) for name, each in found.items() for index in each.partitions}
    assert not on_disk.intersection(made.create)
    served = {(name, index) for name, each in made.partitions.items() for index in each}
    assert on_disk <= served | set(made.left_alone) | set(made.delete)
    assert len({row.topic_id for row in made.rows}) == len(made.rows)

    disk: dict[str, dict[int, UUID | None]] = {
        name: dict(each.partitions) for name, each in found.items()
    }
    for _ in range(4):
        stored = {row.name: row for row in [*stored.values(), *made.put]}
        for name in set(made.forget) - {row.name for row in made.put}:
            del stored[name]
        by_name = {row.name: row for row in made.rows}
        for name, index in made.delete:
            del disk[name][index]
        for name, index in made.create:
            disk.setdefault(name, {})[index] = by_name[name].topic_id
        before, now = made, {name: TopicOnDisk(each) for name, each in disk.items() if each}
        made = reconcile(
            stored.values(), now, new_id=lambda: next(ids), adopt_defaults=adopt_defaults
        )
        assert made.create == made.delete == []
        if made.rows == before.rows:
            break
    else:
        pytest.fail("every start makes another plan")
    assert made.partitions == before.partitions
    assert not made.put


@pytest.mark.parametrize(
    ("partitions", "count"), [((0,), 1), ((0, 1, 2), 3), ((1,), AS_FOUND), ((0, 2), AS_FOUND)]
)
def test_gaps_are_stored_as_such(partitions: tuple[int, ...], count: int) -> None:
    assert stored_count(partitions) == count


def test_a_followed_topic_stays_one_when_its_row_is_lost_or_its_directories_are_others() -> None:
    lost = plan(found={"t": {0: OURS}}, followed={"t"})
    assert lost.put == [TopicRow("t", OURS, 1, adopted=True, followed=True)]
    followed = ROW._replace(followed=True)
    replaced = plan(followed, found={"t": {0: THEIRS}})
    assert replaced.put == [TopicRow("t", THEIRS, 1, adopted=True, followed=True)]
    deleted = plan(followed._replace(deleting=True), found={"t": {0: OURS, 1: THEIRS}})
    assert deleted.put == [TopicRow("t", THEIRS, AS_FOUND, adopted=True, indexes=(1,))]
