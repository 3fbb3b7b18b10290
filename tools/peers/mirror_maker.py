"""MirrorMaker 2 between two Apache Kafkas, for as long as a `with` block lasts.

It runs as its own script runs it (dedicated mode, one process, the heap of Connect's script) and
mirrors one topic with the settings that it has by default.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tools.peers.kafka import BEFORE_NEWEST, JVM_FLAGS, PEERS, STOP_TIMEOUT_S, NoPeer, java, version

_MAIN_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
_INTERNAL = ("offset.storage", "config.storage", "status.storage")
_TOPICS = ("heartbeats", "checkpoints", "offset-syncs")


def has_mirror_maker() -> bool:
    """Whether `make peers` has fetched it."""
    return any((PEERS / "mirror-maker").glob("*.jar"))


class Mirror(NamedTuple):
    """A MirrorMaker that runs."""

    topic: str
    """The name of the topic at the target."""
    pid: int


@contextmanager
def mirror_maker(
    source: str, target: str, topic: str, *, alias: str, tasks: int
) -> Iterator[Mirror]:
    """Mirror a topic from its beginning on.

    Args:
        source: bootstrap servers.
        target: bootstrap servers.
        topic: its name at the source.
        alias: of the source. What a MirrorMaker has done is kept at the target under this name, so
            that one with another alias begins anew.
        tasks: how many tasks share the partitions.

    Raises:
        NoPeer: it was not fetched.
    """
    if not has_mirror_maker():
        raise NoPeer("no MirrorMaker 2; run `make peers`")
    directory = Path(tempfile.mkdtemp(prefix="mirror-maker-"))
    settings = {
        "clusters": f"{alias},target",
        f"{alias}.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        f"{alias}->target.enabled": "true",
        f"{alias}->target.topics": topic,
        f"target->{alias}.enabled": "false",
        "tasks.max": str(tasks),
        "replication.factor": "1",
        **{f"{name}.replication.factor": "1" for name in _INTERNAL},
        **{f"{name}.topic.replication.factor": "1" for name in _TOPICS},
        "emit.heartbeats.enabled": "false",
    }
    config = directory / "mm2.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = java(
        BEFORE_NEWEST,
        _MAIN_CLASS,
        str(config),
        heap="2g",
        flags=JVM_FLAGS,
        extra_jars=sorted((PEERS / "mirror-maker").glob("*.jar")),
    )
    try:
        with (directory / "out").open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            yield Mirror(f"{alias}.{topic}", process.pid)
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(directory)


def mirror_maker_version() -> str:
    """The release, which is that of the Kafka whose classes it uses."""
    return version(BEFORE_NEWEST)
