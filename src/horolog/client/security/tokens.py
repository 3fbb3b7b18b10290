"""Sources of OAUTHBEARER tokens: a function, a token endpoint, a file, or none (unsecured).

A token is asked for when a connection is made and kept until four fifths of its life are over.
"""

import base64
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from horolog.client.deadline import Deadline
from horolog.client.security.errors import NoToken
from horolog.client.security.settings import Security
from horolog.client.security.token_endpoint import SETTING, TokenEndpoint, ask_patiently
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.security.contexts import endpoint_tls
from horolog.security.jaas import parse_jaas
from horolog.security.urls import checked_url, without_secrets

_MAX_FILE_BYTES: Final = 1 << 20
_KEPT: Final = 0.8
_HOUR_S: Final = 3600
# RFC 6750's b64token; anything else could smuggle fields into the message.
_TOKEN_CHARACTERS: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="
)
_SECURED_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_UNSECURED_HANDLER: Final = "OAuthBearerUnsecuredLoginCallbackHandler"
# Which of them it is follows from the URL.
_RETRIEVERS: Final = (
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "FileJwtRetriever",
)


_Source: TypeAlias = Callable[[Deadline], "Token"]


class Token(NamedTuple):
    """Bearer token, its lifetime in seconds, and SASL extensions (KIP-342)."""

    value: str
    lifetime_s: float
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Token([hidden], lifetime_s={self.lifetime_s})"


class Tokens:
    """Source and cache of the tokens of one client."""

    def __init__(self, security: Security, callback: Callable[[], str] | None = None) -> None:
        """Choose the source of tokens.

        Raises:
            Misconfigured: the settings name none, or one that is not supported.
        """
        self._ask = _source_of(security, callback)
        self._token: Token | None = None
        self._until_s = 0.0

    def current(self, deadline: Deadline) -> Token:
        """Return a token that is valid for a while.

        Raises:
            NoToken: there is none to be had by the deadline.
        """
        now_s = time.monotonic()
        if self._token is None or now_s >= self._until_s:
            token = self._ask(deadline)
            if not token.value or not _TOKEN_CHARACTERS.issuperset(token.value):
                raise NoToken("what should be a bearer token holds other characters, or nothing")
            self._token, self._until_s = token, now_s + _KEPT * token.lifetime_s
        return self._token


def _source_of(security: Security, callback: Callable[[], str] | None) -> _Source:
    if callback is not None:
        return lambda _: Token(callback(), 0, {})
    jaas = security.get("sasl.jaas.config")
    options = {} if jaas is None else parse_jaas(jaas).options
    handler = (security.get("sasl.login.callback.handler.class") or "").rpartition(".")[2]
    url = security.get(SETTING)
    if handler not in {"", _SECURED_HANDLER, _UNSECURED_HANDLER}:
        raise Misconfigured(
            "sasl.login.callback.handler.class names a class of the JVM, which this client does "
            "not run; give a function as oauth_token, or a token endpoint"
        )
    retriever = security.get("sasl.oauthbearer.jwt.retriever.class") or _RETRIEVERS[0]
    if retriever.rpartition(".")[2] not in _RETRIEVERS:
        raise Misconfigured(
            "sasl.oauthbearer.jwt.retriever.class names a class of the JVM, which this client does "
            f"not run; the work of {', '.join(_RETRIEVERS)} is done here"
        )
    if handler == _UNSECURED_HANDLER or (not handler and url is None):
        return _unsecured(options)
    if url is None:
        raise Misconfigured(f"{_SECURED_HANDLER} needs {SETTING}")
    extensions = _prefixed(options, "extension_")
    parts = checked_url(url, SETTING)
    if "@" in parts.netloc:
        raise Misconfigured(
            f"{SETTING}={without_secrets(parts)} has a user in it, which would not be sent: give "
            "sasl.oauthbearer.client.credentials.client.id and .secret"
        )
    if parts.scheme == "file":
        return lambda _: _from_file(parts.path, extensions)
    endpoint = _endpoint_of(security, options, url, without_secrets(parts))
    return lambda deadline: Token(*ask_patiently(endpoint, deadline), extensions)


def _endpoint_of(
    security: Security, options: Mapping[str, str], url: str, shown: str
) -> TokenEndpoint:
    """Return the token endpoint at a URL, with the client's credentials."""
    client_id = security.get("sasl.oauthbearer.client.credentials.client.id")
    secret = security.get("sasl.oauthbearer.client.credentials.client.secret")
    client_id, secret = client_id or options.get("clientId"), secret or options.get("clientSecret")
    if not client_id or not secret:
        raise Misconfigured(
            "a token endpoint needs sasl.oauthbearer.client.credentials.client.id and .secret, or "
            "clientId and clientSecret in sasl.jaas.config"
        )
    scope = security.get("sasl.oauthbearer.scope") or options.get("scope")
    if (security.get("sasl.oauthbearer.header.urlencode") or "").lower() == "true":
        client_id, secret = map(urllib.parse.quote_plus, (client_id, secret))
    basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    fields = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        url,
        data=urllib.parse.urlencode(fields).encode(),
        headers={"Authorization": f"Basic {basic}", "Accept": "application/json"},
    )
    return TokenEndpoint(
        request,
        shown,
        endpoint_tls(options),
        _milliseconds(security, "sasl.login.retry.backoff.ms", 100),
        _milliseconds(security, "sasl.login.retry.backoff.max.ms", 10_000),
    )


def _milliseconds(security: Security, name: str, default: int) -> int:
    text = security.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Misconfigured(f"{name}={text}: allowed is a number of milliseconds")
    return int(text)


def _from_file(url_path: str, extensions: Mapping[str, str]) -> Token:
    path = urllib.request.url2pathname(url_path)
    try:
        with open(path, encoding="ascii") as file:
            return Token(file.read(_MAX_FILE_BYTES).strip(), 0, extensions)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a token"
        raise NoToken(f"{SETTING}=file://{url_path}: {why}") from None


def _unsecured(options: Mapping[str, str]) -> _Source:
    """Return a source of unsigned tokens, as made by Kafka's unsecured handler, for tests."""
    strings = _prefixed(options, "unsecuredLoginStringClaim_")
    principal = options.get("unsecuredLoginPrincipalClaimName", "sub")
    claims: dict[str, Any] = dict(strings)
    try:
        numbers = _prefixed(options, "unsecuredLoginNumberClaim_")
        claims.update({name: float(value) for name, value in numbers.items()})
        lifetime_s = int(options.get("unsecuredLoginLifetimeSeconds", _HOUR_S))
    except ValueError:
        raise Misconfigured("sasl.jaas.config: a number of an unsecured token is none") from None
    for name, value in _prefixed(options, "unsecuredLoginListClaim_").items():
        claims[name] = value[1:].split(value[:1]) if value else []
    if principal not in claims:
        raise Misconfigured(
            f"sasl.jaas.config has no unsecuredLoginStringClaim_{principal}, and no "
            "sasl.oauthbearer.token.endpoint.url is given"
        )
    extensions = _prefixed(options, "unsecuredLoginExtension_")

    def make(_: Deadline) -> Token:
        now_s = SystemClock().now_ms() / 1000
        times = {"iat": now_s, "exp": now_s + lifetime_s}
        parts = (_json({"alg": "none"}), _json({**times, **claims}), "")
        return Token(".".join(parts), lifetime_s, extensions)

    return make


def _prefixed(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix)
    }


def _json(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
