"""Transactions that a Kafka had decided on: as it wrote them down, and from bytes made by hand."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from partition_files import PartitionFiles
from storelogs import NOW, open_dir

from golden import GOLDEN
from horolog.metadata import committed_in
from horolog.record import LogRecord, build_batch, iter_headers
from horolog.storage import Files, TopicPartition

FILES = Files(read_only=True)
TRANSACTIONS = TopicPartition("transactions", 0)
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT = 1, 2, 3, 4
FIRST_LOG = "00000000000000000000.log"


def copy_up_to(source: Path, target: Path, offset: int) -> None:
    """A directory of Kafka's as it was when it had just written the batch at an offset."""
    target.mkdir()
    logs = sorted(source.glob("*.log"))
    for log in logs:
        if int(log.stem) > offset:
            continue
        data = log.read_bytes()
        kept = [(at, header) for at, header in iter_headers(data) if header.base_offset <= offset]
        position, last = kept[-1]
        (target / log.name).write_bytes(data[: position + last.size])
    shutil.copy2(source / "partition.metadata", target)


@pytest.mark.parametrize(
    ("written", "aborted"),
    [
        pytest.param(3, [2, 3], id="both open"),
        pytest.param(4, [3], id="a commit decided"),
        pytest.param(5, [3], id="an abort decided too"),
    ],
)
def test_a_decided_commit_counts_though_kafka_was_killed_before_its_marker(
    make_broker: Any, tmp_path: Path, written: int, aborted: list[int]
) -> None:
    """In Kafka's own bytes: producer 2 is to commit, and producer 3 to abort."""
    name = "__transaction_state-0"
    copy_up_to(GOLDEN / "clean" / name, tmp_path / name, written)
    before = {path: path.read_bytes() for path in (tmp_path / name).iterdir()}
    source = GOLDEN / "clean" / "transactions-0"
    marked = next(
        header.base_offset
        for log in sorted(source.glob("*.log"))
        for _, header in iter_headers(log.read_bytes())
        if header.is_control
    )
    copy_up_to(source, tmp_path / "transactions-0", marked - 1)
    broker = make_broker(log_dir=tmp_path, log_retention_ms="-1")
    answer = broker.client.fetch(*TRANSACTIONS, 0, max_wait_ms=0, read_committed=True)
    assert sorted(entry.producer_id for entry in answer.aborted) == aborted
    broker.stop()
    assert {path: path.read_bytes() for path in (tmp_path / name).iterdir()} == before


def test_what_kafka_has_completed_is_not_open() -> None:
    assert committed_in(FILES, GOLDEN / "clean") == {}


# --- by hand --------------------------------------------------------------------------------------


def key(transactional_id: str) -> bytes:
    return b"\0\0" + len(transactional_id).to_bytes(2, "big") + transactional_id.encode()


def value(
    producer_id: int, state: int, partitions: dict[str, list[int]], *, version: int = 1
) -> bytes:
    """The state of a transactional id."""
    compact = version == 1

    def count(number: int) -> bytes:
        return bytes([number + 1]) if compact else number.to_bytes(4, "big")

    data = version.to_bytes(2, "big") + producer_id.to_bytes(8, "big")
    data += bytes(2) + (60_000).to_bytes(4, "big") + bytes([state]) + count(len(partitions))
    for topic, numbers in partitions.items():
        data += count(len(topic)) if compact else len(topic).to_bytes(2, "big")
        data += topic.encode() + count(len(numbers))
        data += b"".join(number.to_bytes(4, "big") for number in numbers)
        if compact:
            data += b"\x01\x05\x02ab"  # a tagged field of a later version
    return data + bytes(16) + (b"\0" if compact else b"")


