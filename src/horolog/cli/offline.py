"""Partitions without a leader: named on standard error, beside what is known of the others."""

from collections.abc import Mapping

import typer

from horolog.cli.screen import say
from horolog.client import Client, TopicMetadata
from horolog.client.topic_facts import ServedPartitions, offline_text, why_offline


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


def say_offline_of(client: Client, topics: Mapping[str, TopicMetadata]) -> None:
    """Name those of many topics."""
    offline = [
        (topic.name, number)
        for topic in topics.values()
        for number, partition in topic.partitions.items()
        if partition.leader is None
    ]
    reasons = why_offline(client) if offline else {}
    for name, number in sorted(offline):
        say(offline_text(name, number, reasons))
