"""Table files as Arrow record batches: Parquet, Arrow (IPC file, stream, Feather) and CSV.

Imports pyarrow; only `horolog produce --from` uses it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from horolog.errors import Misconfigured

__all__ = ["opened"]

_ROWS = 100_000  # at a time; memory does not grow with the file
_ARROW_MAGIC = b"ARROW1"


@contextmanager
def opened(path: Path, names: Mapping[str, str]) -> Iterator[tuple[pa.RecordBatchReader, int]]:
    """Open a file as a stream of record batches, with its number of rows (0 if unknown).

    `names` choose the columns of each part of a record; other columns are left out. Without names,
    columns are taken by their own names.

    Raises:
        Misconfigured: the file cannot be read as a table, or lacks a named column.
    """
    try:
        reader, rows = _reader(path, names)
    except FileNotFoundError:
        raise Misconfigured(f"{path}: no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from None
    with reader:
        yield _renamed(reader, names, path) if names else reader, rows


def _reader(path: Path, names: Mapping[str, str]) -> tuple[pa.RecordBatchReader, int]:
    match path.suffix.lower():
        case ".parquet" | ".pq":
            file = pyarrow.parquet.ParquetFile(path)
            batches = file.iter_batches(_ROWS)
            reader = pa.RecordBatchReader.from_batches(file.schema_arrow, batches)
            return reader, file.metadata.num_rows
        case ".arrow" | ".arrows" | ".feather" | ".ipc":
            source = pa.memory_map(str(path))
            if source.read(len(_ARROW_MAGIC)) != _ARROW_MAGIC:
                source.seek(0)
                return pyarrow.ipc.open_stream(source), 0
            opened_file = pyarrow.ipc.open_file(source)
            every = (opened_file.get_batch(i) for i in range(opened_file.num_record_batches))
            return pa.RecordBatchReader.from_batches(opened_file.schema, every), 0
        case ".csv" | ".tsv":
            parse = pyarrow.csv.ParseOptions(
                delimiter="\t" if path.suffix.lower() == ".tsv" else ","
            )
            # Keys and values stay as they are written: 007 is not 7.
            texts = {names.get(part, part): pa.string() for part in ("key", "value")}
            convert = pyarrow.csv.ConvertOptions(column_types=texts)
            return pyarrow.csv.open_csv(path, parse_options=parse, convert_options=convert), 0
        case suffix:
            raise Misconfigured(
                f"{path}: files of {suffix or 'no suffix'} are not read; .parquet, .arrow, "
                ".feather, .ipc, .csv and .tsv are"
            )


def _renamed(
    reader: pa.RecordBatchReader, names: Mapping[str, str], path: Path
) -> pa.RecordBatchReader:
    for column in names.values():
        if column not in reader.schema.names:
            raise Misconfigured(f"{path} has no column {column}; it has {reader.schema.names}")
    schema = pa.schema([reader.schema.field(c).with_name(part) for part, c in names.items()])
    batches = (
        pa.RecordBatch.from_arrays([batch.column(c) for c in names.values()], schema=schema)
        for batch in reader
    )
    return pa.RecordBatchReader.from_batches(schema, batches)
