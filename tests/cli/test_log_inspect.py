"""Looking into log directories that Apache Kafka wrote, beside what its own tool says of them."""

import json
import os
import shutil
from pathlib import Path

import pytest
from command_runner import Run
from compacting import COMPACT, clean, put
from partition_files import PartitionFiles, snapshot
from storelogs import ANY_TIME, NOW, append, new_log

from golden import Batch, GoldenPartition, partitions
from horolog.config import TopicConfig
from horolog.record import LogRecord, build_batch, parse_header, with_records

CLEAN = [each for each in partitions("clean") if not each.name.startswith("__")]


def all_batches(partition: GoldenPartition) -> list[Batch]:
    return [batch for path in partition.logs() for batch in partition.batches(path.name)]


@pytest.mark.parametrize("partition", CLEAN, ids=lambda each: each.name)
def test_every_batch_is_as_kafkas_own_tool_shows_it(
    offline: Run, partition: GoldenPartition
) -> None:
    shown = [
        json.loads(line)
        for line in offline("log", "inspect", partition.path, "--batches", "--json").lines
    ]
    expected = all_batches(partition)
    assert len(shown) == len(expected)
    for ours, theirs in zip(shown, expected, strict=True):
        assert ours["position"] == theirs.position
        assert ours["base_offset"] == theirs.base_offset
        assert ours["last_offset"] == theirs.last_offset
        assert ours["records"] == theirs.records
        assert ours["bytes"] == theirs.size
        assert ours["crc"] == theirs.crc
        assert ours["codec"] == theirs.codec.lower()
        assert ours["timestamp_type"].lower() == theirs.timestamp_type.replace("_", "").lower()
        assert (
            -1 if ours["max_timestamp"] is None else ours["max_timestamp"]
        ) == theirs.max_timestamp
        assert ours["leader_epoch"] == theirs.leader_epoch
        assert (ours["producer_id"], ours["producer_epoch"]) == (
            theirs.producer_id,
            theirs.producer_epoch,
        )
        assert (ours["transactional"], ours["control"]) == (
            theirs.is_transactional,
            theirs.is_control,
        )


def test_a_log_directory_is_shown_by_partition(offline: Run, golden: Path) -> None:
    shown = offline("log", "inspect", golden / "clean", "--json").json
    by_name = {each["partition"]: each for each in shown}
    out_of_order = by_name["out-of-order-0"]
    assert sum(segment["records"] for segment in out_of_order["segments"]) == 100
    assert len(out_of_order["segments"]) == 4
    assert by_name["deleted-records-0"]["log_start_offset"] == 40
    assert by_name["index-all-0"]["segments"][0]["index_entries"] == 8
    assert by_name["index-all-0"]["segments"][0]["time_index_entries"] == 7
    table = offline("log", "inspect", golden / "clean").out
    assert f"{len(shown)} partitions" in table
    (row,) = [line for line in table.splitlines() if line.startswith("before-1970-0")]
    assert "1969-12-31T23:59:55.000Z" in row


def test_a_segment_is_shown_by_its_log_or_its_index(offline: Run, golden: Path) -> None:
    directory = golden / "clean" / "index-all-0"
    for name in ("00000000000000000027.log", "00000000000000000027.timeindex"):
        (partition,) = offline("log", "inspect", directory / name, "--json").json
        (segment,) = partition["segments"]
        assert (segment["base_offset"], segment["next_offset"], segment["records"]) == (27, 54, 27)


def test_records_are_shown_with_their_times(offline: Run, golden: Path) -> None:
    path = golden / "clean" / "client-zstd-0"
    rows = [
        json.loads(line) for line in offline("log", "inspect", path, "--records", "--json").lines
    ]
    answers = json.loads((golden / "clean.answers.json").read_text())["client-zstd-0"]["records"]
    answers = [answer[:4] for answer in answers]  # headers stand behind, where there are any
    assert [[r["offset"], r["timestamp"], r["key"], r["value"]] for r in rows] == answers
    line = offline("log", "inspect", path, "--records").lines[0]
    assert line.startswith("client-zstd\t2023-11-14T22:13:17.201Z\t0@0\tkey-2\t")


