"""What is done once in a Python process that Spark started, and that serves many tasks."""

import gc
import sys

from horolog.record.kernels.loading import COLUMN_KERNELS

_frozen = False


def is_worker() -> bool:
    """Whether Spark started this process."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    return module is not None and module.name.startswith("pyspark.")


def prepare_for_tasks() -> None:
    """Load the kernels; in a worker, exclude all that is loaded from garbage collection.

    The compiler's modules are most of the process's objects, and a collection that looks at them
    takes longer than a small task.
    """
    COLUMN_KERNELS.load()
    exclude_modules_from_collection()


def exclude_modules_from_collection() -> None:
    """In a worker, exclude all that is loaded from garbage collection, once.

    PySpark's worker runs a full collection after each task, and after each call by the driver.
    """
    global _frozen  # noqa: PLW0603 - of the process, as what it guards
    if not _frozen and is_worker():
        _frozen = True
        gc.freeze()
