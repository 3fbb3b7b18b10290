"""For every broker setting about addresses, connections and requests, the difference it makes."""

import socket
import threading
from contextlib import ExitStack
from typing import Any

from metrics_page import scrape
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection, fetch_fields, produce_fields
from setting_checks import REFUSED, of_broker
from settings_lab import Lab

from horolog.network import BEGIN_AFTER, worth_polling_s
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

ANY_PORT = "127.0.0.1:0"


# --- who answers, and where -----------------------------------------------------------------


@of_broker(
    "listeners",
    {
        f"PLAINTEXT://{ANY_PORT}": ["127.0.0.1"],
        "PLAINTEXT://[::1]:0": ["::1"],
        f"PLAINTEXT://{ANY_PORT},PLAINTEXT://[::1]:0": ["127.0.0.1", "::1"],
    },
)
def hosts_that_answer(lab: Lab) -> list[str]:
    hosts = []
    for endpoint in lab.broker.bound:
        with RawConnection(f"{endpoint.host}:{endpoint.port}") as connection:
            assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0
            hosts.append(endpoint.host)
    return hosts


@of_broker(
    "advertised.listeners",
    {
        "PLAINTEXT://kafka.example:9999": ("kafka.example", 9999),
        "PLAINTEXT://other.example:9998": ("other.example", 9998),
    },
)
def address_that_clients_are_told(lab: Lab) -> tuple[str, int]:
    (broker,) = _metadata(lab).brokers
    return broker.host, broker.port


@of_broker(
    "listener.security.protocol.map",
    {"INSIDE:PLAINTEXT": True, "INSIDE:SSL": REFUSED, "OUTSIDE:PLAINTEXT": REFUSED},
    beside={"listeners": f"INSIDE://{ANY_PORT}"},
)
def whether_a_listener_of_a_name_of_its_own_answers(lab: Lab) -> bool:
    return len(_metadata(lab).brokers) == 1


@of_broker("node.id", {"7": (7, 7, 7), "8": (8, 8, 8)})
def number_of_the_broker(lab: Lab) -> tuple[int, int, int]:
    """As a broker, as the controller, and as the coordinator of a group."""
    metadata = _metadata(lab)
    with lab.connect() as connection:
        asked = {"key": "g", "key_type": 0}
        connection.socket.sendall(connection.packed(ApiKey.FIND_COORDINATOR, 2, asked))
        _, coordinator = connection.receive()
    return metadata.brokers[0].node_id, metadata.controller_id, coordinator.node_id


@of_broker("broker.id", {"7": (7, 7, 7), "8": (8, 8, 8), "-1": (1, 1, 1)})
def number_of_a_broker_without_a_node_id(lab: Lab) -> tuple[int, int, int]:
    return number_of_the_broker(lab)


_SOME_CLUSTER, _ANOTHER = "wgPH0HbHQdafz7FRtFo3PQ", "M8SSPQDOTm2d2SYLW6hN8g"


@of_broker("horolog.cluster.id", {each: each for each in (_SOME_CLUSTER, _ANOTHER)})
def id_of_the_cluster_of_a_new_directory(lab: Lab) -> str | None:
    return _metadata(lab).cluster_id


@of_broker("broker.rack", {"east": "east", "west": "west"})
def rack_that_clients_are_told(lab: Lab) -> str | None:
    (broker,) = _metadata(lab).brokers
    rack: str | None = broker.rack
    return rack


def _metadata(lab: Lab) -> Any:
    with lab.connect() as connection:
        return connection.ask(ApiKey.METADATA, 9, topics=[])


# --- sockets --------------------------------------------------------------------------------


@of_broker("socket.listen.backlog.size", {"1": False, "50": True})
def whether_ten_can_connect_while_the_broker_is_busy(lab: Lab) -> bool:
    """One after the other: of ten at once, a kernel under load lets in more than it was told."""
    is_busy, go_on = threading.Event(), threading.Event()

    def be_busy() -> None:
        is_busy.set()
        go_on.wait(PATIENCE_S)

    lab.broker.loop.call_soon_threadsafe(be_busy)
    assert is_busy.wait(PATIENCE_S)
    with ExitStack() as waiting:
        waiting.callback(go_on.set)
        address = "127.0.0.1", lab.broker.port
        try:
            for _ in range(10):
                waiting.enter_context(socket.create_connection(address, lab.soon_s))
        except TimeoutError:
            return False
        return True


