from collections.abc import Mapping
from uuid import UUID

from horolog.metadata.reconcile import FoundPartitions, Plan, reconcile
from horolog.metadata.store import TopicRow

OURS, THEIRS, NEW = UUID(int=1), UUID(int=2), UUID(int=3)
ROW = TopicRow("t", OURS, 3)


def plan(
    *rows: TopicRow, found: Mapping[str, FoundPartitions], adopt_defaults: bool = False
) -> Plan:
    return reconcile(rows, found, new_id=lambda: NEW, adopt_defaults=adopt_defaults)


def test_what_agrees_is_served_and_nothing_is_touched() -> None:
    made = plan(ROW, found={"t": dict.fromkeys(range(3), OURS)})
    assert made.rows == [ROW]
    assert made.partitions == {"t": (0, 1, 2)}
    assert [made.create, made.delete, made.put, made.forget, made.remarks] == [[]] * 5


def test_a_kill_between_row_and_directories_is_made_up_for() -> None:
    made = plan(ROW, found={"t": {0: OURS}})
    assert made.create == [("t", 1), ("t", 2)]
    assert made.rows == [ROW]


def test_a_deletion_that_was_begun_is_finished() -> None:
    made = plan(ROW._replace(deleting=True), found={"t": {0: OURS, 2: None}})
    assert made.delete == [("t", 0), ("t", 2)]
    assert made.forget == ["t"]
    assert made.rows == []


def test_a_directory_that_nobody_remembers_is_adopted_with_its_id_and_its_gaps() -> None:
    made = plan(found={"t": {2: THEIRS, 5: THEIRS}})
    assert made.rows == made.put == [TopicRow("t", THEIRS, 6, adopted=True)]
    assert made.partitions == {"t": (2, 5)}
    assert not made.create
    assert made.adopted == ["t"]


def test_an_adopted_directory_without_an_id_is_given_one_and_keeps_it() -> None:
    first = plan(found={"t": {0: None}})
    assert first.rows[0].topic_id == NEW
    second = reconcile(first.put, {"t": {0: None}}, new_id=lambda: THEIRS)
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


def test_a_deletion_spares_directories_with_another_id() -> None:
    made = plan(ROW._replace(deleting=True), found={"t": {0: OURS, 1: THEIRS}})
    assert made.delete == [("t", 0)]
    assert made.rows == [TopicRow("t", THEIRS, 2, adopted=True)]
    assert made.partitions == {"t": (1,)}


def test_more_directories_than_remembered_belong_to_the_topic() -> None:
    made = plan(ROW, found={"t": {0: OURS, 1: OURS, 2: OURS, 4: None}})
    assert made.put == [ROW._replace(partitions=5)]
    assert made.create == [("t", 3)]


def test_adopted_topics_become_ours_when_asked() -> None:
    made = plan(found={"t": {1: THEIRS}}, adopt_defaults=True)
    assert made.rows == made.put == [TopicRow("t", THEIRS, 2)]
    assert made.create == [("t", 0)]


def test_what_kafka_keeps_for_itself_never_becomes_ours() -> None:
    made = plan(found={"__consumer_offsets": {0: THEIRS}}, adopt_defaults=True)
    assert made.rows[0].adopted
    assert not made.create
