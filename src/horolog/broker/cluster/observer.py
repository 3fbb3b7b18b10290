"""Observes the controllers' metadata log, `__cluster_metadata` (KIP-595, KIP-630).

A thread fetches the log, keeps it on disk, applies what the quorum has committed, and publishes
what changed. It applies nothing above the quorum's high watermark, and a metadata transaction as a
whole (KIP-868). Answers that cannot be are logged once, and asked for again. A committed record
that cannot be applied ends the thread, and so the node.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.broker.cluster.controllers import ControllerLink
from horolog.client.config import Address
from horolog.client.metadata import error_of
from horolog.errors import CorruptBatch, ErrorCode, HorologError, StorageFailed
from horolog.metadata.forms import PARTITION, TOPIC_ID
from horolog.metadata.image_changes import Changes, TrackedImage
from horolog.metadata.observed import ObservedLog
from horolog.metadata.replay import MetadataReplay, MetadataUnreadable
from horolog.metadata.snapshots import SnapshotId
from horolog.schemas.metadata import Record
from horolog.wire.api import ApiKey

MAX_WAIT_MS: Final = 500
"""Time for which the controller waits for news."""
MAX_BYTES: Final = 8 << 20
TIMEOUT_MS: Final = 10_000
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
_SOON_S: Final = 0.01
_LOOK_AGAIN: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_controller,
    }
)

_logger = logging.getLogger(__name__)


class ObservingNode(NamedTuple):
    """Identity with which a broker observes the quorum."""

    node_id: int
    cluster_id: str
    directory_id: UUID


class UnusableAnswer(HorologError):
    """Raised for an answer of a controller that does not continue the log; it is asked again."""


class MetadataObserver:
    """Follows the active controller's log. `run` is for a thread of its own."""

    def __init__(
        self,
        link: ControllerLink,
        log: ObservedLog,
        node: ObservingNode,
        publish: Callable[[Changes], None],
    ) -> None:
        """Begin with what the disk has.

        Args:
            link: asks the active controller; closed by the caller, once `run` has returned.
            log: the copy on disk, which is the thread's from now on.
            node: this broker.
            publish: takes changes, in order; called by the thread. It may wait, and meanwhile
                later changes are collected.
        """
        self._link = link
        self._log = log
        self._node = node
        self._publish = publish
        self._stopping = threading.Event()
        self._replay = MetadataReplay(log.directory, is_strict=True)
        self._tracked = TrackedImage(self._replay.image)
        self._published = -1
        self._epoch = log.last_epoch
        self._complaint: str | None = None
        self._pause_s = FIRST_PAUSE_S
        self.high_watermark = 0
        """The quorum's, as far as known."""
        self.known_s = -1.0
        """Monotonic time of the last request after whose answer all metadata were published."""
        self._has_all = False

    @property
    def complaint(self) -> str | None:
        """Reason why the log is not followed; None while it is."""
        return self._complaint

    def run(self) -> None:
        """Follow the log until `stop`, then flush and close the copy.

        Raises:
            MetadataUnreadable: a committed record cannot be applied; the node must stop.
            StorageFailed: the disk refused.
        """
        try:
            self.begin()
            while not self._stopping.is_set():
                began_s = time.monotonic()
                try:
                    has_news = self.fetch()
                except (MetadataUnreadable, StorageFailed):
                    raise
                except HorologError as error:
                    self._failed(error)
                    continue
                if self._complaint is not None:
                    _logger.info("the controllers' metadata log is followed again")
                self._complaint, self._pause_s = None, FIRST_PAUSE_S
                if self._has_all:
                    self.known_s = began_s
                if not has_news and time.monotonic() - began_s < _SOON_S:
                    self._stopping.wait(FIRST_PAUSE_S)  # a controller that does not wait
        finally:
            self._log.close()

    @property
    def kraft_version(self) -> int:
        """Level of `kraft.version` in the records so far; any thread may ask."""
        return self._replay.kraft_version

    def stop(self) -> None:
        """End `run` soon; any thread may call it."""
        self._stopping.set()
        self._link.interrupt()

    def _failed(self, error: HorologError) -> None:
        """Log a failure, unless it is that of the attempt before, and wait."""
        if self._stopping.is_set():
            return
        if self._complaint is None:
            _logger.warning("the controllers' metadata log is not followed: %s", error)
        self._complaint = str(error)
        self._stopping.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def begin(self) -> None:
        """Read the newest snapshot on disk; the log behind it may not be committed.

        Raises:
            MetadataUnreadable, StorageFailed: as `run`.
        """
        snapshot_id = self._log.snapshot_id
        if snapshot_id is not None:
            replay = self._replayed(snapshot_id, self._log.read_snapshot(snapshot_id))
            self._replay = replay
            self._tracked.replace(replay.image)

    # Fetch.

    def fetch(self) -> bool:
        """Fetch once, and apply what is committed; return True if anything came.

        Raises:
            HorologError: nothing was gained; the caller waits, and tries again.
            MetadataUnreadable, StorageFailed: as `run`.
        """
        self._has_all = False
        body = self._link.ask(ApiKey.FETCH, self._fetch_request(), timeout_ms=TIMEOUT_MS)
        self._check_error("Fetch", body.error_code)
        it = _only(
            (topic for topic in body.responses if topic.topic_id == TOPIC_ID), "partition_index"
        )
        epoch = self._epoch
        self._learn(it.error_code, it.current_leader, getattr(body, "node_endpoints", ()))
        if it.error_code in _LOOK_AGAIN and self._epoch > epoch:
            return True
        self._check_error("Fetch of the metadata log", it.error_code)
        snapshot = it.snapshot_id
        if snapshot.end_offset >= 0 and snapshot.epoch >= 0:
            self._fetch_snapshot(SnapshotId(snapshot.end_offset, snapshot.epoch))
            return True
        diverging = it.diverging_epoch
        if diverging.end_offset >= 0 and diverging.epoch >= 0:
            end = self._log.end_offset
            self._log.truncate(
                diverging.epoch, diverging.end_offset, committed=self._replay.next_offset
            )
            if self._log.end_offset == end:
                raise UnusableAnswer(f"it diverges at {diverging}, where nothing is to truncate")
            return True
        records, before = it.records or b"", (self._log.end_offset, self.high_watermark)
        try:
            self._log.append(records, self._epoch)
        finally:
            self.high_watermark = max(
                self.high_watermark, min(it.high_watermark, self._log.end_offset)
            )
            self._apply()
        self._has_all = it.high_watermark <= self._log.end_offset
        return before != (self._log.end_offset, self.high_watermark)

    def _fetch_request(self) -> Mapping[str, Any]:
        partition = {
            "partition": PARTITION.partition,
            "current_leader_epoch": self._epoch,
            "fetch_offset": self._log.end_offset,
            "last_fetched_epoch": self._log.last_epoch,
            "log_start_offset": -1,
            "partition_max_bytes": MAX_BYTES,
            "replica_directory_id": self._node.directory_id,
            "high_watermark": self.high_watermark,
        }
        return {
            "cluster_id": self._node.cluster_id,
            "replica_id": self._node.node_id,
            "replica_state": {"replica_id": self._node.node_id, "replica_epoch": -1},
            "max_wait_ms": MAX_WAIT_MS,
            "min_bytes": 0,
            "max_bytes": MAX_BYTES,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic_id": TOPIC_ID, "partitions": [partition]}],
            "forgotten_topics_data": (),
            "rack_id": "",
        }

    def _learn(self, error_code: int, leader: Any, endpoints: Any) -> None:
        """Take over the active controller that an answer names, unless its epoch is old."""
        if leader.leader_epoch < self._epoch or leader.leader_id < 0:
            if error_code in _LOOK_AGAIN:
                # An epoch that an answer named by mistake must not be kept for ever.
                self._epoch = self._log.last_epoch
                self._link.redirect(-1, None)
            return
        self._epoch = leader.leader_epoch
        if error_code == ErrorCode.none:
            self._log.note_leader(leader.leader_id, leader.leader_epoch)
        elif error_code in _LOOK_AGAIN:
            address = next(
                (
                    Address(node.host, node.port)
                    for node in endpoints
                    if node.node_id == leader.leader_id and node.host and 0 < node.port < 1 << 16
                ),
                None,
            )
            self._link.redirect(leader.leader_id, address)

    def _check_error(self, what: str, error_code: int) -> None:
        if error_code == ErrorCode.none:
            return
        name = error_of(error_code).name.upper()
        if error_code == ErrorCode.inconsistent_cluster_id:
            name = f"{name}: they are not of cluster {self._node.cluster_id}"
        raise UnusableAnswer(f"the controllers answer {what} with {name}")

    # Snapshots.

    def _fetch_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Fetch a snapshot, which replaces the log and the image."""
        if snapshot_id.end_offset < self._replay.next_offset:
            raise UnusableAnswer(
                f"they offer a snapshot that ends at offset {snapshot_id.end_offset}, and records "
                f"up to {self._replay.next_offset} are applied"
            )
        incoming = self._log.incoming(snapshot_id)
        try:
            size = MAX_BYTES
            while incoming.size < size:
                if self._stopping.is_set():
                    raise UnusableAnswer("the broker stops")
                part = self._snapshot_part(snapshot_id, incoming.size)
                data = part.unaligned_records or b""
                size = part.size
                if part.position != incoming.size or not 0 < len(data) <= size - incoming.size:
                    raise UnusableAnswer(
                        f"{len(data)} bytes at {part.position} of {size} do not continue a "
                        f"snapshot after {incoming.size}"
                    )
                incoming.add(data)
            replay = self._replayed(snapshot_id, incoming.read())
            tracked = self._tracked
            tracked.replace(replay.image)
            incoming.finish()
        except BaseException:
            incoming.drop()
            raise
        self._replay = replay
        self._log.begin_at(snapshot_id)
        _logger.info("the metadata begin with the snapshot %s", snapshot_id.name)
        self.high_watermark = max(self.high_watermark, snapshot_id.end_offset)
        self._publish_applied()

    def _snapshot_part(self, snapshot_id: SnapshotId, position: int) -> Any:
        partition = {
            "partition": PARTITION.partition,
            "current_leader_epoch": self._epoch,
            "snapshot_id": {"end_offset": snapshot_id.end_offset, "epoch": snapshot_id.epoch},
            "position": position,
            "replica_directory_id": self._node.directory_id,
        }
        body = self._link.ask(
            ApiKey.FETCH_SNAPSHOT,
            {
                "cluster_id": self._node.cluster_id,
                "replica_id": self._node.node_id,
                "max_bytes": MAX_BYTES,
                "topics": [{"name": PARTITION.topic, "partitions": [partition]}],
            },
            timeout_ms=TIMEOUT_MS,
        )
        self._check_error("FetchSnapshot", body.error_code)
        part = _only((topic for topic in body.topics if topic.name == PARTITION.topic), "index")
        self._learn(part.error_code, part.current_leader, getattr(body, "node_endpoints", ()))
        self._check_error("FetchSnapshot", part.error_code)
        theirs = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
        if theirs != snapshot_id:
            raise UnusableAnswer(f"{theirs.name} is not the snapshot that was asked for")
        return part

    def _replayed(self, snapshot_id: SnapshotId, batches: Any) -> MetadataReplay:
        """Build the image of a snapshot."""
        replay = MetadataReplay(self._log.directory, is_strict=True)
        for batch in batches:
            replay.take(batch)
        replay.next_offset = snapshot_id.end_offset
        replay.last_epoch = snapshot_id.epoch
        return replay

    # Applying.

    def _apply(self) -> None:
        """Apply the batches below the high watermark, and publish what changed."""
        replay = self._replay
        for batch in self._log.read(replay.next_offset, self.high_watermark):
            for offset, record in replay.counted(batch, replay.next_offset):
                self._apply_record(offset, record)
        self._publish_applied()
        if self._log.needs_snapshot:
            self.snapshot()

    def snapshot(self) -> None:
        """Write a snapshot of what is applied, so that a start reads less; not in a transaction."""
        if self._replay.next_offset and not self._replay.is_in_transaction:
            try:
                self._log.snapshot(self._replay)
            except StorageFailed as error:  # the log has it all
                _logger.warning("no snapshot of the metadata was made: %s", error)

    def _apply_record(self, offset: int, record: Record) -> None:
        try:
            self._tracked.apply(record)
        except CorruptBatch as error:
            raise MetadataUnreadable(
                f"the metadata record at offset {offset} does not fit those before it: {error}"
            ) from error

    def _publish_applied(self) -> None:
        """Publish what changed, unless a transaction is open."""
        offset = self._replay.next_offset
        if not self._replay.is_in_transaction and offset > self._published:
            self._published = offset
            self._publish(self._tracked.take(offset, self._replay.last_timestamp))


def _only(topics: Any, index: str) -> Any:
    """Return the answer about the metadata log's partition.

    Raises:
        UnusableAnswer: there is none.
    """
    for topic in topics:
        for it in topic.partitions:
            if getattr(it, index) == PARTITION.partition:
                return it
    raise UnusableAnswer("the answer does not mention the metadata log")
