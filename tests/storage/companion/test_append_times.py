"""The append time of every record, kept beside its segment: exact, or said to be unknown."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from batches import batch
from faultyfiles import FaultyFiles, Killed
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from storelogs import (
    ANY_TIME,
    APPEND_TIME,
    DAY,
    NOW,
    TOPIC_ID,
    UnsyncedFiles,
    append,
    new_log,
    open_dir,
    partition_dir,
    records_in,
    reopened,
    snapshot_of,
)

from companions import lose_seals
from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.record import (
    HEADER_SIZE,
    AppendTimeStretch,
    Codec,
    convert_all,
    iter_headers,
    parse_header,
    restamp,
)
from horolog.storage import (
    TIMES_AT,
    Finding,
    Log,
    Severity,
    TopicPartition,
    Verification,
    identity_of,
    identity_of_header,
)

SMALL = TopicConfig(segment_bytes=600, retention_ms=-1, **ANY_TIME)
LAB = Path(__file__).parents[2] / "lab"
YEAR = 365 * DAY
FILES = ".companion"
MARKER = ".appending.deleted"

Known = dict[int, int]
"""Offset to append time, as the test saw it from outside."""


def put(log: Log, known: Known, *nows: int, records: int = 1, **more: object) -> None:
    """Append a batch at each of these times."""
    for now in nows:
        done = append(log, *([NOW - 9 * DAY] * records), now=now, **more)
        floor = max((known[offset] for offset in known), default=now)
        known |= dict.fromkeys(range(done.base_offset, done.last_offset + 1), max(now, floor))


def times_of(log: Log) -> dict[int, int | None]:
    """What the log says of every record."""
    start, end = log.log_start_offset, log.log_end_offset
    stretches = log.append_times(start, end)
    if start == end:
        assert not stretches
        return {}
    bounds = [*(each.offset for each in stretches[1:]), end]
    return {
        offset: each.ms
        for each, bound in zip(stretches, bounds, strict=True)
        for offset in range(each.offset, bound)
    }


def check(log: Log, known: dict[int, int | None]) -> None:
    """Every record has its append time, and every search finds the first of them."""
    start = log.log_start_offset
    known = {offset: ms for offset, ms in known.items() if start <= offset < log.log_end_offset}
    assert times_of(log) == known
    for offset, at in known.items():
        assert log.look().append_times_within(offset, 1)[0].ms == at
    asked = {ms + step for ms in known.values() if ms is not None for step in (-1, 0, 1)}
    for ms in sorted(asked | {-(1 << 62), 0, NOW, 1 << 62}):
        # What comes before a record that was appended earlier was appended earlier, too.
        early = max((o for o, at in known.items() if at is not None and at < ms), default=-1)
        first = next((o for o in sorted(known) if o > early), None)
        found = log.find_by_append_time(ms)
        assert (None if found is None else found.offset) == first, ms
        if found is not None:
            assert found.ms == known[found.offset]


def as_kafka_appends(path: Path, *values: bytes, times: tuple[int, ...] = (NOW,)) -> None:
    """Batches behind the log, and what a start of Apache Kafka takes away: `.deleted` files."""
    directory = partition_dir(path)
    for marker in directory.glob("*.deleted"):
        marker.unlink()
    last = max(directory.glob("*.log"))
    data = last.read_bytes()
    end = int(last.stem)
    for _, header in iter_headers(data):
        end = header.next_offset
    with last.open("ab") as log:
        for value in values:
            sent = batch(*times, value=value)
            header = parse_header(sent)
            log.write(restamp(header, sent, base_offset=end, leader_epoch=7))
            log.write(sent[HEADER_SIZE:])
            end += header.last_offset_delta + 1
    lose_seals(directory)


def stop(path: Path, target: Path, *, clean: bool) -> Path:
    """The directory after a stop of this kind, at another place."""
    snapshot_of(path, target)
    if clean:
        with reopened(target, SMALL) as (log_dir, _):
            log_dir.close()
    return target


@pytest.mark.parametrize("config", [SMALL, replace(APPEND_TIME, segment_bytes=600)])
@pytest.mark.parametrize("clean", [True, False])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([0, 0, 1, 2, 500, 40 * DAY, -3]), st.integers(1, 3)),
        min_size=1,
        max_size=25,
    ),
    restart=st.integers(0, 25),
)
def test_every_record_has_its_append_time(
    tmp_path_factory: pytest.TempPathFactory,
    config: TopicConfig,
    clean: bool,
    steps: list[tuple[int, int]],
    restart: int,
) -> None:
    path = tmp_path_factory.mktemp("log")
    known: Known = {}
    now = NOW
    log_dir = open_dir(path, config)
    log = log_dir.create("events", 3, TOPIC_ID, config, NOW)
    for number, (step, records) in enumerate(steps):
        now += step
        put(log, known, now, records=records)
        if number == restart:
            log_dir.close(clean=clean)
            log_dir = open_dir(path, config)
            log = log_dir.logs[TopicPartition("events", 3)]
            assert log.floor.last == max(known.values())
    check(log, dict(known))
    if config is not SMALL:
        assert {o: each.timestamp for o, each in enumerate(records_in(log))} == known
    log_dir.close(clean=clean)
    with reopened(path, config) as (_, again):
        check(again, dict(known))


def test_an_entry_is_written_when_the_millisecond_changes_and_takes_twelve_bytes(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path) as log:
        for _ in range(100):
            append(log, NOW, now=NOW)
        path = partition_dir(tmp_path) / f"00000000000000000000{FILES}"
        assert path.stat().st_size == TIMES_AT + 12
        append(log, NOW, now=NOW + 1)
        append(log, NOW, now=NOW + 1)
        assert path.stat().st_size == TIMES_AT + 24


@pytest.mark.parametrize("ahead", [300 * YEAR, 9_000 * YEAR])
def test_a_clock_that_jumps_ahead_and_back_leaves_each_append_time(
    tmp_path: Path, ahead: int
) -> None:
    known: Known = {}
    with new_log(tmp_path, TopicConfig(**ANY_TIME)) as log:
        put(log, known, NOW, NOW + ahead, NOW + 5)
        assert log.append_time_ahead_ms(NOW) == ahead, "visible on a CreateTime topic too"
        check(log, dict(known))
        assert log.reset_append_time(NOW + 6) is not None
        done = append(log, NOW, now=NOW + 7)
        assert log.append_times(done.base_offset, done.base_offset + 1) == [
            AppendTimeStretch(3, NOW + 7)
        ]
        found = log.find_by_append_time(NOW + 1)
        assert found == (1, NOW + ahead, 0)
    with reopened(tmp_path) as (_, log):
        assert times_of(log) == {**known, 3: NOW + 7}
        assert log.floor.last == NOW + 7


def test_a_topic_switched_to_append_time_goes_on_from_the_append_times_it_has(
    tmp_path: Path,
) -> None:
    far = 9_000_000_000_000  # 2255
    with new_log(tmp_path, TopicConfig(**ANY_TIME)) as log:
        append(log, far, now=NOW + 50)
        log.config = APPEND_TIME
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + 50, "not 2255, nor back"
        assert times_of(log) == {0: NOW + 50, 1: NOW + 50}


def test_a_duplicate_is_appended_once(tmp_path: Path) -> None:
    producer = {"producer_id": 5, "producer_epoch": 0}
    with new_log(tmp_path) as log:
        append(log, NOW, now=NOW, base_sequence=0, **producer)
        assert append(log, NOW, now=NOW + 9, base_sequence=0, **producer).duplicate
        append(log, NOW, now=NOW + 10, base_sequence=1, **producer)
        assert times_of(log) == {0: NOW, 1: NOW + 10}
        assert log.find_by_append_time(NOW + 1) == (1, NOW + 10, 0)


@pytest.mark.parametrize("cut", range(11))
def test_truncation_takes_append_times_along(tmp_path: Path, cut: int) -> None:
    known: Known = {}
    with new_log(tmp_path / "log", SMALL) as log:
        put(log, known, *(NOW + number // 2 for number in range(10)))
        log.truncate_to(cut, NOW)
        check(log, {offset: ms for offset, ms in known.items() if offset < cut})
        for offset in range(cut, 10):
            del known[offset]
        snapshot_of(tmp_path / "log", tmp_path / "at once")
        done = append(log, NOW, now=NOW + 60)
        known[done.base_offset] = NOW + 60
        check(log, dict(known))
        snapshot_of(tmp_path / "log", tmp_path / "later")
    with reopened(tmp_path / "at once", SMALL) as (_, log):
        check(log, {offset: ms for offset, ms in known.items() if offset < cut})
    with reopened(tmp_path / "later", SMALL) as (_, log):
        check(log, dict(known))


def test_deleted_records_are_found_no_more_and_their_files_go_with_the_segment(
    tmp_path: Path,
) -> None:
    known: Known = {}
    config = replace(SMALL, file_delete_delay_ms=0)
    with new_log(tmp_path, config) as log:
        put(log, known, *(NOW + number for number in range(30)))
        log.delete_records(20)
        check(log, dict(known))
        log.apply_retention(NOW, NOW)
        log.removed_files.remove_due(NOW + 1)
        check(log, dict(known))
        left = {path.name[:20] for path in partition_dir(tmp_path).glob(f"*{FILES}")}
        assert left == {path.stem for path in partition_dir(tmp_path).glob("*.log")}
        assert len(left) < 4


def test_a_file_whose_segment_kafka_deleted_is_removed(tmp_path: Path) -> None:
    with new_log(tmp_path, SMALL) as log:
        for number in range(20):
            append(log, NOW, now=NOW + number)
    directory = partition_dir(tmp_path)
    first = min(directory.glob("*.log"))
    for suffix in (".log", ".index", ".timeindex"):
        first.with_suffix(suffix).unlink()
    with reopened(tmp_path, SMALL) as (_, log):
        assert not first.with_suffix(FILES).exists()
        assert times_of(log) == {offset: NOW + offset for offset in range(log.log_start_offset, 20)}


def test_a_topic_that_is_created_again_has_nothing_of_the_old_one(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    first = log_dir.create("events", 3, TOPIC_ID, TopicConfig(), NOW)
    append(first, NOW, now=NOW + 70)
    log_dir.delete([TopicPartition("events", 3)], NOW)
    second = log_dir.create("events", 3, TOPIC_ID, TopicConfig(), NOW)
    append(second, NOW, now=NOW)
    assert times_of(second) == {0: NOW}
    log_dir.close()


@pytest.mark.parametrize("clean", [True, False])
def test_what_kafka_appends_in_between_is_unknown(tmp_path: Path, clean: bool) -> None:
    known: Known = {}
    config = replace(SMALL, segment_bytes=1 << 20)
    with new_log(tmp_path / "log", config) as log:
        put(log, known, NOW, NOW, NOW + 4, NOW + 4, NOW + 4)
    path = stop(tmp_path / "log", tmp_path / "stopped", clean=clean)
    as_kafka_appends(path, b"a", b"b")
    expected: dict[int, int | None] = {**known, 5: None, 6: None}
    if not clean:  # nothing proves the last two of that millisecond
        expected |= {3: None, 4: None}
    with reopened(path, config) as (_, log):
        check(log, dict(expected))
        append(log, NOW, now=NOW + 4)
        append(log, NOW, now=NOW + 90)
        expected |= {7: NOW + 4, 8: NOW + 90}
        check(log, dict(expected))
        snapshot_of(path, tmp_path / "again")
    for again in (path, tmp_path / "again"):
        with reopened(again, config) as (_, log):
            check(log, dict(expected))


def test_the_stamps_of_what_kafka_appended_to_a_log_append_time_topic_are_append_times(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path, APPEND_TIME) as log:
        append(log, NOW, now=NOW)
        append(log, NOW, now=NOW + 30)
    for path in partition_dir(tmp_path).iterdir():
        if path.name.endswith((FILES, MARKER)):
            path.unlink()
    with reopened(tmp_path, APPEND_TIME) as (_, log):
        check(log, {0: NOW, 1: NOW + 30})


@pytest.mark.parametrize("kept", range(1, 6))
def test_what_kafka_truncated_and_appended_again_has_not_the_earlier_time(
    tmp_path: Path, kept: int
) -> None:
    with new_log(tmp_path / "log") as log:
        for number in range(6):
            append(log, NOW, now=NOW + number, value=b"%d" % number)
    path = stop(tmp_path / "log", tmp_path / "stopped", clean=True)
    last = max(partition_dir(path).glob("*.log"))
    data = last.read_bytes()
    cut = next(at for at, header in iter_headers(data) if header.base_offset == kept)
    last.write_bytes(data[:cut])
    as_kafka_appends(path, *(b"other" for _ in range(6 - kept)))
    expected: dict[int, int | None] = {offset: NOW + offset for offset in range(kept)}
    expected |= dict.fromkeys(range(kept, 6))
    with reopened(path) as (_, log):
        check(log, expected)


def test_the_same_batch_sent_again_to_kafka_has_not_the_time_of_the_refused_one(
    tmp_path: Path,
) -> None:
    """A kill between entry and batch, and the producer's retry goes to a Kafka."""
    with new_log(tmp_path / "log") as log:
        append(log, NOW, now=NOW, value=b"a")
        snapshot_of(tmp_path / "log", tmp_path / "killed")
        append(log, NOW, now=NOW + 7, value=b"b")
        name = f"00000000000000000000{FILES}"
        entry = (partition_dir(tmp_path / "log") / name).read_bytes()
    (partition_dir(tmp_path / "killed") / name).write_bytes(entry)
    as_kafka_appends(tmp_path / "killed", b"b")
    with reopened(tmp_path / "killed") as (_, log):
        assert times_of(log) == {0: NOW, 1: None}


