"""Which requests a client may make: asked once for every request, before its handler.

There are no access rights yet: every principal may do everything. What is here already holds for
clients that have not authenticated, where a listener demands it.
"""

from typing import Final, Protocol

from horolog.network.dispatching import Hangup
from horolog.network.peer import Peer
from horolog.wire.api import ApiKey

BEFORE_AUTHENTICATION: Final = frozenset({ApiKey.API_VERSIONS})
"""What a client may ask before its principal is known; SaslHandshake and SaslAuthenticate belong
here once they are served."""


class Authorise(Protocol):
    """Decides whether a request may be handled."""

    def __call__(self, peer: Peer, api_key: ApiKey, /) -> None:
        """Return if the peer may make this request.

        Raises:
            Hangup: it may not, and the connection is to be closed.
        """
        ...


def authorise(peer: Peer, api_key: ApiKey) -> None:
    """Let everybody who is known do everything.

    Raises:
        Hangup: the client has to authenticate first.
    """
    if peer.principal is None and api_key not in BEFORE_AUTHENTICATION:
        raise Hangup(f"{api_key.title} was asked before authentication")
