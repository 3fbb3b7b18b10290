"""Golden files say where they come from, and are what they were."""

import hashlib

import pytest

from golden import GOLDEN, manifest


def files_beside_tests() -> list[str]:
    return sorted(
        str(path.relative_to(GOLDEN))
        for path in GOLDEN.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and path.name != "manifest.json"
    )


def test_every_golden_file_is_in_the_manifest_and_every_entry_is_a_file():
    listed = [file for entry in manifest().values() for file in entry["files"]]
    assert files_beside_tests() == sorted(listed)


@pytest.mark.parametrize("name", sorted(manifest()))
def test_an_entry_names_the_kafka_and_the_command_that_made_it(name):
    entry = manifest()[name]
    assert all(release[0] in "0234" for release in entry["kafka"].split(", "))
    assert entry["command"] == f"python -m tools.make_golden {name}"
    assert entry["state"] in {"clean", "killed", "told"}


@pytest.mark.parametrize("name", sorted(manifest()))
def test_golden_files_have_the_bytes_they_were_kept_with(name):
    for file, told in manifest()[name]["files"].items():
        assert hashlib.sha256((GOLDEN / file).read_bytes()).hexdigest() == told["sha256"], file


def test_golden_files_stay_small():
    total = sum((GOLDEN / file).stat().st_size for file in files_beside_tests())
    assert total < 3_000_000
