"""One look at a log: what is said of records comes from the segments that they came from."""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compacting import COMPACT, put
from faulty_calls import failing
from interleave import at_each_line
from patience import PATIENCE_S
from storelogs import (
    NOW,
    TOPIC_ID,
    UnsyncedFiles,
    append,
    new_follower,
    new_log,
    open_dir,
    partition_dir,
    pull,
)

from horolog.errors import CorruptIndex, ErrorCode, RequestRefused, StorageFailed, code_for
from horolog.record import LogRecord, TransactionEnd, build_batch, iter_headers
from horolog.storage import (
    EpochStart,
    FileMissing,
    Log,
    Origin,
    TopicPartition,
    prepare,
    write_aborted,
)

DELETE = replace(COMPACT, cleanup_policy=frozenset({"delete"}), retention_ms=10_000)
PARTITION = TopicPartition("events", 3)


def add_aborted(log: Log, transactions: int) -> None:
    """Append aborted transactions of one record each, with even offsets."""
    for number in range(transactions):
        sent = build_batch(
            [LogRecord(NOW + number, b"k", b"v")],
            producer_id=9,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )
        admission = log.producers.admit(9, is_strict=False)
        prepared = prepare(sent, log.config, NOW, partition=str(log), admission=admission)
        log.append(prepared, NOW + number)
        log.append(TransactionEnd(9, 0, 0, is_commit=False), NOW + number, Origin.COORDINATOR)


def test_append_times_beside_retention_are_of_the_records_that_were_read(tmp_path: Path) -> None:
    directory = open_dir(tmp_path, DELETE)
    log = directory.create(*PARTITION, TOPIC_ID, DELETE, NOW)
    for number in range(600):
        put(log, b"k", at=NOW + 1000 * number, now=NOW + 1000 * number)

    def retain() -> None:
        first = log.segments[0]
        largest = max(header.max_timestamp for _, header in first.headers(0, first.size))
        log.apply_retention(largest + 10_001, 0)

    def fetch() -> tuple[bytes, list[tuple[int, int | None]]]:
        try:
            view = log.look()
            data = bytes(view.read(view.log_start_offset, 200).read())
            times = view.append_times_within(view.log_start_offset, len(data))
        except RequestRefused:  # deleted before the look
            return b"", []
        return data, [(stretch.offset, stretch.ms) for stretch in times]

    fetched = 0
    for data, times in at_each_line(fetch, retain, every=11):
        starts = [offset for offset, _ in times]
        for _, header in iter_headers(data):
            fetched += 1
            at = bisect_right(starts, header.base_offset) - 1
            assert at >= 0
            assert times[at][1] == NOW + 1000 * header.base_offset
        if len(log.segments) < 5:
            break
    assert fetched
    directory.close(clean=False)


def test_aborted_transactions_beside_retention_are_of_the_records_that_were_read(
    tmp_path: Path,
) -> None:
    directory = open_dir(tmp_path, replace(DELETE, retention_ms=-1, retention_bytes=500))
    log = directory.create(*PARTITION, TOPIC_ID, DELETE, NOW)
    add_aborted(log, 300)
    log.config = replace(DELETE, retention_ms=-1)

    def retain() -> None:
        log.config = replace(DELETE, retention_ms=-1, retention_bytes=log.size - 500)
        log.apply_retention(NOW, 0)

    def fetch() -> tuple[bytes, set[int]]:
        try:
            view = log.look()
            start = view.log_start_offset
            data = bytes(view.read(start, 200, up_to=view.last_stable_offset).read())
            end = view.end_of_read(start, len(data), view.last_stable_offset)
            aborted = view.aborted_transactions(start, end)
        except RequestRefused:  # deleted before the look
            return b"", set()
        return data, {entry.first_offset for entry in aborted}

    fetched = 0
    for data, aborted in at_each_line(fetch, retain, every=11):
        for _, header in iter_headers(data):
            fetched += 1
            assert header.is_control or header.base_offset in aborted
        if len(log.segments) < 5:
            break
    assert fetched
    directory.close(clean=False)


def test_a_read_beside_retention_never_leaves_out_what_was_deleted_without_a_word(
    tmp_path: Path,
) -> None:
    position, given = 0, list[tuple[int, int]]()

    def read() -> None:
        try:
            data = log.read(position, 200).read()
        except RequestRefused:
            return  # out of range: the consumer knows
        first = next(header for _, header in iter_headers(data))
        given.append((position, first.base_offset))

    with new_log(tmp_path, replace(DELETE, retention_ms=-1, retention_bytes=500)) as log:
        for _ in range(600):
            put(log, b"k")
        log.config = replace(DELETE, retention_ms=-1)

        def retain() -> None:
            nonlocal position
            position = log.log_start_offset
            log.config = replace(log.config, retention_bytes=log.size - log.segments[0].size)
            log.apply_retention(NOW, 0)

        for _ in at_each_line(retain, read, "horolog/storage/logs/"):
            if len(log.segments) < 5:
                break
    assert len(given) > 5
    assert all(first == asked for asked, first in given)


