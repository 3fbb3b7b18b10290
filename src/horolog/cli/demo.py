"""`horolog demo`: the end-to-end demo, with a git repository's history and a clickstream."""

from pathlib import Path
from typing import Annotated

import typer

from horolog.errors import Misconfigured
from horolog.extras import missing_extra

app = typer.Typer()


@app.command()
def demo(
    repo: Annotated[
        Path, typer.Option("--repo", help="The git repository whose history is sent.")
    ] = Path(),
    output: Annotated[
        Path,
        typer.Option("--output", help="Directory for log and page; emptied first."),
    ] = Path("demo-output"),
    clicks: Annotated[int, typer.Option("--clicks", min=1, help="Generated events.")] = 300_000,
    max_commits: Annotated[
        int,
        typer.Option("--max-commits", min=1, help="How many of the newest commits to send."),
    ] = 20_000,
) -> None:
    """Run an end-to-end demo: a broker, real clients, Spark, and a page with charts.

    Sends the repository's commits and changed files with their own timestamps, and a clickstream
    with late, future and nanosecond timestamps. Then Spark reads a time range from the broker and
    from the files, counts events per hour, and shows how late records arrived and which were
    rejected and why.
    """
    try:
        from horolog.demo.run import DemoPlan, run  # noqa: PLC0415 - needs what the extras install
    except ImportError as error:
        if missing_extra(error, "the demo") is None:
            raise
        raise Misconfigured(
            f"the demo needs more packages than the broker ({error}): "
            "pip install 'horolog[spark,demo]'"
        ) from error
    from rich.console import Console  # noqa: PLC0415 - after the check, which is quick to fail

    run(DemoPlan(repo=repo, output=output, clicks=clicks, max_commits=max_commits), Console())