def write(log_dir: Path, *records: LogRecord, partition: int = 0, base_offset: int = 0) -> Path:
    directory = log_dir / f"__transaction_state-{partition}"
    directory.mkdir(exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(build_batch(list(records), base_offset=base_offset))
    return path


def read(log_dir: Path) -> Mapping[TopicPartition, frozenset[int]]:
    return committed_in(FILES, log_dir)


def test_there_need_be_no_coordinator(tmp_path: Path) -> None:
    (tmp_path / "__transaction_state-x").mkdir()
    assert read(tmp_path) == {}


@pytest.mark.parametrize("version", [0, 1])
def test_a_decision_is_for_the_partitions_that_it_names(tmp_path: Path, version: int) -> None:
    partitions = {"a": [0, 2], "b": [1]}
    write(
        tmp_path, LogRecord(NOW, key("x"), value(77, PREPARE_COMMIT, partitions, version=version))
    )
    write(
        tmp_path,
        LogRecord(NOW, key("y"), value(78, PREPARE_COMMIT, {"a": [2]}, version=version)),
        partition=9,
    )
    assert read(tmp_path) == {
        TopicPartition("a", 0): {77},
        TopicPartition("a", 2): {77, 78},
        TopicPartition("b", 1): {77},
    }


@pytest.mark.parametrize(
    "last", [value(77, state, {"a": [0]}) for state in (ONGOING, PREPARE_ABORT, 0, 6)] + [None]
)
def test_the_last_word_on_a_transactional_id_counts(tmp_path: Path, last: bytes | None) -> None:
    prepared = LogRecord(NOW, key("x"), value(77, PREPARE_COMMIT, {"a": [0]}))
    write(tmp_path, prepared)
    assert read(tmp_path) == {TopicPartition("a", 0): {77}}
    write(tmp_path, LogRecord(NOW, key("x"), last), base_offset=1)
    assert read(tmp_path) == {}


@pytest.mark.parametrize("version", [0, 1])
def test_a_state_that_ends_early_at_any_byte_decides_nothing(tmp_path: Path, version: int) -> None:
    whole = value(77, PREPARE_COMMIT, {"a": [0]}, version=version)
    end = len(whole) - 16 - (6 if version else 0)  # what follows the partitions is not read
    for cut in range(end):
        write(
            tmp_path,
            LogRecord(NOW, key("x"), whole[:cut]),
            LogRecord(NOW, key("y"), value(78, PREPARE_COMMIT, {"a": [0]})),
        )
        assert read(tmp_path) == {TopicPartition("a", 0): {78}}, cut


@pytest.mark.parametrize(
    "strange",
    [
        b"\0\2" + value(77, PREPARE_COMMIT, {"a": [0]})[2:],
        value(77, PREPARE_COMMIT, {"a": [0]}).replace(b"\x02a", b"\x02\xff"),
        value(77, PREPARE_COMMIT, {})[:17] + b"\xff\xff\xff\xff\x7f",
        value(77, PREPARE_COMMIT, {}, version=0)[:17] + b"\xff\xff\xff\xff",
    ],
)
def test_a_state_that_is_not_understood_is_skipped(tmp_path: Path, strange: bytes) -> None:
    decided = LogRecord(NOW, key("x"), value(77, PREPARE_COMMIT, {"a": [0]}))
    write(tmp_path, decided, LogRecord(NOW, key("x"), strange), LogRecord(NOW, None, b"no key"))
    assert read(tmp_path) == {}, "nor does the one before it count"
    write(tmp_path, decided, base_offset=3)
    assert read(tmp_path) == {TopicPartition("a", 0): {77}}


def test_a_partition_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    prepared = value(77, PREPARE_COMMIT, {"a": [0]})
    os.mkfifo(write(tmp_path, LogRecord(NOW, key("x"), prepared)).with_name(f"{7:020}.log"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / FIRST_LOG).write_bytes(build_batch([LogRecord(NOW, key("z"), prepared)]))
    (tmp_path / "__transaction_state-1").symlink_to(elsewhere)
    assert read(tmp_path) == {}
    write(tmp_path, LogRecord(NOW, key("y"), value(78, PREPARE_COMMIT, {"a": [0]})), partition=2)
    assert read(tmp_path) == {TopicPartition("a", 0): {78}}


def test_what_follows_damage_is_not_known(tmp_path: Path) -> None:
    write(tmp_path, LogRecord(NOW, key("x"), value(77, PREPARE_COMMIT, {"a": [0]})))
    later = write(
        tmp_path, LogRecord(NOW, key("y"), value(78, COMPLETE_COMMIT, {"a": [0]})), base_offset=1
    )
    later.write_bytes(later.read_bytes()[:-3])
    assert read(tmp_path) == {TopicPartition("a", 0): {77}}


@pytest.mark.parametrize("lost", ["*index", "*.txnindex"])
def test_aborted_transactions_of_a_copy_stay_hidden_without_their_index(
    tmp_path: Path, lost: str
) -> None:
    """Most segments never have one: nothing else says that it is missing."""
    files = PartitionFiles(tmp_path, topic=TRANSACTIONS.topic, base_offset=0)
    files.add([5], producer_id=9)
    files.end_transaction(9, commit=False)
    files.roll()
    files.add([5])
    for index in files.directory.glob(lost):
        index.unlink()
    log_dir = open_dir(tmp_path, ours=False)
    try:
        log = log_dir.logs[TRANSACTIONS]
        (found,) = log.look().aborted_transactions(0, log.log_end_offset)
        assert (found.producer_id, found.first_offset, found.last_offset) == (9, 0, 1)
    finally:
        log_dir.close()
