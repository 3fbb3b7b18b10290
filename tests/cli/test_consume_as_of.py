"""`horolog consume --as-of` and `--read-committed`, from a broker and from files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from arrivals import Producer
from command_runner import Ran, run_command
from patience import PATIENCE_S
from running_broker import NOW_MS, RunningBroker, a_broker
from storelogs import snapshot_of

from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch
from horolog.storage import TopicPartition

broker = a_broker("clicks", partitions=2)

SECOND = 1_000
T = NOW_MS + 2 * SECOND + 500


@pytest.fixture
def filled(broker: RunningBroker, clock: ManualClock) -> RunningBroker:
    """A record each second, with its second as value, and a create time that goes back.

    A transaction of both partitions begins at 0 s and is committed at 3 s, another at 1 s and is
    aborted at 2 s.
    """
    late, aborted = Producer(broker, "late"), Producer(broker, "aborted")
    for second in range(5):
        if second == 0:
            late.write(TopicPartition("clicks", 0), LogRecord(NOW_MS, None, b"late 0"))
            late.write(TopicPartition("clicks", 1), LogRecord(NOW_MS, None, b"late 1"))
        if second == 1:
            aborted.write(TopicPartition("clicks", 1), LogRecord(NOW_MS, None, b"aborted"))
        if second == 2:
            aborted.end(commit=False)
        if second == 3:
            late.end(commit=True)
        record = LogRecord(NOW_MS - second * SECOND, None, b"%d s" % second)
        broker.append("clicks", build_batch([record]), second % 2)
        clock.step("1s")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    return broker


def consume(broker: RunningBroker, *args: object) -> Ran:
    return run_command("consume", *args, "--format", "json", HOROLOG_BOOTSTRAP=broker.address)


def values(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [json.loads(line)["value"] for line in ran.lines]


def in_both(broker: RunningBroker, path: Path, *args: object) -> list[str]:
    """Values that the broker and its files give alike."""
    if not path.exists():
        snapshot_of(broker.log_dir, path)
    of_broker = values(consume(broker, "clicks", *args))
    assert values(consume(broker, path, *args)) == of_broker
    return of_broker


@pytest.mark.parametrize(
    ("args", "printed"),
    [
        ([], ["late 0", "0 s", "2 s", "late 1", "aborted", "1 s"]),
        (["--read-committed"], []),  # the late transaction is before all other records
        (["--partition", 1], ["late 1", "aborted", "1 s"]),
        (["--offset", 1, "--partition", 0], ["0 s", "2 s"]),
        (["--from-time", NOW_MS - SECOND, "--to-time", NOW_MS], ["1 s"]),
        (["--from-time", NOW_MS + SECOND, "--clock", "append"], ["2 s", "aborted", "1 s"]),
        (["--to-time", NOW_MS + SECOND, "--clock", "append"], ["late 0", "0 s", "late 1"]),
        (["--order", "create-time"], ["2 s", "1 s", "late 0", "0 s", "late 1", "aborted"]),
        (["--order", "append-time"], ["late 0", "0 s", "late 1", "aborted", "1 s", "2 s"]),
        (["-n", 2], ["late 0", "0 s"]),
    ],
)
def test_what_was_appended_before_a_time_is_printed_and_nothing_else(
    filled: RunningBroker, tmp_path: Path, args: list[object], printed: list[str]
) -> None:
    path, cut = tmp_path / "copy", tmp_path / "cut.json"
    assert in_both(filled, path, "--as-of", f"{T}ms", *args) == printed
    made = run_command("cut", "--at", T, "-o", cut, HOROLOG_BOOTSTRAP=filled.address)
    assert made.code == 0
    assert in_both(filled, path, "--as-of", cut, *args) == printed


@pytest.mark.parametrize(
    ("at", "printed"),
    [
        (NOW_MS + 3 * SECOND, []),
        (NOW_MS + 3 * SECOND + 1, ["late 0", "0 s", "2 s", "late 1", "1 s", "3 s"]),
        (NOW_MS, []),
    ],
)
def test_a_transaction_is_known_once_its_marker_was_appended(
    filled: RunningBroker, tmp_path: Path, at: int, printed: list[str]
) -> None:
    assert in_both(filled, tmp_path / "copy", "--as-of", at, "--read-committed") == printed


def test_without_a_time_committed_records_end_at_open_transactions(
    filled: RunningBroker, tmp_path: Path
) -> None:
    Producer(filled, "open").write(TopicPartition("clicks", 0))
    filled.append("clicks", build_batch([LogRecord(NOW_MS, None, b"behind")]), 0)
    committed = in_both(filled, tmp_path / "copy", "--read-committed")
    assert committed == ["late 0", "0 s", "2 s", "4 s", "late 1", "1 s", "3 s"]
    everything = in_both(filled, tmp_path / "copy")
    assert {"aborted", "behind"} <= set(everything)


def test_following_gives_committed_records_once_their_transaction_ends(
    broker: RunningBroker,
) -> None:
    aborted, committed = Producer(broker, "aborted"), Producer(broker, "committed")
    command = [sys.executable, "-m", "horolog", "consume", "clicks", "-b", broker.address]
    with subprocess.Popen(
        [*command, "--read-committed", "--follow", "-n", "2", "--format", "json"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        aborted.write(TopicPartition("clicks", 0), LogRecord(1, None, b"aborted"))
        aborted.end(commit=False)
        committed.write(TopicPartition("clicks", 0), LogRecord(1, None, b"committed"))
        committed.end(commit=True)
        broker.append("clicks", build_batch([LogRecord(1, None, b"alone")]), 0)
        printed, _ = process.communicate(timeout=PATIENCE_S)
    assert [json.loads(line)["value"] for line in printed.splitlines()] == ["committed", "alone"]


def test_an_offline_partition_hides_no_other(filled: RunningBroker) -> None:
    filled.stop()
    for path in (filled.log_dir / "clicks-1").glob("*.log"):
        path.unlink()
        path.mkdir()
    filled.start()
    filled.run(filled.broker.partitions.keep_stamp_clock())
    ran = consume(filled, "clicks", "--as-of", T)
    assert ran.code == 1
    assert "clicks-1 is offline" in ran.err
    assert [json.loads(line)["value"] for line in ran.lines] == ["late 0", "0 s", "2 s"]


@pytest.mark.parametrize("at", [f"{(1 << 63) - 1}ms", "+1h"])
def test_a_time_that_is_not_exact_is_refused_with_the_reason(
    filled: RunningBroker, tmp_path: Path, at: str
) -> None:
    snapshot_of(filled.log_dir, tmp_path / "copy")
    for source in ("clicks", tmp_path / "copy"):
        ran = consume(filled, source, "--as-of", at)
        assert (ran.code, ran.out) == (2, "")
        assert "future: " in ran.err
    assert values(consume(filled, "clicks", "--as-of", -(1 << 63))) == []


def test_a_cut_of_other_topics_or_of_a_re_created_one_is_refused(
    filled: RunningBroker, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.json"

    def cut_at(*args: object) -> None:
        at = {"HOROLOG_BOOTSTRAP": filled.address}
        assert run_command("cut", "--at", T, "-o", cut, *args, **at).code == 0

    filled.create_topic("orders")
    cut_at("--topics", "orders")
    assert "the cut has no clicks-0" in consume(filled, "clicks", "--as-of", cut).err
    cut_at()
    filled.client.delete_topics(["clicks"])
    filled.create_topic("clicks", 2)
    refused = consume(filled, "clicks", "--as-of", cut)
    assert refused.code == 2
    assert "clicks was re-created since the cut" in refused.err
    cut.write_text(cut.read_text().replace('"cluster_id": "', '"cluster_id": "x'))
    assert "of another cluster" in consume(filled, "orders", "--as-of", cut).err


def test_a_file_that_looks_like_no_path_is_named_with_its_directory(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cut").write_text("{}")
    ran = consume(broker, "clicks", "--as-of", "cut")
    assert (ran.code, ran.err) == (
        2,
        "horolog: cut is not a time: for the file write ./cut\n",
    )
    assert "is no cut" in consume(broker, "clicks", "--as-of", "./cut").err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["clicks", "--as-of", "-1h", "--follow"], "leave out --follow"),
        (["clicks", "--as-of", "-1h", "--from-end"], "leave out --from-end"),
        (["clicks", "--as-of", "yesterday"], "is not a time"),
        (["clicks", "--as-of", "none.json"], "none.json cannot be read"),
        (["clicks", "--as-of", "/dev/null"], "is no cut"),
        (["clicks", "--as-of", "2026-03-29T02:30", "--tz", "Europe/Berlin"], "does not exist"),
    ],
)
def test_a_misused_option_is_refused_in_a_sentence(
    broker: RunningBroker, args: list[str], said: str
) -> None:
    ran = consume(broker, *args)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
