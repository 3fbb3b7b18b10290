"""Committed offsets from a Kafka's own `__consumer_offsets`: as it wrote them, and by hand."""

import os
from pathlib import Path
from struct import pack

import pytest
from batches import marker

from golden import GOLDEN
from horolog.metadata import KafkaOffsets, read_consumer_offsets
from horolog.record import LogRecord, build_batch
from horolog.storage import Files

FILES = Files(read_only=True)
PRODUCER_ID = 7


def key(group: bytes, topic: bytes, partition: int, version: int = 1) -> bytes:
    texts = b"".join(pack(">h", len(text)) + text for text in (group, topic))
    return pack(">h", version) + texts + pack(">i", partition)


def commit(
    group: bytes, topic: bytes, partition: int, offset: int | None, version: int = 1
) -> LogRecord:
    value = None if offset is None else pack(">hqihq", 3, offset, -1, 0, 5)
    return LogRecord(5, key(group, topic, partition, version), value)


def log(log_dir: Path, *batches: bytes, directory: str = "__consumer_offsets-0") -> Path:
    (log_dir / directory).mkdir(exist_ok=True)
    path = log_dir / directory / f"{0:020}.log"
    with path.open("ab") as file:
        file.writelines(batches)
    return path


def read(log_dir: Path) -> KafkaOffsets:
    return read_consumer_offsets(FILES, log_dir)


def test_a_directory_of_kafkas_has_what_its_groups_have_committed() -> None:
    found = read(GOLDEN / "clean")
    assert found.of_topics["client-none"]["golden-group", 0] == 7
    assert found.unread == ()


def test_the_last_commit_counts_and_a_tombstone_takes_it_back(tmp_path: Path) -> None:
    log(
        tmp_path,
        build_batch([commit(b"g", b"t", 0, 1), commit(b"g", b"t", 1, 5), commit(b"h", b"t", 0, 3)]),
        build_batch([commit(b"g", b"t", 0, 2), commit(b"g", b"t", 1, None)], base_offset=3),
        build_batch([commit(b"members", b"", 0, 9, version=2)], base_offset=5),
        build_batch([LogRecord(5, pack(">hh", 3, 1) + b"g", pack(">hib", 0, 2, 0))], base_offset=6),
    )
    assert read(tmp_path) == KafkaOffsets({"t": {("g", 0): 2, ("h", 0): 3}}, ())


def test_a_commit_in_a_transaction_counts_once_that_is_committed(tmp_path: Path) -> None:
    def pending(base_offset: int, offset: int) -> bytes:
        return build_batch(
            [commit(b"g", b"t", 0, offset)],
            base_offset=base_offset,
            producer_id=PRODUCER_ID,
            is_transactional=True,
        )

    log(
        tmp_path,
        build_batch([commit(b"g", b"t", 0, 1)]),
        pending(1, 2),
        marker(2, PRODUCER_ID, kind=0, epoch=-1),
    )
    assert read(tmp_path).of_topics == {"t": {("g", 0): 1}}
    log(
        tmp_path,
        pending(3, 3),
        marker(4, PRODUCER_ID, kind=1, epoch=-1),
        pending(5, 4),
    )
    assert read(tmp_path).of_topics == {"t": {("g", 0): 3}}


def test_what_is_too_large_or_damaged_is_named_and_costs_nothing_else(tmp_path: Path) -> None:
    log(tmp_path, build_batch([commit(b"g", b"t", 0, 1)]))
    small = build_batch([commit(b"h", b"t", 0, 1)])
    log(tmp_path, small, b"\x7f" * 200, directory="__consumer_offsets-1")
    log(tmp_path, small * 100, directory="__consumer_offsets-2")
    found = read_consumer_offsets(FILES, tmp_path, most_bytes=2_000)
    assert found.of_topics == {"t": {("g", 0): 1, ("h", 0): 1}}
    assert found.unread == ("__consumer_offsets-1", "__consumer_offsets-2")
    few = read_consumer_offsets(FILES, tmp_path, most_offsets=1)
    assert few.unread == ("__consumer_offsets-1", "__consumer_offsets-2")


@pytest.mark.parametrize("bad", [b"", b"\0\1", b"\0\1\x7f\xffg", b"\0\1\0\1\xff\0\0\0\0\0\0"])
def test_a_record_that_is_no_commit_costs_only_itself(tmp_path: Path, bad: bytes) -> None:
    log(tmp_path, build_batch([LogRecord(5, bad, b"\0"), commit(b"g", b"t", 0, 1)]))
    assert read(tmp_path).of_topics == {"t": {("g", 0): 1}}


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    path = log(tmp_path, build_batch([commit(b"g", b"t", 0, 1)]))
    os.mkfifo(path.with_name(f"{9:020}.log"))
    (tmp_path / "__consumer_offsets-3").symlink_to(path.parent)
    assert read(tmp_path).of_topics == {"t": {("g", 0): 1}}
