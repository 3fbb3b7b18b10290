"""Values alone, as `read_records` gives them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from overrides import override

from horolog.errors import CorruptBatch, RequestRefused
from horolog.record import HEADER_SIZE, Codec, LogRecord, build_batch, read_records, read_values

_RECORDS = st.lists(
    st.builds(
        LogRecord,
        st.integers(-1, 1 << 40),
        st.none() | st.binary(max_size=100),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))).map(tuple),
    ),
    max_size=70,
)


@examples(1)
@given(_RECORDS, st.sampled_from(list(Codec)))
def test_values_are_those_of_the_records(records: list[LogRecord], codec: Codec) -> None:
    batch = build_batch(records, base_offset=7, codec=codec)
    assert read_values(batch) == [record.value for record in read_records(batch)]


@given(_RECORDS.filter(bool), st.data())
def test_damaged_records_are_refused_or_read(records: list[LogRecord], data: st.DataObject) -> None:
    batch = bytearray(build_batch(records))
    for _ in range(3):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        assert len(read_values(batch)) == len(records)


@given(
    st.lists(st.none() | st.binary(max_size=70), min_size=1, max_size=140),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_damaged_records_without_keys_are_as_read_records_has_them(
    values: list[bytes | None], changes: int, random: Random
) -> None:
    batch = bytearray(build_batch([LogRecord(5, None, value) for value in values]))
    for _ in range(changes):
        batch[random.randrange(HEADER_SIZE, len(batch))] = random.choice([0, 1, 2, 127, 128, 255])

    def read(values_of: Callable[[bytearray], list[bytes | None]]) -> list[bytes | None] | str:
        try:
            return values_of(batch)
        except CorruptBatch as error:
            return str(error)

    assert read(read_values) == read(lambda it: [record.value for record in read_records(it)])


def test_values_of_kafkas_metadata_are_found_without_other_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading all fields of records without keys would take twice as long."""
    values: list[bytes | None] = [b"", b"v" * 60, b"v" * 300] * 100
    batch = build_batch([LogRecord(5, None, value) for value in values])

    def read_fields(*_: object) -> None:
        raise AssertionError("all fields were read")

    override(monkeypatch, "horolog.record.builder", read_fields=read_fields)
    assert read_values(batch) == values


def test_what_would_decompress_to_too_much_is_refused() -> None:
    batch = build_batch([LogRecord(0, None, bytes(100_000))], codec=Codec.GZIP)
    with pytest.raises(RequestRefused):
        read_values(batch, max_bytes=1000)
    with pytest.raises(CorruptBatch):
        read_values(batch[:-1])
