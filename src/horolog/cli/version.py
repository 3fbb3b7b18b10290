"""`horolog --version`: versions of horolog, of Python, and of the packages that it works with.

It reads the metadata of packages and imports none of them.
"""

import platform
import zlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

from horolog import __version__
from horolog.extras import is_installed


class _Optional(NamedTuple):
    """A package of an extra, and what is missing without it."""

    package: str
    extra: str
    without: str


_OPTIONAL: Final = (
    _Optional("numba", "fast", "work on records takes up to 46 times the CPU"),
    _Optional("uvloop", "uvloop", "the broker uses the event loop of Python, which is slower"),
    _Optional("pyarrow", "arrow", "no columns: Producer, scan, Parquet, object stores"),
    _Optional("polars", "polars", "no horolog.polars"),
    _Optional("duckdb", "sql", "no horolog sql"),
    _Optional("pyspark", "spark", "no horolog spark, no format horolog in Spark"),
)
_CODECS: Final = (("snappy", "cramjam"), ("lz4", "lz4"), ("zstd", "zstandard"))


def version_lines() -> Iterator[str]:
    """Yield the lines; the first is `horolog` and its version."""
    yield f"horolog {__version__}"
    where = f"{platform.python_implementation()}, {platform.system()} {platform.machine()}"
    yield f"python  {platform.python_version()} ({where})"
    codecs = (f"{codec} ({package} {_found(package)})" for codec, package in _CODECS)
    yield f"codecs  {', '.join((f'gzip (zlib {zlib.ZLIB_RUNTIME_VERSION})', *codecs))}"
    for package, extra, without in _OPTIONAL:
        found = _found(package)
        hint = f"not installed: {without}. pip install 'horolog[{extra}]'"
        yield f"{package:7} {found or hint}"


def _found(package: str) -> str | None:
    """Return a package's version; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:  # as PySpark within a Spark that was unpacked
        return "of unknown version" if is_installed(package) else None
