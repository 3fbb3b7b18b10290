"""Archives that a restore must not trust: foreign or damaged Parquet, manifests that lie."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archive_reading import manifest_of
from crc32c import crc32c
from in_process_spark import InProcessSpark
from memory import measured_peak
from overrides import override
from partition_files import PartitionFiles

from horolog.errors import CorruptFile, Misconfigured
from horolog.jobs import archive, merge_archive, restore
from horolog.jobs.archives import facts
from horolog.jobs.archives.restoring import Restored
from horolog.record import LogRecord, build_batch

Change = Callable[[pa.Table], pa.Table]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory with an archive of three batches."""
    files = PartitionFiles(tmp_path / "log")
    for number in range(3):
        files.add([-5, -7 - number, -5], headers=(("h", b"1"),))
    files.write_indexes()
    archive_more(tmp_path)
    return tmp_path


def archive_more(base: Path) -> None:
    to, state = base / "archive", base / "archiving"
    archive(InProcessSpark(), source=base / "log", archive=to, state=state)


def restored(base: Path) -> Restored:
    where = {"archive": base / "archive", "target": base / "target", "state": base / "restoring"}
    done = restore(InProcessSpark(), **where)
    assert not list(base.glob("target/orders-0"))
    return done


def set_column(name: str, values: list[Any], kind: pa.DataType) -> Change:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        repeated = (values * table.num_rows)[: table.num_rows]
        return table.set_column(place, pa.field(name, kind), pa.array(repeated, kind))

    return change


def add_to(name: str, number: int) -> Change:
    """Of the last row."""

    def change(table: pa.Table) -> pa.Table:
        values = table.column(name).to_numpy().copy()
        values[-1] += number
        return set_column(name, values.tolist(), pa.int64())(table)

    return change


NOTHING = "00000000:0 "
NO_TOPIC = {"topic_id": None, "from_ms": None, "to_ms": None, "partitions": {}}
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@pytest.mark.parametrize(
    ("path", "change", "says"),
    [
        ("records", lambda table: table.drop_columns("value"), "no column value"),
        ("records", lambda table: table.drop_columns("offset"), "no column offset"),
        ("records", set_column("offset", ["a"], pa.string()), "offset is of type string"),
        ("records", set_column("offset", [None], pa.int64()), "offset has nulls"),
        ("records", set_column("timestampMs", [None], pa.int64()), "timestampMs has nulls"),
        ("records", set_column("key", [1.5], pa.float64()), "key is of type double"),
        ("records", set_column("headers", [b"h"], pa.binary()), "headers is of type binary"),
        ("records", set_column("headers", [[{"key": None}]], HEADERS), "header or its key is null"),
        ("records", add_to("offset", 1), "records"),
        ("records", add_to("timestampMs", 1), "checksum"),
        ("records", set_column("value", [b""], pa.binary()), "checksum"),
        ("records", lambda table: table.slice(0, 1), "records"),
        ("records", lambda table: pa.concat_tables([table, table]), ""),
        ("records", lambda table: table.take(list(range(table.num_rows))[::-1]), ""),
        ("batches", lambda table: table.drop_columns("payload"), "no column payload"),
        ("batches", set_column("records", [None], pa.int64()), "records has nulls"),
        ("batches", set_column("records", [-1], pa.int64()), "not the checksum"),
        ("batches", set_column("records", [-2], pa.int64()), "cannot be"),
        ("batches", set_column("append_ms", [b"a"], pa.binary()), "append_ms is of type binary"),
        ("batches", set_column("records", [1 << 40], pa.int64()), "cannot be"),
        ("batches", set_column("attributes", [5], pa.int64()), "cannot be"),
        ("batches", set_column("attributes", [1 << 7], pa.int64()), "cannot be"),
        ("batches", set_column("leader_epoch", [1 << 31], pa.int64()), "cannot be"),
        ("batches", set_column("producer_epoch", [1 << 15], pa.int64()), "cannot be"),
        ("batches", set_column("base_offset", [-(1 << 63)], pa.int64()), "cannot be"),
        ("batches", set_column("base_offset", [1_000], pa.int64()), "out of order"),
        ("batches", set_column("producer_id", [7], pa.int64()), "checksum"),
        ("batches", set_column("max_timestamp", [-(1 << 63)], pa.int64()), "checksum"),
        ("batches", set_column("base_timestamp", [(1 << 63) - 1], pa.int64()), "checksum"),
    ],
)
def test_files_that_no_archive_wrote_are_refused_and_nothing_is_restored(
    base: Path, path: str, change: Change, says: str
) -> None:
    (file,) = (base / "archive" / path).rglob("*.parquet")
    pq.write_table(change(pq.read_table(file, partitioning=None)), file)
    done = restored(base)
    assert list(done.refused) == ["orders-0"]
    assert says in done.refused["orders-0"]


