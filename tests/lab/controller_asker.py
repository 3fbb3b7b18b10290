"""A broker's requests to a controller, one by one, scripted or real."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self
from uuid import UUID, uuid4

from raw_connection import RawConnection, encoded

from horolog.metadata.image import Image
from horolog.record.batch import parse_header
from horolog.record.builder import read_values
from horolog.schemas.metadata import decode
from horolog.wire import ApiKey, request_prefix

METADATA_ID = UUID(int=1)
CLAIMS: Mapping[str, tuple[int, int]] = {
    "metadata.version": (7, 33),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "share.version": (0, 2),
    "streams.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "kraft.version": (0, 1),
}
ALICE = b"\x00\x00\x05User\x06alice\x00\x00"
"""Kafka's DefaultPrincipalData, version 0."""


def split_batches(data: bytes) -> Iterable[bytes]:
    """The whole batches in records as they were fetched."""
    position = 0
    while position + 61 <= len(data):
        header = parse_header(data[position:])
        if position + header.size > len(data):
            return
        yield data[position : position + header.size]
        position += header.size


class ControllerAsker:
    """One connection to the active controller, and what a broker would know."""

    def __init__(self, address: str, cluster_id: str) -> None:
        self.connection = RawConnection(address)
        self.cluster_id = cluster_id
        self._versions: dict[int, int] | None = None
        self.first_id = 0
        """First of the broker ids that a dialogue may use."""
        self.epochs: dict[int, int] = {}
        """Broker epochs, as registrations gave them."""
        self.directories: dict[int, UUID] = {}
        self.incarnations: dict[int, UUID] = {}
        self.quorum_epoch = 0
        self.image = Image()
        self.next_offset = 0
        self.last_epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.socket.close()

    def ask(self, key: ApiKey, version: int | None = None, /, **fields: Any) -> Any:
        """Ask in the newest common version, unless one is named."""
        if version is None:
            version = min(key.versions.max, self._newest()[key])
        return self.connection.ask(key, version, **fields)

    def _newest(self) -> dict[int, int]:
        if self._versions is None:
            named = {"client_software_name": "test", "client_software_version": "1"}
            answer = self.connection.ask(ApiKey.API_VERSIONS, 3, **named)
            self._versions = {it.api_key: it.max_version for it in answer.api_keys}
        return self._versions

    def register(self, broker_id: int, **changed: Any) -> Any:
        """Register a new process of a broker, or change what it says of itself."""
        return self.register_in(ApiKey.BROKER_REGISTRATION.versions.max, broker_id, **changed)

    def register_in(self, version: int, broker_id: int, **changed: Any) -> Any:
        """Register in an older version."""
        incarnation = changed.pop("incarnation_id", None) or uuid4()
        directory = self.directories.setdefault(broker_id, uuid4())
        claims = changed.pop("claims", CLAIMS)
        fields: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": self.cluster_id,
            "incarnation_id": incarnation,
            "listeners": [
                {
                    "name": "PLAINTEXT",
                    "host": "127.0.0.1",
                    "port": 19000 + broker_id,
                    "security_protocol": 0,
                }
            ],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in claims.items()
            ],
            "rack": None,
            "log_dirs": [directory],
            "previous_broker_epoch": -1,
        }
        answer = self.ask(ApiKey.BROKER_REGISTRATION, version, **{**fields, **changed})
        if not answer.error_code:
            self.epochs[broker_id] = answer.broker_epoch
            self.incarnations[broker_id] = incarnation
        return answer

    def heartbeat(self, broker_id: int, **changed: Any) -> Any:
        """Say that a broker lives and has applied everything."""
        fields = {
            "broker_id": broker_id,
            "broker_epoch": self.epochs.get(broker_id, 0),
            "current_metadata_offset": 1 << 40,
            "want_fence": False,
            "want_shut_down": False,
        }
        return self.ask(ApiKey.BROKER_HEARTBEAT, **{**fields, **changed})

    def join(self, *broker_ids: int) -> None:
        """Register brokers, and let them be unfenced."""
        for broker_id in broker_ids:
            assert not self.register(broker_id).error_code
            answer = self.heartbeat(broker_id)
            assert (answer.error_code, answer.is_fenced) == (0, False)

    def create(self, name: str, assignments: Sequence[Sequence[int]], **settings: str) -> Any:
        """Make a topic with these replicas; the answer about it."""
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": index, "broker_ids": its}
                for index, its in enumerate(assignments)
            ],
            "configs": [
                {"name": key.replace("_", "."), "value": value} for key, value in settings.items()
            ],
        }
        answer = self.ask(ApiKey.CREATE_TOPICS, topics=[topic], timeout_ms=30_000)
        return answer.topics[0]

    def alter(self, broker_id: int, topic: str, index: int = 0, **changed: Any) -> Any:
        """Propose an ISR as the leader does; the answer about the partition, or the whole one."""
        partition = self.image.topics[topic].partitions[index]
        isr = changed.pop("isr", partition.isr)
        members = [it if isinstance(it, tuple) else (it, self.epochs.get(it, -1)) for it in isr]
        fields = {
            "partition_index": index,
            "leader_epoch": partition.leader_epoch,
            "new_isr_with_epochs": [
                {"broker_id": number, "broker_epoch": epoch} for number, epoch in members
            ],
            "leader_recovery_state": 0,
            "partition_epoch": partition.partition_epoch,
        }
        broker_epoch = changed.pop("broker_epoch", self.epochs.get(broker_id, 0))
        topic_id = changed.pop("topic_id", self.image.topics[topic].topic_id)
        answer = self.ask(
            ApiKey.ALTER_PARTITION,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            topics=[{"topic_id": topic_id, "partitions": [{**fields, **changed}]}],
        )
        return answer if answer.error_code else answer.topics[0].partitions[0]

    def fetch(self, version: int = 17, **changed: Any) -> Any:
        """Fetch metadata once; the answer."""
        partition = {
            "partition": 0,
            "current_leader_epoch": self.quorum_epoch,
            "fetch_offset": self.next_offset,
            "last_fetched_epoch": self.last_epoch,
            "partition_max_bytes": 1 << 20,
        }
        of_partition = {key: changed.pop(key) for key in list(changed) if key in partition}
        topic_id = changed.pop("topic_id", METADATA_ID)
        fields = {
            "cluster_id": self.cluster_id,
            "replica_state": {"replica_id": 7, "replica_epoch": -1},
            "max_wait_ms": 0,
            "min_bytes": 1,
            "topics": [{"topic_id": topic_id, "partitions": [{**partition, **of_partition}]}],
        }
        return self.ask(ApiKey.FETCH, version, **{**fields, **changed})

    def follow(self) -> Image:
        """Fetch and apply all that is committed; metadata transactions are not looked at."""
        while True:
            answer = self.fetch().responses[0].partitions[0]
            if answer.error_code == 74:
                self.quorum_epoch = answer.current_leader.leader_epoch
                continue
            assert not answer.error_code, answer
            if answer.snapshot_id.end_offset >= 0:
                self._begin_from(answer.snapshot_id)
                continue
            assert answer.diverging_epoch.epoch == -1, answer
            for batch in split_batches(bytes(answer.records or b"")):
                header = parse_header(batch)
                if header.last_offset >= answer.high_watermark:
                    return self.image
                self.next_offset, self.last_epoch = header.last_offset + 1, header.leader_epoch
                self._apply(batch)
            if self.next_offset >= answer.high_watermark:
                return self.image

    def _apply(self, batch: bytes) -> None:
        if not parse_header(batch).is_control:
            for value in read_values(batch):
                self.image.apply(decode(value or b""))

    def fetch_snapshot(self, end_offset: int, epoch: int, position: int, max_bytes: int) -> Any:
        """A piece of a snapshot; the answer about the partition."""
        partition = {
            "partition": 0,
            "current_leader_epoch": self.quorum_epoch,
            "snapshot_id": {"end_offset": end_offset, "epoch": epoch},
            "position": position,
        }
        answer = self.ask(
            ApiKey.FETCH_SNAPSHOT,
            cluster_id=self.cluster_id,
            replica_id=7,
            max_bytes=max_bytes,
            topics=[{"name": "__cluster_metadata", "partitions": [partition]}],
        )
        return answer.topics[0].partitions[0]

    def _begin_from(self, snapshot: Any) -> None:
        """Read a snapshot: the image of all before it."""
        data, size = b"", 1
        while len(data) < size:
            its = self.fetch_snapshot(snapshot.end_offset, snapshot.epoch, len(data), 1 << 20)
            assert not its.error_code, its
            data, size = data + bytes(its.unaligned_records), its.size
        self.image = Image()
        for batch in split_batches(data):
            self._apply(batch)
        self.next_offset, self.last_epoch = snapshot.end_offset, snapshot.epoch

    def envelope(
        self, key: ApiKey, version: int, /, principal: bytes = ALICE, **fields: Any
    ) -> Any:
        """Relay a client's request."""
        body = encoded(key, version, fields)
        whole = request_prefix(key, version, 5, "client", len(body))[4:] + body
        return self.ask(
            ApiKey.ENVELOPE,
            request_data=whole,
            request_principal=principal,
            client_host_address=b"\x7f\x00\x00\x01",
        )
