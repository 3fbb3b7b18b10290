"""`horolog spark failover`: record, plan and apply where groups continue in another cluster."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.jobs.tables import row_table
from horolog.errors import printable
from horolog.jobs.failing_over.recorded import (
    BY_APPEND_TIME,
    BY_BROKER,
    BY_ORDER,
    BY_READER,
    BY_USER,
    Bound,
)
from horolog.jobs.parameters.failover import ApplyStep, PlanStep, RecordStep
from horolog.results import Answer, Aside, Shown, Table
from horolog.times import format_time

if TYPE_CHECKING:
    from horolog.jobs.failing_over.planning import FailoverPlan
    from horolog.jobs.failing_over.recording import Recording

_WHO_SAYS: Final = {
    BY_APPEND_TIME: "by the append times of the records that were read",
    BY_BROKER: "by the broker's classes of latencies, of which it is an upper bound",
    BY_READER: "by when a reader got them",
    BY_ORDER: "by how far they were out of order",
    BY_USER: "by --bound",
}

app = typer.Typer(
    name="failover",
    no_args_is_help=True,
    help="Let consumer groups continue in another cluster that the same producers write to, "
    "without the loss of a record (KIP-33, use case 3). Record again and again while both clusters "
    "live; plan and apply need the survivor and the state directory alone.",
)


@job_command(app, RecordStep)
def record(step: RecordStep, call: Call) -> None:
    """Record, and show how far groups are."""
    with call.working("records", what="record") as (spark, _):
        from horolog.jobs.failing_over import failover

        recording = failover.record.run(spark, step)
    bounds: list[dict[str, Any]] = [
        {
            "topic": topic,
            "records": bound.records,
            "read_now": recording.records_read[topic],
            "latency_ms": bound.latency_ms,
            "measured_by": bound.latency_by,
            "broker_counts": recording.broker_counts.get(topic),
            "lateness_ms": bound.lateness_ms,
            "odd": bound.odd,
        }
        for topic, bound in sorted(recording.bounds.items())
    ]
    groups: list[dict[str, Any]] = [
        {
            "group": group,
            "topic": topic,
            "recorded_at": format_time(mark.at_ms),
            "unread": mark.unread,
            "read_before": format_time(mark.read_before_ms(recording.bounds[topic].ms)),
        }
        for group, progress in sorted(recording.groups.items())
        for topic, mark in sorted(progress.items())
    ]
    lines = _recorded(recording, bounds, groups)
    result = {"topics": bounds, "groups": groups}
    call.show(Answer(result, lines, all(recording.groups.values())))


def _recorded(
    recording: "Recording", bounds: list[dict[str, Any]], groups: list[dict[str, Any]]
) -> Iterator[Shown]:
    columns = [name for name in bounds[0] if name != "broker_counts"]
    headings = {"latency_ms": "latency up to (ms)", "lateness_ms": "late by up to (ms)"}
    yield row_table(bounds, columns, {**headings, "odd": "without usable time"})
    for topic, counts in sorted(recording.broker_counts.items()):
        yield _about_broker(topic, recording.bounds[topic], counts=counts)
    if groups:
        yield ""
        yield row_table(groups, list(groups[0]), {"read_before": "has read all created before"})
    for group, progress in recording.groups.items():
        if not progress:
            yield Aside(f"group {printable(group)} has committed no offset of these topics")


@job_command(app, PlanStep)
def plan(step: PlanStep, call: Call) -> None:
    """Plan, and show where groups start."""
    with call.working("records", what="plan") as (spark, _):
        from horolog.jobs.failing_over import failover

        made = failover.plan.run(spark, step)
    result = {**made.to_json(), "proven": made.is_proven}
    call.show(Answer(result, _planned(made), made.is_proven))


@job_command(app, ApplyStep, on_spark=False)
def apply(step: ApplyStep, call: Call) -> None:
    """Commit, and show for which groups."""
    from horolog.jobs.failing_over import failover

    outcomes = failover.apply.run(step)
    committed = "would commit" if step.dry_run else "committed"
    rows = [
        {
            "group": applied.group,
            "offsets": applied.offsets,
            "overwritten": applied.before,
            "result": applied.error or (committed if applied.offsets else "applied before"),
        }
        for applied in outcomes
    ]
    table = Table(rows, "group", "offsets", "overwritten", "result")
    is_ok = not any(applied.error for applied in outcomes)
    call.show(Answer({"groups": rows, "dry_run": step.dry_run}, [table], is_ok))


def _about_broker(topic: str, bound: Bound, *, counts: bool) -> str:
    """Explain what the broker has answered about the latencies of a topic."""
    answer = "the broker counts no latencies, as Apache Kafka's do not"
    if counts:
        answer = "not every partition has a latency: the broker was asked for those that it counted"
    by = "how long records take is not known"
    if bound.latency_by is not None:
        by = f"{bound.latency_ms:,} ms is {_WHO_SAYS[bound.latency_by]}"
    return f"{printable(topic)}: {answer}; {by}"


def _planned(plan: "FailoverPlan") -> Iterator[Shown]:
    rows: list[dict[str, Any]] = [
        {
            "group": start.group,
            "topic": start.topic,
            "partition": number,
            "from": "the earliest" if from_ms is None else format_time(from_ms),
            "offset": start.offsets.get(number),
        }
        for start in plan.starts
        for number, from_ms in start.from_ms.items()
    ]
    if rows:
        yield Table(rows, *rows[0])
        yield ""
    for start in plan.starts:
        name = printable(f"{start.group}, {start.topic}")
        yield (
            f"{name}: {start.to_read:,} records to read, of which at most {start.duplicates:,} had "
            f"been read when it was recorded at {format_time(start.recorded_at_ms)}, and again "
            f"what was read since. Records took at most {start.bound_ms:,} ms, margin included"
            + (f" ({_WHO_SAYS[start.bound_by]})" if start.bound_by in _WHO_SAYS else "")
        )
        for note in start.notes:
            yield f"  not proven: {printable(note)}"
    if plan.is_proven:
        yield ""
        yield "No record is lost that takes no longer to the source's log than its bound."
