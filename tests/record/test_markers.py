from __future__ import annotations

import pytest

from horolog.errors import CorruptBatch
from horolog.record.builder import Record, build_batch
from horolog.record.compression import Codec
from horolog.record.markers import Marker, read_marker


def control(*records: Record, codec: Codec = Codec.NONE) -> bytes:
    return build_batch(
        list(records),
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        codec=codec,
    )


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"\0\0\0\0", b"\0\0\0\0\0\5", Marker(is_abort=True, coordinator_epoch=5)),
        (b"\0\0\0\1", b"\0\0\xff\xff\xff\xff", Marker(is_abort=False, coordinator_epoch=-1)),
        (b"\0\1\0\0more", b"\0\1\0\0\0\2more", Marker(is_abort=True, coordinator_epoch=2)),
        (b"\0\0\0\1", b"", Marker(is_abort=False, coordinator_epoch=None)),
        (b"\0\0\0\1", None, Marker(is_abort=False, coordinator_epoch=None)),
        (b"\0\0\0\7", b"\0\0\0\0\0\5", None),
        (b"\0\0", b"", None),
        (None, None, None),
    ],
)
def test_a_marker_has_the_outcome_of_its_transaction(
    key: bytes | None, value: bytes | None, expected: Marker | None
) -> None:
    assert read_marker(control(Record(5, key, value))) == expected


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_what_is_far_too_large_for_a_marker_is_not_unpacked(codec: Codec) -> None:
    with pytest.raises(CorruptBatch, match="no marker"):
        read_marker(control(Record(5, b"key", bytes(64 << 20)), codec=codec))
