"""Command of a job: its options on the command line and in a TOML file."""

import inspect
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import typer

from horolog.cli.jobs.stopping import stopped_by_signals
from horolog.cli.options import Json, pairs
from horolog.cli.screen import say, show_outcome
from horolog.cli.working import Work, working
from horolog.errors import HorologError, Misconfigured
from horolog.extras import missing_extra
from horolog.jobs.parameters.option import DeclaredOption, declared
from horolog.jobs.parameters.table import JOB_TABLE
from horolog.results import Answer, Outcome, Shown
from horolog.times import parse_duration

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pyspark.sql import SparkSession

    from horolog.jobs.mirroring.report import Control, Mirrored

Job = TypeVar("Job", bound="DataclassInstance")

_ENDS_WITHIN_S: Final = 1.0
"""Time that a JVM takes to end after its connections have ended."""
_MOST_CONFIG_BYTES: Final = 64 << 10  # of a file with a line for each option


@dataclass(frozen=True, slots=True)
class Call:
    """Options of a job's command that every job has, and its session."""

    name: str
    as_json: bool = False
    master: str | None = None
    conf: tuple[str, ...] = ()

    @contextmanager
    def session(self) -> Iterator["SparkSession"]:
        """Yield the Spark session of a job; it starts at its first use, and stops afterwards.

        Raises:
            HorologError: a task of Spark failed with an error of ours, or Spark's JVM has ended.
        """
        try:
            from pyspark.sql import SparkSession

            from horolog.spark import session as start
            from horolog.spark.errors import TaskFailed, without_spark
        except ImportError as error:
            raise (missing_extra(error, f"horolog spark {self.name}", "spark") or error) from None
        given = pairs(self.conf, "--conf")
        is_ours = SparkSession.getActiveSession() is None
        spark: Any = LazySession(lambda: start(f"horolog {self.name}", master=self.master, **given))
        try:
            with without_spark():
                yield spark
        except (HorologError, typer.Exit, typer.Abort):
            raise
        except Exception as error:  # py4j says no more than that a connection failed
            status = _status_of_jvm(spark.started)
            if status is None:
                raise
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise TaskFailed(
                f"Spark's JVM {how} while the job ran; what it printed is above, and the kernel's "
                "log says whether memory was short. The same command can be run again, and "
                "continues with its --state if it has one"
            ) from error
        finally:
            if is_ours and spark.started is not None:
                with suppress(Exception):  # py4j fails where a signal has ended the JVM
                    spark.stop()

    @contextmanager
    def working(
        self,
        unit: str,
        *,
        what: str | None = None,
        state: object = None,
        stop: threading.Event | None = None,
    ) -> Iterator[tuple["SparkSession", Work]]:
        """Yield a session and the progress of the job, which is shown until the context ends.

        Raises:
            typer.Exit: a signal has ended the job.
        """
        with self.session() as spark:
            from horolog.jobs.counting import listening

            with (
                working(
                    what or self.name,
                    unit,
                    resumable=None if state is None else f"--state {state}",
                    count_tasks=lambda: running_tasks(spark),
                    stop=stop,
                ) as work,
                listening(work.count),
            ):
                yield spark, work

    def show(self, outcome: Outcome) -> None:
        """Print the outcome as JSON, or for people.

        Raises:
            typer.Exit: the outcome is not ok.
        """
        show_outcome(outcome, as_json=self.as_json)


def _status_of_jvm(session: Any) -> int | None:
    """Return the exit status of the JVM that pyspark has started; None while it runs."""
    with suppress(Exception):  # of Connect there is none; one of spark-submit is not ours
        return int(session.sparkContext._gateway.proc.wait(_ENDS_WITHIN_S))
    return None


def running_tasks(spark: "SparkSession") -> tuple[int, int]:
    """Return how many tasks of the running stages are done, and how many exist.

    Both are 0 over Spark Connect, and before Spark has started.
    """
    session = spark.started if isinstance(spark, LazySession) else spark
    if session is None or type(session).__module__.startswith("pyspark.sql.connect."):
        return 0, 0
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    running = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in running), sum(
        stage.numTasks for stage in running
    )


