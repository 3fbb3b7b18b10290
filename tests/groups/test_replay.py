"""What the records of `__consumer_offsets` add up to, and which records a change has."""

from collections.abc import Iterable
from struct import pack
from uuid import UUID

import pytest
from batches import marker

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups import (
    GroupChange,
    GroupReplay,
    GroupRow,
    OffsetRow,
    StoredGroups,
    records_of,
)
from horolog.record import LogRecord, build_batch
from horolog.schemas.group_records import (
    AssignedTopic,
    CurrentKey,
    CurrentValue,
    GroupEpochKey,
    GroupEpochValue,
    GroupRecordKey,
    GroupRecordValue,
    MemberKey,
    MemberMetadataValue,
    PartitionMetadataKey,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetPartitions,
    TargetValue,
)
from horolog.schemas.offsets import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    group_bytes,
    key_bytes,
    read_key,
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
    return replay.stored(lambda _: topic_id).offsets


def test_a_change_comes_back_as_it_was() -> None:
    groups = [GroupRow("g", "consumer", 5), GroupRow("members", "consumer", None)]
    rows = [row(1), row(2, partition=1)._replace(expire_ms=9000, leader_epoch=-1)]
    replay = replayed(build_batch(records(GroupChange(groups, rows))))
    rows[1] = rows[1]._replace(topic_id=None)  # a value with an expire time has none
    assert replay.stored(lambda _: TOPIC_ID)[:2] == (groups, rows)
    assert (replay.unreadable, replay.count) == (0, 4)


def test_a_dropped_group_takes_its_offsets_and_no_others() -> None:
    put = GroupChange([GroupRow("g", "", 5)], [row(1), row(2, partition=1), row(3, "h")])
    held = [("g", "t", 0), ("g", "t", 1)]
    drop = records(GroupChange(dropped_groups=["g"], dropped_offsets=held))
    assert drop[-1] == LogRecord(2000, key_bytes(GroupKey("g")), None)
    replay = replayed(build_batch(records(put)), build_batch(drop, base_offset=10))
    assert replay.stored(lambda _: TOPIC_ID)[:2] == ([], [row(3, "h")])


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
    assert replay.stored(lambda _: None).groups == [row]
    (written,) = records(GroupChange([row]))
    assert replayed(build_batch([written])).stored(lambda _: None).groups == [row]


def test_a_group_of_an_earlier_release_has_no_members_and_no_generation() -> None:
    value = group_bytes(GroupValue("consumer", 0))
    replay = replayed(build_batch([LogRecord(1, key_bytes(GroupKey("g")), value)]))
    assert replay.stored(lambda _: None).groups == [GroupRow("g", "consumer", None)]


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


# --- consumer groups ----------------------------------------------------------------------


def consumer_group(group: str = "c", epoch: int = 2) -> GroupChange:
    """What the first join of a member writes."""
    assigned = (AssignedTopic(TOPIC_ID, (0, 1), (epoch, epoch)),)
    return GroupChange(
        records=[
            (
                MemberKey(group, "m"),
                MemberMetadataValue(None, None, "", "/h", ("t",), "", 300, None, None),
            ),
            (GroupEpochKey(group), GroupEpochValue(epoch, 77)),
            (TargetKey(group, "m"), TargetValue((TargetPartitions(TOPIC_ID, (0, 1)),))),
            (TargetEpochKey(group), TargetEpochValue(epoch, 1000)),
            (CurrentKey(group, "m"), CurrentValue(epoch, 0, 0, assigned)),
        ]
    )


def of_changes(*changes: GroupChange) -> GroupReplay:
    """Replay changes, a batch each, 10 offsets apart."""
    return replayed(
        *(
            build_batch(records(change), base_offset=10 * number)
            for number, change in enumerate(changes)
        )
    )


def stored(*changes: GroupChange) -> StoredGroups:
    return of_changes(*changes).stored(lambda _: TOPIC_ID)


def typed(pairs: Iterable[tuple[object, object]]) -> list[tuple[type[object], object, object]]:
    """Tell keys of two types apart, which are equal as tuples."""
    return [(type(key), key, value) for key, value in pairs]


CLASSIC = GroupChange([GroupRow("c", "consumer", 5)])


