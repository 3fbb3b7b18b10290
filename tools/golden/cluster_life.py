"""Metadata logs of dynamic quorums whose brokers come, fail, lead, move replicas and go.

The brokers are the dialogues of tests/lab/controller_dialogues.py, so that every kind of record of
several brokers is there: fencing, eligible replicas, unclean elections, reassignments, shutdowns.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tools.cluster import Cluster
from tools.golden.cluster_metadata import METADATA, PEERS, records
from tools.peers.kafka import ROOT, version

SETTINGS = {
    "broker.session.timeout.ms": "600000",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.log.max.snapshot.interval.ms": "0",
    "metadata.max.idle.interval.ms": "0",
}
CORDONS_SINCE = "4.3"
WRITE_NOTHING = {"fetches", "endpoints"}


def write(work: Path, kept: Path) -> dict[str, Any]:
    """Let each release write one; what 4.x's dump tool says of each log."""
    sys.path.insert(0, str(ROOT / "tests" / "lab"))
    told: dict[str, Any] = {}
    for peer in PEERS:
        release = ".".join(version(peer).split(".")[:2])
        cluster = Cluster(work / peer, "", peer=peer, is_dynamic=True, of_controllers=SETTINGS)
        with closing(cluster):
            for life in range(2):
                cluster.start()
                cluster.wait_for_controllers()
                _live(cluster, life, release)
                cluster.stop()
        controller = cluster.controllers[0]
        shutil.copytree(controller.log_dir / METADATA, kept / release / METADATA)
        shutil.copy2(controller.log_dir / "meta.properties", kept / release)
        for path in sorted((controller.log_dir / METADATA).glob("*.log")):
            told[f"{release}/{METADATA}/{path.name}"] = records(path)
    return told


def _live(cluster: Cluster, life: int, release: str) -> None:
    """Hold half of the dialogues."""
    from controller_asker import ControllerAsker  # noqa: PLC0415 - of the lab
    from controller_dialogues import DIALOGUES  # noqa: PLC0415 - of the lab

    for number, (name, (first_id, hold)) in enumerate(DIALOGUES.items()):
        if number % 2 != life or name in WRITE_NOTHING:
            continue
        if name == "cordons" and release < CORDONS_SINCE:
            continue
        with ControllerAsker(cluster.controller_bootstrap, cluster.cluster_id) as asker:
            asker.first_id = first_id
            hold(asker)
