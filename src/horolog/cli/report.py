"""`horolog report`: one page about the times of topics, to be mailed."""

from pathlib import Path
from typing import Annotated

import typer

from horolog.cli.connecting import KafkaBrokers
from horolog.cli.offline import say_all
from horolog.cli.options import path_of, with_options
from horolog.cli.output_file import check_output, whole_file
from horolog.cli.screen import say
from horolog.cli.working import working
from horolog.client import Client
from horolog.client.topic_facts import served_partitions
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.report.page import TopicPart, page
from horolog.report.topics import PartSteps, parts_of_files, parts_of_topic

app = typer.Typer(no_args_is_help=True)


@app.command(no_args_is_help=True)
@with_options
def report(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where to write the page.")
    ],
    brokers: KafkaBrokers,
    what: Annotated[str | None, typer.Argument(metavar="[TOPIC|PATH]")] = None,
) -> None:
    """Write a page on a topic, a log directory, or all topics of a broker.

    The page has a picture of the log by both clocks, with late and future records, segments and the
    retention horizon. It lists the segments and when they are deleted, and latencies. From a broker
    it also lists groups with their lag, and refused records with the reasons. The file needs no
    network. All records' times are read.
    """
    check_output(output)
    now_ms = SystemClock().now_ms()
    path = None if what is None else path_of(context, what)
    if path is not None:
        parts = _run(parts_of_files(path, now_ms), str(path))
        text = page(f"Times of {path.name or path}", str(path), now_ms, parts)
    else:
        with brokers.connect() as client:
            topics = [what] if what is not None else _all_topics(client)
            parts = []
            for topic in topics:
                served = served_partitions(client, topic)
                say_all(served.offline)
                parts += _run(parts_of_topic(client, served, now_ms), topic)
            where = client.config.bootstrap_servers
            text = page(f"Times of {what or where}", f"the broker at {where}", now_ms, parts)
    with whole_file(output) as file:
        file.write(text.encode())
    say(f"wrote {output}, {len(text) >> 10} KiB")
    if not any(part.partitions for part in parts):  # all are offline
        raise typer.Exit(1)


def _all_topics(client: Client) -> list[str]:
    listed = client.metadata().topics
    names = sorted(name for name, topic in listed.items() if not topic.is_internal)
    if not names:
        raise Misconfigured("the broker has no topics yet")
    return names


def _run(steps: PartSteps, what: str) -> list[TopicPart]:
    """Run the steps of a report with a progress bar, and return the parts."""
    with working(f"report {what}", "offsets") as work:
        while True:
            try:
                work(*next(steps))
            except StopIteration as ended:
                parts: list[TopicPart] = ended.value
                return parts
