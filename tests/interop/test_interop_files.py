"""Our files before Kafka's dump tool, and Kafka's before `horolog log verify`."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bench.sides import horolog
from command_runner import run_command
from handing_over import told
from tools.golden import answers, scenarios
from tools.golden.scenarios import Scenario
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, Kafka

from golden import copy_directory, partitions

# What one broker of ours writes today: no compaction, no transactions.
UNBUILT = {"compacted", "transactions", "transaction-open"}
WRITTEN = [one for one in scenarios.CLEAN if one.topic not in UNBUILT]


def write(bootstrap: str, written: list[Scenario]) -> None:
    scenarios.create(bootstrap, written)
    for one in written:
        one.write(bootstrap, one.topic)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A directory that horolog wrote and closed, and what it answered about it."""
    base = tmp_path_factory.mktemp("ours")
    with horolog({"log.retention.check.interval.ms": "500"}, base) as side:
        write(side.bootstrap, WRITTEN)
        scenarios.settle(2)  # retention is to have done its work
        answered = told(side.bootstrap, WRITTEN)
    return base / "data", answered


def test_the_dump_tool_finds_no_fault_in_any_file(directory):
    """`of_files` fails on any complaint about an index and on any batch that is not valid."""
    log_dir, answered = directory
    dumped = answers.of_files(log_dir, peer=NEWEST)
    for name, answer in answered.items():
        logs = [rows for file, rows in dumped[name].items() if file.endswith(".log")]
        batches = [row for rows in logs for row in rows]
        assert all(isinstance(row, list) for row in batches), name
        last = answers.COLUMNS.index("last_offset")
        if batches:
            assert batches[-1][last] + 1 == answer["latest"][0]


def test_the_dump_tool_finds_no_fault_after_a_kill(tmp_path):
    written = [one for one in WRITTEN if one.topic in {"index-some", "out-of-order", "idempotent"}]
    with horolog(directory=tmp_path) as side:
        write(side.bootstrap, written)
        side.kill()
    with horolog(directory=tmp_path) as side:
        recovered = told(side.bootstrap, written)
    dumped = answers.of_files(tmp_path / "data", peer=NEWEST)
    for name, answer in recovered.items():
        assert dumped[name]
        assert answer["latest"][0] == len(answer["records"])


def test_the_dump_tool_prints_the_same_after_indexes_were_rebuilt(directory, tmp_path):
    log_dir, _ = directory
    mended = Path(shutil.copytree(log_dir, tmp_path / "data"))
    for index in [*mended.glob("*/*.index"), *mended.glob("*/*.timeindex")]:
        index.unlink()
    assert run_command("log", "reindex", mended).code == 0
    assert answers.of_files(mended, peer=NEWEST) == answers.of_files(log_dir, peer=NEWEST)


LEFT = {"index-some", "index-full", "roll-by-time", "out-of-order", "append-time-zstd"}
LEFT |= {"transactions", "transaction-open", "compacted", "deleted-records", "empty"}


@pytest.mark.parametrize("peer", [NEWEST, LAST_WITH_OLD_FORMATS])
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_nothing_is_found_wrong_with_what_a_kafka_left(tmp_path, peer, end):
    written = [_known_to(peer, one) for one in scenarios.CLEAN if one.topic in LEFT]
    kafka = Kafka(
        tmp_path,
        peer=peer,
        settings={"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"},
    )
    try:
        kafka.start()
        write(kafka.bootstrap, written)
        scenarios.committed_offsets("a-group", "empty")(kafka.bootstrap)
        scenarios.settle()
        kafka.stop() if end == "stopped" else kafka.kill()
    finally:
        kafka.kill()
    seen = run_command("log", "verify", kafka.log_dir)
    assert seen.code == 0, seen.out


def _known_to(peer: str, one: Scenario) -> Scenario:
    """The scenario under the names that a release has for its settings."""
    if peer == NEWEST:
        return one
    return replace(
        one,
        config={name.removeprefix("internal."): value for name, value in one.config.items()},
    )


@pytest.mark.parametrize(
    ("source", "to"), [("clean", "v1"), ("clean", "v0"), ("old-formats", "v2")]
)
def test_the_dump_tool_finds_no_fault_in_what_was_converted(source, to, tmp_path):
    """By the last Kafka that reads v0 and v1: every message, checksum and index entry."""
    log_dir = copy_directory(source, tmp_path / "data")
    for name in ("transactions-0", "transaction-open-0"):  # these have no older form
        shutil.rmtree(log_dir / name, ignore_errors=True)
    done = run_command("log", "convert", log_dir, "--to", to, "--zstd-as", "gzip")
    assert f"converted to {to}" in done.out
    dumped = answers.of_files(log_dir, peer=LAST_WITH_OLD_FORMATS)
    for golden in partitions(source):
        if not golden.name.startswith("transaction"):
            assert dumped[golden.name]
    verified = run_command("log", "verify", log_dir)
    assert verified.code == 0, verified.out
