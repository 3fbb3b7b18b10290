"""`horolog queries`: list and forget the queries that write exactly once."""

from typing import Annotated

import typer

from horolog.cli.connecting import CommandConfig, CommandProperties, connect
from horolog.cli.options import LOCAL, Bootstrap, Json, Zone
from horolog.cli.screen import show_json, show_table
from horolog.times import format_time, parse_zone

app = typer.Typer(no_args_is_help=True, help="List and forget the queries that write exactly once.")

Names = Annotated[list[str], typer.Argument(metavar="QUERY...", show_default=False)]


@app.command("list")
def list_queries(
    bootstrap: Bootstrap = LOCAL,
    client_config: CommandConfig = None,
    client_properties: CommandProperties = None,
    zone: Zone = None,
    as_json: Json = False,
) -> None:
    """List queries with their last batches.

    A broker remembers the last batch of each query, however long the query is stopped, until it is
    forgotten.
    """
    with connect(bootstrap, client_config, client_properties) as client:
        queries = client.queries()
    if as_json:
        show_json(
            [
                {
                    "query": each.query,
                    "batch": each.batch,
                    "tasks": each.tasks,
                    "started_ms": each.started_ms,
                    "committed": each.is_committed,
                }
                for each in queries
            ]
        )
        return
    if not queries:
        typer.echo("no query writes exactly once")
        return
    shown_zone = parse_zone(zone or "UTC")
    show_table(
        ("query", "batch", "tasks", "begun", "committed"),
        [
            (
                each.query,
                each.batch,
                each.tasks,
                format_time(each.started_ms, shown_zone),
                "yes" if each.is_committed else "no",
            )
            for each in queries
        ],
    )


@app.command()
def forget(
    queries: Names,
    bootstrap: Bootstrap = LOCAL,
    client_config: CommandConfig = None,
    client_properties: CommandProperties = None,
) -> None:
    """Forget queries that have ended.

    Do this only where a query will not run again: a batch that it repeats would be appended again.
    Its records stay where they are.
    """
    with connect(bootstrap, client_config, client_properties) as client:
        for query in queries:
            client.forget_query(query)
            typer.echo(f"forgot {query}")
