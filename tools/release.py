"""Build the wheel and the sdist of a release into `dist/`, and check them.

    python tools/release.py            check, build twice, compare, put into dist/
    python tools/release.py --check    check only that version, CHANGELOG.md, tag and tree agree

The version is in `src/horolog/__init__.py` alone. A commit that has the tag of its version is a
release; one without is a rehearsal, whose files are not to be published. `make release` has the
packages that this needs (group `release` of pyproject.toml).
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
HOME_OF_VERSION = "src/horolog/__init__.py"
HEADING = re.compile(r"^## (\S+)(?: \((unreleased)\)| - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)

# What no release is without, whatever git says.
IN_WHEEL = {
    "horolog/py.typed",
    "horolog/cli/__init__.py",
    "horolog/config/broker_settings.txt",
    "horolog/config/group_settings.txt",
    "horolog/record/kernels/record_kernels.py",
    "horolog/report/page.html",
    "horolog/testing/plugin.py",
    "pyspark_horolog/__init__.py",
}
IN_SDIST = {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "docs/settings.md"}
OF_DIST_INFO = {"METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE", "RECORD"}
MADE_BY_BUILD = {"PKG-INFO", ".gitignore"}
ENTRY_POINTS = ("horolog = horolog.cli:main", "horolog = horolog.testing.plugin")


class Refused(Exception):
    """Raised with a sentence that says what to do before a release can be made."""


class Release(NamedTuple):
    """A commit that can be built."""

    version: str
    commit: str
    commit_s: int
    is_tagged: bool


def git(root: Path, *args: str) -> str:
    """Return the output of a git command without the final line end."""
    command = ["git", "-C", str(root), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip("\n")


def agreed(root: Path) -> Release:
    """Return what is to be released.

    Raises:
        Refused: version, CHANGELOG.md, tag and tree do not agree.
    """
    if changed := git(root, "status", "--porcelain").splitlines():
        raise Refused(
            f"{len(changed)} file(s) differ from the commit, {changed[0][3:]} among them: "
            "commit or remove them, a release is built from a commit"
        )
    version = version_of((root / HOME_OF_VERSION).read_text())
    is_tagged = _has_tag(root, version)
    _check_changelog((root / "CHANGELOG.md").read_text(), version, is_tagged=is_tagged)
    commit, commit_s = git(root, "log", "-1", "--format=%H %ct").split()
    return Release(version, commit, int(commit_s), is_tagged)


def version_of(text: str) -> str:
    """Return the version that a module assigns to `__version__`."""
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise Refused(f'{HOME_OF_VERSION} has no line __version__ = "...": write one')
    return found[1]


def _has_tag(root: Path, version: str) -> bool:
    """Return True if the commit has the tag of its version; refuse a tag that contradicts."""
    tag = f"v{version}"
    here = git(root, "tag", "--points-at", "HEAD", "--list", "v[0-9]*").split()
    for other in here:
        if other != tag:
            raise Refused(
                f"the commit has the tag {other}, and {HOME_OF_VERSION} says {version}: "
                "change the version, or delete the tag"
            )
    if not here and git(root, "tag", "--list", tag):
        commit = git(root, "rev-list", "-1", "--abbrev-commit", tag)
        raise Refused(f"{tag} is the tag of another commit, {commit}: raise the version")
    return bool(here)


def _check_changelog(text: str, version: str, *, is_tagged: bool) -> None:
    """Refuse a changelog that does not begin with a section of the version."""
    first = HEADING.search(text)
    if first is None or first[1] != version:
        begins = "has no section" if first is None else f"begins with a section on {first[1]}"
        raise Refused(
            f"CHANGELOG.md {begins}, and {HOME_OF_VERSION} says {version}: "
            f"write the section ## {version}"
        )
    if is_tagged and first[3] is None:
        raise Refused(
            f"the commit has the tag v{version}, and CHANGELOG.md has no date for it: "
            f"write ## {version} - YYYY-MM-DD, and tag that commit"
        )
    if not is_tagged and first[2] is None:
        raise Refused(
            f"CHANGELOG.md calls {version} released, and the commit has no tag: "
            f"git tag v{version}, or write ## {version} (unreleased)"
        )


def build(root: Path, release: Release, scratch: Path) -> list[Path]:
    """Build from two clones, and return the files if both builds made the same bytes.

    The clones differ in place and in the modes of their files. The second build makes the wheel
    from its sdist, so that this is proved to be complete.
    """
    first = _built(root, release, scratch / "a", 0o022, ("--sdist", "--wheel"))
    second = _built(root, release, scratch / "another" / "place", 0o077, ())
    if [path.name for path in first] != [path.name for path in second]:
        raise Refused(f"two builds made different files: {first} and {second}")
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise Refused(f"two builds of {one.name} differ: compare {one} and {other}")
    return first


def _built(
    root: Path, release: Release, place: Path, umask: int, kinds: Iterable[str]
) -> list[Path]:
    clone, out = place / "clone", place / "out"
    place.mkdir(parents=True)
    run(["git", "clone", "--quiet", str(root), str(clone)], umask=umask)
    run(["git", "-C", str(clone), "checkout", "--quiet", "--detach", release.commit], umask=umask)
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", *kinds, "--outdir", str(out)]
    run([*command, str(clone)], umask=umask, SOURCE_DATE_EPOCH=str(release.commit_s))
    return sorted(out.iterdir())


def run(command: list[str], *, umask: int = 0o022, **env: str) -> None:
    """Run a command quietly; its output is in the sentence if it fails."""
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        umask=umask,
        env=os.environ | env,
    )
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)} failed:\n{done.stdout.strip()}")


def check_wheel(path: Path, tracked: set[str], version: str, extras: set[str]) -> None:
    """Refuse a wheel that has other files than `src`, or other metadata than is declared."""
    info = f"horolog-{version}.dist-info"
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        code = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
        expected = code | IN_WHEEL | {f"{info}/{name}" for name in OF_DIST_INFO}
        _compare(path.name, names, expected)
        metadata = BytesParser().parsebytes(archive.read(f"{info}/METADATA"))
        entries = archive.read(f"{info}/entry_points.txt").decode().splitlines()
    _check_metadata(path.name, metadata, version, extras)
    for entry in ENTRY_POINTS:
        if entry not in entries:
            raise Refused(f"{path.name} lacks the entry point {entry}")


def check_sdist(path: Path, tracked: set[str], version: str, extras: set[str]) -> None:
    """Refuse an sdist that has other files than those its wheel and its readers need."""
    top = f"horolog-{version}/"
    with tarfile.open(path) as archive:
        names = {member.name.removeprefix(top) for member in archive if member.isfile()}
        information = archive.extractfile(f"{top}PKG-INFO")
        metadata = BytesParser().parse(information) if information else Message()
    kept = {name for name in tracked if name.startswith(("src/", "docs/", "monitoring/"))}
    _compare(path.name, names, kept | IN_SDIST | MADE_BY_BUILD)
    _check_metadata(path.name, metadata, version, extras)


def _compare(where: str, names: set[str], expected: set[str]) -> None:
    if lacking := sorted(expected - names):
        raise Refused(f"{where} lacks {len(lacking)} file(s): {', '.join(lacking[:5])}")
    if extra := sorted(names - expected):
        raise Refused(f"{where} has {len(extra)} file(s) too many: {', '.join(extra[:5])}")


def _check_metadata(where: str, metadata: Message, version: str, extras: set[str]) -> None:
    found = {
        "Version": metadata["Version"],
        "License-Expression": metadata["License-Expression"],
        "Requires-Python": metadata["Requires-Python"],
        "Provides-Extra": set(metadata.get_all("Provides-Extra", ())),
    }
    expected = {
        "Version": version,
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.11",
        "Provides-Extra": extras,
    }
    for name, value in expected.items():
        if found[name] != value:
            raise Refused(f"{where} has {name} {found[name]}, expected is {value}")


def release(root: Path) -> list[Path]:
    """Build, check and put the files into `dist/`, in the place of those of earlier builds."""
    chosen = agreed(root)
    say(f"horolog {chosen.version}, commit {chosen.commit[:12]}: building twice")
    tracked = set(git(root, "ls-tree", "-r", "--name-only", "HEAD").splitlines())
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    dist = root / "dist"
    with tempfile.TemporaryDirectory(prefix="horolog-release-") as scratch:
        files = build(root, chosen, Path(scratch))
        say("both builds have the same bytes: checking metadata and contents")
        run([sys.executable, "-P", "-m", "twine", "check", "--strict", *map(str, files)])
        for path in files:
            check = check_wheel if path.suffix == ".whl" else check_sdist
            check(path, tracked, chosen.version, extras)
        dist.mkdir(exist_ok=True)
        for old in dist.glob("horolog-*"):
            old.unlink()
        built = [Path(shutil.copy(path, dist)) for path in files]
    for path in built:
        say(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root)}")
    if not chosen.is_tagged:
        say(f"a rehearsal: the commit has no tag v{chosen.version}, so do not publish these files")
    return built


def say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="build nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            chosen = agreed(options.root)
            say(f"horolog {chosen.version}: version, CHANGELOG.md, tag and tree agree")
        else:
            release(options.root)
    except Refused as refusal:
        print(f"no release: {refusal}.", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"no release: git says: {error.stderr.strip()}", file=sys.stderr)
        return 1
    except OSError as error:  # no git, or no room
        print(f"no release: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
