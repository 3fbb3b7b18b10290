"""`--forks`: one collection, several processes, reports as from one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

if not hasattr(os, "fork"):
    pytest.skip("no fork here", allow_module_level=True)

LAB = Path(__file__).parent / "lab"
PLUGINS = ("xdist", "rerunfailures", "timeout", "forked_workers")


def run_tests(directory: Path, *options: str, **files: str) -> str:
    """Output of pytest on these files."""
    for name, text in files.items():
        (directory / f"test_{name}.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\n")
    plugins = [part for plugin in PLUGINS for part in ("-p", plugin)]
    command = [sys.executable, "-m", "pytest", *plugins, "--basetemp", directory / "t", *options]
    environment = os.environ | {"PYTHONPATH": str(LAB), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        command, check=False, cwd=directory, env=environment, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_reports_reach_the_terminal_and_the_junit_file(tmp_path: Path) -> None:
    said = run_tests(
        tmp_path,
        "--forks=2",
        "--junitxml=junit.xml",
        "-rs",
        a="import pytest\ndef test_passes(): pass\ndef test_skips(): pytest.skip('why')\n",
        b="def test_fails():\n    print('printed before')\n    assert 1 == 2\n",
        c="import warnings\ndef test_warns(): warnings.warn('careful')\n",
    )

    assert "1 failed, 2 passed, 1 skipped, 1 warning" in said
    for part in ("assert 1 == 2", "printed before", "SKIPPED [1] test_a.py:3: why", "careful"):
        assert part in said
    assert 'errors="0" failures="1" skipped="1" tests="4"' in (tmp_path / "junit.xml").read_text()


def test_a_dead_worker_fails_its_test_alone(tmp_path: Path) -> None:
    said = run_tests(
        tmp_path,
        "--forks=1",
        a="import os\ndef test_before(): pass\ndef test_dies(): os.kill(os.getpid(), 9)\n"
        "def test_after(): pass\n",
        b="import os\ndef test_leaves(): os._exit(3)\n",
        c="import pytest, time\n@pytest.mark.timeout(1)\n"
        "def test_is_late(): time.sleep(99)\ndef test_ends(): pass\n",
        d="import pytest, time\n@pytest.mark.timeout(1, method='thread')\n"
        "def test_is_stopped(): time.sleep(99)\n",
    )

    assert "4 failed, 3 passed" in said
    assert "test_a.py::test_dies - the worker ended with SIGKILL" in said
    assert "test_b.py::test_leaves - the worker ended with exit code 3" in said
    assert "test_d.py::test_is_stopped - the worker ended with exit code 1" in said


def test_failed_tests_run_again_within_a_limit_for_all_workers(tmp_path: Path) -> None:
    flaky = "n = [0]\ndef test_{0}():\n    n[0] += 1\n    assert n[0] == 2\n"
    options = "--forks=2", "--reruns=1", "--rerun-show-tracebacks", "--max-suite-reruns=3"

    said = run_tests(tmp_path, *options, **{name: flaky.format(name) for name in "abcde"})

    assert "2 failed, 3 passed, 3 rerun" in said
    assert said.count("assert 1 == 2") >= 5


def test_first_failure_ends_the_run_and_fixtures_are_closed(tmp_path: Path) -> None:
    said = run_tests(
        tmp_path,
        "--forks=2",
        "-x",
        a="import pytest, time, pathlib\n"
        "@pytest.fixture(scope='session')\ndef opened():\n"
        "    pathlib.Path('opened').touch()\n    yield\n    pathlib.Path('closed').touch()\n"
        "def test_waits(opened): time.sleep(200)\n",
        b="import os, time\ndef test_fails():\n"
        "    while not os.path.exists('opened'): time.sleep(0.01)\n    assert False\n",
    )

    assert "1 failed" in said
    assert "stopping after 1 failures" in said
    assert (tmp_path / "closed").exists()


def test_fixtures_of_a_module_are_made_once_for_tests_that_run_together(tmp_path: Path) -> None:
    said = run_tests(
        tmp_path,
        "--forks=1",
        a="import pytest\n"
        "@pytest.fixture(scope='session')\ndef broker(tmp_path_factory):\n"
        "    made.append(tmp_path_factory.mktemp('broker'))\n    return made\nmade = []\n"
        + "".join(f"def test_{n}(broker): assert len(broker) == 1\n" for n in range(20)),
        b="def test_own_directory(tmp_path): assert 'worker-0' in str(tmp_path)\n",
    )

    assert "21 passed" in said


def test_slow_tests_are_listed_and_run_first(tmp_path: Path) -> None:
    files = {
        "a": "def test_quick(): open('order', 'a').write('a')\n",
        "b": "import time\ndef test_slow(): open('order', 'a').write('b'), time.sleep(0.3)\n",
    }
    cached = "-p", "cacheprovider", "--forks=1"

    run_tests(tmp_path, *cached, **files)
    run_tests(tmp_path, *cached)

    assert (tmp_path / "order").read_text() == "abba"
    [slowest] = tmp_path.glob(".pytest_cache/d/durations/slowest.txt")
    assert slowest.read_text().splitlines()[0].endswith(" test_b.py::test_slow")


def test_tests_of_a_group_run_in_one_process(tmp_path: Path) -> None:
    grouped = (
        "import os, pytest\n@pytest.mark.xdist_group('jvm')\n"
        "def test_{0}(): open('pids', 'a').write(f'{{os.getpid()}} ')\n"
    )

    said = run_tests(tmp_path, "--forks=3", **{name: grouped.format(name) for name in "abcdef"})

    assert "6 passed" in said
    assert len(set((tmp_path / "pids").read_text().split())) == 1
