"""SQL over topics, by DuckDB: each table that a query names is a topic of one source.

Filters on times, partition and offset become range reads; DuckDB applies whatever else there is.
Imports duckdb and pyarrow.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.errors import HorologError, Misconfigured
from horolog.sources.cut_files import AsOf, parse_as_of
from horolog.sources.options import ReadOptions
from horolog.sources.planning import opened_log
from horolog.sources.tables import options_of
from horolog.sources.topic_tables import TopicDataset, TopicTables
from horolog.times import parse_time

__all__ = ["running", "sql"]

# A query is of topics: no variable of the caller, and nothing that is fetched for it.
_SETTINGS: Final = (
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
)
_BATCH_ROWS: Final = 2_048  # as few as DuckDB works on at a time: values may be large
_INTERRUPTED_EVERY_S: Final = 0.05


def sql(
    query: str,
    source: Client | str | os.PathLike[str],
    *,
    settings: Mapping[str, str] | None = None,
    timezone: str = "UTC",
) -> pa.Table:
    """Run a query over the topics of a source, and return its rows.

    Every topic is a table with the columns `timestamp`, `append_time` (times with a zone; null for
    records without one, and where the append time is unknown), `partition`, `offset`, `key`,
    `value` and `headers`. The table function `as_of('TOPIC', 'TIME')` gives the topic up to what
    was appended before a time, or before the cut in a file.

    Args:
        query: one SELECT, in DuckDB's SQL.
        source: a client of the brokers, or their `host:port`; or a path: of a log directory, also
            in an object store (`s3://...`).
        settings: `kafka.*` for brokers and `fs.*` for object stores, as in Spark.
        timezone: the zone of times without one in the query, and of times that it prints.

    Raises:
        Misconfigured: the query is no SELECT, or wrong; a table is no topic; a setting is wrong; a
            topic cannot be read exactly as of a time.
        RequestRefused, NoAnswer: the broker refuses, or does not answer.
        DataLost, CorruptBatch: records are gone or damaged.
    """
    with running(query, source, settings=settings, timezone=timezone) as reader:
        return reader.read_all()


@contextmanager
def running(
    query: str,
    source: Client | str | os.PathLike[str],
    *,
    settings: Mapping[str, str] | None = None,
    timezone: str = "UTC",
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Iterator[pa.RecordBatchReader]:
    """Run a query as `sql` does, and give its rows as a stream.

    Args:
        on_rows: called with the number of rows of each table that was read of a topic.
    """
    options = options_of(source, settings or {})
    failures: list[Exception] = []
    with duckdb.connect() as connection, _sentences(failures):
        for setting in _SETTINGS:
            connection.execute(setting)
        connection.execute("SET TimeZone = " + _quoted(timezone))
        tree = _parsed(connection, query)
        named = _TableNames()
        named.visit(tree)
        if not named.tables and not named.as_of:
            raise Misconfigured("the query names no topic: write SELECT ... FROM TOPIC")

        registered: list[TopicTables] = []

        def register(name: str, tables: TopicTables) -> None:
            _check_topic(tables)
            registered.append(tables)
            connection.register(name, TopicDataset(_Noted(tables, failures)))

        folded = dict[str, str]()
        for name in sorted(named.tables):
            if name.lower() in named.subqueries and not _is_topic(options, name):
                continue
            other = folded.setdefault(name.lower(), name)
            if other != name:
                raise Misconfigured(f"SQL cannot tell {other} from {name}: query one of them")
            register(name, TopicTables(options, name, on_rows))
        moments = _Moments(timezone)
        for (topic, text), name in named.as_of.items():
            register(name, TopicTables(options, topic, on_rows, as_of=moments.parsed(text)))
        text = query
        if named.is_changed:
            ((text,),) = connection.execute(
                "SELECT json_deserialize_sql(?)", [json.dumps(tree)]
            ).fetchall()
        with ThreadPoolExecutor(1, "horolog-sql") as thread:

            def done(work: Callable[[], Any]) -> Any:
                """Return what DuckDB gives, which runs in a thread so that Ctrl-C is heard."""
                result = thread.submit(work)
                try:
                    # Where polars is imported, a signal does not end a wait: it restarts.
                    while not result.done():
                        wait([result], timeout=_INTERRUPTED_EVERY_S)
                    return result.result()
                except KeyboardInterrupt:
                    while not result.done():  # an interrupt before it begins has no effect
                        connection.interrupt()
                        for tables in registered:
                            tables.interrupt()
                        wait([result], timeout=_INTERRUPTED_EVERY_S)
                    raise

            def batches() -> Iterator[pa.RecordBatch]:
                while (batch := done(lambda: next(rows, None))) is not None:
                    yield batch

            rows = done(lambda: connection.sql(text).to_arrow_reader(_BATCH_ROWS))
            yield pa.RecordBatchReader.from_batches(rows.schema, batches())


class _Noted(TopicTables):
    """Notes the error that ends a read, which DuckDB passes on as a text."""

    def __init__(self, tables: TopicTables, failures: list[Exception]) -> None:
        self._tables = tables
        self._failures = failures

    def read(
        self, names: Sequence[str], expression: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the topic, as `TopicTables.read` gives them."""
        try:
            yield from self._tables.read(names, expression)
        except Exception as error:
            self._failures.append(error)
            raise


