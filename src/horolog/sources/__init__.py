"""Any log, planned and read without Spark: from a broker, files or an object store.

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
