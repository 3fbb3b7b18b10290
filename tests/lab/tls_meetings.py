"""What clients with and without certificates meet on listeners with TLS, as at Apache Kafka."""

import ssl
from collections.abc import Iterator
from typing import NamedTuple

import rights_matrix as matrix
from certificates import PASSWORD, Certificates, client_context
from raw_connection import RawConnection

from horolog.wire import ApiKey

SECURED = {
    "TLS": "SSL",
    "ASKED": "SSL",
    "MAPPED": "SSL",
    "LOGIN": "SASL_SSL",
    "BOTH": "SASL_SSL",
}
LISTENERS = {
    "listeners": ",".join(f"{name}://127.0.0.1:0" for name in SECURED),
    "listener.security.protocol.map": ",".join(f"{name}:{it}" for name, it in SECURED.items()),
}
"""These listeners at a broker of ours."""
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
IN_HANDSHAKE, AT_FIRST_READ = "refused in the handshake", "refused at the first read"
SUPER, WITHOUT_RIGHTS = 3, 29
"""Errors of a topic that is not there."""


def secured_settings(certificates: Certificates) -> dict[str, str]:
    """Settings of either broker. Only the administrator and who is nobody have rights."""
    trusted = {
        f"listener.name.{name}.ssl.truststore.{key}": value
        for name in ("asked", "mapped", "both")
        for key, value in {
            "type": "PKCS12",
            "location": str(certificates.trusted_p12),
            "password": PASSWORD,
        }.items()
    }
    logins = {
        f"listener.name.{name}.{key}": value
        for name in ("login", "both")
        for key, value in {
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": matrix.jaas(1),
        }.items()
    }
    return {
        "authorizer.class.name": matrix.AUTHORIZER,
        "super.users": f"User:ANONYMOUS;User:{matrix.ADMIN}",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(certificates.p12("broker")),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.client.auth": "required",
        "listener.name.tls.ssl.client.auth": "none",
        "listener.name.asked.ssl.client.auth": "requested",
        "listener.name.mapped.ssl.principal.mapping.rules": "RULE:^CN=nobody$/nobody/",
        "listener.name.both.ssl.client.auth": "required",
        **trusted,
        **logins,
    }


def _told(address: str, context: ssl.SSLContext, *, logs_in: bool) -> str | int:
    """Where a client is refused, or the error of a topic that is not there: 3, or 29 by rights."""
    try:
        connection = RawConnection(address, tls=context)
    except OSError:
        return IN_HANDSHAKE
    with connection:
        try:
            if logs_in:
                matrix.login(connection, matrix.ADMIN)
            topics = [{"name": "none"}]
            answer = connection.ask(
                ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=False
            )
        except OSError:
            return AT_FIRST_READ
        return int(answer.topics[0].error_code)


class Meeting(NamedTuple):
    """What a client does, and what it meets."""

    version: str
    listener: str
    shown: str
    """The certificate: none, one of the authority, or another's."""
    told: str | int


def meetings(
    addresses: dict[str, str], ours: Certificates, others: Certificates
) -> Iterator[Meeting]:
    """Yield what each client meets."""
    for version, newest in VERSIONS.items():
        stranger = client_context(ours, newest=newest)
        stranger.load_cert_chain(others.pem("client"))
        contexts = {
            "none": client_context(ours, newest=newest),
            "client": client_context(ours, "client", newest=newest),
            "stranger": stranger,
        }
        for listener, protocol in SECURED.items():
            for shown, context in contexts.items():
                logs_in = protocol == "SASL_SSL"
                told = _told(addresses[listener], context, logs_in=logs_in)
                yield Meeting(version, listener, shown, told)


def as_at_kafka() -> Iterator[Meeting]:
    """Yield what each client meets at Apache Kafka.

    A refused certificate is seen in the handshake of TLS 1.2, and in 1.3 only by who reads. A name
    that no rule fits ends the connection behind the handshake. Where clients log in, only the
    listener's own setting asks for a certificate, and the login is the principal.
    """
    for version in VERSIONS:
        refused = IN_HANDSHAKE if version == "1.2" else AT_FIRST_READ
        told: dict[str, tuple[str | int, ...]] = {
            "TLS": (SUPER, SUPER, SUPER),
            "ASKED": (SUPER, WITHOUT_RIGHTS, refused),
            "MAPPED": (refused, AT_FIRST_READ, refused),
            "LOGIN": (SUPER, SUPER, SUPER),
            "BOTH": (refused, SUPER, refused),
        }
        for listener, by_shown in told.items():
            for shown, one in zip(("none", "client", "stranger"), by_shown, strict=True):
                yield Meeting(version, listener, shown, one)
