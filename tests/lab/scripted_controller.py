"""Controllers of a cluster that do what a test tells them to, over real sockets.

    with ScriptedController(voters=[100, 101]) as quorum:
        quorum.bootstrap                          # "127.0.0.1:p1,127.0.0.1:p2", quorum.cluster_id
        ...                                       # brokers register, send heartbeats, are unfenced
        quorum.create_topic("t", [[1, 2], [2, 1]], min_insync_replicas="2")
        quorum.image.topics["t"].partitions[0]    # all records, committed or not
        quorum.advance(10_000)                    # fences brokers without heartbeats since
        quorum.lead(101)                          # another leader, the next epoch
        quorum.append(record, ...)                # any records of `schemas.metadata`
        quorum.snapshot()                         # and delete the log before it
        quorum.hold(); quorum.release()           # the high watermark
        quorum.stop(100); quorum.start(100)       # a controller's process; its port stays
        quorum.hang_up()                          # all connections
        quorum.seen, quorum.asked(ApiKey.X)       # what came, by itself or in an Envelope

Its clock stands still until `advance`: no broker is fenced because a test takes long. `expire(1)`
ends a broker's session (so that another process may register), `kept_fenced` keeps one fenced.

`answers[ApiKey.X] = hook` lies. A hook gets the decoded request and a function that does what is
due and returns its answer, and returns an answer (a mapping, bytes of a body, HangUp, Silence,
Raw), or None for the usual one:

    quorum.answers[ApiKey.ALTER_PARTITION] = lambda request, usual: {"error_code": 77, "topics": []}
    quorum.answers[ApiKey.ALTER_PARTITION] = lambda request, usual: usual() and HangUp()  # lost
"""

import base64
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self, TypeAlias
from uuid import UUID

from patience import PATIENCE_S
from scripted_admin import TopicCalls
from scripted_broker import HangUp, Reply, answer_requests
from scripted_cluster import FEATURES_OF_4_4, Refused, ScriptedCluster
from scripted_quorum import EndOfEpoch, QuorumLog

from horolog.errors import ErrorCode
from horolog.metadata.image import Image
from horolog.metadata.snapshots import SnapshotId
from horolog.schemas.metadata import Record
from horolog.wire import (
    ApiKey,
    MalformedRequest,
    Versions,
    decode_request,
    encode_response,
    parse_request_header,
    response_prefix,
    unsupported_api_versions,
)
from horolog.wire.error_responses import error_response

CLUSTER_ID: Final = base64.urlsafe_b64encode(bytes(range(16))).decode().rstrip("=")
TOPIC: Final = "__cluster_metadata"
TOPIC_ID: Final = UUID(int=1)
CONTROLLERS: Final = 2  # the type of endpoint in DescribeCluster

Hook: TypeAlias = "Callable[[Any, Callable[[], Mapping[str, Any]]], Reply | None]"

_OLDEST: Final = {ApiKey.FETCH: 4, ApiKey.CREATE_TOPICS: 2, ApiKey.DELETE_TOPICS: 1}
_FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.DESCRIBE_QUORUM,
    }
)


class Asked(NamedTuple):
    """A request, and the node that got it; `principal` is that of an Envelope."""

    api_key: ApiKey
    version: int
    request: Any
    node_id: int
    client_id: str | None
    principal: bytes | None = None


