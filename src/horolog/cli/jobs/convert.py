"""`horolog spark convert`: rewrite many partitions in another record format, in parallel."""

from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.converting import RecordFormat, ZstdAs, converted_json, show_converted, show_losses
from horolog.cli.jobs.following import working_on
from horolog.cli.jobs.options import (
    Config,
    DryRun,
    Master,
    Paths,
    SparkConf,
    State,
    Topics,
    TopicsPattern,
    session,
    state_needed,
)
from horolog.cli.options import Json
from horolog.cli.screen import show_json
from horolog.cli.verifying import INTERVAL_BYTES, IntervalBytes

if TYPE_CHECKING:
    from horolog.jobs.files.convert import ConvertReport

app = typer.Typer()


@app.command(no_args_is_help=True)
def convert(
    paths: Paths,
    to: Annotated[
        RecordFormat, typer.Option("--to", show_default=False, help="The record format to write.")
    ],
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    zstd_as: ZstdAs = None,
    interval_bytes: IntervalBytes = INTERVAL_BYTES,
    state: State = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: SparkConf = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Rewrite logs in another record format, many segments at a time.

    Does what `horolog log convert` does: each segment is written anew, read again, compared record
    for record, and only then takes the place of the old one. It may be killed at any time: run it
    again with the same --state. Offsets, codecs and modification times stay. What the format cannot
    hold is counted; what would change a log's meaning is refused. Brokers of the directories must
    be stopped: their lock is held. It is a lock of this machine, and keeps away no broker of
    another machine that mounts the same disk. All executors must see the paths; each task needs
    room for a copy of its segment.

    The exit code is 1 if a segment was left as it is although it has another format.
    """
    state = state_needed(state, dry_run=dry_run)
    with session("convert", master, conf) as spark:
        from horolog.jobs.files.convert import convert as run

        with working_on(spark, f"convert to {to.value}", "bytes", state=state) as work:
            report = run(
                spark,
                paths,
                to=to.value,
                topics=topics,
                topics_pattern=topics_pattern,
                zstd_as=None if zstd_as is None else zstd_as.value,
                interval_bytes=interval_bytes,
                state=state,
                dry_run=dry_run,
                on_progress=work,
            )
    if as_json:
        _show_json(report)
    else:
        _show(report)
    if not report.is_ok:
        raise typer.Exit(1)


def _show(report: "ConvertReport") -> None:
    for each in (*report.converted, *report.refused):
        show_converted(each, report.format, dry_run=report.dry_run)
    for path, error in report.failed.items():
        typer.echo(f"FAILED  {path}\n        {error}")
    show_losses(report.losses, report.format)
    if report.resumed:
        typer.echo(f"{report.resumed} parts were done before and have not changed")
    typer.echo(
        f"{report.segments} segments, {len(report.converted)} "
        f"{'would be ' if report.dry_run else ''}converted to {report.format} "
        f"({report.records} records), {len(report.refused)} left as they are"
        + (f"; {len(report.failed)} parts failed" if report.failed else "")
    )


def _show_json(report: "ConvertReport") -> None:
    show_json(
        {
            "ok": report.is_ok,
            "format": report.format,
            "dry_run": report.dry_run,
            "segments": report.segments,
            "records": report.records,
            "converted": [converted_json(each) for each in report.converted],
            "refused": {each.path: each.refused for each in report.refused},
            "failed": report.failed,
            "lost": report.losses._asdict(),
            "resumed": report.resumed,
        }
    )
