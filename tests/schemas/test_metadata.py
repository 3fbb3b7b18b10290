"""Records of the metadata log, as each level of `metadata.version` writes them."""

from __future__ import annotations

import contextlib
from typing import Any, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch
from horolog.schemas import declared, metadata
from horolog.schemas.metadata import NEWEST_LEVEL, Record, Unknown, decode, encode

TOPIC_ID, DIRECTORY = UUID(int=1 << 90 | 5), UUID(int=77)


def _ints(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, 65535)


_UUIDS = st.binary(min_size=16, max_size=16).map(lambda data: UUID(bytes=data))
_NUMBERS = st.lists(_ints(32), max_size=4).map(tuple)
_IDS = st.lists(_UUIDS, max_size=3).map(tuple)
_TEXTS = st.text(max_size=150)
_BY_KIND = {
    declared.I8: _ints(8),
    declared.I16: _ints(16),
    declared.U16: _ints(16, signed=False),
    declared.I32: _ints(32),
    declared.I64: _ints(64),
    declared.F64: st.floats(allow_nan=False),
    declared.Bool: st.booleans(),
    declared.Id: _UUIDS,
    declared.Text: _TEXTS,
    declared.NullableText: st.none() | _TEXTS,
    declared.Bytes: st.binary(max_size=40),
    declared.Int32s: _NUMBERS,
    declared.NullableInt32s: st.none() | _NUMBERS,
    declared.Ids: _IDS,
    declared.NullableIds: st.none() | _IDS,
    declared.Texts: st.lists(_TEXTS, max_size=3).map(tuple),
}
_BY_KIND_ITSELF = {hint.__metadata__[0]: values for hint, values in _BY_KIND.items()}
_STRUCTS = {
    metadata.Endpoints.__metadata__[0]: metadata.BrokerEndpoint,
    metadata.AllSupported.__metadata__[0]: metadata.Supported,
    metadata.Entities.__metadata__[0]: metadata.QuotaEntity,
}


def _values_of(record: type[Any]) -> st.SearchStrategy[Any]:
    values = []
    for hint in get_type_hints(record, include_extras=True).values():
        kind = hint.__metadata__[0]
        if kind in _STRUCTS:
            values.append(st.lists(_values_of(_STRUCTS[kind]), max_size=2).map(tuple))
        else:
            values.append(_BY_KIND_ITSELF[kind])
    return st.tuples(*values).map(record._make)


_TYPES = [each for each in Record.__args__ if each is not Unknown]  # type: ignore[attr-defined]
RECORDS = st.sampled_from(_TYPES).flatmap(_values_of)


@given(RECORDS)
def test_records_are_decoded_as_they_were_encoded(record: Record) -> None:
    assert decode(encode(record)) == record


@given(RECORDS, st.integers(7, NEWEST_LEVEL))
def test_an_older_level_drops_only_what_it_has_no_field_for(record: Record, level: int) -> None:
    data = encode(record, level)
    again = decode(data)
    assert type(again) is type(record)
    assert encode(again, level) == data


@given(RECORDS, st.data())
def test_damaged_records_are_refused_or_read(record: Record, data: st.DataObject) -> None:
    value = bytearray(encode(record))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])
    with contextlib.suppress(CorruptBatch):
        decode(cut)


def test_versions_follow_the_level_of_the_cluster() -> None:
    partition = metadata.PartitionRecord(
        3, TOPIC_ID, (1,), (1,), (), (), 1, 0, 5, 6, (DIRECTORY,), (1,)
    )
    assert [encode(partition, level)[2] for level in (7, 16, 17, 22, 23, 33)] == [0, 0, 1, 1, 2, 2]
    assert decode(encode(partition, 22)) == partition._replace(elr=None)
    assert decode(encode(partition, 16)) == partition._replace(elr=None, directories=())
    broker = metadata.RegisterBroker(1, False, TOPIC_ID, 9, (), ())
    levels = (7, 8, 16, 17, 29, 33)
    assert [encode(broker, level)[2] for level in levels] == [1, 2, 2, 3, 3, 4]


def test_the_usual_partition_is_read_as_any_other() -> None:
    usual = metadata.PartitionRecord(3, TOPIC_ID, (1,), (1,), (), (), 1, 0, 5, 6, (DIRECTORY,))
    for changed in (usual, usual._replace(isr=()), usual._replace(leader=-1, replicas=(1, 2))):
        assert decode(encode(changed)) == changed
    data = encode(usual)
    longer = data[:-1] + b"\1\7\0"
    assert decode(longer) == usual  # a tagged field of a later version


def test_types_that_are_not_known_are_kept_as_bytes() -> None:
    data = b"\1\x7f\3anything"
    assert decode(data) == Unknown(0x7F, data)
    assert encode(decode(data)) == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too early"),
        (b"\2\2\0", "frame of version 2"),
        (b"\1\2\1", "type 2 has version 1; known are 0 to 0"),
        (encode(metadata.TopicRecord("a", TOPIC_ID)) + b"\0", "1 bytes longer"),
        (b"\1\2\0\0" + bytes(17), "null"),
        (b"\1\3\0\0\0\0\1" + bytes(16) + b"\xff\xff\xff\xff\7", "claims"),
    ],
)
def test_what_is_no_record_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        decode(data)


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be encoded"):
        encode(metadata.FeatureLevel("some", 1 << 15))
