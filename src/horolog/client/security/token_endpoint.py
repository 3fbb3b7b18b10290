"""Asks a token endpoint for a bearer token with client credentials (RFC 6749, section 4.4)."""

import http.client
import json
import math
import ssl
import time
import urllib.error
import urllib.request
from typing import Final, NamedTuple

from horolog.client.deadline import Deadline
from horolog.client.http_exchange import HttpExchange, failure
from horolog.client.security.errors import NoToken

SETTING: Final = "sasl.oauthbearer.token.endpoint.url"
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})


class TokenEndpoint(NamedTuple):
    """A token endpoint, and how patiently it is asked."""

    request: urllib.request.Request
    shown: str
    """Its URL without secrets."""
    tls: ssl.SSLContext | None
    backoff_ms: int
    """First pause after a failure that may pass; each next one is twice as long."""
    patience_ms: int
    """How long it is tried."""


def ask_patiently(endpoint: TokenEndpoint, deadline: Deadline) -> tuple[str, float]:
    """Return a token and its lifetime in seconds, also if the endpoint fails for a while.

    Raises:
        NoToken: the endpoint refuses, or has failed for too long.
    """
    until = deadline.no_later_than_ms(endpoint.patience_ms)
    pause_s = endpoint.backoff_ms / 1000
    while True:
        try:
            return _ask(endpoint, deadline)
        except _MayPass as error:
            if until.left_s() <= 0:
                raise NoToken(str(error)) from None
        time.sleep(min(pause_s, until.left_s()))
        pause_s *= 2


class _MayPass(NoToken):
    """Raised if another try may succeed."""


def _ask(endpoint: TokenEndpoint, deadline: Deadline) -> tuple[str, float]:
    """Return a token and its lifetime in seconds, 0 where the endpoint gives none.

    Raises:
        NoToken: the endpoint refuses, cannot be reached, has not answered by the deadline, or
            its answer has no token.
    """
    shown = endpoint.shown
    exchange = HttpExchange(endpoint.request, deadline.left_s(), endpoint.tls)
    try:
        found = json.loads(exchange.answer.result(deadline.left_s()))
        token, lifetime_s = found["access_token"], float(found.get("expires_in", 0))
    except (OSError, http.client.HTTPException) as error:
        may_pass = isinstance(error, OSError)
        if isinstance(error, urllib.error.HTTPError):
            may_pass = error.code in _BUSY
        kind = _MayPass if may_pass else NoToken
        raise kind(f"{shown} {failure(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        token, lifetime_s = None, 0.0
    finally:
        exchange.end()
    if not isinstance(token, str) or not math.isfinite(lifetime_s):
        raise NoToken(f"{shown} answered with no access_token in JSON")
    return token, lifetime_s
