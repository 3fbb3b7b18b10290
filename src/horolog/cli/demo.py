"""`horolog demo`: the main job, end to end, on a git repository's history and a clickstream."""

from pathlib import Path
from typing import Annotated

import typer

from horolog.errors import Misconfigured

app = typer.Typer()


@app.command()
def demo(
    repo: Annotated[
        Path, typer.Option("--repo", help="The git repository whose history is told.")
    ] = Path(),
    output: Annotated[
        Path, typer.Option("--output", help="Where the log and the page go; emptied first.")
    ] = Path("demo-output"),
    clicks: Annotated[int, typer.Option("--clicks", min=1, help="Generated events.")] = 300_000,
    max_commits: Annotated[
        int, typer.Option("--max-commits", min=1, help="The newest commits that are sent.")
    ] = 20_000,
) -> None:
    """See it all work: a broker, real clients, Spark, and a page with pictures.

    Sends the repository's commits and changed files with their own times, and a clickstream with
    late, future and nanosecond-stamped events; then Spark reads a range of time from the broker
    and from the files, counts events per hour, and tells how late records came and which were
    rejected and why.
    """
    try:
        from horolog.demo.run import Plan, run  # noqa: PLC0415 - needs what the extras install
    except ImportError as error:
        raise Misconfigured(
            f"the demo needs more than the broker does ({error}): pip install 'horolog[spark,demo]'"
        ) from error
    from rich.console import Console  # noqa: PLC0415 - after the check, which is quick to fail

    run(Plan(repo=repo, output=output, clicks=clicks, max_commits=max_commits), Console())
