"""Requests with very many elements beside a client that only wants its heartbeat answered.

What others wait for is the longest turn that the event loop gives to anything, in CPU time of its
thread: so the tests say the same on a machine that does other things as well.
"""

import asyncio
import gc
import select
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from examples import some_of, stride
from overrides import override
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker, a_broker

from horolog.broker import MOST_QUESTIONS, garbage, turns
from horolog.errors import ErrorCode
from horolog.metadata import topics
from horolog.record import LogRecord, build_batch
from horolog.wire import LOOKUP_WAY, ApiKey, AskLookup

BATCH = build_batch([LogRecord(-1, None, b"v")])
LONGEST_S = 0.08


class MeasuredLoop(asyncio.SelectorEventLoop):
    """An event loop that knows the longest of its iterations, in CPU seconds of its thread."""

    longest_s = 0.0

    def measure_anew(self) -> None:
        self.longest_s = 0.0

    def _run_once(self) -> None:
        started = time.thread_time()
        super()._run_once()
        self.longest_s = max(self.longest_s, time.thread_time() - started)


def _slowness() -> float:
    """How much slower than usual this machine is now."""

    def spin() -> float:
        started = time.thread_time()
        sum(n & 3 for n in range(100_000))
        return time.thread_time() - started

    return max(min(spin() for _ in range(3)) / 0.004, 1.0)


def fill(broker: RunningBroker) -> None:
    broker.create_topic("wide", 3000)
    broker.append("t", BATCH)


broker = a_broker(
    "t",
    partitions=4,
    now_ms=None,
    scope="module",
    new_loop=MeasuredLoop,
    prepare=fill,
    auto_create_topics_enable="false",
)


@contextmanager
def measured(broker: RunningBroker) -> Iterator[Callable[[], float]]:
    """Measure the longest iteration of the loop; what was made before, no collection looks at."""
    loop = broker.loop
    assert isinstance(loop, MeasuredLoop)
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()  # as `serve` does, also below
    gc.set_threshold(garbage.YOUNG_OBJECTS, garbage.MIDDLE_COLLECTIONS, garbage.NEVER)
    broker.call(loop.measure_anew)
    yield lambda: loop.longest_s
    gc.set_threshold(*thresholds)  # what is frozen stays so, as it is by `conftest`


def names(count: int) -> list[str]:
    return [f"n{n}" for n in range(count)]


def parts(
    name: str,
    count: int,
    index: str = "partition_index",
    *,
    topic: str = "name",
    of: str = "partitions",
    among: int | None = None,
    **fields: Any,
) -> list[dict[str, Any]]:
    """A topic with this many partitions; of "t", which has four, with each again and again."""
    most = 4 if name == "t" else among or count
    return [{topic: name, of: [{index: n % most, **fields} for n in range(count)]}]


def produce_to_many(count: int, records: bytes = BATCH) -> dict[str, Any]:
    return {"topic_data": parts("t", count, "index", of="partition_data", records=records)}


def fetch_of_many(count: int, offset: int, max_wait_ms: int = 0) -> dict[str, Any]:
    topics = parts("t", count, "partition", topic="topic", fetch_offset=offset)
    return {"max_wait_ms": max_wait_ms, "topics": topics}


def resources(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"resource_type": 2, "resource_name": f"n{n}", **fields} for n in range(count)]


def resource(name: str, kind: int = 2, **fields: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **fields}


def describe(name: str, keys: list[str] | None, kind: int = 2) -> dict[str, Any]:
    return resource(name, kind, configuration_keys=keys)


def named(many: int, key: str = "name", **fields: Any) -> list[dict[str, Any]]:
    return [{key: each, **fields} for each in names(many)]


def ids(count: int) -> list[dict[str, Any]]:
    return [{"topic_id": uuid.uuid4(), "name": None} for _ in range(count)]


