"""Groups in one file: no acknowledged change is lost, none is half there, and it stays small."""

import errno
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest
from faultyfiles import FaultyFiles
from hypothesis import given
from hypothesis import strategies as st
from overrides import override

from horolog.errors import RequestRefused, StorageFailed
from horolog.groups.offsets import CommittedOffsets
from horolog.groups.rows import (
    GroupChange,
    GroupRow,
    OffsetRow,
    OffsetsEnd,
    PendingRow,
    TransactionalProducer,
)
from horolog.metadata import group_file
from horolog.metadata.group_file import GroupFile
from horolog.record.builder import Record, build_batch
from horolog.record.markers import TransactionEnd
from horolog.storage.files import Files
from horolog.storage.names import GROUPS_FILE
from horolog.storage.record_file import RecordFile

TOPIC_ID = UUID(int=5)


class Lab:
    """A file and the model of what it has."""

    def __init__(self, directory: Path, files: Files | None = None, least_bytes: int = 1 << 20):
        self.path = directory / GROUPS_FILE
        self.groups: dict[str, GroupRow] = {}
        self.offsets = CommittedOffsets()
        self.file = self.opened(files or Files(), least_bytes)

    def opened(self, files: Files, least_bytes: int = 1 << 20) -> GroupFile:
        return GroupFile(
            files,
            str(self.path),
            now_ms=lambda: 1000,
            least_bytes=least_bytes,
        )

    def drop(self, group_id: str) -> GroupChange:
        """The drop of a group with all its offsets."""
        gone = [(group_id, *key) for key in self.offsets.of_group(group_id)]
        return GroupChange(dropped_groups=[group_id], dropped_offsets=gone)

    def write(self, change: GroupChange) -> None:
        for group_id in change.dropped_groups:
            change = self.drop(group_id)
        assert self.file.write_groups([change]) == [None]
        for group_id in change.dropped_groups:
            self.groups.pop(group_id, None)
            self.offsets.drop_group(group_id)
        for group_id, topic, partition in change.dropped_offsets:
            self.offsets.drop(group_id, [(topic, partition)])
        self.groups.update({row.group_id: row for row in change.groups})
        for row in change.offsets:
            self.offsets.put(row)

    def expected(self) -> tuple[set[GroupRow], set[OffsetRow]]:
        held = map(self.offsets.of_group, self.offsets.group_ids())
        return set(self.groups.values()), {row for rows in held for row in rows.values()}

    def found(self) -> tuple[set[GroupRow], set[OffsetRow]]:
        groups, offsets, _ = self.opened(Files()).load(lambda _: TOPIC_ID)
        return set(groups), set(offsets)


def row(offset: int, group: str = "g", partition: int = 0) -> OffsetRow:
    return OffsetRow(group, "t", partition, offset, -1, "", 1000, topic_id=TOPIC_ID)


names = st.sampled_from(["a", "b", "ü"])
changes = st.one_of(
    st.builds(
        lambda group, since: GroupChange([GroupRow(group, "consumer", since)]),
        names,
        st.none() | st.integers(0, 1 << 62),
    ),
    st.builds(
        lambda rows: GroupChange(offsets=rows),
        st.lists(
            st.builds(row, st.integers(0, (1 << 63) - 1), names, st.integers(0, 3)), min_size=1
        ),
    ),
    st.builds(lambda group: GroupChange(dropped_groups=[group]), names),
    st.builds(
        lambda group, at: GroupChange(dropped_offsets=[(group, "t", at)]), names, st.integers(0, 3)
    ),
)


@given(st.lists(changes, max_size=30), st.sampled_from([1, 1 << 20]), st.booleans())
def test_any_changes_are_there_after_a_kill(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[GroupChange],
    least_bytes: int,
    is_large: bool,
) -> None:
    lab = Lab(tmp_path_factory.mktemp("groups"), least_bytes=least_bytes)
    with patch.object(group_file, "REPLAY_WORTH_KERNELS", 0 if is_large else 1 << 30):
        for change in history:
            lab.write(change)
            assert lab.found() == lab.expected()


