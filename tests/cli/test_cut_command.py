"""`horolog cut`: the file of a cut, from a broker and from a directory."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_runner import Ran, heed_interrupts, run_command
from in_process_spark import InProcessSpark
from patience import PATIENCE_S, eventually
from running_broker import (
    NOW_MS,
    BrokerProcess,
    MakeBroker,
    RunningBroker,
    a_broker,
    a_broker_process,
)
from s3_server import S3Server
from scripted_broker import ScriptedBroker, Silence
from storelogs import snapshot_of

from horolog.clock import ManualClock, SystemClock
from horolog.jobs import archive
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

broker = a_broker("clicks", "orders", partitions=2)

SECOND = 1_000


@pytest.fixture
def filled(broker: RunningBroker, clock: ManualClock) -> RunningBroker:
    """Three records of each partition, appended a second apart, and the clock a second later."""
    for _ in range(3):
        for topic in ("clicks", "orders"):
            for partition in range(2):
                broker.append(topic, build_batch([LogRecord(5, None, b"v")]), partition)
        clock.step("1s")
    keep_clock(broker)
    return broker


def keep_clock(broker: RunningBroker) -> None:
    broker.run(broker.broker.partitions.keep_stamp_clock())


def run(broker: RunningBroker, *args: object) -> Ran:
    return run_command("cut", *args, HOROLOG_BOOTSTRAP=broker.address)


def offsets_in(cut: Any) -> dict[str, int]:
    return {
        f"{entry['topic']}-{entry['partition']}": entry["offset"] for entry in cut["partitions"]
    }


def copied(broker: RunningBroker, path: Path) -> Path:
    snapshot_of(broker.log_dir, path)
    return path


def test_a_cut_is_printed_and_says_what_its_file_has(filled: RunningBroker, tmp_path: Path) -> None:
    printed = run(filled, "--at", NOW_MS + SECOND)
    assert (printed.code, printed.err) == (0, "")
    assert printed.json["at_ms"] == NOW_MS + SECOND
    assert offsets_in(printed.json) == {"clicks-0": 1, "clicks-1": 1, "orders-0": 1, "orders-1": 1}
    output = tmp_path / "cut.json"
    written = run(filled, "--at", NOW_MS + SECOND, "-o", output)
    assert (written.code, written.err) == (0, "")
    assert written.lines == [f"{output}: 4 partitions at 2023-11-14T22:13:21.000Z, all exact"]
    assert json.loads(output.read_text())["partitions"] == printed.json["partitions"]


def test_files_are_cut_as_their_broker_is(filled: RunningBroker, tmp_path: Path) -> None:
    directory = copied(filled, tmp_path / "copy")
    for at in (NOW_MS, NOW_MS + 1, NOW_MS + 2 * SECOND, "1970-01-01T00:00Z"):
        of_files = run_command("cut", "--at", at, directory)
        of_broker = run(filled, "--at", at)
        assert of_files.code == of_broker.code == 0
        assert of_files.json["partitions"] == of_broker.json["partitions"]
        assert of_files.json["cluster_id"] == of_broker.json["cluster_id"]


def test_an_archive_is_cut_as_its_broker_was(filled: RunningBroker, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    at_ms, state = NOW_MS + 3 * SECOND, tmp_path / "state"
    session, where = InProcessSpark(), {"archive": place, "state": state, "as_of": at_ms}
    assert archive(session, source=filled.address, topics="clicks,orders", **where).is_ok
    for at in (NOW_MS + SECOND, at_ms):
        of_archive = run_command("cut", "--at", at, place)
        assert of_archive.code == 0
        assert of_archive.json["partitions"] == run(filled, "--at", at).json["partitions"]
    later = run_command("cut", "--at", at_ms + 1, place)
    assert (later.code, "future" in later.err) == (1, True)


@pytest.mark.parametrize(
    ("chosen", "topics"),
    [
        ([], {"clicks", "orders"}),
        (["--topics", "orders"], {"orders"}),
        (["--topics", " orders , clicks,orders"], {"clicks", "orders"}),
        (["--topics-pattern", "cl.*"], {"clicks"}),
        (["--topics", "__consumer_offsets"], {"__consumer_offsets"}),
    ],
)
def test_topics_are_chosen_by_name_or_pattern_and_internal_ones_by_name_alone(
    filled: RunningBroker, tmp_path: Path, chosen: list[str], topics: set[str]
) -> None:
    filled.client.offset_commit("g", {})  # makes the internal topic
    for source in ([], [copied(filled, tmp_path / "copy")]):
        cut = run(filled, "--at", NOW_MS + 1, *chosen, *source).json
        assert {entry["topic"] for entry in cut["partitions"]} == topics


def test_what_is_inexact_is_a_table_with_the_reason_and_the_file_is_written(
    filled: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    filled.delete_records("clicks", 2, partition=1)
    output = tmp_path / "cut.json"
    ran = run(filled, "--at", NOW_MS + 1, "-o", output)
    assert ran.code == 1
    assert ran.lines[0].endswith("4 partitions at 2023-11-14T22:13:20.001Z, 1 inexact")
    assert ran.lines[1].split() == ["topic", "partitions", "inexact", "because"]
    assert ran.lines[3].split(maxsplit=2) == [
        "clicks",
        "1",
        "deleted: the records around it are deleted",
    ]
    entries = json.loads(output.read_text())["partitions"]
    assert [entry["exact"] for entry in entries] == [True, False, True, True]
    printed = run(filled, "--at", NOW_MS + 1)
    assert printed.code == 1
    assert printed.err == "clicks 1: deleted: the records around it are deleted\n"
    future = run(filled, "--at", NOW_MS + 60 * SECOND)
    assert future.code == 1
    assert [line.split(":")[:2] for line in future.err.splitlines()] == [
        ["clicks 0-1", " future"],
        ["orders 0-1", " future"],
    ]


def test_a_partition_of_damaged_files_hides_no_other(filled: RunningBroker, tmp_path: Path) -> None:
    directory = copied(filled, tmp_path / "copy")
    (directory / "clicks-0" / "append-time-resets").write_bytes(b"\xff")
    for name in ("orders-0/00000000000000000000.companion", "orders-1/append-time-checkpoint"):
        (directory / name).unlink(missing_ok=True)
        (directory / name).mkdir()
    for without in ("", "append-time-clock"):
        (directory / without).unlink() if without else None
        ran = run_command("cut", "--at", NOW_MS + SECOND, directory)
        assert ran.code == 1
        exact = [entry["exact"] for entry in ran.json["partitions"]]
        assert exact == [False, True, False, False]
        assert "append-time-resets is not text" in ran.err
        assert "companion is not a regular file" in ran.err
        assert "append-time-checkpoint is not a regular file" in ran.err


def test_an_offline_partition_hides_no_other(filled: RunningBroker) -> None:
    directory = filled.log_dir / "clicks-1"
    filled.stop()
    for path in directory.glob("*.log"):
        path.unlink()
        path.mkdir()
    filled.start()
    keep_clock(filled)
    ran = run(filled, "--at", NOW_MS + SECOND)
    assert ran.code == 1
    assert [entry["exact"] for entry in ran.json["partitions"]] == [True, False, True, True]
    assert ran.err == "clicks 1: it has no leader\n"


@pytest.mark.parametrize(
    ("at", "offset", "code"),
    [
        (str(-(1 << 63)), 0, 0),
        (f"{(1 << 63) - 1}ms", 3, 1),
        ("0001-01-01T00:00Z", 0, 0),
        ("9999-12-31T23:59:59.999999-14:00", 3, 1),
        ("2023-11-14T23:13:20.0005+01:00", 1, 0),  # of a microsecond: the next millisecond
        ("2023-11-14T22:13:21Z", 1, 0),
    ],
)
def test_times_up_to_the_edges_of_64_bits_are_taken(
    filled: RunningBroker, tmp_path: Path, at: str, offset: int, code: int
) -> None:
    for source in ([], [copied(filled, tmp_path / "copy")]):
        ran = run(filled, "--at", at, "--topics", "clicks", *source)
        assert ran.code == code
        assert [entry["offset"] for entry in ran.json["partitions"]] == [offset] * 2


def test_a_time_in_a_zone_is_that_of_the_zone(filled: RunningBroker, tmp_path: Path) -> None:
    output = tmp_path / "cut.json"
    ran = run(filled, "--at", "2023-11-14T23:13:21", "--tz", "Europe/Berlin", "-o", output)
    assert "at 2023-11-14T23:13:21.000+01:00, all exact" in ran.lines[0]
    assert json.loads(output.read_text())["at_ms"] == NOW_MS + SECOND


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--topics", "clicks"], "option"),
        (["--at", "yesterday"], "is not a time"),
        (["--at", "9223372036854775808"], "64 bits"),
        (["--at", "-99999999999999w"], "64 bits"),
        (["--at", "2026-03-29T02:30", "--tz", "Europe/Berlin"], "does not exist"),
        (["--at", "2026-03-29T02:30"], "has no zone"),
        (["--at", "now", "--topics", "a", "--topics-pattern", "b"], "not both"),
        (["--at", "now", "--topics", " , "], "names no topic"),
        (["--at", "now", "--topics-pattern", "("], "is no pattern"),
        (["--at", "now", "--topics-pattern", "nothing"], "matches nothing"),
        (["--at", "now", "--topics", "clicks,none"], "There is no topic none"),
        (["--at", "now", "/nowhere"], "nowhere"),
        (["--at", "now", ".", "-b", "localhost:1"], "one source"),
        (["--at", "now", "-o", "/nowhere/cut.json"], "there is no directory /nowhere"),
        (["--at", "now", "-o", "/"], "is a directory"),
    ],
)
def test_a_misused_command_ends_with_2_and_writes_nothing(
    broker: RunningBroker, args: list[str], said: str
) -> None:
    ran = run(broker, *args)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())
    assert ran.out == ""


def test_an_output_is_replaced_whole_and_a_link_is_not_followed(
    filled: RunningBroker, tmp_path: Path
) -> None:
    output, precious = tmp_path / "cut.json", tmp_path / "precious"
    precious.write_text("kept")
    output.symlink_to(precious)
    part = tmp_path / f".cut.json.{os.getpid()}.part"
    part.symlink_to(precious)
    assert run(filled, "--at", NOW_MS + 1, "-o", output).code == 0
    assert precious.read_text() == "kept"
    assert not output.is_symlink()
    assert not part.exists()
    assert len(json.loads(output.read_text())["partitions"]) == 4
    before = output.read_bytes()
    refused = run_command("cut", "--at", "now", "-b", "127.0.0.1:1", "-o", output)
    assert refused.code == 1
    assert output.read_bytes() == before


def test_a_broker_without_topics_has_an_empty_cut(make_broker: MakeBroker) -> None:
    ran = run(make_broker(), "--at", "-1h")
    assert ran.code == 0
    assert ran.json["partitions"] == []


def test_apache_kafka_is_refused_in_one_sentence() -> None:
    with ScriptedBroker({}) as kafka:
        refused = run_command(
            "cut", "--at", "-1h", "--topics", "t", HOROLOG_BOOTSTRAP=kafka.bootstrap
        )
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "keeps no append times" in refused.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_and_leaves_no_file(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with ScriptedBroker({ApiKey.METADATA: Silence()}) as silent:
        command = [sys.executable, "-m", "horolog", "cut", "--at", "-1h", "-b", silent.bootstrap]
        with subprocess.Popen(
            [*command, "-o", str(tmp_path / "cut.json")],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_interrupts,  # noqa: PLW1509 - it takes no lock
        ) as process:
            eventually(lambda: silent.asked(ApiKey.METADATA))
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE_S)
    assert said.splitlines() == [f"stopped at cutting {silent.bootstrap}: nothing done yet"]
    assert process.returncode == code
    assert list(tmp_path.iterdir()) == []


killed = a_broker_process("clicks", partitions=2)


def test_a_killed_broker_gives_the_same_cut(killed: BrokerProcess, tmp_path: Path) -> None:
    first = killed.append("clicks", build_batch([LogRecord(5, None, b"v")]), 1)
    now_ms = SystemClock().now_ms()
    eventually(lambda: SystemClock().now_ms() > now_ms)
    cuts = []
    for _ in range(2):
        ran = run_command("cut", "--at", f"{now_ms + 1}ms", "-b", killed.address)
        assert (ran.code, ran.err) == (0, "")
        cuts.append(ran.json["partitions"])
        killed.kill()
        killed.start_again()
        killed.append("clicks", build_batch([LogRecord(5, None, b"w")]), 1)
    assert cuts[0] == cuts[1]
    assert [entry["offset"] for entry in cuts[0]] == [0, first + 1]


def test_an_object_store_is_cut_as_the_directory_in_it(
    filled: RunningBroker, tmp_path: Path
) -> None:
    directory = copied(filled, tmp_path / "copy")
    with S3Server() as s3:
        s3.upload(directory, "logs/kafka")
        at = [f"--set={name}={value}" for name, value in s3.options().items()]
        in_store = run_command("cut", "--at", NOW_MS + SECOND, "s3://logs/kafka", *at)
        cut = tmp_path / "cut.json"
        cut.write_text(in_store.out)
        consumed = run_command(
            "consume", "s3://logs/kafka/clicks-0", "--as-of", cut, *at, "--format", "json"
        )
    assert (in_store.code, in_store.err) == (0, "")
    on_disk = run_command("cut", "--at", NOW_MS + SECOND, directory).json
    assert in_store.json["partitions"] == on_disk["partitions"]
    assert (consumed.code, len(consumed.lines)) == (0, 1)


def test_a_disk_that_is_full_leaves_what_was_there(filled: RunningBroker, tmp_path: Path) -> None:
    output = tmp_path / "cut.json"
    output.write_text("before")
    command = [sys.executable, "-m", "horolog", "cut", "--at", f"{NOW_MS}ms", "-o", str(output)]
    done = subprocess.run(
        [*command, "-b", filled.address],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"horolog: {output} cannot be written: File too large\n"
    assert output.read_text() == "before"
    assert list(tmp_path.glob("*.part")) == []
