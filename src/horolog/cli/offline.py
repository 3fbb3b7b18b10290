"""Partitions without a leader: named on standard error, beside what is known of the others."""

from collections.abc import Iterable, Mapping
from itertools import chain

import typer

from horolog.cli.screen import say
from horolog.client import Client
from horolog.client.topic_facts import ServedPartitions, offline_text, why_offline
from horolog.results import Answer, Aside, Shown


def say_offline(served: ServedPartitions) -> None:
    """Name partitions that nothing is known of, after the output about the others.

    Raises:
        Exit: with code 1 if there are no others.
    """
    say_all(served.offline)
    if served.offline and not served.leaders:
        raise typer.Exit(1)


def say_all(offline: Mapping[int, str]) -> None:
    """Print the sentence about each partition."""
    for sentence in offline.values():
        say(sentence)


def offline_asides(client: Client, partitions: Iterable[tuple[str, int]]) -> list[Aside]:
    """Name partitions without a leader, and why they have none."""
    offline = sorted({*partitions})
    reasons = why_offline(client) if offline else {}
    return [Aside(offline_text(topic, number, reasons)) for topic, number in offline]


def with_asides(served: ServedPartitions, result: object, lines: Iterable[Shown]) -> Answer:
    """Answer about partitions, with a line for each one that is offline; wrong if all are."""
    asides = map(Aside, served.offline.values())
    is_served = bool(served.leaders) or not served.offline
    return Answer(result, chain(lines, asides), is_served)
