"""The records of a commit that are built in one pass are those of its rows."""

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.groups.commit_records import CommitRecords, commit_records
from horolog.groups.replay import records_of
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow, TransactionProducer
from horolog.record import stamped_records

NOW_MS = 1_700_000_000_000
MOST = 1 << 20
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


@given(commits(), st.integers(0, 1 << 50))
def test_it_is_the_batch_of_its_records(rows: list[OffsetRow], now_ms: int) -> None:
    change = GroupChange(offsets=rows)
    assert commit_records(change, MOST) == stamped_records(records_of(change, now_ms))


@pytest.mark.parametrize("count", [63, 64, 65, 1000])
@pytest.mark.parametrize("of_topic", [1, 9, 1000])
def test_numbers_of_two_bytes_are_as_in_its_records(count: int, of_topic: int) -> None:
    rows = [ROW._replace(partition=each, topic=f"t{each // of_topic}") for each in range(count)]
    change = GroupChange(offsets=rows)
    assert commit_records(change, 8 * MOST) == stamped_records(records_of(change, NOW_MS))


@pytest.mark.parametrize(
    "change",
    [
        GroupChange(),
        GroupChange(offsets=[ROW, ROW._replace(metadata="m")]),
        GroupChange(offsets=[ROW._replace(expire_ms=NOW_MS)]),
        GroupChange(offsets=[ROW._replace(topic="\ud800")]),
        GroupChange(offsets=[ROW._replace(topic="x" * 40_000)]),
        GroupChange(offsets=[ROW] * 1001),
        GroupChange(offsets=[ROW], groups=[GroupRow("group", "", None)]),
        GroupChange(offsets=[ROW], dropped_offsets=[("group", "topic", 1)]),
        GroupChange(offsets=[ROW], dropped_groups=["group"]),
        GroupChange(offsets=[ROW], producer=TransactionProducer(1, 0)),
    ],
)
def test_a_change_of_another_form_is_left_to_its_records(change: GroupChange) -> None:
    assert commit_records(change, MOST) is None


def test_a_change_that_may_be_too_large_is_left_to_its_records() -> None:
    change = GroupChange(offsets=[ROW._replace(topic_id=UUID(int=1))])
    records = commit_records(change, MOST)
    assert records is not None
    assert commit_records(change, len(records)) is None


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
    whole = commit_records(GroupChange(offsets=expected), MOST)
    assert whole is not None
    assert made.of(bytes(frame), now_ms) == whole
    assert (made.count, len(made)) == (len(rows), len(whole))


@pytest.mark.parametrize("count", [1, 9, 63, 64, 65, 200])
def test_many_records_of_a_commit_are_made_from_those_of_another(count: int) -> None:
    rows = [ROW._replace(partition=each, committed=each << 40) for each in range(count)]
    frame = b"".join(struct.pack(">iqib", row.partition, row.committed, -1, 0) for row in rows)
    made = CommitRecords(
        [ROW._replace(partition=each) for each in range(count)], range(4, 17 * count, 17), 12
    )
    assert made.of(frame, NOW_MS) == commit_records(GroupChange(offsets=rows), MOST)
