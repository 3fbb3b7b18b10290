from __future__ import annotations

import os
import stat
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batches import batch
from hypothesis import example, given
from hypothesis import strategies as st
from patience import PATIENCE_S
from storelogs import (
    ANY_TIME,
    APPEND_TIME,
    EVERY_BATCH,
    NOW,
    TOPIC_ID,
    Truth,
    UnsyncedFiles,
    append,
    new_log,
    partition_dir,
    placed,
    pull,
    records_in,
    reopened,
    times_in,
)

from horolog.config import LONG_MAX, TopicConfig
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.record import (
    NO_TIMESTAMP,
    AppendTimeStretch,
    Codec,
    LogRecord,
    StampedBatch,
    TimestampType,
    iter_headers,
    parse_header,
    stamped_batch,
    verify_crc,
)
from horolog.storage import (
    Batch,
    EpochStart,
    Files,
    Log,
    Origin,
    StampedRecords,
    WouldBlock,
    prepare,
    trusted,
    trusted_plain,
)

SMALL = TopicConfig(segment_bytes=300, **ANY_TIME)
SETTINGS: list[dict[str, Any]] = [
    {**ANY_TIME, "segment_ms": 1000, "horolog_roll_by": by, **more}
    for by in ("first-time", "append-time", "largest-time")
    for more in ({}, {"segment_bytes": 600}, {"segment_ms": LONG_MAX})
]
STEPS = st.tuples(
    st.sampled_from((0, 1, 500, 999, 1000, 1001, 5000, 1 << 43)),
    st.sampled_from(("stamped",) * 4 + ("produced", "set", "exempt", "reset", "cut", "roll")),
    st.integers(0, 3000),
)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def code_of(error: pytest.ExceptionInfo[RequestRefused]) -> ErrorCode:
    return error.value.code


# Appending.


