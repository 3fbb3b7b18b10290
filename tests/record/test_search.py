"""Lookups of a record inside a batch, against what was generated."""

import pytest
from batches import (
    BASE_OFFSET,
    INT64_MAX,
    INT64_MIN,
    GeneratedBatch,
    batches,
    make_batch,
    timestamps_ms,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from horolog.record import (
    NO_TIMESTAMP,
    LogRecord,
    find_at_or_after,
    find_equal,
    first_offset,
    parse_header,
)

pytestmark = pytest.mark.usefixtures("both")


@examples(1)
@given(batch=batches(), data=st.data())
def test_a_lookup_finds_the_first_record_at_or_after(batch: GeneratedBatch, data: st.DataObject):
    near = st.sampled_from(batch.timestamps).flatmap(
        lambda time: st.integers(max(INT64_MIN, time - 1), min(INT64_MAX, time + 1))
    )
    target = data.draw(near | timestamps_ms())
    min_offset = batch.base_offset + data.draw(st.integers(-2, len(batch.sent) + 1))
    header = parse_header(batch.data)
    later = [
        r
        for r in batch.records
        if r.timestamp >= target and r.timestamp != NO_TIMESTAMP and r.offset >= min_offset
    ]
    equal = [r for r in batch.records if r.timestamp == target and r.offset >= min_offset]
    found = find_at_or_after(batch.data, header, target, min_offset)
    assert found == ((later[0].timestamp, later[0].offset) if later else None)
    found = find_equal(batch.data, header, target, min_offset)
    assert found == ((target, equal[0].offset) if equal else None)
    behind = [record.offset for record in batch.records if record.offset >= min_offset]
    assert first_offset(batch.data, header, min_offset) == (behind[0] if behind else None)


def test_a_lookup_from_any_offset_at_all_is_answered():
    batch = make_batch([LogRecord(5, None, None)])
    header = parse_header(batch.data)
    assert find_at_or_after(batch.data, header, 5, -(1 << 70)) == (5, BASE_OFFSET)
    assert find_at_or_after(batch.data, header, 5, 1 << 70) is None
    with pytest.raises(ValueError, match="64-bit"):
        find_at_or_after(batch.data, header, 1 << 63, 0)
