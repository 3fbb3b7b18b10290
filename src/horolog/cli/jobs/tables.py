"""Rows of Spark as tables on the screen and as JSON."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from horolog.results import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def plain(rows: Sequence["Row"]) -> list[dict[str, Any]]:
    """Convert rows for JSON; times become ISO 8601 in UTC."""
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in rows]


def most(rows: "DataFrame", limit: int, *keys: str) -> dict[str, Any]:
    """Return the rows with the most wrong times, for JSON, and the number of all rows."""
    ordered = rows.orderBy("wrong", *keys, ascending=[False, *(True for _ in keys)])
    listed = plain(ordered.limit(limit).collect())
    return {"count": len(listed) if len(listed) < limit else rows.count(), "rows": listed}


def row_table(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], headings: Mapping[str, str]
) -> Table:
    """Return a table with these columns of rows."""
    return Table(rows, *((headings.get(name, name.replace("_", " ")), name) for name in names))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value.astimezone().astimezone(UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return value
