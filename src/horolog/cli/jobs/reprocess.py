"""`horolog spark reprocess`: exactly the records at or after a time, into a sink."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.jobs.stopping import stopped_by_signals
from horolog.errors import Misconfigured
from horolog.jobs.parameters.mirror import Reprocess
from horolog.results import Shown, Table
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
    call.show(_plain(done), _lines(done), (f"error: {error}" for error in done.errors))


def _plain(done: "Reprocessed") -> dict[str, Any]:
    return {
        **{name: getattr(done, name) for name in _MEMBERS},
        "dry_run": done.is_dry_run,
        "mirrored": done.mirrored and done.mirrored.to_json(),
    }


_MEMBERS: Final = ("records", "topics", "batches", "from_ms", "to_ms", "errors")


def _lines(done: "Reprocessed") -> Iterator[Shown]:
    if done.is_dry_run:
        if done.topics:
            yield Table.of(("topic", "records"), done.topics.items())
        yield (
            f"A run would write {done.records:,} records from {_time(done.from_ms)} to "
            f"{_time(done.to_ms)}; nothing was changed."
        )
    else:
        yield f"Reprocessed {done.records:,} records."
    if done.mirrored is not None:
        yield from (f"note: {note}" for note in done.mirrored.notes)


def _time(ms: int | None) -> str:
    return "the end" if ms is None else f"{ms} ms" if ms == -1 else format_time(ms)
