"""Where caches of a user may be."""

import os
from pathlib import Path

import pytest
from overrides import override

from horolog.cache_places import cache_places


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What Python takes for temporary files."""
    override(monkeypatch, "tempfile", tempdir=str(tmp_path))
    return tmp_path


def test_the_users_cache_comes_before_temporary_files(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/the/users")
    of_user = temporary / f"horolog-{os.getuid()}"
    assert list(cache_places()) == [Path("/the/users/horolog"), of_user]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert list(cache_places()) == [of_user]


def test_the_current_directory_is_none_where_python_found_no_other(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a log directory: `horolog-0` would be a partition of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/the/users")
    monkeypatch.chdir(temporary)
    assert list(cache_places()) == [Path("/the/users/horolog")]
    temporary.chmod(0o1777)  # as /tmp, in which a user may well be
    assert len(list(cache_places())) == 2


def test_without_any_directory_for_temporary_files_there_is_the_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/the/users")
    override(monkeypatch, "tempfile", tempdir=str(tmp_path / "gone"))
    assert list(cache_places()) == [Path("/the/users/horolog")]