class ControllerNode:
    """A controller's process: a listener and its connections."""

    def __init__(self, node_id: int, port: int, serve: Callable[[int, Any], None]) -> None:
        self.node_id = node_id
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(
                target=self._serve, args=(self.node_id, connection), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def hang_up(self) -> None:
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(PATIENCE_S)


class ScriptedController:
    """One quorum of scripted controllers; `voters` are their ids, the first leads."""

    def __init__(
        self,
        *,
        voters: Sequence[int] = (100,),
        features: Mapping[str, int] = FEATURES_OF_4_4,
        cluster_id: str = CLUSTER_ID,
        session_timeout_ms: int = 9000,
        versions: Mapping[ApiKey, Versions] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.log = QuorumLog(voters)
        self.cluster = ScriptedCluster(self.log, cluster_id, features, session_timeout_ms)
        self.topics = TopicCalls(self.cluster)
        self.cluster_id = cluster_id
        self.versions = dict(versions or {})
        self.answers: dict[ApiKey, Hook] = {}
        self.seen: list[Asked] = []
        self.believed_leader: dict[int, int] = {}
        """What single nodes say of the leader, as those do that do not know of an election."""
        self.observers: dict[int, int] = {}
        """Next offset of each observer's last fetch."""
        self._tls = tls
        self._ports: dict[int, int] = {}
        self._nodes: dict[int, ControllerNode] = {}
        self._changed = threading.Condition(threading.RLock())
        self._calls: dict[ApiKey, Callable[[Any], Mapping[str, Any]]] = {
            ApiKey.BROKER_REGISTRATION: self.cluster.register,
            ApiKey.BROKER_HEARTBEAT: self.cluster.heartbeat,
            ApiKey.UNREGISTER_BROKER: self.cluster.unregister,
            ApiKey.ALTER_PARTITION: self.cluster.alter_partition,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: self.cluster.assign_directories,
            ApiKey.ALLOCATE_PRODUCER_IDS: self.cluster.allocate_producer_ids,
            ApiKey.CREATE_TOPICS: self.topics.create_topics,
            ApiKey.DELETE_TOPICS: self.topics.delete_topics,
            ApiKey.CREATE_PARTITIONS: self.topics.create_partitions,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.topics.alter_settings,
            ApiKey.ELECT_LEADERS: self.topics.elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.topics.alter_reassignments,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.topics.list_reassignments,
            ApiKey.UPDATE_FEATURES: self.topics.update_features,
            ApiKey.DESCRIBE_QUORUM: self._describe_quorum,
        }

    # What a test does.

    def __enter__(self) -> Self:
        for node_id in self.log.voters:
            self.start(node_id)
        return self

    def __exit__(self, *_: object) -> None:
        for node_id in list(self._nodes):
            self.stop(node_id)

    def start(self, node_id: int) -> None:
        """Start a controller's process, at the port that it had."""
        node = ControllerNode(node_id, self._ports.get(node_id, 0), self._serve)
        self._nodes[node_id] = node
        self._ports[node_id] = node.port

    def stop(self, node_id: int) -> None:
        """End a controller's process."""
        self._nodes.pop(node_id).close()

    def hang_up(self) -> None:
        """Close all connections."""
        for node in self._nodes.values():
            node.hang_up()

    def address_of(self, node_id: int) -> str:
        """Where a controller listens."""
        return f"127.0.0.1:{self._ports[node_id]}"

    @property
    def bootstrap(self) -> str:
        """The addresses of all, in the form of `controller.quorum.bootstrap.servers`."""
        return ",".join(map(self.address_of, self.log.voters))

    @property
    def quorum_voters(self) -> str:
        """The form of `controller.quorum.voters`."""
        return ",".join(f"{it}@{self.address_of(it)}" for it in self.log.voters)

    @property
    def image(self) -> Image:
        """The leader's view, of all records."""
        return self.cluster.image

    @property
    def kept_fenced(self) -> set[int]:
        """Brokers that are not unfenced whatever they ask for; to be changed."""
        return self.cluster.kept_fenced

    def asked(self, api_key: ApiKey) -> list[Any]:
        """The requests of one kind, in the order in which they came."""
        return [it.request for it in self.seen if it.api_key is api_key]

    def advance(self, ms: int) -> None:
        """Move the controllers' clock."""
        with self._changed:
            self.cluster.advance(ms)
            self._changed.notify_all()

    def tick(self) -> None:
        """Append a record without effect, as an idle controller does twice a second."""
        with self._changed:
            self.cluster.tick()
            self._changed.notify_all()

    def fence(self, broker_id: int) -> None:
        """Fence a broker now; its next heartbeat unfences it, unless it is `kept_fenced`."""
        with self._changed:
            self.cluster.fence(broker_id)
            self._changed.notify_all()

    def expire(self, broker_id: int) -> None:
        """End a broker's session, and fence it."""
        with self._changed:
            self.cluster.expire(broker_id)
            self._changed.notify_all()

    def lead(self, node_id: int, *, lose_tail: bool = False) -> None:
        """Let a node lead in the next epoch; sessions begin anew.

        With `lose_tail` records above the high watermark are gone.
        """
        with self._changed:
            self.log.lead(node_id, lose_tail=lose_tail)
            self.cluster.renew_sessions()
            self._changed.notify_all()

    def append(self, *records: Record) -> int:
        """Append records in one batch; the offset of the first."""
        with self._changed:
            offset = self.log.append(records)
            self._changed.notify_all()
        return offset

    def append_values(self, *values: bytes) -> None:
        """Append any bytes as records, which the leader's image does not have."""
        with self._changed:
            self.log.append_values(values)
            self._changed.notify_all()

    def create_topic(
        self, name: str, assignments: Sequence[Sequence[int]], **settings: str
    ) -> UUID:
        """Make a topic with these replicas; settings with underscores for dots. Its id."""
        with self._changed:
            named = {key.replace("_", "."): value for key, value in settings.items()}
            self.topics.create(name, assignments, named)
            self._changed.notify_all()
            return self.image.topics[name].topic_id

    def snapshot(self, *, deletes_log: bool = True) -> SnapshotId:
        """Write a snapshot of all records, and delete the log before it."""
        with self._changed:
            snapshot_id = self.log.snapshot(deletes_log=deletes_log)
            self._changed.notify_all()
        return snapshot_id

    def make_dynamic(self) -> None:
        """Raise `kraft.version` to 1, which is in no image."""
        with self._changed:
            self.log.make_dynamic()
            self._changed.notify_all()

    def hold(self) -> None:
        """Commit no more records until `release`."""
        with self._changed:
            self.log.hold()

    def release(self) -> None:
        """Commit the records that were held back."""
        with self._changed:
            self.log.release()
            self._changed.notify_all()

    # Sockets.

    def _serve(self, node_id: int, connection: socket.socket) -> None:
        with suppress(OSError, MalformedRequest), connection:
            if self._tls is None:
                self._answer(node_id, connection)
                return
            with self._tls.wrap_socket(connection, server_side=True) as secured:
                self._answer(node_id, secured)

    def _answer(self, node_id: int, connection: socket.socket) -> None:
        answer_requests(connection, lambda _, frame: self._reply(node_id, frame))

    def _reply(self, node_id: int, frame: bytes, principal: bytes | None = None) -> Reply:
        """The answer to a request, as the bytes of its body or what else happens."""
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        ranges = self._ranges()
        if key not in ranges or not ranges[key].min <= version <= ranges[key].max:
            if key is ApiKey.API_VERSIONS:
                return unsupported_api_versions({key: ranges[key]})
            return HangUp()
        request = decode_request(key, version, frame, header.body_position)
        self.seen.append(Asked(key, version, request, node_id, header.client_id, principal))

        def usual() -> Mapping[str, Any]:
            return self._usual(node_id, key, version, request)

        hook = self.answers.get(key)
        reply = None if hook is None else hook(request, usual)
        if reply is None:
            reply = usual()
        return encode_response(key, version, reply) if isinstance(reply, Mapping) else reply

    def _ranges(self) -> dict[ApiKey, Versions]:
        known = (
            *self._calls,
            ApiKey.API_VERSIONS,
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.FETCH,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.ENVELOPE,
        )
        newest = {
            key: Versions(_OLDEST.get(key, key.versions.min), key.versions.max) for key in known
        }
        return newest | self.versions

    def _usual(self, node_id: int, key: ApiKey, version: int, request: Any) -> Mapping[str, Any]:
        if key is ApiKey.FETCH:
            return self._fetch(node_id, version, request)
        with self._changed:
            match key:
                case ApiKey.API_VERSIONS:
                    return self._api_versions()
                case ApiKey.DESCRIBE_CLUSTER:
                    return self._describe_cluster(node_id, request)
                case ApiKey.FETCH_SNAPSHOT:
                    return self._fetch_snapshot(node_id, request)
                case ApiKey.ENVELOPE:
                    return self._open(node_id, request)
            try:
                if node_id != self.log.leader:
                    raise Refused(ErrorCode.not_controller)
                return self._calls[key](request)
            except Refused as refused:
                return _refusal(key, version, request, refused)
            finally:
                self._changed.notify_all()

    # Answers of the quorum.

    def _leader_by(self, node_id: int) -> int:
        return self.believed_leader.get(node_id, self.log.leader)

    def _api_versions(self) -> Mapping[str, Any]:
        return {
            "api_keys": [
                {"api_key": key, "min_version": its.min, "max_version": its.max}
                for key, its in sorted(self._ranges().items())
            ],
            "finalized_features_epoch": self.log.high_watermark - 1,
            "finalized_features": [
                {"name": name, "max_version_level": level, "min_version_level": level}
                for name, level in self.image.features.items()
            ],
        }

    def _describe_cluster(self, node_id: int, request: Any) -> Mapping[str, Any]:
        empty = {"cluster_id": "", "brokers": ()}
        if request.endpoint_type != CONTROLLERS:
            return {**empty, "error_code": ErrorCode.mismatched_endpoint_type}
        return {
            "endpoint_type": CONTROLLERS,
            "cluster_id": self.cluster_id,
            "controller_id": self._leader_by(node_id),
            "brokers": [
                {"broker_id": it, "host": "127.0.0.1", "port": port, "is_fenced": False}
                for it, port in self._ports.items()
            ],
        }

    def _describe_quorum(self, _: Any) -> Mapping[str, Any]:
        end = self.log.end
        voters = [{"replica_id": it, "log_end_offset": end} for it in self.log.voters]
        observers = [
            {"replica_id": it, "log_end_offset": end} for it, end in self.observers.items()
        ]
        partition = {
            "partition_index": 0,
            "leader_id": self.log.leader,
            "leader_epoch": self.log.epoch,
            "high_watermark": self.log.high_watermark,
            "current_voters": voters,
            "observers": observers,
        }
        nodes = [
            {"node_id": it, "listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": at}]}
            for it, at in self._ports.items()
        ]
        return {"topics": [{"topic_name": TOPIC, "partitions": [partition]}], "nodes": nodes}

    def _endpoints(self, node_id: int) -> list[dict[str, Any]]:
        leader = self._leader_by(node_id)
        if leader not in self._ports:
            return []
        return [{"node_id": leader, "host": "127.0.0.1", "port": self._ports[leader]}]

    def _fetch(self, node_id: int, version: int, request: Any) -> Mapping[str, Any]:
        """Answer an observer, which waits at the end for records or for their commit."""
        if request.cluster_id not in (None, self.cluster_id):
            return {"error_code": ErrorCode.inconsistent_cluster_id, "responses": ()}
        topics = request.topics
        if (
            version < 13
            or len(topics) != 1
            or topics[0].topic_id != TOPIC_ID
            or [it.partition for it in topics[0].partitions] != [0]
        ):
            return {"error_code": ErrorCode.invalid_request, "responses": ()}
        asked = topics[0].partitions[0]
        deadline = time.monotonic() + request.max_wait_ms / 1000
        with self._changed:
            replica = request.replica_state.replica_id if version >= 15 else request.replica_id
            self.observers[replica] = asked.fetch_offset
            while True:
                found = self._fetched(node_id, asked)
                known = asked.high_watermark if version >= 18 else 1 << 63
                is_news = (
                    found.get("records")
                    or found.get("error_code")
                    or "snapshot_id" in found
                    or "diverging_epoch" in found
                    or self.log.high_watermark > known
                )
                left = deadline - time.monotonic()
                if is_news or left <= 0:
                    break
                self._changed.wait(min(left, 0.2))
                if node_id not in self._nodes:
                    break
            partition = {
                "partition_index": 0,
                "high_watermark": self.log.high_watermark,
                "log_start_offset": self.log.start,
                "records": b"",
                "current_leader": {
                    "leader_id": self._leader_by(node_id),
                    "leader_epoch": self.log.epoch,
                },
                **found,
            }
            return {
                "responses": [{"topic_id": TOPIC_ID, "partitions": [partition]}],
                "node_endpoints": self._endpoints(node_id),
            }

    def _epoch_error(self, node_id: int, epoch: int) -> ErrorCode | None:
        if epoch < self.log.epoch:
            return ErrorCode.fenced_leader_epoch
        if epoch > self.log.epoch:
            return ErrorCode.unknown_leader_epoch
        return None if node_id == self.log.leader else ErrorCode.not_leader_or_follower

    def _fetched(self, node_id: int, asked: Any) -> dict[str, Any]:
        epoch, last, offset = (
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.fetch_offset,
        )
        unknown = {"high_watermark": -1, "log_start_offset": -1}
        if offset < 0 or last < 0 or last > epoch:
            return {**unknown, "error_code": ErrorCode.invalid_request}
        error = self._epoch_error(node_id, epoch)
        if error is not None:
            return {**unknown, "error_code": error}
        match self.log.position_of(offset, last):
            case SnapshotId(end, of):
                return {"snapshot_id": {"end_offset": end, "epoch": of}}
            case EndOfEpoch(of, end):
                return {"diverging_epoch": {"epoch": of, "end_offset": end}}
        return {"records": self.log.read(offset, max(asked.partition_max_bytes, 1 << 20))}

    def _fetch_snapshot(self, node_id: int, request: Any) -> Mapping[str, Any]:
        if request.cluster_id not in (None, self.cluster_id):
            return {"error_code": ErrorCode.inconsistent_cluster_id, "topics": ()}
        topic = request.topics[0]
        asked = topic.partitions[0]
        snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        data = self.log.snapshots.get(snapshot_id)
        error = self._epoch_error(node_id, asked.current_leader_epoch)
        if topic.name != TOPIC or asked.partition:
            error = ErrorCode.unknown_topic_or_partition
        elif error is None and data is None:
            error = ErrorCode.snapshot_not_found
        elif error is None and data is not None and not 0 <= asked.position < len(data):
            error = ErrorCode.position_out_of_range
        found = b"" if error is not None or data is None else data
        partition = {
            "index": asked.partition,
            "error_code": error or ErrorCode.none,
            "snapshot_id": snapshot_id._asdict(),
            "size": len(found),
            "position": asked.position if found else 0,
            "unaligned_records": found[asked.position : asked.position + request.max_bytes],
            "current_leader": {
                "leader_id": self._leader_by(node_id),
                "leader_epoch": self.log.epoch,
            },
        }
        return {
            "topics": [{"name": topic.name, "partitions": [partition]}],
            "node_endpoints": self._endpoints(node_id),
        }

    def _open(self, node_id: int, request: Any) -> Mapping[str, Any]:
        """Answer the request in an Envelope, with its header."""
        if node_id != self.log.leader:
            return {"error_code": ErrorCode.not_controller}
        if not _is_principal(request.request_principal):
            return {"error_code": ErrorCode.principal_deserialization_failure}
        refused = {"error_code": ErrorCode.invalid_request}
        if len(request.client_host_address) not in (4, 16):
            return refused
        try:
            header = parse_request_header(request.request_data)
            key = header.api_key
            if key not in _FORWARDED:
                return refused
            reply = self._reply(node_id, request.request_data, request.request_principal)
        except MalformedRequest:
            return {"error_code": ErrorCode.unsupported_version}
        if not isinstance(reply, bytes):
            return {"error_code": ErrorCode.unsupported_version}
        head = response_prefix(key, header.api_version, header.correlation_id, len(reply))[4:]
        return {"response_data": head + reply}


def _is_principal(data: bytes | None) -> bool:
    """Whether it is Kafka's DefaultPrincipalData, version 0."""
    if data is None or len(data) < 2 or struct.unpack_from(">h", data) != (0,):
        return False
    position = 2
    for _ in range(2):  # type and name, compact
        if position >= len(data):
            return False
        position += data[position]  # short ones only
    return position < len(data)


def _refusal(key: ApiKey, version: int, request: Any, refused: Refused) -> Mapping[str, Any]:
    """One error for a whole request, without what it asked for where the answer has a place."""
    answer = error_response(key, version, request, refused.code, refused.message)
    if "error_code" not in answer:
        return answer
    return {name: () if isinstance(value, list) else value for name, value in answer.items()}
