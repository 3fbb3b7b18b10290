"""Results as commands show them: JSON for programs, lines and tables for people."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import PurePath
from typing import Any, Self, TypeAlias

__all__ = ["Answer", "Aside", "Column", "Outcome", "Shown", "Table", "plain", "size"]

Column: TypeAlias = str | tuple[str, str | Callable[[Any], object]]
"""A heading, and the member of a row that it shows or what makes a cell of the row. A heading alone
shows the member of its name."""


class Table:
    """Rows of a result by columns; rows are objects or mappings."""

    def __init__(self, rows: Iterable[Any], *columns: Column) -> None:
        named = [
            (column, column.replace(" ", "_")) if isinstance(column, str) else column
            for column in columns
        ]
        self.headings: Sequence[str] = [heading for heading, _ in named]
        self.rows: Sequence[Sequence[object]] = [
            [_cell(row, source) for _, source in named] for row in rows
        ]

    @classmethod
    def of(cls, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Self:
        """Make a table of cells."""
        table = cls(())
        table.headings, table.rows = headings, list(rows)
        return table


class Aside(str):
    """A line for standard error, also where the result is shown as JSON."""

    __slots__ = ()


Shown: TypeAlias = str | Table
"""A line, or a table."""


def _cell(row: Any, source: str | Callable[[Any], object]) -> object:
    if not isinstance(source, str):
        return source(row)
    return row[source] if isinstance(row, Mapping) else getattr(row, source)


class Outcome:
    """Result of a job that a command shows as it is."""

    __slots__ = ()

    @property
    def is_ok(self) -> bool:
        """True if nothing is wrong, and nothing was left undone."""
        raise NotImplementedError

    def to_json(self) -> object:
        """The result for programs; `plain` is applied to it."""
        return self

    def lines(self) -> Iterable[Shown]:
        """The result for people."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Answer(Outcome):
    """Result of a command with the lines that show it."""

    result: object
    shown: Iterable[Shown]
    is_ok: bool = True

    def to_json(self) -> object:
        """The result for programs."""
        return self.result

    def lines(self) -> Iterable[Shown]:
        """The result for people."""
        return self.shown


def plain(value: Any) -> Any:
    """Convert a value for JSON: named tuples and dataclasses become objects by their members."""
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def size(count: int) -> str:
    """Format a size in bytes with a unit."""
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"
