"""The pytest plugin in foreign projects: their own suites, run by their own pytest."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
FOREIGN = Path(__file__).parent / "foreign_project"
STRICT = (
    "-W",
    "error",
    # kafka-python reads its schemas in a way that Python deprecates.
    "-W",
    "ignore:read_text is deprecated",
    "-W",
    "ignore:open_text is deprecated",
)


def install(pytester: pytest.Pytester, *names: str) -> None:
    """Copy files of the foreign project to where pytest finds them."""
    (pytester.path / "conftest.py").write_text((FOREIGN / "conftest.py").read_text())
    for name in names:
        text = (FOREIGN / f"{name}.py").read_text()
        (pytester.path / name.replace("foreign", "test")).with_suffix(".py").write_text(text)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for open files in /proc")
def test_plugin_works_in_a_foreign_project_and_cleans_up(
    pytester: pytest.Pytester,
) -> None:
    install(pytester, "foreign_clients")
    result = pytester.runpytest_subprocess(*STRICT, timeout=3 * PATIENCE_S)
    result.assert_outcomes(passed=14)


@pytest.mark.slow
def test_concurrent_processes_have_a_broker_each(pytester: pytest.Pytester) -> None:
    """As pytest-xdist's workers: each is a session of its own."""
    install(pytester, "foreign_sharing")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *STRICT]
    workers = [
        subprocess.Popen(
            command, cwd=pytester.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    said = [worker.communicate(timeout=3 * PATIENCE_S)[0] for worker in workers]
    assert ["3 passed" in text for text in said] == [True, True], "\n".join(said)


def test_a_suite_that_wants_no_broker_pays_for_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_was_imported():
            ours = {name for name in sys.modules if name.partition(".")[0] == "horolog"}
            assert ours == {"horolog", "horolog.testing", "horolog.testing.plugin"}
            assert not {"kio", "numpy", "numba", "pyarrow", "pyspark"} & set(sys.modules)
        """
    )
    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)


def test_the_plugin_is_imported_in_a_few_milliseconds() -> None:
    command = [sys.executable, "-X", "importtime", "-c", "import pytest, horolog.testing.plugin"]
    took_us = []
    while len(took_us) < 20 and min(took_us, default=20_000) >= 20_000:  # others may compute too
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        match = re.search(r"\| +(\d+) \| horolog.testing.plugin", done.stderr)
        assert match, done.stderr
        took_us.append(int(match[1]))
    assert min(took_us) < 20_000


def test_a_failure_keeps_the_log_and_a_bug_in_the_broker_is_a_failure(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import socket

        from horolog.broker.handlers import cluster

        def test_that_fails(horolog_broker):
            horolog_broker.create_topic("t")
            assert not horolog_broker.log_dir.exists()

        def test_that_meets_a_bug(horolog_broker, monkeypatch):
            monkeypatch.setattr(cluster, "served", lambda: 1 // 0)
            host, _, port = horolog_broker.bootstrap_servers.partition(":")
            with socket.create_connection((host, int(port))) as client:
                client.sendall(bytes.fromhex("0000000a" "00120000" "00000001" "ffff"))
                assert client.recv(1) == b""
        """
    )
    base = pytester.path / "base"
    result = pytester.runpytest_subprocess(*STRICT, f"--basetemp={base}")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*ZeroDivisionError*", "*BrokerFailed*"])
    assert (base / "horolog0" / "t-0" / f"{0:020d}.log").exists()
    assert (base / "horolog0" / ".kafka_cleanshutdown").exists()


def test_the_fixtures_are_reported_of(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures", "-q")
    result.stdout.fnmatch_lines(
        ["horolog_session_broker *session scope*", "*A Kafka broker for all tests together*"]
    )


def test_the_examples_of_the_documents_run(pytester: pytest.Pytester) -> None:
    blocks = [
        block
        for document in ("README.md", "docs/testing.md")
        for block in re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
        if "horolog_broker" in block or "horolog.testing" in block
    ]
    assert len(blocks) >= 2
    for number, block in enumerate(blocks):
        (pytester.path / f"test_example_{number}.py").write_text(block)
    result = pytester.runpytest_subprocess(*STRICT)
    result.assert_outcomes(passed=len(blocks))


def test_faults_of_a_shared_broker_end_with_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import confluent_kafka

        def test_one(horolog_session_broker):
            horolog_session_broker.create_topic("t")
            horolog_session_broker.fail("Produce", "POLICY_VIOLATION", times=None)
            horolog_session_broker.pause()

        def test_two(horolog_session_broker):
            servers = {"bootstrap.servers": horolog_session_broker.bootstrap_servers}
            producer = confluent_kafka.Producer(servers)
            errors = []
            producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error))
            assert producer.flush(30) == 0
            assert errors == [None]
        """
    )
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=2)
