import importlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from rich.console import Console

from horolog.errors import Misconfigured


@pytest.fixture
def demo() -> Any:
    """Imported for its tests alone, so that to collect them takes no import of matplotlib."""
    return importlib.import_module("horolog.demo.run")


@pytest.mark.spark
def test_the_demo_finds_the_same_answers_in_a_session_that_runs_and_leaves_it_running(
    spark: Any, demo: Any, tmp_path: Path
) -> None:
    said = io.StringIO()
    console = Console(file=said, width=120)
    plan = demo.DemoPlan(repo=tmp_path, output=tmp_path / "out", clicks=4000)
    page = demo.run(plan, console).read_text()
    assert "the same answer" in said.getvalue()
    assert "nanoseconds sent as milliseconds" in said.getvalue()
    assert "looks like nanoseconds" in page
    assert page.count("data:image/png;base64,") == 2
    assert spark.range(3).count() == 3


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(7 * PATIENCE_S)
def test_the_demo_shows_rejections_and_the_same_answer_where_there_is_no_history(
    tmp_path: Path,
) -> None:
    output = tmp_path / "out"
    command = [sys.executable, "-m", "horolog", "demo", "--clicks", "4000"]
    command += ["--repo", str(tmp_path), "--output", str(output)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=6 * PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same answer" in done.stdout
    assert "nanoseconds sent as milliseconds" in done.stdout
    page = (output / "report.html").read_text()
    assert "looks like nanoseconds" in page
    assert page.count("data:image/png;base64,") == 2


def test_a_directory_that_is_not_the_demos_own_is_never_cleared(demo: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(Misconfigured, match="not the demo's own"):
        demo.run(demo.DemoPlan(repo=tmp_path, output=tmp_path), Console(quiet=True))
    assert (tmp_path / "thesis.txt").exists()
