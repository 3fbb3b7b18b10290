"""Records of `__transaction_state`."""

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch
from horolog.schemas.fields import Encoder
from horolog.schemas.transactions import (
    TransactionStatus,
    TransactionValue,
    read_transaction,
    read_transaction_key,
    transaction_bytes,
    transaction_key,
)

I16 = st.integers(-(1 << 15), (1 << 15) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PARTITIONS = st.none() | st.dictionaries(NAMES, st.lists(I32, max_size=3).map(tuple), max_size=3)
VALUES = st.builds(
    TransactionValue,
    producer_id=I64,
    producer_epoch=I16,
    timeout_ms=I32,
    status=st.sampled_from(TransactionStatus),
    partitions=PARTITIONS,
    updated_ms=I64,
    started_ms=I64,
    previous_producer_id=I64,
    next_producer_id=I64,
    client_version=I16,
    next_producer_epoch=I16,
)


def field_by_field(value: TransactionValue, version: int) -> bytes:
    """A value as the docstring of the module draws it; version 0 loses what is tagged."""
    to = Encoder(is_flexible=version >= 1)
    to.i16(version).i64(value.producer_id).i16(value.producer_epoch)
    to.i32(value.timeout_ms).i8(value.status)

    def write(topic: tuple[str, tuple[int, ...]]) -> None:
        to.text(topic[0]).array(topic[1], to.i32).tagged()

    to.array(None if value.partitions is None else value.partitions.items(), write)
    to.i64(value.updated_ms).i64(value.started_ms)
    numbers = (
        (0, ">q", value.previous_producer_id, -1),
        (1, ">q", value.next_producer_id, -1),
        (2, ">h", value.client_version, 0),
        (3, ">h", value.next_producer_epoch, -1),
    )
    return bytes(to.tagged({tag: struct.pack(as_, n) for tag, as_, n, no in numbers if n != no}))


@given(VALUES)
def test_values_of_version_1_read_as_written(value: TransactionValue) -> None:
    assert read_transaction(transaction_bytes(value)) == value


@given(VALUES)
def test_values_of_version_0_lose_what_is_tagged(value: TransactionValue) -> None:
    plain = value._replace(
        previous_producer_id=-1, next_producer_id=-1, client_version=0, next_producer_epoch=-1
    )
    assert read_transaction(field_by_field(value, 0)) == plain


@given(NAMES)
def test_keys_read_as_written(name: str) -> None:
    assert read_transaction_key(transaction_key(name)) == name


def test_value_has_the_bytes_of_kafka() -> None:
    value = TransactionValue(
        7,
        3,
        60_000,
        TransactionStatus.ONGOING,
        {"t": (1,)},
        5,
        4,
        client_version=2,
        next_producer_epoch=-1,
    )
    assert field_by_field(value, 0).hex() == (
        "0000" + f"{7:016x}" + "0003" + f"{60_000:08x}" + "01"
        "00000001" + "000174" + "00000001" + "00000001" + f"{5:016x}{4:016x}"
    )
    assert transaction_bytes(value).hex() == (
        "0001" + f"{7:016x}" + "0003" + f"{60_000:08x}" + "01"
        "02" + "0274" + "02" + "00000001" + "00" + f"{5:016x}{4:016x}" + "01" + "02" + "02" + "0002"
    )


def test_key_of_a_later_version_is_no_transaction() -> None:
    assert read_transaction_key(b"\0\1whatever") is None


@pytest.mark.parametrize("version", [0, 1])
def test_damaged_values_are_refused(version: int) -> None:
    data = field_by_field(
        TransactionValue(7, 3, 60_000, TransactionStatus.ONGOING, {"t": (1,)}, client_version=2),
        version,
    )
    for size in range(len(data)):
        with pytest.raises(CorruptBatch):
            read_transaction(data[:size])
    with pytest.raises(CorruptBatch, match="longer"):
        read_transaction(data + b"\0")
    with pytest.raises(CorruptBatch, match="version 2"):
        read_transaction(b"\0\2" + data[2:])
    with pytest.raises(CorruptBatch, match="status 9"):
        read_transaction(data[:16] + b"\x09" + data[17:])


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_transaction, read_transaction_key):
        with suppress(CorruptBatch):
            read(data)


LENGTHS = st.sampled_from([0, 1, 2, 125, 126, 127, 300])
LONG = LENGTHS.flatmap(lambda count: st.text("xïĀ", min_size=count, max_size=count))
MANY = LENGTHS.flatmap(lambda count: st.lists(I32, min_size=count, max_size=count).map(tuple))


@given(
    VALUES,
    st.dictionaries(LONG, MANY, max_size=3)
    | LENGTHS.map(lambda n: {f"t{index}": (index,) for index in range(n)})
    | PARTITIONS,
)
def test_values_are_written_as_field_by_field(
    value: TransactionValue, partitions: dict[str, tuple[int, ...]] | None
) -> None:
    value = value._replace(partitions=partitions)
    assert transaction_bytes(value) == field_by_field(value, 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"producer_id": 1 << 63},
        {"producer_epoch": 1 << 15},
        {"timeout_ms": -(1 << 31) - 1},
        {"updated_ms": 1 << 63},
        {"partitions": {"t": (1 << 31,)}},
        {"client_version": 1 << 15},
    ],
)
def test_numbers_that_do_not_fit_are_refused(changed: dict[str, Any]) -> None:
    value = TransactionValue(7, 3, 60_000, TransactionStatus.ONGOING)._replace(**changed)
    with pytest.raises(struct.error):
        transaction_bytes(value)
