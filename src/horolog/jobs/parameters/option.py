"""Declarations of a job's options: for the command line, for Python and for the state."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin

from horolog.clock import moment_ms
from horolog.errors import HorologError
from horolog.times import duration_text, format_moment, parse_time

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Job = TypeVar("Job", bound="DataclassInstance")
Pin = Callable[[Any], Any]
"""Converts an argument to JSON that is equal for all its spellings."""


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of one option of a job."""

    help: str
    """Help of the command line; times and sizes have their units."""
    metavar: str | None = None
    flag: str | None = None
    """Name on the command line; by default the field's name."""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    is_duration: bool = False
    """True for a text such as 1h30m on the command line, and milliseconds in the field."""
    scale: int = 1
    """Factor by which a number of the command line is multiplied."""
    parse: Callable[[str], Any] | None = None
    """Converts the text of the command line, where no other member does."""
    is_argument: bool = False
    """True for an argument without a name on the command line."""
    in_python: str | None = None
    """Help in Python, where it differs from the command line."""
    pin: Pin | None = None
    """Spelling for the state: another run with the same state must have the same one."""
    is_last: bool = False
    """True to list the option behind the job's own options."""


@dataclass(frozen=True, slots=True)
class Hook:
    """Declaration of an argument that only Python functions have."""

    help: str


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """A field of a job's dataclass with its declaration."""

    field: "Field[Any]"
    option: Option

    @property
    def name(self) -> str:
        """Name of the argument in Python."""
        return self.field.name

    @property
    def flag(self) -> str:
        """Flag on the command line, or the name of the argument."""
        if self.option.is_argument:
            return self.name
        return self.option.flag or "--" + self.name.strip("_").replace("_", "-")

    @property
    def is_required(self) -> bool:
        """True if the field has no default."""
        return self.field.default is MISSING

    @property
    def shown_default(self) -> str | None:
        """Default as written on the command line; None where none is shown."""
        default = self.field.default
        if default is MISSING or default is None or isinstance(default, bool):
            return None
        if self.option.is_duration:
            return duration_text(default)
        return str(default // self.option.scale if isinstance(default, int) else default)

    @property
    def takes_pairs(self) -> bool:
        """True for a repeatable option NAME=VALUE."""
        return self.takes(Mapping)

    def takes(self, kind: type) -> bool:
        """True if the field's type is or includes a type."""
        declared = get_args(self.field.type)[0]
        return any(
            (get_origin(member) or member) is kind for member in get_args(declared) or [declared]
        )


def declared(job: "type[DataclassInstance] | DataclassInstance") -> list[DeclaredOption]:
    """Return the options of a job, in the order of the help."""
    declarations = [
        DeclaredOption(member, option)
        for member, option in _said(job)
        if isinstance(option, Option)
    ]
    return sorted(
        declarations,
        key=lambda declaration: (
            not declaration.is_required,
            declaration.option.is_last,
            declaration.name != "source",
        ),
    )


def hooks(job: "type[DataclassInstance]") -> dict[str, str]:
    """Return the help of the arguments that only Python functions have, by name."""
    return {member.name: hook.help for member, hook in _said(job) if isinstance(hook, Hook)}


def _said(
    job: "type[DataclassInstance] | DataclassInstance",
) -> Iterator[tuple["Field[Any]", object]]:
    for field in fields(job):
        yield field, field.type.__metadata__[0]  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job with a command, and the module of its function."""

    job: type
    module: str
    """Module in `horolog.jobs` with the job's function."""
    summary: str
    """Line in the overview of `horolog spark`; empty to leave the command out."""
    counts: str | None
    """Unit of the progress, if the command only runs the job and shows its outcome."""


JOB_ROWS: Final[dict[str, JobRow]] = {}
"""Jobs by their commands; `table` imports all of them."""

JobClass = TypeVar("JobClass", bound=type)


def command(
    name: str, module: str, summary: str = "", *, counts: str | None = None
) -> Callable[[JobClass], JobClass]:
    """Declare a job's dataclass as a command."""

    def declare(job: JobClass) -> JobClass:
        JOB_ROWS[name] = JobRow(job, module, summary, counts)
        return job

    return declare


def options_of(kind: type[Job], job: "DataclassInstance", **more: Any) -> Job:
    """Return a job of another kind with the options that both have, and with more."""
    shared = {
        field.name: getattr(job, field.name) for field in fields(kind) if hasattr(job, field.name)
    }
    return kind(**{**shared, **more})


def pinned(job: "DataclassInstance") -> dict[str, Any]:
    """Return the arguments that every run with a state must share, as JSON without secrets."""
    return {
        option.name.strip("_"): option.option.pin(getattr(job, option.name))
        for option in declared(job)
        if option.option.pin is not None
    }


def as_given(given: Any) -> Any:
    """Return the argument unchanged."""
    return given


def moment(given: Any) -> Any:
    """Format a time in UTC; a relative time stays as given."""
    if given is None:
        return None
    try:
        if not isinstance(given, str):
            return format_moment(moment_ms(given, rounds_up=True))
        first, second = (parse_time(given, now_ms=now, rounds_up=True) for now in (0, 1))
    except (HorologError, TypeError, ValueError):
        return str(given)  # the job says what is wrong with it
    return format_moment(first) if first == second else given.strip()


def window(given: str | None) -> str | None:
    """Format both times of `FROM..TO` as `moment` does."""
    if given is None or not given.strip():
        return None
    return "..".join(moment(text.strip()) if text.strip() else "" for text in given.split("..", 1))


def unordered(given: str | Iterable[str] | None) -> list[str]:
    """Return names in sorted order, since their order does not matter."""
    return sorted(names(given))


def codec(given: str) -> str:
    """Return the name of a codec in lower case."""
    return given.lower()


def names(given: str | Iterable[str] | None) -> list[str]:
    """Split names at commas, and drop repeated ones."""
    parts = given.split(",") if isinstance(given, str) else given or ()
    return list(dict.fromkeys(name.strip() for name in parts if name.strip()))


def location(given: str | os.PathLike[str]) -> str:
    """Return one spelling for all spellings of a broker, path or URI."""
    from horolog.sources.location import Location  # noqa: PLC0415 - 0.1 s for --help

    parsed = Location.parse(given)
    if parsed.bootstrap_servers is None:
        return str(parsed)
    return ",".join(sorted(names(parsed.bootstrap_servers)))


def place(given: object) -> str:
    """Return one spelling for all spellings of a path or URI, or the type of another object."""
    from horolog.sources.uris import LogPath  # noqa: PLC0415 - as well

    return (
        LogPath.parse(given).name if isinstance(given, str | os.PathLike) else type(given).__name__
    )


def places(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return one spelling for several paths or URIs, in sorted order."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    return sorted({place(path) for path in several})
