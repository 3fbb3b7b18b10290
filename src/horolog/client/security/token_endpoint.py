"""Asks a token endpoint for a bearer token with client credentials (RFC 6749, section 4.4)."""

import http.client
import json
import math
import threading
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import Future
from typing import Any, Final

from horolog.client.deadline import Deadline
from horolog.client.security.errors import NoToken
from horolog.errors import Misconfigured

SETTING: Final = "sasl.oauthbearer.token.endpoint.url"

_MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_REASON: Final = 200


def checked_url(url: str) -> urllib.parse.SplitResult:
    """Return the parts of the URL of a token endpoint, or of a file with a token.

    Raises:
        Misconfigured: the URL is not usable. Parts that may be secret are not repeated.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_complete = parts.scheme == "file" or (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0
            and url.isascii()
            and url.isprintable()
            and " " not in url
        )
    except ValueError:  # brackets that do not close, a port beyond 65535
        is_complete = False
    if not is_complete:
        raise Misconfigured(
            f"{SETTING} is not usable: expected https://host/..., http://host/... or file:///..."
        )
    if "@" in parts.netloc:
        raise Misconfigured(
            f"{SETTING}={without_secrets(parts)} has a user in it, which would not be sent: give "
            "sasl.oauthbearer.client.credentials.client.id and .secret"
        )
    return parts


def without_secrets(parts: urllib.parse.SplitResult) -> str:
    """Return the URL without user, password and query, for messages."""
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()


def ask_endpoint(
    request: urllib.request.Request, shown: str, deadline: Deadline
) -> tuple[str, float]:
    """Return a token and its lifetime in seconds, 0 where the endpoint gives none.

    A redirect is not followed: it would send the client's secret wherever it leads.

    Raises:
        NoToken: the endpoint refuses, cannot be reached, has not answered by the deadline, or
            its answer has no token.
    """
    answer: Future[tuple[str, float]] = Future()
    # A timeout of a socket bounds each read, and an answer may come byte by byte. So the answer is
    # read by a thread, which is not waited for beyond the deadline.
    threading.Thread(
        target=_fetch, args=(request, deadline.left_s(), answer), name="horolog-token", daemon=True
    ).start()
    try:
        return answer.result(deadline.left_s())
    except urllib.error.HTTPError as error:
        error.close()
        hint = ""
        if error.code in _NoRedirects.CODES:
            hint = "; redirects are not followed: give the address that it leads to"
        reason = str(error.reason)[:_MAX_REASON]
        raise NoToken(f"{shown} answered {error.code} {reason}{hint}") from None
    except OSError as error:
        reason = str(getattr(error, "reason", error))[:_MAX_REASON]
        raise NoToken(f"{shown} does not answer ({reason or 'timed out'})") from None
    except http.client.HTTPException as error:
        raise NoToken(f"{shown} breaks HTTP ({type(error).__name__})") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise NoToken(f"{shown} answered with no access_token in JSON") from None


def _fetch(
    request: urllib.request.Request, timeout_s: float, answer: "Future[tuple[str, float]]"
) -> None:
    try:
        opener = urllib.request.build_opener(_NoRedirects)
        with opener.open(request, timeout=max(timeout_s, 0.001)) as response:
            found = json.loads(response.read(_MAX_ANSWER_BYTES))
        token, lifetime_s = found["access_token"], float(found.get("expires_in", 0))
        if not isinstance(token, str) or not math.isfinite(lifetime_s):
            raise ValueError
    except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
        answer.set_exception(error)
    else:
        answer.set_result((token, lifetime_s))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    CODES: Final = frozenset({301, 302, 303, 307, 308})

    def redirect_request(self, *_: Any) -> None:
        return None  # which makes an error of the redirect
