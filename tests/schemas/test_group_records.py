"""Keys and values of consumer groups: what Kafka writes is read, and the other way round."""

from __future__ import annotations

from struct import error
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch
from horolog.schemas.fields import Encoder
from horolog.schemas.group_records import (
    AssignedTopic,
    ClassicMetadata,
    ClassicProtocol,
    CurrentKey,
    CurrentValue,
    GroupEpochKey,
    GroupEpochValue,
    GroupRecordKey,
    GroupRecordValue,
    MemberKey,
    MemberMetadataValue,
    PartitionMetadataKey,
    PatternKey,
    PatternValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetPartitions,
    TargetValue,
    read_value,
    value_bytes,
)
from horolog.schemas.offsets import key_bytes, read_key

I32, I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MAYBE = st.none() | TEXT
TEXTS, NUMBERS = st.lists(TEXT, max_size=3).map(tuple), st.lists(I32, max_size=200).map(tuple)
PROTOCOLS = st.lists(st.builds(ClassicProtocol, TEXT, st.binary(max_size=9)), max_size=3)
CLASSIC = st.builds(ClassicMetadata, I32, PROTOCOLS.map(tuple))
ASSIGNED = st.lists(
    st.builds(AssignedTopic, st.uuids(), NUMBERS, st.none())
    | st.lists(st.tuples(I32, I32)).flatmap(
        lambda pairs: st.builds(
            AssignedTopic,
            st.uuids(),
            st.just(tuple(partition for partition, _ in pairs)),
            st.just(tuple(epoch for _, epoch in pairs)),
        )
    ),
    max_size=3,
).map(tuple)
TARGETS = st.lists(st.builds(TargetPartitions, st.uuids(), NUMBERS), max_size=3).map(tuple)
RECORDS: st.SearchStrategy[tuple[GroupRecordKey, GroupRecordValue]] = st.one_of(
    st.tuples(st.builds(GroupEpochKey, TEXT), st.builds(GroupEpochValue, I32, I64)),
    st.tuples(st.builds(PartitionMetadataKey, TEXT), st.binary(max_size=20)),
    st.tuples(
        st.builds(MemberKey, TEXT, TEXT),
        st.builds(
            MemberMetadataValue,
            *(MAYBE, MAYBE, TEXT, TEXT, TEXTS, MAYBE, I32, MAYBE, st.none() | CLASSIC),
        ),
    ),
    st.tuples(st.builds(TargetEpochKey, TEXT), st.builds(TargetEpochValue, I32, I64)),
    st.tuples(st.builds(TargetKey, TEXT, TEXT), st.builds(TargetValue, TARGETS)),
    st.tuples(
        st.builds(CurrentKey, TEXT, TEXT),
        st.builds(CurrentValue, I32, I32, st.integers(-128, 127), ASSIGNED, ASSIGNED),
    ),
    st.tuples(st.builds(PatternKey, TEXT, TEXT), st.builds(PatternValue, TEXTS, I64, I64)),
)


@given(RECORDS)
def test_records_are_read_as_they_were_written(record: tuple[GroupRecordKey, object]) -> None:
    key, value = record
    data = key_bytes(key)
    assert (read_key(data), type(read_key(data))) == (key, type(key))
    for damaged in (data[:-1], data + b"\0"):
        with pytest.raises(CorruptBatch):
            read_key(damaged)
    assert isinstance(value, bytes | tuple)
    data = value_bytes(key, value)  # type: ignore[arg-type]
    assert (read_value(key, data), type(read_value(key, data))) == (value, type(value))
    if isinstance(key, PartitionMetadataKey):
        return
    for damaged in (data[:-1], data + b"\0", b"\0\1" + data[2:], b"\xff\xff" + data[2:]):
        with pytest.raises(CorruptBatch):
            read_value(key, damaged)


@given(st.binary(max_size=60), RECORDS)
def test_any_bytes_are_a_value_or_are_refused(
    data: bytes, record: tuple[GroupRecordKey, object]
) -> None:
    key, _ = record
    try:
        value = read_value(key, b"\0\0" + data)
    except CorruptBatch:
        return
    assert read_value(key, value_bytes(key, value)) == value