COMMITTING = {"group_id": "committing", "group_instance_id": None}
MEMBER = {"generation_id": 1, "member_id": "m"}
COMMIT = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
JOIN = {
    "group_id": "joining",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 1_000,
    "group_instance_id": None,
    "protocol_type": "consumer",
}
SETTING = {"config_operation": 0, "value": "1"}

METADATA, FETCH, PRODUCE = ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE
CREATE, CREATE_PARTITIONS = ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS
DESCRIBE, INCREMENTAL = ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS

REQUESTS: dict[str, tuple[ApiKey, int, int, Callable[[int], dict[str, Any]]]] = {
    "metadata of unknown topics": (METADATA, 9, 50_000, lambda n: {"topics": named(n)}),
    "metadata of the same wide topic": (
        *(METADATA, 9, 50_000),
        lambda n: {"topics": [{"name": "wide"}] * n},
    ),
    "metadata by id": (METADATA, 12, 50_000, lambda n: {"topics": ids(n)}),
    "metadata in few bytes": (METADATA, 9, 25_000, lambda n: {"topics": [{"name": ""}] * n}),
    "fetch": (FETCH, 4, 60_000, lambda n: fetch_of_many(n, 0)),
    "fetch that waits": (FETCH, 4, 60_000, lambda n: fetch_of_many(n, 1, max_wait_ms=500)),
    "fetch that begins a session": (
        *(FETCH, 11, 40_000),
        lambda n: {
            "session_epoch": 0,
            "topics": parts("wide", n, "partition", topic="topic", among=3000, fetch_offset=0),
        },
    ),
    "fetch of what is not there": (FETCH, 4, 60_000, lambda n: fetch_of_many(n, 99)),
    "produce": (PRODUCE, 8, 20_000, produce_to_many),
    "produce nothing": (PRODUCE, 8, 60_000, lambda n: produce_to_many(n, b"")),
    "produce nothing, in few bytes": (PRODUCE, 8, 1, lambda n: produce_to_many(7_500, b"")),
    "list offsets, latest": (
        *(ApiKey.LIST_OFFSETS, 5, 40_000),
        lambda n: {"topics": parts("wide", n, timestamp=-1)},
    ),
    "list offsets, by time": (
        *(ApiKey.LIST_OFFSETS, 5, 40_000),
        lambda n: {"topics": parts("wide", n, timestamp=5)},
    ),
    "offset for leader epoch": (
        *(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, 60_000),
        lambda n: {"topics": parts("t", n, "partition", topic="topic", leader_epoch=0)},
    ),
    "create topics, refused": (
        *(CREATE, 4, 9_000),
        lambda n: {"topics": [{"name": "!" + name} for name in names(n)]},
    ),
    "create topics, only to see": (
        *(CREATE, 5, 9_000),
        lambda n: {"topics": named(n), "validate_only": True},
    ),
    "create topics, too many": (CREATE, 5, 50_000, lambda n: {"topics": named(n)}),
    "create a topic of many assignments": (
        *(CREATE, 4, 50_000),
        lambda n: {
            "topics": [
                parts("assigned", n, of="assignments", broker_ids=[7])[0]
                | {"num_partitions": -1, "replication_factor": -1}
            ]
        },
    ),
    "create a topic of many settings": (
        *(CREATE, 4, 60_000),
        lambda n: {"topics": [{"name": "set", "configs": named(n, value="1")}]},
    ),
    "create partitions": (
        *(CREATE_PARTITIONS, 1, 50_000),
        lambda n: {"topics": named(n, count=2)},
    ),
    "create partitions of many assignments": (
        *(CREATE_PARTITIONS, 1, 60_000),
        lambda n: {
            "topics": [{"name": "t", "count": n + 4, "assignments": [{"broker_ids": [7]}] * n}],
            "validate_only": True,
        },
    ),
    "delete topics": (ApiKey.DELETE_TOPICS, 3, 80_000, lambda n: {"topic_names": names(n)}),
    "delete topics by id": (ApiKey.DELETE_TOPICS, 6, 50_000, lambda n: {"topics": ids(n)}),
    "delete records": (
        *(ApiKey.DELETE_RECORDS, 1, 3_000),
        lambda n: {"topics": parts("t", n, offset=0)},
    ),
    "delete records of unknown partitions": (
        *(ApiKey.DELETE_RECORDS, 1, 60_000),
        lambda n: {"topics": parts("nowhere", n, offset=0)},
    ),
    "describe configs": (
        *(DESCRIBE, 4, 50_000),
        lambda n: {"resources": resources(n, configuration_keys=None)},
    ),
    "describe configs, often": (
        *(DESCRIBE, 4, 50_000),
        lambda n: {"resources": [describe("", None, kind=4)] * n},
    ),
    "describe many keys": (
        *(DESCRIBE, 4, 100_000),
        lambda n: {"resources": [describe("1", names(n), kind=4)]},
    ),
    "describe configs of the same topic": (
        *(DESCRIBE, 4, 150_000),
        lambda count: {
            "resources": [
                describe("t", [f"{first}-{n}" for n in range(100)]) for first in range(count // 100)
            ]
        },
    ),
    "ask about many times": (
        *(DESCRIBE, 4, 100_000),
        lambda count: {
            "resources": [
                describe(
                    "t",
                    [LOOKUP_WAY.key(AskLookup(0, n)) for n in range(min(count, MOST_QUESTIONS))],
                )
            ]
        },
    ),
    "alter configs": (
        *(ApiKey.ALTER_CONFIGS, 1, 50_000),
        lambda n: {"resources": resources(n, configs=[])},
    ),
    "incremental alter configs": (
        *(INCREMENTAL, 1, 50_000),
        lambda n: {"resources": resources(n, configs=[])},
    ),
    "incremental alter configs of many keys": (
        *(INCREMENTAL, 1, 60_000),
        lambda n: {"resources": [resource("t", configs=named(n, **SETTING))]},
    ),
    "find coordinators": (
        *(ApiKey.FIND_COORDINATOR, 4, 100_000),
        lambda n: {"key_type": 0, "coordinator_keys": names(n)},
    ),
    "describe log dirs": (
        *(ApiKey.DESCRIBE_LOG_DIRS, 1, 100_000),
        lambda n: {"topics": [{"topic": "wide", "partitions": list(range(n))}]},
    ),
    "describe log dirs of many topics": (
        *(ApiKey.DESCRIBE_LOG_DIRS, 1, 50_000),
        lambda n: {"topics": named(n, "topic", partitions=[0])},
    ),
    "commit offsets": (
        *(ApiKey.OFFSET_COMMIT, 7, 40_000),
        lambda n: {**COMMITTING, "topics": parts("wide", n, among=3000, **COMMIT)},
    ),
    "fetch offsets": (
        *(ApiKey.OFFSET_FETCH, 7, 100_000),
        lambda n: {
            "group_id": "committing",
            "topics": [{"name": "wide", "partition_indexes": list(range(n))}],
        },
    ),
    "fetch offsets of many groups": (
        *(ApiKey.OFFSET_FETCH, 8, 60_000),
        lambda n: {"groups": named(n, "group_id", topics=None)},
    ),
    "fetch offsets of one group often": (
        *(ApiKey.OFFSET_FETCH, 8, 60_000),
        lambda n: {"groups": [{"group_id": "committing", "topics": None}] * n},
    ),
    "delete offsets": (
        *(ApiKey.OFFSET_DELETE, 0, 60_000),
        lambda n: {"group_id": "committing", "topics": parts("wide", n)},
    ),
    "describe groups": (ApiKey.DESCRIBE_GROUPS, 4, 80_000, lambda n: {"groups": names(n)}),
    "describe one group often": (
        *(ApiKey.DESCRIBE_GROUPS, 4, 80_000),
        lambda n: {"groups": ["committing"] * n},
    ),
    "leave a group": (
        *(ApiKey.LEAVE_GROUP, 4, 60_000),
        lambda n: {
            "group_id": "committing",
            "members": named(n, "member_id", group_instance_id=None),
        },
    ),
    "join with many protocols": (
        *(ApiKey.JOIN_GROUP, 5, 60_000),
        lambda n: {**JOIN, "protocols": named(n, metadata=b"m")},
    ),
    "sync many assignments": (
        *(ApiKey.SYNC_GROUP, 3, 60_000),
        lambda n: {**COMMITTING, **MEMBER, "assignments": named(n, "member_id", assignment=b"a")},
    ),
    "list groups in many states": (
        *(ApiKey.LIST_GROUPS, 4, 100_000),
        lambda n: {"states_filter": names(n)},
    ),
    "delete groups": (ApiKey.DELETE_GROUPS, 1, 80_000, lambda n: {"groups_names": names(n)}),
    "add partitions to a transaction": (
        *(ApiKey.ADD_PARTITIONS_TO_TXN, 1, 100_000),
        lambda n: {
            "v3_and_below_transactional_id": "none",
            "v3_and_below_topics": [
                {"name": "wide", "partitions": [each % 3000 for each in range(n)]}
            ],
        },
    ),
    "add partitions that are not there to a transaction": (
        *(ApiKey.ADD_PARTITIONS_TO_TXN, 1, 60_000),
        lambda n: {
            "v3_and_below_transactional_id": "none",
            "v3_and_below_topics": named(n, partitions=[0]),
        },
    ),
    "add partitions to many transactions": (
        *(ApiKey.ADD_PARTITIONS_TO_TXN, 4, 40_000),
        lambda n: {
            "transactions": named(
                n, "transactional_id", topics=[{"name": "t", "partitions": [0]}], verify_only=True
            )
        },
    ),
    "commit offsets in a transaction": (
        *(ApiKey.TXN_OFFSET_COMMIT, 2, 40_000),
        lambda n: {"group_id": "committing", "topics": parts("wide", n, among=3000, **COMMIT)},
    ),
    "write markers": (
        *(ApiKey.WRITE_TXN_MARKERS, 1, 20_000),
        lambda n: {
            "markers": [
                {
                    "producer_id": 5,
                    "topics": [{"name": "t", "partition_indexes": [each % 8 for each in range(n)]}],
                }
            ]
        },
    ),
    "describe producers": (
        *(ApiKey.DESCRIBE_PRODUCERS, 0, 40_000),
        lambda n: {
            "topics": [{"name": "wide", "partition_indexes": [each % 3000 for each in range(n)]}]
        },
    ),
    "describe transactions": (
        *(ApiKey.DESCRIBE_TRANSACTIONS, 0, 100_000),
        lambda n: {"transactional_ids": names(n)},
    ),
    "list transactions in many states": (
        *(ApiKey.LIST_TRANSACTIONS, 0, 100_000),
        lambda n: {"state_filters": names(n), "producer_id_filters": list(range(n))},
    ),
}


def drain(sock: socket.socket) -> int:
    """Take the next answer and look at none of it; its size."""
    sock.settimeout(PATIENCE_S)
    left = 4
    head = b""
    while len(head) < 4:
        part = sock.recv(4 - len(head))
        assert part, "the broker closed the connection"
        head += part
    size = left = int.from_bytes(head, "big")
    while left:
        part = sock.recv(min(left, 1 << 20))
        assert part, "the broker closed the connection"
        left -= len(part)
    return size


@pytest.mark.parametrize("what", some_of(REQUESTS, 2))
def test_a_request_of_very_many_elements_leaves_others_their_turn(
    broker: RunningBroker, what: str
) -> None:
    key, version, count, fields = REQUESTS[what]
    count //= stride(4)
    with broker.connect() as many, measured(broker) as longest_s:
        many.socket.sendall(many.packed(key, version, fields(count)))
        with broker.connect() as heartbeat:
            heartbeat.ask(ApiKey.API_VERSIONS, 0)
            assert drain(many.socket) > 0
            heartbeat.ask(ApiKey.API_VERSIONS, 0)
    assert longest_s() < LONGEST_S * _slowness()


def test_a_long_answer_of_one_waits_for_no_requests_of_very_many_elements(
    broker: RunningBroker,
) -> None:
    fields = {"topics": named(120_000), "allow_auto_topic_creation": False}
    with ExitStack() as stack:
        many = [stack.enter_context(broker.connect()) for _ in range(3)]
        for each in many:
            each.socket.sendall(each.packed(METADATA, 9, fields))
        wanted = stack.enter_context(broker.connect())
        (wide,) = wanted.ask(METADATA, 9, topics=[{"name": "wide"}]).topics
        assert len(wide.partitions) == 3000
        answered = select.poll()
        for each in many:
            answered.register(each.socket, select.POLLIN)
        assert not answered.poll(0)


def test_very_many_small_requests_leave_others_their_turn(broker: RunningBroker) -> None:
    fields = {"group_id": "none", "generation_id": 1, "member_id": "m"}
    with measured(broker) as longest_s, ExitStack() as opened:
        clients = [opened.enter_context(broker.connect()) for _ in range(8)]
        for client in clients:
            requests = [client.packed(ApiKey.HEARTBEAT, 1, fields) for _ in range(3000)]
            client.socket.sendall(b"".join(requests))
        broker.ask(ApiKey.API_VERSIONS, 0)
        for client in clients:
            answered = [client.receive()[0] for _ in range(3000)]
            assert answered == list(range(1, 3001))
    assert longest_s() < LONGEST_S * _slowness()


TOGETHER = 50
GROWING = 40


def send_together(broker: RunningBroker, clients: list[RawConnection], sent: list[bytes]) -> None:
    """Let the loop find in one iteration what all of them have sent."""
    is_sent = threading.Event()
    blocked = threading.Event()

    def block() -> None:
        blocked.set()
        assert is_sent.wait(PATIENCE_S)

    broker.loop.call_soon_threadsafe(block)
    assert blocked.wait(PATIENCE_S)
    for client, data in zip(clients, sent, strict=True):
        client.socket.sendall(data)
    is_sent.set()


LONG_AT_ONCE: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
    "decoded on the loop": (ApiKey.METADATA, 9, {"topics": [{"name": ""}] * 10_000}),
    "found to be too long for the loop": (
        ApiKey.DELETE_TOPICS,
        3,
        {"topic_names": [f"{n:030}" for n in range(2_100)]},
    ),
}


