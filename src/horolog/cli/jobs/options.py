"""Options that the jobs share, under the same names as the arguments of `horolog.jobs`."""

import signal
import threading
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horolog.cli.jobs.lazy_session import LazySession
from horolog.cli.options import pairs
from horolog.cli.screen import say
from horolog.errors import Misconfigured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Source = Annotated[
    str,
    typer.Option(
        "--source",
        metavar="HOST:PORT|PATH",
        show_default=False,
        help="Read from this broker (horolog or Apache Kafka), or from these segment files.",
    ),
]
Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        show_default=False,
        help="Log directories, partition directories, .log files, or URIs of an object store.",
    ),
]
Topics = Annotated[
    str | None,
    typer.Option("--topics", metavar="NAME,NAME", show_default=False, help="The topics to read."),
]
TopicsPattern = Annotated[
    str | None,
    typer.Option(
        "--topics-pattern",
        metavar="RE",
        show_default=False,
        help="Read the topics whose whole name matches a regular expression of Java's.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", show_default=False, help="Only records at or after this time."
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", show_default=False, help="Only records before this time."),
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="HOST:PORT|PATH",
        show_default=False,
        help="Write to this broker, or to this directory of segment files.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        show_default=False,
        help="Where the job keeps what it has done; run it again with the same directory after a "
        "kill. Needed unless --dry-run is given.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Write nothing; say what would happen, and what be refused."),
]
Once = Annotated[
    bool, typer.Option("--once", help="Stop at the ends that the logs have at the start.")
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        show_default=False,
        help="Spark's master; by default this machine, or what spark-submit says.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        show_default=False,
        help="A setting of the clients or stores, as kafka.security.protocol=SSL; repeat for more.",
    ),
]
IntoNonempty = Annotated[
    bool,
    typer.Option(
        "--into-nonempty",
        help="Append to a topic that holds records of which --state knows nothing. Without it such "
        "a topic is refused: after a state was lost, all would come twice.",
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", show_default=False, help="A setting of Spark; repeatable."
    ),
]


def _use_config(ctx: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **_defaults(ctx, path)}
    return path


_MOST_CONFIG_BYTES = 64 << 10  # of a file with a line for each option
Config = Annotated[
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


def _defaults(ctx: typer.Context, path: Path) -> dict[str, Any]:
    """The file's values by parameter, as if they had been given as options.

    Raises:
        Misconfigured: the file cannot be read, is no TOML, or names an option there is not.
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
    found: dict[str, Any] = {}
    for name, value in given.items():
        parameter = known.get(name)
        if parameter is None:
            raise Misconfigured(f"--config {path}: there is no option --{name}")
        if isinstance(value, dict):
            if not parameter.multiple:
                raise Misconfigured(f"--config {path}: {name} is no table")
            value = [f"{key}={_text(path, name, each)}" for key, each in value.items()]
        elif isinstance(value, list):
            value = [_text(path, name, each) for each in value]
            if not parameter.multiple and parameter.nargs == 1:
                value = ",".join(value)
        elif not isinstance(value, bool):
            value = _text(path, name, value)
        found[str(parameter.name)] = value
    return found


def _text(path: Path, name: str, value: object) -> str:
    """A value of TOML as it is written on the command line.

    Raises:
        Misconfigured: it is no single value.
    """
    if isinstance(value, dict | list):
        raise Misconfigured(
            f"--config {path}: {name} has values within values; quote names with dots, as in "
            '"kafka.security.protocol" = "SSL"'
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_of(given: Iterable[str] | None) -> dict[str, str]:
    """The settings of `--set`, by name."""
    return pairs(given, "--set")


@contextmanager
def session(job: str, master: str | None, conf: Iterable[str] | None) -> Iterator["SparkSession"]:
    """The session that a job runs in, started when it is first used, and stopped afterwards.

    Raises:
        HorologError: a task of Spark ended with an error of ours; its sentence.
    """
    try:
        from pyspark.sql import SparkSession

        from horolog.spark import session as start
        from horolog.spark.errors import without_spark
    except ImportError as error:
        raise Misconfigured(str(error)) from None
    given = pairs(conf, "--conf")
    is_ours = SparkSession.getActiveSession() is None
    spark: Any = LazySession(lambda: start(f"horolog {job}", master=master, **given))
    try:
        with without_spark():
            yield spark
    finally:
        if is_ours and spark.started is not None:
            with suppress(Exception):  # py4j fails where a signal has ended or interrupted the JVM
                spark.stop()


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; the second one interrupts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("Ending after what is under way; once more to interrupt it.")

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_after(stop: threading.Event, after_ms: int | None) -> Iterator[None]:
    """Set the event after a time; never without one."""
    if after_ms is None:
        yield
        return
    timer = threading.Timer(after_ms / 1000, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def state_needed(state: Path | None, *, dry_run: bool) -> Path | None:
    """The state directory; None for a dry run, which keeps none.

    Raises:
        Misconfigured: none is given, and the job is to write.
    """
    if dry_run:
        return None
    if state is None:
        raise Misconfigured("give --state DIR, where the job keeps what it has done, or --dry-run")
    return state
