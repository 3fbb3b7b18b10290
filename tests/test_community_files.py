"""Files that GitHub reads are what GitHub takes, and name what exists."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_continuous_integration_runs_the_gate_on_every_python_and_on_macos() -> None:
    (job,) = read(GITHUB / "workflows" / "ci.yml")["jobs"].values()
    matrix = job["strategy"]["matrix"]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    listed = [name.rpartition(" ")[2] for name in classifiers if "Python :: 3." in name]
    assert matrix["python"] == listed  # as text: 3.10 is not 3.1
    systems = [*matrix["os"], *(one["os"] for one in matrix["include"])]
    assert {system.partition("-")[0] for system in systems} == {"ubuntu", "macos"}
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert [command.split()[:2] for command in commands] == [["make", "lint"], ["make", "test"]]
    assert commands[1] in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_names_versions_of_actions(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML 1.1 reads `on` as true
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        actions = {step["uses"]: step.get("with", {}) for step in job["steps"] if "uses" in step}
        for action in actions:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", action)
        (java,) = (its for name, its in actions.items() if name.startswith("actions/setup-java"))
        assert java["java-version"] == "17"


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_has_what_github_requires(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    fields = [one for one in form["body"] if one["type"] != "markdown"]
    assert len({one["id"] for one in fields}) == len(fields)
    for one in fields:
        assert one["type"] in {"textarea", "input", "dropdown", "checkboxes"}
        assert one["attributes"]["label"]
    assert any(one.get("validations", {}).get("required") for one in fields)


def test_every_link_between_these_pages_leads_to_a_file() -> None:
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text()):
            assert (ROOT / link).exists(), link
        assert name in (ROOT / "README.md").read_text()
