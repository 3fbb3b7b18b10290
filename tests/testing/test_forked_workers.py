"""Tests that run in forked workers are each run once and reported as without."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import os
import sys

os.environ["HOROLOG_CACHE_DIR"] = os.getcwd()
sys.path.insert(0, {lab!r})


def pytest_runtestloop(session):
    from forked_workers import run_in_workers

    run_in_workers(session, 2)
    return True
"""

TESTS = """
import os
import signal

import pytest


@pytest.fixture(scope="module")
def process():
    return os.getpid()


@pytest.mark.parametrize("number", range(70))
def test_all_are_run(number, process, tmp_path):
    print("printed by", number)
    assert process == os.getpid()
    with open("run", "a") as file:
        file.write(f"{number}\\n")
    if number == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    assert number != 50


def test_without_workers():
    pytest.skip("of the reason")
"""


def test_a_worker_that_dies_fails_one_test_and_the_others_run_once(
    pytester: pytest.Pytester,
) -> None:
    lab = Path(__file__).parents[1] / "lab"
    pytester.makeconftest(CONFTEST.format(lab=str(lab)))
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "no:xdist", "-rs")
    result.assert_outcomes(passed=68, failed=2, skipped=1)
    result.stdout.fnmatch_lines(["the worker ended with exit code -9"])
    result.stdout.fnmatch_lines(["printed by 50"])
    result.stdout.no_fnmatch_line("printed by 49")
    result.stdout.fnmatch_lines(["SKIPPED*of the reason"])
    run = (pytester.path / "run").read_text().split()
    assert sorted(map(int, run)) == list(range(70))


def test_workers_stop_after_as_many_failures_as_are_allowed(pytester: pytest.Pytester) -> None:
    lab = Path(__file__).parents[1] / "lab"
    pytester.makeconftest(CONFTEST.format(lab=str(lab)))
    pytester.makepyfile(
        "import time\n\ndef test_fails(): raise OSError\n", test_b="def test_b(): time"
    )
    result = pytester.runpytest_subprocess("-p", "no:xdist", "--maxfail=1")
    assert result.parseoutcomes()["failed"] == 1
    assert result.ret == pytest.ExitCode.TESTS_FAILED
