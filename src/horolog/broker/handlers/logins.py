"""Requests of a login that come when there is nothing to log in for.

Clients without a principal are answered before their requests get here (broker/logins.py).
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey
from horolog.wire.requests import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from horolog.wire.responses import SaslAuthenticateResponse, SaslHandshakeResponse

# --- SaslHandshake: chooses a mechanism (KIP-43) ----------------------------------------
#
# v0  the mechanism's messages follow without headers
# v1  they follow in SaslAuthenticate


@api(ApiKey.SASL_HANDSHAKE)
def sasl_handshake(
    request: Request[SaslHandshakeRequest], broker: BrokerParts
) -> "SaslHandshakeResponse":
    """Refuse a login on a listener without one, or after it."""
    return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}


# --- SaslAuthenticate: a message of the mechanism (KIP-152) -----------------------------
#
# v1  for how long the login holds (KIP-368)
# v2  flexible


@api(ApiKey.SASL_AUTHENTICATE)
def sasl_authenticate(
    request: Request[SaslAuthenticateRequest], broker: BrokerParts
) -> "SaslAuthenticateResponse":
    """Refuse a login on a listener without one, or after it."""
    return {
        "error_code": ErrorCode.illegal_sasl_state,
        "error_message": "SaslAuthenticate request received after successful authentication",
        "auth_bytes": b"",
    }