def job_command(
    app: typer.Typer, job: type[Job], *, on_spark: bool = True
) -> Callable[[Callable[[Job, Call], None]], Callable[[Job, Call], None]]:
    """Make a command from a job's dataclass; the decorated function runs the job.

    Args:
        job: a dataclass whose fields are its options.
        on_spark: True to add the options of Spark.
    """

    def made(run: Callable[[Job, Call], None]) -> Callable[[Job, Call], None]:
        title = run.__name__

        def command(**given: Any) -> None:
            call = Call(
                title if len(app.registered_commands) == 1 else f"{app.info.name} {title}",
                given.pop("json"),
                given.pop("master", None),
                tuple(given.pop("conf", None) or ()),
            )
            given.pop("config")
            run(job(**_values(job, given)), call)

        shared = {"master": _Master, "conf": _Conf} if on_spark else {}
        parameters = [*map(_parameter, declared(job))]
        for shared_name, annotation in {**shared, "config": _Config, "json": Json}.items():
            default = False if shared_name == "json" else None
            parameters.append(_keyword(shared_name, annotation, default))
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__doc__ = job.__doc__
        app.command(title, no_args_is_help=True)(command)
        return run

    return made


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _parameter(declaration: DeclaredOption) -> inspect.Parameter:
    """Convert a field of a job into a parameter for typer."""
    option = declaration.option
    default: Any = declaration.shown_default
    arguments: dict[str, Any] = {
        "help": option.help,
        "metavar": option.metavar or ("DURATION" if option.is_duration else None),
        "show_default": default is not None,
        "min": option.minimum,
    }
    kind: Any = Literal[option.choices] if option.choices else str
    if declaration.takes(bool):
        kind, default = bool, False
    elif option.is_argument or declaration.takes_pairs:
        kind = list[str]
    elif declaration.takes(int) and not (declaration.takes(str) or option.is_duration):
        kind, default = int, None if default is None else int(default)
    info: Any = (
        typer.Argument(**arguments)
        if option.is_argument
        else typer.Option(declaration.flag, **arguments)
    )
    if declaration.is_required:
        return _keyword(declaration.name, Annotated[kind, info], inspect.Parameter.empty)
    return _keyword(
        declaration.name, Annotated[kind if default is not None else kind | None, info], default
    )


def _values(job: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the arguments of a command into those of its job.

    Raises:
        Misconfigured: a duration cannot be parsed.
        BadParameter: a NAME=VALUE has no name or no "=".
    """
    values = dict(given)
    for declaration in declared(job):
        value, option = given[declaration.name], declaration.option
        if value is None:
            continue
        if declaration.takes_pairs:
            values[declaration.name] = pairs(value, declaration.flag)
        elif option.is_duration:
            values[declaration.name] = parse_duration(value)
        elif option.scale != 1:
            values[declaration.name] = value * option.scale
        elif option.parse is not None:
            values[declaration.name] = option.parse(value)
    return values


def _use_config(ctx: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **_defaults(ctx, path)}
    return path


_Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        callback=_use_config,
        is_eager=True,
        show_default=False,
        help="Options from a TOML file, by name without the dashes; the command line wins.",
    ),
]
_Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        show_default=False,
        help="Spark's master; by default this machine, or what spark-submit says.",
    ),
]
_Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", show_default=False, help="A setting of Spark; repeatable."
    ),
]


def _defaults(ctx: typer.Context, path: Path) -> dict[str, Any]:
    """Read a config file, and return its values by parameter.

    Raises:
        Misconfigured: the file cannot be read, is no TOML, or names an unknown option.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_CONFIG_BYTES + 1)
        if len(content) > _MOST_CONFIG_BYTES:
            raise Misconfigured(f"--config {path} has more than {_MOST_CONFIG_BYTES} bytes")
        given = tomllib.loads(content.decode())
    except OSError as error:
        raise Misconfigured(f"--config {path}: {error.strerror}") from None
    except RecursionError:
        raise Misconfigured(f"--config {path} is nested too deeply") from None
    except ValueError as error:
        raise Misconfigured(f"--config {path} is no TOML: {error!s:.200}") from None
    known = {
        option.lstrip("-"): parameter
        for parameter in ctx.command.params
        for option in parameter.opts
        if option.startswith("--") and option not in ("--config", "--help")
    }
    known |= {
        str(parameter.name): parameter
        for parameter in ctx.command.params
        if parameter.param_type_name == "argument"
    }
    by_parameter: dict[str, Any] = {}
    for name, value in given.items():
        parameter = known.get(name)
        if parameter is None:
            raise Misconfigured(f"--config {path}: there is no option --{name}")
        if isinstance(value, dict):
            if not parameter.multiple:
                raise Misconfigured(f"--config {path}: {name} is no table")
            value = [f"{key}={_text(path, name, item)}" for key, item in value.items()]
        elif isinstance(value, list):
            value = [_text(path, name, item) for item in value]
            if not parameter.multiple and parameter.nargs == 1:
                value = ",".join(value)
        elif not isinstance(value, bool):
            value = _text(path, name, value)
        by_parameter[str(parameter.name)] = value
    return by_parameter


