"""Messages about partitions without a leader, beside the output about the others."""

from collections.abc import Iterable, Mapping
from itertools import chain

import typer

from horolog.cli.screen import say
from horolog.client import Client
from horolog.client.topic_facts import ServedPartitions, offline_text, why_offline
from horolog.results import Answer, Aside, Shown


def say_offline(served: ServedPartitions) -> None:
    """Print a message for each offline partition of a topic.

    Raises:
        Exit: with code 1 if all partitions are offline.
    """
    say_all(served.offline)
    if served.offline and not served.leaders:
        raise typer.Exit(1)


def say_all(offline: Mapping[int, str]) -> None:
    """Print the message of each partition."""
    for sentence in offline.values():
        say(sentence)


def offline_asides(client: Client, partitions: Iterable[tuple[str, int]]) -> list[Aside]:
    """Return a message for each partition without a leader, with the reason."""
    offline = sorted({*partitions})
    reasons = why_offline(client) if offline else {}
    return [Aside(offline_text(topic, number, reasons)) for topic, number in offline]


def with_asides(served: ServedPartitions, result: object, lines: Iterable[Shown]) -> Answer:
    """Make an answer with a message for each offline partition; it fails if all are offline."""
    asides = map(Aside, served.offline.values())
    is_served = bool(served.leaders) or not served.offline
    return Answer(result, chain(lines, asides), is_served)
