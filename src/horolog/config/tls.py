"""TLS of listeners: Kafka's settings under `ssl.`, each listener's own before those of all.

ssl.keystore.location=/etc/horolog/broker.pem                      of all listeners
listener.name.NAME.ssl.keystore.location=/etc/horolog/other.pem    of one, its name in lower case
horolog.metrics.ssl.keystore.location=/etc/horolog/other.pem       of the page of metrics
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from horolog.errors import Misconfigured
from horolog.security.names import MappingRule, parse_rules

PREFIX: Final = "ssl."
_CLIENT_AUTH: Final = "ssl.client.auth"
_RULES: Final = "ssl.principal.mapping.rules"
OF_METRICS: Final = "horolog.metrics."
"""Prefix of the settings of TLS on the page of metrics."""
_STORES: Final = (
    (
        ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
        ("ssl.keystore.password", "ssl.key.password"),
    ),
    (("ssl.truststore.location", "ssl.truststore.certificates"), ("ssl.truststore.password",)),
)
"""Settings that say where a store is, and the passwords of it."""


@dataclass(frozen=True, slots=True, repr=False)
class ListenerTls:
    """TLS of a listener. Its `repr` has no password."""

    settings: Mapping[str, str]
    """Settings that are not empty, under their names without the listener's."""
    rules: tuple[MappingRule, ...]

    def allows(self, name: str) -> bool:
        """Return True if a setting that is false by default is true."""
        return self.settings.get(name, "").lower() == "true"

    @property
    def requires_certificate(self) -> bool:
        """True if every client must show a certificate."""
        return self.settings.get(_CLIENT_AUTH) == "required"


def parse_tls(
    prefix: str, names: Iterable[str], given: Mapping[str, str], *, asks_for_itself: bool
) -> ListenerTls:
    """Return the TLS of a listener.

    Args:
        prefix: of the listener's own settings.
        asks_for_itself: whether only its own setting asks for a certificate, as in Kafka where
            clients log in.
        names: settings that a listener has.
        given: all settings of the broker.

    Raises:
        ValueError: the rules cannot be read.
    """
    settings = {}
    for name in names:
        value = given.get(prefix + name)
        if value is None and not (asks_for_itself and name == _CLIENT_AUTH):
            value = given.get(name)
        if value or (value == "" and name == _RULES):  # no rules: no name fits any
            settings[name] = value
    try:
        return ListenerTls(settings, parse_rules(settings.get(_RULES, "DEFAULT")))
    except Misconfigured as error:
        raise ValueError(f"{prefix}{_RULES}: {error}") from None


def parse_metrics_tls(names: Iterable[str], given: Mapping[str, str]) -> ListenerTls:
    """Return the TLS of the page of metrics; with a store of its own, no password is inherited.

    Raises:
        ValueError: the rules cannot be read.
    """
    others = dict(given)
    for places, passwords in _STORES:
        if any(given.get(OF_METRICS + name) for name in places):
            for name in (*places, *passwords):
                others.pop(name, None)
    return parse_tls(OF_METRICS, names, others, asks_for_itself=True)
