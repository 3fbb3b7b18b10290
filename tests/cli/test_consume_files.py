"""Records of files, read without a broker: as the broker would return them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_runner import Ran, Run, run_command
from log_reading import bytes_read_by
from running_broker import ANY_TIME, RunningBroker, a_broker
from s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from storelogs import NOW, append, new_log, partition_dir

from horolog.clock import ManualClock
from horolog.config import TopicConfig
from horolog.record import Codec, LogRecord, build_batch
from horolog.sources import ReadPlan, RecordLog

MINUTE = 60_000


def fill(broker: RunningBroker) -> None:
    """Out of order, with late and missing times, in three segments of two topics."""
    broker.create_topic("clicks", 2, **ANY_TIME)
    broker.create_topic("stamped", 1, message_timestamp_type="LogAppendTime", retention_ms="-1")
    for number in range(12):
        now = broker.clock.now_ms()
        times = (now, now - 5 * MINUTE, -1, now - 3, -5_000)
        for partition in (0, 1):
            codec = (Codec.NONE, Codec.ZSTD)[number % 2]
            records = [LogRecord(time, b"k", b"%d" % number) for time in times[partition:]]
            broker.client.produce("clicks", partition, build_batch(records, codec=codec))
        broker.client.produce("stamped", 0, build_batch([LogRecord(now - MINUTE, None, b"s")]))
        if number % 5 == 4:
            broker.roll("clicks")
        broker.clock.advance("1m")
    broker.delete_records("clicks", 3)
    broker.restart()  # so that the log start is in its checkpoint


broker = a_broker(prepare=fill)


@pytest.fixture
def consume(broker: RunningBroker) -> Run:
    def run(*args: object) -> Ran:
        return run_command("consume", *args, HOROLOG_BOOTSTRAP=broker.address)

    return run


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--format", "json"],
        ["--format", "value", "-n", 7],
        ["--partition", 1, "--offset", 10],
        ["--from-time", "{5}", "--to-time", "{6}", "--format", "json"],
        ["--from-time", "{3}"],
        ["--to-time", "{1}"],
        ["--to-time", "1970-01-01T00:00Z"],
        ["--from-time", "{99}"],
        ["--clock", "append", "--format", "json"],
        ["--clock", "append", "--from-time", "{5}", "--to-time", "{6}", "--format", "json"],
        ["--clock", "append", "--from-time", "{9}", "--tz", "Europe/Berlin"],
    ],
    ids=str,
)
def test_files_hold_what_their_broker_returns(
    consume: Run, broker: RunningBroker, clock: ManualClock, options: list[object]
) -> None:
    start = clock.now_ms() - 12 * MINUTE
    args = [str(each) for each in options]
    for number in range(100):
        moment = f"{start + number * MINUTE - 2}ms"
        args = [each.replace(f"{{{number}}}", moment) for each in args]
    every = "-p" not in args and "--partition" not in args
    for topic in ("clicks", "stamped") if every else ("clicks",):
        from_broker = consume(topic, *args)
        paths = [broker.log_dir / f"{topic}-{n}" for n in range(2 if topic == "clicks" else 1)]
        if not every:
            paths = [broker.log_dir / "clicks-1"]
        from_files = [consume(path, *args) for path in paths]
        assert {each.code for each in from_files} == {from_broker.code} == {0}
        lines = [line for each in from_files for line in each.lines]
        if "-n" in args:
            assert lines[:7] == from_broker.lines
        else:
            assert sorted(lines) == sorted(from_broker.lines)


def test_a_log_directory_has_the_topic_on_each_line(consume: Run, broker: RunningBroker) -> None:
    lines = consume(broker.log_dir).lines
    of_topic = {line.split("\t")[0] for line in lines}
    assert of_topic == {"clicks", "stamped"}
    as_json = [json.loads(line) for line in consume(broker.log_dir, "--format", "json").lines]
    assert len(as_json) == len(lines)
    assert {each["topic"] for each in as_json} == {"clicks", "stamped"}


def test_one_segment_is_read_alone(consume: Run, broker: RunningBroker) -> None:
    first, *_, last = sorted((broker.log_dir / "clicks-0").glob("*.log"))
    whole = consume("clicks", "-p", 0).lines
    assert consume(last).lines == whole[-len(consume(last).lines) :]
    assert consume(first).lines == whole[: len(consume(first).lines)]
    assert len(consume(first).lines) == 5 * 5 - 3, "the log start offset counts"


def test_a_directory_of_segments_is_read_whatever_its_name(
    consume: Run, broker: RunningBroker
) -> None:
    whole = consume("clicks", "-p", 1, "--format", "json").lines
    (broker.log_dir / "clicks-1").rename(broker.log_dir / "backup")
    for path in (broker.log_dir / "backup", *(broker.log_dir / "backup").glob("*.log")):
        found = [json.loads(line) for line in consume(path, "--format", "json").lines]
        assert {(each["topic"], each["partition"]) for each in found} == {("backup", 0)}
        here = {"topic": "backup", "partition": 0}
        assert found == [{**json.loads(line), **here} for line in whole]


def test_logs_of_apache_kafka_are_read_in_every_format(golden: Path) -> None:
    for name in ("clean", "old-formats"):
        found = run_command("consume", golden / name, "--format", "json").lines
        inspected = run_command("log", "inspect", golden / name, "--records", "--json").lines
        looks = [
            json.loads(each)
            for each in run_command("log", "inspect", golden / name, "--json").lines
        ]
        starts = {look["partition"]: look["log_start_offset"] or 0 for look in looks[0]}
        expected = []
        for line in inspected:
            record = json.loads(line)
            record.pop("append_time")
            start = starts[f"{record['topic']}-{record['partition']}"]
            if not record["topic"].startswith("__") and record["offset"] >= start:
                expected.append(record)
        assert [json.loads(line) for line in found] == expected
        assert len(found) > 900


def test_of_a_range_only_its_blocks_are_read(tmp_path: Path) -> None:
    config = TopicConfig(message_timestamp_after_max_ms=1 << 62)
    with new_log(tmp_path, config) as log:
        for number in range(120):
            append(log, NOW + number * MINUTE, value=bytes(40_000), now=NOW + number * MINUTE)
        append(log, NOW + 30 * MINUTE, value=b"late", now=NOW + 120 * MINUTE)
        for clock in ("create", "append"):
            for first in (0, 30, 110):
                times = f"{NOW + first * MINUTE}ms", f"{NOW + (first + 1) * MINUTE}ms"
                args = ("--from-time", times[0], "--to-time", times[1], "--clock", clock)
                found: list[Ran] = []
                run_command("consume", tmp_path, *args)
                read = bytes_read_by(
                    lambda args=args, found=found: found.append(
                        run_command("consume", partition_dir(tmp_path), *args)
                    )
                )
                late = clock == "create" and first == 30
                assert len(found[0].lines) == 1 + late
                assert read < 40_000 * 30


def test_what_has_no_append_time_is_in_no_range_of_append_times(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW, now=NOW)
    for path in partition_dir(tmp_path).glob("*.companion"):
        path.unlink()
    everything = run_command("consume", tmp_path, "--clock", "append", "--format", "json")
    assert json.loads(everything.out)["append_time"] is None
    ranged = run_command("consume", tmp_path, "--clock", "append", "--from-time", "0ms")
    assert (ranged.code, ranged.lines) == (0, [])


@pytest.mark.parametrize(
    ("args", "code", "complaint"),
    [
        (["{dir}", "--follow"], 2, "--follow needs a broker"),
        (["{dir}", "--from-end"], 2, "--from-end needs a broker"),
        (["{dir}/nowhere"], 2, "there is no"),
        (["{dir}", "-p", "9"], 1, "has no partition 9"),
        (["{dir}/clicks-0", "--offset", "999"], 1, "clicks-0 has no offset 999"),
        (["{dir}/clicks-0", "--offset", "2"], 1, "it has 3 up to 60"),
        (["{dir}/meta.properties"], 2, "There is no Kafka log at"),
    ],
)
def test_misuse_is_refused(
    consume: Run, broker: RunningBroker, args: list[str], code: int, complaint: str
) -> None:
    refused = consume(*(each.replace("{dir}", str(broker.log_dir)) for each in args))
    assert complaint in refused.err
    assert refused.code == code


def test_damage_hides_nothing_before_it_and_no_other_partition(
    consume: Run, broker: RunningBroker
) -> None:
    whole = consume("clicks").lines
    broker.stop()
    log = sorted((broker.log_dir / "clicks-0").glob("*.log"))[1]
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    found = consume(broker.log_dir, "--format", "text")
    assert found.code == 1
    assert "crc" in found.err
    printed = [line.removeprefix("clicks\t") for line in found.lines if line.startswith("clicks")]
    assert printed == [line for line in whole if "\t1@" in line or int(place(line)) < 25]
    assert any(line.startswith("stamped") for line in found.lines)


def place(line: str) -> str:
    return line.split("\t")[1].split("@")[1]


def test_a_segment_that_a_broker_deletes_meanwhile_hides_no_later_one(
    consume: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = RecordLog.plan

    def deleted_meanwhile(log: RecordLog, *args: Any) -> ReadPlan:
        planned = plan(log, *args)
        min((broker.log_dir / "clicks-0").glob("*.log")).unlink()
        return planned

    whole = consume("clicks", "-p", 0).lines
    monkeypatch.setattr(RecordLog, "plan", deleted_meanwhile)
    found = consume(broker.log_dir / "clicks-0")
    assert found.code == 0
    assert "was deleted before it was read; reading what is left\n" in found.err
    assert found.lines == [line for line in whole if int(place(line)) >= 25]


def test_a_log_in_an_object_store_is_read_as_on_disk(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ACCESS_KEY_ID", ACCESS_KEY), ("SECRET_ACCESS_KEY", SECRET_KEY)):
        monkeypatch.setenv(f"AWS_{name}", value)
    start = clock.now_ms() - 12 * MINUTE
    times = "--from-time", f"{start + 5 * MINUTE}ms", "--to-time", f"{start + 7 * MINUTE}ms"
    with S3Server() as s3:
        s3.upload(broker.log_dir, "logs/kafka")
        found = s3.options()
        at = [f"--set={name}={found[name]}" for name in found if not name.endswith(".key")]
        for options in ((), times, (*times, "--clock", "append")):
            on_disk = run_command("consume", broker.log_dir, *options)
            assert len(on_disk.lines) > 5
            assert run_command("consume", "s3://logs/kafka", *at, *options) == on_disk
        damaged = next(n for n in sorted(s3.objects) if n.endswith(".log") and "clicks" in n)
        content = bytearray(s3.objects[damaged])
        content[70] ^= 1
        s3.objects[damaged] = bytes(content)
        refused = run_command("consume", "s3a://logs/kafka/clicks-0", *at)
        assert refused.code == 1
        assert "crc" in refused.err
        nowhere = run_command("consume", "s3://logs/nowhere", *at)
        denied = run_command("consume", "s3://user:hush-hush@logs/kafka", *at)
    assert nowhere.code == 2
    assert "There is no path s3://logs/nowhere" in nowhere.err
    assert denied.code == 1
    assert "hush-hush" not in denied.err
    followed = run_command("consume", "s3://logs/kafka", "-f")
    assert followed.code == 2
    assert "--follow needs a broker" in followed.err
