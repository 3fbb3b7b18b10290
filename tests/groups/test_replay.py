"""What the records of `__consumer_offsets` add up to, and which records a change has."""

from struct import pack
from uuid import UUID

import pytest
from batches import marker

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups import GroupChange, GroupReplay, GroupRow, OffsetRow, records_of
from horolog.record import LogRecord, build_batch
from horolog.schemas.offsets import (
    GroupKey,
    GroupValue,
    MemberValue,
    group_bytes,
    key_bytes,
)

PRODUCER_ID = 7
TOPIC_ID = UUID(int=5)


def row(offset: int, group: str = "g", partition: int = 0, topic: str = "t") -> OffsetRow:
    return OffsetRow(group, topic, partition, offset, 3, "note", 1000, topic_id=TOPIC_ID)


def records(change: GroupChange) -> list[LogRecord]:
    return records_of(change, 2000)


def commit(offset: int, base_offset: int, producer_id: int = -1) -> bytes:
    return build_batch(
        records(GroupChange(offsets=[row(offset)])),
        base_offset=base_offset,
        producer_id=producer_id,
        is_transactional=producer_id >= 0,
    )


def replayed(*batches: bytes) -> GroupReplay:
    replay = GroupReplay()
    for batch in batches:
        replay.take(batch)
    return replay


def offsets(replay: GroupReplay, topic_id: UUID | None = TOPIC_ID) -> list[OffsetRow]:
    return replay.rows(lambda _: topic_id)[1]


def test_a_change_comes_back_as_it_was() -> None:
    groups = [GroupRow("g", "consumer", 5), GroupRow("members", "consumer", None)]
    rows = [row(1), row(2, partition=1)._replace(expire_ms=9000, leader_epoch=-1)]
    replay = replayed(build_batch(records(GroupChange(groups, rows))))
    rows[1] = rows[1]._replace(topic_id=None)  # a value with an expire time has none
    assert replay.rows(lambda _: TOPIC_ID) == (groups, rows)
    assert (replay.unreadable, replay.count) == (0, 4)


def test_a_dropped_group_takes_its_offsets_and_no_others() -> None:
    put = GroupChange([GroupRow("g", "", 5)], [row(1), row(2, partition=1), row(3, "h")])
    held = [("g", "t", 0), ("g", "t", 1)]
    drop = records(GroupChange(dropped_groups=["g"], dropped_offsets=held))
    assert drop[-1] == LogRecord(2000, key_bytes(GroupKey("g")), None)
    replay = replayed(build_batch(records(put)), build_batch(drop, base_offset=10))
    assert replay.rows(lambda _: TOPIC_ID) == ([], [row(3, "h")])


def test_offsets_of_a_topic_that_was_made_again_are_left_out() -> None:
    replay = replayed(commit(1, 0))
    assert offsets(replay, UUID(int=6)) == offsets(replay, None) == []
    assert offsets(replay) == [row(1)]
    without_id = row(1)._replace(topic_id=None)
    replay = replayed(build_batch(records(GroupChange(offsets=[without_id]))))
    assert offsets(replay, UUID(int=6)) == [without_id]


@pytest.mark.parametrize(("kind", "found"), [(0, 1), (1, 2)])
def test_a_commit_in_a_transaction_counts_when_that_is_committed(kind: int, found: int) -> None:
    replay = replayed(commit(1, 0), commit(2, 1, PRODUCER_ID))
    assert offsets(replay) == [row(1)]
    assert not replay.is_settled
    replay.take(marker(2, PRODUCER_ID, kind=kind, epoch=-1))
    assert offsets(replay) == [row(found)]
    assert replay.is_settled


def test_of_commits_in_a_transaction_and_outside_the_later_counts() -> None:
    replay = replayed(commit(1, 0, PRODUCER_ID), commit(2, 1))
    replay.take(marker(2, PRODUCER_ID, kind=1, epoch=-1))
    assert offsets(replay) == [row(2)]


def test_the_members_of_a_group_come_back_and_leave_it_not_empty() -> None:
    member = MemberValue("m", None, "client", "/host", 1, 2, b"s", b"a")
    value = group_bytes(GroupValue("consumer", 4, "range", "m", 77, (member,)))
    replay = replayed(build_batch([LogRecord(1, key_bytes(GroupKey("g")), value)]))
    row = GroupRow("g", "consumer", None, 4, "range", "m", (member,))
    assert replay.rows(lambda _: None)[0] == [row]
    (written,) = records(GroupChange([row]))
    assert replayed(build_batch([written])).rows(lambda _: None)[0] == [row]


def test_a_group_of_an_earlier_release_has_no_members_and_no_generation() -> None:
    value = group_bytes(GroupValue("consumer", 0))
    replay = replayed(build_batch([LogRecord(1, key_bytes(GroupKey("g")), value)]))
    assert replay.rows(lambda _: None)[0] == [GroupRow("g", "consumer", None)]


def test_one_bad_record_leaves_the_others_and_unknown_types_are_kept() -> None:
    unknown = LogRecord(1, pack(">h", 9) + b"whatever", b"of a later version")
    bad = [
        LogRecord(1, None, b"no key"),
        LogRecord(1, pack(">h", 1) + b"\x7f\xff", b"x"),
        LogRecord(1, b"", b"x"),
        LogRecord(1, key_bytes(GroupKey("newer")), pack(">h", 99)),
    ]
    good = records(GroupChange(offsets=[row(1)]))
    replay = replayed(build_batch([*bad, unknown, *good]))
    assert offsets(replay) == [row(1)]
    assert replay.unreadable == len(bad)
    assert replay.reason is not None
    assert unknown in [each._replace(offset=None) for each in replay.records()]


def test_a_batch_whose_records_cannot_be_read_fails_alone() -> None:
    damaged = bytearray(commit(5, 1))
    damaged[61:] = bytes(len(damaged) - 61)
    replay = replayed(commit(1, 0), bytes(damaged), commit(2, 2))
    assert offsets(replay) == [row(2)]
    assert replay.unreadable == 1


@pytest.mark.parametrize(
    "bad", [row(1, "g" * 40_000), row(1 << 63), row(1, "\ud800"), row(1, partition=1 << 31)]
)
def test_what_no_record_can_hold_is_refused(bad: OffsetRow) -> None:
    with pytest.raises(RequestRefused) as refused:
        records(GroupChange(offsets=[bad]))
    assert refused.value.code is ErrorCode.invalid_commit_offset_size
