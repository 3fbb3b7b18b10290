"""A socket that speaks Kafka's protocol request by request, or several at a time, or wrongly."""

import socket
from typing import Any, Self

from patience import PATIENCE_S

from horolog.wire.api import ApiKey
from horolog.wire.codec import decode_response, encode_request
from horolog.wire.frame import parse_response_header, request_prefix

# What a request has to say and no test cares about.
_UNSAID: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: {
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
        "allow_auto_topic_creation": True,
    },
    ApiKey.DESCRIBE_GROUPS: {"include_authorized_operations": False},
    ApiKey.DESCRIBE_CONFIGS: {"include_synonyms": False, "include_documentation": False},
    ApiKey.DESCRIBE_CLUSTER: {
        "include_cluster_authorized_operations": False,
        "include_fenced_brokers": False,
    },
    ApiKey.LIST_OFFSETS: {"replica_id": -1, "isolation_level": 0, "timeout_ms": 1000},
}


class RawConnection:
    """One connection; what `send` sent is `receive`d in the order it is answered."""

    def __init__(self, address: str, timeout_s: float = PATIENCE_S) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        self._next_id = 1
        self._sent: dict[int, tuple[ApiKey, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def packed(self, key: ApiKey, version: int, fields: dict[str, Any] | bytes) -> bytes:
        """A whole request, noted as sent."""
        body = fields
        if not isinstance(body, bytes):
            body = encode_request(key, version, _UNSAID.get(key, {}) | body)
        self._sent[self._next_id] = (key, version)
        request = request_prefix(key, version, self._next_id, "test", len(body)) + body
        self._next_id += 1
        return request

    def send(self, key: ApiKey, version: int, /, **fields: Any) -> int:
        """Send one request; its correlation id."""
        self.socket.sendall(self.packed(key, version, fields))
        return self._next_id - 1

    def receive(self) -> tuple[int, Any]:
        """The next answer, with its correlation id."""
        frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        correlation_id = int.from_bytes(frame[:4], "big")
        key, version = self._sent.pop(correlation_id)
        _, position = parse_response_header(frame, key, version)
        return correlation_id, decode_response(key, version, frame, position)

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """Send a request and take its answer."""
        sent = self.send(key, version, **fields)
        answered, answer = self.receive()
        assert answered == sent
        return answer

    def is_closed(self) -> bool:
        """Whether the broker closes the connection; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes, and the broker does not close the connection either."""
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)
        return False

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def produce_fields(
    topic: Any, batches: dict[int, bytes], *, acks: int = 1, transactional_id: str | None = None
) -> dict[str, Any]:
    """A produce request of one batch for each partition; a topic by name, or by id from v13."""
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [
            {
                ("name" if isinstance(topic, str) else "topic_id"): topic,
                "partition_data": [
                    {"index": index, "records": batch} for index, batch in batches.items()
                ],
            }
        ],
    }


def fetch_fields(
    topic: Any,
    offsets: dict[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """A fetch request of one topic, by name, or by id from v13."""
    return {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "topics": [
            {
                ("topic" if isinstance(topic, str) else "topic_id"): topic,
                "partitions": [
                    {
                        "partition": index,
                        "fetch_offset": offset,
                        "partition_max_bytes": partition_max_bytes,
                    }
                    for index, offset in offsets.items()
                ],
            }
        ],
        **more,
    }
