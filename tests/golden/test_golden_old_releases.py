"""Logs that releases of Apache Kafka from 0.9 to 2.8 wrote in the formats of their day.

And those of 3.9 under the inter-broker protocols of 0.9 and 0.10, as in an upgrade (KIP-32).
"""

from pathlib import Path

import pytest

from golden import answers, extract
from horolog.config import BrokerConfig, TopicConfig
from horolog.record import convert_all, decode, iter_headers, read_records
from horolog.storage import Finding, LogDir, Severity, TopicPartition, Verification

SETS = ("old-releases", "old-protocols")
ANSWERS = answers("old-releases") | answers("old-protocols")
RELEASES = sorted({name.partition("/")[0] for name in ANSWERS})
FORMATS = {
    "0.9.0.1": 0,
    "0.10.0.1": 1,
    "0.10.2.2": 1,
    "0.11.0.3": 2,
    "2.8.2": 2,
    "3.9.2-as-0.9.0": 0,
    "3.9.2-as-0.10.2": 1,
}
TYPES = {0: "CreateTime", 1: "LogAppendTime", -1: None}
NOW_MS = 1_795_400_000_000


@pytest.fixture(scope="module")
def releases(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("old-releases")
    for name in SETS:
        extract(name, path)
    return path


@pytest.fixture(params=sorted(ANSWERS))
def partition(request, releases) -> tuple[Path, list[list]]:
    return releases / request.param, ANSWERS[request.param]["records"]


def magic_of(path: Path) -> int:
    name = path.name
    return int(name[1]) if name.startswith(("v0-", "v1-")) else FORMATS[path.parent.name]


def test_every_record_is_read_as_by_its_release(partition):
    path, told = partition
    assert len(told) >= 40
    data = b"".join(log.read_bytes() for log in sorted(path.glob("*.log")))
    assert {header.magic for _, header in iter_headers(data)} == {magic_of(path)}
    rows = [row for table in decode(data) for row in table.to_pylist()]
    for row, (offset, kind, ms, key, value) in zip(rows, told, strict=True):
        assert (row["offset"], row["key"], row["value"]) == (offset, key.encode(), value.encode())
        if magic_of(path) == 0:
            assert (row["timestamp_type"], row["timestamp_ms"]) == (-1, -1)
        elif "append-time" in path.name:  # the tool shows what is in the inner messages
            assert row["timestamp_type"] == 1
        elif kind is not None:  # 0.10.0 does not show times
            assert (TYPES[row["timestamp_type"]], row["timestamp_ms"]) == (kind, ms)
    singly = [
        record.offset
        for position, header in iter_headers(data)
        for record in read_records(data[position : position + header.size])
    ]
    assert singly == [row[0] for row in told]


@pytest.mark.parametrize("name", sorted(answers("old-protocols")))
def test_what_an_upgrade_left_is_read_as_its_broker_served_it(releases, name):
    path, told = releases / name, ANSWERS[name]
    data = b"".join(log.read_bytes() for log in sorted(path.glob("*.log")))
    rows = [row for table in decode(data) for row in table.to_pylist()]
    kind = -1 if magic_of(path) == 0 else 1 if "append-time" in path.name else 0
    assert {row["timestamp_type"] for row in rows} == {kind}
    # A consumer says 0 where there is no time.
    assert [
        [row["offset"], row["timestamp_ms"] if kind >= 0 else 0, row["key"], row["value"]]
        for row in rows
    ] == [[offset, ms, key.encode(), value.encode()] for offset, ms, key, value in told["served"]]
    codec = path.name.removesuffix("-0").rpartition("-")[2]
    assert {header.codec.name.lower() for _, header in iter_headers(data)} == {codec}
    # One producer sent v1, the other v2, and each of their batches is there.
    if codec != "none":
        assert len(list(iter_headers(data))) >= 2
    assert bool(told["lookups"]) == (magic_of(path) == 1)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_log_can_be_had_in_every_format(partition, magic):
    path, _ = partition
    for log in sorted(path.glob("*.log")):
        data = log.read_bytes()
        parts = convert_all(data, magic, least_offset=int(log.stem))
        converted = b"".join(bytes(part.data) for part in parts)
        rows = [row for table in decode(converted) for row in table.to_pylist()]
        before = [row for table in decode(data) for row in table.to_pylist()]
        keys = ("offset", "key", "value", *(("timestamp_ms",) if magic else ()))
        assert [[row[key] for key in keys] for row in rows] == [
            [row[key] for key in keys] for row in before
        ]


@pytest.mark.parametrize("release", RELEASES)
def test_a_log_directory_of_an_old_release_is_served_and_found_sound(releases, release):
    path = releases / release
    wrong = [
        step
        for step in Verification.of(path).steps()
        if isinstance(step, Finding) and step.severity is not Severity.NOTE
    ]
    # Kafka before 0.10.1 had no time index.
    if release in ("0.9.0.1", "0.10.0.1"):
        wrong = [each for each in wrong if not each.path.endswith(".timeindex")]
    assert wrong == []
    log_dir = LogDir.open(
        path,
        broker_config=BrokerConfig(),
        topic_config=lambda topic: TopicConfig(),
        is_ours=lambda topic: False,
        now_ms=NOW_MS,
    )
    try:
        assert not log_dir.unreadable
        for name, told in ANSWERS.items():
            if not name.startswith(f"{release}/"):
                continue
            topic = name.partition("/")[2].removesuffix("-0")
            log = log_dir.logs[TopicPartition(topic, 0)]
            records = told["records"]
            assert log.log_end_offset == records[-1][0] + 1
            for at_ms, offset, timestamp, epoch in told.get("lookups", ()):
                found = log.find_by_timestamp(at_ms)
                ours = found and (found.offset, found.timestamp, found.leader_epoch)
                assert (ours or (-1, -1, -1)) == (offset, timestamp, epoch), (name, at_ms)
            times = [row[2] for row in records if row[2] not in (None, -1)]
            if "append-time" in topic or not times:
                continue
            at = times[len(times) // 2]
            found = log.find_by_timestamp(at)
            assert found is not None
            assert (found.offset, found.timestamp) == next(
                (row[0], row[2]) for row in records if row[2] is not None and row[2] >= at
            )
    finally:
        log_dir.close()
