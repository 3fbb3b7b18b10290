"""Master and parallelism of a session, from its settings."""

import os
import re
from collections.abc import Callable

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,.*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[(\d+),(\d+),.*\]")


def is_local(master: str) -> bool:
    """Return True if tasks run in the driver's own process."""
    return _LOCAL.fullmatch(master) is not None


def parallelism(setting: Callable[[str], str | None]) -> int | None:
    """Return how many tasks run at a time; None if the settings do not say."""
    master = setting("spark.master") or ""
    if local := _LOCAL.fullmatch(master):
        threads = local[1] or "1"
        return os.cpu_count() if threads == "*" else int(threads)
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        return int(cluster[1]) * int(cluster[2])
    for name in ("spark.default.parallelism", "spark.cores.max"):
        if number := _number(setting(name)):
            return number
    executors = _number(setting("spark.executor.instances"))
    cores = _number(setting("spark.executor.cores"))
    return executors * (cores or 1) if executors else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
