"""Errors as Spark's users see them: our sentence, without a traceback before it."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

from pyspark.errors import PySparkException, PythonException

from horolog.errors import HorologError
from horolog.spark.workers import is_worker

# As Spark passes on what a Python worker raised.
_OURS = re.compile(
    r"horolog(?:\.\w+)+: (?P<sentence>.+?)\s*(?:SQLSTATE: \w+|JVM stacktrace:|\n|\Z)"
)
_UNKNOWN = re.compile(r"(?<=^Unknown option ')[^']+")
_HIDE = "SPARK_HIDE_TRACEBACK"


class RowsRefused(HorologError):
    """Rows of a write that cannot be records, or that a broker refuses."""


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Let an error of ours reach Spark's user as its sentence alone.

    A Python worker of Spark ends with its first error, and shows a traceback first unless its
    environment says not to.
    """
    try:
        yield
    except HorologError as error:
        if is_worker():
            os.environ[_HIDE] = "1"
        raise error.with_traceback(None) from None


class TaskFailed(HorologError):
    """An error of ours that Spark passed on, as its sentence."""


@contextmanager
def without_spark() -> Iterator[None]:
    """Let an error of ours that Spark passes on be one of ours again; others stay Spark's.

    Raises:
        TaskFailed: with the sentence.
    """
    try:
        yield
    except PySparkException as error:
        ours = _OURS.search(str(error))
        if ours is None:
            raise
        raise TaskFailed(ours["sentence"]) from None


def remember_options(kind: type[Any]) -> None:
    """Let a reader or writer of Spark's keep the names of its options as they are written.

    A data source in Python gets them in lower case.
    """
    plain_option, plain_options = kind.option, kind.options

    def remember(self: Any, names: Iterable[str]) -> None:
        self._as_written = getattr(self, "_as_written", {}) | {name.lower(): name for name in names}

    @wraps(plain_option)
    def option(self: Any, key: str, value: Any) -> Any:
        remember(self, [key])
        return plain_option(self, key, value)

    @wraps(plain_options)
    def options(self: Any, **given: Any) -> Any:
        remember(self, given)
        return plain_options(self, **given)

    kind.option, kind.options = option, options


@contextmanager
def beginning_with_ours(asked: object = None, *, keep: bool = False) -> Iterator[None]:
    """In the user's process: let an error of ours begin with its sentence, not with Spark's.

    What Spark says is left out, or follows where it is to be kept. An option that is not known is
    named as it was written to the reader or writer that is `asked` (`remember_options`).
    """
    try:
        yield
    except PySparkException as error:
        said = str(error)
        ours = _OURS.search(said)
        if ours is None:
            raise
        written: Mapping[str, str] = getattr(asked, "_as_written", {})
        ours_alone = _UNKNOWN.sub(lambda name: written.get(name[0], name[0]), ours["sentence"])
        sentence = ours_alone + (f"\n\n{said}" if keep else "")
        for attribute in ("_desc", "_message"):  # of a classic session, of Connect
            if hasattr(error, attribute):
                setattr(error, attribute, sentence)
        if not str(error).startswith(ours_alone):  # a task's error has a preface
            raise PythonException(sentence) from None
        raise error.with_traceback(None) from None
