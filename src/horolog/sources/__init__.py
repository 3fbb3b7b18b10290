"""Any log, planned and read without Spark: from a broker, files or an object store.

    options ──> planning ─┬─ broker_log, file_log     look at the log: its bounds, its stretches
                          └─ plan, row_filter         share stretches out among tasks
    stretch_reader ─┬─ broker_reader, file_reader     a stretch as whole `batches`: for jobs
                    ├─ reading ── clocks, rows        as Arrow tables: for Spark, and `tables`
                    └─ records                        as Python objects: for commands

`scan` gives a topic as Arrow; it imports pyarrow, when it is first looked up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horolog.sources.tables import scan

__all__ = ["scan"]


def __getattr__(name: str) -> Any:
    if name == "scan":
        return import_module("horolog.sources.tables").scan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