@pytest.mark.parametrize("how", LONG_AT_ONCE)
def test_many_long_requests_at_once_leave_others_their_turn(
    broker: RunningBroker, how: str
) -> None:
    """Each takes some milliseconds: were all begun in one iteration, others would wait for all."""
    with ExitStack() as opened, measured(broker) as longest_s:
        clients = [opened.enter_context(broker.connect()) for _ in range(TOGETHER)]
        for client in clients:
            client.ask(ApiKey.API_VERSIONS, 0)
        request = clients[0].packed(*LONG_AT_ONCE[how])
        assert len(request) < 100_000  # so the socket takes it whole
        broker.call(broker.loop.measure_anew)
        send_together(broker, clients, [request] * TOGETHER)
        for client in clients:
            assert drain(client.socket) > 0
    assert longest_s() < LONGEST_S * _slowness()


def test_large_requests_that_grow_at_once_leave_others_their_turn(
    make_broker: MakeBroker,
) -> None:
    """Memory for fifty megabytes more takes tens of milliseconds if it is zeroed and copied."""
    broker = make_broker(new_loop=MeasuredLoop, horolog_max_buffered_bytes=str(8 << 30))
    begun, more = bytes((4 << 20) - 1), bytes(64 << 10)

    def have_arrived(size: int) -> bool:
        def received() -> int:
            coming = [one.receiving for one in broker.service.connections]
            return sum(one.moved for one in coming if one is not None)

        return eventually(lambda: received() == size)

    with ExitStack() as opened, measured(broker) as longest_s:
        clients = [opened.enter_context(broker.connect()) for _ in range(GROWING)]
        for client in clients:
            client.socket.sendall(struct.pack(">i", 100_000_000) + begun)
        assert have_arrived(GROWING * len(begun))
        broker.call(broker.loop.measure_anew)
        send_together(broker, clients, [more] * GROWING)
        assert have_arrived(GROWING * (len(begun) + len(more)))
        broker.ask(ApiKey.API_VERSIONS, 0)
    assert longest_s() < LONGEST_S * _slowness()


