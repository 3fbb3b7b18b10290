"""`horolog spark reprocess` and `horolog.jobs.reprocess`, record by record."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from patience import eventually
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from running_broker import BrokerProcess, MakeBroker, RunningBroker, a_broker

from horolog import jobs
from horolog.client import LATEST, Client
from horolog.errors import Misconfigured
from horolog.jobs.reprocessing.sinks import table_refusals
from horolog.jobs.reprocessing.windows import windowed
from horolog.record import LogRecord, build_batch
from horolog.sources import scan

pytestmark = pytest.mark.spark

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 1_715_000_000_000
ANY = {"message_timestamp_after_max_ms": str((1 << 63) - 1), "retention_ms": "-1"}


def produce(client: Client, times: Iterable[int], topic: str = "t", partitions: int = 2) -> None:
    """Records whose value says their time; a few in each batch."""
    times = list(times)
    for number, start in enumerate(range(0, len(times), 7)):
        records = [LogRecord(each, b"k", b"%d" % each) for each in times[start : start + 7]]
        client.produce(topic, number % partitions, build_batch(records))


def mixed_times(count: int, rng: random.Random) -> list[int]:
    """Around 1970 and now, in no order."""
    return [
        rng.choice([rng.randrange(-3 * DAY_MS, 3 * DAY_MS), NOW_MS - rng.randrange(DAY_MS), -1])
        for _ in range(count)
    ]


def in_table(spark: Any, path: Path) -> list[int]:
    return sorted(row.timestampMs for row in spark.read.parquet(str(path)).collect())


broker = a_broker("t", partitions=2, of_topics=ANY, now_ms=None)


@pytest.mark.parametrize("name", ["broker", pytest.param("files", marks=pytest.mark.slow)])
def test_a_table_gets_exactly_the_records_of_the_range_and_each_once(
    spark: Any, broker: RunningBroker, tmp_path: Path, name: str
) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    times = mixed_times(200, rng)
    from_ms, to_ms = -2 * DAY_MS, NOW_MS - HOUR_MS
    source = {"broker": broker.address, "files": str(broker.log_dir)}[name]
    runs = tmp_path / "runs"

    def due(some: list[int]) -> list[int]:
        return sorted(each for each in some if from_ms <= each < to_ms and each != -1)

    produce(broker.client, times)
    arguments: dict[str, Any] = {
        "source": source,
        "topics": "t",
        "from_": from_ms,
        "to": to_ms,
        "table": runs / "table",
        "state": runs / "state",
        "settings": {"maxOffsetsPerTrigger": "120"},
    }
    assert jobs.reprocess(spark, **arguments, dry_run=True).records == len(due(times))
    assert not runs.exists()
    done = jobs.reprocess(spark, **arguments)
    assert done.records == len(due(times)), f"seed {seed}"
    assert in_table(spark, runs / "table") == due(times), f"seed {seed}"
    assert jobs.reprocess(spark, **arguments).records == 0
    late = [*mixed_times(60, rng), from_ms, from_ms - 1, to_ms, to_ms - 1]
    produce(broker.client, late)
    ran = run_command(
        "spark", "reprocess", "--source", source, "--topics", "t", "--from", str(from_ms),
        "--to", f"{to_ms}", "--table", runs / "table", "--once",
        "--state", runs / "state", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.json["records"] == len(due(late))
    assert in_table(spark, runs / "table") == due(times + late)
    row = spark.read.parquet(str(runs / "table")).orderBy("timestampMs").first()
    assert bytes(row.value) == b"%d" % row.timestampMs
    assert (bytes(row.key), row.topic, row.timestampType) == (b"k", "t", 0)


def test_another_topic_gets_exactly_the_records_of_the_range(
    spark: Any, broker: RunningBroker, make_broker: MakeBroker, tmp_path: Path
) -> None:
    times = mixed_times(200, random.Random(3))
    due = sorted(each for each in times if each >= -DAY_MS and each != -1)
    other = make_broker()
    produce(broker.client, times)
    command = (
        "spark", "reprocess", "--source", broker.address, "--topics", "t", "--from", -DAY_MS,
        "--target", other.address, "--rename", "t=again", "--once",
    )  # fmt: skip
    dry = run_command(*command, "--dry-run")
    assert dry.code == 0, dry.err
    assert f"A run would write {len(due):,} records" in dry.out
    for expected in (len(due), 0):
        done = run_command(*command, "--state", tmp_path / "state", "--json")
        assert done.code == 0, done.err
        assert done.json["records"] == expected
    found = scan(other.client, "again").read_all()
    assert sorted(found.column("timestamp_ms").to_pylist()) == due


def windows(records: DataFrame) -> DataFrame:
    """The example of docs/pipeline.md."""
    return windowed(records, "1 hour", "7 days", F.count("*").alias("records"))


@pytest.mark.slow
def test_windows_of_event_time_count_records_before_1970_too(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    times = [each for each in mixed_times(300, random.Random(4)) if each < NOW_MS - 30 * DAY_MS]
    produce(broker.client, times)
    counted: dict[int, int] = {}

    def keep(frame: DataFrame, number: int) -> None:
        for row in frame.select(F.col("window.start").cast("long"), "records").collect():
            counted[row[0] * 1000] = row.records

    done = jobs.reprocess(
        spark,
        source=broker.address,
        topics="t",
        from_=-2 * DAY_MS,
        each_batch=keep,
        transform=windows,
        output_mode="update",
        state=tmp_path / "state",
        settings={"maxOffsetsPerTrigger": "100"},
    )
    due: dict[int, int] = {}
    for each in times:
        if each >= -2 * DAY_MS and each != -1:
            hour = each // HOUR_MS * HOUR_MS
            due[hour] = due.get(hour, 0) + 1
    assert counted == due
    assert min(due) < 0 < max(due)
    assert (done.records, done.batches > 1) == (sum(due.values()), True)


def test_a_function_of_a_module_gets_the_micro_batches(
    spark: Any, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker.client, [5, 6, 7])
    (tmp_path / "my_sink_of_batches.py").write_text(
        "seen = []\n"
        "def keep(frame, number):\n"
        "    seen.extend(sorted(row.timestampMs for row in frame.collect()))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = (
        "spark", "reprocess", "--source", broker.address, "--topics", "t", "--from", "6",
        "--once", "--state", tmp_path / "state", "--foreach-batch",
    )  # fmt: skip
    ran = run_command(*command, "my_sink_of_batches:keep")
    assert (ran.code, ran.out) == (0, "Reprocessed 2 records.\n")
    assert sys.modules["my_sink_of_batches"].seen == [6, 7]
    for named, sentence in (("my_sink", "write MODULE:FUNCTION"), ("os:none", "no attribute")):
        refused = run_command(*command, named)
        assert (refused.code, sentence in refused.err) == (2, True)


def test_what_makes_no_sense_is_refused(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    given: dict[str, Any] = {"source": broker.address, "topics": "t", "from_": 0}
    kept = {"state": tmp_path / "state"}
    with pytest.raises(Misconfigured, match="give one sink"):
        jobs.reprocess(spark, **given, **kept)
    with pytest.raises(Misconfigured, match="give one sink"):
        jobs.reprocess(spark, **given, **kept, table="a", target="b")
    with pytest.raises(Misconfigured, match="give --state DIR"):
        jobs.reprocess(spark, **given, table="a")
    with pytest.raises(Misconfigured, match="for records that go to topics"):
        jobs.reprocess(spark, **given, **kept, table="a", rename="a=b")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "other.parquet").write_bytes(b"")
    with pytest.raises(Misconfigured, match="is not empty"):
        jobs.reprocess(spark, **given, state=tmp_path / "other", table=tmp_path / "used")
    jobs.reprocess(spark, **given, **kept, table=tmp_path / "table")
    with pytest.raises(Misconfigured, match="another from"):
        jobs.reprocess(spark, **{**given, "from_": 1}, **kept, table=tmp_path / "table")
    same = run_command(
        "spark", "reprocess", "--source", broker.address, "--topics", "t", "--from", 0, "--once",
        "--target", broker.address, "--state", tmp_path / "loop",
    )  # fmt: skip
    assert same.code == 2, same.out + same.err


@pytest.mark.slow
def test_a_dry_run_says_what_table_function_and_state_would_refuse(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    produce(broker.client, [5, 6])
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "theirs").touch()
    file.touch()
    given: dict[str, Any] = {"source": broker.address, "topics": "t", "from_": 0}

    def refused(**more: Any) -> str:
        done = jobs.reprocess(spark, **given, **{"state": tmp_path / "s", **more}, dry_run=True)
        assert (done.records, bool(done.errors)) == (2, True)
        (sentence,) = done.errors
        with pytest.raises(Misconfigured) as run:
            jobs.reprocess(spark, **given, **{"state": tmp_path / "s", **more})
        assert str(run.value) == sentence
        assert not (tmp_path / "s").exists()
        return sentence

    def twice(records: DataFrame) -> DataFrame:
        return records.select("offset", F.col("partition").alias("Offset"))

    def untyped(records: DataFrame) -> DataFrame:
        return records.select(F.array(F.lit(None)).alias("nothing"))

    table = tmp_path / "table"
    assert "is not empty, and this is the first run" in refused(table=full)
    assert f"{file} is no directory" in refused(table=file)
    assert f"{file} is no directory" in refused(table=file / "below")
    assert "keep them apart" in refused(table=tmp_path / "s" / "table")
    assert "only, not update" in refused(table=table, output_mode="update")
    assert "has it 2 times" in refused(table=table, transform=twice)
    assert "column nothing, which is void" in refused(table=table, transform=untyped)
    assert "takes no DataFrame and number" in refused(each_batch=lambda frame: None)
    assert "is no state directory: it holds theirs" in jobs.reprocess(
        spark, **given, table=table, state=full, dry_run=True
    ).errors[0]  # fmt: skip
    command = (
        "spark", "reprocess", "--source", broker.address, "--topics", "t", "--from", 0, "--table",
    )  # fmt: skip
    said = run_command(*command, full, "--dry-run")
    assert (said.code, "is not empty" in said.err, "would write 2" in said.out) == (1, True, True)
    assert jobs.reprocess(spark, **given, table=table, state=tmp_path / "s").records == 2
    again = run_command(*command, table, "--state", tmp_path / "s", "--dry-run")
    assert again.code == 0, again.err
    other = run_command(*command, tmp_path / "two", "--state", tmp_path / "s", "--dry-run")
    assert (other.code, "the state of a run with another table" in other.err) == (1, True)


def test_a_relative_time_stays_what_it_was_at_the_first_run(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "source": broker.address,
        "topics": "t",
        "from_": "-1h",
        "table": tmp_path / "table",
        "state": tmp_path / "state",
    }
    first, second = (jobs.reprocess(spark, **given).from_ms for _ in range(2))
    assert first == second


KEEP = """
import json, os

