"""Spark's daemon of Python workers, with all imports of a task done before it forks one.

Spark ends a worker whose output it did not read to the end, as `show`, `take` and `limit` leave
it, and its own daemon forks the next one with nothing imported: more than a second of CPU for
pyspark, pyarrow, pandas, horolog and its kernels. With `spark.python.daemon.module` set to this
module a new worker takes milliseconds, also for functions of users. `session()` sets it on one
machine; `docs/spark-clusters.md` says how to on others.

A fork copies one thread alone, and whatever lock another one holds stays locked in the copy. So
the imports must not start any; where one did, the process becomes Spark's own daemon. This module
is outside of `horolog.spark`, which imports pyarrow before a module of it can say how.
"""

import gc
import importlib
import os
import sys
from pathlib import Path
from typing import ClassVar
from zipimport import zipimporter

_IMPORTS = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",  # has the function that reads in a task
    "pandas",  # pyarrow imports it when it first meets NumPy's arrays
    "pyarrow.compute",
    "horolog.spark.source.log_source",
    "horolog.spark.write.task",
    "encodings.idna",  # of every address that a socket connects to
)
_THREADS = Path("/proc/self/task")
_ALLOCATOR = "JE_ARROW_MALLOC_CONF"  # of the jemalloc that pyarrow brings along


def main() -> None:
    """Serve Spark until it closes the standard input."""
    if import_ahead():
        from pyspark.daemon import manager  # noqa: PLC0415 - with its imports in the order above

        manager()
    else:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])  # noqa: S606 - as Spark would have started it


def import_ahead() -> bool:
    """Import the modules of tasks; return True if the process has one thread and may fork."""
    if not _THREADS.is_dir():
        return False  # not on Linux: threads that C code started are not seen
    gc.disable()  # imports leave no garbage worth a pass
    given = os.environ.get(_ALLOCATOR)
    os.environ[_ALLOCATOR] = "background_thread:false" + (f",{given}" if given else "")
    for name in _IMPORTS:
        importlib.import_module(name)
    if given is None:
        del os.environ[_ALLOCATOR]
    else:
        os.environ[_ALLOCATOR] = given
    from horolog.record.kernels.loading import COLUMN_KERNELS  # noqa: PLC0415 - as in `main`
    from horolog.wire.api import ApiKey  # noqa: PLC0415 - as in `main`
    from horolog.wire.codec import preload_asking  # noqa: PLC0415 - as in `main`

    COLUMN_KERNELS.load()
    for api in ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH:
        preload_asking(api)
    if len(list(_THREADS.iterdir())) > 1:
        return False
    import numpy as np  # noqa: PLC0415 - as in `main`

    # Else all workers would draw the same numbers. Python's own `random` sees to that itself.
    os.register_at_fork(after_in_child=np.random.seed)
    _list_archives_once()
    gc.freeze()  # a collection in a worker would copy every page that it looks at
    gc.enable()
    return True


class _Archive(zipimporter):
    """An importer that lists its archive again only when the file has changed.

    A worker invalidates the caches of all importers before it runs a function, and Python up to
    3.12 then lists each archive once per package in it. `sys.path` of a worker has Spark's jar of
    15,000 files: 0.1 s of CPU for a worker that does nothing.
    """

    _stamps: ClassVar[dict[str, tuple[int, int]]] = {}

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._stamps.setdefault(self.archive, self._stamp())

    def invalidate_caches(self) -> None:
        """Forget the list of files, if it may not be true any more."""
        stamp = self._stamp()
        if self._stamps[self.archive] != stamp:
            self._stamps[self.archive] = stamp
            super().invalidate_caches()

    def _stamp(self) -> tuple[int, int]:
        try:
            found = os.stat(self.archive)
        except OSError:
            return 0, -1
        return found.st_mtime_ns, found.st_size


def _list_archives_once() -> None:
    """Let packages in archives, PySpark's among them, be found by `_Archive` importers."""
    sys.path_hooks[:] = [_Archive if hook is zipimporter else hook for hook in sys.path_hooks]
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    main()
