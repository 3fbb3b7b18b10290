"""`horolog log convert`, as a user sees it."""

import json
import shutil
from pathlib import Path

import pytest
from command_runner import Run
from running_broker import RunningBroker

from golden import answers


@pytest.fixture
def partition(golden: Path, tmp_path: Path) -> Path:
    shutil.copytree(golden / "old-formats" / "mixed-0", tmp_path / "mixed-0")
    return tmp_path / "mixed-0"


def shown(offline: Run, partition: Path) -> list[dict]:
    return [
        json.loads(line)
        for line in offline("log", "inspect", partition, "--records", "--json").lines
    ]


def test_a_log_is_converted_there_and_back(offline: Run, partition: Path) -> None:
    before = shown(offline, partition)
    assert len(before) == len(answers("old-formats")["mixed-0"]["records"])
    done = offline("log", "convert", partition, "--to", "v2")
    assert done.code == 0
    assert "records written anew in v2" in done.out
    assert done.lines[-1] == "2 segments, 2 converted to v2, 0 left as they are"
    assert "v0" not in offline("log", "inspect", partition).out
    assert offline("log", "verify", partition).code == 0
    after = shown(offline, partition)
    keys = ("offset", "timestamp", "key", "value")
    assert [[row[key] for key in keys] for row in after] == [
        [row[key] for key in keys] for row in before
    ]
    told = offline("log", "convert", partition, "--to", "v1", "--json").json
    assert (told["ok"], told["format"], len(told["converted"])) == (True, "v1", 2)
    assert told["lost"]["headers"] == 0
    assert offline("log", "convert", partition, "--to", "v1").lines == [
        "2 segments, 0 converted to v1, 0 left as they are"
    ]
    lossy = offline("log", "convert", partition, "--to", "v0")
    assert "v0 has no place for" in lossy.out
    assert offline("log", "verify", partition).code == 0


def test_what_the_format_has_no_place_for_is_named(
    offline: Run, golden: Path, tmp_path: Path
) -> None:
    for name in ("client-zstd-0", "transactions-0"):
        shutil.copytree(golden / "clean" / name, tmp_path / name)
    refused = offline("log", "convert", tmp_path / "client-zstd-0", "--to", "v1")
    assert refused.code == 1
    assert "zstd" in refused.out
    done = offline("log", "convert", tmp_path / "client-zstd-0", "--to", "v1", "--zstd-as", "lz4")
    assert done.code == 0
    assert "headers of records" in done.out
    refused = offline("log", "convert", tmp_path / "transactions-0", "--to", "v1")
    assert refused.code == 1
    assert "part of a transaction" in refused.out


def test_it_refuses_while_a_broker_runs(horolog: Run, broker: RunningBroker, offline: Run) -> None:
    assert horolog("produce", "converted", stdin="one\ntwo\n").code == 0
    refused = offline("log", "convert", broker.log_dir, "--to", "v1")
    assert refused.code != 0
    assert "a broker is at work in this directory" in refused.err
