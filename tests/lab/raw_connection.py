"""A socket that speaks Kafka's protocol request by request, or several at a time, or wrongly."""

import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from patience import PATIENCE_S

from horolog.wire import (
    REQUIRED,
    ApiKey,
    Shape,
    decode_response,
    encode_request,
    load,
    parse_response_header,
    request_prefix,
)

# What a request has to say where a test does not: else it is false, 0, empty or null.
_UNSAID: dict[str, Any] = {
    "acks": 1,
    "allow_auto_topic_creation": True,
    "client_software_name": "test",
    "client_software_version": "1",
    "generation_id_or_member_epoch": -1,
    "max_bytes": 1 << 20,
    "min_bytes": 1,
    "num_partitions": 1,
    "partition_max_bytes": 1 << 20,
    "replica_id": -1,
    "replication_factor": 1,
    "session_epoch": -1,
    "timeout_ms": 1000,
    "transaction_timeout_ms": 1000,
}
_NOTHING = {"bool": False, "string": "", "bytes": b"", "records": b""}


def whole(shape: Shape, given: Mapping[str, Any]) -> dict[str, Any]:
    """A structure with all fields that it has to have."""
    found = dict(given)
    for each in shape.fields:
        if each.name not in given:
            if each.default is REQUIRED:
                nothing = () if each.is_array else _NOTHING.get(each.type, 0)
                found[each.name] = _UNSAID.get(each.name, None if each.is_nullable else nothing)
        elif each.shape is not None and (value := given[each.name]):
            inner = each.shape
            many = each.is_array
            found[each.name] = [whole(inner, one) for one in value] if many else whole(inner, value)
    return found


def encoded(key: ApiKey, version: int, fields: Mapping[str, Any]) -> bytes:
    """The body of a request that says what these fields say."""
    return encode_request(key, version, whole(load("request", key, version), fields))


class RawConnection:
    """One connection; what `send` sent is `receive`d in the order it is answered."""

    client_id = "test"

    def __init__(
        self, address: str, timeout_s: float = PATIENCE_S, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        if tls is not None:
            with ExitStack() as unless_done:
                unless_done.callback(self.socket.close)
                self.socket = tls.wrap_socket(self.socket)
                unless_done.pop_all()
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
            body = encoded(key, version, body)
        self._sent[self._next_id] = (key, version)
        request = request_prefix(key, version, self._next_id, self.client_id, len(body)) + body
        self._next_id += 1
        return request

    def send(self, key: ApiKey, version: int, /, **fields: Any) -> int:
        """Send one request; its correlation id."""
        self.socket.sendall(self.packed(key, version, fields))
        return self._next_id - 1

    def receive(self) -> tuple[int, Any]:
        """The next answer, with its correlation id."""
        frame = self.exactly(int.from_bytes(self.exactly(4), "big"))
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

    def exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def produce_fields(topic: Any, batches: Mapping[int, bytes], **more: Any) -> dict[str, Any]:
    """A produce request of one batch for each partition; a topic by name, or by id from v13."""
    partitions = [{"index": index, "records": batch} for index, batch in batches.items()]
    name = "name" if isinstance(topic, str) else "topic_id"
    return {"topic_data": [{name: topic, "partition_data": partitions}], **more}


def fetch_fields(
    topic: Any, offsets: Mapping[int, int], *, partition_max_bytes: int = 1 << 20, **more: Any
) -> dict[str, Any]:
    """A fetch request of one topic, by name, or by id from v13."""
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
        for index, offset in offsets.items()
    ]
    name = "topic" if isinstance(topic, str) else "topic_id"
    return {"topics": [{name: topic, "partitions": partitions}], **more}


def lookup_fields(topic: Any, times: Mapping[int, int], **more: Any) -> dict[str, Any]:
    """A ListOffsets request of one topic."""
    partitions = [
        {"partition_index": index, "timestamp": time_ms} for index, time_ms in times.items()
    ]
    return {"topics": [{"name": topic, "partitions": partitions}], **more}


def delete_fields(topic: Any, offsets: Mapping[int, int]) -> dict[str, Any]:
    """A DeleteRecords request of one topic."""
    partitions = [{"partition_index": index, "offset": at} for index, at in offsets.items()]
    return {"topics": [{"name": topic, "partitions": partitions}]}


def topic_fields(topic: str, partitions: int = 1, **settings: str) -> dict[str, Any]:
    """A CreateTopics request of one topic; settings under Kafka's names with underscores."""
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in settings.items()]
    return {"topics": [{"name": topic, "num_partitions": partitions, "configs": configs}]}
