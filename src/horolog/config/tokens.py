"""How a listener checks the tokens of OAUTHBEARER: Kafka's settings under `sasl.oauthbearer.`.

A listener, and its mechanism, can have each of them for itself, before those of all:

listener.name.NAME.oauthbearer.sasl.server.callback.handler.class=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.NAME.sasl.oauthbearer.jwks.endpoint.url=https://HOST/keys
sasl.oauthbearer.expected.issuer=https://HOST
sasl.oauthbearer.expected.audience=kafka
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from horolog.config.listeners import of_listener
from horolog.config.tables import broker_settings
from horolog.errors import Misconfigured
from horolog.security.claims import TokenRules
from horolog.security.urls import checked_url, is_loopback, without_secrets

OAUTHBEARER: Final = "OAUTHBEARER"
SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"

_PREFIX: Final = "sasl.oauthbearer."
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_VALIDATOR: Final = f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
_VALIDATORS: Final = (_VALIDATOR, f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler")
_LOGINS: Final = (
    f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)


@dataclass(frozen=True, slots=True, repr=False)
class TokenKeys:
    """Where the keys that check tokens are read, and how often. Its `repr` has no password."""

    url: str
    refresh_ms: int
    backoff_ms: int
    """First pause after a failure; each next one is twice as long."""
    backoff_max_ms: int
    tls: tuple[tuple[str, str], ...] = ()
    """Options `ssl.*` of the login module, for an https URL."""


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """How tokens are checked on a listener."""

    rules: TokenRules
    keys: TokenKeys


def parse_tokens(
    listener: str, given: Mapping[str, str], options: Mapping[str, str]
) -> TokenSettings:
    """Return how a listener checks tokens.

    Args:
        given: all settings of the broker.
        options: those of the login module of OAUTHBEARER.

    Raises:
        ValueError: tokens would not be checked, or a setting cannot be used.
    """
    settings = _Settings(listener, given)
    _require_handlers(listener, given)
    url = _safe_url(settings)
    audiences = frozenset(filter(None, settings.value("expected.audience")))
    if not audiences and not settings.value("allow.unverified.audience"):
        raise settings.missing("expected.audience", "the audience of tokens for this broker")
    issuer = settings.text("expected.issuer")
    if not issuer and not settings.value("allow.unverified.issuer"):
        raise settings.missing("expected.issuer", "the issuer of the tokens")
    subject, scope = settings.text("sub.claim.name"), settings.text("scope.claim.name")
    if not subject or not scope:
        raise ValueError(
            f"the listener {listener}: {_PREFIX}sub.claim.name and .scope.claim.name "
            "cannot be empty"
        )
    rules = TokenRules(
        issuer or None, audiences, subject, scope, settings.natural("clock.skew.seconds")
    )
    keys = TokenKeys(
        url,
        max(1, settings.natural("jwks.endpoint.refresh.ms")),
        max(1, settings.natural("jwks.endpoint.retry.backoff.ms")),
        max(1, settings.natural("jwks.endpoint.retry.backoff.max.ms")),
        tuple(sorted((name, value) for name, value in options.items() if name.startswith("ssl."))),
    )
    return TokenSettings(rules, keys)


class _Settings:
    """Settings under `sasl.oauthbearer.` as they hold for a listener."""

    def __init__(self, listener: str, given: Mapping[str, str]) -> None:
        self._listener = listener
        self._given = given

    def name(self, key: str) -> str:
        """Return the name under which a setting was given; Kafka's own without one."""
        name = _PREFIX + key
        names = (
            of_listener(self._listener, name, OAUTHBEARER),
            of_listener(self._listener, name),
        )
        return next((one for one in names if one in self._given), name)

    def value(self, key: str) -> Any:
        setting, name = broker_settings()[_PREFIX + key], self.name(key)
        if name not in self._given:
            return setting.default_value
        return setting.read(self._given[name], name)

    def text(self, key: str) -> str:
        return str(self.value(key) or "").strip()

    def natural(self, key: str) -> int:
        number = int(self.value(key))
        if number < 0:
            raise ValueError(
                f"Invalid value {number} for configuration {self.name(key)}: allowed is at least 0"
            )
        return number

    def missing(self, key: str, what: str) -> ValueError:
        return ValueError(
            f"the listener {self._listener} cannot check tokens of OAUTHBEARER: "
            f"{_PREFIX}{key} is missing. Add the line "
            f"{of_listener(self._listener, _PREFIX + key, OAUTHBEARER)}=..., with {what}"
        )


def _require_handlers(listener: str, given: Mapping[str, str]) -> None:
    """Refuse what would accept unsigned tokens in Apache Kafka, and classes of others."""
    name = of_listener(listener, SERVER_HANDLER, OAUTHBEARER)
    if given.get(name) not in _VALIDATORS:
        raise ValueError(
            f"the listener {listener} enables OAUTHBEARER without a check of signatures: Apache "
            f"Kafka accepts unsigned tokens then. Add the line {name}={_VALIDATOR}"
        )
    name = of_listener(listener, LOGIN_HANDLER, OAUTHBEARER)
    if given.get(name, _LOGINS[0]) not in _LOGINS:
        raise ValueError(f"{name}={given[name]} is refused: classes of the JVM cannot be loaded")


def _safe_url(settings: _Settings) -> str:
    """Return the URL of the keys; one whose keys others could replace on their way is refused."""
    url, name = settings.text("jwks.endpoint.url"), settings.name("jwks.endpoint.url")
    if not url:
        raise settings.missing("jwks.endpoint.url", "https://HOST/PATH, where the issuer has keys")
    try:
        parts = checked_url(url, name)
    except Misconfigured as error:
        raise ValueError(str(error)) from None
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError(
            f"{name}={without_secrets(parts)} would read keys unencrypted from another machine, "
            "and whoever changes them on the way could log in as anyone: use https"
        )
    if "@" in parts.netloc:
        raise ValueError(f"{name}={without_secrets(parts)} has a user in it, which is not sent")
    return url