def test_a_kill_within_a_write_leaves_each_change_whole_or_out(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    states = [lab.expected()]
    for offset in range(1, 4):
        lab.write(GroupChange([GroupRow("g", "", offset)], [row(offset), row(offset, partition=1)]))
        states.append(lab.expected())
    whole = lab.path.read_bytes()
    for size in range(len(whole)):
        lab.path.write_bytes(whole[:size])
        assert lab.found() in states


def test_offsets_of_a_transaction_are_pending_after_a_kill_until_its_marker(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    producer = TransactionalProducer(7, 2)
    changes = [GroupChange(offsets=[row(1)]), GroupChange(offsets=[row(2)], producer=producer)]
    assert lab.file.write_groups(changes) == [None, None]
    loaded = lab.opened(Files()).load(lambda _: TOPIC_ID)
    assert loaded == ([], [row(1)], [PendingRow(7, row(2))])
    end = GroupChange(ended=OffsetsEnd(TransactionEnd(*producer, 0, is_commit=True)))
    assert lab.file.write_groups([end]) == [None]
    assert lab.opened(Files()).load(lambda _: TOPIC_ID) == ([], [row(2)], [])


def test_a_change_that_does_not_fit_fails_alone(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    bad = GroupChange(offsets=[row(1, "g" * 40_000)])
    large = GroupChange(offsets=[row(1)._replace(metadata="m" * (9 << 20))])
    first, second, third, fourth = lab.file.write_groups(
        [GroupChange(offsets=[row(1)]), bad, large, GroupChange(offsets=[row(2)])]
    )
    assert (first, fourth) == (None, None)
    assert isinstance(second, RequestRefused)
    assert isinstance(third, RequestRefused)
    assert lab.found() == (set(), {row(2)})


def test_a_group_of_very_many_offsets_can_be_dropped(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    group = "g" * 30_000
    for first in range(0, 300, 100):
        lab.write(GroupChange(offsets=[row(1, group, at) for at in range(first, first + 100)]))
    lab.write(GroupChange(dropped_groups=[group]))
    assert lab.found() == (set(), set())


def test_a_full_disk_refuses_changes_and_leaves_what_was_there(tmp_path: Path) -> None:
    files = FaultyFiles(None)
    lab = Lab(tmp_path, files)
    lab.write(GroupChange(offsets=[row(1)]))
    files.fail_after(0, OSError(errno.ENOSPC, "No space left on device"))
    (error,) = lab.file.write_groups([GroupChange(offsets=[row(2)])])
    assert isinstance(error, StorageFailed)
    assert lab.found() == (set(), {row(1)})


@pytest.mark.parametrize("is_large", [False, True])
def test_the_file_stays_small_and_keeps_what_it_does_not_know(
    tmp_path: Path, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.metadata", REPLAY_WORTH_KERNELS=0 if is_large else 1 << 30)
    lab = Lab(tmp_path, least_bytes=4096)
    unknown = Record(1, b"\0\x09later", b"state")
    RecordFile(Files(), str(lab.path)).append(build_batch([unknown]))
    lab.file = lab.opened(Files(), 4096)
    lab.file.load(lambda _: TOPIC_ID)
    for offset in range(500):
        lab.write(GroupChange(offsets=[row(offset)]))
        assert lab.path.stat().st_size < 8192
    assert lab.found() == (set(), {row(499)})
    assert b"later" in lab.path.read_bytes()


def test_damage_costs_what_it_hits_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path)
    for offset, group in enumerate("abc"):
        lab.write(GroupChange(offsets=[row(offset, group)]))
    data = bytearray(lab.path.read_bytes())
    data[len(data) // 2] ^= 1
    lab.path.write_bytes(data)
    assert lab.found() == (set(), {row(0, "a"), row(2, "c")})
    assert "may be lost" in caplog.text