def _as_the_system_has_it(option: int, size: int) -> int:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, option, size)
        return one.getsockopt(socket.SOL_SOCKET, option)


def _of_an_accepted_connection(lab: Lab, option: int) -> int:
    with lab.connect() as connection:
        connection.ask(ApiKey.API_VERSIONS, 0)
        (accepted,) = lab.broker.service.connections
        assert accepted.transport is not None
        size: int = accepted.transport.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, option
        )
        return size


@of_broker(
    "socket.send.buffer.bytes",
    {size: _as_the_system_has_it(socket.SO_SNDBUF, int(size)) for size in ("20000", "60000")},
)
def send_buffer(lab: Lab) -> int:
    return _of_an_accepted_connection(lab, socket.SO_SNDBUF)


@of_broker(
    "socket.receive.buffer.bytes",
    {size: _as_the_system_has_it(socket.SO_RCVBUF, int(size)) for size in ("20000", "60000")},
)
def receive_buffer(lab: Lab) -> int:
    return _of_an_accepted_connection(lab, socket.SO_RCVBUF)


@of_broker("horolog.busy.poll.us", {"0": False, "10000": worth_polling_s(10_000) > 0})
def whether_the_event_loop_polls_for_the_next_of_many_requests(lab: Lab) -> bool:
    polling = lab.broker.service.server.shared.polling
    seen = False
    with lab.connect() as connection:
        for _ in range(10 * BEGIN_AFTER):
            assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0
            seen = seen or polling.is_polling
    assert eventually(lambda: not polling.is_polling)  # it ends by itself
    return seen


_TAKEN = socket.create_server(("127.0.0.1", 0))


@of_broker("horolog.metrics.port", {"0": True, str(_TAKEN.getsockname()[1]): REFUSED})
def whether_metrics_are_served(lab: Lab) -> bool:
    metrics = scrape(lab.broker)
    return metrics.value("kafka_server_replicamanager_partitioncount") == 0


@of_broker(
    "horolog.metrics.host",
    {"127.0.0.1": "127.0.0.1", "127.0.0.2": "127.0.0.2", "256.0.0.1": REFUSED},
    beside={"horolog.metrics.port": "0"},
)
def address_on_which_metrics_are_served(lab: Lab) -> str:
    assert scrape(lab.broker)
    assert lab.broker.service.metrics is not None
    return lab.broker.service.metrics.address.partition(":")[0]


# --- limits ---------------------------------------------------------------------------------

_REQUEST_BYTES = 300_000  # more than is received at once, so that it waits for its turn


def _request(connection: RawConnection) -> bytes:
    """A request to produce that has exactly this many bytes, its length apart."""
    value, size = 200_000, 0
    while size != _REQUEST_BYTES:
        value += _REQUEST_BYTES - size if size else 0
        batch = build_batch([LogRecord(-1, None, b"x" * value)])
        packed = connection.packed(ApiKey.PRODUCE, 8, produce_fields("t", {0: batch}))
        size = len(packed) - 4
    return packed


@of_broker("socket.request.max.bytes", {str(_REQUEST_BYTES): True, str(_REQUEST_BYTES - 1): False})
def whether_a_request_is_read(lab: Lab) -> bool:
    lab.topic("t")
    with lab.connect() as connection:
        connection.socket.sendall(_request(connection))
        try:
            return bool(connection.receive()[1].responses)
        except ConnectionResetError:
            return False


@of_broker("queued.max.request.bytes", {"400000": False, "700000": True, "-1": True})
def whether_a_request_is_read_beside_one_that_is_not_whole(lab: Lab) -> bool:
    return _is_read_beside(lab, _REQUEST_BYTES)


@of_broker("horolog.max.buffered.bytes", {"1048576": False, "3000000": True})
def whether_a_request_is_read_beside_a_large_one_that_is_not_whole(lab: Lab) -> bool:
    return _is_read_beside(lab, 1_000_000)


def _is_read_beside(lab: Lab, size: int) -> bool:
    lab.topic("t")
    large = build_batch([LogRecord(-1, None, b"x" * size)])
    with lab.connect() as first, lab.connect() as second:
        request = first.packed(ApiKey.PRODUCE, 8, produce_fields("t", {0: large}))
        first.socket.sendall(request[:-1])
        assert eventually(lambda: lab.broker.service.budget.used > size)
        second.socket.sendall(_request(second))
        is_read = not second.is_silent(lab.soon_s)
        # Nothing is lost: the first is finished, and then the second is answered too.
        first.socket.sendall(request[-1:])
        for connection in (first, second):
            (topic,) = connection.receive()[1].responses
            assert topic.partition_responses[0].error_code == 0
        return is_read


