"""The least client there can be: requests packed once, answers read and hardly looked at.

A client that does nothing shows what a broker can do. Produce v7, Fetch v4 and ListOffsets v1 are
old versions that both sides serve; what they carry does not differ from the newest.
"""

import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Self

from horolog.wire.questions import TIMES, AskTimes

CLIENT_ID = b"bench"
NULL = 0xFF  # in place of a struct
PIPELINE = 5  # requests under way on one connection, as clients have by default
PRODUCE, FETCH, LIST_OFFSETS = (0, 7), (1, 4), (2, 1)  # 7: the first that may carry zstd
OFFSET_COMMIT = 8, 2
CONSUMER_HEARTBEAT = 68, 1
DESCRIBE_CONFIGS = 32, 3
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = (18, 0), (17, 1), (36, 0)
# As librdkafka sends them, and in the second flow of KIP-890 (by the flow's number).
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN = (22, 1), (24, 0)
TRANSACTIONAL_PRODUCE = {1: (0, 10), 2: (0, 12)}
END_TXN = {1: (26, 1), 2: (26, 5)}
CONCURRENT_TRANSACTIONS = 51


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def produce_request(topic: str, batch: bytes, *, partition: int = 0, acks: int = 1) -> bytes:
    """The body of a Produce request with one batch for one partition."""
    head = struct.pack(
        ">hhii", -1, acks, 30_000, 1
    )  # no transactional id, acks, timeout, one topic
    return head + _string(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch


def fetch_request(topic: str, offset: int) -> bytes:
    """The body of a Fetch request for partition 0: at least a byte, waiting half a second."""
    head = struct.pack(">iiiibi", -1, 500, 1, 50 << 20, 0, 1)
    return head + _string(topic) + struct.pack(">iiqi", 1, 0, offset, 1 << 20)


def list_offsets_request(topic: str, timestamp_ms: int, *partitions: int) -> bytes:
    """The body of a ListOffsets request for some partitions, the first one by default."""
    rows = [struct.pack(">iq", partition, timestamp_ms) for partition in partitions or (0,)]
    return (
        struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">i", len(rows)) + b"".join(rows)
    )


def complete_request(topic: str, *partitions: int) -> bytes:
    """The body of a DescribeConfigs request: up to which time partitions are complete."""
    keys = [_string(TIMES.key(AskTimes(index, sums=False))) for index in partitions]
    return (
        struct.pack(">ib", 1, 2)
        + _string(topic)
        + struct.pack(">i", len(partitions))
        + b"".join(keys)
        + struct.pack(">bb", 0, 0)
    )


def commit_request(group: str, topic: str, partitions: int, offset: int) -> bytes:
    """The body of an OffsetCommit request of a group without members: the same offset in each.

    A topic with fewer partitions refuses those that it does not have.
    """
    head = _string(group) + struct.pack(">i", -1) + _string("") + struct.pack(">qi", -1, 1)
    rows = [struct.pack(">iq", index, offset) + _string("") for index in range(partitions)]
    return head + _string(topic) + struct.pack(">i", partitions) + b"".join(rows)


def joining_request(group: str, member: str, topics: Iterable[str]) -> bytes:
    """Header's tags and body of the first ConsumerGroupHeartbeat of a member; names are short."""
    names = [_compact(name) for name in topics]
    return b"".join(
        [
            *(b"\0", _compact(group), _compact(member), struct.pack(">i", 0), b"\0\0"),
            *(struct.pack(">iB", 300_000, len(names) + 1), *names),
            b"\0\0\x01\0",  # no pattern, no assignor, no partitions
        ]
    )


def heartbeat_request(
    group: str, member: str, epoch: int, owned: Mapping[bytes, Iterable[int]] | None = None
) -> bytes:
    """The same of a member that stays, and says what it owns, or does not; -1: that leaves."""
    parts = [b"\0", _compact(group), _compact(member), struct.pack(">i", epoch), b"\0\0"]
    parts.append(b"\xff\xff\xff\xff\0\0\0")
    if owned is None:
        parts.append(b"\0")
    else:
        parts.append(_count(len(owned)))
        for topic, partitions in owned.items():
            rows = [struct.pack(">i", partition) for partition in partitions]
            parts += [topic, _count(len(rows)), *rows, b"\0"]
    return b"".join([*parts, b"\0"])


