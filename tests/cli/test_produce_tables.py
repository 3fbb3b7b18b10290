"""`horolog produce --from`: rows of files as records."""

import re
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from command_runner import Run

NINE = 1_795_165_200_000  # 2026-11-20T09:00:00Z
TABLE = pa.table(
    {
        "key": ["a", None, "c"],
        "value": ["1", "007", "3"],
        "timestamp_ms": [NINE, NINE + 1, NINE + 2],
    }
)
PRINTED = [
    "2026-11-20T09:00:00.000Z\t0@0\ta\t1",
    "2026-11-20T09:00:00.001Z\t0@1\tnull\t007",
    "2026-11-20T09:00:00.002Z\t0@2\tc\t3",
]


def write(table: pa.Table, path: Path) -> Path:
    match path.suffix:
        case ".parquet":
            pyarrow.parquet.write_table(table, path)
        case ".feather":
            pyarrow.feather.write_feather(table, path)
        case ".arrows":
            with pyarrow.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table)
        case ".csv":
            pyarrow.csv.write_csv(table, path)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrows", ".csv"])
def test_a_row_of_a_file_is_a_record(horolog: Run, tmp_path: Path, suffix: str) -> None:
    topic = f"tables{suffix}"
    file = write(TABLE, tmp_path / f"file{suffix}")
    done = horolog("produce", topic, "--from", file, "--codec", "zstd")
    assert (done.code, done.err) == (0, f"sent 3 records to {topic}: partition 0 offsets 0 to 2\n")
    printed = horolog("consume", topic).lines
    no_null = [line.replace("\tnull\t", "\t\t") for line in PRINTED]
    assert printed == (no_null if suffix == ".csv" else PRINTED)


def test_times_of_a_table_without_a_zone_are_refused_or_of_the_zone_given(
    horolog: Run, tmp_path: Path
) -> None:
    file = tmp_path / "local.csv"
    file.write_text("value,timestamp\nx,2026-11-20 10:00:00\n")
    assert horolog("topics", "create", "tables.local").code == 0
    refused = horolog("produce", "tables.local", "--from", file)
    assert (refused.code, "has no zone" in refused.err) == (2, True)
    for zone in ("Europe/Berlin", "+02:00", "local"):
        assert horolog("produce", "tables.local", "--from", file, "--tz", zone).code == 0
    berlin, offset, local = (line[:24] for line in horolog("consume", "tables.local").lines)
    assert (berlin, offset) == ("2026-11-20T09:00:00.000Z", "2026-11-20T08:00:00.000Z")
    assert datetime.fromisoformat(local) == datetime(2026, 11, 20, 10).astimezone()


def test_a_moment_that_would_be_written_as_no_time_is_refused(horolog: Run, tmp_path: Path) -> None:
    file = tmp_path / "old.csv"
    file.write_text("value,timestamp\nx,1969-12-31T23:59:59.999Z\n")
    assert horolog("topics", "create", "tables.old").code == 0
    refused = horolog("produce", "tables.old", "--from", file)
    assert (refused.code, "take for no timestamp" in refused.err) == (2, True)
    line = b'{"at": "1969-12-31T23:59:59.999Z"}\n'
    refused = horolog("produce", "tables.old", "--timestamp-field", "at", stdin=line.decode())
    assert "line 1: 1969-12-31T23:59:59.999Z is -1 ms" in refused.err
    assert horolog("consume", "tables.old").lines == []


def test_columns_are_taken_by_the_names_given(horolog: Run, tmp_path: Path) -> None:
    table = pa.table(
        {
            "user": ["u", "v"],
            "body": [b"x", b"y"],
            "at": pa.array([NINE * 1000 + 999, NINE * 1000], pa.timestamp("us", "UTC")),
            "other": [1.5, 2.5],
        }
    )
    file = write(table, tmp_path / "events.parquet")
    named = [
        part for pair in ("value=body", "key=user", "timestamp=at") for part in ("--column", pair)
    ]
    assert horolog("topics", "create", "tables.named", "--partitions", 3).code == 0
    done = horolog("produce", "tables.named", "--from", file, *named, "-p", 2)
    assert done.err == "sent 2 records to tables.named: partition 2 offsets 0 to 1\n"
    assert horolog("consume", "tables.named").lines == [
        "2026-11-20T09:00:00.000Z\t2@0\tu\tx",
        "2026-11-20T09:00:00.000Z\t2@1\tv\ty",
    ]


def test_several_files_are_counted_together(horolog: Run, tmp_path: Path) -> None:
    file = write(TABLE, tmp_path / "one.parquet")
    done = horolog("produce", "tables.two", "--from", file, "--from", file)
    assert done.err == "sent 6 records to tables.two: partition 0 offsets 0 to 5\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "{missing}"], "no such file"),
        (["--from", "{text}"], "files of .txt are not read"),
        (["--from", "{broken}"], "broken.parquet cannot be read"),
        (["--from", "{other}"], "needs the column value.*--column value=NAME"),
        (["--from", "{good}", "--column", "value=nothing"], "has no column nothing"),
        (["--from", "{good}", "--column", "key=key"], "give --column value=NAME too"),
        (["--from", "{good}", "--column", "vlaue=value"], "a record has value, key"),
        (["--from", "{good}", "--key-field", "x"], "--key-field is for lines"),
        (["{good}", "--from", "{good}"], "FILE is for lines"),
        (["{good}", "--column", "value=x"], "--column is for tables"),
    ],
)
def test_what_makes_no_records_is_refused(
    horolog: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "text.txt").write_text("x")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    paths = {
        "{missing}": tmp_path / "missing.parquet",
        "{text}": tmp_path / "text.txt",
        "{broken}": tmp_path / "broken.parquet",
        "{other}": write(pa.table({"body": ["x"]}), tmp_path / "other.parquet"),
        "{good}": write(TABLE, tmp_path / "good.parquet"),
    }
    done = horolog("produce", "tables.refused", *(paths.get(each, each) for each in arguments))
    assert done.code == 2
    assert re.search(said, done.err.replace("\n", " ")), done.err


def test_a_refused_row_is_named(horolog: Run, tmp_path: Path) -> None:
    assert (
        horolog(
            "topics", "create", "tables.bounds", "--config", "message.timestamp.after.max.ms=1000"
        ).code
        == 0
    )
    table = TABLE.set_column(2, "timestamp_ms", pa.array([0, 1 << 45, 0]))
    done = horolog("produce", "tables.bounds", "--from", write(table, tmp_path / "late.parquet"))
    assert done.code == 1
    assert "row 1" in done.err


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_rows_that_retention_deletes_at_once_are_hinted_at(
    horolog: Run, tmp_path: Path, unit: str
) -> None:
    assert horolog("topics", "create", f"old.{unit}", "-c", "retention.ms=604800000").code == 0
    times = pa.array([None, 1_000_000_000_000, 0], pa.timestamp("ms", "UTC"))
    table = pa.table({"value": ["a"] * 3, "timestamp": times.cast(pa.timestamp(unit, "UTC"))})
    old = horolog("produce", f"old.{unit}", "--from", write(table, tmp_path / "old.parquet"))
    assert old.code == 0
    assert "a record of 1970-01-01T00:00:00.000Z is older than" in old.err
    young = table.drop_columns(["timestamp"])
    sent = horolog("produce", f"old.{unit}", "--from", write(young, tmp_path / "young.parquet"))
    assert "is older" not in sent.err
