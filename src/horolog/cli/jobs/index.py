"""`horolog spark index`: verify or rebuild the indexes of many partitions in parallel."""

from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.jobs.following import working_on
from horolog.cli.jobs.options import (
    Config,
    DryRun,
    Master,
    Paths,
    Settings,
    SparkConf,
    State,
    Topics,
    TopicsPattern,
    session,
    settings_of,
    state_needed,
)
from horolog.cli.options import Json
from horolog.cli.screen import show_json
from horolog.cli.verifying import (
    INTERVAL_BYTES,
    IntervalBytes,
    by_severity,
    reindexed_json,
    show_finding,
    show_reindexed,
    summary_of,
)

if TYPE_CHECKING:
    from horolog.jobs.files.index import IndexReport

app = typer.Typer()


@app.command(no_args_is_help=True)
def index(
    paths: Paths,
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Rebuild indexes and block maps that are missing or wrong."),
    ] = False,
    rebuild_all: Annotated[
        bool, typer.Option("--all", help="Also rebuild those that are correct.")
    ] = False,
    interval_bytes: IntervalBytes = INTERVAL_BYTES,
    state: State = None,
    dry_run: DryRun = False,
    master: Master = None,
    settings: Settings = None,
    conf: SparkConf = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Verify every byte of logs, or rebuild their indexes, many segments at a time.

    Without --rebuild it checks what `horolog log verify` checks and writes nothing: it works while
    brokers run, on directories of horolog and Apache Kafka, on disks and in object stores
    (s3a://...).
    With --rebuild it does what `horolog log reindex` does: each new index is compared with the log
    before it replaces the old one, and no .log is changed. Brokers of the directories must be
    stopped: their lock is held. It is a lock of this machine, and keeps away no broker of another
    machine that mounts the same disk. All executors must see the paths.

    With --state a run that was killed continues where it was, and segments that have not changed
    since are not read again; --rebuild needs it. The exit code is 1 if something is wrong, or was
    left wrong.
    """
    if rebuild or rebuild_all:
        state = state_needed(state, dry_run=dry_run)
    with session("index", master, conf) as spark:
        from horolog.jobs.files.index import index as run

        what = "rebuild" if rebuild or rebuild_all else "verify"
        with working_on(spark, what, "bytes", state=state) as work:
            report = run(
                spark,
                paths,
                topics=topics,
                topics_pattern=topics_pattern,
                rebuild=rebuild,
                rebuild_all=rebuild_all,
                interval_bytes=interval_bytes,
                settings=settings_of(settings),
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


def _show(report: "IndexReport") -> None:
    for each in by_severity(report.findings):
        show_finding(each)
    for done in report.reindexed:
        show_reindexed(done, dry_run=report.dry_run)
    for path, error in report.failed.items():
        typer.echo(f"FAILED  {path}\n        {error}")
    if report.resumed:
        typer.echo(f"{report.resumed} parts were done before and have not changed")
    summary = summary_of(report.checked, report.findings)
    if report.rebuilt:
        changed = sum(1 for each in report.reindexed if each.written)
        summary = (
            f"{report.checked.segments} segments checked, the indexes of {changed} "
            f"{'would be ' if report.dry_run else ''}rebuilt, {len(report.refused)} left unchanged"
        )
    typer.echo(summary + (f"; {len(report.failed)} parts failed" if report.failed else ""))


def _show_json(report: "IndexReport") -> None:
    show_json(
        {
            "ok": report.is_ok,
            "rebuild": report.rebuilt,
            "dry_run": report.dry_run,
            **report.checked._asdict(),
            "findings": [each._asdict() for each in report.findings],
            "reindexed": [reindexed_json(each) for each in report.reindexed],
            "failed": report.failed,
            "resumed": report.resumed,
        }
    )
