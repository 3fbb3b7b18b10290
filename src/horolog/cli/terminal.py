"""Output of text: no other module prints (the linter's `banned-api`).

Names of groups, transactions and clients, metadata and messages come from others. Characters that
could move the cursor, forge a line or change the terminal are escaped here. Credentials in URIs are
hidden.
"""

import json
from typing import Any

import typer

from horolog.errors import escaped, without_credentials


def echo(*lines: str, err: bool = False) -> None:
    """Print lines on standard output or standard error; without any, an empty line.

    A line end within a line is escaped; a tab, which separates fields, is not.
    """
    for line in lines or ("",):
        typer.echo(escaped(without_credentials(line), keeps="\t"), err=err)  # noqa: TID251


def json_line(value: Any) -> str:
    """Format a value as JSON on one line, with escapes for what is not printable."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )


def echo_json(value: Any) -> None:
    """Print a value as JSON on one line."""
    typer.echo(json_line(value))  # noqa: TID251
