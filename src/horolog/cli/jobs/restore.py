"""`horolog spark restore`: the logs of an archive, restored."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from horolog.cli.jobs.archive import Archive
from horolog.cli.jobs.following import working_on
from horolog.cli.jobs.options import (
    Config,
    DryRun,
    From,
    Master,
    Settings,
    SparkConf,
    State,
    To,
    Topics,
    TopicsPattern,
    session,
    settings_of,
    state_needed,
)
from horolog.cli.options import Json
from horolog.cli.screen import say, show_json, size

app = typer.Typer()

Target = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="PATH",
        show_default=False,
        help="The log directory to restore to, new or of a broker that is stopped; all workers "
        "have to see it.",
    ),
]


@app.command()
def restore(
    archive: Archive,
    target: Target,
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    from_: From = None,
    to: To = None,
    state: State = None,
    dry_run: DryRun = False,
    settings: Settings = None,
    master: Master = None,
    conf: SparkConf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Restore the logs of an archive: the same records at the same offsets and times.

    Each segment is written, read again and compared with the checksums of the manifest before its
    partition appears in the target, as a whole. Run it again with the same --state after a kill. A
    partition that is there already is refused. The broker that is started on the target then adopts
    its topics, so that nothing expires until they are given settings.
    """
    from horolog.jobs.archives.restoring import restore as run

    where = state_needed(state, dry_run=dry_run)
    with (
        session("restore", master, conf) as spark,
        working_on(spark, "restore", "segments", state=where) as work,
    ):
        done = run(
            spark,
            archive=archive,
            target=target,
            topics=topics,
            topics_pattern=topics_pattern,
            from_=from_,
            to=to,
            settings=settings_of(settings),
            state=where,
            dry_run=dry_run,
            progress=work,
        )
    if as_json:
        show_json(asdict(done))
    else:
        _show(done)
    for partition, why in done.refused.items():
        say(f"{partition}: {why}")
    if done.refused:
        raise typer.Exit(1)


def _show(done: Any) -> None:
    what = "Would restore" if done.is_dry_run else "Restored and compared"
    typer.echo(
        f"{what} {done.records} records of {len(done.partitions)} partitions in {done.target}: "
        f"{done.segments} segments, {size(done.bytes)}"
    )
    for partition, (start, end) in done.partitions.items():
        typer.echo(f"  {partition}  offsets {start} to {end - 1}")