def _text(path: Path, name: str, value: object) -> str:
    """Format a TOML value as text of the command line.

    Raises:
        Misconfigured: the value is a table or a list.
    """
    if isinstance(value, dict | list):
        raise Misconfigured(
            f"--config {path}: {name} has values within values; quote names with dots, as in "
            '"kafka.security.protocol" = "SSL"'
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


class LazySession:
    """Proxy of a Spark session that starts it at the first use: a refused job needs none.

    Attributes:
        started: The session; None before its first use.
    """

    def __init__(self, start: Callable[[], Any]) -> None:
        self.started: Any = None
        self._start = start

    def __getattr__(self, name: str) -> Any:
        if self.started is None:
            before = signal.getsignal(signal.SIGINT)
            self.started = self._start()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, before)  # Spark has set a handler of its own
        return getattr(self.started, name)


def app(name: str) -> typer.Typer:
    """Return the command that runs a job and shows its outcome."""
    row, made = JOB_TABLE[name], typer.Typer()

    def run(job: Any, call: Call) -> None:
        if getattr(job, "writes", False):
            job.require_state()
        what, state = getattr(job, "what", None), getattr(job, "resumable", None)
        said: set[Shown] = set()
        with ExitStack() as stack:
            stop = stack.enter_context(stopped_by_signals()) if hasattr(job, "control") else None
            spark, work = stack.enter_context(
                call.working(str(row.counts), what=what, state=state, stop=stop)
            )
            function = getattr(import_module(f"horolog.jobs.{row.module}"), name)
            if stop is None:
                followed = replace(job, on_progress=work)
            else:
                followed = replace(job, control=_control(work, stop, said))
            done: Outcome = function.run(spark, followed)
        lines = (line for line in done.lines() if line not in said)
        call.show(Answer(done.to_json(), lines, done.is_ok))

    run.__name__ = name
    job_command(made, row.job)(run)
    return made


def _control(work: Work, stop: threading.Event, said: set[Shown]) -> "Control":
    """Make the control of a mirror: shows its progress and its notes, and ends it."""
    from horolog.jobs.mirroring.report import Control, age_text

    work(0, 0)

    def follow(done: "Mirrored") -> None:
        for note in done.notes[:-1]:  # the last one, on offsets, has time until the end
            line = f"note: {note}"
            if line not in said:
                said.add(line)
                say(line)
        behind = [] if done.lag_ms is None else [f"{age_text(done.lag_ms)} behind"]
        work(done.records, done.records + done.lag, "; ".join([*behind, *done.errors[:1]]))

    return Control(on_progress=follow, should_stop=stop.is_set)
