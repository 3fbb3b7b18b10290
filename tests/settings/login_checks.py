"""For every broker setting about logins and rights, the difference it makes."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import rights_matrix as matrix
from patience import eventually
from setting_checks import REFUSED, of_broker
from settings_lab import BROKER, Lab

from horolog.client import ResourceType
from horolog.wire import ApiKey

LISTENER = {
    "listeners": f"{matrix.LISTENER}://127.0.0.1:0",
    "listener.security.protocol.map": f"{matrix.LISTENER}:SASL_PLAINTEXT",
    "listener.name.users.plain.sasl.jaas.config": matrix.jaas(1),
}
PLAIN = {**LISTENER, "sasl.enabled.mechanisms": "PLAIN"}


_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


@of_broker(
    "config.providers",
    {"env": "127.0.0.1", "vault": REFUSED},
    beside={"config.providers.env.class": _PROVIDER},
)
def address_where_values_may_come_from_a_provider(lab: Lab) -> str:
    return lab.broker.bound[0].host


_DIRECTORY = TemporaryDirectory(prefix="login-checks-")  # until the process ends


@of_broker(
    "horolog.audit.log",
    {f"{_DIRECTORY.name}/audit.log": True, f"{_DIRECTORY.name}/none/audit.log": REFUSED},
)
def whether_a_change_is_in_the_file_of_the_audit(lab: Lab) -> bool:
    logger, level = (ResourceType.BROKER_LOGGER, BROKER), "horolog.broker.changes"
    lab.client.alter_configs({logger: {level: "INFO"}})
    lab.client.alter_configs({logger: {level: None}})
    file = Path(lab.broker.broker.config.horolog_audit_log)
    return eventually(lambda: f"set {level} of broker logger 1 to 'INFO'" in file.read_text())


@of_broker(
    "sasl.enabled.mechanisms",
    {"PLAIN": ["PLAIN"], "SCRAM-SHA-512": ["SCRAM-SHA-512"], "GSSAPI": REFUSED},
    beside=LISTENER,
)
def mechanisms_that_a_client_is_told(lab: Lab) -> list[str]:
    with lab.connect() as connection:
        return list(connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="none").mechanisms)


@of_broker("connection.failed.authentication.delay.ms", {"0": False, "300": True}, beside=PLAIN)
def whether_a_failed_login_is_answered_late(lab: Lab) -> bool:
    with lab.connect() as connection:
        connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        begun = time.monotonic()
        connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0a\0b")
        return time.monotonic() - begun > 0.25


@of_broker("connections.max.reauth.ms", {"0": 0, "60000": 60_000}, beside=PLAIN)
def how_long_a_login_lasts_in_milliseconds(lab: Lab) -> int:
    with lab.connect() as connection:
        connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        message = f"\0{matrix.ADMIN}\0{matrix.PASSWORD(matrix.ADMIN)}".encode()
        answer = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        return int(answer.session_lifetime_ms)


@of_broker("sasl.server.max.receive.size", {"524288": True, "100": False}, beside=PLAIN)
def whether_a_long_message_is_read(lab: Lab) -> bool:
    with lab.connect() as connection:
        connection.send(ApiKey.SASL_HANDSHAKE, 1, mechanism="x" * 200)
        try:
            connection.receive()
        except ConnectionError:
            return False
        return True


@of_broker("horolog.login.timeout.ms", {"1": True, "600000": False}, beside=PLAIN)
def whether_a_silent_client_is_closed_soon(lab: Lab) -> bool:
    with lab.connect() as connection:
        return not connection.is_silent(lab.soon_s)


@of_broker("horolog.connections.without.login", {"1": 1, "2": 2}, beside=PLAIN)
def how_many_silent_clients_stay(lab: Lab) -> int:
    connections = [lab.connect() for _ in range(3)]
    try:
        least = lambda: len(lab.broker.service.connections) < 3  # noqa: E731
        assert eventually(least)
        time.sleep(lab.soon_s / 4)
        return len(lab.broker.service.connections)
    finally:
        for connection in connections:
            connection.socket.close()


@of_broker(
    "authorizer.class.name",
    {"": 0, matrix.AUTHORIZER: 29, "com.example.Authorizer": REFUSED},
)
def error_of_a_topic_without_a_right(lab: Lab) -> object:
    with lab.connect() as connection:
        topics = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        return connection.ask(ApiKey.CREATE_TOPICS, 7, topics=topics).topics[0].error_code


@of_broker(
    "super.users",
    {"": 29, "User:root;User:ANONYMOUS": 0, "root": REFUSED},
    beside={"authorizer.class.name": matrix.AUTHORIZER},
)
def error_of_a_topic_of_an_anonymous_client(lab: Lab) -> object:
    return error_of_a_topic_without_a_right(lab)


@of_broker(
    "allow.everyone.if.no.acl.found",
    {"false": 29, "true": 0},
    beside={"authorizer.class.name": matrix.AUTHORIZER},
)
def error_of_a_topic_without_entries(lab: Lab) -> object:
    return error_of_a_topic_without_a_right(lab)
