"""A log directory on its way between horolog and an Apache Kafka, and what becomes of it."""

import re
import shutil
from pathlib import Path
from typing import Any

from tools.golden import answers
from tools.golden.scenarios import Scenario
from tools.peers.kafka import Kafka

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)
LOOKUPS_PER_PARTITION = 12  # they are asked for on both sides, and more than once
OUR_SUFFIXES = {".companion", ".batches", ".cut"}
# What Kafka says in its log when it finds a file that is not as it left it.
_COMPLAINT = re.compile(r"corrupt|stray|rebuild|invalid|ERROR|FATAL", re.IGNORECASE)


def told(bootstrap: str, scenarios: list[Scenario]) -> dict[str, dict[str, Any]]:
    """What a broker answers about every partition; see `tools.golden.answers`."""
    return {
        f"{one.topic}-{partition}": answers.of_partition(
            bootstrap, one.topic, partition, lookups=LOOKUPS_PER_PARTITION
        )
        for one in scenarios
        for partition in range(one.partitions)
    }


def without_epochs(answer: dict[str, Any]) -> dict[str, Any]:
    """Another start is another leader epoch; what is in the batches stays."""
    return {**answer, "latest": answer["latest"][:2], "earliest": answer["earliest"][:2]}


def partition_directories(log_dir: Path) -> list[Path]:
    """Those of topics that people made."""
    return sorted(
        path for path in log_dir.iterdir() if path.is_dir() and not path.name.startswith("__")
    )


def give_to_kafka(ours: Path, kafka: Kafka) -> None:
    """Put our partitions where Kafka has the same ones, under Kafka's topic ids, and the rest.

    In KRaft mode Kafka sets aside what its metadata does not know, so the topics are made there
    before. All of our other files go with them: it must pass over what it does not know.
    """
    for directory in partition_directories(ours):
        theirs = kafka.log_dir / directory.name
        topic_id = (theirs / "partition.metadata").read_text()
        shutil.rmtree(theirs)
        shutil.copytree(directory, theirs)
        (theirs / "partition.metadata").write_text(topic_id)
    for name in CHECKPOINTS:
        _merge(ours / name, kafka.log_dir / name)
    for path in ours.iterdir():
        if path.is_file() and path.name.startswith("horolog"):
            shutil.copy2(path, kafka.log_dir)
    mark = kafka.log_dir / ".kafka_cleanshutdown"
    mark.unlink(missing_ok=True)
    if (ours / mark.name).exists():
        shutil.copy2(ours / mark.name, mark)


def _merge(from_: Path, into: Path) -> None:
    """Add one checkpoint's lines to another's."""
    lines = {}
    for path in (into, from_):
        if path.exists():
            rows = path.read_text().split("\n")[2:]
            lines.update({row.rsplit(" ", 1)[0]: row for row in rows if row})
    into.write_text("\n".join(["0", str(len(lines)), *lines.values()]) + "\n")


def logs_of(log_dir: Path) -> dict[str, bytes]:
    """The bytes of every log of a directory, by partition and file."""
    return {
        f"{directory.name}/{path.name}": path.read_bytes()
        for directory in partition_directories(log_dir)
        for path in sorted(directory.glob("*.log"))
    }


def our_own_files(log_dir: Path) -> set[str]:
    """The files in partitions of `give_to_kafka` that are ours and that Kafka must pass over."""
    return {
        str(path.relative_to(log_dir))
        for directory in partition_directories(log_dir)
        for path in directory.iterdir()
        if path.suffix in OUR_SUFFIXES or path.name == "append-time-checkpoint"
    }


def complaints(kafka: Kafka, since: int = 0) -> list[str]:
    """What Kafka has logged against a file of ours, after this many bytes of its output."""
    said = kafka.output.read_text(errors="replace")[since:]
    return [
        line
        for line in said.splitlines()
        if _COMPLAINT.search(line)
        and ("-0" in line or ".log" in line or ".index" in line)
        and "EventPerformanceMonitor" not in line  # of a busy machine
    ]
