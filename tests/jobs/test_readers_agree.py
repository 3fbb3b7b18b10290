"""Readers of files see what the broker serves of the same directory, or fail by name."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from archive_reading import records_of
from batches import fill
from command_runner import run_command
from in_process_spark import InProcessSpark
from log_reading import Read
from partition_files import PartitionFiles
from running_broker import MakeBroker, RunningBroker

from horolog.errors import CorruptBatch
from horolog.jobs import archive
from horolog.record import LogRecord, build_batch, iter_headers
from horolog.sources import DataLost
from horolog.storage import Files, LogView, Slice

NOW = 1_700_000_000_000
LOG_STARTS = "log-start-offset-checkpoint"


def consumed(path: Path) -> list[int]:
    printed = run_command("consume", path, "--format", "json")
    assert printed.code == 0, printed.err
    return [json.loads(line)["offset"] for line in printed.lines]


def of_files(log_dir: Path, work: Path) -> dict[str, list[int]]:
    """The offsets that each reader of files finds."""
    printed = consumed(log_dir / "orders-0")
    archive(InProcessSpark(), source=log_dir, archive=work / "archive", state=work / "state")
    return {
        "spark": Read(log_dir).offsets(),
        "consume": printed,
        "archive": [row["offset"] for row in records_of(work / "archive")],
    }


def of_broker(broker: RunningBroker) -> list[int]:
    start = broker.client.list_offsets({("orders", 0): -2})["orders", 0]
    assert start is not None
    fetched = broker.client.fetch("orders", 0, start.offset, max_wait_ms=0, max_bytes=1 << 20)
    headers = [header for _, header in iter_headers(fetched.records)]
    ends = [(each.base_offset, each.next_offset) for each in headers]
    return [o for first, end in ends for o in range(max(first, start.offset), end)]


# Where a log starts.


@pytest.mark.parametrize(("start", "first"), [(99_999, 0), (51, 0), (50, 50), (43, 43)])
def test_a_log_start_beyond_the_end_hides_nothing(
    tmp_path: Path, make_broker: MakeBroker, start: int, first: int
) -> None:
    files = PartitionFiles(tmp_path / "log", base_offset=0)
    for _ in range(5):
        files.add([NOW] * 10)
    (files.log_dir / LOG_STARTS).write_text(f"0\n1\norders 0 {start}\n")
    found = of_files(files.log_dir, tmp_path)
    expected = of_broker(make_broker(log_dir=files.log_dir))
    assert found == dict.fromkeys(found, expected)
    assert expected == [*range(first, 50)]


@pytest.mark.parametrize("state", ["newer", "older", "other"])
def test_a_log_start_counts_for_the_topic_it_was_written_for(
    tmp_path: Path, make_broker: MakeBroker, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(log_dir=tmp_path / "log", log_retention_ms="-1")
    broker.create_topic("orders")
    fill(broker.client, "orders", [NOW] * 5, size=1, key=b"k")
    older = shutil.copytree(broker.log_dir / "orders-0", tmp_path / "older")
    fill(broker.client, "orders", [NOW] * 15, size=1, key=b"k")

    broker.delete_records("orders", 10)
    broker.stop()
    directory = broker.log_dir / "orders-0"
    if state == "older":
        shutil.rmtree(directory)
        shutil.copytree(older, directory)
    if state == "other":
        (directory / "partition.metadata").write_text("version: 0\ntopic_id: " + "A" * 21 + "g")
    with caplog.at_level(logging.WARNING, "horolog.spark"):
        found = of_files(broker.log_dir, tmp_path)
    assert ("it is an older state" in caplog.text) == (state == "older")
    broker.restart()
    expected = of_broker(broker)
    assert found == dict.fromkeys(found, expected)
    assert expected == {"newer": [*range(10, 20)], "older": [], "other": [*range(20)]}[state]


def test_a_segment_read_alone_has_no_deleted_records(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log", base_offset=0)
    for _ in range(3):
        files.add([NOW] * 10)
        files.roll()
    (files.log_dir / LOG_STARTS).write_text("0\n1\norders 0 15\n")
    assert [Read(log).offsets() for log in files.logs[:2]] == [[], [*range(15, 20)]]
    assert [consumed(log) for log in files.logs[:2]] == [[], [*range(15, 20)]]


# Offsets that must follow: a base offset has no checksum.


def flipped(path: Path, number: int, mask: int, byte: int = 7) -> None:
    """Change a byte of the base offset of one of the batches of a log."""
    data = bytearray(path.read_bytes())
    position = [at for at, _ in iter_headers(data)][number]
    data[position + byte] ^= mask
    path.write_bytes(data)


def archived(files: PartitionFiles, work: Path) -> str:
    """Why an archive refuses a partition."""
    given = {"archive": work / "archive", "state": work / "state"}
    return archive(InProcessSpark(), source=files.log_dir, **given).refused["orders-0"]


@pytest.mark.parametrize("indexes", [True, False], ids=["indexes", "no indexes"])
@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize(
    ("number", "mask", "byte"),
    [(2, 1, 6), (2, 16, 7), (0, 1, 6), (1, 64, 4), (5, 48, 7)],
    ids=["far ahead", "back", "first", "very far ahead", "last back"],
)
def test_a_base_offset_that_does_not_follow_is_damage(
    tmp_path: Path, indexes: bool, segment: int, number: int, mask: int, byte: int
) -> None:
    files = PartitionFiles(tmp_path / "log", base_offset=0)
    for _ in range(2):
        for _ in range(6):
            files.add([NOW] * 10)
        files.roll()
    files.log.unlink()
    if indexes:
        files.write_indexes()
    flipped(files.logs[segment], number, mask, byte)
    with pytest.raises(CorruptBatch, match=r"begins at offset|ends with offset"):
        Read(files.log_dir).rows()
    with pytest.raises(CorruptBatch, match=r"begins at offset|ends with offset"):
        Read(files.log_dir, minPartitions=12).rows()
    assert len(Read(files.log_dir, failOnDataLoss="false").rows()) < 120
    found = run_command("consume", files.directory)
    assert found.code == 1
    assert "begins at offset" in found.err or "ends with offset" in found.err
    why = archived(files, tmp_path)
    assert "begins at offset" in why or "ends with offset" in why


def test_a_whole_last_batch_with_a_wrong_checksum_is_damage(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log", base_offset=0)
    for _ in range(3):
        files.add([NOW] * 10)
    data = bytearray(files.log.read_bytes())
    data[-3] ^= 1
    files.log.write_bytes(data)
    with pytest.raises(CorruptBatch, match="the batch at offset 20"):
        Read(files.log_dir).rows()
    assert Read(files.log_dir, failOnDataLoss="false").offsets() == [*range(20)]
    assert run_command("consume", files.directory).code == 1
    assert "crc" in archived(files, tmp_path)
    files.log.write_bytes(data[:-1])
    assert Read(files.log_dir).offsets() == [*range(20)], "it may be being written"


# A log with nothing to read before its end.


def test_a_gap_up_to_the_log_end_ends_every_reader(tmp_path: Path, make_broker: MakeBroker) -> None:
    files = PartitionFiles(tmp_path / "log", base_offset=0)
    files.add([NOW] * 16)
    for base in (16, 32):
        (files.directory / f"{base:020d}.log").touch()
    with pytest.raises(DataLost, match="Offsets 16 to 31 of orders-0"):
        Read(files.log_dir).rows()
    found = run_command("consume", files.directory, "--format", "json")
    assert (found.code, len(found.lines)) == (0, 16)
    assert "Offsets 16 to 31 of orders-0 are in none of the files" in found.err
    broker = make_broker(log_dir=files.log_dir)
    served = run_command("consume", "orders", "-b", broker.address, "--format", "json")
    assert (served.code, len(served.lines)) == (0, 16)


def test_a_broker_that_gives_nothing_before_the_log_end_is_not_asked_for_ever(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders", retention_ms="-1")
    fill(broker.client, "orders", [NOW] * 4, size=1, key=b"k")
    read = LogView.read

    def nothing(view: LogView, offset: int, max_bytes: int, *args: Any, **more: Any) -> Any:
        found = read(view, offset, min(max_bytes, 160), *args, **more)  # two batches
        return found if offset < 2 else Slice(Files(), None, 0, 0)

    monkeypatch.setattr(LogView, "read", nothing)
    refused = run_command(
        "consume",
        *("orders", "-b", broker.address, "--command-property", "default.api.timeout.ms=300"),
    )
    assert refused.code == 1
    assert len(refused.lines) == 2
    assert "orders-0 gave nothing from offset 2 on for 300 ms" in refused.err


# Transactions that nobody ended.

PREPARED = (  # the state of a transactional id whose commit for orders-0 was decided (version 0)
    b"\0\0"
    + bytes([0] * 7 + [9, 0, 0])
    + bytes(4)
    + b"\2"
    + b"\0\0\0\1\0\6orders\0\0\0\1"
    + bytes(20)
)


def test_a_transaction_that_nobody_ended_is_decided_as_by_the_broker_that_adopts_it(
    tmp_path: Path, make_broker: MakeBroker
) -> None:
    files = PartitionFiles(tmp_path / "log", base_offset=0)
    committed: list[int] = []
    for producer_id in (-1, 7, 8, -1, 9):
        first = files.add([NOW] * 3, producer_id=producer_id)
        if producer_id in (-1, 9):
            committed += range(first, first + 3)
        if producer_id == 7:
            files.end_transaction(7, commit=False)
    state = files.log_dir / "__transaction_state-0"
    state.mkdir()
    (state / f"{0:020d}.log").write_bytes(build_batch([LogRecord(NOW, b"\0\0\0\1x", PREPARED)]))
    level = {"kafka.isolation.level": "read_committed"}
    assert Read(files.log_dir, **level).offsets() == [0, 1, 2], "a Kafka may append there"
    broker = make_broker(log_dir=files.log_dir)
    fill(broker.client, "orders", [NOW] * 3, size=1, key=b"k")
    committed += range(16, 19)
    of_broker = Read(subscribe="orders", **level, **{"kafka.bootstrap.servers": broker.address})
    assert of_broker.offsets() == committed
    assert Read(files.log_dir, **level).offsets() == committed
    given = {"archive": tmp_path / "archive", "state": tmp_path / "state"}
    archive(InProcessSpark(), source=files.log_dir, topics="orders", **given)
    assert [row["offset"] for row in records_of(tmp_path / "archive")] == committed
    broker.create_topic("again", retention_ms="-1")
    sent = run_command(
        *("replay", "--topics", "orders", "--source", files.log_dir, "--target", broker.address),
        *("--speed", "max", "--to-topic", "again"),
    )
    assert sent.code == 0, sent.err
    assert (
        len(run_command("consume", "again", "-b", broker.address, "--format", "json").lines) == 12
    )
