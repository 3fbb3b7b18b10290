"""Security settings of Kafka's clients: the obeyed ones, and the ones refused by name.

The names, defaults and rules are those of Kafka's Java clients (SslConfigs and SaslConfigs of
Apache Kafka 4). This is their only table: commands and the Spark source pass settings on unchanged.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from horolog.errors import Misconfigured
from horolog.security.jaas import parse_jaas
from horolog.security.stores import Hidden, check_stores

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


OBEYED_SETTINGS: Final = _names(
    """
    security.protocol
    ssl.enabled.protocols
    ssl.endpoint.identification.algorithm
    ssl.key.password
    ssl.keystore.certificate.chain
    ssl.keystore.key
    ssl.keystore.location
    ssl.keystore.password
    ssl.keystore.type
    ssl.protocol
    ssl.truststore.certificates
    ssl.truststore.location
    ssl.truststore.password
    ssl.truststore.type
    sasl.jaas.config
    sasl.login.callback.handler.class
    sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms
    sasl.mechanism
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.scope
    sasl.oauthbearer.token.endpoint.url
    """
)
# Machinery of the JVM, logins that this client does not hold open, and how a server checks tokens.
_WITHOUT_EFFECT: Final = _names(
    """
    ssl.keymanager.algorithm
    ssl.provider
    ssl.secure.random.implementation
    ssl.trustmanager.algorithm
    sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin
    sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor
    sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter
    sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name
    """
)
_REFUSED: Final = {
    name: reason
    for reason, names in {
        "the suites are those of the system's OpenSSL": "ssl.cipher.suites",
        "it names a class of the JVM, which this client does not run": """
            ssl.engine.factory.class
            sasl.client.callback.handler.class
            sasl.login.class
            """,
        "tokens are asked for with client credentials only, not with an assertion": """
            sasl.oauthbearer.assertion.algorithm
            sasl.oauthbearer.assertion.claim.aud
            sasl.oauthbearer.assertion.claim.exp.seconds
            sasl.oauthbearer.assertion.claim.iss
            sasl.oauthbearer.assertion.claim.jti.include
            sasl.oauthbearer.assertion.claim.nbf.seconds
            sasl.oauthbearer.assertion.claim.sub
            sasl.oauthbearer.assertion.file
            sasl.oauthbearer.assertion.private.key.file
            sasl.oauthbearer.assertion.private.key.passphrase
            sasl.oauthbearer.assertion.template.file
            """,
    }.items()
    for name in _names(names)
}
# As librdkafka and its bindings call them.
_OF_LIBRDKAFKA: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.password": "sasl.jaas.config",
    "sasl.username": "sasl.jaas.config",
    "ssl.ca.location": "ssl.truststore.location with ssl.truststore.type=PEM",
    "ssl.ca.pem": "ssl.truststore.certificates with ssl.truststore.type=PEM",
    "ssl.certificate.location": "ssl.keystore.location with ssl.keystore.type=PEM",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain with ssl.keystore.type=PEM",
    "ssl.key.location": "ssl.keystore.location with ssl.keystore.type=PEM",
    "ssl.key.pem": "ssl.keystore.key with ssl.keystore.type=PEM",
}

SECURITY_SETTINGS: Final = OBEYED_SETTINGS | _WITHOUT_EFFECT | _REFUSED.keys()
"""Every security setting that Kafka's Java clients have."""

# The URL of a token endpoint may have a password or a key in it.
_SECRET: Final = _names(
    """
    sasl.jaas.config
    sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.token.endpoint.url
    ssl.key.password
    ssl.keystore.key
    ssl.keystore.password
    ssl.truststore.password
    """
)
_PREFIXES: Final = ("ssl.", "sasl.")


