"""A broker in this process that joins a scripted cluster.

with ScriptedController() as quorum, JoinedBroker(tmp_path / "1", quorum) as broker:
    quorum.create_topic("t", [[1]])
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

from running_broker import QUICK, RunningBroker
from scripted_controller import ScriptedController

from horolog.broker.cluster.node import ClusterNode
from horolog.clock import Clock


def format_directory(
    log_dir: Path, cluster_id: str, node_id: int = 1, *, directory_id: UUID | None = None
) -> UUID:
    """Write a `meta.properties`, as Kafka's tool does; return the directory's id."""
    directory_id = uuid4() if directory_id is None else directory_id
    text = base64.urlsafe_b64encode(directory_id.bytes).decode().rstrip("=")
    log_dir.mkdir(parents=True, exist_ok=True)
    (log_dir / "meta.properties").write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={text}\n"
    )
    return directory_id


def settings_of(
    quorum: ScriptedController, node_id: int = 1, settings: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings of a broker of this cluster."""
    return {
        **QUICK,
        "process.roles": "broker",
        "node.id": str(node_id),
        "controller.quorum.bootstrap.servers": quorum.bootstrap,
        "controller.listener.names": "CONTROLLER",
        "broker.heartbeat.interval.ms": "100",
        **(settings or {}),
    }


class JoinedBroker(RunningBroker):
    """A broker that is unfenced; its directory is formatted unless it was."""

    def __init__(
        self,
        log_dir: Path,
        quorum: ScriptedController,
        node_id: int = 1,
        settings: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.node_id = node_id
        if not (log_dir / "meta.properties").exists():
            format_directory(log_dir, quorum.cluster_id, node_id)
        super().__init__(log_dir, settings_of(quorum, node_id, settings), clock)

    @property
    def node(self) -> ClusterNode:
        """Its node."""
        node = self.broker.cluster
        assert isinstance(node, ClusterNode)
        return node