def test_an_entry_without_its_batch_is_dropped_at_start(tmp_path: Path) -> None:
    with new_log(tmp_path / "log") as log:
        append(log, NOW, now=NOW)
        append(log, NOW, now=NOW)
        snapshot_of(tmp_path / "log", tmp_path / "killed")
        append(log, NOW, now=NOW + 7)
        name = f"00000000000000000000{FILES}"
        entry = (partition_dir(tmp_path / "log") / name).read_bytes()
    (partition_dir(tmp_path / "killed") / name).write_bytes(entry)
    with reopened(tmp_path / "killed") as (_, log):
        assert log.floor.last == NOW
        check(log, {0: NOW, 1: NOW})
        append(log, NOW, now=NOW + 3)
        check(log, {0: NOW, 1: NOW, 2: NOW + 3})


def test_after_a_power_loss_the_end_that_nothing_proves_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_log(tmp_path) as log:
        for now in (NOW, NOW, NOW + 1, NOW + 1):
            append(log, NOW, now=now)
    override(monkeypatch, "horolog.storage", boot_id=lambda: "another boot")
    with reopened(tmp_path) as (_, log):
        assert times_of(log) == {0: NOW, 1: NOW, 2: NOW + 1, 3: None}


def test_a_copy_made_while_the_log_is_written_has_no_time_that_is_not_proved(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "log", tmp_path / "copy"
    with new_log(path) as log:
        append(log, NOW, now=NOW)
        append(log, NOW, now=NOW)
        shutil.copytree(path, copy)
        append(log, NOW, now=NOW + 9)
        shutil.copyfile(log.segments[-1].log.path, max(partition_dir(copy).glob("*.log")))
    with reopened(copy) as (_, log):
        assert times_of(log) == {0: NOW, 1: None, 2: None}


@pytest.mark.parametrize("where", [0, 3, 10, 23, 24, 40, 51, 52, 60, 63, 64])
def test_a_damaged_file_makes_times_unknown_and_no_wrong_ones(tmp_path: Path, where: int) -> None:
    with new_log(tmp_path / "log") as log:
        for number in range(6):
            append(log, NOW, now=NOW + number)
    path = stop(tmp_path / "log", tmp_path / "stopped", clean=True)
    file = partition_dir(path) / f"00000000000000000000{FILES}"
    data = bytearray(file.read_bytes())
    data[where] ^= 0x41
    file.write_bytes(data)
    findings = [step for step in Verification.of(path).steps() if isinstance(step, Finding)]
    assert str(file) in [
        str(each.path) for each in findings if each.severity is Severity.FAULT
    ] or (24 <= where < 52)
    truth: dict[int, int | None] = {offset: NOW + offset for offset in range(6)}
    with reopened(path) as (_, log):
        said = times_of(log)
        if where < 24:
            assert said == dict.fromkeys(range(6))
        append(log, NOW, now=NOW + 20)
        assert times_of(log)[6] == NOW + 20
    assert all(ms in (None, truth[offset]) for offset, ms in said.items())


@pytest.mark.parametrize("missing", ["file", "empty", "half a header"])
def test_a_log_without_the_file_gets_one_with_the_next_append(tmp_path: Path, missing: str) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW, NOW, now=NOW)
    file = partition_dir(tmp_path) / f"00000000000000000000{FILES}"
    if missing == "file":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: 30 if missing == "half a header" else 0])
    files = UnsyncedFiles()
    with reopened(tmp_path, files=files) as (_, log):
        check(log, {0: None, 1: None})
        append(log, NOW, now=NOW + 8)
        check(log, {0: None, 1: None, 2: NOW + 8})
        said = [step for step in Verification.of(tmp_path).steps() if isinstance(step, Finding)]
        assert "does not say when 2 offsets were appended" in str(said)
        file.unlink()
        files.close()
        append(log, NOW, now=NOW + 9)
        assert times_of(log) == {0: None, 1: None, 2: None, 3: NOW + 9}