@contextmanager
def _sentences(failures: Sequence[Exception]) -> Iterator[None]:
    """Raise the error that ended a read, or DuckDB's own as a sentence."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
        if failures:
            raise failures[0] from None
        if isinstance(error, RuntimeError):
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        raise Misconfigured(f"the query cannot be run: {lines[0]}") from error


def _parsed(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    """Return the syntax tree of the one SELECT that a query is."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    tree: dict[str, Any] = json.loads(text)
    if tree.get("error"):
        what = str(tree.get("error_message", "")).rstrip("!")
        if tree.get("error_type") == "not implemented":
            what = "only SELECT reads topics"
        raise Misconfigured(f"the query cannot be run: {what}")
    if len(tree["statements"]) != 1:
        raise Misconfigured("give one SELECT: a query has one result")
    return tree


class _Moments:
    """The moments of one query; a relative one counts from its start."""

    def __init__(self, timezone: str) -> None:
        self._timezone = timezone
        self._now_ms = SystemClock().now_ms()

    def parsed(self, text: str) -> AsOf:
        """Parse a time, or read the file of a cut."""
        try:
            zone = ZoneInfo(self._timezone)
        except (ValueError, ZoneInfoNotFoundError):
            raise Misconfigured(
                f"as_of: {self._timezone} is no zone: name one, as Europe/Berlin"
            ) from None
        return parse_as_of(
            text, lambda moment: parse_time(moment, now_ms=self._now_ms, zone=zone, rounds_up=True)
        )


class _TopicAsOf(NamedTuple):
    """Arguments of a table function `as_of`."""

    topic: str
    moment: str


class _TableNames:
    """The tables that a syntax tree names."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.as_of: dict[_TopicAsOf, str] = {}
        """Topics as of a time, each with the name of the table in its place."""
        self.subqueries: set[str] = set()
        """Names of `WITH` in small letters, which may also be topics."""
        self.is_changed = False
        """True after a table was renamed: a topic with dots in its name, or `as_of`."""

    def visit(self, node: Any) -> None:
        """Note the names in a node and below it."""
        if isinstance(node, list):
            for item in node:
                self.visit(item)
        if not isinstance(node, dict):
            return
        if node.get("type") == "TABLE_FUNCTION" and _function_of(node) == "as_of":
            self._note_as_of(node)
        elif node.get("type") == "BASE_TABLE":
            self._note_table(node)
        ctes = node.get("cte_map")
        if isinstance(ctes, dict):
            self.subqueries.update(entry["key"].lower() for entry in ctes.get("map", ()))
        for item in node.values():
            self.visit(item)

    def _note_table(self, node: dict[str, Any]) -> None:
        parts = [node.get("catalog_name"), node.get("schema_name"), node["table_name"]]
        name = ".".join(part for part in parts if part)
        if name != node["table_name"]:
            node.update(catalog_name="", schema_name="", table_name=name)
            if "qualified_name" in node:
                node["qualified_name"] = {"path": [name]}
            self.is_changed = True
        self.tables.add(name)

    def _note_as_of(self, node: dict[str, Any]) -> None:
        """Put a table in the place of the function."""
        found = _as_of_arguments(node)
        name = self.as_of.setdefault(found, f"as_of {len(self.as_of) + 1}")
        alias = node["alias"] or found.topic
        kept = {key: node[key] for key in ("sample", "query_location", "column_name_alias")}
        node.clear()
        node.update(kept, type="BASE_TABLE", alias=alias, table_name=name)
        node.update(schema_name="", catalog_name="", qualified_name={"path": [name]})
        self.is_changed = True


def _function_of(node: dict[str, Any]) -> str:
    return str(node["function"].get("function_name", "")).lower()


def _as_of_arguments(node: dict[str, Any]) -> _TopicAsOf:
    """Return the arguments of a table function `as_of`.

    Raises:
        Misconfigured: they are not a topic and a time, as constants.
    """
    texts = []
    for argument in node["function"].get("arguments", ()):
        literal = argument.get("expression", {}).get("literal", {})
        is_taken = not argument.get("name") and literal.get("kind") in ("STRING", "INTEGER")
        texts.append(literal.get("text") if is_taken else None)
    match texts:
        case [str(topic), str(moment)] if node.get("with_ordinality") == "WITHOUT_ORDINALITY":
            return _TopicAsOf(topic, moment)
    raise Misconfigured(
        "as_of takes a topic and a time or a cut: as_of('clicks', '2026-11-20T00:00Z')"
    )


def _is_topic(options: ReadOptions, name: str) -> bool:
    try:
        _check_topic(TopicTables(options, name))
    except HorologError:
        return False
    return True


def _check_topic(tables: TopicTables) -> None:
    """Make sure that a source has a topic.

    Raises:
        Misconfigured, RequestRefused: it has not.
    """
    with opened_log(tables.options) as log:
        log.partitions()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
