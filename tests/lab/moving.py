"""What Kafka's own tools say of a broker: compared before and after its directory has moved."""

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tools.peers.kafka import NEWEST, run_tool

INTERNAL = "__"
_TOPIC = re.compile(r"^Topic: (\S+)\s+TopicId: (\S+)\s+PartitionCount: (\d+)", re.MULTILINE)
_SETTINGS_OF = re.compile(r"^Dynamic configs for topic (\S+) are:$")
_SETTING = re.compile(r"^  (\S+?)=(.*?) sensitive=")
_COMMITTED = re.compile(r"^(\S+)\s+(\S+)\s+(\d+)\s+(\d+)\s", re.MULTILINE)


class Seen(NamedTuple):
    """What the tools say; topics of Kafka's own are left out, except of `topics`."""

    topics: dict[str, tuple[str, int]]
    """Topic id and number of partitions."""
    settings: dict[str, dict[str, str]]
    """Those that topics have of their own."""
    committed: dict[str, int]
    """Offsets by group, topic and partition in one text."""
    offsets: dict[str, str]
    """By what was asked: first and last offsets of all partitions, and offsets by time."""


def tool(bootstrap: str, name: str, *arguments: str) -> str:
    """What a tool of the newest Kafka says of a broker."""
    return run_tool(name, "--bootstrap-server", bootstrap, *arguments, peer=NEWEST).stdout.decode()


def seen(bootstrap: str, times_ms: Iterable[int] = ()) -> Seen:
    """Ask the tools."""
    asked = ("-2", "-1", *map(str, times_ms))
    with ThreadPoolExecutor() as pool:  # a JVM each
        topics, groups, settings, *offsets = pool.map(
            lambda arguments: tool(bootstrap, *arguments),
            [
                ("topics", "--describe"),
                ("groups", "--describe", "--all-groups", "--offsets"),
                ("configs", "--entity-type", "topics", "--describe"),
                *(("offsets", "--time", each) for each in asked),
            ],
        )
    return Seen(
        {name: (topic_id, int(count)) for name, topic_id, count in _TOPIC.findall(topics)},
        {name: its for name, its in _settings(settings).items() if not name.startswith(INTERNAL)},
        {
            f"{group} {topic}-{partition}": int(offset)
            for group, topic, partition, offset in _COMMITTED.findall(groups)
        },
        dict(zip(asked, map(_offsets, offsets), strict=True)),
    )


def _settings(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    its: dict[str, str] = {}
    for line in text.splitlines():
        if of := _SETTINGS_OF.match(line):
            its = found[of[1]] = {}
        elif setting := _SETTING.match(line):
            its[setting[1]] = setting[2]
    return found


def _offsets(text: str) -> str:
    return "\n".join(sorted(line for line in text.split() if not line.startswith(INTERNAL)))


def strays(log_dir: Path) -> list[str]:
    """Directories that a Kafka has renamed because its metadata does not know them."""
    return sorted(path.name for path in log_dir.glob("*-stray"))
