"""Replace methods of Spark's readers and writers in the user's process."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from horolog.spark.source.log_source import FORMAT


def is_adapted(method: Any) -> bool:
    """Return True if `adapt` has replaced a method."""
    return hasattr(method, "__wrapped__")


def adapt(kind: type[Any], name: str, around: Callable[..., Any]) -> None:
    """Replace a method: `around` is called with the plain method, the object and the arguments."""
    plain = getattr(kind, name)

    @wraps(plain)
    def method(self: Any, /, *arguments: Any, **named: Any) -> Any:
        return around(plain, self, *arguments, **named)

    setattr(kind, name, method)


def adapt_choices(kind: type[Any]) -> None:
    """Let readers or writers of a class keep their format and the spelling of their options.

    A data source in Python gets the names of options in lower case.
    """
    adapt(kind, "format", _choose)
    adapt(kind, "option", _give_option)
    adapt(kind, "options", _give_options)


def has_format(asked: Any, name: str | None = None) -> bool:
    """Return True if a reader or writer has the format "horolog"; `name` is chosen first."""
    if name is not None:
        asked.format(name)
    return getattr(asked, "_is_ours", False)


def _choose(plain: Any, self: Any, source: str) -> Any:
    self._is_ours = source.lower() == FORMAT
    return plain(self, source)


def _give_option(plain: Any, self: Any, key: str, value: Any) -> Any:
    _keep_spelling(self, [key])
    return plain(self, key, value)


def _give_options(plain: Any, self: Any, /, **given: Any) -> Any:
    _keep_spelling(self, given)
    return plain(self, **given)


def _keep_spelling(asked: Any, names: Iterable[str]) -> None:
    asked._as_written = getattr(asked, "_as_written", {}) | {name.lower(): name for name in names}
