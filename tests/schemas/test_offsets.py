"""Keys and values of `__consumer_offsets`: what Kafka writes is read, and the other way round."""

from __future__ import annotations

from struct import error
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch
from horolog.schemas.fields import Encoder
from horolog.schemas.offsets import (
    CommittedValue,
    GroupKey,
    GroupValue,
    Key,
    MemberValue,
    OffsetKey,
    committed_bytes,
    group_bytes,
    key_bytes,
    partition_for,
    read_committed,
    read_group,
    read_key,
)

I32, I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEYS = st.builds(OffsetKey, TEXT, TEXT, I32) | st.builds(GroupKey, TEXT)
TOPIC_ID = st.uuids().filter(lambda id_: id_.int != 0)
COMMITTED = st.builds(CommittedValue, I64, I32, TEXT, I64, st.none(), st.none() | TOPIC_ID)
EXPIRES = I64.filter(lambda time_ms: time_ms != -1)
EXPIRING = st.builds(CommittedValue, I64, st.just(-1), TEXT, I64, EXPIRES, st.none())
MEMBERS = st.builds(
    MemberValue,
    *(TEXT, st.none() | TEXT, TEXT, TEXT, st.integers(0, (1 << 31) - 1), I32),
    *(st.binary(max_size=9), st.binary(max_size=9)),
)
GROUPS = st.builds(
    GroupValue,
    *(TEXT, I32, st.none() | TEXT, st.none() | TEXT, I64),
    st.lists(MEMBERS, max_size=3).map(tuple),
)


# As `"...".hashCode()` and `Utils.abs` of Java give them.
@pytest.mark.parametrize(
    ("group", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("moving", 1068259250),
        ("polygenelubricants", 0),  # the one number without an absolute value
        ("gr\u00fcn", 3185949),
        ("\U0001f600", 1772899),  # two units of UTF-16
    ],
)
def test_a_group_has_the_partition_of_its_hash_in_java(group: str, hashed: int) -> None:
    assert partition_for(group, (1 << 31) - 1) == hashed
    assert partition_for(group, 50) == hashed % 50


@given(KEYS)
def test_keys_are_read_as_they_were_written(key: Key) -> None:
    data = key_bytes(key)
    assert read_key(data) == key
    if isinstance(key, OffsetKey):
        assert read_key(b"\0\0" + data[2:]) == key, "of Kafka before 0.9"
    for damaged in (data[:-1], data + b"\0"):
        with pytest.raises(CorruptBatch):
            read_key(damaged)


@given(COMMITTED | EXPIRING)
def test_committed_offsets_are_read_as_they_were_written(value: CommittedValue) -> None:
    data = committed_bytes(value)
    assert read_committed(data) == value
    assert data[1] == (4 if value.expire_ms is None else 1)
    for damaged in (data[:-1], data + b"\0", b"\0\5" + data[2:], b"\xff\xff" + data[2:]):
        with pytest.raises(CorruptBatch):
            read_committed(damaged)


@given(GROUPS)
def test_groups_are_read_as_they_were_written(value: GroupValue) -> None:
    data = group_bytes(value)
    assert read_group(data) == value
    for damaged in (data[:-1], data + b"\0", b"\0\5" + data[2:]):
        with pytest.raises(CorruptBatch):
            read_group(damaged)


@pytest.mark.parametrize("kind", [9, 15, 17, 99, -1])
def test_a_key_of_a_type_that_is_not_known_says_nothing(kind: int) -> None:
    assert read_key(bytes(Encoder().i16(kind).raw(b"anything"))) is None


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_earlier_versions_of_a_committed_offset_lack_fields(version: int) -> None:
    to = Encoder(is_flexible=False).i16(version).i64(5)
    if version == 3:
        to.i32(8)
    to.text("note").i64(1000)
    if version == 1:
        to.i64(2000)
    assert read_committed(bytes(to)) == CommittedValue(
        5, 8 if version == 3 else -1, "note", 1000, 2000 if version == 1 else None
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_earlier_versions_of_a_group_lack_fields(version: int) -> None:
    to = Encoder(is_flexible=False).i16(version).text("consumer").i32(7).text("range").text(None)
    if version >= 2:
        to.i64(1000)

    def member(_: object) -> None:
        to.text("m")
        if version >= 3:
            to.text("static")
        to.text("client").text("/host")
        if version >= 1:
            to.i32(300)
        to.i32(100).data(b"s").data(b"a")

    to.array([0], member)
    instance, rebalance_ms = ("static" if version >= 3 else None), (300 if version >= 1 else 100)
    expected = MemberValue("m", instance, "client", "/host", rebalance_ms, 100, b"s", b"a")
    changed_ms = 1000 if version >= 2 else -1
    assert read_group(bytes(to)) == GroupValue(
        "consumer", 7, "range", None, changed_ms, (expected,)
    )


def test_flexible_versions_pass_over_tagged_fields_that_are_not_known() -> None:
    to = Encoder().i16(4).i64(5).i32(8).text("note").i64(1000)
    committed = bytes(to.tagged({0: UUID(int=9).bytes, 7: b"later"}))
    assert read_committed(committed) == CommittedValue(5, 8, "note", 1000, None, UUID(int=9))
    to = Encoder().i16(4).text("consumer").i32(7).text(None).text(None).i64(1000)

    def member(_: object) -> None:
        to.text("m").text(None).text("client").text("/host").i32(300).i32(100)
        to.data(b"s").data(b"").tagged({3: b"later"})

    group = bytes(to.array([0], member).tagged({1: b"later"}))
    expected = MemberValue("m", None, "client", "/host", 300, 100, b"s", b"")
    assert read_group(group) == GroupValue("consumer", 7, None, None, 1000, (expected,))


def test_null_where_there_must_be_something_and_impossible_sizes_are_refused() -> None:
    for data in (
        bytes(Encoder(is_flexible=False).i16(2).text(None)),
        bytes(Encoder(is_flexible=False).i16(1).text("g").text(None).i32(0)),
    ):
        with pytest.raises(CorruptBatch):
            read_key(data)
    with pytest.raises(CorruptBatch):
        read_committed(bytes(Encoder(is_flexible=False).i16(3).i64(1).i32(1).text(None).i64(1)))
    start = Encoder(is_flexible=False).i16(3).text("consumer").i32(7).text(None).text(None).i64(1)
    for members in (-1, -2, (1 << 31) - 1):
        with pytest.raises(CorruptBatch):
            read_group(bytes(start) + bytes(Encoder().i32(members)))
    with pytest.raises(error):
        key_bytes(GroupKey("g" * 40_000))
