from pathlib import Path

import pytest
from faultyfiles import FaultyFiles, Killed

from horolog.metadata.query_file import QueryFile
from horolog.metadata.rows import QueryRow
from horolog.storage.files import Files

NAME = "horolog-queries.json"
ROWS = [QueryRow(f"q{n}", 0, n, 7, -1, 1, -1, 1, 100, "", 1, "[]", "{}") for n in range(4)]


@pytest.fixture
def file(tmp_path: Path) -> QueryFile:
    file = QueryFile(Files(), tmp_path)
    assert file.load() == []
    for row in ROWS:
        file.put(row)
    return file


def test_the_sound_lines_of_a_damaged_file_count(
    file: QueryFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = (tmp_path / NAME).read_bytes()
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        (tmp_path / NAME).write_bytes(damaged)
        found = QueryFile(Files(), tmp_path).load()
        assert set(found) <= set(ROWS)
        assert len(found) >= len(ROWS) - 2, at  # two, where a line break is damaged
        assert QueryFile(Files(), tmp_path).load() == found
        for kept in tmp_path.glob("*.set-aside"):
            assert kept.read_bytes() == damaged
            kept.unlink()
    assert "sound queries are kept" in caplog.text


@pytest.mark.parametrize("data", [b"", b"\0" * 9000, b"[" * 9000, b"null", b'{"query": "q"}'])
def test_a_file_that_is_no_list_of_queries_holds_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / NAME).write_bytes(data)
    assert QueryFile(Files(), tmp_path).load() == []


def test_what_is_no_file_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    file = QueryFile(Files(), tmp_path)
    assert file.load() == []
    file.put(ROWS[0])
    assert QueryFile(Files(), tmp_path).load() == ROWS[:1]


def test_a_kill_leaves_the_old_or_the_new_queries(file: QueryFile, tmp_path: Path) -> None:
    new = ROWS[0]._replace(batch=8)
    for step in range(50):
        files = FaultyFiles(None)
        killed = QueryFile(files, tmp_path)
        killed.load()
        files.fail_after(step, Killed())
        try:
            killed.put(new)
        except Killed:
            assert set(QueryFile(Files(), tmp_path).load()) - {new} >= set(ROWS[1:])
            file.put(ROWS[0])
        else:
            break
    assert step > 2
    assert new in QueryFile(Files(), tmp_path).load()
