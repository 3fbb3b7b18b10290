"""What passes all checks of headers at a glance is answered as if they were made one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from storelogs import NOW

from horolog.config import TopicConfig
from horolog.errors import HorologError
from horolog.record import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    parse_header,
    with_records,
)
from horolog.record.scan import load_kernels
from horolog.storage import Admission, prepare, validate

CONFIG = TopicConfig(message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=1000)
CONFIGS = (
    CONFIG,
    replace(CONFIG, message_timestamp_type=TimestampType.LOG_APPEND_TIME),
    replace(CONFIG, cleanup_policy=frozenset({"compact"})),
    replace(CONFIG, max_message_bytes=120),
    replace(CONFIG, segment_bytes=120),
    replace(CONFIG, compression_type="uncompressed"),
    replace(CONFIG, compression_type="gzip"),
    replace(CONFIG, message_format_version=1),
)
FIELDS: dict[str, tuple[int, ...]] = {
    "base_offset": (1, -1, 1 << 62),
    "batch_length": (0, 14, 49, -1, (1 << 31) - 1),
    "leader_epoch": (0, 7),
    "magic": (0, 1, 3, -1),
    "attributes": (*range(1, 9), 0x10, 0x20, 0x30, 0x40, 0x80, -1),
    "last_offset_delta": (-1, 0, 5, (1 << 31) - 1),
    "base_timestamp": (NOW - 5000, NOW + 5000, -1, -(1 << 63), (1 << 63) - 1),
    "max_timestamp": (0, NOW + 5000),
    "producer_id": (0, 7, 1 << 62, (1 << 63) - 1, -2),
    "producer_epoch": (0, 3),
    "base_sequence": (0, 5, (1 << 31) - 1, -2),
    "records_count": (0, -1, 1, 5, (1 << 31) - 1),
}
assert set(FIELDS) | {"crc"} == set(BatchHeader._fields)

changes = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(FIELDS[name]))
)


@st.composite
def sent_batches(draw: st.DrawFn) -> bytes:
    ages = draw(st.lists(st.sampled_from([0, 1, -900, 900, 5000, -5000]), min_size=1, max_size=3))
    key = draw(st.sampled_from([b"k", None]))
    codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]))
    batch = build_batch([LogRecord(NOW - age, key, b"value") for age in ages], codec=codec)
    fields = dict(draw(st.lists(changes, max_size=2)))
    header, records = parse_header(batch)._replace(**fields), batch[HEADER_SIZE:]
    batch = with_records(header, records)
    if draw(st.integers(0, 5)) == 0:
        at = draw(st.integers(0, len(batch) - 1))
        batch = batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]
    return draw(st.sampled_from([batch, batch, batch, batch[:-1], batch + b"\0", batch * 2]))


def outcome(
    batch: bytes, config: TopicConfig, version: int | None, admission: Admission | None = None
) -> Any:
    try:
        return prepare(
            batch, config, NOW, partition="t-0", produce_version=version, admission=admission
        )
    except HorologError as error:
        return type(error), str(error), getattr(error, "code", None), getattr(error, "errors", ())


@given(
    batch=sent_batches(),
    config=st.sampled_from((CONFIG, *CONFIGS)),
    version=st.sampled_from((None, 2, 3, 9)),
    admission=st.sampled_from((None, Admission(3))),
)
def test_a_plain_batch_is_prepared_as_by_the_checks_one_by_one(
    batch: bytes, config: TopicConfig, version: int | None, admission: Admission | None
) -> None:
    load_kernels()
    found = outcome(batch, config, version, admission)
    with pytest.MonkeyPatch.context() as patch:
        override(patch, "horolog.storage", plain_header=lambda *_, **__: None)
        assert found == outcome(batch, config, version, admission)


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in FIELDS.items() for value in values]
)
def test_one_odd_field_is_judged_as_by_the_checks_one_by_one(
    name: str, value: int, is_transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_kernels()
    producer = (
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 5} if is_transactional else {}
    )
    admission = Admission(3) if is_transactional else None
    batch = build_batch(
        [LogRecord(NOW, b"k", b"v"), LogRecord(NOW - 1, b"k", b"v")],
        **producer,
        is_transactional=is_transactional,
    )
    records = batch[HEADER_SIZE:]
    batch = with_records(parse_header(batch)._replace(**{name: value}), records)
    found = [outcome(batch, config, 9, admission) for config in CONFIGS]
    override(monkeypatch, "horolog.storage", plain_header=lambda *_, **__: None)
    assert found == [outcome(batch, config, 9, admission) for config in CONFIGS]


def test_an_ordinary_batch_is_plain() -> None:
    batch = build_batch(
        [LogRecord(NOW, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0
    )
    assert validate.plain_header(batch, CONFIG) == parse_header(batch)


def test_an_ordinary_batch_of_a_transaction_is_plain_once_it_is_admitted() -> None:
    batch = build_batch(
        [LogRecord(NOW, b"k", b"v")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    assert validate.plain_header(batch, CONFIG) is None
    assert validate.plain_header(batch, CONFIG, is_admitted=True) == parse_header(batch)
    load_kernels()
    assert outcome(batch, CONFIG, 9, Admission(3)).admission == Admission(3)
