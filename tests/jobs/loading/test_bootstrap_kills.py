"""Loads that are killed in the middle: run again, each record is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batches import numbered_batch
from patience import PATIENCE_S
from spark_cluster import cluster

from horolog.client import LATEST, Client
from horolog.record import read_records
from horolog.sources import Batches

if TYPE_CHECKING:
    from running_broker import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROWS = 400_000
PARTITIONS = 3
T0 = 1_600_000_000_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table(
            {
                "id": pa.array(range(ROWS), pa.int64()),
                "at": pa.array([T0 + (n * 7_919) % ROWS for n in range(ROWS)], pa.int64()),
                "text": pa.array(["x" * 50] * ROWS),
            }
        ),
        path,
        row_group_size=20_000,
    )
    return path


def command(table: Path, address: str, state: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "horolog", "spark", "bootstrap", "--table", str(table)),
        *("--target", address, "--topic", "t", "--time", "at", "--unit", "ms", "--key", "id"),
        *("--partitions", str(PARTITIONS), "--topic-set", "retention.ms=-1"),
        *("--state", str(state), "--conf", "spark.ui.enabled=false", *more),
    ]


def loaded(address: str) -> int:
    with Client(address) as client:
        if "t" not in client.metadata().topics:
            return 0
        ends = client.list_offsets({("t", number): LATEST for number in range(PARTITIONS)})
    return sum(0 if end is None else end.offset for end in ends.values())


def check(address: str) -> None:
    """Every row is there once, with its key and time, in the order of times."""
    seen: set[bytes] = set()
    with Client(address) as client:
        for number in range(PARTITIONS):
            end = client.list_offsets({("t", number): LATEST})["t", number]
            offset, last_ms = 0, 0
            while end is not None and offset < end.offset:
                fetched = client.fetch("t", number, offset, read_committed=True)
                pieces = Batches(fetched.records, offset, end.offset, None, fetched.aborted)
                for batch in pieces.walk():
                    for record in read_records(batch.data) if batch.is_visible else ():
                        assert record.key is not None
                        assert record.key not in seen
                        seen.add(record.key)
                        assert record.timestamp == T0 + (int(record.key) * 7_919) % ROWS
                        assert record.timestamp >= last_ms
                        last_ms = record.timestamp
                    offset = batch.header.next_offset
    assert len(seen) == ROWS


def test_a_load_that_is_killed_at_each_stage_ends_with_each_record_once(
    table: Path, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    state, address = tmp_path / "state", broker_process.address
    moments: list[Callable[[], bool]] = [
        lambda: any((state / "stage").glob("attempt-*/t-*/*.log")),
        (state / "staged.json").exists,
        lambda: loaded(address) > 0,
        lambda: loaded(address) > ROWS // 3,
    ]
    killed = 0
    for has_come in moments:
        process = subprocess.Popen(
            command(table, address, state),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ,
        )
        while process.poll() is None:
            if has_come():
                process.send_signal(signal.SIGKILL)
                killed += 1
        process.wait(PATIENCE_S)
        if process.returncode == 0:
            break  # it was quicker
    assert killed >= 3
    done = subprocess.run(
        command(table, address, state), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    check(address)
    assert not (state / "stage" / "log").exists()


def test_a_table_is_loaded_and_logs_are_indexed_and_converted_by_two_workers(
    table: Path, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    with cluster(tmp_path) as master:
        on_cluster = [
            *("--master", master, "--conf", "spark.cores.max=2", "--conf"),
            *("spark.executor.cores=1", "--conf", "spark.executor.memory=512m"),
        ]
        state = tmp_path / "state"
        done = subprocess.run(
            command(table, broker_process.address, state, *on_cluster),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        check(broker_process.address)
        with Client(broker_process.address) as client:
            client.create_topics({"plain": PARTITIONS}, configs={"retention.ms": "-1"})
            for number in range(PARTITIONS):
                for _ in range(100):
                    client.produce("plain", number, numbered_batch(100, T0))
        assert broker_process.terminate() == 0
        for index in broker_process.log_dir.glob("t-*/*.timeindex"):
            index.unlink()
        base = [sys.executable, "-m", "horolog", "spark"]
        path = str(broker_process.log_dir)
        # Loads are sent in transactions, which v1 does not have.
        plain = [path, "--topics", "plain"]
        for arguments in (
            ["index", path, "--rebuild", "--state", str(tmp_path / "index")],
            ["convert", *plain, "--to", "v1", "--state", str(tmp_path / "convert")],
            ["convert", *plain, "--to", "v2", "--state", str(tmp_path / "back")],
            ["index", path],
        ):
            done = subprocess.run(
                [*base, *arguments, *on_cluster], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (arguments, done.stdout, done.stderr[-3000:])
    broker_process.start_again()
    check(broker_process.address)
    with Client(broker_process.address) as client:
        for number in range(PARTITIONS):
            fetched = client.fetch("plain", number, 0)
            pieces = Batches(fetched.records, 0, 10_000, None, fetched.aborted)
            records = [record for batch in pieces.walk() for record in read_records(batch.data)]
            assert [record.offset for record in records] == [*range(10_000)]
