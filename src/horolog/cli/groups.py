"""`horolog groups`: what consumer groups have committed, and when."""

import typer

from horolog.cli.history import group_history

app = typer.Typer(no_args_is_help=True)


@app.callback()
def groups() -> None:
    """Show what consumer groups have committed, and when."""


app.command("history", no_args_is_help=True)(group_history)
