"""Times at which a follower saw records: kept as such, and never taken for append times."""

from __future__ import annotations

from pathlib import Path

import pytest
from batches import batch
from storelogs import (
    DAY,
    NOW,
    append,
    followed,
    new_follower,
    partition_dir,
    pull,
    reopened,
    snapshot_of,
)

from horolog.config import TopicConfig
from horolog.record import AppendTimeStretch, TimestampType
from horolog.storage import (
    Files,
    Finding,
    KeptTimes,
    Log,
    Reindexing,
    SegmentReader,
    Severity,
    Verification,
    find_target,
    kinds_of,
)

CONFIG = TopicConfig(retention_ms=-1, horolog_roll_by="append-time", segment_ms=1000)
TIMES = [
    AppendTimeStretch(0, NOW + 10, is_seen=True),
    AppendTimeStretch(2, NOW + 20),
    AppendTimeStretch(4, None),
    AppendTimeStretch(6, NOW + 30, is_seen=True),
    AppendTimeStretch(7, NOW + 50_000, is_seen=True),
]
KNOWN = [
    AppendTimeStretch(0, None),
    AppendTimeStretch(2, NOW + 20),
    AppendTimeStretch(4, None),
]


@pytest.fixture(params=["killed", "stopped"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Eight batches of a record each, with the times above."""
    followed(partition_dir(tmp_path / "log"), batches(8), TIMES)
    path = snapshot_of(tmp_path / "log", tmp_path / "copy")
    if request.param == "stopped":
        with reopened(path, CONFIG) as (log_dir, _):
            log_dir.close()
    return path


def batches(count: int) -> bytes:
    return b"".join(batch(NOW, base_offset=offset) for offset in range(count))


def all_times(log: Log) -> list[AppendTimeStretch]:
    return log.append_times(0, log.log_end_offset, seen=True)


def test_the_next_start_finds_them(path: Path) -> None:
    with reopened(path, CONFIG) as (_, log):
        assert all_times(log) == TIMES
        assert log.append_times(0, 8) == KNOWN
        assert log.look().append_times_within(5, 1 << 20, seen=True)[0] == AppendTimeStretch(
            5, None
        )
        assert log.look().append_times_within(7, 1 << 20, seen=True) == TIMES[4:]
        assert log.segments[0].append_times.seen_span() == (NOW + 10, NOW + 50_000)


def test_records_that_are_appended_later_have_no_earlier_append_time(path: Path) -> None:
    with reopened(path, CONFIG) as (_, log):
        assert log.floor.last == NOW + 50_000
        append(log, NOW, now=NOW + 40)
        append(log, NOW, now=NOW + 50_001)
        assert all_times(log)[-2:] == [
            AppendTimeStretch(8, NOW + 50_000),
            AppendTimeStretch(9, NOW + 50_001),
        ]


def test_a_segment_does_not_roll_by_a_time_that_was_only_seen(tmp_path: Path) -> None:
    followed(partition_dir(tmp_path), batches(8), [AppendTimeStretch(0, NOW, is_seen=True)])
    with reopened(tmp_path, CONFIG) as (_, log):
        append(log, NOW, now=NOW + 1001)
        append(log, NOW, now=NOW + 2001)
        assert [segment.base_offset for segment in log.segments] == [0]
        append(log, NOW, now=NOW + 2002)
        assert [segment.base_offset for segment in log.segments] == [0, 10]


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (NOW, (0, None)),
        (NOW + 10, (0, None)),
        (NOW + 20, (0, None)),
        (NOW + 21, (4, None)),
        (NOW + 60_000, (4, None)),
    ],
)
def test_a_lookup_by_append_time_takes_them_for_unknown(
    path: Path, ms: int, expected: tuple[int, int | None]
) -> None:
    with reopened(path, CONFIG) as (_, log):
        found = log.find_by_append_time(ms)
        assert found is not None
        assert (found.offset, found.ms) == expected


def test_a_lookup_among_thousands_of_them_finds_where_they_begin(tmp_path: Path) -> None:
    times = [AppendTimeStretch(n, NOW + n, is_seen=n > 3) for n in range(3000)]
    followed(partition_dir(tmp_path), batches(3000), times)
    with reopened(tmp_path, CONFIG) as (_, log):
        for ms in (4, 2000, 5000):
            found = log.find_by_append_time(NOW + ms)
            assert found is not None
            assert (found.offset, found.ms) == (4, None)
        assert len(log.append_times(0, 3000)) == 5


def test_they_are_cut_off_with_their_records(path: Path) -> None:
    with reopened(path, CONFIG) as (_, log):
        log.truncate_to(7, NOW)
        assert all_times(log) == TIMES[:4]
    with reopened(path, CONFIG) as (_, log):
        assert all_times(log) == TIMES[:4]


def test_a_batch_that_carries_its_append_time_is_known_by_it(tmp_path: Path) -> None:
    stamped = batch(NOW + 5, base_offset=1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    seen = AppendTimeStretch(0, NOW + 10, is_seen=True)
    followed(partition_dir(tmp_path), batch(NOW, base_offset=0) + stamped, [seen])
    with reopened(tmp_path, CONFIG) as (_, log):
        assert all_times(log) == [seen, AppendTimeStretch(1, NOW + 5)]
        found = log.find_by_append_time(NOW + 5)
        assert found is not None
        assert (found.offset, found.ms) == (0, None)


# A log that follows.


def test_records_whose_source_gives_no_append_times_are_kept_as_seen_now(tmp_path: Path) -> None:
    """A clock that goes back meanwhile resets nothing: they were appended no later."""
    with new_follower(tmp_path, CONFIG) as log:
        for offset, now in enumerate((NOW, NOW + 7, NOW + 3, NOW + 9)):
            pull(log, batch(NOW - DAY, base_offset=offset, leader_epoch=3), now=now)
        expected = [
            AppendTimeStretch(0, NOW, is_seen=True),
            AppendTimeStretch(1, NOW + 7, is_seen=True),
            AppendTimeStretch(3, NOW + 9, is_seen=True),
        ]
        assert all_times(log) == expected
        assert log.floor.resets == ()
        assert log.append_times(0, 4) == [AppendTimeStretch(0, None)]
    with reopened(tmp_path, CONFIG, follows=True) as (_, log):
        assert all_times(log) == expected
        log.lead(9, 0)
        append(log, NOW - DAY, now=NOW - DAY)
        assert all_times(log)[-1] == AppendTimeStretch(4, NOW + 9)


def test_times_at_which_the_source_saw_records_are_followed_as_they_are(tmp_path: Path) -> None:
    with new_follower(tmp_path, CONFIG) as log:
        pull(log, batches(8), append_times=TIMES, now=NOW + DAY)
        assert all_times(log) == TIMES
        assert len(log.segments) == 1


def test_verify_says_how_many_there_are_and_reindex_keeps_them(path: Path) -> None:
    target = find_target(partition_dir(path))

    def notes() -> list[str]:
        found = [each for each in Verification(target).steps() if isinstance(each, Finding)]
        assert {each.severity for each in found} <= {Severity.NOTE}
        return [each.what for each in found if "offsets" in each.what]

    says = [
        "It does not say when 2 offsets were appended: not by horolog, or not known",
        "It says of 4 offsets when a follower saw them, not when they were appended",
    ]
    assert notes() == says
    for _ in Reindexing(target, 4096, rebuild_all=True).steps():
        pass
    assert notes() == says
    with reopened(path, CONFIG) as (_, log):
        assert all_times(log) == TIMES


def test_what_is_set_aside_has_none_of_them_as_append_time(path: Path) -> None:
    log = str(partition_dir(path) / f"{0:020d}")
    reader = SegmentReader.at(Files(read_only=True), f"{log}.log", 0)
    reader.append_times.proof()
    content = reader.append_times.kept_from(0)
    if content is None:
        pytest.skip("what a kill leaves is sure on the machine that wrote it")
    kept = KeptTimes(content, 0)
    appended = [kept.at(offset) for offset in range(8)]
    assert [each.known_ms for each in appended] == [None, None, NOW + 20, NOW + 20, *[None] * 4]
    assert [each.seen_ms for each in appended[:2]] == [NOW + 10, NOW + 10]
    assert [each.seen_ms for each in appended[5:]] == [None, NOW + 30, NOW + 50_000]


def test_bytes_that_are_no_whole_entries_say_nothing() -> None:
    assert kinds_of(b"") == b""
    assert kinds_of(b"\xff" * 11) == b""
    assert kinds_of(b"\xff" * 23) == b"\3"
