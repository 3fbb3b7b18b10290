"""`horolog spark compare`: whether two topics hold the same records."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.jobs.following import working_on
from horolog.cli.jobs.mirror import Rename, TargetSettings
from horolog.cli.jobs.options import (
    Config,
    From,
    Master,
    Settings,
    Source,
    SparkConf,
    To,
    Topics,
    TopicsPattern,
    session,
    settings_of,
)
from horolog.cli.options import Json, pairs
from horolog.cli.screen import show_json

if TYPE_CHECKING:
    from horolog.jobs.comparing import Compared

app = typer.Typer()

Other = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="HOST:PORT|PATH",
        show_default=False,
        help="Compare with this broker, or with these segment files.",
    ),
]
MirrorState = Annotated[
    Path | None,
    typer.Option(
        "--mirror-state",
        metavar="DIR",
        show_default=False,
        help="The state directory of a mirror: compare what it has mirrored, by its map of "
        "offsets and names.",
    ),
]
Fields = Annotated[
    str,
    typer.Option(
        "--fields",
        metavar="NAME,NAME",
        help="What has to be equal: key, value, headers, time, and type (of the timestamp).",
    ),
]
IgnoreOffsets = Annotated[
    bool, typer.Option("--ignore-offsets", help="The order of records counts, not their offsets.")
]


@app.command()
def compare(
    source: Source,
    target: Other,
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    from_: From = None,
    to: To = None,
    rename: Rename = None,
    mirror_state: MirrorState = None,
    fields: Fields = "key,value,headers,time",
    ignore_offsets: IgnoreOffsets = False,
    settings: Settings = None,
    target_settings: TargetSettings = None,
    master: Master = None,
    conf: SparkConf = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Compare topics record by record, and show the first difference of each partition.

    Exits with 1 if there is one. Offsets have to be equal, unless a mirror maps them.

    horolog spark compare --source east:9092 --target ./copy --topics clicks
    """
    with session("compare", master, conf) as spark, working_on(spark, "compare", "ranges") as work:
        from horolog.jobs.comparing import compare as run

        found = run(
            spark,
            source=source,
            target=target,
            topics=topics,
            topics_pattern=topics_pattern,
            from_=from_,
            to=to,
            settings=settings_of(settings),
            target_settings=pairs(target_settings, "--target-set"),
            rename=rename,
            mirror_state=mirror_state,
            fields=fields,
            ignore_offsets=ignore_offsets,
            on_progress=work,
        )
    if json:
        show_json(found.to_json())
    else:
        _show(found)
    if not found.is_equal:
        raise typer.Exit(1)


def _show(found: "Compared") -> None:
    for difference in found.differences:
        typer.echo(f"different: {difference}")
    verdict = "equal" if found.is_equal else "equal up to there"
    typer.echo(
        f"{found.records} records of {found.partitions} partitions are {verdict}, "
        f"{found.same_bytes} of them byte for byte."
    )