@pytest.mark.parametrize("step", [0, 1], ids=["entry", "batch"])
def test_a_disk_that_refuses_fails_that_append_alone(tmp_path: Path, step: int) -> None:
    files = FaultyFiles(None)
    known: Known = {}
    with new_log(tmp_path / "log", files=files) as log:
        put(log, known, NOW, NOW + 1)
        directory = partition_dir(tmp_path / "log")
        before = (directory / "00000000000000000000.log").read_bytes()
        files.fail_after(step, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        with pytest.raises(StorageFailed):
            append(log, NOW, now=NOW + 5)
        files.heal()
        assert (directory / "00000000000000000000.log").read_bytes() == before
        assert log.floor.last == NOW + 1
        # The clock went back meanwhile: the millisecond is that of the last entry again.
        put(log, known, NOW + 1, NOW + 2)
        check(log, dict(known))
        snapshot_of(tmp_path / "log", tmp_path / "killed")
    with reopened(tmp_path / "killed") as (_, log):
        check(log, dict(known))


def test_a_kill_at_any_step_leaves_every_acknowledged_record_its_append_time(
    tmp_path: Path,
) -> None:
    step = 0
    while True:
        files, path = FaultyFiles(None), tmp_path / str(step)
        known: Known = {}
        log_dir = open_dir(path, SMALL, files=files)
        log = log_dir.create("events", 3, TOPIC_ID, SMALL, NOW)
        put(log, known, NOW)
        files.fail_after(step, Killed())
        with suppress(Killed):
            put(log, known, *(NOW + number // 3 for number in range(16)))
        was_killed = bool(files.faults)
        with suppress(Killed):
            log_dir.close(clean=False)
        with reopened(path, SMALL) as (_, again):
            said = times_of(again)
            assert {offset: said[offset] for offset in known} == known
            put(again, known_so_far := {o: ms for o, ms in said.items() if ms is not None}, NOW + 9)
            check(again, dict(known_so_far))
        if not was_killed:
            break
        step += 1
    assert step > 40


SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, {support!r})
from storelogs import TOPIC_ID, batch, open_dir
from horolog.clock import SystemClock
from horolog.config import TopicConfig
from horolog.storage import TopicPartition, prepare
config = TopicConfig(segment_bytes=20_000)
log_dir = open_dir(Path({path!r}), config)
log = log_dir.logs.get(TopicPartition("events", 3)) or log_dir.create(
    "events", 3, TOPIC_ID, config, 0)
clock = SystemClock()
while True:
    now = clock.now_ms()
    floor = max(now, log.floor.last or now)
    done = log.append(prepare(batch(5), config, now), now)
    os.write(1, b"%d %d\\n" % (done.base_offset, floor))
"""


def test_after_sigkill_every_acknowledged_record_has_its_exact_append_time(tmp_path: Path) -> None:
    random.seed(7)
    known: Known = {}
    for _ in range(4):
        script = SCRIPT.format(support=str(LAB), path=str(tmp_path))
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            got = b""
            while got.count(b"\n") < random.randrange(100, 900):
                part = os.read(process.stdout.fileno(), 1 << 16)
                assert part, "the appender died by itself"
                got += part
            process.send_signal(signal.SIGKILL)
            got += process.stdout.read()
        lines = got[: got.rindex(b"\n")].decode().splitlines()
        known |= {int(offset): int(ms) for offset, ms in map(str.split, lines)}
        with reopened(tmp_path, TopicConfig(segment_bytes=20_000)) as (_, log):
            said = times_of(log)
            assert None not in said.values()
            assert {offset: said[offset] for offset in known} == known


def test_files_open_for_a_rolled_segment_do_not_rise(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    with new_log(tmp_path, SMALL, files=files) as log:
        for number in range(60):
            append(log, NOW, now=NOW + number)
        companions = [str(path) for path in partition_dir(tmp_path).glob(f"*{FILES}")]
        assert len(companions) > 5
        assert sum(map(files.is_open, companions)) == 1


@pytest.mark.parametrize("step", [1, 7])
def test_every_append_time_is_found_among_thousands_of_entries(tmp_path: Path, step: int) -> None:
    with new_log(tmp_path, replace(SMALL, segment_bytes=1 << 30)) as log:
        known: Known = {}
        put(log, known, *range(NOW, NOW + 1500 * step, step))
        for offset, ms in known.items():
            found = log.find_by_append_time(ms)
            assert found is not None
            assert (found.offset, found.ms) == (offset, ms)


@pytest.mark.parametrize("epoch", [-1, 0, 7])
def test_a_batch_is_identified_by_its_header_as_by_its_bytes(tmp_path: Path, epoch: int) -> None:
    sent = bytearray(batch(NOW, NOW + 1, codec=Codec.ZSTD))
    sent[12:16] = epoch.to_bytes(4, "big", signed=True)
    assert identity_of_header(parse_header(sent)) == identity_of(bytes(sent))
    old = convert_all(bytes(batch(NOW)), 1)
    for part in old:
        if len(part.data):
            assert identity_of_header(parse_header(bytes(part.data))) is None


@pytest.mark.parametrize("clean", [True, False])
@given(data=st.data())
def test_no_damage_makes_an_append_time_wrong(
    tmp_path_factory: pytest.TempPathFactory, clean: bool, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log")
    known: Known = {}
    with new_log(path / "log", SMALL) as log:
        put(log, known, *(NOW + 7 * (number // 2) for number in range(14)))
    path = stop(path / "log", path / "stopped", clean=clean)
    for file in sorted(partition_dir(path).glob(f"*{FILES}")):
        content = bytearray(file.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        # No kill takes a part of what was written: a marker speaks for all of it.
        size = data.draw(st.integers(0, len(content))) if clean else len(content)
        file.write_bytes(content[:size])
    with reopened(path, SMALL) as (_, log):
        assert all(ms in (None, known[offset]) for offset, ms in times_of(log).items())
