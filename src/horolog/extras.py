"""Lazy imports of names, and errors that tell which extra to install.

The base install has neither pyarrow nor Spark. An import that fails for that is one sentence with
the extra to install; `dir()`, and so tab completion, has the names that can be used.
"""

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

from horolog.errors import Misconfigured

__all__ = ["MissingExtra", "lazy_names", "missing_extra"]

_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "arrow": ("pyarrow",),
    "polars": ("polars", "pyarrow"),
    "sql": ("duckdb", "pyarrow"),
    "spark": ("pyspark", "py4j", "pandas", "pyarrow", "regex"),
    "security": ("cryptography", "jwt"),
    "demo": ("confluent_kafka", "matplotlib"),
}
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "arrow": ("pyarrow",),
    "sql": ("duckdb", "pyarrow"),
    "spark": ("pyspark", "pyarrow"),
    "security": ("cryptography", "jwt"),
}


class MissingExtra(Misconfigured, ImportError):
    """Raised if a package is missing that an extra of horolog installs."""


def missing_extra(error: ImportError, what: str, extra: str | None = None) -> MissingExtra | None:
    """Return the error for a failed import; None if no extra installs the missing package.

    Args:
        extra: preferred extra for the sentence, if it has the package.
    """
    package = (error.name or "").partition(".")[0]
    having = [name for name, packages in _PACKAGES.items() if package in packages]
    if not having:
        return None
    named = extra if extra in having else having[0]
    sentence = f"{what} needs {package}: pip install 'horolog[{named}]'"
    return MissingExtra(sentence, name=error.name, path=error.path)


def lazy_names(
    package: str, modules: Mapping[str, str], extras: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` for a package whose names are imported on use.

    Args:
        modules: for each module of the package its names, separated by spaces. A name may also be
            that of a module in a sub-package. A module of another package has its whole name.
        extras: the extra that a module needs, if any.

    Returns:
        A function that gives a name's value, and one that lists the names that can be used: one
        that fails in `getattr` would end a tab completion.
    """

    @cache
    def homes() -> dict[str, str]:
        return {name: module for module, names in modules.items() for name in names.split()}

    def value(name: str) -> Any:
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes()[name]
        try:
            path = home if home.startswith("horolog.") else f"{package}.{home}"
            module = import_module(path)
            if not hasattr(module, name):
                return import_module(f"{path}.{name}")
            return getattr(module, name)
        except ImportError as error:
            missing = missing_extra(error, f"{package}.{name}", extras.get(home))
            if missing is None or isinstance(error, MissingExtra):
                raise
            raise missing from error

    def listed() -> list[str]:
        usable = {extra: all(map(is_installed, its)) for extra, its in _NEEDED.items()}
        lazy = [
            name for name, home in homes().items() if home not in extras or usable[extras[home]]
        ]
        return sorted({*vars(sys.modules[package]), *lazy})

    return value, listed


def is_installed(package: str) -> bool:
    """Return True if a package can be imported, as far as known without importing it."""
    try:
        return find_spec(package) is not None
    except (ValueError, ImportError):  # its import is blocked
        return False
