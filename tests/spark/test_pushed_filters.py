import base64
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_reading import moment
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from horolog.sources import EVERYTHING, Interval, RowFilter, columns
from horolog.spark.read.filters import absorb, pass_over_unheld

TIME, TIME_MS = ("timestamp",), ("timestampMs",)
OFFSET, PARTITION, TOPIC = ("offset",), ("partition",), ("topic",)
NINE_MS = 1_700_000_000_000
COMPARISONS = {
    EqualTo: lambda row, value: row == value,
    GreaterThan: lambda row, value: row > value,
    GreaterThanOrEqual: lambda row, value: row >= value,
    LessThan: lambda row, value: row < value,
    LessThanOrEqual: lambda row, value: row <= value,
}


def shown(timestamp_ms: int) -> datetime | None:
    """The column `timestamp` of a record with this time."""
    if timestamp_ms == -1 or not Interval(
        columns.FIRST_TIMESTAMP_MS, columns.LAST_TIMESTAMP_MS
    ).__contains__(timestamp_ms):
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)


def spark_keeps(condition, timestamp_ms: int) -> bool:
    time = shown(timestamp_ms) if condition.attribute == TIME else timestamp_ms
    if time is None:
        return False
    if isinstance(condition, IsNotNull):
        return True
    if isinstance(condition, In):
        return time in condition.value
    return COMPARISONS[type(condition)](time, condition.value)