def sasl_handshake_request(mechanism: str) -> bytes:
    """The body of a SaslHandshake request."""
    return _string(mechanism)


def sasl_authenticate_request(message: bytes) -> bytes:
    """The body of a SaslAuthenticate request."""
    return struct.pack(">i", len(message)) + message


def init_producer_id_request(transactional_id: str) -> bytes:
    """The body of an InitProducerId request; transactions may take a minute."""
    return _string(transactional_id) + struct.pack(">i", 60_000)


def add_partitions_request(
    transactional_id: str, producer_id: int, epoch: int, topic: str, partition: int
) -> bytes:
    """The body of an AddPartitionsToTxn request for one partition."""
    head = _string(transactional_id) + struct.pack(">qhi", producer_id, epoch, 1)
    return head + _string(topic) + struct.pack(">ii", 1, partition)


def transactional_produce_request(
    transactional_id: str, topic: str, batch: bytes, *, partition: int = 0
) -> bytes:
    """Header's tags and body of a Produce request (v9 to 12) of a transaction, for one partition.

    The names are shorter than 127 bytes.
    """
    size = _count(len(batch))
    head = b"\0" + _compact(transactional_id) + struct.pack(">hiB", -1, 30_000, 2)
    return head + _compact(topic) + struct.pack(">Bi", 2, partition) + size + batch + b"\0\0\0"


def end_request(transactional_id: str, producer_id: int, epoch: int) -> bytes:
    """The body of an EndTxn request that commits."""
    return _string(transactional_id) + struct.pack(">qh?", producer_id, epoch, True)


def end_request_v5(transactional_id: str, producer_id: int, epoch: int) -> bytes:
    """The same in the second flow, behind the header's tags."""
    ended = struct.pack(">qh?", producer_id, epoch, True)
    return b"\0" + _compact(transactional_id) + ended + b"\0"


def _count(items: int) -> bytes:
    """The length of a compact array, or of bytes."""
    written = bytearray()
    left = items + 1
    while left > 127:
        written.append(left & 127 | 128)
        left >>= 7
    written.append(left)
    return bytes(written)


def _compact(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data) + 1]) + data


