"""A release is built only where version, changelog, tag and tree agree, and has only its files."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from tools import release

METADATA = (
    "Metadata-Version: 2.4\nName: horolog\nVersion: {version}\n"
    "License-Expression: Apache-2.0\nRequires-Python: >=3.11\nProvides-Extra: fast\n"
)
ENTRIES = "[console_scripts]\nhorolog = horolog.cli:main\n\n[pytest11]\n"
PLUGIN = "horolog = horolog.testing.plugin\n"


def git(root: Path, *args: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "tag.gpgSign=false")
    subprocess.run(["git", *who, *args], cwd=root, check=True, capture_output=True)


def commit(root: Path, *, version: str, changelog: str) -> None:
    home = root / release.HOME_OF_VERSION
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text(f'"""Text."""\n\n__version__ = "{version}"\n')
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}\n\n- A line.\n")
    git(root, "add", "--all")
    git(root, "commit", "--no-gpg-sign", "--allow-empty", "--message", "Change")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, version="1.2.0", changelog="## 1.2.0 (unreleased)")
    return tmp_path


def test_a_commit_without_a_tag_is_a_rehearsal(checkout: Path) -> None:
    chosen = release.agreed(checkout)
    assert (chosen.version, chosen.is_tagged) == ("1.2.0", False)


@pytest.mark.parametrize("option", [(), ("--annotate", "--message", "x")], ids=["light", "full"])
def test_a_commit_with_its_tag_and_a_dated_section_is_a_release(
    checkout: Path, option: tuple[str, ...]
) -> None:
    commit(checkout, version="1.2.0", changelog="## 1.2.0 - 2026-11-30\n\n## 1.1.0 - 2026-01-01")
    git(checkout, "tag", *option, "v1.2.0")
    git(checkout, "tag", "checked-by-hand")
    assert release.agreed(checkout).is_tagged


@pytest.mark.parametrize(
    ("version", "changelog", "tags", "says"),
    [
        ("1.2.0", "## 1.2.0 - 2026-11-30", ["v1.3.0"], "has the tag v1.3.0, and"),
        ("1.2.0", "## 1.2.0 - 2026-11-30", ["v1.2.0", "v1.3.0"], "has the tag v1.3.0, and"),
        ("1.2.0", "## 1.2.0 (unreleased)", ["v1.2.0"], "has no date for it"),
        ("1.2.0", "## 1.2.0", ["v1.2.0"], "has no date for it"),
        ("1.2.0", "## 1.2.0 - 2026-11-30", [], "the commit has no tag"),
        ("1.3.0", "## 1.2.0 - 2026-11-30", [], "begins with a section on 1.2.0"),
        ("1.2.0", "## Broker", [], "begins with a section on Broker"),
        ("1.2.0", "Nothing yet.", [], "has no section"),
    ],
    ids=str,
)
def test_what_contradicts_the_version_is_refused(
    checkout: Path, version: str, changelog: str, tags: list[str], says: str
) -> None:
    commit(checkout, version=version, changelog=changelog)
    for tag in tags:
        git(checkout, "tag", tag)
    with pytest.raises(release.Refused, match=says):
        release.agreed(checkout)


def test_a_version_that_another_commit_has_as_its_tag_is_refused(checkout: Path) -> None:
    git(checkout, "tag", "v1.2.0")
    commit(checkout, version="1.2.0", changelog="## 1.2.0 (unreleased)")
    with pytest.raises(release.Refused, match=r"is the tag of another commit, \w+: raise"):
        release.agreed(checkout)


def test_a_tree_that_differs_from_its_commit_is_refused_in_one_sentence(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "src" / "new file.py").write_text("")
    assert release.main(["--check", "--root", str(checkout)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("no release: 1 file(s) differ from the commit, ")


def test_this_checkout_could_be_released_as_far_as_its_changelog_goes() -> None:
    version = release.version_of((release.ROOT / release.HOME_OF_VERSION).read_text())
    section = release.HEADING.search((release.ROOT / "CHANGELOG.md").read_text())
    assert section is not None
    assert section[1] == version


TRACKED = {f"src/{name}" for name in release.IN_WHEEL} | {"docs/settings.md", "tests/test_a.py"}


def a_wheel(path: Path, *, without: str = "", extra: str = "", version: str = "1.2.0") -> Path:
    info = "horolog-1.2.0.dist-info"
    names = release.IN_WHEEL | {f"{info}/{name}" for name in release.OF_DIST_INFO}
    texts = dict.fromkeys({*names, *filter(None, [extra])}, "")
    texts[f"{info}/METADATA"] = METADATA.format(version=version)
    texts[f"{info}/entry_points.txt"] = ENTRIES if without == PLUGIN else ENTRIES + PLUGIN
    with zipfile.ZipFile(path / "horolog-1.2.0-py3-none-any.whl", "w") as archive:
        for name, text in texts.items():
            if name != without:
                archive.writestr(name, text)
    return path / "horolog-1.2.0-py3-none-any.whl"


def test_a_wheel_with_the_files_of_the_source_passes(tmp_path: Path) -> None:
    release.check_wheel(a_wheel(tmp_path), TRACKED, "1.2.0", {"fast"})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"without": "horolog/py.typed"}, "lacks 1 file.*horolog/py.typed"),
        ({"without": "pyspark_horolog/__init__.py"}, "lacks 1 file"),
        ({"without": "horolog-1.2.0.dist-info/licenses/LICENSE"}, "lacks 1 file"),
        ({"without": PLUGIN}, "lacks the entry point horolog = horolog.testing.plugin"),
        ({"extra": "tests/test_a.py"}, "1 file.* too many: tests/test_a.py"),
        ({"extra": "horolog/scratch.py"}, "1 file.* too many: horolog/scratch.py"),
        ({"version": "1.1.0"}, "has Version 1.1.0, expected is 1.2.0"),
    ],
    ids=str,
)
def test_a_wheel_with_other_contents_is_refused(
    tmp_path: Path, change: dict[str, str], says: str
) -> None:
    with pytest.raises(release.Refused, match=says):
        release.check_wheel(a_wheel(tmp_path, **change), TRACKED, "1.2.0", {"fast"})


def test_an_extra_that_the_metadata_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(release.Refused, match="Provides-Extra"):
        release.check_wheel(a_wheel(tmp_path), TRACKED, "1.2.0", {"fast", "sql"})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (set(), None),
        ({"docs/settings.md"}, "lacks 1 file"),
        ({"tests/test_a.py"}, "1 file.* too many: tests/test_a.py"),
    ],
    ids=str,
)
def test_an_sdist_has_source_and_documents_alone(
    tmp_path: Path, change: set[str], says: str | None
) -> None:
    path = tmp_path / "horolog-1.2.0.tar.gz"
    kept = {name for name in TRACKED if not name.startswith("tests/")}
    names = (kept | release.IN_SDIST | release.MADE_BY_BUILD) ^ change
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            content = METADATA.format(version="1.2.0").encode() if name == "PKG-INFO" else b""
            member = tarfile.TarInfo(f"horolog-1.2.0/{name}")
            member.size = len(content)
            archive.addfile(member, BytesIO(content))
    if says is None:
        release.check_sdist(path, TRACKED, "1.2.0", {"fast"})
    else:
        with pytest.raises(release.Refused, match=says):
            release.check_sdist(path, TRACKED, "1.2.0", {"fast"})
