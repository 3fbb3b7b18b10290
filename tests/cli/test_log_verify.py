"""`horolog log verify` and `horolog log reindex` as their users meet them."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from command_runner import Run, run_command
from damage import NO_FILES
from running_broker import NOW_MS, MakeBroker, RunningBroker
from stored import metadata_dir, opened_store, spoil_state

from horolog.metadata import state
from horolog.record import iter_headers


@pytest.fixture
def kafkas(golden: Path, tmp_path: Path) -> Path:
    """A copy of a directory that Apache Kafka left."""
    for name in ("index-all-0", "out-of-order-0"):
        shutil.copytree(golden / "clean" / name, tmp_path / "kafka" / name)
    return tmp_path / "kafka"


def test_what_is_sound_is_said_to_be(offline: Run, golden: Path) -> None:
    seen = offline("log", "verify", golden / "clean")
    assert seen.code == 0
    assert seen.lines[-1].startswith("36 partitions, 76 segments, 670 batches, 2848 records")
    assert "closed cleanly" in seen.lines[-1]


def test_what_is_wrong_is_said_with_its_place_and_how_to_mend_it(
    offline: Run, kafkas: Path
) -> None:
    index = kafkas / "index-all-0" / "00000000000000000027.timeindex"
    index.unlink()
    log = kafkas / "out-of-order-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    partitions = [kafkas / "index-all-0", kafkas / "out-of-order-0"]
    shown = [offline("log", "verify", each) for each in partitions]
    assert [each.code for each in shown] == [1, 1]
    assert "The index is missing" in shown[0].out
    assert f"horolog log reindex {index.with_suffix('.log')}" in shown[0].out
    assert shown[1].out.startswith(
        "DAMAGE  out-of-order-0/00000000000000000000.log, byte 70, offset 1\n"
    )
    told = offline("log", "verify", partitions[1], "--json").json
    assert (told["ok"], told["segments"]) == (False, 4)
    (damage,) = [each for each in told["findings"] if each["severity"] == "damage"]
    assert (damage["path"], damage["position"], damage["offset"]) == (str(log), 70, 1)


def test_the_metadata_store_is_checked_with_its_log_directory(
    offline: Run, make_broker: MakeBroker
) -> None:
    broker = make_broker()
    broker.create_topic("t")
    seen = offline("log", "verify", broker.log_dir)
    assert (seen.code, "in use" in seen.lines[-1]) == (0, True)
    broker.stop()
    with opened_store(broker.log_dir) as store:
        (row,) = store.load().topics
        store.put_topic(row._replace(partitions=3))
    seen = offline("log", "verify", broker.log_dir)
    assert seen.code == 1
    assert "t is stored with 3 partitions, and the directories of t-1, t-2 are gone" in seen.out
    spoil_state(broker.log_dir, state.SOURCE)
    log = next(metadata_dir(broker.log_dir).glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    seen = offline("log", "verify", broker.log_dir)
    assert seen.code == 1
    assert "The checksum of the batch" in seen.out


def test_a_path_without_a_log_is_misuse(offline: Run, tmp_path: Path) -> None:
    for command in ("verify", "reindex"):
        refused = offline("log", command, tmp_path)
        assert refused.code == 2
        assert "is not a log directory" in refused.err


def test_indexes_are_rebuilt_by_the_command_that_verify_names(offline: Run, kafkas: Path) -> None:
    partition = kafkas / "index-all-0"
    wrong = partition / "00000000000000000027.index"
    kept = wrong.read_bytes()
    wrong.write_bytes(b"\xff" * 16)
    planned = offline("log", "reindex", partition, "--dry-run", "--json")
    assert planned.code == 0
    assert wrong.read_bytes() == b"\xff" * 16
    assert [each["path"] for each in planned.json["reindexed"]] == [str(wrong.with_suffix(".log"))]
    mended = offline("log", "reindex", partition, "--index-interval-bytes", 0)
    assert mended.code == 0
    assert f"wrote {wrong.name}" in mended.out
    assert "the indexes of 1 rebuilt" in mended.lines[-1]
    assert wrong.read_bytes() == kept
    assert offline("log", "verify", partition).code == 0


def test_what_cannot_be_rebuilt_is_left_and_reported(
    offline: Run, golden: Path, tmp_path: Path
) -> None:
    partition = tmp_path / "index-all-0"
    shutil.copytree(golden / "clean" / "index-all-0", partition)
    log = min(partition.glob("*.log"))
    log.write_bytes(log.read_bytes()[:70] + b"?" + log.read_bytes()[71:])
    refused = offline("log", "reindex", log, "--all")
    assert refused.code == 1
    assert "its log is damaged" in refused.out
    assert refused.err == ""
    told = offline("log", "reindex", log, "--all", "--json")
    assert told.code == 1
    assert not told.json["ok"]
    assert "its log is damaged" in told.err


@pytest.mark.parametrize("name", ["v0-none-0", "v1-gzip-0", "mixed-0"])
def test_indexes_of_old_formats_are_rebuilt(
    offline: Run, golden: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(golden / "old-formats" / name, tmp_path / name)
    for suffix in (".index", ".timeindex"):
        for index in (tmp_path / name).glob(f"*{suffix}"):
            index.unlink()
    assert offline("log", "verify", tmp_path / name).code == 1
    assert offline("log", "reindex", tmp_path / name).code == 0
    assert offline("log", "verify", tmp_path / name).code == 0


def test_while_a_broker_runs_verify_reads_and_reindex_refuses(
    horolog: Run, broker: RunningBroker, offline: Run
) -> None:
    assert horolog("produce", "verified", stdin="one\ntwo\n").code == 0
    told = json.loads(offline("log", "verify", broker.log_dir, "--json").out)
    assert told["ok"], told["findings"]
    assert told["state"] == "in use"
    refused = offline("log", "reindex", broker.log_dir)
    assert refused.code == 2
    assert ".lock is locked: a broker is at work" in refused.err


def test_what_recovery_set_aside_comes_back_by_the_command_that_verify_names(
    offline: Run, tmp_path: Path
) -> None:
    """With keys, values, headers, times and partition, at new offsets."""
    with RunningBroker(tmp_path / "log", {"log.retention.ms": "-1"}) as broker:
        broker.create_topic("t", partitions=2, segment_bytes="1048576")
        at = {"HOROLOG_BOOTSTRAP": broker.address}
        for n in range(6):
            line = {"key": f"k{n}", "value": f"v{n}", "timestamp": NOW_MS + n, "partition": 1}
            line["headers"] = [{"key": "h", "value": str(n)}]
            sent = run_command(
                "produce", "t", "--format", "json", stdin=json.dumps(line) + "\n", **at
            )
            assert sent.code == 0, sent.err
        before = consumed(at)
        broker.stop()
        (tmp_path / "log" / ".kafka_cleanshutdown").unlink()
        (tmp_path / "log" / "recovery-point-offset-checkpoint").unlink()
        log = tmp_path / "log" / "t-1" / "00000000000000000000.log"
        data = bytearray(log.read_bytes())
        (_, _), (position, _), *_ = iter_headers(bytes(data))
        data[position + 65] ^= 1
        log.write_bytes(data)
        broker.restart()
        at = {"HOROLOG_BOOTSTRAP": broker.address}
        assert len(consumed(at)) == 1
        (finding,) = [
            each
            for each in offline("log", "verify", tmp_path / "log", "--json").json["findings"]
            if each["path"].endswith(".cut")
        ]
        assert finding["severity"] == "fault"
        command = re.search("`(horolog .*) \\| (horolog .*)`", finding["mend"])
        assert command is not None
        _, *inspect = shlex.split(command[1])
        _, *produce = shlex.split(command[2])
        told = offline(*inspect)
        assert told.code == 0, told.err
        sent = run_command(*produce, stdin=told.out, **at)
        assert sent.code == 0, sent.err
        after = consumed(at)
        assert [each["offset"] for each in after] == [0, 1, 2, 3, 4]
        lost = {"key": "k1"}
        assert [{**each, "offset": 0} for each in after] == [
            {**each, "offset": 0} for each in before if each["key"] != lost["key"]
        ]


def consumed(at: dict[str, str]) -> list[dict[str, object]]:
    shown = run_command("consume", "t", "--format", "json", **at)
    assert shown.code == 0, shown.err
    return [json.loads(line) for line in shown.out.splitlines()]


@pytest.mark.parametrize("how", NO_FILES)
def test_what_is_no_file_stops_no_command_and_hides_no_neighbour(
    offline: Run, make_broker: MakeBroker, how: str, tmp_path: Path
) -> None:
    broker = make_broker(log_dir=tmp_path / "outer" / "log")
    broker.create_topic("a")
    broker.create_topic("b")
    broker.stop()
    log = broker.log_dir / "a-0" / f"{0:020d}.log"
    NO_FILES[how](log)
    (broker.log_dir / "linked-0").symlink_to(broker.log_dir / "b-0")
    for command in (("verify",), ("inspect",), ("inspect", "--records"), ("reindex", "--all")):
        seen = offline("log", *command, broker.log_dir)
        assert seen.code == 1, seen
        assert str(log) in seen.out + seen.err
    assert "b-0" in offline("log", "inspect", broker.log_dir).out
    assert "linked-0" not in offline("log", "inspect", broker.log_dir).out
    outside = tmp_path / "outer" / f"outside-{log.name}"
    assert outside.exists() == (how == "link-outside")
    assert not outside.exists() or outside.read_bytes() == b""
