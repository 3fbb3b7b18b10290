"""Offsets in transactions: pending until the marker, and the later in the log counts."""

import sys
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups import (
    SLICE,
    Capacity,
    CommittedOffsets,
    GroupChange,
    GroupReplay,
    OffsetRow,
    OffsetsEnd,
    PendingRow,
    TransactionProducer,
    records_of,
    transaction_batch,
)
from horolog.record import TransactionEnd, build_batch, parse_header

TOPIC_ID = UUID(int=5)


def row(offset: int, group: str = "g", partition: int = 0) -> OffsetRow:
    return OffsetRow(group, "t", partition, offset, -1, "", 1000, topic_id=TOPIC_ID)


class Lab:
    """Offsets in memory, and the same changes as batches of a log."""

    def __init__(self) -> None:
        self.offsets = CommittedOffsets()
        self.log: list[bytes] = []

    def commit(self, *rows: OffsetRow) -> None:
        self._append(GroupChange(offsets=rows))
        for each in rows:
            self.offsets.put(each)

    def pend(self, producer_id: int, *rows: OffsetRow) -> None:
        self._append(GroupChange(offsets=rows, producer=TransactionProducer(producer_id, 0)))
        for each in rows:
            self.offsets.pending.put(PendingRow(producer_id, each))

    def end(self, producer_id: int, *, commit: bool) -> None:
        self._append(GroupChange(ended=OffsetsEnd(TransactionEnd(producer_id, 0, 3, commit))))
        for _ in self.offsets.end_transaction(producer_id, lambda _: True, commit=commit):
            pass

    def drop(self, group: str, partition: int) -> None:
        self._append(GroupChange(dropped_offsets=[(group, "t", partition)]))
        self.offsets.drop(group, [("t", partition)])

    def drop_group(self, group: str) -> None:
        gone = [(group, *key) for key in self.offsets.keys(group)]
        self._append(GroupChange(dropped_groups=[group], dropped_offsets=gone))
        self.offsets.drop_group(group)

    def _append(self, change: GroupChange) -> None:
        base_offset = 100 * len(self.log)
        batch = transaction_batch(change, 2000) or build_batch(records_of(change, 2000))
        self.log.append(base_offset.to_bytes(8, "big") + batch[8:])

    def committed(self, group: str = "g", partition: int = 0) -> int | None:
        found = self.offsets.get(group, "t", partition)
        return None if found is None else found.committed

    def restarted(self) -> CommittedOffsets:
        replay = GroupReplay()
        for batch in self.log:
            replay.take(batch)
        offsets = replay.stored(lambda _: TOPIC_ID).offsets
        return CommittedOffsets(offsets, replay.pending(lambda _: TOPIC_ID))


@pytest.mark.parametrize(("commit", "expected"), [(True, 2), (False, 1)])
def test_an_offset_is_pending_until_the_marker(commit: bool, expected: int) -> None:
    lab = Lab()
    lab.commit(row(1))
    lab.pend(7, row(2))
    assert lab.committed() == 1
    assert lab.offsets.pending.of_group("g") == {("t", 0)}
    lab.end(7, commit=commit)
    assert lab.committed() == expected
    assert not lab.offsets.pending.of_group("g")
    lab.end(7, commit=commit)  # a marker that is written again changes nothing
    assert lab.committed() == expected


def test_a_commit_outside_the_transaction_counts_if_it_is_later() -> None:
    lab = Lab()
    lab.pend(7, row(2))
    lab.commit(row(1))
    assert lab.offsets.pending.has("g", ("t", 0))  # not stable before the marker
    lab.end(7, commit=True)
    assert lab.committed() == 1


def test_of_two_transactions_the_later_commit_counts_in_any_order_of_markers() -> None:
    for order in ((7, 8), (8, 7)):
        lab = Lab()
        lab.pend(7, row(1))
        lab.pend(8, row(2))
        for producer_id in order:
            lab.end(producer_id, commit=True)
        assert lab.committed() == 2


def test_dropped_offsets_do_not_come_back_with_the_marker() -> None:
    lab = Lab()
    lab.pend(7, row(1), row(2, partition=1))
    lab.drop("g", 0)
    lab.end(7, commit=True)
    assert (lab.committed(), lab.committed(partition=1)) == (None, 2)
    lab.pend(8, row(3))
    lab.drop_group("g")
    lab.end(8, commit=True)
    assert list(lab.offsets.group_ids()) == []


def test_a_pending_offset_keeps_the_committed_one_from_expiring() -> None:
    lab = Lab()
    lab.commit(row(1))
    lab.pend(7, row(2))

    def expired() -> list[tuple[str, int]]:
        return lab.offsets.expired("g", 10_000, 1, None, lambda: lambda _: False)

    assert expired() == []
    lab.end(7, commit=False)
    assert expired() == [("t", 0)]