def test_nothing_is_written(offline: Run, golden: Path, tmp_path: Path) -> None:
    directory = tmp_path / "kafka"
    shutil.copytree(golden / "clean" / "index-all-0", directory / "index-all-0")
    (directory / "index-all-0" / "00000000000000000027.timeindex").unlink()
    (directory / "index-all-0" / "00000000000000000054.index").write_bytes(b"\xff" * 13)
    before = snapshot(directory)
    os.chmod(directory / "index-all-0", 0o555)
    try:
        for extra in ([], ["--batches"], ["--records"], ["--json"]):
            seen = offline("log", "inspect", directory / "index-all-0", *extra)
            assert seen.code == 0, seen.err
    finally:
        os.chmod(directory / "index-all-0", 0o755)
    assert snapshot(directory) == before
    assert "no time index" in offline("log", "inspect", directory / "index-all-0").out


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of three batches that begins at offset 1000."""
    directory = tmp_path / "events-7"
    directory.mkdir()
    path = directory / f"{1000:020d}.log"
    with path.open("wb") as file:
        for batch in range(3):
            records = [LogRecord(1_795_165_200_000 + batch, b"k", b"v" * 50) for _ in range(10)]
            file.write(build_batch(records, base_offset=1000 + 10 * batch))
    return path


@pytest.mark.parametrize("missing", [1, 60, 200])
def test_a_torn_tail_is_reported_and_what_is_whole_is_shown(
    offline: Run, segment: Path, missing: int
) -> None:
    size = segment.stat().st_size
    os.truncate(segment, size - missing)
    seen = offline("log", "inspect", segment)
    assert seen.code == 1
    assert f"stopped at byte {size // 3 * 2}, before offset 1020" in seen.out
    (partition,) = json.loads(offline("log", "inspect", segment, "--json").out)
    assert partition["segments"][0]["records"] == 20
    assert partition["segments"][0]["next_offset"] == 1020


def test_a_segment_that_a_broker_deletes_meanwhile_is_skipped(
    offline: Run, segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = segment.with_name(f"{900:020d}.log")
    monkeypatch.setattr(
        "horolog.storage.verify.VerifyTarget.by_partition",
        lambda target, files: [(segment.parent, [gone, segment])],
    )
    seen = offline("log", "inspect", segment.parent)
    assert seen.code == 0
    assert f"{gone}: deleted during" in seen.err
    assert "1030" in seen.out


def test_zeros_at_the_end_are_preallocation_and_no_damage(offline: Run, segment: Path) -> None:
    with segment.open("ab") as file:
        file.write(bytes(100_000))
    seen = offline("log", "inspect", segment)
    assert seen.code == 0
    assert "100000 bytes of zeros at the end" in seen.out


def test_a_flipped_bit_is_found_when_the_records_are_read(offline: Run, segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 4
    segment.write_bytes(data)
    assert offline("log", "inspect", segment).code == 0  # headers alone do not tell
    seen = offline("log", "inspect", segment, "--records")
    assert seen.code == 1
    assert "offset 1010" in seen.out
    assert len([line for line in seen.lines if line.startswith("events\t")]) == 20


def test_offsets_that_go_back_are_damage(offline: Run, segment: Path) -> None:
    segment.write_bytes(
        segment.read_bytes() + build_batch([LogRecord(1, None, b"x")], base_offset=5)
    )
    seen = offline("log", "inspect", segment)
    assert seen.code == 1
    assert "begins at offset 5, before 1030" in seen.out


def test_nonsense_never_ends_in_a_traceback(offline: Run, segment: Path) -> None:
    for nonsense in (b"", b"\xff" * 5000, os.urandom(5000), b"\x00" * 17 + b"\x01" * 100):
        segment.write_bytes(nonsense)
        seen = offline("log", "inspect", segment, "--records")
        assert seen.code in (0, 1)


@pytest.mark.parametrize("partition", partitions("old-formats"), ids=lambda each: each.name)
def test_any_format_is_shown_batch_by_batch_and_record_by_record(
    offline: Run, partition: GoldenPartition
) -> None:
    magic = {"v0": "v0", "v1": "v1", "v2": "v2"}.get(partition.name[:2])
    table = offline("log", "inspect", partition.path)
    assert table.code == 0
    if magic in ("v0", "v1"):
        assert f"of format {magic}" in table.out
    batches = [
        json.loads(line)
        for line in offline("log", "inspect", partition.path, "--batches", "--json").lines
    ]
    records = partition.answers["records"]
    assert sum(batch["records"] for batch in batches) == len(records)
    assert magic is None or {batch["format"] for batch in batches} == {int(magic[1])}
    covered = [
        offset
        for batch in batches
        for offset in range(batch["base_offset"], batch["last_offset"] + 1)
    ]
    assert covered == [row[0] for row in records]
    types = {0: {"NoTimestampType"}, 1: {"CreateTime", "LogAppendTime"}, 2: {"CreateTime"}}
    assert all(batch["timestamp_type"] in types[batch["format"]] for batch in batches)
    shown = [
        json.loads(line)
        for line in offline("log", "inspect", partition.path, "--records", "--json").lines
    ]
    assert [record["offset"] for record in shown] == [row[0] for row in records]
    times = [
        0 if record["timestamp_type"] == "NoTimestampType" else record["timestamp"]
        for record in shown
    ]
    assert times == [row[1] for row in records]
    line, *_ = offline("log", "inspect", partition.path, "--batches").lines
    assert "\tv" in line


def test_what_is_no_log_is_refused(offline: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    refused = offline("log", "inspect", tmp_path)
    assert refused.code == 1
    assert "is not a log directory" in refused.err
    assert "is not named as a segment" in offline("log", "inspect", tmp_path / "notes.txt").err
    assert offline("log", "inspect", tmp_path / "missing").code == 2


def test_times_of_records_are_summed_up_by_the_block_map_alone(
    offline: Run, tmp_path: Path, golden: Path
) -> None:
    with new_log(tmp_path, TopicConfig(**ANY_TIME)) as log:
        append(log, NOW + 60_000, NOW, -1)
        append(log, NOW - 5_000)
        log.roll(NOW)
        append(log, NOW)
    first, second = offline("log", "inspect", tmp_path, "--times", "--json").json
    facts = first["facts"]
    assert (first["partition"], first["base_offset"]) == ("events-3", 0)
    assert (facts["records"], facts["untimed"], facts["out_of_order"]) == (4, 1, 2)
    assert facts["latencies"][0] == 1
    assert (facts["create_min_ms"], facts["create_max_ms"]) == (NOW - 5_000, NOW + 60_000)
    assert (facts["append_min_ms"], facts["append_max_ms"]) == (NOW, NOW)
    assert sum(facts["latencies"]) == 3
    assert second["facts"] is None, "its last block is not written yet"
    said = offline("log", "inspect", tmp_path, "--times").out
    assert "0ms to 10ms" in said
    assert "horolog log reindex makes it" in said
    refused = offline("log", "inspect", tmp_path, "--times", "--records")
    assert refused.code == 2
    # A copy: of the original another test may have kept a map in the cache.
    kafkas = shutil.copytree(golden / "clean" / "client-none-0", tmp_path / "client-none-0")
    of_kafka = offline("log", "inspect", kafkas, "--times", "--json")
    assert [each["facts"] for each in of_kafka.json].count(None) == len(of_kafka.json)


def test_a_delete_horizon_is_no_time_of_a_record(offline: Run, tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        put(log, b"a", b"b", value=None)
        log.roll(NOW)
        put(log, b"c")
        clean(log)
        directory = log.directory
    shown = offline("log", "inspect", directory, "--batches", "--json").lines
    first, last = (json.loads(line) for line in shown)
    assert first["delete_horizon"] == NOW + COMPACT.delete_retention_ms
    assert last["delete_horizon"] is None
    assert (first["first_timestamp"], first["max_timestamp"]) == (NOW, NOW + 1)
    (looked,) = offline("log", "inspect", directory, "--json").json
    segment = looked["segments"][0]
    assert (segment["first_timestamp"], segment["max_timestamp"]) == (NOW, NOW + 1)
    assert "delete horizon 2023" in offline("log", "inspect", directory, "--batches").out


def test_a_batch_that_compaction_emptied_has_no_time_of_a_record(
    offline: Run, tmp_path: Path
) -> None:
    made = PartitionFiles(tmp_path, base_offset=0)
    made.add([NOW])
    emptied = parse_header(build_batch([LogRecord(NOW + 9, b"k", b"v")], base_offset=1))
    made.write(with_records(emptied._replace(records_count=0), b""))  # as Kafka leaves it
    (looked,) = offline("log", "inspect", made.directory, "--json").json
    assert looked["segments"][0]["max_timestamp"] == NOW
    *_, last = offline("log", "inspect", made.directory, "--batches", "--json").lines
    assert json.loads(last)["first_timestamp"] is None
