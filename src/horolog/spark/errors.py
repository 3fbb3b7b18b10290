"""Errors as Spark's users see them: one sentence, without a traceback before it."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

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
    """Let an error of horolog reach Spark's user as its sentence alone.

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
    """An error of horolog in a task, passed on by Spark as its sentence."""


@contextmanager
def without_spark() -> Iterator[None]:
    """Turn a horolog error that Spark passes on into `TaskFailed`; others stay Spark's.

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


@contextmanager
def beginning_with_ours(asked: object = None, *, keep: bool = False) -> Iterator[None]:
    """Let a horolog error that Spark raises in the user's process begin with horolog's sentence.

    Spark's text follows if `keep` is set. The name of an unknown option is spelt as the user gave
    it to the reader or writer `asked` (`adapting.adapt_choices`).
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