def test_a_marker_is_for_the_groups_of_its_partition() -> None:
    lab = Lab()
    lab.pend(7, row(1), row(2, "h"))
    list(lab.offsets.end_transaction(7, "h".__eq__, commit=True))
    assert (lab.committed(), lab.committed("h")) == (None, 2)
    assert lab.offsets.pending.of_group("g")


def test_the_end_of_a_transaction_comes_in_slices_between_which_others_change_offsets() -> None:
    lab, count = Lab(), 3 * SLICE
    lab.pend(7, *(row(1, partition=each) for each in range(count)))
    lab.pend(8, row(2, partition=count - 1))
    slices = lab.offsets.end_transaction(7, lambda _: True, commit=True)
    assert next(slices, "over") is None
    assert lab.committed(partition=SLICE - 1) == 1
    assert lab.committed(partition=SLICE) is None
    assert lab.offsets.pending.has("g", ("t", SLICE))  # not stable until its slice
    lab.commit(row(3, partition=SLICE))
    lab.drop("g", SLICE + 1)
    lab.pend(7, row(4, partition=SLICE + 2))  # of the next transaction
    assert len(list(slices)) == 1
    found = [lab.committed(partition=SLICE + each) for each in range(4)]
    assert found == [3, None, 1, 1]
    lab.end(8, commit=True)
    assert lab.committed(partition=count - 1) == 2
    lab.end(7, commit=True)
    assert lab.committed(partition=SLICE + 2) == 4
    assert not lab.offsets.pending


def test_a_replay_looks_at_no_other_records_for_a_tombstone_or_a_marker() -> None:
    """Equal work for each record, however many transactions are open: lines of code."""
    counts = []
    for others in (10, 400):
        lab = Lab()
        for producer_id in range(others):
            lab.pend(100 + producer_id, row(1, "h", partition=producer_id))
        lab.pend(7, row(1, partition=5))
        lab.drop("g", 5)
        lab.pend(7, row(2, partition=6))
        lab.end(7, commit=True)
        replay = GroupReplay()
        for batch in lab.log[:-4]:
            replay.take(batch)
        lines = 0

        def count(frame: object, event: str, arg: object) -> object:
            nonlocal lines
            lines += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            for batch in lab.log[-4:]:
                replay.take(batch)
        finally:
            sys.settrace(before)
        counts.append(lines)
        offsets = replay.stored(lambda _: TOPIC_ID).offsets
        assert [(each.partition, each.committed) for each in offsets] == [(6, 2)]
        assert len(replay.pending(lambda _: TOPIC_ID)) == others
    # Callbacks of the garbage collector may be among them; a line for each of 390 others is not.
    assert abs(counts[1] - counts[0]) < 100


def test_pending_offsets_are_refused_where_memory_has_no_room() -> None:
    capacity = Capacity(2_000)
    pending = CommittedOffsets(capacity=capacity).pending
    for partition in range(3):
        rows = [row(1, partition=partition)]
        pending.check(rows)
        pending.put(PendingRow(7, rows[0]))
    with pytest.raises(RequestRefused) as refused:
        pending.check([row(1, partition=3)])
    assert refused.value.code is ErrorCode.coordinator_not_available
    list(pending.end(7, lambda _: True, commit=False))
    assert capacity.used_bytes == 0


def test_batches_of_transactions_are_as_kafkas() -> None:
    lab = Lab()
    lab.pend(7, row(1))
    lab.end(7, commit=True)
    offsets, marker = map(parse_header, lab.log)
    assert offsets.is_transactional
    assert not offsets.is_control
    assert marker.is_transactional
    assert marker.is_control
    for header in (offsets, marker):
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, -1)


groups = st.sampled_from("gh")
producers = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("commit"), groups, st.integers(0, 1)),
    st.tuples(st.just("pend"), producers, groups, st.integers(0, 1)),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("drop"), groups, st.integers(0, 1)),
    st.tuples(st.just("drop_group"), groups),
)


@given(st.lists(steps, max_size=30))
def test_a_restart_has_what_memory_had(history: list[tuple[object, ...]]) -> None:
    lab = Lab()
    for number, (what, *args) in enumerate(history):
        match what, args:
            case "commit", [str(group), int(partition)]:
                lab.commit(row(number, group, partition))
            case "pend", [int(producer_id), str(group), int(partition)]:
                lab.pend(producer_id, row(number, group, partition))
            case "end", [int(producer_id), bool(commit)]:
                lab.end(producer_id, commit=commit)
            case "drop", [str(group), int(partition)]:
                lab.drop(group, partition)
            case "drop_group", [str(group)]:
                lab.drop_group(group)
    restarted = lab.restarted()
    for commit in (True, False):
        for group in "gh":
            assert restarted.of_group(group) == lab.offsets.of_group(group)
            assert restarted.pending.of_group(group) == lab.offsets.pending.of_group(group)
        for producer_id in (1, 2, 3):
            for offsets in (restarted, lab.offsets):
                offsets.end_transaction(producer_id, lambda _: True, commit=commit)
