"""`horolog sql`: a query over topics, by DuckDB. Imports pyarrow and duckdb when it runs."""

from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo
from typing import Annotated, Literal, TypeAlias
from zoneinfo import ZoneInfo

import typer

from horolog.cli.connecting import KafkaBrokers
from horolog.cli.options import StoreSettings, Zone, is_given, pairs, with_options
from horolog.cli.output_file import Output, check_output
from horolog.cli.working import working
from horolog.errors import Misconfigured
from horolog.extras import missing_extra

app = typer.Typer(no_args_is_help=True)

QueryFormat: TypeAlias = Literal["table", "csv", "json", "parquet"]
"""Form of the rows of a query."""

_SUFFIXES: dict[str, QueryFormat] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """Options of a query's result."""

    shape: Annotated[
        QueryFormat | None,
        typer.Option(
            "--format",
            help="The output format: table (the default), or by the suffix of the output file. "
            "json is an object for each line.",
        ),
    ] = None
    output: Output = None
    zone: Zone = None
    settings: StoreSettings = None


@app.command(no_args_is_help=True)
@with_options
def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", show_default=False)],
    brokers: KafkaBrokers,
    options: SqlOptions,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]",
            show_default=False,
            help="A log directory, also in an object store (s3://...), instead of a broker.",
        ),
    ] = None,
) -> None:
    """Run a query over topics, in DuckDB's SQL: each table is a topic of the broker or the path.

    Columns: timestamp, append_time (null where there is none), partition, offset (write it in
    quotes: "offset"), key, value, headers. Conditions on times, partition and offset become range
    reads. Times without a zone are of --tz. Example: horolog sql "select count(*) from clicks where
    timestamp >= '2026-11-20T00:00Z'".
    """
    if path is not None and is_given(context, "bootstrap"):
        raise Misconfigured(f"give {path} or --bootstrap-server: a query has one source")
    shape = options.shape
    if shape is None:
        suffix = "" if options.output is None else options.output.suffix.lower()
        shape = _SUFFIXES.get(suffix, "table")
    if shape == "parquet" and options.output is None:
        raise Misconfigured("--format parquet needs a file: give --output FILE")
    if options.output is not None:
        check_output(options.output)
    settings = pairs(options.settings, "--set")
    try:
        from horolog.cli.query_output import write  # noqa: PLC0415 - only with the extra
        from horolog.sources.queries import running  # noqa: PLC0415 - likewise
    except ImportError as error:
        raise missing_extra(error, "horolog sql", "sql") or error from error
    zone = options.zone or UTC
    name = _name(zone)
    with working("reading", "records") as work:
        count = 0

        def on_rows(rows: int) -> None:
            nonlocal count
            count += rows
            work(count, 0)

        source = path or brokers.connect()
        with running(query, source, settings=settings, timezone=name, on_rows=on_rows) as reader:
            write(reader, shape, options.output, zone)


def _name(zone: tzinfo) -> str:
    """Return the name by which DuckDB knows a zone.

    Raises:
        Misconfigured: an offset that is no whole number of hours, for which there is no name.
    """
    if isinstance(zone, ZoneInfo):
        return zone.key
    hours, rest = divmod(zone.utcoffset(None) or timedelta(), timedelta(hours=1))
    if rest or not -12 <= hours <= 14:
        raise Misconfigured(f"--tz {zone}: name the zone, as Asia/Kolkata")
    return "UTC" if not hours else f"Etc/GMT{-hours:+d}"
