"""`horolog spark reprocess`: exactly the records at or after a time, into a sink."""

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.jobs.stopping import stopped_by_signals
from horolog.cli.screen import say, show_table
from horolog.cli.terminal import echo
from horolog.errors import Misconfigured
from horolog.jobs.parameters.mirror import Reprocess
from horolog.times import format_time

if TYPE_CHECKING:
    from horolog.jobs.mirroring.report import Mirrored
    from horolog.jobs.reprocessing import Reprocessed

app = typer.Typer()


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


@job_command(app, Reprocess, converters={"each_batch": _function})
def reprocess(job: Reprocess, call: Call) -> None:
    """Run it until it is stopped, and show what was written."""
    with (
        stopped_by_signals() as stop,
        call.working("records", state=job.resumable, stop=stop) as (spark, work),
    ):
        from horolog.jobs import reprocessing
        from horolog.jobs.mirroring import Control

        work(0, 0)

        def follow(done: "Mirrored") -> None:
            work(done.records, done.records + done.lag, *done.errors[:1])

        control = Control(on_progress=follow, should_stop=stop.is_set)
        done = reprocessing.reprocess.run(spark, replace(job, control=control))
    call.show(lambda: _as_json(done), lambda: _show(done))
    for each in done.errors:
        say(f"error: {each}")
    raise typer.Exit(1 if done.errors else 0)


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
        echo(
            f"A run would write {done.records:,} records from {_time(done.from_ms)} to "
            f"{_time(done.to_ms)}; nothing was changed."
        )
    else:
        echo(f"Reprocessed {done.records:,} records.")
    if done.mirrored is not None:
        for note in done.mirrored.notes:
            echo(f"note: {note}")


def _time(ms: int | None) -> str:
    return "the end" if ms is None else f"{ms} ms" if ms == -1 else format_time(ms)
