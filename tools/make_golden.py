"""Make tests/golden: log directories that Apache Kafka wrote, and what it answers about them.

    python -m tools.make_golden [NAME ...]

Needs `make peers`. Append times, producer ids and topic ids differ from run to run, so a run
replaces a directory as a whole; tests/golden/manifest.json names the version, the command and every
file's SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ConfigResource
from tools.golden import answers, cluster_life, cluster_metadata, old_protocols, rights, scenarios
from tools.golden import old_releases as old_kafkas
from tools.golden.scenarios import QUIET, Scenario
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, Kafka, version, zookeeper

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
MANIFEST = GOLDEN / "manifest.json"

# Housekeeping often enough for a run of seconds.
BUSY_SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.threads": "1",
}
NOT_KEPT = {".lock"}
ENTRY_SIZES = {".index": 8, ".timeindex": 12}


def clean(work: Path) -> dict[str, Any]:
    """A log directory after a clean stop, every kind of topic in it."""
    kafka = Kafka(work, settings=BUSY_SETTINGS)
    with kafka:
        scenarios.write_all(kafka.bootstrap, scenarios.CLEAN)
        scenarios.committed_offsets("golden-group", "client-none")(kafka.bootstrap)
        scenarios.settle()
    for seed in (18, 19):  # every start is a new leader epoch
        with kafka:
            scenarios.many_small(4, seed=seed)(kafka.bootstrap, "epochs")
    with kafka:
        scenarios.settle()
        told = _answers(kafka, scenarios.CLEAN)
    _add_files(told, kafka)
    _keep_directory(kafka.log_dir, GOLDEN / "clean")
    return {
        "about": "after a clean stop",
        "kafka": kafka.version,
        "state": "clean",
        "answers": told,
    }


def killed(work: Path) -> dict[str, Any]:
    """A log directory after kill -9, three of its topics damaged by hand afterwards."""
    kafka = Kafka(work, settings=BUSY_SETTINGS)
    try:
        kafka.start()
        scenarios.write_all(kafka.bootstrap, scenarios.KILLED)
        scenarios.settle()
    finally:
        kafka.kill()
    damage = _damage(kafka.log_dir)
    _keep_archive(kafka.log_dir, GOLDEN / "killed.tar.xz")
    return {
        "about": "after kill -9 and this damage; the answers are Kafka's after its own recovery",
        "kafka": kafka.version,
        "state": "killed",
        "damage": damage,
        "answers": _recovered(kafka),
    }


def old_formats(work: Path) -> dict[str, Any]:
    """Record formats v0 and v1, written by the last Kafka that can."""
    with zookeeper(work / "zookeeper") as address:
        kafka = Kafka(
            work,
            peer=LAST_WITH_OLD_FORMATS,
            settings={**BUSY_SETTINGS, "inter.broker.protocol.version": "2.8"},
            zookeeper=address,
        )
        with kafka:
            scenarios.settle()  # under ZooKeeper it listens before there is a controller
            scenarios.write_all(kafka.bootstrap, scenarios.OLD_KAFKA)
        with kafka:
            scenarios.settle()
            told = _answers(kafka, scenarios.OLD_KAFKA)
    _add_files(told, kafka)
    _keep_directory(kafka.log_dir, GOLDEN / "old-formats")
    return {
        "about": "formats v0 and v1, after a clean stop",
        "kafka": kafka.version,
        "state": "clean",
        "answers": told,
    }


def old_releases(work: Path) -> dict[str, Any]:
    """What releases from 0.9 to 2.8 wrote when v0 and v1 were the formats of the day."""
    told: dict[str, Any] = {}
    kept = work / "kept"
    with zookeeper(work / "zookeeper") as address:
        for release in old_kafkas.RELEASES:
            log_dir, said = old_kafkas.write(release, work / release.version, address)
            shutil.copytree(log_dir, kept / release.version, copy_function=shutil.copy2)
            told |= said
    _keep_archive(kept, GOLDEN / "old-releases.tar.xz")
    return {
        "about": "formats v0, v1 and v2 as releases of their time wrote them, after a clean stop",
        "kafka": ", ".join(release.version for release in old_kafkas.RELEASES),
        "state": "clean",
        "answers": told,
    }


def old_protocol_logs(work: Path) -> dict[str, Any]:
    """What the last Kafka under a ZooKeeper writes that still speaks as 0.9 or 0.10 to others."""
    told: dict[str, Any] = {}
    kept = work / "kept"
    with zookeeper(work / "zookeeper") as address:
        for protocol in old_protocols.PROTOCOLS:
            kafka, said = old_protocols.write(
                protocol, work / protocol.release, address, BUSY_SETTINGS
            )
            to = kept / old_protocols.name_of(kafka, protocol)
            shutil.copytree(kafka.log_dir, to, copy_function=shutil.copy2)
            told |= said
    _keep_archive(kept, GOLDEN / "old-protocols.tar.xz")
    return {
        "about": "formats v0 and v1 under inter-broker protocols of their day, after a clean stop",
        "kafka": kafka.version,
        "settings": {
            f"{kafka.version}-as-{each.release}": {
                "inter.broker.protocol.version": each.release,
                "log.message.format.version": each.release,
            }
            for each in old_protocols.PROTOCOLS
        },
        "state": "clean",
        "answers": told,
    }


def metadata_logs(work: Path) -> dict[str, Any]:
    """Metadata logs and snapshots of the newest Kafka, the one before and the last of 3.x."""
    kept = work / "kept"
    told = cluster_metadata.write(work, kept)
    _keep_archive(kept, GOLDEN / "metadata.tar.xz")
    return {
        "about": "metadata logs and their snapshots, after a clean stop",
        "kafka": ", ".join(map(version, cluster_metadata.PEERS)),
        "state": "clean",
        "answers": told,
    }


def cluster_logs(work: Path) -> dict[str, Any]:
    """Metadata logs of clusters with many brokers, by controllers of the same releases."""
    kept = work / "kept"
    told = cluster_life.write(work, kept)
    _keep_archive(kept, GOLDEN / "cluster.tar.xz")
    return {
        "about": "metadata logs of a dynamic quorum with brokers, after a clean stop",
        "kafka": ", ".join(map(version, cluster_metadata.PEERS)),
        "state": "clean",
        "answers": told,
    }


def _recovered(kafka: Kafka) -> dict[str, Any]:
    """Let Kafka recover what was killed, keep what it made of it, and its answers."""
    print("  recovered by Kafka", flush=True)
    with kafka:
        scenarios.settle()  # its high watermark comes up to the end only after a moment
        told = _answers(kafka, scenarios.KILLED)
    _add_files(told, kafka)
    _keep_directory(kafka.log_dir, GOLDEN / "recovered")
    return told


def _damage(log_dir: Path) -> dict[str, str]:
    torn = max((log_dir / "torn-0").glob("*.log"))
    with torn.open("r+b") as file:
        file.truncate(torn.stat().st_size - 7)
    # Only what lies beyond the recovery point is looked at again: the last segment.
    flipped = max((log_dir / "flipped-0").glob("*.log"))
    data = bytearray(flipped.read_bytes())
    batch = 0
    for _ in range(3):
        batch += 12 + int.from_bytes(data[batch + 8 : batch + 12], "big")
    place = batch + 70
    data[place] ^= 0x10
    flipped.write_bytes(data)
    missing = min((log_dir / "no-index-0").glob("*.index"))
    missing.unlink()
    return {
        f"torn-0/{torn.name}": "the last 7 bytes cut off",
        f"flipped-0/{flipped.name}": f"bit 4 of byte {place} flipped, in the batch at {batch}",
        f"no-index-0/{missing.name}": "removed",
    }


# --- asking ---------------------------------------------------------------------------------------


def _answers(kafka: Kafka, asked: tuple[Scenario, ...]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for one in asked:
        for partition in range(one.partitions):
            told[f"{one.topic}-{partition}"] = {
                "about": one.about,
                "config": {"retention.ms": "-1", **one.config},
                **answers.of_partition(kafka.bootstrap, one.topic, partition),
            }
    return told


def _add_files(told: dict[str, Any], kafka: Kafka) -> None:
    for partition, files in answers.of_files(kafka.log_dir, peer=kafka.peer).items():
        if partition in told:
            told[partition]["files"] = files


def settings(work: Path) -> dict[str, Any]:
    """Every topic and broker setting of this Kafka, with its type, default and text."""
    with Kafka(work) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        scenarios.create(kafka.bootstrap, [Scenario("plain", "", scenarios.nothing)])
        told: dict[str, Any] = {}
        for kind, name in (("topic", "plain"), ("broker", "1")):
            resource = ConfigResource(kind, name)
            entries = admin.describe_configs([resource])[resource].result()
            told[kind] = {
                entry.name: {
                    "value": entry.value,
                    "is_default": entry.is_default,
                    "is_read_only": entry.is_read_only,
                    "is_sensitive": entry.is_sensitive,
                    "synonyms": list(entry.synonyms),
                }
                for entry in sorted(entries.values(), key=lambda entry: entry.name)
            }
    return {
        "about": "every setting as DescribeConfigs tells it",
        "state": "told",
        "kafka": kafka.version,
        "answers": told,
    }


def rights_decided(_: Path) -> dict[str, Any]:
    """Random access control entries, and what the newest Kafka's authorizer decides by them."""
    return {
        "about": "lines of tools/golden/rights.py, each with the authorizer's answer",
        "state": "told",
        "kafka": version(NEWEST),
        "answers": rights.answered(),
    }


