"""The examples, as they are: each runs as a user runs it, and its answers are right."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from few_rows import few_rows_options
from in_process_spark import InProcessSpark
from patience import PATIENCE_S
from shell_blocks import Block, Shell

from horolog.sources import scan

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ALL = sorted(path for path in EXAMPLES.iterdir() if path.name != "README.md")
NOTEBOOK = EXAMPLES / "spark_notebook" / "three_questions.ipynb"
HOUR_MS = 3_600_000


def run(*command: object, directory: Path, **environment: str) -> str:
    """What a Python program printed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_script(shell: Shell, name: str) -> str:
    """What a script printed."""
    return shell.run(Block("sh", 0, (EXAMPLES / name).read_text(), 1))


def code_lines(path: Path) -> int:
    """Lines of code: of a notebook those of its cells, without comments and docstrings."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "code")
    text = re.sub(r'^ *""".*?"""$', "", text, flags=re.DOTALL | re.MULTILINE)
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.split("\n"))


def files_of(example: Path) -> list[Path]:
    found = example.iterdir() if example.is_dir() else [example]
    return sorted(path for path in found if path.suffix in {".py", ".sh", ".ipynb"})


@pytest.mark.parametrize("example", ALL, ids=lambda path: path.name)
def test_an_example_is_short_is_listed_and_says_how_to_run_it(example: Path) -> None:
    assert f"]({example.name}" in (EXAMPLES / "README.md").read_text()
    assert 0 < sum(map(code_lines, files_of(example))) < 60
    assert any(re.search(r"\bRun\b.*\w", path.read_text()) for path in files_of(example))


@pytest.mark.parametrize(
    ("project", "tests"), [("pytest_project", 3), ("pytest_users", 1), ("aiokafka_service", 1)]
)
def test_the_tests_of_a_project_pass(tmp_path: Path, project: str, tests: int) -> None:
    shutil.copytree(EXAMPLES / project, tmp_path / project)
    told = run("-m", "pytest", "-p", "no:cacheprovider", project, directory=tmp_path)
    assert f"{tests} passed" in told


def test_the_same_question_has_the_same_answer_everywhere(tmp_path: Path) -> None:
    told = run("-W", "error", EXAMPLES / "same_question.py", directory=tmp_path)
    assert told.splitlines() == ["9:00  180 clicks of 7 users", "10:00  180 clicks of 7 users"]


def values(source: Path, topic: str) -> list[bytes]:
    return [bytes(value) for value in scan(str(source), topic).read_all()["value"].to_pylist()]


def test_everything_is_restored_as_of_a_time(
    in_process_spark: InProcessSpark, shell: Shell
) -> None:
    told = run_script(shell, "as_of.sh")
    assert "Everything was as of the cut." in told
    assert values(shell.directory / "log", "orders") == [b"order 1", b"order 2", b"order 99"]
    assert values(shell.directory / "restored", "orders") == [b"order 1", b"order 2"]
    assert values(shell.directory / "restored", "payments") == [b"payment 1"]
    committed = re.search(r"^billing +orders +0 +2 +3 ", told, re.MULTILINE)
    assert committed, told


def test_retention_gone_wrong_is_explained_and_mended(shell: Shell) -> None:
    told = run_script(shell, "retention.sh")
    broken, tried, mended = re.split(r"^clicks-0$", told, flags=re.MULTILINE)[1:]
    assert "kept by the record at offset 0, stamped 2255-01-01T00:00:00.000Z" in broken
    assert "the next check deletes 1 segment" in tried
    assert "Old clicks are deleted, and a wrong clock is refused." in mended
    assert values(shell.directory / "log", "clicks") == []


def test_a_broker_is_closed_from_its_first_start(shell: Shell) -> None:
    told = run_script(shell, "secured.sh")
    assert "Alice may read clicks, and nothing else." in told
    assert "User:alice may not write topic:clicks" in told
    for secret in (shell.directory / "secrets").iterdir():
        assert secret.read_text() not in told
        assert secret.stat().st_mode & 0o077 == 0


def answers_by_hand() -> dict[str, Any]:
    """Answers to the notebook's questions, from the file beside it."""
    with (NOTEBOOK.parent / "commit-times.csv").open() as file:
        commits = [
            (int(row["written_ms"]), int(row["committed_ms"])) for row in csv.DictReader(file)
        ]
    counts = Counter(written // HOUR_MS * HOUR_MS for written, _ in commits)
    begin = min(counts, key=lambda hour: (-counts[hour], hour))
    end = begin + HOUR_MS
    first, last = (
        next((place for place, (written, _) in enumerate(commits) if written >= time), len(commits))
        for time in (begin, end)
    )
    late = [committed - written for written, committed in commits]
    return {
        "begin of the hour, in ms": begin,
        "written in it": counts[begin],
        "between its offsets": last - first,
        "late by, in ms: median and most": [median(late), max(late)],
        "known when it ended": sum(
            begin <= written < end and committed < end for written, committed in commits
        ),
    }


@pytest.mark.spark
def test_the_notebook_answers_its_questions(tmp_path: Path) -> None:
    shutil.copytree(NOTEBOOK.parent, tmp_path, dirs_exist_ok=True)
    arguments = os.environ["PYSPARK_SUBMIT_ARGS"].removesuffix("pyspark-shell")
    run(
        *("-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", NOTEBOOK.name),
        directory=tmp_path,
        PYSPARK_SUBMIT_ARGS=" ".join([arguments, *few_rows_options(), "pyspark-shell"]),
        IPYTHONDIR=str(tmp_path / "ipython"),
    )
    cells = json.loads((tmp_path / NOTEBOOK.name).read_text())["cells"]
    (result,) = [one for one in cells[-1]["outputs"] if one["output_type"] == "execute_result"]
    expected = answers_by_hand()
    assert eval("".join(result["data"]["text/plain"]), {}) == expected
    assert expected["written in it"] != expected["between its offsets"]


def test_the_notebook_is_kept_without_outputs() -> None:
    for one in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not one.get("outputs")
        assert one.get("execution_count") is None


def test_commit_times_are_made_from_a_repository(tmp_path: Path) -> None:
    moment = "2026-11-20T09:00:00Z"
    who = {
        f"GIT_{which}_{part}": value
        for which in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", "a"), ("EMAIL", "a@b"))
    }
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        environment = {**os.environ, **who, "GIT_COMMITTER_DATE": moment}
        environment["GIT_AUTHOR_DATE"] = "2026-11-20T08:59:58Z"
        subprocess.run(["git", *command], cwd=tmp_path, env=environment, check=True)
    told = run(NOTEBOOK.with_name("make_commit_times.py"), tmp_path, directory=tmp_path)
    header, row = told.splitlines()
    assert header == "commit,written_ms,committed_ms"
    assert re.fullmatch(r"[0-9a-f]{7,},1795165198000,1795165200000", row)
