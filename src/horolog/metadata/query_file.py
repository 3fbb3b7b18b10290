"""`horolog-queries.json`: the queries that write exactly once, and the last batch of each.

    {"version": 1, "queries": [
    {"query": "...", ..., "checksum": 123},
    ...
    ]}

One file, replaced at once: a kill leaves the old or the new content. Each query has a line and a
CRC-32C, because a batch that is taken for another would be written twice or not at all. Of a
damaged file the sound lines count; the file itself is kept as `horolog-queries.json.<n>.set-aside`.
"""

import json
import logging
from pathlib import Path
from typing import Any, Final

import crc32c

from horolog.json_text import from_json, read_as
from horolog.metadata.rows import QueryRow, checked_query
from horolog.storage import names
from horolog.storage.directory.contents import clear_the_way, set_aside
from horolog.storage.files import Files

_VERSION: Final = 1
_HEAD: Final = f'{{"version": {_VERSION}, "queries": ['
_TAIL: Final = "]}"
_MOST_BYTES: Final = 256 << 20
_CHECKSUM: Final = "checksum"

_logger = logging.getLogger(__name__)


class QueryFile:
    """The file of a log directory. One thread at a time."""

    def __init__(self, files: Files, log_dir: Path) -> None:
        self._files = files
        self._path = str(log_dir / names.QUERIES)
        self._lines: dict[str, str] = {}

    def load(self) -> list[QueryRow]:
        """Read all queries; a damaged file is kept aside, and its sound lines are written again.

        Raises:
            StorageFailed: it cannot be read, or the sound lines cannot be written.
        """
        moved = clear_the_way(self._files, *_split(self._path))
        for path in moved:
            _logger.error("%s is not a regular file and was set aside under this name", path)
        damage: list[str] = []
        rows = read_queries(self._files, self._path, damage)
        self._lines = {row.query: _line(row) for row in rows}
        if damage:
            kept = set_aside(self._files, self._path)
            _logger.error(
                "%s: %s. The %d sound queries are kept; a query that is lost counts again what "
                "logs hold of its last batch once it begins that, but for partitions that were "
                "added meanwhile. The damaged file is %s",
                *(self._path, "; ".join(damage), len(rows), kept),
            )
            self._write(self._lines)
        return rows

    def put(self, row: QueryRow) -> None:
        """Create or replace a query; it is synced.

        Raises:
            StorageFailed: the disk refused; the file is as it was.
        """
        lines = {**self._lines, row.query: _line(row)}
        self._write(lines)
        self._lines = lines

    def _write(self, lines: dict[str, str]) -> None:
        content = "\n".join((_HEAD, ",\n".join(lines.values()), _TAIL, ""))
        self._files.replace(self._path, content.encode())
        self._files.sync_path(_split(self._path)[0])


def read_queries(files: Files, path: str, damage: list[str]) -> list[QueryRow]:
    """The sound queries of a file, none without one; what is wrong is appended to `damage`.

    Raises:
        StorageFailed: it cannot be read.
    """
    data = files.read_whole(path, _MOST_BYTES)
    if data is None:
        return []
    lines = data.split(b"\n")
    if lines[0] != _HEAD.encode() or lines[-2:] != [_TAIL.encode(), b""]:
        damage.append("it does not begin and end as it should")
    rows: dict[str, QueryRow] = {}
    wrong = 0
    for line in lines:
        if line.strip(b"\r ") in (b"", _HEAD.encode(), _TAIL.encode()):
            continue
        try:
            row = _read(line.rstrip(b",\r "))
            rows[row.query] = row
        except ValueError as error:
            wrong += 1
            if wrong == 1:
                damage.append(f"the line {line[:60]!r} cannot be: {error}")
    if wrong > 1:
        damage.append(f"{wrong - 1} more lines cannot be")
    return list(rows.values())


def _line(row: QueryRow) -> str:
    return json.dumps({**row._asdict(), _CHECKSUM: _checksum(row)})


def _read(line: bytes) -> QueryRow:
    document: Any = from_json(line)
    if not isinstance(document, dict):
        raise ValueError("it is no query")
    found = document.pop(_CHECKSUM, None)
    row = read_as(QueryRow, document)
    if found != _checksum(row):
        raise ValueError("its checksum does not match")
    return checked_query(row)


def _checksum(row: QueryRow) -> int:
    return crc32c.crc32c(json.dumps(row).encode())


def _split(path: str) -> tuple[str, list[str]]:
    directory, _, name = path.rpartition("/")
    return directory, [name]
