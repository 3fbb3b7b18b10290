"""`horolog spark reprocess`: exactly the records at or after a time, into a sink."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horolog.cli.jobs.following import working_on
from horolog.cli.jobs.mirror import Rename, TargetSettings
from horolog.cli.jobs.options import (
    Config,
    DryRun,
    IntoNonempty,
    Master,
    Once,
    Settings,
    Source,
    SparkConf,
    State,
    To,
    Topics,
    TopicsPattern,
    session,
    settings_of,
    state_needed,
    stopped_by_signals,
)
from horolog.cli.options import Json, pairs
from horolog.cli.screen import say, show_json, show_table
from horolog.errors import Misconfigured
from horolog.times import format_time

if TYPE_CHECKING:
    from horolog.jobs.mirroring.report import Mirrored
    from horolog.jobs.reprocessing import Reprocessed

app = typer.Typer(no_args_is_help=True)


@app.command(no_args_is_help=True)
def reprocess(
    source: Source,
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", show_default=False, help="Records at or after this time."
        ),
    ],
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    to: To = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="HOST:PORT|PATH",
            show_default=False,
            help="Into topics of this cluster or log directory, as `horolog spark mirror` does it.",
        ),
    ] = None,
    rename: Rename = None,
    target_settings: TargetSettings = None,
    into_nonempty: IntoNonempty = False,
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="PATH", show_default=False, help="Or into Parquet files there."
        ),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(
            "--foreach-batch",
            metavar="MODULE:FUNCTION",
            show_default=False,
            help="Or to a function of a DataFrame and the number of the micro-batch, from a module "
            "in the current directory or installed.",
        ),
    ] = None,
    state: State = None,
    once: Once = False,
    dry_run: DryRun = False,
    master: Master = None,
    settings: Settings = None,
    conf: SparkConf = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Give exactly the records at or after a time to a sink, late ones included.

    Until Ctrl-C, or with --once up to the ends that the logs have now. Run it again with the same
    --state after a kill: topics and tables get each record once. --dry-run counts the records, and
    exits with 1 where the sink would refuse a run; with --state it knows what earlier runs began.

    horolog spark reprocess --source east:9092 --topics clicks --from -3d --table ./t --state ./s
    """
    state_needed(state, dry_run=dry_run)
    each_batch = None if function is None else _function(function)
    with session("reprocess", master, conf) as spark, stopped_by_signals() as stop:
        from horolog.jobs.mirroring import Control
        from horolog.jobs.reprocessing import reprocess as run

        with working_on(spark, "reprocess", "records", state=state, stop=stop) as work:
            work(0, 0)

            def follow(done: "Mirrored") -> None:
                work(done.records, done.records + done.lag, *done.errors[:1])

            done = run(
                spark,
                source=source,
                from_=from_,
                topics=topics,
                topics_pattern=topics_pattern,
                to=to,
                settings=settings_of(settings),
                target=target,
                rename=rename,
                into_nonempty=into_nonempty,
                target_settings=pairs(target_settings, "--target-set"),
                table=table,
                each_batch=each_batch,
                state=state,
                once=once,
                dry_run=dry_run,
                control=Control(on_progress=follow, should_stop=stop.is_set),
            )
    if as_json:
        show_json(_as_json(done))
    else:
        _show(done)
    for each in done.errors:
        say(f"error: {each}")
    raise typer.Exit(1 if done.errors else 0)


def _function(named: str) -> Any:
    """The function that `MODULE:FUNCTION` names.

    Raises:
        Misconfigured: there is none.
    """
    module, colon, name = named.partition(":")
    if not (module and colon and name):
        raise Misconfigured(f"--foreach-batch {named}: write MODULE:FUNCTION")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise Misconfigured(f"--foreach-batch {named}: {error}") from None
    if not callable(found):
        raise Misconfigured(f"--foreach-batch {named}: it is no function")
    return found


def _as_json(done: "Reprocessed") -> dict[str, Any]:
    return {
        "records": done.records,
        "topics": dict(done.topics),
        "batches": done.batches,
        "from_ms": done.from_ms,
        "to_ms": done.to_ms,
        "dry_run": done.is_dry_run,
        "errors": list(done.errors),
        "mirrored": None if done.mirrored is None else done.mirrored.to_json(),
    }


def _show(done: "Reprocessed") -> None:
    if done.is_dry_run:
        if done.topics:
            show_table(["topic", "records"], list(done.topics.items()))
        typer.echo(
            f"A run would write {done.records:,} records from {_time(done.from_ms)} to "
            f"{_time(done.to_ms)}; nothing was changed."
        )
    else:
        typer.echo(f"Reprocessed {done.records:,} records.")
    if done.mirrored is not None:
        for note in done.mirrored.notes:
            typer.echo(f"note: {note}")


def _time(ms: int | None) -> str:
    return "the end" if ms is None else f"{ms} ms" if ms == -1 else format_time(ms)
