"""`horolog spark mirror`: topics into another cluster."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.jobs.stopping import stopped_by_signals
from horolog.cli.screen import say
from horolog.jobs.parameters.mirror import Mirror
from horolog.results import Aside, Shown, Table, size

if TYPE_CHECKING:
    from horolog.jobs.mirroring import Mirrored

app = typer.Typer()


@job_command(app, Mirror)
def mirror(job: Mirror, call: Call) -> None:
    """Run it until it is stopped, and show what each partition has."""
    told: set[str] = set()
    with (
        stopped_by_signals() as stop,
        call.working("records", state=job.resumable, stop=stop) as (spark, work),
    ):
        from horolog.jobs import mirroring

        work(0, 0)

        def follow(done: "Mirrored") -> None:
            for note in done.notes[:-1]:  # the last one, on offsets, has time until the end
                if note not in told:
                    told.add(note)
                    say(f"note: {note}")
            remarks = [] if done.lag_ms is None else [f"{_age(done.lag_ms)} behind"]
            work(done.records, done.records + done.lag, "; ".join([*remarks, *done.errors[:1]]))

        control = mirroring.Control(on_progress=follow, should_stop=stop.is_set)
        done = mirroring.mirror.run(spark, replace(job, control=control))
    call.show(done.to_json(), _lines(done, told), is_ok=not done.errors)


def _lines(done: "Mirrored", told: Collection[str]) -> Iterator[Shown]:
    columns = ("behind", "lag"), ("lag", lambda each: _age(each.lag_ms))
    yield Table(
        done.partitions, "topic", "partition", "target", "records", "offset", "end", *columns
    )
    for group in done.groups:
        carried = f"{group.partitions} committed offsets carried over"
        said = [carried] if group.partitions else []
        said += [group.note] if group.note else []
        yield f"group {group.group}: {'; '.join(said or [carried])}"
    for note in done.notes:
        if note not in told:
            yield f"note: {note}"
    for error in done.errors:
        yield Aside(f"error: {error}")
    if done.is_dry_run:
        refused = f", {len(done.errors)} refused" if done.errors else ""
        yield f"A run would read {done.lag} offsets{refused}; nothing was changed."
        return
    count = len(done.errors)
    ends = [f"{count} error{'s' * (count > 1)}"] if count else []
    if done.partitions or not count:
        ends.append(f"{done.lag} offsets behind")
    yield f"Mirrored {done.records} records ({size(done.bytes)}); {', '.join(ends)}."


def _age(lag_ms: int | None) -> str:
    if lag_ms is None:
        return "-"
    return f"{lag_ms / 1000:.1f} s"
