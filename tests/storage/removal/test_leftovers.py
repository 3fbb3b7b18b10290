from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from storelogs import NOW, append, new_log, partition_dir, reopened, times_in

from horolog.config import TopicConfig
from horolog.record import iter_headers
from horolog.storage import BatchReader, Files, whole_batches

CONFIG = TopicConfig(segment_bytes=300)
FIRST, SECOND, THIRD = (f"{base:020d}" for base in (0, 3, 6))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Eight records in three segments, closed cleanly."""
    with new_log(tmp_path, CONFIG) as log:
        for number in range(8):
            append(log, NOW + number)
    with reopened(tmp_path, CONFIG) as (log_dir, _):
        log_dir.close()
    return tmp_path


def offsets(path: Path, *, ours: bool = True) -> list[int]:
    with reopened(path, CONFIG, ours=ours) as (_, log):
        return [record.offset for record in times_in(log)]


def put(path: Path, name: str, content: bytes = b"x") -> Path:
    file = partition_dir(path) / name
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "00000000000000000000.snapshot.deleted",
        "00000000000000000003.log.cleaned",
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
        "00000000000000000099.txnindex",
        "00000000000000000099.companion",
        "leader-epoch-checkpoint.tmp",
    ],
)
def test_a_leftover_is_removed(path: Path, name: str) -> None:
    file = put(path, name)
    assert offsets(path) == list(range(8))
    assert not file.exists()


@pytest.mark.parametrize(
    "name", ["00000000000000000000.log.deleted", "00000000000000000099.index", "notes.txt"]
)
def test_in_an_adopted_directory_it_stays(path: Path, name: str) -> None:
    file = put(path, name)
    assert offsets(path, ours=False) == list(range(8))
    assert file.read_bytes() == b"x"


def test_unrecognised_files_are_kept(path: Path) -> None:
    file = put(path, "notes.txt")
    assert offsets(path) == list(range(8))
    assert file.exists()


def swap(path: Path, base: str) -> None:
    """As a compaction leaves a segment whose turn it is."""
    for suffix in (".log", ".index", ".timeindex"):
        file = partition_dir(path) / f"{base}{suffix}"
        shutil.copy(file, file.with_name(f"{file.name}.swap"))


def test_a_swap_takes_the_place_of_what_it_replaces(path: Path) -> None:
    swap(path, SECOND)
    (partition_dir(path) / f"{SECOND}.log").write_bytes(b"half deleted")
    assert offsets(path) == list(range(8))
    assert not list(partition_dir(path).glob("*.swap"))


def test_a_swap_of_two_segments_replaces_both(path: Path) -> None:
    first = (partition_dir(path) / f"{FIRST}.log").read_bytes()
    second = (partition_dir(path) / f"{SECOND}.log").read_bytes()
    put(path, f"{FIRST}.log.swap", first + second)
    assert offsets(path) == list(range(8))
    names = sorted(file.name for file in partition_dir(path).glob("*.log"))
    assert names == [f"{FIRST}.log", f"{THIRD}.log"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "garbage"])
@pytest.mark.parametrize("ours", [True, False])
def test_a_damaged_swap_replaces_nothing(path: Path, damage: str, ours: bool) -> None:
    first = (partition_dir(path) / f"{FIRST}.log").read_bytes()
    second = (partition_dir(path) / f"{SECOND}.log").read_bytes()
    content = bytearray(first + second)
    match damage:
        case "flip":
            content[len(first) + 70] ^= 1
        case "truncate":
            del content[-10:]
        case "empty":
            content.clear()
        case "garbage":
            content += b"x" * 100
    put(path, f"{FIRST}.log.swap", bytes(content))
    put(path, f"{FIRST}.index.swap")
    with reopened(path, CONFIG, ours=ours) as (log_dir, log):
        assert [record.offset for record in times_in(log)] == list(range(8))
        assert "not finished" in log_dir.recoveries[0].warnings[0]
    names = {file.name for file in partition_dir(path).iterdir()}
    assert not any(name.endswith(".swap") for name in names)
    assert {f"{base}.log" for base in (FIRST, SECOND, THIRD)} <= names
    assert (f"{FIRST}.log.0.cut" in names) == bool(content)


@pytest.mark.parametrize("ours", [True, False])
def test_a_swap_of_which_nothing_is_left_takes_the_place_of_what_is_gone(
    path: Path, ours: bool
) -> None:
    """Kafka was killed between the removal of a segment and giving its place to an empty one."""
    (partition_dir(path) / f"{FIRST}.log").rename(partition_dir(path) / f"{FIRST}.log.deleted")
    put(path, f"{FIRST}.log.swap", b"")
    with reopened(path, CONFIG, ours=ours) as (_, log):
        assert (log.log_start_offset, len(log.segments)) == (0, 3)
        assert [record.offset for record in times_in(log)] == [3, 4, 5, 6, 7]


def test_an_empty_swap_behind_another_replaces_no_records(path: Path) -> None:
    first = (partition_dir(path) / f"{FIRST}.log").read_bytes()
    put(path, f"{FIRST}.log.swap", first)
    put(path, f"{THIRD}.log.swap", b"")
    assert offsets(path) == list(range(8))


def kept_offsets(path: Path) -> set[int]:
    """Of all whole batches in files that were set aside."""
    files, found = Files(read_only=True), set()
    for file in partition_dir(path).glob("*.cut"):
        log = BatchReader.of_file(files, str(file))
        found |= {header.base_offset for _, header in whole_batches(log)}
    return found


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize(
    ("base", "content"),
    [
        (FIRST, [THIRD]),
        (FIRST, [SECOND]),
        (SECOND, [FIRST]),
        (SECOND, [THIRD]),
        (THIRD, [FIRST]),
        (FIRST, [FIRST, THIRD]),
        (FIRST, [SECOND, FIRST]),
        (FIRST, [FIRST, FIRST]),
        (f"{4:020d}", [THIRD]),
        (f"{2:020d}", [SECOND]),
    ],
)
def test_a_swap_of_other_offsets_replaces_nothing(
    path: Path, base: str, content: list[str], ours: bool
) -> None:
    logs = {each: (partition_dir(path) / f"{each}.log").read_bytes() for each in set(content)}
    put(path, f"{base}.log.swap", b"".join(logs[each] for each in content))
    with reopened(path, CONFIG, ours=ours) as (log_dir, log):
        assert [record.offset for record in times_in(log)] == list(range(8))
        assert "is not finished" in log_dir.recoveries[0].warnings[0]
    assert kept_offsets(path) >= {int(each) for each in content}


def test_a_swap_whose_last_batch_lies_about_its_offset_replaces_nothing(path: Path) -> None:
    """No checksum covers a base offset."""
    first = bytearray((partition_dir(path) / f"{FIRST}.log").read_bytes())
    *_, (position, _) = iter_headers(bytes(first))
    first[position + 5] ^= 1  # 65,536 more
    put(path, f"{FIRST}.log.swap", bytes(first))
    assert offsets(path) == list(range(8))


def test_what_is_left_of_replaced_segments_is_set_aside(path: Path) -> None:
    """The first is gone, so that the compaction has to be finished."""
    first = (partition_dir(path) / f"{FIRST}.log").read_bytes()
    third = (partition_dir(path) / f"{THIRD}.log").read_bytes()
    put(path, f"{FIRST}.log.swap", first + third)
    (partition_dir(path) / f"{FIRST}.log").unlink()
    assert offsets(path) == [0, 1, 2, 6, 7]
    assert kept_offsets(path) == {3, 4, 5}


def test_a_swap_is_void_while_something_before_it_is_being_cleaned(path: Path) -> None:
    swap(path, SECOND)
    put(path, f"{SECOND}.log.swap", b"void")
    put(path, f"{FIRST}.log.cleaned")
    assert offsets(path) == list(range(8))
    names = {file.name for file in partition_dir(path).iterdir()}
    assert not any(name.endswith((".swap", ".cleaned")) for name in names)


def test_a_swap_before_what_is_being_cleaned_is_valid(path: Path) -> None:
    swap(path, FIRST)
    (partition_dir(path) / f"{FIRST}.log").write_bytes(b"half deleted")
    put(path, f"{SECOND}.log.cleaned")
    assert offsets(path) == list(range(8))
