"""Preparing a Python process of Spark: version check and kernels."""

import gc
import sys
from typing import Any

from horolog import __version__
from horolog.errors import Misconfigured
from horolog.record.kernels.loading import COLUMN_KERNELS

DAEMON = "horolog.spark_daemon"
"""Module that starts workers with the imports of tasks (`spark.python.daemon.module`)."""

_FEW_OFFSETS = 5000  # plain Python has read as many records before the kernels would be loaded
_frozen_modules = 0


class SentToWorkers:
    """Base of readers and writers, which Spark pickles: both ends need the same version of horolog.

    Their fields change from version to version, and an older one would fail over a missing
    attribute, or read something else than was planned.
    """

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"horolog": __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        planned = state.pop("horolog", "another version")
        if planned != __version__:
            raise Misconfigured(
                f"The query was planned by horolog {planned}, and this process, {sys.executable}, "
                f"has horolog {__version__}: driver and workers need the same version "
                "(docs/spark-clusters.md)"
            )
        self.__dict__.update(state)


def is_worker() -> bool:
    """Return True if Spark started this process."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    return module is not None and module.name.startswith(("pyspark.", DAEMON))


def prepare_for_tasks(*, offsets: int | None = None) -> None:
    """Load the kernels unless a task has few offsets, and exclude modules from garbage collection.

    Small tasks run them as plain Python. They are loaded once there has been enough work.
    """
    if offsets is None or offsets > _FEW_OFFSETS:
        COLUMN_KERNELS.load()
    exclude_modules_from_collection()


def exclude_modules_from_collection() -> None:
    """Exclude all loaded objects from garbage collection in a worker, once more modules are loaded.

    PySpark's worker runs a full collection after each task, and after each call by the driver. The
    compiler's modules are most of the process's objects, and a collection that looks at them
    takes longer than a small task.
    """
    global _frozen_modules  # noqa: PLW0603 - of the process, as what it guards
    if len(sys.modules) > _frozen_modules and is_worker():
        gc.freeze()
        _frozen_modules = len(sys.modules)
