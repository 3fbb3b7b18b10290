"""DescribeTopicPartitions: topics in the order of their names, page by page."""

from typing import Any

import pytest
from running_broker import RunningBroker

from horolog.errors import ErrorCode
from horolog.wire import ApiKey


def describe(
    broker: RunningBroker,
    *names: str,
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> Any:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    return broker.ask(
        *(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0),
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=at,
    )


def found(answer: Any) -> list[tuple[str, list[int]]]:
    return [(it.name, [one.partition_index for one in it.partitions]) for it in answer.topics]


@pytest.fixture
def topics(broker: RunningBroker) -> RunningBroker:
    for name, count in (("c", 1), ("a", 3), ("b", 2)):
        broker.create_topic(name, count)
    return broker


def test_partitions_are_led_by_this_broker(topics: RunningBroker) -> None:
    (a,) = describe(topics, "a").topics
    assert (a.error_code, a.topic_id) == (0, topics.broker.topics.find("a").topic_id)
    first = a.partitions[0]
    assert (first.error_code, first.leader_id, first.leader_epoch) == (0, 1, 0)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ((1,), (1,), ())
    assert (first.eligible_leader_replicas, first.last_known_elr) == ((), ())


def test_all_topics_are_read_in_pages_of_any_size(topics: RunningBroker) -> None:
    everything = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]
    for limit in (-1, 0, 1, 2, 3, 4, 5, 6, 2000):
        read, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            answer = describe(topics, limit=limit, cursor=cursor)
            page = [(name, index) for name, indexes in found(answer) for index in indexes]
            assert len(page) <= max(1, limit)
            read, pages, after = read + page, pages + 1, answer.next_cursor
            cursor = None if after is None else (after.topic_name, after.partition_index)
        assert read == everything, limit


def test_a_cursor_may_name_what_is_gone(topics: RunningBroker) -> None:
    assert found(describe(topics, cursor=("aa", 1))) == [("b", [0, 1]), ("c", [0])]
    assert found(describe(topics, cursor=("b", 5))) == [("b", []), ("c", [0])]
    assert found(describe(topics, cursor=("d", 0))) == []


def test_a_cursor_belongs_to_the_topics_that_are_asked_for(topics: RunningBroker) -> None:
    for cursor in (("b", 0), ("a", -1)):
        answer = describe(topics, "a", "c", cursor=cursor)
        assert {it.error_code for it in answer.topics} == {ErrorCode.invalid_request}
    assert found(describe(topics, "c", "a", cursor=("a", 1))) == [("a", [1, 2]), ("c", [0])]


def test_unknown_topics_are_named_and_take_no_place(topics: RunningBroker) -> None:
    answer = describe(topics, "none", "c", "no/name", "a", limit=4)
    codes = {it.name: it.error_code for it in answer.topics}
    unknown, invalid = ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_topic_exception
    assert codes == {"a": 0, "c": 0}
    assert answer.next_cursor.topic_name == "no/name"
    rest = describe(topics, "none", "c", "no/name", "a", cursor=("no/name", 0))
    assert {it.name: it.error_code for it in rest.topics} == {"none": unknown, "no/name": invalid}