def test_where_an_epoch_ended_is_said_of_one_moment_beside_a_new_leader(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)

        def lead() -> None:
            log.lead(log.leader_epoch + 1, NOW)
            append(log, NOW)

        for answer in at_each_line(lambda: log.end_of_epoch(log.leader_epoch), lead):
            assert answer is not None
            starts = [each for each in log.epochs.entries if each.epoch > answer.epoch]
            assert all(answer.start_offset <= each.start_offset for each in starts)


def test_where_an_epoch_ended_is_said_of_one_moment_beside_a_truncation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def v2(offset: int, epoch: int) -> bytes:
        return build_batch([LogRecord(NOW, None, b"v")], base_offset=offset, leader_epoch=epoch)

    with new_follower(tmp_path) as log:
        pull(log, *(v2(offset, 1) for offset in range(50)))
        pull(log, *(v2(offset, 3) for offset in range(50, 60)))
        find_end = log.epochs.end_offset_for

        def beside_a_truncation(epoch: int, end_offset: int) -> EpochStart | None:
            log.truncate_to(50, NOW)
            return find_end(epoch, end_offset)

        monkeypatch.setattr(log.epochs, "end_offset_for", beside_a_truncation)
        assert log.end_of_epoch(1) == EpochStart(1, 50)


def test_the_earliest_offset_has_its_own_epoch_beside_retention(tmp_path: Path) -> None:
    with new_log(tmp_path, replace(DELETE, retention_ms=-1)) as log:
        for _ in range(30):
            log.lead(log.leader_epoch + 1, NOW)
            put(log, b"k")
            log.roll(NOW)
        starts = {each.start_offset: each.epoch for each in log.epochs.entries}

        def retain() -> None:
            log.config = replace(log.config, retention_bytes=log.size - log.segments[0].size)
            log.apply_retention(NOW, 0)

        for epoch, start in at_each_line(lambda: log.earliest, retain):
            assert epoch in (-1, starts[start])


def test_append_times_are_never_those_of_a_topic_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_log(tmp_path, DELETE) as log:
        put(log, b"k")
        view = log.look()
        log.roll(NOW)
        assert view.append_times(0, 1)[0].ms == NOW
        times = log.segments[0].append_times
        stretches = type(times).stretches

        def beside_its_deletion(*args: Any, **more: Any) -> Any:
            log.abandon()
            return stretches(*args, **more)

        monkeypatch.setattr(type(times), "stretches", beside_its_deletion)
        with pytest.raises(FileMissing):
            view.append_times(0, 1)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".companion"])
def test_aborted_transactions_are_named_where_a_rename_of_a_segment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    with new_log(tmp_path, DELETE) as log:
        add_aborted(log, 20)
        first = log.segments[0]
        aborted = first.aborted()
        refusal = StorageFailed("the disk refused")
        failing(monkeypatch, log.files, "rename", refusal, when=lambda old, _: old.endswith(suffix))
        with pytest.raises(StorageFailed):
            first.mark_deleted()
        assert first.aborted() == aborted
        monkeypatch.undo()
        first.mark_deleted()
        write_aborted(log.files, first.path_of("").removesuffix(".deleted") + ".txnindex", [])
        assert first.aborted() == aborted


def test_a_missing_index_of_aborted_transactions_is_no_empty_one(tmp_path: Path) -> None:
    with new_log(tmp_path, DELETE) as log:
        add_aborted(log, 20)
        (partition_dir(tmp_path) / "00000000000000000000.txnindex").unlink()
        log.files.forget(log.segments[0].path_of(".txnindex"))
        with pytest.raises(CorruptIndex, match=r"txnindex is missing") as caught:
            log.look().aborted_transactions(0, 2)
        assert code_for(caught.value) == ErrorCode.kafka_storage_error


class _HeldFiles(UnsyncedFiles):
    """Renames the index of aborted transactions once its new name was looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.looked_for = threading.Event(), threading.Event()
        self.deleting: threading.Thread | None = None

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".txnindex.deleted"):
            self.begun.set()
            assert self.looked_for.wait(PATIENCE_S)
        super().rename(source, target)

    def read_whole(self, path: str, max_bytes: int) -> bytes | None:
        data = super().read_whole(path, max_bytes)
        if path.endswith(".txnindex.deleted") and self.deleting is not None:
            self.looked_for.set()
            self.deleting.join(PATIENCE_S)
        return data


def test_aborted_transactions_are_read_while_their_file_is_renamed(tmp_path: Path) -> None:
    files = _HeldFiles()
    with new_log(tmp_path, DELETE, files=files) as log:
        add_aborted(log, 20)
        segment = log.segments[0]
        aborted = segment.aborted()
        assert aborted
        files.deleting = threading.Thread(target=segment.mark_deleted)
        files.deleting.start()
        assert files.begun.wait(PATIENCE_S)
        assert segment.aborted() == aborted
        files.looked_for.set()
        files.deleting.join(PATIENCE_S)
        assert segment.aborted() == aborted
