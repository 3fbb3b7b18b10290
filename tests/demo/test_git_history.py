import subprocess
from pathlib import Path

import pytest

from horolog.demo.git_history import Commit, is_repository, read_commits
from horolog.errors import Misconfigured


def git(repo: Path, *arguments: str, when: str = "") -> None:
    environment = {
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "HOME": str(repo),
        "GIT_AUTHOR_DATE": when,
        "GIT_COMMITTER_DATE": "2024-05-01T12:00:00+02:00",
        "GIT_AUTHOR_NAME": "Ada \u00e9",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Bo",
        "GIT_COMMITTER_EMAIL": "bo@example.org",
    }
    subprocess.run(["git", "-C", str(repo), *arguments], env=environment, check=True, text=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    for number, when in enumerate(["2024-05-01T10:00:00Z", "2024-04-30T10:00:00Z"]):
        for name in ("a", f"\u00fcber {number}.txt"):
            (tmp_path / name).write_text(str(number))
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "-m", f"subject {number}", when=when)
    return tmp_path


def test_commits_come_oldest_first_with_the_authors_time_in_milliseconds(repo: Path) -> None:
    first, second = read_commits(repo, limit=10)
    assert first == Commit(
        commit=first.commit,
        author_ms=1_714_557_600_000,
        commit_ms=1_714_557_600_000,
        author="Ada \u00e9",
        subject="subject 0",
        files=("a", "\u00fcber 0.txt"),
    )
    assert second.author_ms == first.author_ms - 86_400_000


def test_a_limit_keeps_the_newest_commits(repo: Path) -> None:
    assert [commit.subject for commit in read_commits(repo, limit=1)] == ["subject 1"]


def test_a_directory_without_history_is_not_a_repository(tmp_path: Path) -> None:
    assert not is_repository(tmp_path)
    with pytest.raises(Misconfigured, match="cannot read the history"):
        list(read_commits(tmp_path, limit=1))


def test_a_repository_without_a_commit_has_no_history(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert not is_repository(tmp_path)
