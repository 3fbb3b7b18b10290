"""Primitive fields of Kafka's internal records."""

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch
from horolog.schemas.fields import Encoder, Fields

_TEXTS = st.none() | st.text(max_size=200)
_VALUES = {
    "i8": st.integers(-(1 << 7), (1 << 7) - 1),
    "i16": st.integers(-(1 << 15), (1 << 15) - 1),
    "i32": st.integers(-(1 << 31), (1 << 31) - 1),
    "i64": st.integers(-(1 << 63), (1 << 63) - 1),
    "f64": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16).map(lambda data: UUID(bytes=data)),
    "unsigned": st.integers(0, (1 << 32) - 1),
    "text": _TEXTS,
    "data": st.none() | st.binary(max_size=300),
}
_FIELDS = st.sampled_from(sorted(_VALUES)).flatmap(
    lambda kind: st.tuples(st.just(kind), _VALUES[kind])
)


@given(st.lists(_FIELDS), st.booleans())
def test_fields_are_read_as_they_were_encoded(
    fields: list[tuple[str, Any]], is_flexible: bool
) -> None:
    encoder = Encoder(is_flexible=is_flexible)
    for kind, value in fields:
        getattr(encoder, kind)(value)
    decoded = Fields(bytes(encoder), is_flexible=is_flexible)
    assert [getattr(decoded, kind)() for kind, _ in fields] == [value for _, value in fields]
    assert decoded.left == 0


@given(
    st.none() | st.lists(st.integers(0, 1000)),
    st.dictionaries(st.integers(0, 300), st.binary()),
    st.booleans(),
)
def test_arrays_and_tagged_fields_are_read_as_they_were_encoded(
    numbers: list[int] | None, tagged: dict[int, bytes], is_flexible: bool
) -> None:
    encoder = Encoder(is_flexible=is_flexible)
    encoder.array(numbers, encoder.unsigned).tagged(tagged)
    fields = Fields(bytes(encoder), is_flexible=is_flexible)
    assert fields.array(fields.unsigned) == numbers
    assert fields.tagged() == (tagged if is_flexible else {})
    assert fields.left == 0


@given(
    st.binary(max_size=60),
    st.sampled_from([*sorted(_VALUES), "tagged"]),
    st.booleans(),
)
def test_any_bytes_are_fields_or_refused(data: bytes, kind: str, is_flexible: bool) -> None:
    with contextlib.suppress(CorruptBatch):
        getattr(Fields(data, is_flexible=is_flexible), kind)()


def test_an_array_that_claims_more_elements_than_bytes_is_refused() -> None:
    fields = Fields(bytes(Encoder().unsigned(1 << 30)) + b"\0" * 8)
    with pytest.raises(CorruptBatch, match="claims"):
        fields.array(fields.i8)
