"""Log directories that Apache Kafka 3.9 wrote in the middle of an upgrade from an old release.

KIP-32 upgrades in two steps: brokers first, which go on with the inter-broker protocol and the
record format of the release before, and these later. A client of old and one of the day write
each topic, so that of each some batches are stored as they came and some converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tools.golden import answers, old_releases, scenarios
from tools.golden.scenarios import Scenario
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, Kafka, dump

_OLD_CLIENT = "0.10.0.1"  # of the releases that write v1, the one that `make peers` fetches
_LOOKUPS = 40


class Protocol(NamedTuple):
    """An inter-broker protocol, also the format's release, and the topics written under it."""

    release: str
    topics: Mapping[str, Mapping[str, str]]


_PLAIN: Mapping[str, Mapping[str, str]] = {codec: {} for codec in ("none", "gzip", "snappy", "lz4")}
_APPEND_TIME = {
    f"append-time-{codec}": {"message.timestamp.type": "LogAppendTime"}
    for codec in ("none", "gzip", "lz4")
}
PROTOCOLS = (
    Protocol("0.9.0", {**_PLAIN, "append-time-gzip": _APPEND_TIME["append-time-gzip"]}),
    Protocol("0.10.2", {**_PLAIN, **_APPEND_TIME}),
)


def write(
    protocol: Protocol, directory: Path, zookeeper: str, settings: Mapping[str, str]
) -> tuple[Kafka, dict[str, Any]]:
    """A Kafka that has run under an old protocol and is stopped, and what it says of each topic.

    `records` is what its dump tool says; `served` what a consumer gets, `lookups` the offsets that
    the running broker finds by time (none in v0, which it does not search).
    """
    kafka = Kafka(
        directory,
        peer=LAST_WITH_OLD_FORMATS,
        zookeeper=f"{zookeeper}/{protocol.release}",
        settings={
            **settings,
            "inter.broker.protocol.version": protocol.release,
            "log.message.format.version": protocol.release,
            "log.index.interval.bytes": "200",
            "log.index.size.max.bytes": "4096",
        },
    )
    with kafka:
        scenarios.settle()  # under ZooKeeper it listens before there is a controller
        scenarios.create(
            kafka.bootstrap,
            [
                Scenario(topic, "", scenarios.nothing, dict(config))
                for topic, config in protocol.topics.items()
            ],
        )
        for topic in protocol.topics:
            print(f"  {protocol.release} {topic}", flush=True)
            _write_topic(kafka, topic)
    told = {}
    with kafka:
        scenarios.settle()
        for topic, config in protocol.topics.items():
            said = answers.of_partition(kafka.bootstrap, topic, 0, lookups=_LOOKUPS)
            told[f"{name_of(kafka, protocol)}/{topic}-0"] = {
                "config": dict(config),
                "latest": said["latest"],
                "served": said["records"],
                "lookups": [row for row in said["lookups"] if row[1] != "error"],
            }
    for partition, about in told.items():
        logs = sorted((kafka.log_dir / partition.partition("/")[2]).glob("*.log"))
        dumped = dump(logs, peer=kafka.peer, deep=True)
        about["records"] = list(old_releases.records_in(dumped))
    return kafka, told


def name_of(kafka: Kafka, protocol: Protocol) -> str:
    """Of its directory in the archive."""
    return f"{kafka.version}-as-{protocol.release}"


def _write_topic(kafka: Kafka, topic: str) -> None:
    codec = topic.rpartition("-")[2]
    old_releases.produce(
        _OLD_CLIENT, kafka.directory, kafka.bootstrap, topic, codec, old_releases.lines_of(0)
    )
    kafka.tool(
        "producer",
        *("--topic", topic, *old_releases.codec_arguments(codec), *old_releases.KEYED_LINES),
        *("--producer-property", "enable.idempotence=false"),
        stdin="".join(f"{line}\n" for line in old_releases.lines_of(1)).encode(),
    )
