"""docs/compatibility.md, from runs of the clients' tests.

    python tools/compatibility.py             run what can be run here, record it, make the page
    python tools/compatibility.py --python    only the Python clients; the others keep their outcome
    python tools/compatibility.py --only T    only these tests; all others keep their outcome
    python tools/compatibility.py --page      only make the page, from what was recorded

The Java client, Kafka's tools, franz-go, KafkaJS, kcat and Flink need `make peers`.
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

from tools.compatibility_matrix import CLIENTS
from tools.compatibility_page import function_of, page
from tools.peers.kafka import PEERS, Kafka

PAGE = ROOT / "docs/compatibility.md"
RUNS = ROOT / "tests/compatibility/runs.json"
MISSING = "not there"
_RUN_TO_THE_END = (0, 1)  # exit codes of pytest: all passed, or some failed
PYTHON_TESTS = ("tests/clients", "tests/compatibility/test_more_of_python_clients.py")
PEER_TESTS = (
    "tests/interop/test_interop_clients.py",
    "tests/interop/test_interop_more.py",
    "tests/interop/test_interop_tools.py",
    "tests/interop/test_interop_fetch_sessions.py",
    "tests/interop/test_interop_our_transactions.py",
    "tests/interop/test_interop_exactly_once_clients.py",
    "tests/interop/test_interop_streams.py",
    "tests/interop/test_interop_connect.py",
    "tests/interop/test_interop_flink.py",
    "tests/interop/test_interop_group_records.py",
    "tests/interop/test_interop_moving.py",
    "tests/interop/test_interop_tokens.py",
)


def run(tests: Sequence[str]) -> dict[str, str]:
    """The outcome of every test in these files: passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *tests]
        if subprocess.run(command, cwd=ROOT, check=False).returncode not in _RUN_TO_THE_END:
            sys.exit("The tests did not run to their end. Nothing was recorded: run this again.")
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
    flink = _release_of_jar("flink", "flink-streaming-java")
    return {
        "Java": f"kafka-clients {_release_of_jar('kafka-4', 'kafka-clients')}",
        "Flink": f"{flink}, connector {_release_of_jar('flink', 'flink-connector-kafka')}",
        "franz-go": franz[1],
        "KafkaJS": node["kafkajs"],
        "kcat": _kcat_version(),
        "JVM": _first_line("java", "-version"),
        "Go": _first_line("go", "version").removeprefix("go version "),
        "Node": _first_line("node", "--version"),
    }


def _release_of_jar(peer: str, name: str) -> str:
    (jar,) = (PEERS / peer).glob(f"{name}-*.jar")
    return jar.stem.removeprefix(f"{name}-")


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout or done.stderr).splitlines()[0].replace('"', "")


def _kcat_version() -> str:
    own = PEERS / "kcat/usr"
    program = shutil.which("kcat") or str(own / "bin/kcat")
    if not Path(program).exists():
        return MISSING
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


def keep_skipped(outcomes: dict[str, str], runs: dict[str, Any]) -> dict[str, str]:
    """Give tests whose client is not here the outcome of an earlier run; the days of these."""
    earlier, days = runs.get("outcomes", {}), runs.get("taken", {})
    kept = {}
    for test, seen in outcomes.items():
        if seen == "skipped" and earlier.get(test, seen) != seen:
            outcomes[test] = earlier[test]
            function = f"`{function_of(test)}`"
            kept[function] = days.get(function, days["other clients"])
    return kept


def record(only_python: bool) -> None:
    """Run the tests and write down what came of them."""
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    today = datetime.now(UTC).date().isoformat()
    outcomes = run(PYTHON_TESTS)
    versions = runs.get("versions", {}) | python_versions()
    ours = tuple(f"`{test}" for test in PYTHON_TESTS)
    before = {what: day for what, day in runs.get("taken", {}).items() if not what.startswith(ours)}
    taken = before | {"Python clients": today}
    if not only_python:
        outcomes |= run(PEER_TESTS)
        versions |= {name: seen for name, seen in peer_versions().items() if seen != MISSING}
        taken = {"Python clients": today, "other clients": today} | keep_skipped(outcomes, runs)
        runs["kafka"], runs["kafka_apis"] = kafka_ranges()
    else:
        # Peers' tests run Python clients, too: of another release they show nothing.
        other_releases = versions != runs.get("versions")
        of_python = tuple(f"[{client.test_id}]" for client in CLIENTS if client.is_python)
        outcomes |= {
            test: seen
            for test, seen in runs.get("outcomes", {}).items()
            if test.startswith(PEER_TESTS) and not (other_releases and test.endswith(of_python))
        }
    runs |= {
        "taken": taken,
        "system": f"{platform.system()} on {platform.machine()}",
        "versions": versions,
        "outcomes": dict(sorted(outcomes.items())),
    }
    _write(runs)


def record_only(tests: Sequence[str]) -> None:
    """Run these tests, with the releases of the other runs; each test gets a day of its own."""
    runs: dict[str, Any] = json.loads(RUNS.read_text())
    found = python_versions() | peer_versions()
    versions = {name: release for name, release in found.items() if release != MISSING}
    others = [name for name, seen in versions.items() if runs["versions"].get(name, seen) != seen]
    if others:
        sys.exit(f"Other releases than those recorded: {', '.join(others)}. Run all tests again.")
    outcomes = run(tests)
    today = datetime.now(UTC).date().isoformat()
    runs["versions"] |= versions
    runs["taken"] |= {f"`{function}`": today for function in sorted(map(function_of, outcomes))}
    runs["outcomes"] = dict(sorted((runs["outcomes"] | outcomes).items()))
    _write(runs)


def _write(runs: dict[str, Any]) -> None:
    RUNS.write_text(json.dumps(runs, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", action="store_true", help="run the Python clients only")
    parser.add_argument("--only", nargs="+", metavar="TEST", help="run these tests only")
    parser.add_argument("--page", action="store_true", help="run nothing")
    options = parser.parse_args()
    if options.only:
        record_only(options.only)
    elif not options.page:
        record(options.python)
    PAGE.write_text(page(json.loads(RUNS.read_text())))


if __name__ == "__main__":
    main()
