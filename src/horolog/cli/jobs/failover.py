"""`horolog spark failover`: record, plan and apply where groups go on in another cluster."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.jobs.tables import show_rows
from horolog.cli.screen import say
from horolog.errors import printable
from horolog.jobs.parameters.failover import ApplyStep, PlanStep, RecordStep
from horolog.times import format_time

if TYPE_CHECKING:
    from horolog.jobs.failing_over.applying import Applied
    from horolog.jobs.failing_over.planning import FailoverPlan
    from horolog.jobs.failing_over.recording import Recording

app = typer.Typer(
    name="failover",
    no_args_is_help=True,
    help="Let consumer groups go on in another cluster that the same producers write to, without "
    "the loss of a record (KIP-33, use case 3). Record again and again while both clusters live; "
    "plan and apply need the survivor and the state directory alone.",
)


@job_command(app, RecordStep)
def record(step: RecordStep, call: Call) -> None:
    """Record, and show how far groups are."""
    with call.working("records", what="record") as (spark, _):
        from horolog.jobs.failing_over import failover

        found = failover.record.run(spark, step)
    _show_recording(found, call)
    idle = [group for group, its in found.groups.items() if not its]
    for group in idle:
        say(f"group {printable(group)} has committed no offset of these topics")
    raise typer.Exit(1 if idle else 0)


@job_command(app, PlanStep)
def plan(step: PlanStep, call: Call) -> None:
    """Plan, and show where groups start."""
    with call.working("records", what="plan") as (spark, _):
        from horolog.jobs.failing_over import failover

        found = failover.plan.run(spark, step)
    call.show(lambda: {**found.to_json(), "proven": found.is_proven}, lambda: _show_plan(found))
    raise typer.Exit(0 if found.is_proven else 1)


@job_command(app, ApplyStep, on_spark=False)
def apply(step: ApplyStep, call: Call) -> None:
    """Commit, and show for which groups."""
    from horolog.jobs.failing_over import failover

    _show_applied(failover.apply.run(step), call, dry_run=step.dry_run)


def _show_recording(found: "Recording", call: Call) -> None:
    bounds: list[dict[str, Any]] = [
        {
            "topic": topic,
            "records": each.records,
            "read_now": found.records_read[topic],
            "latency_ms": each.latency_ms,
            "measured_by": each.latency_by,
            "lateness_ms": each.lateness_ms,
            "odd": each.odd,
        }
        for topic, each in sorted(found.bounds.items())
    ]
    groups: list[dict[str, Any]] = [
        {
            "group": group,
            "topic": topic,
            "recorded_at": format_time(each.at_ms),
            "unread": each.unread,
            "read_before": format_time(each.read_before_ms(found.bounds[topic].ms)),
        }
        for group, its in sorted(found.groups.items())
        for topic, each in sorted(its.items())
    ]
    headings = {"latency_ms": "latency up to (ms)", "lateness_ms": "late by up to (ms)"}

    def screen() -> None:
        show_rows(bounds, list(bounds[0]), {**headings, "odd": "without usable time"})
        if groups:
            typer.echo("")
            show_rows(groups, list(groups[0]), {"read_before": "has read all created before"})

    call.show(lambda: {"topics": bounds, "groups": groups}, screen)


def _show_plan(found: "FailoverPlan") -> None:
    rows: list[dict[str, Any]] = [
        {
            "group": each.group,
            "topic": each.topic,
            "partition": number,
            "from": "the earliest" if from_ms is None else format_time(from_ms),
            "offset": each.offsets.get(number),
        }
        for each in found.starts
        for number, from_ms in each.from_ms.items()
    ]
    if rows:
        show_rows(rows, list(rows[0]), {})
        typer.echo("")
    for each in found.starts:
        name = printable(f"{each.group}, {each.topic}")
        typer.echo(
            f"{name}: {each.to_read:,} records to read, of which at most {each.duplicates:,} had "
            f"been read when it was recorded at {format_time(each.recorded_at_ms)}, and again "
            f"what was read since. Records took at most {each.bound_ms:,} ms, margin included"
        )
        for note in each.notes:
            typer.echo(f"  not proven: {printable(note)}")
    if found.is_proven:
        typer.echo("\nNo record is lost that takes no longer to the source's log than its bound.")


def _show_applied(found: Sequence["Applied"], call: Call, *, dry_run: bool) -> None:
    rows = [
        {
            "group": each.group,
            "offsets": each.offsets,
            "overwritten": each.before,
            "result": each.error
            or (
                "applied before" if not each.offsets else "would commit" if dry_run else "committed"
            ),
        }
        for each in found
    ]
    call.show(
        lambda: {"groups": rows, "dry_run": dry_run},
        lambda: show_rows(rows, ["group", "offsets", "overwritten", "result"], {}),
    )
    raise typer.Exit(1 if any(each.error for each in found) else 0)
