"""The documents say what is; these tests hold them to it."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

from horolog.broker import FAMILIES

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "horolog"
STORAGE = SOURCE / "storage"
NAMED_TEST = re.compile(r"`(tests/[\w/.]+\.py)::(\w+)`")
NAMED_PATH = re.compile(r"`((?:src|tests|docs|bench|tools|monitoring)/[\w/.-]+)`")
DOCUMENTS = [
    *(path for pattern in ("*.md", "docs/**/*.md", "examples/*.md") for path in ROOT.glob(pattern)),
    ROOT / "bench" / "BASELINE.md",
]
NAVIGATION = "## Where to go on"
CODE_BLOCK = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")


def test_every_row_of_the_conformance_table_has_its_state() -> None:
    text = (ROOT / "docs" / "conformance.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    rows = [row for row in rows if not row.startswith("| section ") and not row.startswith("| # ")]
    assert len(rows) > 90
    for row in rows:
        status = row.strip("| ").split(" | ")[2]
        assert status.startswith(("built", "setting", "not")), row
        if status.startswith("built"):
            assert NAMED_TEST.search(row), f"no test named: {row}"


def test_the_architecture_names_modules_and_packages_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    modules = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text))
    assert len(modules) > 10
    packages = set(re.findall(r"`((?:jobs|broker|storage)/\w+)`", text))
    for path in modules | packages:
        assert (SOURCE / path).exists(), path


LISTED = re.compile(r"^(?: {4})?([a-z_0-9]+(?:, [a-z_0-9]+)*)  +\S", re.MULTILINE)
PAGES = sorted(path.parent for path in SOURCE.glob("*/**/__init__.py"))


@pytest.mark.parametrize("package", PAGES, ids=lambda path: path.name)
def test_the_page_of_a_package_says_what_it_is_and_names_modules_that_exist(package: Path) -> None:
    page = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert page, f"{package} has no page: the docstring of its __init__"
    for path in re.findall(r"`((?:\w+/)*\w+\.py)`", page):
        assert any((root / path).exists() for root in (package, STORAGE, SOURCE, ROOT)), path
    if "jobs" not in package.parts:  # whose pages list arguments and steps, too
        for listed in LISTED.findall(page):
            for name in listed.split(", "):
                assert (package / name).is_dir() or (package / f"{name}.py").exists(), name


def test_the_page_of_storage_has_its_rooms_in_the_order_of_their_imports() -> None:
    page = ast.get_docstring(ast.parse((STORAGE / "__init__.py").read_text())) or ""
    rooms = {path.parent.name for path in STORAGE.glob("*/__init__.py")}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c for c in contracts["contracts"] if c.get("containers") == ["horolog.storage"])
    checked = [room for layer in layers["layers"] for room in layer.split(" | ")]
    listed = re.findall(r"^ {4}(\w+) {2,}\S", page, re.MULTILINE)
    assert listed == [room for room in checked if room in rooms]
    assert set(listed) == rooms


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
        f"| `{family.name}` | "
        + ", ".join(
            f"`{label}`"
            for label in (*family.labels, *(("partition",) if family.by_partition else ()))
        )
        + f" | {family.help} |"
        for family in FAMILIES
    ]
    for family in FAMILIES:
        expected = "counter" if family.name.endswith("_total") else "gauge"
        assert family.kind == expected or f"`{family.name}` is a {family.kind}" in joined(text)


def joined(text: str) -> str:
    """Text without its line breaks."""
    return " ".join(text.split())


def test_the_dashboard_asks_for_families_that_there_are_and_their_labels() -> None:
    dashboard = json.loads((ROOT / "monitoring/grafana-dashboard.json").read_text())
    kinds = {family.name: family.kind for family in FAMILIES}
    labels = {label for family in FAMILIES for label in family.labels}
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            names = re.findall(r"\b(?:kafka|horolog|process)_\w+", target["expr"])
            assert names, panel["title"]
            for name in names:
                base = name if name in kinds else re.sub("_(bucket|count)$", "", name)
                assert kinds[base] == "histogram" if base != name else name in kinds, name
                asked.add(base)
            for by in re.findall(r"by \(([^)]*)\)", target["expr"]):
                assert set(by.split(", ")) <= labels | {"le"}, by
            for legend in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert legend in labels | {"le"}
    ours = {name for name in kinds if name.startswith("horolog_")}
    assert ours <= asked
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub, and the site after it, give to the headings of a page."""
    found = set[str]()
    for title in re.findall(r"^#+ (.+)$", CODE_BLOCK.sub("", document.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w -]", "", text).strip().replace(" ", "-")
        number = next(n for n in range(100) if (f"{slug}-{n}" if n else slug) not in found)
        found.add(f"{slug}-{number}" if number else slug)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_a_page_and_a_heading_that_exist(document: Path) -> None:
    for link in LINK.findall(CODE.sub("", CODE_BLOCK.sub("", document.read_text()))):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_lists_every_page_once_by_what_a_reader_wants_to_do() -> None:
    _, _, navigation = (ROOT / "README.md").read_text().partition(NAVIGATION)
    listed = re.findall(r"\]\(([\w/.-]+\.md)\)", navigation)
    pages = {str(path.relative_to(ROOT)) for path in DOCUMENTS} - {"README.md"}
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_opens_with_what_it_is_for(document: Path) -> None:
    lines = [line for line in document.read_text().splitlines() if line.strip()]
    title, opening = [line for line in lines if not line.startswith("<!--")][:2]
    assert title.startswith("# ")
    assert re.match(r"(?!```)[\w`*\[]", opening), "a sentence, before code, tables and headings"