def rewrite(base: Path, old: str, new: str) -> None:
    """Change what the newest manifest says, with a checksum that is right."""
    path = max((base / "archive/manifest").iterdir())
    text = json.dumps(json.loads(path.read_bytes()[9:]))
    assert old in text
    changed = text.replace(old, new).encode()
    path.write_bytes(b"%08x %s\n" % (crc32c(changed), changed))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"orders":', '"../../orders":'),
        ('"orders":', '"..":'),
        (
            '"topics": {',
            f'"topics": {{"../..": {json.dumps(NO_TOPIC)}, ',
        ),
        ('"0":', '"-1":'),
        ('"0":', '" 0":'),
        ('"start": 1000', '"start": "1000"'),
        ('"start": 1000', '"start": -1'),
        ('"start": 1000', '"start": 1e3'),
        ('"start": 1000', '"start": 5000'),
        ('"start": 1000', '"start": 99999999999999999999'),
        ('"first_offset": 1000', '"first_offset": null'),
        ('"from_ms": null', '"from_ms": "now"'),
        ('"topics"', '"topics": ' + "[" * 100_000 + '"'),
        ('"number": 3', '"number": Infinity'),
        ('"number": 3', '"number": 1e400'),
        ('"number": 3', '"number": 1' + "0" * 4_000),
        ('"number": 3', '"number": 1' + "0" * 5_000),
        ('"number": 3', '"number": true'),
        ('"id": "', '"id": 7, "ids": "'),
        ('"topic_id": null', '"topic_id": {}'),
        ('"topic_id": null', '"topic_id": "clicks"'),
        ('"cut": null', '"cut": {"at_ms": 5, "offset": 1, "committed_offset": 2}'),
        ('"doubts": [[], [], null]', '"doubts": [[[1, 2]], [], null]'),
        ('"doubts": [[], [], null]', '"doubts": [[], [], -1.5]'),
        ('"from_ms": null', '"from_ms": -Infinity'),
        ('"start": 1000', '"start": NaN'),
        ('"start": 1000', '"start": 1000, "' + "x" * 100_000 + '": 0'),
        ('"is_lost": false', '"is_lost": "no"'),
        ('"digest": "', '"digest": "0'),
        ('"digest": "', '"digest": "x'),
        ('"batch_digest": "', '"batch_digest": "' + "0:" * 1_000),
        ('"hour": "1969-12-31T23"', '"hour": "x/../../.."'),
        ('"hour": "1969-12-31T23"', '"hour": "1969-12-31T23\\n"'),
        ('"hour": "1969-12-31T23"', '"hour": "1969-12-31T٢٣"'),
        ('"hour": "1969-12-31T23"', '"hour": ""'),
        ('"hour": "1969-12-31T23"', '"hour": 23'),
        ('"hour": "1969-12-31T23"', '"hour": null'),
        ('"hour": null', '"hour": "1969-12-31T23"'),
        ('"first_ms": -9', '"first_ms": null'),
        ('"path": "batches/', '"path": "records/'),
        ('"path": "records/', '"path": "batches/'),
        ('"path": "records/', '"path": "records/../'),
        ('"path": "records/', '"path": "/records/'),
        ('.parquet"', '.parquet\\n"'),
    ],
)
def test_a_manifest_that_says_what_cannot_be_is_refused(base: Path, old: str, new: str) -> None:
    rewrite(base, old, new)
    with pytest.raises(CorruptFile, match="is no manifest") as refused:
        restored(base)
    assert len(str(refused.value)) < 500


