"""The jobs that ask about times, and reprocess, on a standalone cluster of two workers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from patience import PATIENCE_S
from running_broker import BrokerProcess
from spark_cluster import cluster

from horolog.client import Client, CommittedOffset
from horolog.record import LogRecord, build_batch

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOW_MS = 1_715_000_000_000
CONF = ("spark.cores.max=2", "spark.executor.cores=1", "spark.executor.memory=512m")


def produce(client: Client, times: list[int]) -> None:
    """Batches of 50 to three partitions in turn."""
    for place, start in enumerate(range(0, len(times), 50)):
        records = [LogRecord(each, None, b"v") for each in times[start : start + 50]]
        client.produce("t", place % 3, build_batch(records))


def test_two_workers_give_what_one_machine_gives(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    address = broker_process.address
    times = [NOW_MS + number for number in range(3_000)]
    times[1_500] += 86_400_000
    times[2_000] = NOW_MS // 1_000
    with Client(address) as client:
        client.create_topics({"t": 3}, configs={"retention.ms": "-1"})
        produce(client, times)
        client.offset_commit("g", {("t", number): CommittedOffset(500) for number in range(3)})

    with cluster(tmp_path) as master:

        def run(*arguments: object) -> Any:
            conf = [part for each in CONF for part in ("--conf", each)]
            done = subprocess.run(
                [sys.executable, "-m", "horolog", "spark", *map(str, arguments), "--master", master,
                 *conf, "--source", address, "--topics", "t", "--json"],
                capture_output=True, text=True, check=False, timeout=4 * PATIENCE_S,
            )  # fmt: skip
            assert done.stdout, done.stderr[-3_000:]
            return json.loads(done.stdout)

        cut = ("--set", "maxRecordsPerPartition=400")
        (audited,) = run("audit", *cut)["topics"]
        assert (audited["records"], audited["in_seconds"]) == (3_000, 1)
        # In the partition of the one that is a day ahead all that follow it are late.
        partition = [
            each
            for place, start in enumerate(range(0, len(times), 50))
            for each in times[start : start + 50]
            if place % 3 == (1_500 // 50) % 3
        ]
        ahead = partition.index(times[1_500])
        late = [each for each in partition[ahead + 1 :] if each != times[2_000]]
        assert audited["out_of_order"] == len(late)
        (measured,) = run("latency", *cut)["topics"]
        assert measured["measured"] == 2_999
        recorded = run("failover", "record", "--groups", "g", "--state", tmp_path / "failover")
        assert [each["unread"] for each in recorded["groups"]] == [1_500]
        done = run(
            "reprocess", "--from", NOW_MS + 1_000, "--table", tmp_path / "table", "--once",
            "--state", tmp_path / "state",
        )  # fmt: skip
        expected = sorted(each for each in times if each >= NOW_MS + 1_000)
        assert done["records"] == len(expected)
    table = pq.read_table(tmp_path / "table", columns=["timestampMs"])
    assert sorted(table.column(0).to_pylist()) == expected


def test_an_audit_that_follows_counts_on_two_workers_what_is_appended(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    address = broker_process.address
    conf = [part for each in CONF for part in ("--conf", each)]

    with Client(address) as client, cluster(tmp_path) as master:
        client.create_topics({"t": 3}, configs={"retention.ms": "-1"})
        with subprocess.Popen(
            [
                sys.executable, "-m", "horolog", "spark", "audit", "--follow", "--every", "1s",
                "--master", master, *conf, "--source", address, "--topics", "t", "--json",
                "--set", "maxRecordsPerPartition=100",
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as following:  # fmt: skip
            try:
                assert following.stdout is not None
                windows = [json.loads(following.stdout.readline())]
                assert windows[0]["topics"] == []
                produce(client, [NOW_MS + number for number in range(1_500)])
                while not windows[-1]["topics"]:
                    windows.append(json.loads(following.stdout.readline()))
                # In each partition later than all that the window before has read.
                produce(client, [NOW_MS - 1_000] * 600)
                following.send_signal(signal.SIGTERM)
                out, err = following.communicate(timeout=4 * PATIENCE_S)
            finally:
                if following.poll() is None:
                    os.killpg(following.pid, signal.SIGKILL)
    windows += [json.loads(line) for line in out.splitlines()]
    found = windows[-1]["topics"]
    assert [(each["records"], each["out_of_order"]) for each in found] == [(2_100, 600)], err