class Connection:
    """One connection with as many requests under way as its user likes; answers come in order."""

    def __init__(
        self, bootstrap: str, timeout_s: float = 30, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._correlation = 0
        self._buffer = bytearray(1 << 20)

    def send(self, api: tuple[int, int], body: bytes) -> None:
        """Send one request."""
        self._correlation += 1
        head = struct.pack(">hhih", *api, self._correlation, len(CLIENT_ID)) + CLIENT_ID
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def receive(self) -> memoryview:
        """The next answer, without its length and correlation id; valid until the next call."""
        self._fill(4)
        (size,) = struct.unpack_from(">i", self._buffer)
        if size > len(self._buffer):
            self._buffer = bytearray(2 * size)
        self._fill(size)
        return memoryview(self._buffer)[4:size]

    def ask(self, api: tuple[int, int], body: bytes) -> memoryview:
        """Send one request and wait for its answer."""
        self.send(api, body)
        return self.receive()

    def send_all(
        self,
        api: tuple[int, int],
        bodies: Iterable[bytes],
        check: Callable[[memoryview], object],
        most: int = PIPELINE,
    ) -> None:
        """Send requests, at most so many under way, and check every answer."""
        under_way = 0
        for body in bodies:
            if under_way == most:
                check(self.receive())
                under_way -= 1
            self.send(api, body)
            under_way += 1
        for _ in range(under_way):
            check(self.receive())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _fill(self, size: int) -> None:
        view = memoryview(self._buffer)
        at = 0
        while at < size:
            read = self._socket.recv_into(view[at:size])
            if read == 0:
                raise ConnectionError("the broker closed the connection")
            at += read


class Refused(Exception):
    """An answer with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


def produced(answer: memoryview) -> int:
    """The base offset that a Produce answer (one topic, one partition) tells."""
    (name_size,) = struct.unpack_from(">h", answer, 4)
    error, base_offset = struct.unpack_from(">hq", answer, 4 + 2 + name_size + 4 + 4)
    if error:
        raise Refused("produce", error)
    return int(base_offset)


def fetched(answer: memoryview) -> memoryview:
    """The records of a Fetch v4 answer (one topic, one partition)."""
    at = 4 + 4
    (name_size,) = struct.unpack_from(">h", answer, at)
    at += 2 + name_size + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
    if error:
        raise Refused("fetch", error)
    at += 26 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + max(size, 0)]


def found(answer: memoryview) -> tuple[int, int]:
    """Timestamp and offset of a ListOffsets v1 answer (one topic, one partition)."""
    (name_size,) = struct.unpack_from(">h", answer, 4)
    error, timestamp, offset = struct.unpack_from(">hqq", answer, 4 + 2 + name_size + 4 + 4)
    if error:
        raise Refused("list offsets", error)
    return int(timestamp), int(offset)


def check_committed(answer: memoryview) -> None:
    """Check an OffsetCommit v2 answer of one topic: no partition is refused."""
    (name_size,) = struct.unpack_from(">h", answer, 4)
    at = 4 + 2 + name_size
    (partitions,) = struct.unpack_from(">i", answer, at)
    for index in range(partitions):
        (error,) = struct.unpack_from(">h", answer, at + 4 + 6 * index + 4)
        if error:
            raise Refused("commit", error)


def check_first(what: str, answer: memoryview) -> None:
    """Check an answer that begins with its error code."""
    (error,) = struct.unpack_from(">h", answer)
    if error:
        raise Refused(what, error)


class Beaten(NamedTuple):
    """What an answer to a ConsumerGroupHeartbeat says; None: the partitions are the same."""

    epoch: int
    partitions: dict[bytes, list[int]] | None


def beaten(answer: memoryview) -> Beaten:
    """The answer to a heartbeat, behind the header's tags."""
    (error,) = struct.unpack_from(">h", answer, 5)
    if error:
        raise Refused("heartbeat", error)
    at = 8 if not answer[7] else 7 + answer[7]  # a message, if there is one
    at += max(answer[at], 1)
    (epoch,) = struct.unpack_from(">i", answer, at)
    at += 8
    if answer[at] == NULL:
        return Beaten(epoch, None)
    found = {}
    topics, at = _counted(answer, at + 1)
    for _ in range(topics):
        topic = bytes(answer[at : at + 16])
        count, at = _counted(answer, at + 16)
        found[topic] = list(struct.unpack_from(f">{count}i", answer, at))
        at += 4 * count + 1
    return Beaten(epoch, found)


def _counted(answer: memoryview, at: int) -> tuple[int, int]:
    """The length of a compact array, and where its items begin."""
    value = shift = 0
    while True:
        byte = answer[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value - 1, at


def authenticated(answer: memoryview) -> bytes:
    """The message of a SaslAuthenticate v0 answer."""
    check_first("login", answer)
    (size,) = struct.unpack_from(">h", answer, 2)
    return bytes(answer[4 + max(size, 0) + 4 :])


def initialised(answer: memoryview) -> tuple[int, int]:
    """Producer id and epoch of an InitProducerId answer."""
    error, producer_id, epoch = struct.unpack_from(">hqh", answer, 4)
    if error:
        raise Refused("init producer id", error)
    return int(producer_id), int(epoch)


def is_added(answer: memoryview) -> bool:
    """Whether an AddPartitionsToTxn answer says so; else it is to be sent again (51)."""
    (error,) = struct.unpack_from(">h", answer, len(answer) - 2)
    if error not in (0, CONCURRENT_TRANSACTIONS):
        raise Refused("add partitions", error)
    return not error


def check_transactional_produced(answer: memoryview) -> None:
    """Check a Produce answer (v9 to 12) of one partition, behind the header's tags."""
    (error,) = struct.unpack_from(">h", answer, 1 + 1 + answer[2] + 1 + 4)
    if error:
        raise Refused("produce", error)


def check_ended(answer: memoryview) -> None:
    """Check an EndTxn v1 answer."""
    (error,) = struct.unpack_from(">h", answer, 4)
    if error:
        raise Refused("end", error)


def ended_v5(answer: memoryview) -> tuple[int, int]:
    """Producer id and epoch for the next transaction, of an EndTxn v5 answer."""
    error, producer_id, epoch = struct.unpack_from(">hqh", answer, 1 + 4)
    if error:
        raise Refused("end", error)
    return int(producer_id), int(epoch)


def next_offset(records: memoryview, offset: int) -> int:
    """The offset after the last whole batch, looking at batch headers only."""
    at = 0
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        (last_delta,) = struct.unpack_from(">i", records, at + 23)
        at += 12 + length
        if at > len(records):
            break
        offset = base + last_delta + 1
    return offset
