"""An observer of a scripted quorum: what it has published, and a link to the quorum in memory."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from uuid import UUID

from scripted_quorum import EndOfEpoch, QuorumLog

from horolog.broker.cluster.controllers import ControllerLink
from horolog.broker.cluster.observer import MetadataObserver, ObservingNode
from horolog.metadata.image import Image
from horolog.metadata.image_changes import Changes
from horolog.metadata.observed import ObservedLog
from horolog.metadata.snapshots import SnapshotId
from horolog.storage import Files
from horolog.wire import ApiKey

NOW = 1_795_000_000_000
METADATA_ID = UUID(int=1)
DIRECTORY = UUID(int=77)


def state_of(image: Image) -> list[object]:
    """All of an image that changes describe, to be compared."""
    return [
        {name: (topic.topic_id, topic.partitions) for name, topic in image.topics.items()},
        {topic_id: topic.name for topic_id, topic in image.by_id.items()},
        image.configs, image.features, image.brokers, image.controllers,
        image.entries, image.credentials, image.quotas, image.tokens,
    ]  # fmt: skip


class QuorumLink:
    """A link to a quorum's leader, without sockets and without waiting."""

    def __init__(self, quorum: QuorumLog, part_bytes: int = 100) -> None:
        self.quorum = quorum
        self.part_bytes = part_bytes
        """Bytes of an answer, of records or of a snapshot."""
        self.redirected = 0

    def ask(self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_ms: int) -> Any:
        assert timeout_ms > 0
        asked = fields["topics"][0]["partitions"][0]
        leader = SimpleNamespace(leader_id=self.quorum.leader, leader_epoch=self.quorum.epoch)
        part = SimpleNamespace(
            partition_index=0, index=0, error_code=0, current_leader=leader, records=None,
            high_watermark=self.quorum.high_watermark,
            snapshot_id=SnapshotId(-1, -1),
            diverging_epoch=SimpleNamespace(end_offset=-1, epoch=-1),
        )  # fmt: skip
        if asked["current_leader_epoch"] != self.quorum.epoch:
            part.error_code = 74
        elif api_key is ApiKey.FETCH:
            offset = asked["fetch_offset"]
            match self.quorum.position_of(offset, asked["last_fetched_epoch"]):
                case SnapshotId() as snapshot_id:
                    part.snapshot_id = snapshot_id
                case EndOfEpoch(epoch, end):
                    part.diverging_epoch = SimpleNamespace(end_offset=end, epoch=epoch)
                case _:
                    part.records = self.quorum.read(offset, self.part_bytes)
        else:
            part.snapshot_id = SnapshotId(*asked["snapshot_id"].values())
            data = self.quorum.snapshots[part.snapshot_id]
            part.position, part.size = asked["position"], len(data)
            part.unaligned_records = data[part.position : part.position + self.part_bytes]
        topic = SimpleNamespace(topic_id=METADATA_ID, name="__cluster_metadata", partitions=[part])
        return SimpleNamespace(error_code=0, responses=[topic], topics=[topic])

    def redirect(self, leader_id: int, address: object = None) -> None:
        self.redirected += 1

    def interrupt(self) -> None: ...


class Observing:
    """An observer in a directory, and the image that its changes make."""

    def __init__(
        self,
        directory: Path,
        link: ControllerLink | QuorumLink,
        *,
        cluster_id: str = "cluster",
        taken: Callable[[Changes], None] = lambda _: None,
    ) -> None:
        self.image = Image()
        self.offset = 0
        self.changes: list[Changes] = []
        self._taken = taken
        self.log = ObservedLog.open(Files(), str(directory), lambda: NOW)
        node = ObservingNode(5, cluster_id, DIRECTORY)
        self.observer = MetadataObserver(link, self.log, node, self._publish)  # type: ignore[arg-type]
        self.observer.begin()

    def _publish(self, changes: Changes) -> None:
        changes.apply_to(self.image)
        assert changes.offset > self.offset
        self.offset = changes.offset
        self.changes.append(changes)
        self._taken(changes)

    def fetch(self, most: int = 10_000) -> Self:
        """Fetch until nothing is new."""
        for _ in range(most):
            if not self.observer.fetch():
                return self
        raise AssertionError("it fetches for ever")

    @property
    def state(self) -> list[object]:
        """A copy of the published image, to be compared."""
        return deepcopy(state_of(self.image))
