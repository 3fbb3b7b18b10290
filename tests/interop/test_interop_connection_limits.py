"""Limits on connections as Apache Kafka has them: who waits, who is served, what is refused."""

from contextlib import ExitStack
from typing import Any

from raw_connection import RawConnection
from running_broker import MakeBroker
from tools.peers.kafka import Kafka

from horolog.wire import ApiKey

WAIT_S = 2.0
LIMIT, RATE = "listener.name.a.max.connections", "listener.name.a.max.connection.creation.rate"


def is_served(connection: RawConnection) -> bool:
    connection.send(ApiKey.API_VERSIONS, 0)
    return not connection.is_silent(WAIT_S) and bool(connection.receive())


def alter(connection: RawConnection, broker: str, name: str, value: str | None) -> int:
    config = {"name": name, "config_operation": 0 if value else 1, "value": value}
    resource = {"resource_type": 4, "resource_name": broker, "configs": [config]}
    (answer,) = connection.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    ).responses
    return int(answer.error_code)


def seen(main: str, a: str, b: str) -> dict[str, Any]:
    """What clients of three listeners see: that between brokers, and two others."""
    with ExitStack() as stack:

        def connect(address: str) -> RawConnection:
            return stack.enter_context(RawConnection(address))

        admin = connect(main)
        first, second, third = (connect(a) for _ in range(3))
        found: dict[str, Any] = {
            "beyond a listener's limit": [is_served(it) for it in (first, second, third)],
            "of another listener": is_served(connect(b)),
        }
        first.socket.close()
        found["after one has gone"] = bool(third.receive())
        found["limit for all brokers"] = alter(admin, "", LIMIT, "3")
        found["after it was raised"] = connect(a).ask(ApiKey.API_VERSIONS, 0).error_code
        found["refused"] = [alter(admin, "1", LIMIT, value) for value in ("0", "-1", "x")]
        found["refused rates"] = [alter(admin, "1", RATE, value) for value in ("0", "-1")]
        found["limit of the broker"] = alter(admin, "", "max.connections", "5")  # as there are
        while is_served(waiting := connect(b)):
            pass  # Kafka answers before it obeys
        found["between brokers"] = is_served(connect(main))
        found["limit again"] = alter(admin, "", "max.connections", "50")
        found["once there is room"] = bool(waiting.receive())
        return found


def test_limits_are_kafkas(make_broker: MakeBroker) -> None:
    settings = {LIMIT: "2"}
    listeners = {"A": "PLAINTEXT", "B": "PLAINTEXT"}
    with Kafka(settings=settings, listeners=listeners) as kafka:
        theirs = seen(kafka.bootstrap, kafka.address_of("A"), kafka.address_of("B"))
    ours = make_broker(
        listeners=",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "A", "B")),
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT",
        **settings,
    )
    assert seen(*(f"127.0.0.1:{endpoint.port}" for endpoint in ours.bound)) == theirs
