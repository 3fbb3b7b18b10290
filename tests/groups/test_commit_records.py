"""The records of a commit that are copied from a template are those of its rows."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.groups import CommitRecords, GroupChange, OffsetRow, records_of
from horolog.record import stamped_records

NOW_MS = 1_700_000_000_000
ROW = OffsetRow("group", "topic", 0, 7, -1, "", NOW_MS)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)
ids = st.none() | st.uuids()
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)


@st.composite
def commits(draw: st.DrawFn) -> list[OffsetRow]:
    group = draw(names)
    topics = draw(st.lists(st.tuples(names, ids), min_size=1, max_size=3))
    rows = []
    for topic, topic_id in draw(st.lists(st.sampled_from(topics), min_size=1, max_size=90)):
        numbers = draw(int32), draw(int64), draw(int32)
        rows.append(OffsetRow(group, topic, *numbers, "", draw(int64), None, topic_id))
    return rows


@given(commits(), st.integers(0, 1 << 50), st.booleans(), st.integers(0, 9), st.data())
def test_records_of_a_commit_are_made_from_those_of_another(
    rows: list[OffsetRow], now_ms: int, has_epochs: bool, gap: int, data: st.DataObject
) -> None:
    """Wherever the request has the offsets: of each topic they are at even distances."""
    width = 12 if has_epochs else 8
    frame, places = bytearray(data.draw(st.binary(max_size=9))), []
    expected = []
    for before, row in zip([None, *rows], rows, strict=False):
        if before is None or before.topic != row.topic:
            frame += bytes(gap)
        offset, epoch = data.draw(int64), data.draw(int32) if has_epochs else -1
        places.append(len(frame))
        frame += struct.pack(">qi", offset, epoch)[:width] + bytes(6)
        new = row._replace(committed=offset, leader_epoch=epoch, commit_ms=now_ms)
        expected.append(new)
    made = CommitRecords(rows, places, width)
    whole = stamped_records(records_of(GroupChange(offsets=expected), now_ms))
    assert made.of(bytes(frame), now_ms) == whole
    assert (made.count, len(made)) == (len(rows), len(whole))


@pytest.mark.parametrize("count", [1, 9, 63, 64, 65, 200])
def test_many_records_of_a_commit_are_made_from_those_of_another(count: int) -> None:
    rows = [ROW._replace(partition=each, committed=each << 40) for each in range(count)]
    frame = b"".join(struct.pack(">iqib", row.partition, row.committed, -1, 0) for row in rows)
    made = CommitRecords(
        [ROW._replace(partition=each) for each in range(count)], range(4, 17 * count, 17), 12
    )
    whole = stamped_records(records_of(GroupChange(offsets=rows), NOW_MS))
    assert made.of(frame, NOW_MS) == whole
