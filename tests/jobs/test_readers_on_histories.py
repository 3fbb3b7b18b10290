"""Every reader gives the same records of random histories: those that were sent and are left.

The readers: a fetch, Spark from a broker and from files, `scan`, `consume`, a stream with limits,
an archive and what is restored of it, a mirror. The files: beside the running broker, copied
(as a kill leaves them, within a swap too), stopped, without the files that can be derived, damaged,
compacted and converted.
"""

import random
import shutil
from pathlib import Path
from threading import RLock
from typing import Any

import pytest
from archive_reading import records_of
from command_runner import run_command
from examples import some_of
from histories import History, Question
from history_readers import (
    by_scan,
    by_spark,
    check,
    check_damaged,
    contents,
    narrowed,
    payloads,
    without_append_times,
)
from in_process_spark import InProcessSpark
from mirror_lab import rows_of
from running_broker import RunningBroker, a_broker

from horolog.jobs import archive, mirror, restore
from horolog.storage import SystemCalls

broker = a_broker(
    log_cleaner_backoff_ms="100000000",
    log_retention_ms="-1",
    # The clock moves by hours: a check beside the readers would abort what is open.
    transaction_abort_timed_out_transaction_cleanup_interval_ms="100000000",
)
SEEDS = some_of(range(40), every=40)
STEPS = 60
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot", ".batches")
OLDER = ("--zstd-as", "gzip")
NO_SPARK: Any = InProcessSpark()