TOPIC_ID = UUID(int=9)


RANGE = b"range".hex()


def test_records_have_the_bytes_of_kafka() -> None:
    member = MemberMetadataValue(
        *("i", None, "c", "/h", ("t",), "", 300, "range"),
        ClassicMetadata(100, (ClassicProtocol("range", b"\1"),)),
    )
    current = CurrentValue(3, 2, 1, (AssignedTopic(TOPIC_ID, (0, 1), (2, 3)),))
    uuid, epochs = TOPIC_ID.bytes.hex(), "01 00 09 03 0000000200000003"
    for key, key_hex, value, value_hex in (
        (GroupEpochKey("g"), "0003 0001 67", GroupEpochValue(2), "0000 00000002 00"),
        (
            TargetEpochKey("g"),
            "0006 0001 67",
            TargetEpochValue(2, 5),
            "0000 00000002 01 00 08 0000000000000005",
        ),
        (
            MemberKey("g", "m"),
            "0005 0001 67 0001 6d",
            member,
            "0000 0269 00 0263 032f68 020274 01 0000012c 06"
            + RANGE
            + "01 00 10 01 00000064 02 06"
            + RANGE
            + "0201 00 00",
        ),
        (
            TargetKey("g", "m"),
            "0007 0001 67 0001 6d",
            TargetValue((TargetPartitions(TOPIC_ID, (1,)),)),
            f"0000 02 {uuid} 02 00000001 00 00",
        ),
        (
            CurrentKey("g", "m"),
            "0008 0001 67 0001 6d",
            current,
            f"0000 00000003 00000002 01 02 {uuid} 03 0000000000000001 {epochs} 01 00",
        ),
        (
            PatternKey("g", "t.*"),
            "0010 0001 67 0003 742e2a",
            PatternValue(("t",), 7, 8),
            "0000 02 02 74 0000000000000007 0000000000000008 00",
        ),
    ):
        assert key_bytes(key) == bytes.fromhex(key_hex)
        assert value_bytes(key, value) == bytes.fromhex(value_hex)


def test_a_member_without_classic_metadata_says_so() -> None:
    key, member = (
        MemberKey("g", "m"),
        MemberMetadataValue(None, None, "", "", (), "", 0, None, None),
    )
    written = value_bytes(key, member)
    assert written.endswith(bytes.fromhex("00 01 00 01 00"))
    lacking = written[:-4] + b"\0"
    assert read_value(key, lacking) == member._replace(classic=ClassicMetadata())
    assert value_bytes(key, member._replace(classic=ClassicMetadata())) == lacking


def test_tagged_fields_that_are_not_known_are_passed_over() -> None:
    data = bytes(Encoder().i16(0).i32(5).tagged({0: bytes(8), 7: b"later"}))
    assert read_value(GroupEpochKey("g"), data) == GroupEpochValue(5)


def test_impossible_sizes_and_missing_fields_are_refused() -> None:
    head = Encoder().i16(0).i32(3).i32(2).i8(0)
    for data in (
        bytes(head) + b"\xff\xff\xff\xff\x07",  # topics
        bytes(head) + b"\2" + TOPIC_ID.bytes + b"\xff\xff\xff\xff\x07",  # partitions
        bytes(head) + b"\0\1\0",  # null
        bytes(head) + b"\2" + TOPIC_ID.bytes + b"\2\0\0\0\1\1\0\1\1\1\0",  # epochs of no partition
    ):
        with pytest.raises(CorruptBatch):
            read_value(CurrentKey("g", "m"), data)
    with pytest.raises(CorruptBatch):
        read_key(bytes(Encoder(is_flexible=False).i16(5).text("g").text(None)))
    with pytest.raises(error):
        key_bytes(MemberKey("g", "m" * 40_000))
    with pytest.raises(error):
        value_bytes(GroupEpochKey("g"), GroupEpochValue(1 << 31))
