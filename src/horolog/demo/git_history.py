"""History of a repository as events: one for each commit, and for each file that it changed.

The author's time is a create time in the sense of KIP-32: set where the work was
done, kept for ever, and out of order with the place of the commit in the history.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from horolog.errors import Misconfigured

FIELD, COMMIT = "\x1f", "\x1e"
FORMAT = COMMIT + FIELD.join(["%H", "%at", "%ct", "%an", "%s"]) + FIELD


class Commit(NamedTuple):
    """One commit; times in milliseconds since the epoch."""

    commit: str
    author_ms: int
    commit_ms: int
    author: str
    subject: str
    files: tuple[str, ...]

    def value(self) -> bytes:
        """Return the value of the commit's record, as JSON."""
        body = {
            "author": self.author,
            "subject": self.subject,
            "files": len(self.files),
            "commit_ms": self.commit_ms,
        }
        return json.dumps(body).encode()


def is_repository(path: Path) -> bool:
    """True if `path` is in a git repository with a commit."""
    try:
        known = subprocess.run(
            ["git", "-C", str(path), "rev-parse", "--verify", "--quiet", "HEAD"],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:  # no git on this machine
        return False
    return known.returncode == 0


def read_commits(path: Path, *, limit: int) -> Iterator[Commit]:
    """Yield the newest `limit` commits of a repository, the oldest of them first.

    Raises:
        Misconfigured: git cannot read the repository.
    """
    command = ["git", "-C", str(path), "-c", "core.quotePath=false", "log", f"--format={FORMAT}"]
    command += ["--name-only", "--reverse", f"--max-count={limit}"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as git:
        assert git.stdout is not None
        assert git.stderr is not None
        text = ""
        while piece := git.stdout.read(1 << 20):
            *whole, text = (text + piece).split(COMMIT)
            yield from (_parse(entry) for entry in whole if entry)
        if text:
            yield _parse(text)
        complaint = git.stderr.read().strip()
    if git.returncode:
        raise Misconfigured(f"git cannot read the history of {path}: {complaint}")


def _parse(entry: str) -> Commit:
    # The subject is the last field but one and may hold anything except our separators.
    commit, author_s, commit_s, author, subject, names = entry.split(FIELD, 5)
    return Commit(
        commit=commit,
        author_ms=int(author_s) * 1_000,
        commit_ms=int(commit_s) * 1_000,
        author=author,
        subject=subject,
        files=tuple(name for name in names.split("\n") if name),
    )
