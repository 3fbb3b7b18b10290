"""Makes the functions of `horolog.jobs`, which take a job's options as keyword arguments."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from horolog.jobs.parameters.option import declared, hooks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Options = ParamSpec("Options")
Job_contra = TypeVar("Job_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")
_FLAG = re.compile(r"--[a-z][a-z-]*")


class SparkFunction(Protocol[Options, Job_contra, Result_co]):
    """Function of a job on Spark that takes its options as arguments."""

    def __call__(
        self, spark: "SparkSession", /, *args: Options.args, **options: Options.kwargs
    ) -> Result_co:
        """Run the job with these options."""
        ...

    def run(self, spark: "SparkSession", job: Job_contra, /) -> Result_co:
        """Run the job with the options of a dataclass."""
        ...


class JobFunction(Protocol[Options, Job_contra, Result_co]):
    """Function of a job without Spark that takes its options as arguments."""

    def __call__(self, *args: Options.args, **options: Options.kwargs) -> Result_co:
        """Run the job with these options."""
        ...

    def run(self, job: Job_contra, /) -> Result_co:
        """Run the job with the options of a dataclass."""
        ...


def on_spark(
    job: Callable[Options, _Job],
) -> Callable[[Callable[["SparkSession", _Job], _Result]], SparkFunction[Options, _Job, _Result]]:
    """Make a function with a job's options as arguments from one of a session and a job."""

    def made(run: Callable[["SparkSession", _Job], _Result]) -> Any:
        def function(
            spark: "SparkSession", *args: Options.args, **options: Options.kwargs
        ) -> _Result:
            return run(spark, _made_of(job, args, options))

        spark = inspect.Parameter("spark", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return _described(function, run, cast(type, job), [spark])

    return made


def without_spark(
    job: Callable[Options, _Job],
) -> Callable[[Callable[[_Job], _Result]], JobFunction[Options, _Job, _Result]]:
    """Make a function with a job's options as arguments from one of a job."""

    def made(run: Callable[[_Job], _Result]) -> Any:
        def function(*args: Options.args, **options: Options.kwargs) -> _Result:
            return run(_made_of(job, args, options))

        return _described(function, run, cast(type, job), [])

    return made


def _made_of(
    job: Callable[..., _Job], args: Sequence[object], options: Mapping[str, object]
) -> _Job:
    """Make a job; an iterator becomes a list, since the job reads its options more than once."""
    values, named = (
        [list(value) if isinstance(value, Iterator) else value for value in given]
        for given in (args, options.values())
    )
    return job(*values, **dict(zip(options, named, strict=True)))


def _described(function: Any, run: Any, job: type, before: list[inspect.Parameter]) -> Any:
    """Give a function the name, the signature and the documentation of a job."""
    function.__name__ = function.__qualname__ = run.__name__
    function.__module__ = run.__module__
    parameters = [*before, *inspect.signature(job).parameters.values()]
    function.__signature__ = inspect.Signature(
        parameters, return_annotation=inspect.signature(run).return_annotation
    )
    head, rest, tail = _documentation(run, "Returns:", "Raises:")
    function.__doc__ = "\n".join([head, "", "Args:", *_arguments(job)]) + rest + tail
    function.run = run
    return function


def _documentation(run: Any, *sections: str) -> tuple[str, str, str]:
    """Split a function's documentation at the first of these sections."""
    text = inspect.getdoc(run) or ""
    for section in sections:
        head, separator, tail = text.partition(f"\n\n{section}")
        if separator:
            return head, separator, tail
    return text, "", ""


def _arguments(job: type) -> Iterator[str]:
    options = declared(job)
    names = {option.flag: f"`{option.name}`" for option in options}
    for option in options:
        about = _FLAG.sub(lambda flag: names.get(flag[0], flag[0]), option.option.help)
        unit = " In milliseconds." if option.option.is_duration else ""
        yield f"    {option.name}: {option.option.in_python or about}{unit}"
    for name, help_ in hooks(job).items():
        yield f"    {name}: {help_}"
