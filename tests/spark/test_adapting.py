"""Methods of Spark's readers and writers that are replaced take what the plain ones take."""

from __future__ import annotations

from typing import Any

from horolog.spark.source.saves import adapt
from horolog.spark.source.scans_apart import adapt_loads


class Reader:
    """As PySpark's, as far as its options go."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def format(self, source: str) -> Reader:
        return self

    def option(self, key: str, value: Any) -> Reader:
        self.given[key] = value
        return self

    def options(self, **given: Any) -> Reader:
        self.given |= given
        return self

    def load(
        self,
        path: Any = None,
        format: Any = None,  # noqa: A002 - Spark's name
        schema: Any = None,
        **options: Any,
    ) -> dict[str, Any]:
        return self.options(**options).given


def test_an_option_of_another_format_may_have_any_name() -> None:
    adapt_loads(Reader)
    reader = Reader().format("csv").options(plain=1, kind=2).option("name", 3)
    assert reader.load("here", plain=4) == {"plain": 4, "kind": 2, "name": 3}


def test_arguments_of_a_replaced_method_may_have_any_name() -> None:
    class Writer:
        def save(self, path: str, **options: Any) -> dict[str, Any]:
            return options

    adapt(Writer, "save", lambda plain, self, /, *given, **named: plain(self, *given, **named))
    assert Writer().save("here", plain=1, around=2) == {"plain": 1, "around": 2}