@dataclass(frozen=True, slots=True)
class Security:
    """Security protocol, and the settings that have an effect with it.

    Plain values, so that tasks elsewhere can be given a copy; secrets are hidden in its `repr`.
    """

    protocol: str = "PLAINTEXT"
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Security":
        """Read the security settings among `given`, and ignore other settings.

        Settings of TLS or SASL without effect under `security.protocol` are ignored, as in Java.

        Raises:
            Misconfigured: a setting that does not exist or is not supported, a value or a
                combination that no connection could be made with. Secrets are not repeated.
        """
        for name in given:
            _refuse_unknown(name)
        protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise Misconfigured(
                f"security.protocol={given['security.protocol']}: allowed are "
                f"{', '.join(PROTOCOLS)}"
            )
        prefixes = [prefix for prefix in _PREFIXES if prefix[:-1].upper() in protocol.split("_")]
        relevant = {
            name: Hidden(value) if name in _SECRET else value
            for name, value in sorted(given.items())
            if name.startswith(tuple(prefixes)) and name not in _WITHOUT_EFFECT
        }
        for name in relevant:
            if name in _REFUSED:
                raise Misconfigured(f"{name} is not supported: {_REFUSED[name]}")
        security = cls(protocol, tuple(relevant.items()))
        if security.uses_tls:
            _check_tls(relevant)
        return security

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def uses_sasl(self) -> bool:
        """True if a connection authenticates before its first request."""
        return self.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @property
    def without_login(self) -> "Security":
        """The same encryption without SASL, for what a broker answers before authentication."""
        return Security("SSL" if self.uses_tls else "PLAINTEXT", self.settings)

    def get(self, name: str) -> str | None:
        """Return the value of a setting; None if it is missing or empty."""
        return dict(self.settings).get(name) or None

    def check_sasl(self, *, has_token_callback: bool) -> None:
        """Refuse SASL settings that cannot authenticate.

        Raises:
            Misconfigured: the mechanism is not supported, or its credentials are not given.
        """
        if not self.uses_sasl:
            return
        mechanism = self.mechanism
        if mechanism not in MECHANISMS:
            default = "" if self.get("sasl.mechanism") else ", which is Kafka's default,"
            raise Misconfigured(
                f"sasl.mechanism={mechanism}{default} is not supported; supported are "
                f"{', '.join(MECHANISMS)}"
            )
        if mechanism == "OAUTHBEARER" and has_token_callback:
            return
        jaas = self.get("sasl.jaas.config")
        if mechanism == "OAUTHBEARER":
            if jaas is None and self.get("sasl.oauthbearer.token.endpoint.url") is None:
                raise Misconfigured(
                    "OAUTHBEARER needs a token: give sasl.oauthbearer.token.endpoint.url, "
                    "sasl.jaas.config, or a function as oauth_token"
                )
            return
        if jaas is None:
            raise Misconfigured(f"sasl.mechanism={mechanism} needs sasl.jaas.config")
        options = parse_jaas(jaas).options
        for option in ("username", "password"):
            if option not in options:
                raise Misconfigured(f"sasl.jaas.config has no {option}")

    @property
    def mechanism(self) -> str:
        """Value of `sasl.mechanism`, or Kafka's default."""
        return (self.get("sasl.mechanism") or "GSSAPI").upper()


PLAINTEXT: Final = Security()


def _refuse_unknown(name: str) -> None:
    if not name.startswith(_PREFIXES) or name in SECURITY_SETTINGS:
        return
    if name in _OF_LIBRDKAFKA:
        raise Misconfigured(
            f"'{name}' is a setting of librdkafka; Kafka's own name is {_OF_LIBRDKAFKA[name]}"
        )
    close = difflib.get_close_matches(name, SECURITY_SETTINGS, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    raise Misconfigured(f"'{name}' is no setting of Kafka's clients{hint}")


def _check_tls(settings: Mapping[str, str]) -> None:
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm.lower() not in {"", "https"}:
        raise Misconfigured(
            f"ssl.endpoint.identification.algorithm={algorithm}: allowed are https, and nothing "
            "to accept certificates of other hosts"
        )
    check_stores(settings)
