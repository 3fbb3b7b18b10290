"""`horolog spark archive`: topics as Parquet by date and hour."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

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
from horolog.errors import Misconfigured

app = typer.Typer()

Source = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="HOST:PORT|PATH",
        show_default=False,
        help="Archive what this broker has (horolog or Apache Kafka), or these segment files.",
    ),
]
Archive = Annotated[
    str,
    typer.Option(
        "--archive",
        metavar="PATH|URI",
        show_default=False,
        help="The archive: a directory that all workers see, or a URI in an object store.",
    ),
]
Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="FROM..TO",
        show_default=False,
        help="Records with times outside of it get a partition of their own, date=outside; records "
        "without a time are in date=untimed.",
    ),
]
TargetSize = Annotated[
    int,
    typer.Option(
        "--target-size",
        metavar="MB",
        min=1,
        help="Begin another file of an hour where one has reached so many megabytes.",
    ),
]
AcceptGaps = Annotated[
    bool,
    typer.Option(
        "--accept-gaps",
        help="Go on behind records that the source deleted before they were archived.",
    ),
]


Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Compare all files of the archive with its manifest, and list those that it does not "
        "name; archive nothing.",
    ),
]
RemoveUnreferenced = Annotated[
    bool,
    typer.Option(
        "--remove-unreferenced",
        help="With --check: remove files that the manifest does not name and that are older than "
        "a day, of killed runs and of merges.",
    ),
]
Merge = Annotated[
    bool,
    typer.Option(
        "--merge",
        help="Merge small files of each hour up to the target size; archive nothing. Old files "
        "stay for a day for readers that have them open, see --remove-unreferenced.",
    ),
]


@app.command()
def archive(
    archive: Archive,
    source: Source = None,
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    from_: From = None,
    to: To = None,
    state: State = None,
    window: Window = None,
    target_size: TargetSize = 128,
    accept_gaps: AcceptGaps = False,
    check: Check = False,
    remove_unreferenced: RemoveUnreferenced = False,
    merge: Merge = False,
    dry_run: DryRun = False,
    settings: Settings = None,
    master: Master = None,
    conf: SparkConf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Archive topics as Parquet files by date and hour of their records' times, in UTC.

    Committed records only, from where the archive ends to where the logs end: run it again, with
    the same --state, for what came since, or after a kill. The archive's manifest alone decides
    what is in it; it has counts and checksums of every range of offsets. Files keep offsets, both
    times, headers and the headers of batches, so that `horolog spark restore` makes the same log.
    """
    from horolog.jobs.archives.archiving import archive as run

    if remove_unreferenced and not check:
        raise Misconfigured("--remove-unreferenced goes with --check")
    if check or merge:
        if source is not None or (check and merge):
            raise Misconfigured("give one of --source, --check and --merge")
        _keep_up(
            archive,
            settings,
            master,
            conf,
            check,
            remove_unreferenced,
            target_size,
            dry_run,
            as_json,
        )
        return
    if source is None:
        raise Misconfigured("give --source, the broker or the segment files to archive")
    where = state_needed(state, dry_run=dry_run)
    with (
        session("archive", master, conf) as spark,
        working_on(spark, "archive", "records", state=where) as work,
    ):
        done = run(
            spark,
            source=source,
            archive=archive,
            topics=topics,
            topics_pattern=topics_pattern,
            from_=from_,
            to=to,
            settings=settings_of(settings),
            state=where,
            window=window,
            target_bytes=target_size << 20,
            accept_gaps=accept_gaps,
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
    if done.is_dry_run:
        typer.echo(
            f"Would archive {done.partitions} partitions in {done.archive}, about "
            f"{size(done.bytes)}, up to:"
        )
        for partition, end in done.ends.items():
            typer.echo(f"  {partition}  {end}")
        return
    typer.echo(
        f"Archived {done.records} records of {done.partitions} partitions ({size(done.bytes)}) in "
        f"{done.archive}: {done.files} files of records, {size(done.file_bytes)} in all, manifest "
        f"{done.manifest}"
    )


def _keep_up(
    archive: str,
    settings: list[str] | None,
    master: str | None,
    conf: list[str] | None,
    check: bool,
    remove_unreferenced: bool,
    target_size: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Check or merge the files of an archive."""
    from horolog.jobs.archives.checking import check_archive
    from horolog.jobs.archives.merging import merge_archive

    with (
        session("archive", master, conf) as spark,
        working_on(spark, "check" if check else "merge", "files"),
    ):
        if check:
            checked = check_archive(
                spark,
                archive=archive,
                settings=settings_of(settings),
                remove_unreferenced=remove_unreferenced and not dry_run,
            )
            found, problems = asdict(checked), checked.problems
        else:
            merged = merge_archive(
                spark,
                archive=archive,
                settings=settings_of(settings),
                target_bytes=target_size << 20,
                dry_run=dry_run,
            )
            found, problems = asdict(merged), merged.refused
    if as_json:
        show_json(found)
    elif check:
        typer.echo(
            f"Checked {found['files']} files of {found['archive']} with {found['records']} "
            f"records, {size(found['bytes'])}: {len(problems)} problems, "
            f"{len(found['unreferenced'])} files "
            f"that the manifest does not name, {len(found['removed'])} of them removed"
        )
        for path, count in found["unreferenced"].items():
            typer.echo(f"  not named: {path}  {size(count)}")
    else:
        would = "Would merge" if dry_run else "Merged"
        typer.echo(
            f"{would} {found['files_before']} files of {found['archive']} into "
            f"{found['files_after']}, {size(found['bytes'])}"
        )
    for where, why in problems.items():
        say(f"{where}: {why}")
    if problems:
        raise typer.Exit(1)