def rights_answered(work: Path) -> dict[str, Any]:
    """What principals with one right each are told by every API."""
    return {
        "about": "answers of each API to principals of tests/lab/rights_matrix.py",
        "state": "told",
        "kafka": version(NEWEST),
        "answers": rights.matrix(work),
    }


# --- keeping --------------------------------------------------------------------------------------


def _files(log_dir: Path) -> list[Path]:
    return sorted(
        path for path in log_dir.rglob("*") if path.is_file() and path.name not in NOT_KEPT
    )


def _keep_directory(log_dir: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    for path in _files(log_dir):
        kept = to / path.relative_to(log_dir)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, kept)
        if kept.parent.name == cluster_metadata.METADATA and kept.suffix in ENTRY_SIZES:
            _without_reserve(kept, ENTRY_SIZES[kept.suffix])


def _without_reserve(index: Path, entry_size: int) -> None:
    """Cut off what is reserved for entries: Kafka 4.4 leaves 10 MiB of it at a stop."""
    used = len(index.read_bytes().rstrip(b"\0"))
    with index.open("r+b") as file:
        file.truncate(-(-used // entry_size) * entry_size)


def _keep_archive(log_dir: Path, to: Path) -> None:
    """A tar whose bytes depend on names, contents and modification times only."""
    with tarfile.open(to, "w:xz", preset=9, format=tarfile.PAX_FORMAT) as archive:
        for path in _files(log_dir):
            entry = tarfile.TarInfo(str(path.relative_to(log_dir)))
            entry.size = path.stat().st_size
            entry.mtime = int(path.stat().st_mtime)
            entry.mode = 0o644
            with path.open("rb") as file:
                archive.addfile(entry, file)


def _described(path: Path) -> dict[str, Any]:
    """One kept file; git forgets modification times, and Kafka falls back on them."""
    said: dict[str, Any] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    if path.suffix == ".log":
        said["modified_ms"] = path.stat().st_mtime_ns // 1_000_000
    return said


def _written(value: Any, depth: int = 0) -> str:
    """JSON with a line for every row, so that a difference can be read."""
    pad = " " * depth
    if (
        isinstance(value, dict)
        and depth < 6
        and any(isinstance(one, (dict, list)) for one in value.values())
    ):
        lines = [
            f"{pad} {json.dumps(key)}: {_written(one, depth + 1).lstrip()}"
            for key, one in value.items()
        ]
        return pad + "{\n" + ",\n".join(lines) + f"\n{pad}}}"
    if (
        isinstance(value, list)
        and any(isinstance(one, (list, str)) for one in value)
        and len(value) > 1
    ):
        return pad + "[\n" + ",\n".join(f"{pad} {json.dumps(one)}" for one in value) + f"\n{pad}]"
    return pad + json.dumps(value)


MAKERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "clean": clean,
    "cluster": cluster_logs,
    "killed": killed,
    "metadata": metadata_logs,
    "old-formats": old_formats,
    "old-protocols": old_protocol_logs,
    "old-releases": old_releases,
    "rights": rights_decided,
    "rights-matrix": rights_answered,
    "settings": settings,
}
# Which files below tests/golden each maker leaves.
LEAVES = {
    "clean": ("clean",),
    "cluster": ("cluster.tar.xz",),
    "killed": ("killed.tar.xz", "recovered"),
    "metadata": ("metadata.tar.xz",),
    "old-formats": ("old-formats",),
    "old-protocols": ("old-protocols.tar.xz",),
    "old-releases": ("old-releases.tar.xz",),
    "rights": (),
    "rights-matrix": (),
    "settings": (),
}


def make(name: str) -> None:
    """Make one golden directory anew, with its entry in the manifest."""
    print(f"{name}:", flush=True)
    work = Path(tempfile.mkdtemp(prefix=f"horolog-golden-{name}-"))
    try:
        entry = MAKERS[name](work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    told = GOLDEN / f"{name}.answers.json"
    told.write_text(_written(entry.pop("answers")) + "\n")
    files = [told]
    for left in LEAVES[name]:
        files += _files(GOLDEN / left) if (GOLDEN / left).is_dir() else [GOLDEN / left]
    entry["batch_columns"] = list(answers.COLUMNS)
    entry["command"] = f"python -m tools.make_golden {name}"
    entry["files"] = {str(path.relative_to(GOLDEN)): _described(path) for path in sorted(files)}
    manifest = json.loads(MANIFEST.read_text()) if MANIFEST.exists() else {}
    manifest[name] = entry
    MANIFEST.write_text(_written(dict(sorted(manifest.items()))) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tools.make_golden",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MAKERS)}")
    names = parser.parse_args().names or list(MAKERS)
    if unknown := sorted(set(names) - set(MAKERS)):
        parser.error(f"{', '.join(unknown)}: there are {', '.join(MAKERS)}")
    for wanted in names:
        make(wanted)
