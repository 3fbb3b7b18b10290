"""Asks a token endpoint for a bearer token with client credentials (RFC 6749, section 4.4)."""

import http.client
import json
import math
import ssl
import urllib.request
from typing import Final

from horolog.client.deadline import Deadline
from horolog.client.http_exchange import HttpExchange, failure
from horolog.client.security.errors import NoToken

SETTING: Final = "sasl.oauthbearer.token.endpoint.url"


def ask_endpoint(
    request: urllib.request.Request, shown: str, deadline: Deadline, tls: ssl.SSLContext | None
) -> tuple[str, float]:
    """Return a token and its lifetime in seconds, 0 where the endpoint gives none.

    Raises:
        NoToken: the endpoint refuses, cannot be reached, has not answered by the deadline, or
            its answer has no token.
    """
    exchange = HttpExchange(request, deadline.left_s(), tls)
    try:
        found = json.loads(exchange.answer.result(deadline.left_s()))
        token, lifetime_s = found["access_token"], float(found.get("expires_in", 0))
    except (OSError, http.client.HTTPException) as error:
        raise NoToken(f"{shown} {failure(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        token, lifetime_s = None, 0.0
    finally:
        exchange.end()
    if not isinstance(token, str) or not math.isfinite(lifetime_s):
        raise NoToken(f"{shown} answered with no access_token in JSON")
    return token, lifetime_s