# These are decided as a whole.
AT_ONCE = {
    "delete offsets",
    "find coordinators",
    "list groups in many states",
    "list transactions in many states",
    "fetch offsets",
    "create a topic of many assignments",
    "create partitions of many assignments",
    "create topics, too many",
    "describe configs, often",
    "describe many keys",
    "metadata in few bytes",
    "metadata of the same wide topic",
    "produce nothing",
}


@pytest.mark.parametrize("what", [what for what in REQUESTS if what not in AT_ONCE])
def test_the_work_stops_when_its_client_has_gone(
    broker: RunningBroker, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, version, _, fields = REQUESTS[what]
    override(monkeypatch, "horolog.broker", SLICE_SECONDS=0.0)
    taken: list[None] = []
    take_turn = turns.next_turn

    async def leave_and_take_turn() -> None:
        taken.append(None)
        if len(taken) == 1:
            many.socket.close()
            while broker.service.connections:
                await asyncio.sleep(0.001)
        await take_turn()

    assert eventually(lambda: not broker.service.connections)
    monkeypatch.setattr(turns, "next_turn", leave_and_take_turn)
    with broker.connect() as many:
        many.socket.sendall(many.packed(key, version, fields(1_200)))
        assert eventually(lambda: bool(taken))
        assert eventually(lambda: not broker.service.requests_in_flight)
    assert len(taken) == 1


def test_topics_are_no_longer_created_for_a_client_that_has_gone(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    with broker.connect() as many:
        asked = names(9_000)
        many.send(ApiKey.METADATA, 9, topics=[{"name": name} for name in asked])
        assert eventually(lambda: len(broker.broker.topics) > 10)
    assert eventually(lambda: not broker.service.requests_in_flight)
    assert len(broker.broker.topics) < len(asked)


def new_topics(*counts: int) -> list[dict[str, Any]]:
    return [{"name": f"n{n}", "num_partitions": count} for n, count in enumerate(counts)]


def test_one_request_creates_only_so_many_partitions(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In all, whatever they are created for; ten thousand, as in Kafka."""
    assert topics.MAX_NEW_PARTITIONS == 10_000
    override(monkeypatch, "horolog.metadata", MAX_NEW_PARTITIONS=10)
    broker = make_broker(num_partitions="4")
    too_many = ErrorCode.policy_violation
    with broker.connect() as connection:
        wish = {}
        created = connection.ask(ApiKey.CREATE_TOPICS, 4, topics=new_topics(4, 4, -1), **wish)
        assert [topic.error_code for topic in created.topics] == [too_many] * 3
        assert "Excessively large number" in created.topics[0].error_message
        created = connection.ask(ApiKey.CREATE_TOPICS, 4, topics=new_topics(2, 2, -1), **wish)
        assert [topic.error_code for topic in created.topics] == [0] * 3
        grown = connection.ask(
            ApiKey.CREATE_PARTITIONS,
            1,
            topics=[{"name": name, "count": 8} for name in ("n0", "n1")],
            **wish,
        )
        assert [topic.error_code for topic in grown.results] == [0, too_many]
        found = connection.ask(ApiKey.METADATA, 9, topics=[{"name": name} for name in "abc"])
        made = ErrorCode.unknown_topic_or_partition  # as of Kafka, once
        assert [topic.error_code for topic in found.topics] == [made, made, too_many]