def test_the_records_of_a_consumer_group_come_back_in_their_order() -> None:
    change = consumer_group()
    left = GroupChange(
        records=[
            (CurrentKey("c", "m"), None),
            (TargetKey("c", "m"), None),
            (MemberKey("c", "m"), None),
            (GroupEpochKey("c"), GroupEpochValue(3)),
        ]
    )
    found = stored(change, consumer_group("d"))
    assert [*found.consumer] == ["c", "d"]
    assert typed(found.consumer["c"]) == typed(change.records)
    assert typed(found.consumer["d"]) == typed(consumer_group("d").records)
    assert (found.groups, found.owed) == ([], {})
    assert stored(change, left).consumer == {
        "c": [change.records[3], (GroupEpochKey("c"), GroupEpochValue(3))]
    }
    gone = GroupChange(records=[(TargetEpochKey("c"), None), (GroupEpochKey("c"), None)])
    assert stored(change, left, gone).consumer == {}


def test_a_change_drops_first_and_then_has_its_records_and_its_groups() -> None:
    change = GroupChange(
        [GroupRow("c", "consumer", 5)],
        [row(1, "c")],
        dropped_offsets=[("c", "t", 4)],
        records=[(TargetEpochKey("c"), None), (GroupKey("c"), None)],
    )
    keys = [read_key(record.key or b"") for record in records(change)]
    assert [type(key) for key in keys] == [OffsetKey, TargetEpochKey, GroupKey, GroupKey, OffsetKey]
    assert [record.value is None for record in records(change)] == [True] * 3 + [False] * 2


def test_a_group_is_of_the_type_that_the_log_has_last() -> None:
    change, again = consumer_group(), consumer_group(epoch=9)
    found = stored(change, CLASSIC)
    assert (found.consumer, found.groups) == ({}, CLASSIC.groups)
    kinds = [CurrentKey, TargetKey, TargetEpochKey, MemberKey, GroupEpochKey]
    assert [type(key) for key in found.owed["c"]] == kinds
    found = stored(CLASSIC, change)
    assert (found.consumer, found.groups) == ({"c": change.records}, [])
    assert found.owed == {"c": [GroupKey("c")]}
    # What was before the classic group is none of the consumer group's.
    again = again._replace(records=again.records[:2])
    found = stored(change, CLASSIC, again)
    assert found.consumer == {"c": again.records}
    kinds = [CurrentKey, TargetKey, TargetEpochKey, GroupKey]
    assert [type(key) for key in found.owed["c"]] == kinds
    dropped = GroupChange(records=[(key, None) for key in found.owed["c"]])
    found = stored(change, CLASSIC, again, dropped)
    assert (found.consumer, found.owed) == ({"c": again.records}, {})


def test_a_conversion_up_and_down_leaves_one_type() -> None:
    change = consumer_group()
    up = change._replace(records=[(GroupKey("c"), None), *change.records])
    down = GroupChange(CLASSIC.groups, records=[(key, None) for key, _ in change.records])
    found = stored(CLASSIC, up)
    assert (found.consumer, found.groups, found.owed) == ({"c": change.records}, [], {})
    found = stored(CLASSIC, up, down)
    assert (found.consumer, found.groups, found.owed) == ({}, CLASSIC.groups, {})


def test_the_topics_of_an_earlier_release_make_no_group_but_a_tombstone_is_owed() -> None:
    key = PartitionMetadataKey("c")
    old = GroupChange(records=[(key, b"\0\0topics")])
    assert stored(old) == StoredGroups([], [], [], {}, {"c": [key]})
    assert stored(CLASSIC, old) == StoredGroups(CLASSIC.groups, [], [], {}, {"c": [key]})
    with_it = stored(old, consumer_group())
    assert with_it.consumer["c"][0] == (key, b"\0\0topics")
    assert with_it.owed == {}


def test_a_bad_record_of_a_consumer_group_leaves_the_others() -> None:
    change = consumer_group()
    bad = LogRecord(1, key_bytes(MemberKey("c", "other")), pack(">h", 1))
    replay = replayed(build_batch([*records(change), bad]))
    assert replay.stored(lambda _: None).consumer == {"c": change.records}
    assert replay.unreadable == 1


@pytest.mark.parametrize(
    "bad",
    [
        (MemberKey("c", "m" * 40_000), None),
        (MemberKey("c", "\ud800"), None),
        (GroupEpochKey("c"), GroupEpochValue(1 << 31)),
        (TargetKey("c", "m"), TargetValue((TargetPartitions(TOPIC_ID, (1 << 31,)),))),
    ],
)
def test_a_record_of_a_consumer_group_that_does_not_fit_is_refused(
    bad: tuple[GroupRecordKey, GroupRecordValue | None],
) -> None:
    with pytest.raises(RequestRefused) as refused:
        records(GroupChange(records=[bad]))
    assert refused.value.code is ErrorCode.message_too_large
