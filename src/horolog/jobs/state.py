"""State directory of a job: its arguments, its finished units, and a lock.

    job.json     the job and its arguments, without secrets; another job is refused
    done.jsonl   a line for each unit of work that is done: its CRC-32C and JSON
    *.json       documents of the job's own, each replaced as a whole
    lock         held while a run is under way: two runs on one directory are refused

A run that was refused before it began anything leaves only job.json and the lock, and the next one
may have other arguments. The directory is on a file system of the driver. A line that a kill cut
short was never reported as done. Other damage is refused, since a unit done twice could double
records.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from crc32c import crc32c

from horolog.errors import CorruptFile, Misconfigured
from horolog.jobs.parameters.option import pinned
from horolog.jobs.parameters.shared import Keeps
from horolog.json_text import from_json, read_as
from horolog.storage import names
from horolog.storage.directory.lock import DirectoryLock, lock_directory
from horolog.storage.file_errors import failed_to
from horolog.storage.files import Files

T = TypeVar("T")

VERSION: Final = 1
MAX_DOCUMENT_BYTES: Final = 64 << 20
_JOB, _DONE, _LOCK = "job.json", "done.jsonl", "lock"
_LINE = re.compile(rb"([0-9a-f]{8}) (\{.*\})")


class DocumentsOnly:
    """A state directory that is only read, without its lock, since a run may be under way."""

    is_read_only = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the state of an earlier run.

        Raises:
            Misconfigured: the directory contains no state.
        """
        self.path = Path(path)
        if not (self.path / _JOB).is_file():
            raise Misconfigured(f"{self.path} is no state directory: it has no {_JOB}")
        self._files = Files(read_only=True)
        self.done, _, _ = _done(self._files, self.path)
        """Finished units by their keys, in the order in which they were finished."""

    def read(self, name: str) -> Any:
        """Return a document of the job; None if it was never written.

        Raises:
            CorruptFile: it is not JSON.
        """
        path = str(self.path / f"{name}.json")
        text = self._files.read_whole(path, MAX_DOCUMENT_BYTES)
        if text is None:
            return None
        try:
            return from_json(text)
        except ValueError as error:
            raise CorruptFile(f"{path} is damaged: {error}") from None

    def write(self, name: str, document: Any) -> None:
        """Leave the document as it is, since nothing is written here."""

    def record(self, units: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Leave the journal as it is, since nothing is written here."""


class JobState(DocumentsOnly):
    """Progress of one job in a directory; open while it runs, closed by `close` or `with`."""

    is_read_only = False

    def __init__(
        self, path: str | os.PathLike[str], job: str, arguments: Mapping[str, Any]
    ) -> None:
        """Lock the directory, create it if it is missing, and read the finished units.

        Args:
            path: directory that is empty, missing, or of an earlier run of this job.
            arguments: arguments that every run must share, as JSON without secrets.

        Raises:
            Misconfigured: another run holds the directory, or it is of another job or other
                arguments.
            CorruptFile: a file of the state is damaged.
            StorageFailed: a file cannot be read or written.
        """
        self.path = Path(path)
        self.done: dict[str, dict[str, Any]] = {}
        self._files = Files()
        self._journal_size = 0
        self._lock = self._locked()
        try:
            self._take(job, arguments)
            self._read_done()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the directory for another run."""
        self._files.close()
        self._lock.close()

    def record(self, units: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Append finished units to the journal, and sync it.

        Raises:
            StorageFailed: the disk refuses.
        """
        lines, news = bytearray(), {}
        for key, facts in units:
            text = json.dumps({"unit": key, **facts}, ensure_ascii=True).encode()
            lines += b"%08x %s\n" % (crc32c(text), text)
            news[key] = dict(facts)
        if not news:
            return
        journal = str(self.path / _DONE)
        is_new = not self._files.exists(journal)
        file = self._files.create(journal) if is_new else self._files.get(journal)
        self._files.write_at(file, [bytes(lines)], self._journal_size)
        self._files.sync(file)
        if is_new:
            self._files.sync_path(str(self.path))
        self._journal_size += len(lines)
        self.done.update(news)

    def write(self, name: str, document: Any) -> None:
        """Replace a document as a whole, and sync it."""
        text = json.dumps(document, indent=1, sort_keys=True).encode()
        self._files.replace(str(self.path / f"{name}.json"), text)
        self._files.sync_path(str(self.path))

    def _locked(self) -> DirectoryLock:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise failed_to("create", str(self.path), error) from error
        return _lock(self.path)

    def _take(self, job: str, arguments: Mapping[str, Any]) -> None:
        given = {"version": VERSION, "job": job, "arguments": json.loads(json.dumps(arguments))}
        known = self.read("job")
        if known == given:
            return
        if known is None or _has_begun_nothing(self.path, known):
            # A kill may have left a document that was not yet renamed.
            _refuse_foreign(self.path)
            self.write("job", given)
            return
        _refuse_other(self.path, known, job, arguments)

    def _read_done(self) -> None:
        self.done, self._journal_size, size = _done(self._files, self.path)
        if self._journal_size < size:
            self._files.truncate(self._files.get(str(self.path / _DONE)), self._journal_size)


def look_at_state(
    path: str | os.PathLike[str], job: str, arguments: Mapping[str, Any]
) -> DocumentsOnly | None:
    """Return the state of an earlier run for a dry run: changes nothing, and holds no lock.

    Returns:
        None where a run would be the first one.

    Raises:
        Misconfigured: a run would be refused: another job or arguments, a run under way, or no
            right to write.
    """
    directory = Path(path)
    _require_writable(directory)
    if (directory / _LOCK).exists():
        _lock(directory).close()
    if not (directory / _JOB).is_file():
        if directory.is_dir():
            _refuse_foreign(directory)
        elif os.path.lexists(directory):
            raise Misconfigured(f"{directory} is no directory")
        return None
    kept = DocumentsOnly(directory)
    known = kept.read("job")
    if _has_begun_nothing(directory, known):
        return None
    _refuse_other(directory, known, job, arguments)
    return kept


@contextmanager
def state_of(job: Keeps, name: str) -> Iterator[DocumentsOnly | None]:
    """Open a job's state directory; None without one, or where a dry run finds none.

    Raises:
        Misconfigured: the run is refused, as `JobState` and `look_at_state` say.
    """
    if job.state is None:
        yield None
    elif job.dry_run:
        yield look_at_state(job.state, name, pinned(job))
    else:
        with JobState(job.state, name, pinned(job)) as state:
            yield state


def _lock(directory: Path) -> DirectoryLock:
    try:
        return DirectoryLock(lock_directory(str(directory / _LOCK)))
    except BlockingIOError:
        raise Misconfigured(
            f"{directory} is in use: another run of the job is under way. "
            "Wait for it, or give another --state"
        ) from None


def _require_writable(directory: Path) -> None:
    """Refuse a directory that this user cannot write, or create where it is missing."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not there.is_dir():
        raise Misconfigured(f"{there} is no directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise Misconfigured(f"{there} cannot be written by this user: give another --state")


def _has_begun_nothing(directory: Path, known: Any) -> bool:
    """True if an earlier run wrote nothing beside the job's document."""
    if not isinstance(known, dict) or known.get("version") != VERSION:
        return False
    return not _other_files(directory)


def _other_files(directory: Path) -> list[str]:
    """List the files beside those that every run begins with."""
    return sorted(set(os.listdir(directory)) - {_JOB, _LOCK, _JOB + names.TEMPORARY})


def _refuse_foreign(directory: Path) -> None:
    """Refuse a directory without a job's document that contains other files.

    Raises:
        Misconfigured: the directory contains other files.
    """
    others = _other_files(directory)
    if others:
        raise Misconfigured(
            f"{directory} is no state directory: it holds {others[0]}; give an empty one"
        )


def _refuse_other(directory: Path, known: Any, job: str, arguments: Mapping[str, Any]) -> None:
    """Refuse the state of another job, or of a run with other arguments.

    Args:
        known: document of the job in the state.

    Raises:
        Misconfigured: the state is of another job, other arguments, or another version.
    """
    if not isinstance(known, dict) or known.get("version") != VERSION:
        raise Misconfigured(f"{directory / _JOB} is not of version {VERSION}")
    if known.get("job") != job:
        raise Misconfigured(
            f"{directory} is the state of the job {known.get('job')}; give {job} another one"
        )
    before = known.get("arguments")
    before = before if isinstance(before, dict) else {}
    before, arguments = _given(before), _given(json.loads(json.dumps(arguments)))
    if before != arguments:
        name, then, now = _first_change(before, arguments)
        raise Misconfigured(
            f"{directory} is the state of a run with another {name}: {then!r} then, {now!r} now. "
            "Give the same arguments, or another --state"
        )


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not None: an earlier version may lack an option."""
    return {name: value for name, value in arguments.items() if value is not None}


def _first_change(before: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, Any, Any]:
    """Return the name and both values of the first argument that differs, also within groups."""
    name = min(
        argument
        for argument in before.keys() | arguments.keys()
        if before.get(argument) != arguments.get(argument)
    )
    then, now = before.get(name), arguments.get(name)
    if isinstance(then, dict) and isinstance(now, dict):
        return _first_change(then, now)
    return name, then, now


def _done(files: Files, directory: Path) -> tuple[dict[str, dict[str, Any]], int, int]:
    """Return the units of the journal, the size of their lines, and the size of the file."""
    path = str(directory / _DONE)
    done: dict[str, dict[str, Any]] = {}
    if not files.exists(path):
        return done, 0, 0
    content = files.read_whole(path, max(files.size(path), 1)) or b""
    position = 0
    for line in content.splitlines(keepends=True):
        unit = _unit(line)
        if unit is None:
            if position + len(line) < len(content):
                raise CorruptFile(f"{path}, byte {position}: the line is damaged")
            break
        done[unit.pop("unit")] = unit
        position += len(line)
    return done, position, len(content)


def value_of(kind: type[T], document: Any, name: str, versions: Sequence[int] | None = None) -> T:
    """Convert a document of a job into a value of a class.

    Args:
        versions: readable versions of the form, the newest first; None for a form without versions.

    Raises:
        CorruptFile: the document has another form.
    """
    if versions is not None and isinstance(document, dict):
        version = document.get("version")
        if version not in versions:
            raise CorruptFile(f"{name} is of version {version!r:.60}, not {versions[0]}")
        document = {member: value for member, value in document.items() if member != "version"}
    try:
        return read_as(kind, document)
    except ValueError as error:
        raise CorruptFile(f"{name} is damaged: {error}") from None


def _unit(line: bytes) -> dict[str, Any] | None:
    """Parse one line of the journal; None if it is torn or damaged."""
    match = _LINE.fullmatch(line[:-1]) if line.endswith(b"\n") else None
    if match is None or int(match[1], 16) != crc32c(match[2]):
        return None
    try:
        unit = from_json(match[2])
    except ValueError:
        return None
    return unit if isinstance(unit.get("unit"), str) else None