@of_broker("connections.max.idle.ms", {"100": True, "600000": False, "-1": False})
def whether_a_silent_connection_is_closed(lab: Lab) -> bool:
    with lab.connect() as connection:
        try:
            assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        except ConnectionResetError:  # this machine was silent that long
            return True
        return not connection.is_silent(lab.soon_s) and connection.is_closed()


@of_broker("max.connections", {"1": 1, "2": 2, "2147483647": 3})
def connections_served_at_once(lab: Lab) -> int:
    return _served_at_once(lab)


@of_broker("max.connections.per.ip", {"1": 1, "2": 2, "2147483647": 3})
def connections_served_at_once_from_one_address(lab: Lab) -> int:
    return _served_at_once(lab)


@of_broker(
    "max.connections.per.ip.overrides",
    {"127.0.0.1:1": 1, "10.0.0.1:1": 3, "10.0.0.1:1,127.0.0.1:2": 2},
)
def connections_served_at_once_from_an_address_of_its_own_limit(lab: Lab) -> int:
    return _served_at_once(lab)


def _served_at_once(lab: Lab) -> int:
    """Of three."""
    lab.hang_up()
    with ExitStack() as stack:
        connections = [stack.enter_context(lab.connect()) for _ in range(3)]
        return sum(_is_served(lab, connection) for connection in connections)


def _is_served(lab: Lab, connection: RawConnection) -> bool:
    """Whether a request is answered: others wait to be accepted, or are closed."""
    try:
        connection.send(ApiKey.API_VERSIONS, 0)
        return not connection.is_silent(lab.soon_s) and bool(connection.receive())
    except OSError:
        return False


def _is_served_besides(lab: Lab) -> bool:
    """Whether the last listener serves a client while the first one's has the only place."""
    lab.hang_up()
    first, last = (f"{it.host}:{it.port}" for it in lab.broker.bound)
    with RawConnection(first) as connection:
        assert _is_served(lab, connection)
        with RawConnection(last) as other:
            return _is_served(lab, other)


@of_broker(
    "inter.broker.listener.name",
    {"B": True, "A": False, "C": REFUSED},
    beside={
        "listeners": f"A://{ANY_PORT},B://{ANY_PORT}",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
        "max.connections": "1",
    },
)
def whether_one_listener_has_no_limit_of_the_broker(lab: Lab) -> bool:
    return _is_served_besides(lab)


@of_broker(
    "security.inter.broker.protocol",
    {"SASL_PLAINTEXT": True, "PLAINTEXT": False, "SSL": REFUSED},
    beside={
        "listeners": f"PLAINTEXT://{ANY_PORT},SASL_PLAINTEXT://{ANY_PORT}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "max.connections": "1",
    },
)
def whether_the_listener_of_a_protocol_has_no_limit_of_the_broker(lab: Lab) -> bool:
    return _is_served_besides(lab)


@of_broker("fetch.max.bytes", {"1024": 1024, "2000": 2000, "57671680": 2913})
def bytes_of_a_fetch_that_would_take_more(lab: Lab) -> int:
    trial = lab.topic("t")
    for _ in range(3):
        trial.put_at(trial.now_ms, b"x" * 900)
    with lab.connect() as connection:
        answer = connection.ask(ApiKey.FETCH, 11, **fetch_fields("t", {0: 0}))
    return len(answer.responses[0].partitions[0].records)


@of_broker("max.request.partition.size.limit", {"1": 1, "2": 2, "2000": 3})
def partitions_in_a_page_of_their_descriptions(lab: Lab) -> int:
    for name in "tuv":
        lab.topic(name)
    with lab.connect() as connection:
        answer = connection.ask(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, response_partition_limit=2000, cursor=None
        )
    return sum(len(topic.partitions) for topic in answer.topics)


@of_broker("max.incremental.fetch.session.cache.slots", {"0": 0, "2": 2, "1000": 3})
def fetch_sessions_of_three_clients(lab: Lab) -> int:
    lab.topic("t")
    fields = fetch_fields("t", {0: 0}, session_epoch=0)
    with lab.connect() as connection:
        answers = [connection.ask(ApiKey.FETCH, 11, **fields) for _ in range(3)]
    return sum(answer.session_id != 0 for answer in answers)
