"""What works on the base install, which has no pyarrow."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

from partition_files import PartitionFiles
from running_broker import MakeBroker

from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch

T0 = 1_700_000_000_000


def run_without_pyarrow(code: str) -> str:
    """What a process prints in which pyarrow cannot be imported."""
    blocked = "import sys\nsys.modules['pyarrow'] = None\n" + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", blocked], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_and_its_planners_are_imported_without_pyarrow() -> None:
    run_without_pyarrow("import horolog.sources, horolog.sources.planning")


def test_a_path_in_an_object_store_says_what_to_install() -> None:
    said = run_without_pyarrow(
        """
        from horolog.errors import Misconfigured
        from horolog.sources import Root
        from horolog.sources.uris import LogPath
        try:
            Root(LogPath.parse("s3://a:secret@logs/kafka"))
        except Misconfigured as error:
            print(error)
        """
    )
    assert "pip install 'horolog[arrow]'" in said
    assert "secret" not in said


def run_command_without_pyarrow(*args: object) -> str:
    """What `horolog ARGS...` prints in a process in which pyarrow cannot be imported."""
    argv = ["horolog", *map(str, args)]
    return run_without_pyarrow(f"sys.argv = {argv!r}\nfrom horolog.cli import main\nmain()")


def test_files_and_brokers_are_read_and_replayed_by_commands(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    files = PartitionFiles(tmp_path / "log", "clicks", 0, base_offset=0)
    files.add([T0, T0 + 10])
    files.add([T0 + 5], producer_id=5)
    files.end_transaction(5, commit=True)
    files.write_indexes()
    broker = make_broker()
    broker.create_topic("clicks", retention_ms="-1")
    within = ("--from-time", f"{T0 + 5}ms", "--to-time", f"{T0 + 10}ms", "--format", "json")
    (line,) = run_command_without_pyarrow("consume", tmp_path / "log", *within).splitlines()
    assert json.loads(line)["offset"] == 2
    to = ("--target", broker.address, "--speed", "max", "--state", tmp_path / "state")
    said = run_command_without_pyarrow("replay", "--source", tmp_path / "log", *to)
    assert said.startswith("3 records sent")
    topic = ("consume", "clicks", "-b", broker.address)
    assert len(run_command_without_pyarrow(*topic).splitlines()) == 3
    (line,) = run_command_without_pyarrow(*topic, *within).splitlines()
    assert json.loads(line)["timestamp"] == T0 + 5


def test_logs_are_cut_and_read_as_of_a_time_by_commands(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    clock = ManualClock(T0)
    broker = make_broker(clock=clock)
    broker.create_topic("clicks")
    for _ in range(2):
        broker.append("clicks", build_batch([LogRecord(T0, None, b"v")]))
        clock.step("1s")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    for where in (["-b", broker.address], [broker.log_dir]):
        output, at = tmp_path / "cut.json", f"{T0 + 1000}ms"
        said = run_command_without_pyarrow("cut", "--at", at, "-o", output, *where)
        assert "1 partition at" in said
        assert json.loads(output.read_text())["partitions"][0]["offset"] == 1
        topic = ["clicks", *where] if "-b" in where else where
        lines = run_command_without_pyarrow("consume", *topic, "--as-of", output).splitlines()
        assert len(lines) == 1
    group = ("groups", "reset", "g", "--topics", "clicks", "-b", broker.address)
    said = run_command_without_pyarrow(*group, "--as-of", at)
    assert said.startswith("g reset to")
