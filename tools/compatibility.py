"""docs/compatibility.md, from runs of the clients' tests.

    python tools/compatibility.py             run what can be run here, record it, make the page
    python tools/compatibility.py --python    only the Python clients; the others keep their outcome
    python tools/compatibility.py --page      only make the page, from what was recorded

The Java client, Kafka's tools, franz-go, KafkaJS and kcat need `make peers`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.compatibility_page import page
from tools.peers.kafka import PEERS, Kafka

PAGE = ROOT / "docs/compatibility.md"
RUNS = ROOT / "tests/compatibility/runs.json"
PYTHON_TESTS = ("tests/clients", "tests/compatibility/test_more_of_python_clients.py")
PEER_TESTS = (
    "tests/interop/test_interop_clients.py",
    "tests/interop/test_interop_more.py",
    "tests/interop/test_interop_tools.py",
)


def run(tests: Sequence[str]) -> dict[str, str]:
    """The outcome of every test in these files: passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *tests]
        subprocess.run(command, cwd=ROOT, check=False)
        cases = ElementTree.parse(report).getroot().iter("testcase")
        return {_test_id(case): _outcome(case) for case in cases}


def _test_id(case: ElementTree.Element) -> str:
    path = case.attrib["classname"].replace(".", "/") + ".py"
    return f"{path}::{case.attrib['name']}"


def _outcome(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def python_versions() -> dict[str, str]:
    """What was installed while the Python clients were run."""
    import confluent_kafka  # noqa: PLC0415 - only a run needs it

    librdkafka, _ = confluent_kafka.libversion()
    return {
        "kafka-python": metadata.version("kafka-python"),
        "aiokafka": metadata.version("aiokafka"),
        "confluent-kafka": f"{metadata.version('confluent-kafka')}, librdkafka {librdkafka}",
        "Python": platform.python_version(),
    }


def peer_versions() -> dict[str, str]:
    """What was fetched and installed while the other clients were run."""
    clients = ROOT / "tests/interop/clients"
    franz = re.search(r"franz-go (v\S+)", (clients / "go/go.mod").read_text())
    node = json.loads((clients / "node/package.json").read_text())["dependencies"]
    assert franz is not None
    (jar,) = (PEERS / "kafka-4").glob("kafka-clients-*.jar")
    return {
        "Java": f"kafka-clients {jar.stem.removeprefix('kafka-clients-')}",
        "franz-go": franz[1],
        "KafkaJS": node["kafkajs"],
        "kcat": _kcat_version(),
        "JVM": _first_line("java", "-version"),
        "Go": _first_line("go", "version").removeprefix("go version "),
        "Node": _first_line("node", "--version"),
    }


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout or done.stderr).splitlines()[0].replace('"', "")


def _kcat_version() -> str:
    own = PEERS / "kcat/usr"
    program = shutil.which("kcat") or str(own / "bin/kcat")
    if not Path(program).exists():
        return "not there"
    libraries = os.pathsep.join(map(str, own.glob("lib/*-linux-gnu")))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    done = subprocess.run(
        [program, "-V"], capture_output=True, text=True, check=True, env=environment
    )
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", done.stdout)
    return f"{found[1]}, librdkafka {found[2]}" if found else done.stdout.strip()


def kafka_ranges() -> tuple[str, dict[str, str]]:
    """An Apache Kafka's release, and its APIs by key as `Name LOWEST HIGHEST`."""
    with Kafka() as kafka:
        told = kafka.tool("api-versions").stdout.decode()
    found = re.findall(r"(\w+)\((\d+)\): (\d+)(?: to (\d+))?", told)
    return kafka.version, {key: f"{name} {low} {high or low}" for name, key, low, high in found}


def record(only_python: bool) -> None:
    """Run the tests and write down what came of them."""
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    today = datetime.now(UTC).date().isoformat()
    outcomes = run(PYTHON_TESTS)
    versions = runs.get("versions", {}) | python_versions()
    taken = runs.get("taken", {}) | {"Python clients": today}
    if not only_python:
        outcomes |= run(PEER_TESTS)
        versions |= peer_versions()
        taken["other clients"] = today
        runs["kafka"], runs["kafka_apis"] = kafka_ranges()
    else:
        before = runs.get("outcomes", {})
        outcomes |= {test: seen for test, seen in before.items() if test.startswith(PEER_TESTS)}
    runs |= {
        "taken": taken,
        "system": f"{platform.system()} on {platform.machine()}",
        "versions": versions,
        "outcomes": dict(sorted(outcomes.items())),
    }
    RUNS.write_text(json.dumps(runs, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", action="store_true", help="run the Python clients only")
    parser.add_argument("--page", action="store_true", help="run nothing")
    options = parser.parse_args()
    if not options.page:
        record(options.python)
    PAGE.write_text(page(json.loads(RUNS.read_text())))


if __name__ == "__main__":
    main()