NEAR = st.sampled_from([-1, 0, 1, NINE_MS, columns.FIRST_TIMESTAMP_MS, columns.LAST_TIMESTAMP_MS])
TIMES_MS = st.one_of(
    st.builds(lambda near, by: near + by, NEAR, st.integers(-3, 3)),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
LITERALS = st.builds(
    lambda ms, us: moment(ms) + timedelta(microseconds=us),
    st.builds(
        lambda near, by: min(max(near + by, columns.FIRST_TIMESTAMP_MS), columns.LAST_TIMESTAMP_MS),
        NEAR,
        st.integers(-3, 3),
    ),
    st.integers(-999, 999),
)
CONDITIONS = st.one_of(
    st.builds(lambda kind, value: kind(TIME, value), st.sampled_from([*COMPARISONS]), LITERALS),
    st.builds(lambda kind, value: kind(TIME_MS, value), st.sampled_from([*COMPARISONS]), TIMES_MS),
    st.builds(lambda values: In(TIME, tuple(values)), st.lists(LITERALS, min_size=1, max_size=3)),
    st.builds(lambda values: In(TIME_MS, tuple(values)), st.lists(TIMES_MS, max_size=3)),
    st.just(IsNotNull(TIME)),
)


@given(st.lists(CONDITIONS, max_size=4), st.lists(TIMES_MS, min_size=1, max_size=20))
def test_what_is_read_and_what_spark_filters_again_give_what_spark_alone_would(filters, times):
    pushed, left = absorb(filters)
    for timestamp_ms in times:
        # A batch of this record alone, whose header, as Kafka's, does not count -1.
        header_ms = -(1 << 63) if timestamp_ms == -1 else timestamp_ms
        is_read = pushed.from_ms is None or (header_ms >= pushed.from_ms <= timestamp_ms)
        is_read = is_read and (pushed.to_ms is None or timestamp_ms < pushed.to_ms)
        kept = is_read and all(spark_keeps(condition, timestamp_ms) for condition in left)
        assert kept == all(spark_keeps(condition, timestamp_ms) for condition in filters)


@pytest.mark.parametrize(
    ("condition", "first", "last"),
    [
        (GreaterThanOrEqual(TIME, moment(NINE_MS)), NINE_MS, columns.LAST_TIMESTAMP_MS),
        (GreaterThanOrEqual(TIME, moment(NINE_MS + 0.001)), NINE_MS + 1, columns.LAST_TIMESTAMP_MS),
        (GreaterThan(TIME, moment(NINE_MS)), NINE_MS + 1, columns.LAST_TIMESTAMP_MS),
        (GreaterThan(TIME, moment(NINE_MS + 0.999)), NINE_MS + 1, columns.LAST_TIMESTAMP_MS),
        (LessThan(TIME, moment(NINE_MS)), columns.FIRST_TIMESTAMP_MS, NINE_MS - 1),
        (LessThan(TIME, moment(NINE_MS + 0.001)), columns.FIRST_TIMESTAMP_MS, NINE_MS),
        (LessThanOrEqual(TIME, moment(NINE_MS + 0.999)), columns.FIRST_TIMESTAMP_MS, NINE_MS),
        (LessThanOrEqual(TIME, moment(-1.5)), columns.FIRST_TIMESTAMP_MS, -2),
        (EqualTo(TIME, moment(NINE_MS)), NINE_MS, NINE_MS),
        (EqualNullSafe(TIME, moment(NINE_MS)), NINE_MS, NINE_MS),
    ],
)
def test_microseconds_are_rounded_to_the_millisecond_that_decides(condition, first, last) -> None:
    pushed, _ = absorb([condition])
    assert pushed.times[:2] == (first, last)


def test_no_record_has_a_time_between_two_milliseconds() -> None:
    pushed, left = absorb([EqualTo(TIME, moment(NINE_MS + 0.5))])
    assert pushed.times.is_empty
    assert not pushed.takes("orders", 0)
    assert left == []


def test_a_range_of_time_after_1970_is_not_left_to_spark() -> None:
    filters = [
        IsNotNull(TIME),
        GreaterThanOrEqual(TIME, moment(NINE_MS)),
        LessThan(TIME, moment(NINE_MS + 10)),
    ]
    pushed, left = absorb(filters)
    assert left == []
    assert (pushed.from_ms, pushed.to_ms) == (NINE_MS, NINE_MS + 10)


def test_a_range_of_time_that_holds_minus_one_is_applied_by_spark_again() -> None:
    condition = LessThan(TIME, moment(NINE_MS))
    pushed, left = absorb([condition])
    assert left == [condition]
    assert pushed.to_ms == NINE_MS


def test_an_earlier_time_than_minus_one_does_not_let_batches_be_skipped() -> None:
    condition = GreaterThanOrEqual(TIME_MS, -5000)
    pushed, left = absorb([condition])
    assert pushed.from_ms is None
    assert left == [condition]


def test_offsets_partitions_and_topics_are_exact() -> None:
    filters = [
        GreaterThan(OFFSET, 10),
        LessThanOrEqual(OFFSET, 20),
        In(PARTITION, (1, 3, None)),
        LessThan(PARTITION, 3),
        StringStartsWith(TOPIC, "or"),
        In(TOPIC, ("orders", "organ", "clicks")),
        IsNotNull(OFFSET),
        IsNotNull(TOPIC),
    ]
    pushed, left = absorb(filters)
    assert left == []
    assert pushed.offsets == Interval(11, 20)
    assert pushed.takes("orders", 1)
    assert not pushed.takes("orders", 3)
    assert not pushed.takes("orders", 0)
    assert not pushed.takes("clicks", 1)
    assert not pushed.takes("ore", 1)


@pytest.mark.parametrize(
    ("condition", "topics"),
    [
        (EqualTo(TOPIC, "ab"), {"ab"}),
        (EqualNullSafe(TOPIC, "ab"), {"ab"}),
        (StringStartsWith(TOPIC, "a"), {"ab", "abc", "a"}),
        (StringEndsWith(TOPIC, "b"), {"ab"}),
        (StringContains(TOPIC, "b"), {"ab", "abc"}),
        (In(TOPIC, ("a", "abc")), {"a", "abc"}),
    ],
)
def test_conditions_on_the_topic_pick_topics(condition, topics) -> None:
    pushed, left = absorb([condition])
    assert left == []
    assert {topic for topic in ("a", "ab", "abc", "x") if pushed.takes(topic, 0)} == topics


@pytest.mark.parametrize(
    "condition",
    [
        In(OFFSET, (5, 9)),
        In(TIME, (moment(NINE_MS), moment(NINE_MS + 5))),
        In(TIME_MS, (5, 9)),
    ],
)
def test_a_list_narrows_to_its_range_and_is_applied_by_spark_again(condition) -> None:
    pushed, left = absorb([condition])
    assert left == [condition]
    assert pushed.offsets != EVERYTHING or not pushed.times.is_everything


@pytest.mark.parametrize(
    "condition",
    [
        Not(EqualTo(OFFSET, 5)),
        IsNull(TIME),
        EqualTo(OFFSET, 5.5),
        EqualTo(OFFSET, True),
        EqualTo(TIME, datetime(2024, 1, 1)),  # noqa: DTZ001 - a literal without a zone
        EqualTo(TIME, None),
        EqualNullSafe(TOPIC, None),
        EqualTo(("key",), b"x"),
        IsNotNull(("key",)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("timestampType",), 0),
    ],
)
def test_every_other_condition_is_left_to_spark_and_narrows_nothing(condition) -> None:
    pushed, left = absorb([condition])
    assert left == [condition]
    assert pushed == RowFilter()
    assert pushed.offsets == EVERYTHING
    assert pushed.times.is_everything
    assert pushed.takes("orders", 0)


def test_a_literal_that_python_cannot_hold_narrows_nothing_and_is_left_to_spark() -> None:
    from pyspark.sql.worker import data_source_pushdown_filters  # noqa: PLC0415 - a worker's

    pyspark = SimpleNamespace(**vars(data_source_pushdown_filters))  # tests share the real one
    for _ in range(2):
        pass_over_unheld(pyspark)

    def pushed(name: str, microseconds: int) -> Any:
        timestamp = bytes([12 << 2]) + microseconds.to_bytes(8, "little", signed=True)
        return pyspark.deserializeFilter(
            {
                "name": name,
                "columnPath": ["timestamp"],
                "isNegated": False,
                "value": {
                    "value": base64.b64encode(timestamp).decode(),
                    "metadata": base64.b64encode(b"\x01\x00\x00").decode(),
                },
            }
        )

    held = pushed("GreaterThanOrEqual", NINE_MS * 1000)
    assert held == GreaterThanOrEqual(TIME, moment(NINE_MS))
    last, first = (
        pushed("LessThanOrEqual", each) for each in (253_402_318_799 * 10**6, -(1 << 62))
    )
    narrowed, left = absorb([last, held, first])
    assert left == [last, first]
    assert narrowed.times.first_ms == NINE_MS
