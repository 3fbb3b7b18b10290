"""What verification finds, on files that Apache Kafka wrote and on every kind of damage."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from batches import batch
from compacting import COMPACT, clean, put
from hypothesis import given
from hypothesis import strategies as st
from old_messages import build_messages
from overrides import override
from partition_files import PartitionFiles, snapshot
from storelogs import NOW, TOPIC_ID, append, new_log, open_dir, partition_dir

from companions import has_seal, put_seal, seal_in
from golden import answers, copy_directory, extract_killed
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, Misconfigured
from horolog.record import (
    HEADER_SIZE,
    Codec,
    LogRecord,
    build_batch,
    compress,
    iter_headers,
    parse_header,
    read_records,
    with_records,
)
from horolog.storage import (
    Checked,
    EpochStart,
    Files,
    Finding,
    ReadAhead,
    Severity,
    TimeIndex,
    TopicPartition,
    Verification,
    find_target,
    read_aborted,
    write_epochs,
    write_offsets,
)

EVERY_BATCH = TopicConfig(index_interval_bytes=0, segment_bytes=600)
PARTITION = TopicPartition("orders", 0)
DAMAGE, FAULT, NOTE = Severity.DAMAGE, Severity.FAULT, Severity.NOTE


def found(path: Path) -> list[Finding]:
    return [step for step in Verification.of(path).steps() if isinstance(step, Finding)]


def wrong(path: Path) -> list[Finding]:
    return [each for each in found(path) if each.severity is not NOTE]


def test_a_kill_as_append_times_are_begun_leaves_no_fault(tmp_path: Path) -> None:
    with new_log(tmp_path, EVERY_BATCH) as log:
        append(log, NOW)
        log.roll(NOW)
    (partition_dir(tmp_path) / f"{1:020d}.companion").write_bytes(b"")
    open_dir(tmp_path, EVERY_BATCH).close()
    assert found(tmp_path) == []


def only(path: Path) -> Finding:
    (finding,) = wrong(path)
    return finding


def make_log(log_dir: Path, *, clean: bool = True) -> PartitionFiles:
    """Three segments of several codecs, with a transaction that was aborted, and checkpoints."""
    made = PartitionFiles(log_dir, base_offset=0, leader_epoch=3)
    for number, codec in enumerate(Codec):
        made.add([NOW + number * 5, NOW + number], codec=codec)
    made.roll()
    for number in range(4):
        made.add([NOW + number])
    made.add([NOW + 60], producer_id=9)
    made.end_transaction(9, commit=False, at_ms=NOW + 61)
    made.roll()
    for number in range(3):
        made.add([NOW + 90 + number, NOW], append_ms=None)
    made.write_indexes()
    files = Files()
    write_epochs(files, str(made.directory / "leader-epoch-checkpoint"), [EpochStart(3, 0)])
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        write_offsets(files, str(log_dir / name), {PARTITION: made.next_offset})
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    if clean:
        (log_dir / ".kafka_cleanshutdown").write_text("")
    return made


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    make_log(tmp_path / "data")
    return tmp_path / "data"


def logs(log_dir: Path) -> list[Path]:
    return sorted(log_dir.glob("orders-0/*.log"))


def change(path: Path, how: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    how(data)
    path.write_bytes(data)


# -- nothing wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clean", "recovered", "old-formats"])
def test_what_kafka_left_after_a_clean_stop_is_found_sound(name: str) -> None:
    assert wrong(Path(__file__).parents[2] / "golden" / name) == []


def test_gaps_that_compaction_left_are_reported_and_no_fault() -> None:
    seen = found(Path(__file__).parents[2] / "golden" / "clean" / "compacted-0")
    assert {each.severity for each in seen} == {NOTE}
    assert any("as compaction leaves it" in each.what for each in seen)


@pytest.mark.parametrize("name", ["v0-none-0", "v0-lz4-0", "v1-gzip-0", "mixed-0"])
def test_old_formats_are_checked_record_by_record(tmp_path: Path, name: str) -> None:
    golden = Path(__file__).parents[2] / "golden" / "old-formats" / name
    told = answers("old-formats")[name]
    steps = [step for step in Verification.of(golden).steps() if isinstance(step, Checked)]
    assert sum(step.records for step in steps) == len(told["records"])
    shutil.copytree(golden, tmp_path / name)
    (first, *_) = sorted((tmp_path / name).glob("*.log"))
    data = bytearray(first.read_bytes())
    data[40] ^= 1
    first.write_bytes(data)
    assert any("checksum" in each.what for each in wrong(tmp_path / name))


def test_all_is_counted(log_dir: Path) -> None:
    steps = [step for step in Verification.of(log_dir).steps() if isinstance(step, Checked)]
    total = Checked(*(sum(column) for column in zip(*steps, strict=True)))
    size = sum(path.stat().st_size for path in logs(log_dir))
    assert total == Checked(size, batches=14, records=22, segments=3, partitions=1)
    assert wrong(log_dir) == []


def test_what_horolog_wrote_is_found_sound_whenever_it_is_looked_at(tmp_path: Path) -> None:
    with new_log(tmp_path / "log", EVERY_BATCH) as log:
        for number in range(30):
            append(log, NOW + number * 7 % 20, NOW + number, codec=Codec(number % 5))
        assert Verification.of(tmp_path / "log").around.is_live
        assert wrong(tmp_path / "log") == []
    assert not Verification.of(tmp_path / "log").around.is_live
    assert wrong(tmp_path / "log") == []  # killed
    open_dir(tmp_path / "log", EVERY_BATCH).close()
    assert wrong(tmp_path / "log") == []
    assert all(map(has_seal, partition_dir(tmp_path / "log").glob("*.companion")))


def test_times_before_1970_are_sound_as_we_and_as_kafka_write_them(tmp_path: Path) -> None:
    made = PartitionFiles(tmp_path / "data", base_offset=0)
    made.add([-5000, -4000])
    kafkas = build_batch([LogRecord(-5000, None, b"")], base_offset=2)
    header = parse_header(kafkas)._replace(max_timestamp=-1)
    records = kafkas[HEADER_SIZE:]
    made.write(with_records(header, records))
    made.write_indexes()
    assert wrong(made.directory) == []


def test_nothing_is_written(log_dir: Path) -> None:
    change(logs(log_dir)[0], lambda data: data.__setitem__(100, data[100] ^ 1))
    logs(log_dir)[1].with_suffix(".timeindex").unlink()
    before = snapshot(log_dir)
    for directory in (log_dir / "orders-0", log_dir):
        os.chmod(directory, 0o555)
    try:
        assert len(wrong(log_dir)) == 2
    finally:
        for directory in (log_dir, log_dir / "orders-0"):
            os.chmod(directory, 0o755)
    assert snapshot(log_dir) == before


# -- damage in a log ------------------------------------------------------------------------


def test_what_a_kill_left_of_kafkas_logs_is_named_to_the_byte(tmp_path: Path) -> None:
    killed = extract_killed(tmp_path / "killed")
    seen = {(os.path.relpath(each.path, killed), each.position) for each in wrong(killed)}
    assert seen == {
        ("flipped-0/00000000000000000162.log", 632),
        ("no-index-0/00000000000000000000.index", None),
        ("torn-0/00000000000000000081.log", 410),
        ("replication-offset-checkpoint", None),
    }


def test_a_flipped_bit_costs_one_batch_and_the_rest_is_checked(log_dir: Path) -> None:
    first = logs(log_dir)[0]
    (_, _), (position, header), *_ = iter_headers(first.read_bytes())
    change(first, lambda data: data.__setitem__(position + 70, data[position + 70] ^ 1))
    finding = only(log_dir)
    assert finding.severity is DAMAGE
    assert (finding.position, finding.offset) == (position, header.base_offset)
    assert finding.mend is not None
    assert "restore this segment from a replica or a backup" in finding.mend
    (log_dir / ".kafka_cleanshutdown").unlink()
    os.remove(log_dir / "recovery-point-offset-checkpoint")
    cut = sum(path.stat().st_size for path in logs(log_dir)) - position
    mend = only(log_dir).mend or ""
    assert f"cuts the log here: {cut} bytes, all from offset {header.base_offset} on" in mend


def test_behind_damage_the_index_leads_to_the_next_whole_batch(log_dir: Path) -> None:
    first = logs(log_dir)[0]
    places = [(position, header) for position, header in iter_headers(first.read_bytes())]
    position, _ = places[1]
    change(first, lambda data: data.__setitem__(slice(position, position + 20), b"\x5a" * 20))
    finding = only(log_dir)
    assert f"the next whole batch begins at byte {places[2][0]}" in finding.what
    first.with_suffix(".index").write_bytes(b"")
    assert any(f"{first.stat().st_size - position} bytes" in each.what for each in wrong(log_dir))


@pytest.mark.parametrize("missing", [1, 60, 90])
def test_a_torn_tail_is_reported_with_what_a_start_would_cut(log_dir: Path, missing: int) -> None:
    last = logs(log_dir)[-1]
    *_, (position, header) = iter_headers(last.read_bytes())
    os.truncate(last, last.stat().st_size - missing)
    (log_dir / ".kafka_cleanshutdown").unlink()
    seen = wrong(log_dir / "orders-0")
    assert (seen[0].severity, seen[0].position) == (DAMAGE, position)
    assert f"{header.size - missing} bytes" in (seen[0].mend or "")


def test_zeros_at_the_end_are_lawful_in_the_last_segment_only(log_dir: Path) -> None:
    (log_dir / ".kafka_cleanshutdown").unlink()
    for path in (logs(log_dir)[-1], logs(log_dir)[0]):
        with path.open("ab") as file:
            file.write(bytes(5000))
    assert only(log_dir).path == str(logs(log_dir)[0])
    assert "truncate -s" in (only(log_dir).mend or "")


def test_a_whole_batch_that_is_gone_from_the_end_is_missed(log_dir: Path) -> None:
    last = logs(log_dir)[-1]
    *_, (position, header) = iter_headers(last.read_bytes())
    os.truncate(last, position)
    assert any(
        each.severity is DAMAGE and each.offset == header.base_offset for each in wrong(log_dir)
    )


def rebuilt(data: bytes, position: int, **changes: int) -> bytes:
    """The log with one header changed and its checksum made to fit."""
    header = parse_header(data, position)
    records = data[position + HEADER_SIZE : position + header.size]
    packed = with_records(header._replace(**changes), records)
    return data[:position] + packed + data[position + header.size :]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"max_timestamp": NOW + 1_000}, "for the largest timestamp and its records"),
        ({"records_count": 1}, "records still remaining"),
        ({"records_count": 3}, "its last offset delta is 1, its count 3"),
        ({"last_offset_delta": 0, "records_count": 1}, "records still remaining"),
        ({"last_offset_delta": -5}, "its last offset delta is -5"),
        ({"attributes": 7}, "there is no compression codec 7"),
        ({"attributes": 4}, "cannot be decompressed with zstd"),
        ({"base_offset": 0}, "begins at offset 0, before 2"),
        ({"base_offset": 1 << 40}, "and the segment's offsets are before"),
        ({"leader_epoch": -7}, "its leader epoch is -7"),
    ],
)
def test_a_batch_whose_checksum_is_right_may_be_wrong(
    log_dir: Path, changes: dict[str, int], what: str
) -> None:
    first = logs(log_dir)[0]
    (_, _), (position, _), *_ = iter_headers(first.read_bytes())
    # The second batch made uncompressed, so that every change is one of its header alone.
    plain = build_batch([LogRecord(NOW + 5, b"k", b"v")] * 2, base_offset=2, leader_epoch=3)
    first.write_bytes(rebuilt(first.read_bytes()[:position] + plain, position, **changes))
    seen = [each for each in wrong(log_dir) if each.path == str(first)]
    assert seen[0].severity is DAMAGE
    assert what in seen[0].what
    assert seen[0].position == position


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_stream_without_its_end_is_damage_though_all_records_are_there(
    log_dir: Path, codec: Codec
) -> None:
    first = logs(log_dir)[0]
    (_, _), (position, second), *_ = iter_headers(first.read_bytes())
    sound = build_batch([LogRecord(NOW + 5, b"k", b"v")] * 2, base_offset=2, leader_epoch=3)
    packed = bytearray(compress(codec, sound[HEADER_SIZE:]))
    if codec is Codec.ZSTD:
        packed[6] &= ~1  # the block is no longer the last one
    else:
        del packed[-2:]
    header = parse_header(sound)._replace(
        attributes=int(codec), batch_length=HEADER_SIZE - 12 + len(packed)
    )
    cut = with_records(header, packed)
    rest = first.read_bytes()[position + second.size :]
    first.write_bytes(first.read_bytes()[:position] + cut + rest)
    seen = [each for each in wrong(log_dir) if each.path == str(first)]
    assert (seen[0].severity, seen[0].position) == (DAMAGE, position)
    assert "the stream ends early" in seen[0].what


def test_segments_that_overlap_are_damage(log_dir: Path) -> None:
    second = logs(log_dir)[1]
    for suffix in (".log", ".index", ".timeindex"):
        path = second.with_suffix(suffix)
        path.rename(path.with_name(f"{7:020d}{suffix}"))
    assert any("the next segment begins at 7" in each.what for each in wrong(log_dir))


def test_a_segment_that_is_missing_is_damage_and_its_indexes_are_reported(log_dir: Path) -> None:
    logs(log_dir)[1].unlink()
    lost, *lone = wrong(log_dir)[::-1]
    assert lost.severity is DAMAGE
    assert "Offsets 10 to 15 are in no segment" in lost.what
    assert [each.severity for each in lone] == [FAULT, FAULT, FAULT]
    assert all("restore" in (each.mend or "") for each in (lost, *lone))


def remove_segment(log: Path) -> None:
    for path in log.parent.glob(f"{log.stem}.*"):
        path.unlink()


def test_a_gap_between_segments_may_be_left_by_a_compaction_where_one_was_at_work(
    log_dir: Path,
) -> None:
    remove_segment(logs(log_dir)[1])
    assert only(log_dir).severity is DAMAGE
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 16\n")
    assert wrong(log_dir) == []
    assert any("as compaction leaves it" in each.what for each in found(log_dir))


@pytest.mark.parametrize("is_recovered", [False, True])
def test_offsets_that_compaction_left_out_behind_segments_are_no_damage(
    tmp_path: Path, *, is_recovered: bool
) -> None:
    with new_log(tmp_path, replace(COMPACT, segment_bytes=100)) as log:
        for key in b"a", b"b", b"b", b"c":
            put(log, key)
        log.config = replace(COMPACT, segment_bytes=200)
        clean(log)
        directory = Path(log.directory)
    if is_recovered:  # all of it: nothing says up to where it was flushed
        (tmp_path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        open_dir(tmp_path, COMPACT).close()
    alone = tmp_path / "alone" / directory.name
    shutil.copytree(directory, alone)
    assert wrong(alone) == []
    assert any("as compaction leaves it" in each.what for each in found(alone))


SMALL = TopicConfig(index_interval_bytes=0, segment_bytes=200, retention_ms=10)


@pytest.fixture
def shortened(tmp_path: Path) -> Path:
    """A log of our own with segments of two records each, of which retention took the first."""
    opened = open_dir(tmp_path / "data", SMALL)
    log = opened.create("orders", 0, TOPIC_ID, SMALL, NOW)
    for number in range(12):
        append(log, NOW + number)
    assert len(log.apply_retention(NOW + 14, 0)) == 2
    assert log.log_start_offset == 4
    assert opened.close() == []
    assert wrong(tmp_path / "data") == []
    return tmp_path / "data"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("evidence", ["both", "epochs", "ours"])
def test_first_segments_that_are_gone_are_damage(
    shortened: Path, count: int, evidence: str
) -> None:
    if evidence == "ours":
        (shortened / "orders-0" / "leader-epoch-checkpoint").unlink()
    if evidence == "epochs":
        (shortened / "horolog-checkpoint-ids").unlink()
    for log in logs(shortened)[:count]:
        remove_segment(log)
    finding = only(shortened)
    assert finding.severity is DAMAGE
    assert f"offsets 4 to {3 + 2 * count} are missing" in finding.what
    assert finding.mend


def test_first_segments_that_retention_was_removing_are_not_missed(shortened: Path) -> None:
    first = logs(shortened)[0]
    for path in first.parent.glob(f"{first.stem}.*"):
        path.rename(f"{path}.deleted")
    assert wrong(shortened) == []


@pytest.mark.parametrize("start", [5, 8, 11, 12])
def test_a_log_start_that_was_moved_forward_is_a_fault(shortened: Path, start: int) -> None:
    line = shortened / "log-start-offset-checkpoint"
    line.write_text(f"0\n1\norders 0 {start}\n")
    finding = only(shortened)
    assert (finding.severity, finding.path) == (FAULT, str(line))
    assert f"offsets 4 to {start - 1}, which are there" in finding.what
    assert "orders 0" in (finding.mend or "")


def test_a_log_start_that_delete_records_moved_is_lawful(tmp_path: Path) -> None:
    opened = open_dir(tmp_path / "data", SMALL)
    log = opened.create("orders", 0, TOPIC_ID, SMALL, NOW)
    for number in range(12):
        append(log, NOW + number)
    log.delete_records(5)
    assert opened.close() == []
    assert wrong(tmp_path / "data") == []
    assert any("5 offsets before it were deleted" in each.what for each in found(tmp_path / "data"))


@pytest.mark.parametrize("start", [3, 15])
def test_a_copy_begins_with_the_whole_batch_that_holds_its_start(
    tmp_path: Path, start: int
) -> None:
    made = PartitionFiles(tmp_path / "data", base_offset=0)
    for number in range(2):
        made.add([NOW + number] * 10)
    made.write_indexes()
    (made.directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (made.log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start}\n")
    findings = [each.what for each in wrong(made.log_dir)]
    assert any("no client reads offsets 0 to 14" in each for each in findings) == (start == 15)
    assert len(findings) == (start == 15)


def test_a_bomb_is_not_unpacked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.storage.scan", MAX_UNCOMPRESSED_BYTES=1 << 20)
    made = PartitionFiles(tmp_path / "data", base_offset=0)
    made.add_records([LogRecord(NOW, None, bytes(4 << 20))], codec=Codec.ZSTD)
    made.write_indexes()
    assert "holds more than 1048576 bytes" in only(made.directory).what


def test_a_batch_longer_than_what_is_held_is_checked_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(
        monkeypatch, "horolog.storage", MAX_HELD_BYTES=5000, EVERYTHING=ReadAhead(1000, 1000, 1000)
    )
    made = PartitionFiles(tmp_path / "data", base_offset=0)
    made.add([NOW], value_bytes=3000)
    made.add([NOW], value_bytes=9000)
    made.add([NOW], value_bytes=10)
    made.write_indexes()
    assert "too many for its records to be looked at" in only(made.directory).what
    change(made.log, lambda data: data.__setitem__(9000, data[9000] ^ 1))
    assert "checksum" in only(made.directory).what


# -- what lies beside -----------------------------------------------------------------------


def _zero_tail(data: bytearray) -> None:
    data += bytes(240)


def _far(data: bytearray) -> None:
    data[-4:] = b"\x7f\xff\xff\xff"


def _odd(data: bytearray) -> None:
    data += b"\0"


def _earlier(data: bytearray) -> None:
    data[0] ^= 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", [_zero_tail, _far, _odd, _earlier])
def test_a_wrong_index_is_reported_with_its_byte_and_the_command_that_mends_it(
    log_dir: Path, suffix: str, how: Callable[[bytearray], None]
) -> None:
    path = logs(log_dir)[1].with_suffix(suffix)
    change(path, how)
    seen = [each for each in wrong(log_dir) if each.path == str(path)]
    assert seen
    assert seen[0].severity is FAULT
    assert seen[0].position is not None
    assert "horolog log reindex" in (seen[0].mend or "")


def test_room_for_more_entries_is_lawful_while_a_segment_may_grow(log_dir: Path) -> None:
    for suffix in (".index", ".timeindex"):
        change(logs(log_dir)[-1].with_suffix(suffix), lambda data: data.extend(bytes(2400)))
    assert len(wrong(log_dir)) == 2  # closed cleanly, Kafka would take zeros for entries
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert wrong(log_dir) == []


def test_indexes_of_the_metadata_log_may_have_room_after_a_clean_stop(log_dir: Path) -> None:
    made = PartitionFiles(log_dir, "__cluster_metadata", base_offset=0)
    made.add([NOW])
    made.write_indexes()
    for suffix in (".index", ".timeindex"):  # as Kafka 4.4 leaves them
        made.log.with_suffix(suffix).write_bytes(bytes(2400))
    assert wrong(log_dir) == []


def test_append_times_of_v0_in_a_time_index_are_valid(tmp_path: Path) -> None:
    made = PartitionFiles(tmp_path / "data", base_offset=0)
    for magic in (0, 0, 0, 1):
        at = made.next_offset
        made.write(build_messages([LogRecord(NOW + 5, None, b"v")], magic, base_offset=at))
    made.write_indexes()
    path, layout = made.log.with_suffix(".timeindex"), TimeIndex.LAYOUT
    own = layout.pack(NOW + 5, 3)
    path.write_bytes(layout.pack(NOW, 0) + layout.pack(NOW + 1, 2) + own)  # of its leader
    assert wrong(made.directory) == []
    path.write_bytes(layout.pack(NOW, 0) + layout.pack(NOW + 4, 3) + own)
    assert "that of the batch there is" in wrong(made.directory)[0].what


def test_a_time_index_without_the_largest_time_is_a_fault(log_dir: Path) -> None:
    path = logs(log_dir)[1].with_suffix(".timeindex")
    os.truncate(path, path.stat().st_size - 12)
    assert "the largest timestamp of the segment is" in only(log_dir).what


def test_index_entries_of_a_follower_for_several_batches_are_valid(log_dir: Path) -> None:
    path = logs(log_dir)[1].with_suffix(".index")
    places = list(iter_headers(logs(log_dir)[1].read_bytes()))
    position, last = places[1][0], places[3][1].last_offset - 10
    path.write_bytes(last.to_bytes(4, "big") + position.to_bytes(4, "big"))
    assert wrong(log_dir) == []
    assert any("as a follower writes them" in each.what for each in found(log_dir))


@pytest.mark.parametrize(
    ("name", "content", "severity"),
    [
        ("recovery-point-offset-checkpoint", "0\n1\norders 0 999\n", DAMAGE),
        ("replication-offset-checkpoint", "0\n1\norders 0 999\n", FAULT),
        ("log-start-offset-checkpoint", "0\n1\norders 0 999\n", DAMAGE),
        ("log-start-offset-checkpoint", "0\n1\norders 0 -3\n", FAULT),
        ("recovery-point-offset-checkpoint", "0\n7\n", FAULT),
        ("recovery-point-offset-checkpoint", "\xff", FAULT),
        ("recovery-point-offset-checkpoint", "0\n1\norders 0 " + "9" * 5000 + "\n", FAULT),
        ("cleaner-offset-checkpoint", "x", FAULT),
        ("meta.properties", "version=1\nnode.id=one\n", FAULT),
        ("meta.properties", "", FAULT),
        ("orders-0/leader-epoch-checkpoint", "0\n2\n3 0\n2 5\n", FAULT),
        ("orders-0/leader-epoch-checkpoint", "0\n2\n3 0\n4 99\n", FAULT),
        ("orders-0/leader-epoch-checkpoint", "0\n1\n4 0\n", FAULT),
        ("orders-0/partition.metadata", "version: 0\ntopic_id: ?\n", FAULT),
        ("orders-0/append-time-checkpoint", "0\nnever\n", FAULT),
        ("orders-0/00000000000000000010.snapshot", "nonsense", FAULT),
        ("orders-0/00000000000000000010.batches", "nonsense", FAULT),
        ("orders-0/00000000000000000010.txnindex", "nonsense", FAULT),
        ("orders-0/00000000000000000010.companion", "nonsense", FAULT),
        ("orders-0/00000000000000000004.index", "", FAULT),
    ],
)
def test_a_small_file_that_is_wrong_is_named(
    log_dir: Path, name: str, content: str, severity: Severity
) -> None:
    (log_dir / name).write_text(content, encoding="latin-1")
    finding = only(log_dir)
    assert finding.severity is severity
    assert finding.path == str(log_dir / name)
    assert finding.mend


@pytest.mark.parametrize(
    "name",
    [
        "orders-0/00000000000000000000.log.deleted",
        "orders-0/00000000000000000000.log.cleaned",
        "orders-0/00000000000000000000.log.swap",
        "orders-0/leader-epoch-checkpoint.tmp",
        "gone-0.0123456789abcdef0123456789abcdef-delete/x",
        "moved-0.0123456789abcdef0123456789abcdef-stray/x",
    ],
)
def test_leftovers_are_reported_and_no_fault(log_dir: Path, name: str) -> None:
    (log_dir / name).parent.mkdir(exist_ok=True)
    (log_dir / name).write_bytes(b"")
    assert wrong(log_dir) == []
    before = len(found(log_dir))
    shutil.rmtree(log_dir / name) if (log_dir / name).is_dir() else (log_dir / name).unlink()
    if not name.startswith("orders"):
        (log_dir / name).parent.rmdir()
    assert len(found(log_dir)) == before - 1


def test_a_seal_is_held_against_its_segment(tmp_path: Path) -> None:
    with new_log(tmp_path / "log", EVERY_BATCH) as log:
        for number in range(12):
            append(log, NOW + number)
    open_dir(tmp_path / "log", EVERY_BATCH).close()
    directory = partition_dir(tmp_path / "log")
    first, second, *_ = sorted(directory.glob("*.companion"))
    put_seal(first, seal_in(second))
    assert any("the seal is ignored" in each.what for each in found(directory))
    index = second.with_suffix(".index")
    os.truncate(index, index.stat().st_size - 8)
    assert wrong(directory) == []
    assert any("changed since it was sealed" in each.what for each in found(directory))


# -- a broker at work -----------------------------------------------------------------------


def test_the_end_may_move_while_a_broker_is_at_work(tmp_path: Path) -> None:
    with new_log(tmp_path / "log") as log:
        append(log, NOW)
        path = partition_dir(tmp_path / "log") / f"{0:020d}.log"
        with path.open("ab") as file:
            file.write(batch(NOW)[:70])
        seen = found(tmp_path / "log")
        assert {each.severity for each in seen} == {NOTE}
        assert any("the end may move" in each.what for each in seen)
    assert [each.severity for each in wrong(tmp_path / "log")] == [DAMAGE]


def test_a_log_directory_may_be_named_like_a_partition(tmp_path: Path) -> None:
    make_log(tmp_path / "data-1")
    target = find_target(tmp_path / "data-1")
    assert target.is_log_dir
    assert target.partitions


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(Misconfigured):
            Verification.of(path)


# -- any bytes at all -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Path, bytes]]:
    """A sound log directory, and what its files hold; put back after every example."""
    log_dir = tmp_path_factory.mktemp("sound") / "data"
    make_log(log_dir)
    return log_dir, {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()}


def records(log_dir: Path) -> list[LogRecord] | None:
    told: list[LogRecord] = []
    try:
        for path in logs(log_dir):
            data = path.read_bytes()
            for position, header in iter_headers(data):
                told += read_records(data[position : position + header.size])
    except CorruptBatch:
        return None
    return told


@given(data=st.data())
def test_whatever_happens_to_the_bytes_is_found_or_does_no_harm(
    sound: tuple[Path, dict[Path, bytes]], data: st.DataObject
) -> None:
    log_dir, contents = sound
    path = data.draw(st.sampled_from(sorted(path for path in contents if contents[path])))
    content = bytearray(contents[path])
    at = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["flip", "flip", "cut", "insert", "drop"]))
    match how:
        case "flip":
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del content[at:]
        case "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=70))
        case "drop":
            del content[at : at + data.draw(st.integers(1, 70))]
    before = records(log_dir)
    path.write_bytes(content)
    try:
        seen = found(log_dir)
        if path.suffix == ".log":
            assert seen or records(log_dir) == before
            if how == "flip" and _is_covered(contents[path], at):
                assert any(each.severity is DAMAGE for each in seen)
        elif path.suffix == ".index":
            assert seen or _misleads_no_reader(path)
    finally:
        path.write_bytes(contents[path])


def _is_covered(log: bytes, at: int) -> bool:
    """Whether a byte is one that the checksum or the framing speaks for: offset and epoch not."""
    position = max(position for position, _ in iter_headers(log) if position <= at)
    return at - position >= 16 or 8 <= at - position < 12


def _misleads_no_reader(path: Path) -> bool:
    """Whether no entry leads a lookup behind the batch that it looks for."""
    base, content = int(path.stem), path.read_bytes()
    batches = list(iter_headers(path.with_suffix(".log").read_bytes()))
    for place in range(0, len(content), 8):
        offset = base + int.from_bytes(content[place : place + 4], "big")
        position = int.from_bytes(content[place + 4 : place + 8], "big")
        if position not in dict(batches):
            return False
        if any(each.last_offset >= offset for start, each in batches if start < position):
            return False
    return True


@given(content=st.binary(max_size=400))
def test_nonsense_in_any_file_never_ends_in_a_traceback(
    sound: tuple[Path, dict[Path, bytes]], content: bytes
) -> None:
    log_dir, contents = sound
    for path in contents:
        path.write_bytes(content)
    try:
        found(log_dir)
        for path in logs(log_dir):
            found(path)
    finally:
        for path, kept in contents.items():
            path.write_bytes(kept)


def test_a_copy_of_kafkas_directory_is_as_sound_as_the_original(tmp_path: Path) -> None:
    path = copy_directory("clean", tmp_path / "clean")
    for partition in ("index-all-0", "transactions-0"):
        copied = tmp_path / "elsewhere" / partition
        shutil.copytree(path / partition, copied)
        assert wrong(copied) == []
        for log in copied.glob("*.log"):
            assert wrong(log) == []


@pytest.mark.parametrize("across", [False, True])
def test_an_index_that_does_not_name_an_aborted_transaction_is_reported_and_rebuilt(
    tmp_path: Path, across: bool
) -> None:
    made = PartitionFiles(tmp_path, base_offset=0, leader_epoch=3)
    made.add([NOW], producer_id=9)
    if across:
        made.roll()
    base = made.next_offset - (not across)
    made.end_transaction(9, commit=False, at_ms=NOW + 1)
    made.roll()
    made.add([NOW + 2])
    made.write_indexes()
    index = made.directory / f"{base:020d}.txnindex"
    assert wrong(tmp_path) == []
    for lose in (lambda: index.write_bytes(b""), index.unlink):
        lose()
        finding = only(tmp_path)
        assert (finding.severity, finding.path) == (FAULT, str(index))
        assert "as committed" in finding.what
    (tmp_path / ".kafka_cleanshutdown").write_text("")
    open_dir(tmp_path, EVERY_BATCH).close()
    assert [each.last_offset for each in read_aborted(Files(), str(index))] == [1]
    assert wrong(tmp_path) == []
