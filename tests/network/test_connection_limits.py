"""Limits on connections, of all and of a listener: who is over them waits to be accepted."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from certificates import Certificates, client_context
from metrics_page import scrape
from overrides import override
from patience import eventually
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker

from horolog.client import ResourceType
from horolog.config import Settings
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.wire import ApiKey

TWO = {
    "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
    "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
}
WAIT_S = 0.3


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(stack: ExitStack, broker: RunningBroker, listener: str, **more: Any) -> RawConnection:
    (at,) = (it for it in broker.bound if it.name == listener)
    return stack.enter_context(RawConnection(f"{at.host}:{at.port}", **more))


def is_served(connection: RawConnection) -> bool:
    return bool(connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0)


def waits(connection: RawConnection) -> bool:
    connection.send(ApiKey.API_VERSIONS, 0)
    return connection.is_silent(WAIT_S)


def test_a_listener_serves_as_many_as_its_limit_and_others_wait_for_a_place(
    make_broker: MakeBroker, stack: ExitStack
) -> None:
    broker = make_broker(**TWO, listener_name_a_max_connections="2", horolog_metrics_port="0")
    first, second, third = (connect(stack, broker, "A") for _ in range(3))
    assert is_served(first)
    assert is_served(second)
    assert waits(third)
    assert is_served(connect(stack, broker, "B"))
    page = scrape(broker)
    count, limit = (
        "kafka_server_socket_server_metrics_connection_count",
        "horolog_connections_limit",
    )
    assert (page.value(count, listener="A"), page.value(count, listener="B")) == (2, 1)
    assert (page.value(count), page.value(limit, listener="A")) == (3, 2)
    first.socket.close()
    assert third.receive()[1].error_code == 0


def test_why_clients_wait_is_logged_once_a_minute_also_at_two_listeners(
    make_broker: MakeBroker, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    most = {f"listener_name_{name}_max_connections": "1" for name in "ab"}
    broker = make_broker(**TWO, **most)
    served = {name: connect(stack, broker, name) for name in "AB"}
    for name in "ABABAB":
        assert is_served(served[name])
        next_one = connect(stack, broker, name)
        assert waits(next_one)
        served[name].socket.close()
        next_one.receive()
        served[name] = next_one
    for name in "AB":
        assert caplog.text.count(f"the listener {name} has 1 connections") == 1


def test_many_that_come_at_once_do_not_get_over_the_limit(
    make_broker: MakeBroker, stack: ExitStack
) -> None:
    broker = make_broker(**TWO, listener_name_a_max_connections="5", max_connections="7")
    for _ in range(40):
        connect(stack, broker, "A")
        connect(stack, broker, "B")
    assert eventually(lambda: len(broker.service.connections) == 7)
    assert not eventually(lambda: len(broker.service.connections) > 7, WAIT_S)
    of_a = sum(it.peer.listener.name == "A" for it in broker.service.connections)
    assert of_a <= 5


def test_places_of_handshakes_count_and_come_back(
    make_broker: MakeBroker, stack: ExitStack, certificates: Certificates
) -> None:
    broker = make_broker(
        listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(certificates.pem("broker")),
        listener_name_ssl_max_connections="2",
    )
    context = client_context(certificates)
    for _ in range(3):  # a place that is lost would be missing at the second time
        stalled = [connect(stack, broker, "SSL") for _ in range(2)]
        assert eventually(lambda: broker.service.server.limits.open["SSL"] == 2)
        stalled[0].socket.close()
        third = connect(stack, broker, "SSL", tls=context)
        assert third.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        stalled[1].socket.sendall(b"no handshake at all")
        fourth = connect(stack, broker, "SSL", tls=context)
        assert fourth.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        third.socket.close()
        fourth.socket.close()
        assert eventually(lambda: broker.service.server.limits.open["SSL"] == 0)


def test_the_listener_between_brokers_closes_who_was_idle_longest_elsewhere(
    make_broker: MakeBroker, stack: ExitStack
) -> None:
    broker = make_broker(**TWO, inter_broker_listener_name="B", max_connections="3")
    idle, busy, other = (connect(stack, broker, "A") for _ in range(3))
    assert all(is_served(it) for it in (idle, busy, other))
    assert is_served(busy)
    assert is_served(other)
    assert is_served(connect(stack, broker, "B"))
    assert idle.is_closed()
    assert is_served(busy)
    assert waits(connect(stack, broker, "A"))


def test_each_of_several_brokers_that_come_at_once_closes_another_connection(
    make_broker: MakeBroker, stack: ExitStack
) -> None:
    broker = make_broker(**TWO, inter_broker_listener_name="A", max_connections="5")
    others = [connect(stack, broker, "B") for _ in range(5)]
    assert all(map(is_served, others))
    brokers: list[RawConnection] = []

    async def come_at_once() -> None:
        brokers.extend(connect(stack, broker, "A") for _ in range(4))

    broker.run(come_at_once())
    assert all(map(is_served, brokers))
    assert broker.service.server.limits.open == {"A": 4, "B": 1}


def test_limits_of_a_listener_change_while_it_runs(
    make_broker: MakeBroker, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.network", SWEEP_SECONDS=3_600)
    broker = make_broker(**TWO)

    def alter(limit: str | None, resource: str = "1") -> None:
        name = "listener.name.b.max.connections"
        broker.client.alter_configs({(ResourceType.BROKER, resource): {name: limit}})

    alter("1", "")  # for all brokers, as in Kafka
    first, second = (connect(stack, broker, "B") for _ in range(2))
    assert is_served(first)
    assert waits(second)
    alter("2")
    assert second.receive()[1].error_code == 0
    third = connect(stack, broker, "B")
    assert waits(third)
    alter(None)
    alter(None, "")
    assert third.receive()[1].error_code == 0
    for value in ("0", "-1", "x"):
        with pytest.raises(RequestRefused) as refused:
            alter(value)
        assert refused.value.code is ErrorCode.invalid_request


def test_a_rate_of_a_listener_holds_up_that_listener_alone(
    make_broker: MakeBroker, stack: ExitStack
) -> None:
    broker = make_broker(
        **TWO, listener_name_a_max_connection_creation_rate="1", quota_window_num="2"
    )
    connections = [connect(stack, broker, "A") for _ in range(4)]
    assert is_served(connections[0])
    assert waits(connections[3])
    assert all(is_served(connect(stack, broker, "B")) for _ in range(8))
    assert connections[3].receive()[1].error_code == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"listener.name.a.max.connections": "0"}, "allowed is an int, at least 1"),
        ({"listener.name.a.max.connection.creation.rate": "0"}, "allowed is an int, at least 1"),
        ({"inter.broker.listener.name": "C"}, r"not found in listener\.security\.protocol\.map"),
        ({"inter.broker.listener.name": "SSL"}, "valid options .* are A,B"),
        ({"security.inter.broker.protocol": "SSL"}, "valid options .* are A,B"),
        (
            {"inter.broker.listener.name": "A", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and",
        ),
        ({"early.start.listeners": "A,C"}, "contains listener C, but this is not contained"),
        (
            {
                "listener.security.protocol.map": "A:SASL_PLAINTEXT,B:PLAINTEXT",
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "inter.broker.listener.name": "a",
            },
            "must be included in sasl.enabled.mechanisms .* it is GSSAPI",
        ),
    ],
)
def test_what_kafka_refuses_of_listeners_is_refused(given: dict[str, str], words: str) -> None:
    names = {name.replace("_", "."): value for name, value in TWO.items()}
    names["listener.security.protocol.map"] += ",SSL:SSL"
    with pytest.raises(Misconfigured, match=words):
        Settings({**names, **given}).broker_config()


def test_settings_between_brokers_are_accepted_as_in_a_kafkas_file() -> None:
    config = Settings(
        {
            "process.roles": "broker,controller",
            "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2,CONTROLLER://127.0.0.1:3",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": (
                "IN:SASL_PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "IN",
            "early.start.listeners": "CONTROLLER, IN",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.in.num.network.threads": "3",
        }
    ).broker_config()
    assert config.inter_broker_listener_name == "IN"
