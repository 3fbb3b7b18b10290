"""`horolog spark script`: the file that spark-submit runs."""

from importlib.util import find_spec

import typer

from horolog.cli.terminal import echo

app = typer.Typer()


@app.command()
def script() -> None:
    """Print the path of the script for spark-submit.

    spark-submit "$(horolog spark script)" JOB --source ... runs a job with a session that
    spark-submit configures.
    """
    spec = find_spec("horolog.jobs.submit")
    assert spec is not None
    assert spec.origin is not None
    echo(spec.origin)