def keep(frame, number):
    rows = [[row.partition, row.offset, row.timestampMs] for row in frame.collect()]
    with open(f"out/{number}.new", "w") as file:
        json.dump(rows, file)
    os.replace(f"out/{number}.new", f"out/{number}.json")
"""


class Sink:
    """Where a killed run writes, what is there of it, and which records that is."""

    def __init__(self, name: str, directory: Path, address: str) -> None:
        self.name, self.directory, self.address = name, directory, address
        (directory / "out").mkdir()
        (directory / "my_sink.py").write_text(KEEP)
        self.options = {
            "table": ["--table", str(directory / "out" / "table")],
            "function": ["--foreach-batch", "my_sink:keep"],
            "topic": ["--target", address, "--rename", "t=again"],
        }[name]

    def grown(self) -> int:
        """A number that grows while it is written to."""
        if self.name != "topic":
            return sum(1 for each in (self.directory / "out").rglob("*") if each.is_file())
        with Client(self.address) as client:
            if "again" not in client.metadata().topics:
                return 0
            ends = client.list_offsets({("again", number): LATEST for number in range(2)})
            return sum(each.offset for each in ends.values() if each is not None)

    def records(self, spark: Any) -> list[tuple[int, int]]:
        """The partition and the time of each record, in order."""
        if self.name == "function":
            found = [
                (partition, time_ms)
                for each in (self.directory / "out").glob("*.json")
                for partition, _, time_ms in json.loads(each.read_text())
            ]
        elif self.name == "table":
            rows = spark.read.parquet(str(self.directory / "out" / "table")).collect()
            found = [(row.partition, row.timestampMs) for row in rows]
        else:
            with Client(self.address) as client:
                table = scan(client, "again").read_all()
            columns = ("partition", "timestamp_ms")
            found = [*zip(*(table.column(name).to_pylist() for name in columns), strict=True)]
        return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table", "function", "topic"])
def test_runs_killed_as_they_write_lose_and_double_nothing(
    spark: Any, broker_process: BrokerProcess, tmp_path: Path, name: str
) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    times = [NOW_MS + each for each in rng.sample(range(DAY_MS), 20_000)]
    broker_process.client.create_topics({"t": 2}, configs={"retention.ms": "-1"})
    produce(broker_process.client, times)
    due = sorted(
        (place // 7 % 2, each) for place, each in enumerate(times) if each >= NOW_MS + HOUR_MS
    )
    sink = Sink(name, tmp_path, broker_process.address)
    command = [
        sys.executable, "-m", "horolog", "spark", "reprocess", "--source", broker_process.address,
        "--topics", "t", "--from", str(NOW_MS + HOUR_MS), *sink.options,
        "--state", str(tmp_path / "state"), "--once", "--json", "--master", "local[2]",
        "--set", "maxOffsetsPerTrigger=1500", "--conf", "spark.ui.enabled=false",
    ]  # fmt: skip
    kills = 0
    for _ in range(3):
        before = sink.grown()
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path,
            start_new_session=True,
        ) as process:  # fmt: skip
            assert eventually(lambda: process.poll() is not None or sink.grown() > before)  # noqa: B023 - called at once
            time.sleep(rng.uniform(0, 1.5))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
    last = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert last.returncode == 0, last.stderr[-2000:]
    assert json.loads(last.stdout)["errors"] == []
    assert kills > 0
    assert sink.records(spark) == due, f"seed {seed}"


def test_the_example_of_the_page_is_the_one_tested_here() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    assert 'windowed(records, "1 hour", "7 days", F.count("*").alias("records"))' in page


@pytest.mark.parametrize("is_there", [True, False])
def test_a_table_that_was_lost_since_it_was_filled_is_refused(
    tmp_path: Path, is_there: bool
) -> None:
    (tmp_path / "state/checkpoint/commits").mkdir(parents=True)
    (tmp_path / "state/checkpoint/commits/0").touch()
    (tmp_path / "table" / ("_spark_metadata" if is_there else "")).mkdir(parents=True)
    found = list(
        table_refusals(str(tmp_path / "table"), "append", tmp_path / "state", is_begun=True)
    )
    assert found == [] if is_there else "removed or created again since" in found[0]