def append(base: Path) -> None:
    """A batch more to the log."""
    (log,) = (base / "log").rglob("*.log")
    more = build_batch([LogRecord(-5, b"k", b"v")], base_offset=1_009)
    log.write_bytes(log.read_bytes() + more)


def test_a_merge_writes_nothing_outside_the_archive(base: Path) -> None:
    append(base)
    archive_more(base)
    rewrite(base, '"hour": "1969-12-31T23"', '"hour": "x/../../../../outside"')
    before = sorted(base.rglob("*"))
    with pytest.raises(CorruptFile, match="is no manifest"):
        merge_archive(InProcessSpark(), archive=base / "archive")
    assert sorted(base.rglob("*")) == before


def test_a_manifest_that_is_too_large_is_refused_before_it_is_read(base: Path) -> None:
    with max((base / "archive/manifest").iterdir()).open("r+b") as file:
        file.truncate(3 << 30)
    with measured_peak() as peak, pytest.raises(CorruptFile, match="3221225472 bytes"):
        restored(base)
    assert peak() < 16 << 20


def test_a_manifest_that_readers_would_refuse_is_not_written(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(base)
    size = max((base / "archive/manifest").iterdir()).stat().st_size
    override(monkeypatch, "horolog.jobs", MOST_BYTES=size)
    with pytest.raises(Misconfigured, match="merge"):
        archive_more(base)
    assert manifest_of(base / "archive").partitions()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"start": 1000', '"start": 1001'),
        ('"end": 1009', '"end": 1006'),
        ('"records": 9', '"records": 8'),
        ('"is_lost": false', f'"is_lost": false, "digest": "{NOTHING * 13}{NOTHING.strip()}"'),
        ('"is_lost": false', f'"is_lost": false, "batch_digest": "{NOTHING}{NOTHING.strip()}"'),
    ],
)
def test_what_a_manifest_says_falsely_is_not_proved(base: Path, old: str, new: str) -> None:
    rewrite(base, old, new)
    assert list(restored(base).refused) == ["orders-0"]


def test_ranges_that_do_not_lie_side_by_side_are_refused(base: Path) -> None:
    path = max((base / "archive/manifest").iterdir())
    document = json.loads(path.read_bytes()[9:])
    ranges = document["topics"]["orders"]["partitions"]["0"]["ranges"]
    ranges.append({**ranges[0], "start": 1_020, "end": 1_030})
    text = json.dumps(document).encode()
    path.write_bytes(b"%08x %s\n" % (crc32c(text), text))
    with pytest.raises(CorruptFile, match="to offset 1008 and from 1020 on"):
        restored(base)


def test_facts_at_the_edges_of_their_types_are_possible() -> None:
    edge = (1 << 31) - 1
    row = [(1 << 63) - 1 - edge, (1 << 63) - 1, -5, -(1 << 63), 0x7C, -1, -1, -1, edge, edge]
    assert facts.are_possible(facts_of(row, row))
    for base_offset, last_offset in (((1 << 63) - 1, -(1 << 63)), (8, 7), (-1, 5), (0, edge + 1)):
        assert not facts.are_possible(facts_of([base_offset, last_offset, *row[2:]]))


def facts_of(*rows: list[int]) -> facts.Facts:
    nothing: Any = np.full(len(rows), None)
    return facts.Facts(np.array(rows, np.int64), nothing, np.zeros(len(rows), np.bool_))
