"""The documents say what is; these tests hold them to it."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from horolog.broker.metrics.families import FAMILIES

ROOT = Path(__file__).parent.parent
NAMED_TEST = re.compile(r"`(tests/[\w/.]+\.py)::(\w+)`")
NAMED_PATH = re.compile(r"`((?:src|tests|docs|bench|tools)/[\w/.-]+)`")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize(("document", "least"), [("conformance.md", 60), ("formats.md", 30)])
def test_every_row_of_the_conformance_table_has_its_state(document: str, least: int) -> None:
    text = (ROOT / "docs" / document).read_text()
    if document == "formats.md":
        text = text[text.index("## KIP-31") :]
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    rows = [row for row in rows if not row.startswith("| section ") and not row.startswith("| # ")]
    assert len(rows) > least
    for row in rows:
        status = row.strip("| ").split(" | ")[2]
        assert status.startswith(("built", "setting", "not")), row
        if status.startswith("built"):
            assert NAMED_TEST.search(row), f"no test named: {row}"


def test_the_architecture_names_modules_and_members_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    source = {path: path.read_text() for path in (ROOT / "src/horolog").rglob("*.py")}
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text))
    assert len(named) > 40
    for path in named:
        assert (ROOT / "src/horolog" / path).exists(), path
    members = set(re.findall(r"`([A-Z]\w+)\.(\w+)`", text))
    assert members
    for name, member in members:
        defined = re.compile(
            rf"^class {name}\b.*?^    (?:(?:async )?def |    self\.){member}\b",
            re.MULTILINE | re.DOTALL,
        )
        assert any(defined.search(code) for code in source.values()), f"{name}.{member}"


def test_the_architecture_has_the_rooms_of_storage_in_the_order_of_their_imports() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("### The rooms of storage") : text.index("`SegmentReader` reads")]
    told = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c for c in contracts["contracts"] if c.get("containers") == ["horolog.storage"])
    checked = [room for layer in layers["layers"] for room in layer.split(" | ")]
    rooms = [path.parent.name for path in (ROOT / "src/horolog/storage").glob("*/__init__.py")]
    assert told == [room for room in checked if room in rooms]
    assert sorted(told) == sorted(rooms)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_and_files_named_in_documents_exist(document: Path) -> None:
    text = document.read_text()
    for path, name in NAMED_TEST.findall(text):
        assert re.search(rf"def {name}\b", (ROOT / path).read_text()), f"{path}::{name}"
    for path in NAMED_PATH.findall(text):
        assert (ROOT / path).exists(), path


def test_the_rows_of_the_readmes_table_are_those_of_the_comparison() -> None:
    rows = [
        [line for line in path.read_text().splitlines() if line.startswith("| ")]
        for path in (ROOT / "README.md", ROOT / "docs" / "comparison.md")
    ]
    assert rows[0][0] == rows[1][0] == "| | Apache Kafka 4 | horolog |"
    assert len(rows[0]) == 9, "eight rows: it is for a reader in a hurry"
    assert set(rows[0]) <= set(rows[1])


def test_the_document_on_metrics_has_every_family_as_the_code_has_it() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{family.name}` | {family.kind} | "
        + ", ".join(
            f"`{label}`"
            for label in (*family.labels, *(("partition",) if family.by_partition else ()))
        )
        + f" | {family.help} |"
        for family in FAMILIES
    ]


def test_the_dashboard_asks_for_families_that_there_are_and_their_labels() -> None:
    dashboard = json.loads((ROOT / "docs/grafana-dashboard.json").read_text())
    kinds = {family.name: family.kind for family in FAMILIES}
    labels = {label for family in FAMILIES for label in family.labels}
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            names = re.findall(r"\b(?:kafka|horolog)_\w+", target["expr"])
            assert names, panel["title"]
            for name in names:
                base = name.removesuffix("_bucket")
                assert kinds[base] == "histogram" if base != name else name in kinds, name
                asked.add(base)
            for by in re.findall(r"by \(([^)]*)\)", target["expr"]):
                assert set(by.split(", ")) <= labels | {"le"}, by
            for legend in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert legend in labels | {"le"}
    ours = {name for name in kinds if name.startswith("horolog_")}
    assert ours <= asked
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