@pytest.fixture
def history(request: pytest.FixtureRequest, broker: RunningBroker) -> History:
    made = History(broker, random.Random(request.param))
    made.steps(STEPS)
    return made


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_readers_of_a_broker_and_of_its_files_give_what_was_sent(
    history: History, tmp_path: Path
) -> None:
    broker, rng = history.broker, history.rng
    for topic in "tc":
        for committed in (False, True):
            expected = history.expected(Question(topic, committed))
            for partition in range(3):
                fetched = rows_of(broker.address, topic, partition, committed=committed)
                assert [(row.offset, row.key, row.value) for row in fetched] == [
                    (row.offset, row.key, row.value)
                    for row in expected
                    if row.partition == partition
                ]
    check(history, broker, rng)
    check(history, broker.log_dir, rng)
    killed = copy_beside(broker.log_dir, tmp_path / "killed")
    check(history, killed, rng, knows_append_times=False)
    broker.stop()
    check(history, broker.log_dir, rng)
    bare = shutil.copytree(broker.log_dir, tmp_path / "bare")
    for path in [*bare.glob("[tc]-[0-9]/*")]:
        if path.suffix in DERIVED and rng.random() < 0.5:
            path.unlink()
    check(history, bare, rng)


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_filters_that_spark_pushes_leave_what_spark_alone_would(history: History) -> None:
    broker, rng = history.broker, history.rng
    for where in (broker, broker.log_dir):
        for _ in range(100):
            asked = history.question()
            asked = Question(asked.topic, asked.read_committed, filters=asked.filters)
            if asked.filters:
                assert by_spark(where, asked, rng) == history.expected(asked), asked


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_archives_restored_logs_and_mirrors_hold_what_was_committed(
    history: History, tmp_path: Path
) -> None:
    broker, rng = history.broker, history.rng
    expected = {topic: history.expected(Question(topic, read_committed=True)) for topic in "tc"}
    source = rng.choice((broker.address, broker.log_dir))
    state = {"topics": "t,c", "state": tmp_path / "archiving"}
    done = archive(NO_SPARK, source=source, archive=tmp_path / "archive", **state)
    assert done.refused == {}
    archived = records_of(tmp_path / "archive")
    for topic in "tc":
        found = [
            (row["partition"], row["offset"], row["timestampMs"], row["key"], row["value"])
            for row in archived
            if row["topic"] == topic
        ]
        assert found == [
            (row.partition, row.offset, row.timestamp_ms, row.key, row.value)
            for row in expected[topic]
        ]
    target = tmp_path / "restored"
    state = {"archive": tmp_path / "archive", "state": tmp_path / "restoring"}
    assert restore(NO_SPARK, target=target, **state).refused == {}
    mirror(
        NO_SPARK,
        source=str(rng.choice((broker.address, broker.log_dir))),
        target=str(tmp_path / "mirrored"),
        topics="t,c",
        state=tmp_path / "mirroring",
        batch_bytes=0,
    )
    for topic in "tc":
        assert by_spark(target, Question(topic), rng) == expected[topic]
        committed = Question(topic, read_committed=True)
        mirrored = by_spark(tmp_path / "mirrored", committed, rng)
        # A transaction that a log start has passed is known only by its records that are left.
        assert payloads(mirrored) == payloads(history.expected(committed, of_copy=True))


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_files_of_a_kill_within_a_swap_give_all_that_is_kept(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, rng = history.broker, history.rng
    for _ in range(10):
        history.send()
        history.end_transaction()  # an open one is not cleaned
        history.roll("c")
    # A copy beside appends lacks the last append times.
    asked = [narrowed(without_append_times(history.question("c"))) for _ in range(4)]
    before = [history.expected(each) for each in asked]
    killed: list[Path] = []
    rename, remove = SystemCalls.os_rename, SystemCalls.os_unlink
    one = RLock()  # a thread that removes a deleted topic must not change what is being copied

    def copy() -> None:
        if len(killed) < 5 and rng.random() < 0.2:
            killed.append(tmp_path / f"killed-{len(killed)}")
            copy_beside(broker.log_dir, killed[-1])

    def rename_later(self: SystemCalls, source: str, target: str) -> None:
        with one:
            copy()
            rename(self, source, target)

    def remove_later(self: SystemCalls, path: str) -> None:
        with one:
            copy()
            remove(self, path)

    monkeypatch.setattr(SystemCalls, "os_rename", rename_later)
    monkeypatch.setattr(SystemCalls, "os_unlink", remove_later)
    history.compact()
    monkeypatch.undo()
    after = [history.expected(each) for each in asked]
    assert killed
    for path in killed:
        for question, whole, kept in zip(asked, before, after, strict=True):
            for read in (by_spark, by_scan):
                found = set(payloads(read(path, question, rng)))
                assert set(payloads(kept)) <= found <= set(payloads(whole)), question


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_logs_that_were_compacted_or_converted_as_files_hold_what_is_left(
    history: History, tmp_path: Path
) -> None:
    broker, rng = history.broker, history.rng
    broker.stop()
    whole = {topic: history.expected(Question(topic)) for topic in "tc"}
    converted = shutil.copytree(broker.log_dir, tmp_path / "converted")
    for form in ("v1", "v2"):
        for directory in sorted(converted.glob("[tc]-[0-9]")):  # transactions have no older form
            run_command("log", "convert", directory, "--to", form, *OLDER)
        for topic in "tc":
            found = by_spark(converted, Question(topic), rng)
            assert payloads(found) == payloads(whole[topic])
    timeless = shutil.copytree(broker.log_dir, tmp_path / "timeless")
    converted_whole = {
        directory.name
        for directory in sorted(timeless.glob("[tc]-[0-9]"))
        if run_command("log", "convert", directory, "--to", "v0", *OLDER).code == 0
    }
    for topic in "tc":
        found = by_spark(timeless, Question(topic), rng)
        assert contents(found) == contents(whole[topic])
        for row, sent in zip(found, whole[topic], strict=True):
            is_kept = f"{topic}-{row.partition}" not in converted_whole
            assert row.timestamp_ms == -1 or (is_kept and row.timestamp_ms == sent.timestamp_ms)
    compacted = shutil.copytree(broker.log_dir, tmp_path / "compacted")
    for directory in sorted(compacted.glob("[tc]-[0-9]")):
        done = run_command("log", "compact", directory, "--delete-retention-ms", 0)
        assert done.code == 0, done.out + done.err
    history.take_compacted(compacted)
    check(history, compacted, rng)


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_readers_of_damaged_files_refuse_or_leave_out_but_never_make_up(
    history: History, tmp_path: Path
) -> None:
    history.broker.stop()
    check_damaged(history, history.broker.log_dir, tmp_path)


def copy_beside(log_dir: Path, target: Path) -> Path:
    """Copy a directory in use, without deleted topics: a thread is removing those."""
    return shutil.copytree(log_dir, target, ignore=shutil.ignore_patterns("*-delete"))