def test_offsets_are_dense_from_zero(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        first = append(log, NOW, NOW, NOW)
        second = append(log, NOW)
        assert (first.base_offset, first.last_offset) == (0, 2)
        assert (second.base_offset, second.last_offset) == (3, 3)
        assert log.log_end_offset == log.high_watermark == 4
        assert [record.offset for record in records_in(log)] == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", list(Codec))
def test_only_the_header_of_a_stored_batch_differs_from_what_was_sent(
    tmp_path: Path, codec: Codec
) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
        sent = batch(NOW, NOW + 3, codec=codec)
        append(log, NOW, NOW + 3, codec=codec)
        stored = bytes(log.read(1, 1 << 20).read())
        assert stored[61:] == sent[61:]
        header = parse_header(stored)
        assert header == parse_header(sent)._replace(base_offset=1, leader_epoch=0)
        verify_crc(stored)


def test_append_time_is_stamped_without_touching_records(tmp_path: Path) -> None:
    """KIP-32: type bit and largest timestamp of the header, and its checksum; nothing else."""
    with new_log(tmp_path, APPEND_TIME) as log:
        done = append(log, 5, 7, codec=Codec.GZIP, now=NOW)
        assert done.log_append_time_ms == NOW
        sent = batch(5, 7, codec=Codec.GZIP)
        stored = bytes(log.read(0, 1 << 20).read())
        header = parse_header(stored)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert header.max_timestamp == NOW
        assert header.base_timestamp == 5
        assert stored[61:] == sent[61:]
        verify_crc(stored)
        assert times_in(log) == [Truth(0, NOW), Truth(1, NOW)]


def test_a_create_time_topic_answers_no_append_time(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        assert append(log, NOW).log_append_time_ms == -1


def test_the_header_of_a_stored_batch_has_the_true_largest_time(tmp_path: Path) -> None:
    with new_log(tmp_path, TopicConfig(segment_ms=1 << 60)) as log:
        for times in ([-5000, -7000], [-1, -1], [-1, -5000], [NOW, -1]):
            append(log, *times)
        data = log.read(0, 1 << 20).read()
        found = [header.max_timestamp for _, header in iter_headers(data)]
        assert found == [-5000, -1, -5000, NOW]


def test_the_topics_type_may_change_while_running(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW - 50)
        log.config = APPEND_TIME
        append(log, NOW - 40)
        log.config = TopicConfig()
        append(log, NOW - 30)
        assert [record.timestamp for record in times_in(log)] == [NOW - 50, NOW, NOW - 30]


def test_two_writers_at_a_time_are_a_bug(tmp_path: Path) -> None:
    class Slow(Files):
        entered = threading.Event()
        go_on = threading.Event()

        def os_fsync(self, fd: int) -> None:
            self.entered.set()
            assert self.go_on.wait(PATIENCE_S)

    files = Slow()
    Slow.go_on.set()
    with new_log(tmp_path, TopicConfig(flush_messages=1), files=files) as log:
        Slow.entered.clear()
        Slow.go_on.clear()
        prepared = prepare(batch(NOW), log.config, NOW)
        thread = threading.Thread(target=log.append, args=(prepared, NOW))
        thread.start()
        assert Slow.entered.wait(PATIENCE_S)
        try:
            with pytest.raises(AssertionError, match="two writers of events-3"):
                log.append(prepared, NOW)
            with pytest.raises(AssertionError, match="two writers"):
                log.apply_retention(NOW, NOW)
        finally:
            Slow.go_on.set()
            thread.join()


# Leader epochs.


def test_batches_carry_the_epoch_and_its_start_is_on_disk_before_them(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
        log.leader_epoch = 7
        append(log, NOW)
        assert log.epochs.entries == (EpochStart(0, 0), EpochStart(7, 1))
        found = log.find_by_timestamp(NOW)
        assert found is not None
        assert found.leader_epoch == 0
        assert (partition_dir(tmp_path) / "leader-epoch-checkpoint").read_text().endswith("7 1\n")


# Reading.


@pytest.mark.parametrize("offset", [-1, 4, 100])
def test_an_offset_out_of_range_is_refused(tmp_path: Path, offset: int) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW, NOW, NOW)
        with pytest.raises(RequestRefused, match="in the range 0 to 3") as error:
            log.read(offset, 100)
        assert code_of(error) is ErrorCode.offset_out_of_range


def test_reading_at_the_end_gives_nothing(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        assert log.read(0, 100).size == 0
        append(log, NOW)
        assert log.read(1, 100).read() == b""


def test_every_offset_is_read_from_its_batch_across_segments(tmp_path: Path) -> None:
    with new_log(tmp_path, replace(SMALL, index_interval_bytes=0)) as log:
        for number in range(30):
            append(log, NOW + number, NOW)
        assert len(log.segments) > 5
        for offset in range(60):
            header = parse_header(log.read(offset, 1).read())
            assert header.base_offset <= offset <= header.last_offset


def test_a_slice_ends_with_its_segment(tmp_path: Path) -> None:
    with new_log(tmp_path, SMALL) as log:
        for _ in range(10):
            append(log, NOW)
        first, second, *_ = log.segments
        data = log.read(0, 1 << 20).read()
        assert len(data) == first.size
        assert parse_header(log.read(second.base_offset, 10).read()).base_offset == (
            second.base_offset
        )


def test_readers_go_on_while_everything_changes(tmp_path: Path) -> None:
    """No reader sees an error, half a batch, or an offset twice, whatever the writer does."""
    config = replace(SMALL, segment_bytes=2000, retention_bytes=6000, file_delete_delay_ms=0)
    with new_log(tmp_path, config, files=Files(max_open=4)) as log:
        stop = threading.Event()
        problems: list[BaseException] = []

        def read() -> None:
            try:
                offset = 0
                while not stop.is_set():
                    offset = max(offset, log.log_start_offset)
                    try:
                        data = bytes(log.read(offset, 700).read())
                    except RequestRefused:
                        continue  # retention was faster
                    log.find_by_timestamp(NOW)
                    log.find_max_timestamp()
                    for _, header in iter_headers(data):
                        assert header.base_offset <= offset <= header.last_offset
                        offset = header.next_offset
            except BaseException as error:  # noqa: BLE001 - shown by the test
                problems.append(error)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(600):
            append(log, NOW + number, NOW)
            if number % 20 == 0:
                log.apply_retention(NOW, NOW)
        stop.set()
        for reader in readers:
            reader.join()
        assert problems == []
        assert log.log_start_offset > 0


# Rolling.


def test_a_segment_is_rolled_when_a_batch_does_not_fit(tmp_path: Path) -> None:
    size = len(batch(NOW))
    for room, expected in ((size * 3, [0, 3]), (size * 3 - 1, [0, 2])):
        path = tmp_path / str(room)
        with new_log(path, TopicConfig(segment_bytes=room)) as log:
            for _ in range(4):
                append(log, NOW)
            assert bases(log) == expected


def test_time_rolls_by_records_not_by_the_clock(tmp_path: Path) -> None:
    config = TopicConfig(segment_ms=1000, **ANY_TIME)
    with new_log(tmp_path, config) as log:
        append(log, NOW)
        append(log, NOW + 1000, now=NOW + 90_000)
        assert bases(log) == [0], "exactly segment.ms is not too much"
        append(log, NOW + 500, now=NOW + 90_000)
        assert bases(log) == [0], "an older record does not roll"
        append(log, -1, now=NOW + 900_000)
        assert bases(log) == [0], "a record without a time does not"
        done = append(log, NOW + 1001, now=NOW)
        assert done.rolled
        assert bases(log) == [0, 4]


def test_without_a_time_in_the_first_record_the_clock_rolls(tmp_path: Path) -> None:
    config = TopicConfig(segment_ms=1000, **ANY_TIME)
    with new_log(tmp_path, config) as log:
        append(log, -1)
        append(log, NOW + 90_000, now=NOW + 1000)
        assert bases(log) == [0]
        append(log, NOW - 90_000, now=NOW + 1001)
        assert bases(log) == [0, 2]


def test_an_empty_segment_is_never_rolled(tmp_path: Path) -> None:
    with new_log(tmp_path, TopicConfig(segment_ms=1000)) as log:
        append(log, NOW, now=NOW + 90_000)
        assert bases(log) == [0]
        log.roll(NOW)
        log.roll(NOW)
        assert bases(log) == [0, 1]


def test_jitter_rolls_earlier_but_never_later(tmp_path: Path) -> None:
    config = TopicConfig(segment_ms=1000, segment_jitter_ms=400, **ANY_TIME)
    waits = []
    with new_log(tmp_path, config) as log:
        for _ in range(12):
            log.roll(NOW)
            jitter = log.active.jitter_ms
            waits.append(jitter)
            assert 0 <= jitter < 400
            append(log, NOW)
            before = len(log.segments)
            append(log, NOW + 1000 - jitter)
            assert len(log.segments) == before
            append(log, NOW + 1001 - jitter)
            assert len(log.segments) == before + 1
    assert len(set(waits)) > 1


@pytest.mark.parametrize("index_bytes", [24, 36, 60])
def test_a_full_index_rolls(tmp_path: Path, index_bytes: int) -> None:
    config = replace(EVERY_BATCH, segment_index_bytes=index_bytes)
    with new_log(tmp_path, config) as log:
        for number in range(20):
            append(log, NOW + number)
        capacity = index_bytes // 12 - 1
        assert bases(log) == list(range(0, 20, capacity + 1))


def test_a_far_future_record_rolls_at_once_and_then_the_segment_stays(tmp_path: Path) -> None:
    config = TopicConfig(segment_ms=1000, **ANY_TIME)
    with new_log(tmp_path, config) as log:
        append(log, NOW)
        append(log, NOW * 1000)
        append(log, NOW + 5000)
        append(log, NOW + 90_000)
        assert bases(log) == [0, 1]


def test_no_segment_holds_records_of_both_sides_of_a_reset_however_calm_it_was(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path, TopicConfig()) as log:
        for at in range(3):
            append(log, NOW + at, now=NOW + at)
        log.delete_records(3)
        assert append(log, NOW - 9, now=NOW - 9).rolled
        assert bases(log) == [0, 3]
        assert [each.offset for each in log.floor.resets] == [3]


def would_block(log: Log, batch: Batch, now: int, origin: Origin = Origin.CLIENT) -> bool:
    """Whether an append would block; if not, it is done."""
    before = log.log_end_offset
    try:
        log.append(batch, now, origin, may_block=False)
    except WouldBlock:
        assert log.log_end_offset == before
        return True
    return False


def test_an_append_that_may_not_block_uses_open_files_only(tmp_path: Path) -> None:
    config = TopicConfig(segment_bytes=300, flush_messages=1 << 40)
    files = UnsyncedFiles()
    with new_log(tmp_path, config, files=files) as log:
        prepared = prepare(batch(NOW), config, NOW)
        assert would_block(log, prepared, NOW), "the epoch must be written first"
        log.append(prepared, NOW)
        files.close()
        assert would_block(log, prepared, NOW), "the files must be opened"
        log.append(prepared, NOW)
        log.config = replace(config, flush_messages=3)
        assert would_block(log, prepared, NOW), "the third record must be flushed"
        log.config = config
        done = log.append(prepared, NOW, may_block=False)
        assert (done.base_offset, log.log_end_offset) == (2, 3)
        while not would_block(log, prepared, NOW):
            assert bases(log) == [0]
        assert log.append(prepared, NOW).rolled, "and the segment must be rolled"


def test_an_append_after_a_seen_time_opens_the_companion_only_if_it_may_block(
    tmp_path: Path,
) -> None:
    files = UnsyncedFiles()
    with new_log(tmp_path, files=files) as log:
        append(log, NOW)
        segment = log.segments[-1]
        files.get(segment.path_of(".appending.deleted"))  # the block map is written at once
        log.begin_following(1)
        pull(log, placed(1))  # of a source without append times: kept as seen now
        log.lead(9, NOW)
        log.flush()
        prepared = prepare(batch(NOW), log.config, NOW)
        files.forget(segment.append_times.path)
        assert would_block(log, prepared, NOW)
        assert log.append(prepared, NOW).base_offset == 2
        assert log.append_times(0, 3) == [
            AppendTimeStretch(0, NOW),
            AppendTimeStretch(1, None),
            AppendTimeStretch(2, NOW),
        ]


def test_stamped_records_become_the_batch_that_was_built_of_them(tmp_path: Path) -> None:
    config = TopicConfig(index_interval_bytes=100)
    sides: list[Any] = []
    for way in ("trusted", "stamped"):
        (directory := tmp_path / way).mkdir()
        with new_log(directory, config) as log:
            log.append(trusted(built(1, NOW).data, config, NOW), NOW)
            for step in range(60):
                count, now = 1 + step % 4, NOW + step // 2
                body = built(count, now)
                if way == "trusted":
                    done = log.append(trusted_plain(body, config, now), now, may_block=False)
                else:
                    records = StampedRecords(body.data[61:], count, now)
                    done = log.append(records, now, Origin.COORDINATOR, may_block=False)
                assert done.size == len(body.data)
            sides.append((times_in(log), log.active.counts, records_in(log)))
        files = partition_dir(directory).glob("0*.*[!d]")  # not the marker of a run
        sides.append(sorted((each.name, each.read_bytes()) for each in files))
    assert sides[:2] == sides[2:]
    assert {name[20:] for name, _ in sides[1]} == {".companion", ".index", ".log", ".timeindex"}


@example(0, [(900, "stamped", 0), (101, "stamped", 0)])
@example(2, [(0, "set", 0), (1001, "stamped", 0)])
@example(
    0,
    [
        (0, "exempt", 1),
        (0, "produced", 1),
        (0, "stamped", 0),
        (1001, "exempt", 0),
        (0, "stamped", 0),
    ],
)
@example(2, [(0, "cut", 1), (0, "stamped", 0)])
@given(st.integers(0, len(SETTINGS) - 1), st.lists(STEPS, min_size=3, max_size=30))
def test_stamped_records_begin_a_segment_where_the_batch_built_of_them_does(
    tmp_path_factory: pytest.TempPathFactory, first: int, steps: list[tuple[int, str, int]]
) -> None:
    sides: list[Any] = []
    for way in ("trusted", "stamped"):
        now = NOW
        with new_log(tmp_path_factory.mktemp(way), TopicConfig(**SETTINGS[first])) as log:
            for waited, step, number in ((0, "stamped", 0),) * 3 + tuple(steps):
                now += waited
                body = built(1, now)
                prepared = trusted_plain(body, log.config, now)
                records = StampedRecords(body.data[61:], 1, now)
                if step == "stamped" and (
                    way == "trusted" or would_block(log, records, now, Origin.COORDINATOR)
                ):
                    log.append(prepared if way == "trusted" else records, now, Origin.COORDINATOR)
                elif step == "produced":
                    sent = batch(NO_TIMESTAMP if number % 5 == 0 else now - number)
                    log.append(prepare(sent, log.config, now), now)
                elif step == "set":
                    log.config = TopicConfig(**SETTINGS[number % len(SETTINGS)])
                elif step == "exempt":
                    log.retention_exempt = number % 2 == 1
                elif step == "reset":
                    log.delete_records(log.log_end_offset)
                    now -= number
                elif step == "cut":
                    log.truncate_to(max(log.log_start_offset, log.log_end_offset - number % 3), now)
                elif step == "roll":
                    log.apply_retention(now, 0)
            sides.append((bases(log), times_in(log), records_in(log), log.active.counts))
    assert sides[0] == sides[1]


@pytest.mark.parametrize(
    ("now", "settings"),
    [
        (NOW + 1, {}),
        (NOW - 5, {}),
        (-1, {}),
        (NOW + 1, {"message_timestamp_type": TimestampType.LOG_APPEND_TIME}),
    ],
    ids=["later", "the clock went back", "no time", "append time"],
)
def test_stamped_records_are_stored_as_the_settings_and_the_clock_ask(
    tmp_path: Path, now: int, settings: dict[str, Any]
) -> None:
    config, sides = TopicConfig(**settings), []
    for way in ("trusted", "stamped"):
        with new_log(tmp_path / way, config) as log:
            append(log, NOW)
            body = built(2, now)
            prepared = trusted_plain(body, config, now)
            sent: Batch = StampedRecords(body.data[61:], 2, now) if way == "stamped" else prepared
            log.append(sent, now, Origin.COORDINATOR)
            sides.append((times_in(log), log.active.counts, records_in(log)))
    assert sides[0] == sides[1]


def test_stamped_records_that_no_segment_can_hold_are_refused(tmp_path: Path) -> None:
    with new_log(tmp_path, TopicConfig(segment_bytes=70)) as log:
        records = StampedRecords(built(1, NOW).data[61:], 1, NOW)
        with pytest.raises(RequestRefused, match=r"segment\.bytes=70"):
            log.append(records, NOW, Origin.COORDINATOR)
        log.begin_following(log.log_end_offset)
        with pytest.raises(RequestRefused, match="follows another broker"):
            log.append(records, NOW, Origin.COORDINATOR)


def built(count: int, now: int) -> StampedBatch:
    records = [LogRecord(now, f"key {each}".encode(), b"value") for each in range(count)]
    return stamped_batch(records, now)


# Flushing.


class Counting(Files):
    """Counts what reaches the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = 0

    def os_fsync(self, fd: int) -> None:
        self.synced += 1


def test_flush_messages_is_obeyed_within_the_append(tmp_path: Path) -> None:
    files = Counting()
    with new_log(tmp_path, TopicConfig(flush_messages=3), files=files) as log:
        points = []
        for _ in range(7):
            append(log, NOW)
            points.append(log.recovery_point)
        assert points == [0, 0, 3, 3, 3, 6, 6]


def test_flush_ms_is_due_by_the_clock_it_is_given(tmp_path: Path) -> None:
    with new_log(tmp_path, TopicConfig(flush_ms=1000), files=Counting()) as log:
        assert not log.flush_due(NOW)
        append(log, NOW)
        assert not log.flush_due(NOW + 999)
        assert log.flush_due(NOW + 1000)
        log.flush()
        assert not log.flush_due(NOW + 5000), "nothing to flush"
        append(log, NOW)
        assert not log.flush_due(NOW + 5999)
        assert log.flush_due(NOW + 6000)


def test_a_roll_asks_for_a_flush_of_the_segments_before_it(tmp_path: Path) -> None:
    files = Counting()
    with new_log(tmp_path, SMALL, files=files) as log:
        rolled = [append(log, NOW).rolled for _ in range(4)]
        assert rolled == [False, False, False, True]
        assert log.recovery_point == 0
        before = files.synced
        log.flush_rolled()
        assert log.recovery_point == 3
        assert files.synced == before + 5, "the log, three files beside it, and the directory"


def test_new_names_are_synced_once_and_again_if_that_failed(tmp_path: Path) -> None:
    class Refusing(Counting):
        refuse = False

        def os_fsync(self, fd: int) -> None:
            if self.refuse and stat.S_ISDIR(os.fstat(fd).st_mode):
                raise OSError(5, "Input/output error")
            super().os_fsync(fd)

    files = Refusing()
    with new_log(tmp_path, files=files) as log:
        append(log, NOW)
        files.refuse = True
        with pytest.raises(StorageFailed):
            log.flush()
        files.refuse, files.synced = False, 0
        log.flush()
        assert files.synced == 2, "the log and the directory"
        append(log, NOW)
        log.flush()
        assert files.synced == 3, "only the log"


def test_appends_go_on_during_a_flush(tmp_path: Path) -> None:
    class Held(Files):
        def __init__(self) -> None:
            super().__init__()
            self.holding = threading.Event()
            self.go_on = threading.Event()
            self.go_on.set()

        def os_fsync(self, fd: int) -> None:
            self.holding.set()
            assert self.go_on.wait(PATIENCE_S)

    files = Held()
    with new_log(tmp_path, SMALL, files=files) as log:
        append(log, NOW)
        files.holding.clear()
        files.go_on.clear()
        flush = threading.Thread(target=log.flush)
        flush.start()
        assert files.holding.wait(PATIENCE_S)
        append(log, NOW)
        append(log, NOW)
        files.go_on.set()
        flush.join()
        assert log.recovery_point == 1, "what came later was not waited for"


# Truncating.


@pytest.mark.parametrize(("offset", "end"), [(8, 8), (7, 6), (6, 6), (1, 0), (0, 0), (99, 20)])
def test_truncation_removes_whole_batches(tmp_path: Path, offset: int, end: int) -> None:
    with new_log(tmp_path, replace(SMALL, index_interval_bytes=0)) as log:
        for number in range(10):
            append(log, NOW + number, NOW + number)
        log.truncate_to(offset, NOW)
        assert log.log_end_offset == end
        assert times_in(log) == [Truth(n, NOW + n // 2) for n in range(end)]
        assert append(log, NOW + 90).base_offset == end
        top = log.find_max_timestamp()
        assert top is not None
        assert top.offset == end if end < 20 else 20


def test_truncation_reloads_the_largest_time(tmp_path: Path) -> None:
    with new_log(tmp_path, TopicConfig(index_interval_bytes=200, **ANY_TIME)) as log:
        for number in range(30):
            append(log, 400 - 10 * number if number % 2 else number)
        truth = times_in(log)
        for offset in range(29, -1, -1):
            log.truncate_to(offset, NOW)
            kept = truth[:offset]
            top = log.find_max_timestamp()
            expected = max(kept, key=lambda record: (record[1], -record[0]), default=None)
            assert (top and Truth(top.offset, top.timestamp)) == expected


def test_truncation_removes_index_entries_of_truncated_records(tmp_path: Path) -> None:
    # KIP-33 "Log Truncation": so that a lookup never starts beyond the log end.
    with new_log(tmp_path, TopicConfig(index_interval_bytes=0, **ANY_TIME)) as log:
        for number in range(10):
            append(log, NOW + number)
        for end in range(9, 0, -1):
            log.truncate_to(end, NOW)
            content = min(Path(log.directory).glob("*.timeindex")).read_bytes()
            entries = list(struct.iter_unpack(">qi", content))
            assert entries[-1] == (NOW + end - 1, end - 1)
            assert log.find_by_timestamp(NOW + end) is None
            append(log, NOW + 100 + end)  # what follows is found where it is now
            found = log.find_by_timestamp(NOW + end)
            assert found is not None
            assert (found.offset, found.timestamp) == (end, NOW + 100 + end)
            log.truncate_to(end, NOW)


def test_truncation_forgets_epochs_and_producers_beyond_it(tmp_path: Path) -> None:
    with new_log(tmp_path, SMALL) as log:
        for sequence in range(10):
            log.leader_epoch = sequence // 4
            append(log, NOW, producer_id=9, producer_epoch=0, base_sequence=sequence)
        log.truncate_to(5, NOW)
        assert log.epochs.entries == (EpochStart(0, 0), EpochStart(1, 4))
        done = append(log, NOW, producer_id=9, producer_epoch=0, base_sequence=5)
        assert (done.base_offset, done.duplicate) == (5, False)


# Shortening.


def test_deleted_records_are_gone_at_once_and_their_segments_at_the_next_retention(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path, SMALL) as log:
        for number in range(10):
            append(log, NOW + number)
        assert log.delete_records(7) == 7
        assert [record.offset for record in records_in(log)] == [7, 8, 9]
        with pytest.raises(RequestRefused):
            log.read(6, 100)
        found = log.find_by_timestamp(0)
        assert found is not None
        assert found.offset == 7
        assert bases(log) == [0, 3, 6, 9]
        assert [gone.base_offset for gone in log.apply_retention(NOW, NOW)] == [0, 3]
        assert log.delete_records(-1) == 10
        assert log.find_max_timestamp() is None


@pytest.mark.parametrize("offset", [-2, 11])
def test_records_beyond_the_end_cannot_be_deleted(tmp_path: Path, offset: int) -> None:
    with new_log(tmp_path) as log:
        append(log, *[NOW] * 10)
        with pytest.raises(RequestRefused) as error:
            log.delete_records(offset)
        assert code_of(error) is ErrorCode.offset_out_of_range


def test_records_of_a_compacted_topic_cannot_be_deleted(tmp_path: Path) -> None:
    with new_log(tmp_path, TopicConfig(cleanup_policy=frozenset({"compact"}))) as log:
        with pytest.raises(RequestRefused) as error:
            log.delete_records(0)
        assert code_of(error) is ErrorCode.policy_violation


def test_retention_gives_its_reason_and_delays_the_removal_of_files(tmp_path: Path) -> None:
    config = replace(SMALL, retention_ms=1000, file_delete_delay_ms=60_000)
    with new_log(tmp_path, config) as log:
        for number in range(10):
            append(log, NOW + number)
        assert log.apply_retention(NOW + 1002, NOW + 1002) == []
        held = log.read(0, 1000)
        gone = log.apply_retention(NOW + 1003, NOW + 1003)
        assert [segment.base_offset for segment in gone] == [0]
        assert "is 1001 ms old, retention.ms is 1000" in gone[0].reason
        assert log.log_start_offset == 3
        directory = partition_dir(tmp_path)
        waiting = {path.name for path in directory.glob("00000000000000000000.*.deleted")}
        assert waiting == {
            f"00000000000000000000.{kind}.deleted"
            for kind in ("log", "index", "timeindex", "companion")
        }
        assert log.removed_files.remove_due(NOW + 1003 + 59_999) == 0
        assert log.removed_files.remove_due(NOW + 1003 + 60_000) == 4
        assert list(directory.glob("00000000000000000000.*")) == []
        assert parse_header(held.read()).base_offset == 0, "a slice outlives its segment"


def test_when_all_is_too_old_an_empty_segment_remains(tmp_path: Path) -> None:
    with new_log(tmp_path, replace(SMALL, retention_ms=1000)) as log:
        for number in range(10):
            append(log, NOW + number)
        assert len(log.apply_retention(NOW + 5000, NOW + 5000)) == 4
        assert bases(log) == [10]
        assert log.log_start_offset == log.log_end_offset == 10
        assert log.epochs.entries == (EpochStart(0, 10),)
        assert log.apply_retention(NOW + 9000, NOW + 9000) == []
        assert append(log, NOW).base_offset == 10


def test_one_record_from_the_future_keeps_all_that_follows(tmp_path: Path) -> None:
    with new_log(tmp_path, replace(SMALL, retention_ms=1000)) as log:
        for number in range(10):
            append(log, NOW * 1000 if number == 4 else NOW)
        assert bases(log) == [0, 3, 4, 7], "it also rolls"
        assert [gone.base_offset for gone in log.apply_retention(NOW + 5000, NOW + 5000)] == [0, 3]
        assert log.apply_retention(NOW + 50_000, NOW + 50_000) == []


def test_an_exempt_log_is_neither_shortened_nor_rolled_by_time(tmp_path: Path) -> None:
    config = replace(SMALL, retention_ms=1, retention_bytes=1, segment_ms=1)
    with new_log(tmp_path, config) as log:
        log.retention_exempt = True
        for number in range(3):
            append(log, NOW + number * 90_000)
        assert bases(log) == [0]
        append(log, NOW)
        assert bases(log) == [0, 3], "by size it is"
        assert log.apply_retention(NOW * 2, NOW * 2) == []
        log.retention_exempt = False
        assert len(log.apply_retention(NOW * 2, NOW * 2)) == 2


def test_a_topic_id_is_on_disk(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        assert log.topic_id == TOPIC_ID
        assert str(log) == "events-3"
    with reopened(tmp_path) as (_, log):
        assert log.topic_id == TOPIC_ID


def test_a_read_ends_before_the_batch_that_holds_its_limit(tmp_path: Path) -> None:
    with new_log(tmp_path, replace(EVERY_BATCH, segment_bytes=300)) as log:
        bases = [append(log, NOW, NOW).base_offset for _ in range(8)]
        assert len(log.segments) > 2
        end = log.log_end_offset
        for limit in range(end + 2):
            found, offset = [], 0
            while data := log.read(offset, 10_000, up_to=limit).read():
                for _, header in iter_headers(data):
                    found.append(header.base_offset)
                    offset = header.next_offset
                if offset == end:
                    break
            assert found == [base for base in bases if base + 2 <= limit]
